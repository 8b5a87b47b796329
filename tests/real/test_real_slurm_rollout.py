"""Drains and a whole rollout on a real Slurm with a real Prefect server: jobs are let go at their checkpoints."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.model import NodeState
from ledger import NodeStatus, OperationState
from simulator.real_slurm import missing_parts
from simulator.verdict import Expectations, judge
from tests.flows.operated_site import edit_fleet
from tests.real.real_slurm_site import RealSlurmSite, real_slurm_site

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.prefect,
    pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or ""),
    pytest.mark.timeout(900),
]

JOBS = 8
PAIR = ["gpu-0001", "gpu-0002"]


def by_policy(site: RealSlurmSite) -> None:
    """No people, no bake, and the jobs' storage is known."""

    def change(tree: dict[str, dict[str, dict[str, object]]]) -> None:
        tree["gate"] = {"required": 0}  # type: ignore[dict-item]
        tree["scheduler"]["poll_seconds"] = 1.0  # type: ignore[assignment]
        tree["drain"] = {"checkpoints": {"clock_folder": str(site.folder / "storage")}}
        for pool in tree["pools"].values():
            waves = pool["waves"]
            assert isinstance(waves, dict)
            waves |= {"bake_seconds": 0.0, "drain_timeout_seconds": 900.0}
            pool["breaker"] = {"share": 1.0, "window_seconds": 1.0, "floor_nodes": 99}

    edit_fleet(site.file, change)
    (site.folder / "storage").mkdir(exist_ok=True)
    site.done("up", "--port", str(site.port))


@pytest.fixture(scope="module")
def site() -> Iterator[RealSlurmSite]:
    """Sixteen nodes; the jobs are the tests' own."""
    options = ("--time-scale", "60", "--no-jobs", "--slurmd-timeout", "6", "--uniform")
    with (
        tempfile.TemporaryDirectory(prefix="site", dir="/tmp") as folder,
        real_slurm_site(Path(folder) / "fleet", *options) as site,
    ):
        by_policy(site)
        yield site
        site.gpufleet("down")


