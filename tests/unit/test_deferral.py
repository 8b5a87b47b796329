"""Jobs that were disturbed lately: last, or not at all, and said by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from unit.test_rollout_plan import NEW, reading, source, spec

from fleet.deferral import Planned, Scene, plan_around
from fleet.describe import describe_plan
from fleet.job_waves import RunningJob
from fleet.plan import FirmwarePlan
from fleet.rollout import NodeReading, plan_rollout

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def plan(*jobs: RunningJob, scope: str = "node", **other: NodeReading) -> FirmwarePlan:
    fleet = spec()
    readings = {node.name: reading() for node in fleet.inventory()} | {k.replace("_", "-"): v for k, v in other.items()}
    return plan_rollout(fleet, ("train",), source(scope), readings, NOW, 7, jobs)


def job(
    ident: str, *nodes: str, lost: float | None = 4.0, hours: float | None = None, ago: float | None = None
) -> RunningJob:
    """`hours`: how long it is still protected; `ago`: hours since it was disturbed."""
    until = None if hours is None else NOW + timedelta(hours=hours)
    last = None if ago is None else NOW - timedelta(hours=ago)
    return RunningJob(ident, nodes, 8 * len(nodes), lost, last, until)


def test_a_job_that_stays_protected_is_deferred_with_the_date_by_its_name() -> None:
    made = plan(job("812", "gpu-0001", "gpu-0004", ago=24))
    assert sorted(made.left_out) == ["gpu-0001", "gpu-0004"]
    assert made.left_out["gpu-0001"] == (
        "deferred until 2026-12-06 12:00 UTC: job 812 was disturbed lately (2026-11-29 12:00 UTC) "
        "and is protected until then"
    )
    assert made.deferred == dict.fromkeys(("gpu-0001", "gpu-0004"), datetime(2026, 12, 6, 12, tzinfo=UTC))
    assert not {"gpu-0001", "gpu-0004"} & {node for wave in made.waves for node in wave.nodes}
    assert not {"gpu-0001", "gpu-0004"} & made.nodes.keys()


def test_a_job_whose_protection_ends_in_time_goes_last_and_is_named() -> None:
    made = plan(job("812", "gpu-0001", lost=0.0, hours=0.2), job("9", "gpu-0002", "gpu-0003", lost=50.0))
    assert made.left_out == {}
    assert made.waves[-1].nodes[-1] == "gpu-0001"
    assert made.protected == {"812": NOW + timedelta(hours=0.2)}
    assert "job 812 (until 2026-11-30 12:12 UTC)" in describe_plan(made, "fw-1")


def test_the_whole_unit_of_a_protected_job_is_deferred_and_says_with_whom() -> None:
    made = plan(job("812", "gpu-0002", hours=99), scope="nvlink_domain", gpu_0007=reading(NEW))
    assert made.left_out["gpu-0003"].startswith(
        "deferred until 2026-12-04 15:00 UTC: goes out with gpu-0002, whose job"
    )
    made = plan(job("812", "gpu-0006", hours=99), scope="nvlink_domain", gpu_0007=reading(NEW))
    assert sorted(made.left_out) == ["gpu-0006"]
    assert "gpu-0007" in made.current
    assert "gpu-0007" not in made.nodes


def test_a_rollout_whose_every_job_is_protected_has_no_wave() -> None:
    fleet = spec()
    made = plan(*(job(node.name, node.name, hours=1) for node in fleet.inventory()))
    assert (made.waves, made.nodes, len(made.deferred)) == ((), {}, 8)
    assert made.lost_gpu_hours == 0.0
    assert "8 of those left out are deferred" in describe_plan(made, "fw-1")


def test_the_plan_sums_what_its_waves_lose_and_is_not_known_where_one_is_not() -> None:
    jobs = [job("1", "gpu-0001", lost=1.5), job("2", "gpu-0002", lost=2.0)]
    assert plan(*jobs).lost_gpu_hours == 3.5
    assert plan(*jobs, job("3", "gpu-0003", lost=None)).lost_gpu_hours is None
    assert plan(*jobs, gpu_0005=reading(busy=True)).lost_gpu_hours is None
    assert plan().lost_gpu_hours == 0.0


def test_the_printed_plan_shows_jobs_and_gpu_hours_of_each_wave() -> None:
    text = describe_plan(plan(job("1", "gpu-0001", "gpu-0002", lost=1.5), job("2", "gpu-0003", lost=None)), "fw-1")
    assert "| wave | nodes | racks | jobs disturbed | GPU-hours lost |" in text
    assert " | 1 | unknown | " in text
    assert " | 1 | 1.5 | " in text
    assert "work lost if every job were stopped now: unknown; the drain waits" in text
    assert " | 0 | 0.0 | " in text


def test_a_plan_with_protected_jobs_is_the_same_after_it_was_kept() -> None:
    made = plan(job("812", "gpu-0001", hours=0.2), job("813", "gpu-0002", ago=1))
    assert FirmwarePlan.model_validate_json(made.to_json()).digest == made.digest


def test_what_comes_earlier_because_others_were_deferred_is_looked_at_again() -> None:
    """Each deferral shortens the rollout; in the end nothing is reached while it is protected."""
    made = plan(*(job(f"{n}", f"gpu-000{n}", hours=n * 0.05) for n in range(1, 9)))
    begins = NOW
    ends = {f"gpu-000{n}": NOW + timedelta(hours=n * 0.05) for n in range(1, 9)}
    for wave in made.waves:
        assert all(ends[node] <= begins for node in wave.nodes)
        begins += timedelta(seconds=wave.expected_seconds + wave.bake_seconds)


def test_nothing_is_planned_for_no_candidate() -> None:
    assert plan_around((), (), Scene({}, {}, {}, 7, {})) == Planned((), {}, {})


def test_protection_is_judged_by_the_window_of_the_nodes_own_pool() -> None:
    fleet = spec()
    dev = {"waves": fleet.pools["train"].waves.model_copy(update={"windows": ()})}
    train = {"waves": fleet.pools["train"].waves.model_copy(update={"windows": ("Sat 02:00-06:00",)})}
    pools = {name: fleet.pools["train"].model_copy(update=change) for name, change in (("dev", dev), ("train", train))}
    nodes = [
        node.model_copy(update={"pool": "dev"}) if node.name in ("gpu-0001", "gpu-0002") else node
        for node in fleet.nodes
    ]
    mixed = fleet.model_copy(update={"pools": pools, "nodes": nodes})
    readings = {node.name: reading() for node in mixed.inventory()}
    until_friday = 4 * 24.0
    guarded = (job("812", "gpu-0001", hours=until_friday), job("9", "gpu-0003", hours=until_friday))
    made = plan_rollout(mixed, ("dev", "train"), source(), readings, NOW, 7, guarded)
    assert sorted(made.deferred) == ["gpu-0001"]
    assert "gpu-0003" in made.nodes
    assert made.protected == {}
