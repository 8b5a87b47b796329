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
from fleet.errors import ConfigurationError, JobRefused
from fleet.model import Job, SchedulerNode, SchedulerState
from fleet.ports import Host
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
    scheduler: SlurmScheduler
    host: Host

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
        host = LocalHost({"SLURM_CONF": slurm.environment["SLURM_CONF"]})
        yield _RealBench(slurm, SlurmScheduler(host), host)


@contextmanager
def _simulated() -> Iterator[SlurmBench]:
    with tempfile.TemporaryDirectory() as folder:
        slurm = SimulatedSlurm(Path(folder))
        host = SimulatedHost(slurm)
        yield SimulatedBench(slurm, SlurmScheduler(host), host)


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


def _running_ids(bench: SlurmBench) -> set[str]:
    return {job.id for job in bench.scheduler.read_jobs() if job.state == "RUNNING"}


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

    def test_a_job_says_whether_it_may_be_requeued(self, bench: SlurmBench) -> None:
        may = _running(bench, "-N1", "--gres=gpu:8", "--requeue")
        may_not = _running(bench, "-N1", "--gres=gpu:8", "--no-requeue")
        assert (may.requeue, may_not.requeue) == (True, False)

    def test_a_requeued_job_leaves_its_nodes_and_starts_again_elsewhere(self, bench: SlurmBench) -> None:
        job = _running(bench, "-N1", "--gres=gpu:8", "--requeue")
        bench.scheduler.cordon(job.nodes, "wave 1")
        bench.scheduler.requeue(job.id)
        eventually(lambda: _nodes(bench)[job.nodes[0]].state is SchedulerState.IDLE)

        def runs_elsewhere() -> bool:
            bench.scheduler.start_now(job.id, job.nodes)
            seen = _job(bench, job.id)
            return seen is not None and seen.state == "RUNNING" and seen.nodes != job.nodes

        eventually(runs_elsewhere)
        assert not bench.scheduler.start_now(job.id, job.nodes)

    def test_a_requeued_job_waits_while_a_node_of_its_last_run_would_take_it(self, bench: SlurmBench) -> None:
        job = _running(bench, "-N2", "--gres=gpu:8", "--requeue")
        bench.scheduler.cordon(job.nodes[:1], "wave 1")
        bench.scheduler.requeue(job.id)
        words = ("squeue", "-h", "-j", job.id, "-o", "%T %r")
        eventually(lambda: bench.host.run(words).stdout == "PENDING BeginTime\n")
        assert not bench.scheduler.start_now(job.id, job.nodes)
        assert bench.host.run(words).stdout == "PENDING BeginTime\n"
        bench.cancel(job.id)

    def test_a_job_that_may_not_be_requeued_is_left_alone(self, bench: SlurmBench) -> None:
        job = _running(bench, "-N1", "--gres=gpu:8", "--no-requeue")
        with pytest.raises(JobRefused, match="Requested operation is presently disabled"):
            bench.scheduler.requeue(job.id)
        seen = _job(bench, job.id)
        assert seen is not None
        assert seen.state == "RUNNING"

    def test_a_job_that_has_ended_is_not_run_a_second_time(self, bench: SlurmBench) -> None:
        job = _running(bench, "-N1", "--gres=gpu:8", "--requeue")
        bench.cancel(job.id)
        eventually(lambda: _job(bench, job.id) is None)
        with pytest.raises(JobRefused):
            bench.scheduler.requeue(job.id)

    def test_a_job_that_waits_is_not_requeued(self, bench: SlurmBench) -> None:
        bench.scheduler.cordon(bench.node_names, "closed")
        job = bench.submit("sleep 300", "-N1", "--gres=gpu:8")
        with pytest.raises(JobRefused):
            bench.scheduler.requeue(job)
        with pytest.raises(JobRefused, match="PENDING"):
            bench.scheduler.signal(job, "USR1")
        bench.cancel(job)

    @pytest.mark.parametrize("job", ["7777", "x", "--all", "7 8", ""])
    def test_a_job_that_is_not_there_is_refused(self, bench: SlurmBench, job: str) -> None:
        with pytest.raises(JobRefused):
            bench.scheduler.requeue(job)
        with pytest.raises(JobRefused):
            bench.scheduler.signal(job, "USR1")
        with pytest.raises(JobRefused):
            bench.scheduler.start_now(job, ())

    def test_a_shell_that_would_die_of_the_signal_does_not_get_it(self, bench: SlurmBench) -> None:
        job = _running(bench, "-N1", "--gres=gpu:8")
        with pytest.raises(JobRefused, match="no trap"):
            bench.scheduler.signal(job.id, "USR1")
        seen = _job(bench, job.id)
        assert seen is not None
        assert seen.state == "RUNNING"

    def test_a_shell_that_asks_for_a_signal_in_its_script_gets_it(self, bench: SlurmBench) -> None:
        script = "#SBATCH --signal=B:USR1@60\ntrap 'echo saved' USR1\nwhile sleep 1; do :; done"
        job = bench.submit(script, "-N1", "--gres=gpu:8")
        eventually(lambda: (seen := _job(bench, job)) is not None and seen.state == "RUNNING")
        bench.scheduler.signal(job, "USR1")
        seen = _job(bench, job)
        assert seen is not None
        assert seen.state == "RUNNING"

    def test_a_signal_that_is_none_is_an_error_of_the_configuration(self, bench: SlurmBench) -> None:
        with pytest.raises(ConfigurationError, match="no signal"):
            bench.scheduler.signal("1", "NOPE")

    def test_without_accounting_a_jobs_environment_is_not_told(self, bench: SlurmBench) -> None:
        job = _running(bench, "-N1", "--gres=gpu:8")
        assert bench.scheduler.read_environment(job.id) is None

    def test_a_nodes_features_are_read(self, bench: SlurmBench) -> None:
        name = bench.node_names[0]
        words = ("scontrol", "update", f"NodeName={name}", "AvailableFeatures=h100,fw-2", "ActiveFeatures=h100,fw-2")
        assert bench.host.run(words).code == 0
        assert _nodes(bench)[name].features == {"h100", "fw-2"}
        assert _nodes(bench)[bench.node_names[1]].features == frozenset()
        job = _running(bench, "-N1", "--gres=gpu:8", "-C", "fw-2")
        assert job.nodes == (name,)
        bench.host.run(("scontrol", "update", f"NodeName={name}", "AvailableFeatures=", "ActiveFeatures="))
        assert _nodes(bench)[name].features == frozenset()

    def test_a_task_of_an_array_is_stopped_alone(self, bench: SlurmBench) -> None:
        array = bench.submit("sleep 300", "--array=1-3", "-N1", "--gres=gpu:8", "--requeue")
        tasks = {f"{array}_{number}" for number in (1, 2, 3)}
        eventually(lambda: _running_ids(bench) == tasks)
        jobs = {job.id: job for job in bench.scheduler.read_jobs()}
        assert len({job.nodes for job in jobs.values()}) == 3
        assert {(job.requeue, job.gpus) for job in jobs.values()} == {(True, 8)}
        assert bench.scheduler.read_environment(f"{array}_3") is None
        with pytest.raises(JobRefused, match="no trap"):
            bench.scheduler.signal(f"{array}_3", "USR1")
        last = f"{array}_3"
        bench.scheduler.cordon(jobs[last].nodes, "wave 1")
        bench.scheduler.requeue(last)
        eventually(lambda: _nodes(bench)[jobs[last].nodes[0]].state is SchedulerState.IDLE)
        assert _running_ids(bench) == tasks - {last}
        with pytest.raises(JobRefused, match="PENDING"):
            bench.scheduler.requeue(last)

        def runs_elsewhere() -> bool:
            bench.scheduler.start_now(last, jobs[last].nodes)
            return _running_ids(bench) == tasks

        eventually(runs_elsewhere)
        bench.scheduler.cancel(last)
        eventually(lambda: _running_ids(bench) == tasks - {last})
        bench.cancel(array)

    def test_tasks_of_an_array_that_wait_hold_no_node(self, bench: SlurmBench) -> None:
        bench.scheduler.cordon(bench.node_names[1:], "closed")
        array = bench.submit("sleep 300", "--array=0-4", "-N1", "--gres=gpu:8")
        eventually(lambda: _running_ids(bench) == {f"{array}_0"})
        assert [job.id for job in bench.scheduler.read_jobs()] == [f"{array}_0"]
        bench.cancel(array)
