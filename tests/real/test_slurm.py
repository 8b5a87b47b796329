"""What only a real Slurm can show: daemons that die, rights, and GPUs asked for in every way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.local import Finished, LocalHost
from adapters.slurm import SlurmScheduler
from adapters.slurm_fences import SlurmFences
from fleet.errors import CredentialsRejected, JobRefused, SchedulerUnreachable
from fleet.model import SchedulerState
from tests.contract.slurm_bench import eventually
from tests.real.slurm import RealSlurm, missing_parts

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or ""),
]


@pytest.fixture
def slurm() -> Iterator[RealSlurm]:
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder, RealSlurm(Path(folder)) as cluster:
        yield cluster


@pytest.fixture
def scheduler(slurm: RealSlurm) -> SlurmScheduler:
    return SlurmScheduler(LocalHost({"SLURM_CONF": slurm.environment["SLURM_CONF"]}), timeout_seconds=30)


class NobodysHost(LocalHost):
    """Runs commands as a user without rights."""

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        return super().run(("setpriv", "--reuid=65534", "--clear-groups", *arguments), timeout_seconds)


def test_a_dead_controller_is_unreachable_and_the_drain_outlives_it(
    slurm: RealSlurm, scheduler: SlurmScheduler
) -> None:
    name = slurm.node_names[0]
    job = slurm.submit("sleep 300", "-N1", "-w", name, "--gres=gpu:8")
    eventually(lambda: bool(scheduler.read_jobs()))
    scheduler.cordon((name,), "wave 1")
    # Slurm writes its state some seconds later: a younger drain is lost when the controller is killed
    saved = slurm.folder / "state/node_state"
    eventually(lambda: saved.exists() and b"wave 1" in saved.read_bytes(), 30)
    eventually(lambda: (slurm.folder / "state/job_state").exists(), 30)
    slurm.stop_daemon("slurmctld")
    with pytest.raises(SchedulerUnreachable):
        scheduler.read_nodes()
    with pytest.raises(SchedulerUnreachable):
        scheduler.read_jobs()
    slurm.start_controller()
    node = scheduler.read_nodes()[name]
    assert (node.cordoned, node.reason) == (True, "wave 1")
    assert [seen.id for seen in scheduler.read_jobs()] == [job]


def test_a_drained_node_that_went_away_stays_down_until_it_is_resumed(
    slurm: RealSlurm, scheduler: SlurmScheduler
) -> None:
    name = slurm.node_names[0]
    scheduler.cordon((name,), "firmware")
    slurm.stop_daemon(name)
    eventually(lambda: scheduler.read_nodes()[name].state is SchedulerState.DOWN, 60)
    slurm.start_node(name)
    eventually(lambda: "NOT_RESPONDING" not in scheduler.read_nodes()[name].flags, 60)
    # ReturnToService=1 takes a node back only if its reason is Slurm's own "Not responding"
    assert scheduler.read_nodes()[name].flags == {"DOWN", "DRAIN"}
    scheduler.uncordon((name,))
    eventually(lambda: scheduler.read_nodes()[name].state is SchedulerState.IDLE, 30)


def test_gpus_are_told_however_the_job_asked_for_them(slurm: RealSlurm, scheduler: SlurmScheduler) -> None:
    asked = {
        slurm.submit("sleep 300", "-N2", "--gres=gpu:4"): 8,
        slurm.submit("sleep 300", "-N1", "--gpus=3"): 3,
        slurm.submit("sleep 300", "-N1", "-n2", "--gpus-per-task=2"): 4,
        slurm.submit("sleep 300", "-N2", "--gpus-per-node=h100:8", "--exclusive"): 16,
    }
    eventually(lambda: len(scheduler.read_jobs()) == len(asked))
    assert {job.id: job.gpus for job in scheduler.read_jobs()} == asked


def test_a_reason_of_several_lines_is_read_as_lines(slurm: RealSlurm, scheduler: SlurmScheduler) -> None:
    name = slurm.node_names[0]
    scheduler.cordon((name,), "first\nsecond NodeName=zz State=IDLE")
    assert scheduler.read_nodes()[name].reason == "first\nsecond NodeName=zz State=IDLE"
    assert "zz" not in scheduler.read_nodes()


def test_a_user_without_rights_may_read_but_not_cordon(slurm: RealSlurm, scheduler: SlurmScheduler) -> None:
    slurm.folder.chmod(0o755)
    nobody = SlurmScheduler(NobodysHost({"SLURM_CONF": slurm.environment["SLURM_CONF"]}))
    assert len(nobody.read_nodes()) == len(slurm.node_names)
    with pytest.raises(CredentialsRejected, match="operator rights"):
        nobody.cordon(slurm.node_names[:1], "x")
    assert not scheduler.read_nodes()[slurm.node_names[0]].cordoned
    with pytest.raises(CredentialsRejected, match="operator rights"):
        SlurmFences(NobodysHost({"SLURM_CONF": slurm.environment["SLURM_CONF"]})).ensure_fence(
            "train", slurm.node_names[:1]
        )


# the signal reaches the step's `sleep` as well, and ends it
SAYS = 'trap "echo {who} >> {folder}/said" USR1; echo {who} >> {folder}/ready; while :; do sleep 0.2; done'


@pytest.mark.parametrize(
    ("lines", "asked", "reached"),
    [
        ("srun bash -c '{step}' &\nwait", "USR1", {"step"}),
        ("#SBATCH --signal=B:USR1@60\nsrun bash -c '{step}' &\n{batch}", "USR1", {"batch"}),
        ("srun bash -c '{step}' &\n{batch}", "USR1", {"batch"}),
        ("srun bash -c '{step}' &\n{batch}", "B:USR1", {"batch"}),
        ("#SBATCH --signal=USR1@60\nsrun bash -c '{step}' &\n{batch}", "USR1", {"step"}),
        ("bash -c '{child}' &\n{batch}", "USR1", {"batch"}),
        ("exec bash -c '{batch}'", "USR1", {"batch"}),
    ],
    ids=["a step", "B: in the script", "a trap", "B: asked", "a trap, but steps asked", "a trap, no step", "exec"],
)
def test_a_signal_reaches_those_who_wait_for_it_and_nobody_else(
    slurm: RealSlurm, scheduler: SlurmScheduler, lines: str, asked: str, reached: set[str]
) -> None:
    said, ready = slurm.folder / "said", slurm.folder / "ready"
    parts = {who: SAYS.format(who=who, folder=slurm.folder) for who in ("step", "batch", "child")}
    (slurm.folder / "job.sh").write_text(f"#!/bin/bash\n{lines.format(**parts)}\n")
    job = slurm.command(
        "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:8", str(slurm.folder / "job.sh")
    ).strip()
    waiting = sum(f"{{{who}}}" in lines for who in parts)
    eventually(lambda: ready.exists() and len(ready.read_text().split()) == waiting, 30)
    scheduler.signal(job, asked)
    eventually(lambda: said.exists() and said.read_text() != "")
    assert set(said.read_text().split()) == reached
    assert [seen.state for seen in scheduler.read_jobs()] == ["RUNNING"]


def test_a_signal_for_a_task_of_an_array_reaches_its_step_alone_while_others_wait(
    slurm: RealSlurm, scheduler: SlurmScheduler
) -> None:
    said, ready = slurm.folder / "said", slurm.folder / "ready"
    step = SAYS.format(who="step-$SLURM_ARRAY_TASK_ID", folder=slurm.folder)
    array = slurm.submit(f"srun bash -c '{step}'", "--array=1-4%2", "-N1", "--gres=gpu:8")
    eventually(lambda: ready.exists() and set(ready.read_text().split()) == {"step-1", "step-2"}, 30)
    scheduler.signal(f"{array}_1", "USR1")
    eventually(lambda: said.exists() and said.read_text() != "")
    assert set(said.read_text().split()) == {"step-1"}
    assert {job.id for job in scheduler.read_jobs()} == {f"{array}_1", f"{array}_2"}


def test_a_job_whose_shell_would_die_of_the_signal_is_left_alone(slurm: RealSlurm, scheduler: SlurmScheduler) -> None:
    slurm.submit("sleep 300", "-N1", "--gres=gpu:8")
    eventually(lambda: [seen.state for seen in scheduler.read_jobs()] == ["RUNNING"])
    (job,) = scheduler.read_jobs()
    with pytest.raises(JobRefused, match="no trap"):
        scheduler.signal(job.id, "USR1")
    assert [seen.state for seen in scheduler.read_jobs()] == ["RUNNING"]


def test_a_fence_outlives_a_controller_that_was_killed(slurm: RealSlurm, scheduler: SlurmScheduler) -> None:
    fences = SlurmFences(LocalHost({"SLURM_CONF": slurm.environment["SLURM_CONF"]}))
    inside = slurm.node_names[:8]
    fences.ensure_fence("train", inside)
    saved = slurm.folder / "state/resv_state"
    eventually(lambda: saved.exists() and b"gpufleet.train" in saved.read_bytes(), 30)
    slurm.stop_daemon("slurmctld")
    with pytest.raises(SchedulerUnreachable):
        fences.read_fences()
    with pytest.raises(SchedulerUnreachable):
        fences.ensure_fence("train", inside[1:])
    slurm.start_controller()
    assert fences.read_fences() == {"train": inside}
    jobs = [slurm.submit("sleep 300", "-N5", "--gres=gpu:8", "--exclusive") for _ in range(2)]
    eventually(lambda: len(scheduler.read_jobs()) == len(jobs), 60)
    sides = [len(set(job.nodes) & set(inside)) for job in scheduler.read_jobs()]
    assert sorted(sides) == [0, 5]
    assert fences.ensure_fence("train", ())
    assert {job.state for job in scheduler.read_jobs()} == {"RUNNING"}
