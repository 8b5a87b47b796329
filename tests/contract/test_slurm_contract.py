"""One suite for every Slurm that the adapter speaks to: what holds on a real one must hold on the simulator's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.local import LocalHost
from adapters.slurm import SlurmScheduler
from fleet.errors import ConfigurationError
from fleet.model import Job, SchedulerNode, SchedulerState
from fleet.ports import Scheduler
from tests.contract.slurm_bench import SlurmBench, eventually
from tests.contract.slurm_simulated import SimulatedBench, SimulatedHost, SimulatedSlurm
from tests.real.slurm import RealSlurm, missing_parts

ODD_REASONS = (
    'bad dimm, ticket=#1234; "quoted" & 100%',
    '"begins and ends with quotes"',
    "State=IDLE [x@y] $HOME `id` \\ 'single' | ; > /dev/null",
    "ärger with ünicode — dashes",
    "gpu-fleet[run=42]: firmware rollout",
)


@dataclass(frozen=True)
class _RealBench:
    slurm: RealSlurm
    scheduler: Scheduler

    @property
    def node_names(self) -> tuple[str, ...]:
        return self.slurm.node_names

    def submit(self, script: str, *options: str) -> str:
        return self.slurm.submit(script, *options)

    def cancel(self, job: str) -> None:
        self.slurm.command("scancel", job)


@contextmanager
def _real() -> Iterator[SlurmBench]:
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder, RealSlurm(Path(folder)) as slurm:
        yield _RealBench(slurm, SlurmScheduler(LocalHost({"SLURM_CONF": slurm.environment["SLURM_CONF"]})))


@contextmanager
def _simulated() -> Iterator[SlurmBench]:
    with tempfile.TemporaryDirectory() as folder:
        slurm = SimulatedSlurm(Path(folder))
        yield SimulatedBench(slurm, SlurmScheduler(SimulatedHost(slurm)))


BENCHES = [
    pytest.param(_simulated, id="simulated"),
    pytest.param(
        _real,
        id="real",
        marks=[pytest.mark.slurm, pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or "")],
    ),
]


@pytest.fixture(scope="module", params=BENCHES)
def shared_bench(request: pytest.FixtureRequest) -> Iterator[SlurmBench]:
    start: Callable[[], AbstractContextManager[SlurmBench]] = request.param
    with start() as bench:
        yield bench


@pytest.fixture
def bench(shared_bench: SlurmBench) -> Iterator[SlurmBench]:
    """The Slurm of this module, open and empty before and after each test."""
    yield shared_bench
    for job in shared_bench.scheduler.read_jobs():
        shared_bench.cancel(job.id)
    shared_bench.scheduler.uncordon(shared_bench.node_names)
    eventually(lambda: all(node.state is SchedulerState.IDLE for node in _nodes(shared_bench).values()))


def _nodes(bench: SlurmBench) -> dict[str, SchedulerNode]:
    return bench.scheduler.read_nodes()


def _job(bench: SlurmBench, job: str) -> Job | None:
    return next((seen for seen in bench.scheduler.read_jobs() if seen.id == job), None)


def _running(bench: SlurmBench, *options: str) -> Job:
    job = bench.submit("sleep 300", *options)
    eventually(lambda: (seen := _job(bench, job)) is not None and seen.state == "RUNNING")
    found = _job(bench, job)
    assert found is not None
    return found


class TestSlurm:
    """The behaviour that tasks rely on."""

    def test_every_node_is_read_open_and_with_its_gpus(self, bench: SlurmBench) -> None:
        nodes = _nodes(bench)
        assert tuple(sorted(nodes)) == bench.node_names
        assert {(node.state, node.cordoned, node.gpus, node.reason) for node in nodes.values()} == {
            (SchedulerState.IDLE, False, 8, None)
        }

    def test_an_empty_fleet_has_no_jobs(self, bench: SlurmBench) -> None:
        assert bench.scheduler.read_jobs() == ()

    def test_a_job_over_several_nodes_is_one_job_with_all_its_nodes_and_gpus(self, bench: SlurmBench) -> None:
        comment = "ckpt=/a b;kind=megatron|x\nsecond line <%i> 'q' \"z\""
        job = _running(bench, "-N3", "--gres=gpu:8", "--comment", comment, "-J", "na me|x", "-t", "10")
        assert len(set(job.nodes)) == 3
        assert (job.gpus, job.comment, job.name, job.limit_seconds) == (24, comment, "na me|x", 600)
        assert (job.user, job.partition) == (os.environ.get("USER") or "root", "train")
        assert job.elapsed_seconds is not None
        busy = {name for name, node in _nodes(bench).items() if node.state is SchedulerState.BUSY}
        assert busy == set(job.nodes)

    def test_a_pending_job_holds_no_node_and_is_not_listed(self, bench: SlurmBench) -> None:
        bench.scheduler.cordon(bench.node_names, "closed")
        job = bench.submit("sleep 300", "-N1", "--gres=gpu:8")
        assert _job(bench, job) is None
        bench.cancel(job)

    def test_a_cordoned_node_keeps_its_job_and_is_empty_only_after_it(self, bench: SlurmBench) -> None:
        job = _running(bench, "-N1", "--gres=gpu:8")
        (name,) = job.nodes
        bench.scheduler.cordon((name,), "maintenance")
        node = _nodes(bench)[name]
        assert (node.state, node.cordoned, node.reason) == (SchedulerState.BUSY, True, "maintenance")
        bench.cancel(job.id)
        eventually(lambda: _nodes(bench)[name].state is SchedulerState.IDLE)
        assert _nodes(bench)[name].cordoned
        assert _job(bench, job.id) is None

    def test_a_cordon_closes_these_nodes_and_no_other(self, bench: SlurmBench) -> None:
        chosen = bench.node_names[1:4] + bench.node_names[5:6]
        bench.scheduler.cordon(chosen, "wave 1")
        assert {name for name, node in _nodes(bench).items() if node.cordoned} == set(chosen)
        bench.scheduler.uncordon(chosen[:1])
        assert {name for name, node in _nodes(bench).items() if node.cordoned} == set(chosen[1:])

    @pytest.mark.parametrize("reason", ODD_REASONS)
    def test_a_reason_is_kept_letter_by_letter_with_who_set_it(self, bench: SlurmBench, reason: str) -> None:
        name = bench.node_names[0]
        bench.scheduler.cordon((name,), reason)
        node = _nodes(bench)[name]
        assert node.reason == reason
        assert node.reason_by
        assert node.reason_at

    def test_no_job_starts_on_a_cordoned_node(self, bench: SlurmBench) -> None:
        bench.scheduler.cordon(bench.node_names[1:], "closed")
        job = _running(bench, "-N1", "--gres=gpu:8")
        assert job.nodes == bench.node_names[:1]

    def test_an_uncordoned_node_loses_its_reason_and_becomes_idle(self, bench: SlurmBench) -> None:
        name = bench.node_names[2]
        bench.scheduler.cordon((name,), "x")
        bench.scheduler.uncordon((name,))
        eventually(lambda: _nodes(bench)[name].state is SchedulerState.IDLE)
        assert (_nodes(bench)[name].cordoned, _nodes(bench)[name].reason) == (False, None)

    def test_a_node_that_is_open_already_may_be_uncordoned(self, bench: SlurmBench) -> None:
        bench.scheduler.cordon(bench.node_names[:1], "x")
        bench.scheduler.uncordon(bench.node_names[:3])
        assert not any(node.cordoned for node in _nodes(bench).values())

    def test_a_cordon_over_a_cordon_replaces_the_reason(self, bench: SlurmBench) -> None:
        name = bench.node_names[0]
        bench.scheduler.cordon((name,), "a person's")
        bench.scheduler.cordon((name,), "ours")
        assert _nodes(bench)[name].reason == "ours"

    def test_an_unknown_node_is_named(self, bench: SlurmBench) -> None:
        with pytest.raises(ConfigurationError, match="does not know nosuch7;"):
            bench.scheduler.cordon((bench.node_names[0], "nosuch7"), "x")