def job_that_touches(site: RealSlurmSite, beacon: Path, go: Path) -> str:
    """A job on both nodes that writes checkpoints each second from when `go` is there, and not before."""
    beacon.parent.mkdir(exist_ok=True)
    loop = f"while :; do [ -e {shlex.quote(str(go))} ] && touch {shlex.quote(str(beacon))}; sleep 1; done"
    words = ("sbatch", "--parsable", "-N2", f"--nodelist={','.join(PAIR)}", "--gres=gpu:8", "--requeue")
    told = (f"--comment=ckpt={beacon};kind=beacon", "--output=/dev/null", "--wrap", loop)
    job = site.slurm(*words, *told).strip()
    site.wait("the job runs", lambda: site.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")
    return job


def waits_for(site: RealSlurmSite, operation: str, text: str) -> bool:
    return all(text in (row.waiting_for or "") for row in site.rows(operation))


def test_a_drain_goes_on_through_a_dead_controller_and_an_unmounted_storage(site: RealSlurmSite) -> None:
    storage = site.folder / "storage"
    job = job_that_touches(site, storage / "j1" / "beacon", storage / "go")
    begun = json.loads(site.done("drain", ",".join(PAIR), "--until-checkpoint", "--deadline", "15m", "--yes", "--json"))
    operation = begun["operation"]
    site.wait("its checkpoint is waited for", lambda: waits_for(site, operation, f"job {job} of"))

    site.kill_controller()
    site.wait("the silence is told", lambda: waits_for(site, operation, "scheduler does not answer"))
    site.start_controller()
    site.wait("the job is waited for again", lambda: waits_for(site, operation, f"job {job} of"))

    away = storage.with_name("storage-away")
    storage.rename(away)
    site.wait("the storage is missed", lambda: waits_for(site, operation, "last checkpoint not known"))
    away.rename(storage)

    (storage / "go").touch()
    site.wait_until(operation, OperationState.DONE)
    assert site.with_status(operation, NodeStatus.DRAINED) == PAIR
    (stopped,) = site.ledger.jobs.disturbances(operation)
    assert (stopped.job, stopped.how, stopped.gpus) == (job, "requeued", 16)
    assert stopped.lost_gpu_hours is not None
    assert stopped.lost_gpu_hours * 3600 / 16 < 20
    shown = site.slurm("scontrol", "show", "job", job)
    assert "Restarts=1" in shown
    assert "JobState=PENDING" in shown
    site.slurm("scancel", job)

    site.done("undrain", ",".join(PAIR), "--yes")
    site.wait("both are idle", lambda: [site.state(name) for name in PAIR] == ["idle", "idle"])


def test_a_node_that_a_person_drained_is_untouched_and_one_that_a_person_undrains_is_given_up(
    site: RealSlurmSite,
) -> None:
    odd = "dimm #7; see 'ticket 4711' & call eva=now"
    site.slurm("scontrol", "update", "nodename=gpu-0005", "state=drain", f"reason={odd}")
    operation = json.loads(site.done("drain", "gpu-0005", "--yes", "--json"))["operation"]
    site.wait_until(operation, OperationState.DONE)
    site.done("undrain", "gpu-0005", "--yes")
    assert (site.state("gpu-0005"), site.reason("gpu-0005")) == ("drained", odd)
    site.slurm("scontrol", "update", "nodename=gpu-0005", "state=resume")

    storage = site.folder / "storage"
    job = job_that_touches(site, storage / "j2" / "beacon", storage / "never")
    operation = json.loads(site.done("drain", PAIR[0], "--yes", "--json"))["operation"]
    site.wait("the job is waited for", lambda: waits_for(site, operation, f"job {job} of"))
    site.slurm("scontrol", "update", f"nodename={PAIR[0]}", "state=resume")
    site.wait_until(operation, OperationState.DONE)
    (row,) = site.rows(operation)
    assert (row.status, row.reason) == (NodeStatus.SKIPPED, "was undrained by hand while the operation held it")
    assert site.ledger.inventory.node(PAIR[0]).state is NodeState.IN_SERVICE
    assert site.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
    site.slurm("scancel", job)


def test_a_whole_rollout_stops_jobs_only_at_their_checkpoints_and_leaves_no_fence() -> None:
    options = ("--time-scale", "60", "--job-count", str(JOBS), "--job-seconds", "60", "--slurmd-timeout", "6")
    with (
        tempfile.TemporaryDirectory(prefix="site", dir="/tmp") as folder,
        real_slurm_site(Path(folder) / "fleet", *options) as site,
    ):
        by_policy(site)
        try:
            bundle = ("--bundle", str(site.folder / "bundle"), "--seed", "1")
            operation = json.loads(site.done("run", "firmware", *bundle, "--yes", "--json"))["operation"]
            site.wait("a fence stands", lambda: "ReservationName" in site.slurm("scontrol", "show", "res"), 300)
            site.wait_until(operation, OperationState.DONE, 600)
            assert site.ledger.jobs.disturbances(operation), "no job was stopped: the rollout met none"
            rows = site.rows(operation)
            assert {row.status for row in rows} == {NodeStatus.UPDATED}, [(row.node, row.reason) for row in rows]
            site.wait("no fence is left", lambda: "ReservationName" not in site.slurm("scontrol", "show", "res"))

            def all_ended() -> bool:
                for pending in site.slurm("squeue", "-h", "-t", "PD", "-o", "%i").split():
                    site.start_now(pending)
                return len(site.truth().jobs_ended) == JOBS

            site.wait("all jobs ended", all_ended, 300)
            expected = Expectations(updated=frozenset(row.node for row in rows), most_lost_seconds=20)
            assert judge(site.folder / "truth.jsonl", expected).wrong() == ()
        finally:
            site.gpufleet("down")
