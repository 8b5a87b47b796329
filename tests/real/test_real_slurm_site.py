"""A simulated fleet whose scheduler is a real Slurm: what is done to a node shows there, and the other way round."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import httpx
import psutil
import pytest

from fleet.errors import SchedulerUnreachable
from fleet.model import Node, ResetKind, SchedulerState
from simulator.real_slurm import RealSlurm, missing_parts
from simulator.verdict import Expectations, judge
from tests.real.real_slurm_site import NODES, RealSlurmSite, real_slurm_site

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or ""),
    pytest.mark.timeout(300),
]

JOBS = 6


@pytest.fixture(scope="module")
def site() -> Iterator[RealSlurmSite]:
    """Sixteen nodes without jobs; a host boots in 3 s."""
    options = ("--time-scale", "60", "--no-jobs", "--slurmd-timeout", "6", "--uniform")
    with (
        tempfile.TemporaryDirectory(prefix="site", dir="/tmp") as folder,
        real_slurm_site(Path(folder) / "fleet", *options) as site,
    ):
        yield site


def flags(site: RealSlurmSite, name: str) -> frozenset[str]:
    return site.fleet.scheduler().look(newer_than=site.fleet.clock.monotonic()).nodes[name].flags


def node_of(site: RealSlurmSite, name: str) -> Node:
    return next(node for node in site.fleet.spec().inventory() if node.name == name)


def test_every_node_is_idle_in_the_partition_of_its_pool(site: RealSlurmSite) -> None:
    rows = [line.split() for line in site.slurm("sinfo", "-h", "-N", "-o", "%N %R %G").splitlines()]
    pools = {node.name: node.pool for node in site.fleet.spec().inventory()}
    assert {name: pool for name, pool, _ in rows} == pools
    assert {gpus for _, _, gpus in rows} == {"gpu:h100:8"}
    assert len(rows) == NODES


def test_a_cordon_shows_in_sinfo_with_its_reason_and_in_the_truth_log(site: RealSlurmSite) -> None:
    scheduler, name = site.fleet.scheduler(), "gpu-0001"
    scheduler.cordon((name,), "op 1: it's wave 1; firmware")
    assert (site.state(name), site.reason(name)) == ("drained", "op 1: it's wave 1; firmware")
    site.wait("the cordon in the truth log", lambda: site.truth().nodes[name].cordoned)
    assert site.truth().cordoned_at_end[name] == "op 1: it's wave 1; firmware"
    scheduler.uncordon((name,))
    site.wait("the node is idle", lambda: site.state(name) == "idle")
    site.wait("the uncordon in the truth log", lambda: not site.truth().nodes[name].cordoned)


def test_a_person_who_drains_a_node_past_gpufleet_is_seen(site: RealSlurmSite) -> None:
    name = "gpu-0002"
    site.slurm("scontrol", "update", f"nodename={name}", "state=drain", "reason=dimm #7 & fan")
    seen = site.fleet.scheduler().look(newer_than=site.fleet.clock.monotonic()).nodes[name]
    assert (seen.cordoned, seen.reason, seen.state) == (True, "dimm #7 & fan", SchedulerState.IDLE)
    site.slurm("scontrol", "update", f"nodename={name}", "state=resume")


def reset(site: RealSlurmSite, name: str, kind: str) -> None:
    """A reset that no flow asks for, by Redfish."""
    node = node_of(site, name)
    password = (site.folder / "bmc_password").read_text().strip()
    url = f"{node.bmc}/redfish/v1/Systems/System_0/Actions/ComputerSystem.Reset"
    answer = httpx.post(url, json={"ResetType": kind}, auth=("admin", password), timeout=60)
    assert answer.is_success, answer.text


def test_slurmd_goes_with_the_power_of_its_node_and_comes_back_with_its_boot(site: RealSlurmSite) -> None:
    name, scheduler = "gpu-0003", site.fleet.scheduler()
    before = site.slurmd(name)
    assert before is not None
    scheduler.cordon((name,), "op 2: wave 1")
    reset(site, name, "ForceOff")
    site.wait("slurmd is gone", lambda: site.slurmd(name) is None)
    site.wait("Slurm misses the node", lambda: site.state(name).endswith("*"))
    assert site.truth().nodes[name].host_down
    reset(site, name, "On")
    site.wait("slurmd is back", lambda: site.slurmd(name) not in (None, before))
    # ReturnToService=1: a node that was rebooted stays DOWN, with the reason that it had
    site.wait("the node has registered", lambda: flags(site, name) == {"DOWN", "DRAIN"})
    assert site.reason(name) == "op 2: wave 1"
    # Slurm counts boots in whole seconds: one that was resumed in the second of its boot may seem to boot once more
    site.wait("the boot is past", lambda: site.slurmd_age_seconds(name) > 3)
    scheduler.uncordon((name,))
    site.wait(f"the node is idle: {site.show(name)}", lambda: site.state(name) == "idle", 30)
    assert site.truth().nodes[name].resets == [ResetKind.HOST_REBOOT.value]
    assert not site.truth().nodes[name].host_down


def test_the_node_that_a_flow_resets_is_rebooted_in_slurm_too(site: RealSlurmSite) -> None:
    name = "gpu-0004"
    with site.fleet.bmc(node_of(site, name)) as bmc:
        bmc.reset(ResetKind.HOST_REBOOT)
    site.wait("Slurm says so", lambda: (site.state(name), site.reason(name)) == ("down", "Node unexpectedly rebooted"))
    site.wait("the truth log says that it is out", lambda: site.truth().nodes[name].out)


def test_a_controller_that_was_killed_is_unreachable_over_ssh_until_it_is_started_again(site: RealSlurmSite) -> None:
    clock, scheduler = site.fleet.clock, site.fleet.scheduler()
    site.kill_controller()
    with pytest.raises(SchedulerUnreachable):
        scheduler.look(newer_than=clock.monotonic())
    site.start_controller()
    assert len(scheduler.look(newer_than=clock.monotonic()).nodes) == NODES


async def _ssh(site: RealSlurmSite, command: str, text: str = "") -> tuple[int, str]:
    host, _, port = str(site.fleet.spec().scheduler.controller).partition(":")
    keys = {"known_hosts": str(site.folder / "known_hosts"), "client_keys": [str(site.folder / "ssh_key")]}
    async with asyncssh.connect(host, int(port), username="root", config=None, **keys) as connection:
        done = await connection.run(command, input=text)
    return done.exit_status or 0, str(done.stdout)


def test_the_controller_host_runs_slurms_commands_as_given_and_no_others(site: RealSlurmSite) -> None:
    assert asyncio.run(_ssh(site, "sinfo --version"))[1].startswith("slurm")
    assert asyncio.run(_ssh(site, "touch /tmp/x"))[0] == 127
    assert asyncio.run(_ssh(site, "sinfo -h -o '%R' -p 'train; hostname'")) == (0, "")
    code, out = asyncio.run(_ssh(site, "sbatch --parsable -N1 -o /dev/null", "#!/bin/sh\nsleep 1\n"))
    assert (code, out.strip().isdigit()) == (0, True)


def test_what_a_killed_simulator_left_running_is_ended_by_the_next_one_in_its_folder() -> None:
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder:
        left = RealSlurm(Path(folder), 1)
        left.start()
        left.submit("sleep 300", "--requeue")
        daemons = [left.daemon(name) for name in (*left.node_names, "slurmctld", "munged")]
        with RealSlurm(Path(folder), 2) as fresh:
            assert {daemon.status() for daemon in daemons} == {psutil.STATUS_ZOMBIE}  # their parent is this test
            assert fresh.command("sinfo", "-h", "-o", "%D %T") == "2 idle\n"
            assert fresh.command("squeue", "-h") == ""
        left.stop()


def _running_with_checkpoint(site: RealSlurmSite, other_than: int | None = None) -> int | None:
    jobs = site.truth().jobs.items()
    return next((id_ for id_, job in jobs if job.running and job.checkpoints and id_ != other_than), None)


def test_jobs_that_are_requeued_or_lose_their_node_begin_at_their_newest_checkpoint_and_end() -> None:
    options = ("--time-scale", "60", "--job-count", str(JOBS), "--job-seconds", "20", "--slurmd-timeout", "6")
    with (
        tempfile.TemporaryDirectory(prefix="site", dir="/tmp") as folder,
        real_slurm_site(Path(folder) / "fleet", *options) as site,
    ):
        requeued = site.wait("a checkpoint", lambda: _running_with_checkpoint(site))
        site.slurm("scontrol", "requeue", str(requeued))
        lost = site.wait("a checkpoint of another", lambda: _running_with_checkpoint(site, requeued))
        with site.fleet.bmc(node_of(site, site.truth().jobs[lost].nodes[0])) as bmc:
            bmc.reset(ResetKind.HOST_REBOOT)
        site.wait("both were stopped", lambda: all(site.truth().jobs[id_].kills for id_ in (requeued, lost)))

        def all_ended() -> bool:
            for pending in site.slurm("squeue", "-h", "-t", "PD", "-o", "%i").split():
                site.start_now(pending)
            return len(site.truth().jobs_ended) == JOBS

        site.wait("all jobs ended", all_ended, 200)
        verdict = judge(site.folder / "truth.jsonl", Expectations(most_lost_seconds=60))
        assert set(verdict.jobs_resumed) == {requeued, lost}
        assert [line for line in verdict.wrong() if line.startswith("job")] == []
        assert "lost its power" in verdict.jobs[lost].kills[0].cause
        assert 0 < verdict.lost_gpu_seconds < 60 * NODES * 8
