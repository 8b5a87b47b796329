"""The fence on every Slurm that the adapter speaks to: no new job runs on nodes of two kinds."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from adapters.slurm_fences import SlurmFences
from fleet.errors import ConfigurationError
from fleet.slurm_reservations import Reservation, read_reservations
from tests.contract.slurm_bench import SlurmBench, eventually
from tests.contract.test_slurm_contract import shared_bench as shared_bench

EIGHT = ("--gres=gpu:8", "--exclusive")


@pytest.fixture
def bench(shared_bench: SlurmBench) -> Iterator[SlurmBench]:
    """The Slurm of this module, without jobs and reservations before and after each test."""
    yield shared_bench
    _command(shared_bench, "scancel", "--user=root")
    eventually(lambda: _command(shared_bench, "squeue", "-h") == "")
    for name in _reservations(shared_bench):
        _command(shared_bench, "scontrol", "delete", f"ReservationName={name}")
    shared_bench.scheduler.uncordon(shared_bench.node_names)
    eventually(lambda: _states(shared_bench) == {"IDLE"}, 60)  # Slurm takes a reservation's marks off every 30 s


@pytest.fixture
def fences(bench: SlurmBench) -> SlurmFences:
    return SlurmFences(bench.host)


def _reservations(bench: SlurmBench) -> dict[str, Reservation]:
    return read_reservations(_command(bench, "scontrol", "show", "reservation", "-o"))


def _command(bench: SlurmBench, *words: str) -> str:
    return bench.host.run(words).stdout


def _states(bench: SlurmBench) -> set[str]:
    return {"+".join(sorted(node.flags)) for node in bench.scheduler.read_nodes().values()}


def _nodes(bench: SlurmBench, job: str) -> set[str]:
    """Where the job runs; nowhere while it waits."""
    return {name for seen in bench.scheduler.read_jobs() if seen.id == job for name in seen.nodes}


def _running(bench: SlurmBench, *options: str) -> tuple[str, set[str]]:
    job = bench.submit("sleep 600", *EIGHT, *options)
    eventually(lambda: _nodes(bench, job) != set())
    return job, _nodes(bench, job)


def _told(bench: SlurmBench, job: str, field: str) -> str:
    match = re.search(rf"\s{field}=(\S*)", _command(bench, "scontrol", "show", "job", "-o", job))
    return match[1] if match else ""


def _halves(bench: SlurmBench) -> tuple[tuple[str, ...], tuple[str, ...]]:
    middle = len(bench.node_names) // 2
    return bench.node_names[:middle], bench.node_names[middle:]


def test_a_fence_is_made_once_changed_once_and_goes_once(bench: SlurmBench, fences: SlurmFences) -> None:
    inside, outside = _halves(bench)
    assert fences.read_fences() == {}
    assert fences.ensure_fence("train", inside)
    assert not fences.ensure_fence("train", inside[::-1])
    assert fences.read_fences() == {"train": inside}
    assert fences.ensure_fence("train", (*inside, outside[0]))
    assert fences.read_fences() == {"train": (*inside, outside[0])}
    assert fences.ensure_fence("train", inside[1:])
    assert fences.read_fences() == {"train": inside[1:]}
    assert fences.ensure_fence("train", ())
    assert not fences.ensure_fence("train", ())
    assert fences.read_fences() == {}


def test_every_new_job_runs_wholly_inside_or_wholly_outside(bench: SlurmBench, fences: SlurmFences) -> None:
    # every second node, so that neighbours are of two kinds
    inside = set(bench.node_names[::2])
    fences.ensure_fence("train", tuple(inside))
    half = len(inside)
    jobs = [bench.submit("sleep 600", *EIGHT, f"-N{count}") for count in (1, 3, 2, half - 1, half, 2, 1)]
    seen: dict[str, set[str]] = {}
    for _ in range(3):  # what ran is cancelled, so that what waited has its turn
        waiting = [job for job in jobs if job not in seen]
        _await_start(bench, waiting)
        eventually(lambda: _steady(bench))
        started = {job: where for job in waiting if (where := _nodes(bench, job))}
        seen |= started
        for job in started:
            bench.cancel(job)
        if len(seen) == len(jobs):
            break
    assert len(seen) == len(jobs)
    assert all(where <= inside or not where & inside for where in seen.values())
    assert any(where <= inside for where in seen.values())
    assert any(not where & inside for where in seen.values())


def _await_start(bench: SlurmBench, jobs: list[str]) -> None:
    eventually(lambda: any(_nodes(bench, job) for job in jobs))


def _steady(bench: SlurmBench) -> bool:
    """Has the scheduler looked at every waiting job since the last start?"""
    words = ("squeue", "-h", "-t", "R", "-o", "%i")
    before = _command(bench, *words)
    return all(_command(bench, *words) == before for _ in range(12))


def test_a_job_larger_than_either_side_waits_until_the_fence_is_gone(bench: SlurmBench, fences: SlurmFences) -> None:
    inside, outside = _halves(bench)
    fences.ensure_fence("train", inside)
    job = bench.submit("sleep 600", *EIGHT, f"-N{len(outside) + 1}")
    small, where = _running(bench, "-N1", "-t", "1")
    assert where <= set(inside) or where <= set(outside)
    assert _nodes(bench, job) == set()
    bench.cancel(small)
    fences.ensure_fence("train", ())
    eventually(lambda: len(_nodes(bench, job)) == len(outside) + 1, 40)


def test_a_job_that_runs_is_not_disturbed_when_a_fence_comes_over_some_of_its_nodes(
    bench: SlurmBench, fences: SlurmFences
) -> None:
    inside, outside = _halves(bench)
    job, where = _running(bench, "-N2", "-w", f"{inside[0]},{outside[0]}")
    assert fences.ensure_fence("train", inside)
    assert fences.ensure_fence("train", inside[:-1])
    assert (_nodes(bench, job), _told(bench, job, "Restarts"), _told(bench, job, "JobState")) == (where, "0", "RUNNING")


def test_a_requeued_job_that_ran_on_both_sides_starts_again_on_one(bench: SlurmBench, fences: SlurmFences) -> None:
    inside, outside = _halves(bench)
    job, where = _running(bench, f"-N{len(inside) + 1}")
    assert where & set(inside)
    assert where & set(outside)
    fences.ensure_fence("train", inside)
    bench.scheduler.requeue(job)
    eventually(lambda: _waits(bench, job) == "BeginTime")
    _command(bench, "scontrol", "update", f"JobId={job}", "StartTime=now")
    eventually(lambda: _waits(bench, job) not in {"BeginTime", "None"}, 40)
    assert _nodes(bench, job) == set()
    bench.cancel(job)
    job, where = _running(bench, "-N2")
    assert where <= set(inside)
    bench.scheduler.cordon(tuple(where), "wave 1")
    bench.scheduler.requeue(job)
    eventually(lambda: _started_again(bench, job, where))
    again = _nodes(bench, job)
    assert again <= set(inside) or not again & set(inside)


def _waits(bench: SlurmBench, job: str) -> str:
    return _command(bench, "squeue", "-h", "-t", "PD", "-j", job, "-o", "%r").strip()


def _started_again(bench: SlurmBench, job: str, former: set[str]) -> bool:
    bench.scheduler.start_now(job, tuple(former))
    return _told(bench, job, "Restarts") == "1" and bool(_nodes(bench, job))


def test_a_fence_grows_and_shrinks_under_the_jobs_that_run_in_it(bench: SlurmBench, fences: SlurmFences) -> None:
    inside, outside = _halves(bench)
    fences.ensure_fence("train", inside)
    own, where = _running(bench, f"-N{len(inside)}")
    assert where == set(inside)
    other, elsewhere = _running(bench, f"-N{len(outside)}")
    assert elsewhere == set(outside)
    assert fences.ensure_fence("train", (*inside, *outside[:2]))
    assert fences.ensure_fence("train", inside[2:])
    assert (_nodes(bench, own), _nodes(bench, other)) == (where, elsewhere)


def test_a_fence_goes_while_its_jobs_run_on(bench: SlurmBench, fences: SlurmFences) -> None:
    inside, _ = _halves(bench)
    fences.ensure_fence("train", inside)
    jobs = [_running(bench, "-N1") for _ in range(3)]
    assert all(where <= set(inside) for _, where in jobs)
    assert fences.ensure_fence("train", ())
    assert fences.read_fences() == {}
    for job, where in jobs:
        assert (_nodes(bench, job), _told(bench, job, "Restarts"), _told(bench, job, "JobState")) == (
            where,
            "0",
            "RUNNING",
        )
    job, where = _running(bench, f"-N{len(bench.node_names) - 3}")
    assert len(where) == len(bench.node_names) - 3


def test_a_cordoned_node_can_be_fenced_and_takes_no_job(bench: SlurmBench, fences: SlurmFences) -> None:
    inside, _ = _halves(bench)
    bench.scheduler.cordon(inside[:2], "wave 1")
    fences.ensure_fence("train", inside)
    nodes = bench.scheduler.read_nodes()
    assert all(nodes[name].cordoned and nodes[name].reason == "wave 1" for name in inside[:2])
    _, where = _running(bench, f"-N{len(inside) - 2}")
    assert where == set(inside[2:])


def test_two_fences_keep_three_kinds_apart(bench: SlurmBench, fences: SlurmFences) -> None:
    names = bench.node_names
    fences.ensure_fence("new", names[:3])
    fences.ensure_fence("newer", names[3:6])
    assert fences.read_fences() == {"new": names[:3], "newer": names[3:6]}
    kinds = (set(names[:3]), set(names[3:6]), set(names[6:]))
    for _ in range(3):
        _, where = _running(bench, "-N2")
        assert any(where <= kind for kind in kinds)


def test_a_node_is_in_one_fence_at_a_time(bench: SlurmBench, fences: SlurmFences) -> None:
    names = bench.node_names
    fences.ensure_fence("new", names[:3])
    fences.ensure_fence("newer", names[3:6])
    assert fences.ensure_fence("new", names[:4])
    assert fences.read_fences() == {"new": names[:4], "newer": names[4:6]}
    assert fences.ensure_fence("new", names[:6])
    assert fences.read_fences() == {"new": names[:6]}


def _reserve(bench: SlurmBench, name: str, *words: str) -> None:
    given = ("scontrol", "create", f"ReservationName={name}", "Users=root", *words)
    assert bench.host.run(given).code == 0


def test_nodes_that_somebody_reserves_now_are_left_to_them(bench: SlurmBench, fences: SlurmFences) -> None:
    inside, _ = _halves(bench)
    _reserve(bench, "theirs", "StartTime=now", "Duration=60", f"Nodes={inside[0]}")
    assert fences.ensure_fence("train", inside)
    assert fences.read_fences() == {"train": inside[1:]}
    assert not fences.ensure_fence("train", inside)
    assert _reservations(bench)["theirs"].nodes == inside[:1]
    _, where = _running(bench, "-N1", "--reservation=theirs")
    assert where == set(inside[:1])


def test_a_plain_reservation_to_come_is_named_and_one_for_maintenance_is_no_matter(
    bench: SlurmBench, fences: SlurmFences
) -> None:
    inside, _ = _halves(bench)
    _reserve(bench, "maint", "StartTime=now+2days", "Duration=60", "Nodes=ALL", "Flags=MAINT,IGNORE_JOBS")
    assert fences.ensure_fence("train", inside[1:])
    _reserve(bench, "course", "StartTime=now+3days", "Duration=60", f"Nodes={inside[0]}")
    with pytest.raises(ConfigurationError, match="reservation course holds 1 nodes of the fence, from "):
        fences.ensure_fence("train", inside)
    assert fences.read_fences() == {"train": inside[1:]}


def test_a_reservation_of_somebody_else_is_no_fence(bench: SlurmBench, fences: SlurmFences) -> None:
    _reserve(bench, "theirs", "StartTime=now", "Duration=60", f"Nodes={bench.node_names[0]}", "Flags=MAGNETIC")
    assert fences.read_fences() == {}


def test_an_unknown_node_is_named(bench: SlurmBench, fences: SlurmFences) -> None:
    with pytest.raises(ConfigurationError, match="does not know nosuch7;"):
        fences.ensure_fence("train", (bench.node_names[0], "nosuch7"))
    assert fences.read_fences() == {}


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a=b", "-a", "x" * 65, "a\n"])
def test_a_name_that_slurm_could_misread_is_refused(fences: SlurmFences, name: str) -> None:
    with pytest.raises(ConfigurationError, match="can name no fence"):
        fences.ensure_fence(name, ("gpu0001",))
