"""What only a real Slurm can show: daemons that die, rights, and GPUs asked for in every way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.local import Finished, LocalHost
from adapters.slurm import SlurmScheduler
from fleet.errors import CredentialsRejected, SchedulerUnreachable
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
