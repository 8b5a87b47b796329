"""The plan of a measurement: waves, rounds, limits, what holds it, and what it says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fleet.canary_settings import CanarySettings
from fleet.checkpoints import Choice, Decision
from fleet.config import FleetSpec, parse_fleet
from fleet.drain_plan import DrainPlan, JobFound, plan_drain
from fleet.errors import PreconditionError
from fleet.measurement_plan import MeasurementPlan, MeasurementRequest, describe_measurement, plan_measurement
from fleet.measures import Phase
from fleet.model import Job

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ASKED = MeasurementRequest(Phase.BEFORE, 3, seed=7, reason="slow since Monday")
HEAD = """\
version: 1
fleet: lab
bmc: {user: a, password: {env: X}}
ssh: {user: root, key: {file: k}}
gate: {required: 2, allowed_signers: signers}
pools:
  train: {capacity_floor: 0.5, rack_limit: 1, waves: {canary: 2, windows: ["Sat 02:00-06:00"]}}
  dev: {production: false, capacity_floor: 0, rack_limit: 2}
"""


def fleet(racks: str = "{r01: {}, r02: {}, r03: {}}", head: str = HEAD) -> FleetSpec:
    """Twelve nodes: eight of train in r01 and r02, four of dev in r03."""
    rows = [
        f"  - {{name: gpu-{n:04d}, rack: r0{(n - 1) // 4 + 1}, pool: {'train' if n < 9 else 'dev'}, model: HGX-H100-8, "
        f'bmc: "https://10.0.0.{n}", ssh: 10.1.0.{n}}}'
        for n in range(1, 13)
    ]
    return parse_fleet("\n".join([f"{head}racks: {racks}", "nodes:", *rows]), "fleet.yaml")


def job(ident: str, *numbers: int) -> JobFound:
    nodes = tuple(f"gpu-{n:04d}" for n in numbers)
    found = Job(ident, "train", "eva", "RUNNING", nodes, 8 * len(nodes), 60.0, None, "", "ml", "gpu")
    text = f"job {ident} of eva (ml): waits for its end"
    return JobFound(found, Decision(ident, Choice.WAIT_FOR_END, None, None, None, text, {Choice.STOP_NOW: 4.0}))


def plan(
    spec: FleetSpec | None = None, *jobs: JobFound, asked: MeasurementRequest = ASKED, numbers: range = range(1, 13)
) -> MeasurementPlan:
    known = spec or fleet()
    return plan_measurement(known, drained(known, *jobs, numbers=numbers), asked, CanarySettings())


def drained(spec: FleetSpec, *jobs: JobFound, numbers: range = range(1, 13)) -> DrainPlan:
    nodes = [node for node in spec.inventory() if int(node.name[4:]) in numbers]
    return plan_drain(spec, nodes, {}, jobs, NOW, 3600.0, "", False)


def test_each_pool_is_one_wave_whatever_its_policys_waves_are() -> None:
    made = plan()
    assert [(wave.name, wave.pool, len(wave.nodes)) for wave in made.waves] == [
        ("measure dev", "dev", 4),
        ("measure train", "train", 8),
    ]
    assert sorted(made.nodes) == sorted(node for wave in made.waves for node in wave.nodes)
    assert all(not node.changes for node in made.nodes.values())


def test_rounds_keep_to_the_rack_limits_and_the_floor() -> None:
    dev, train = plan().waves
    racks = {node.name: node.rack for node in fleet().inventory()}
    assert (dev.rounds, train.rounds) == (2, 4)
    assert train.out_at_most == 2
    for units in train.units_by_round:
        here = [racks[node] for unit in units for node in unit]
        assert len(here) == len(set(here))


def test_idle_nodes_are_measured_before_busy_ones_and_a_jobs_nodes_together() -> None:
    _, train = plan(None, job("7", 1, 5)).waves
    rounds = [[node for unit in units for node in unit] for units in train.units_by_round]
    assert sorted(rounds[-1]) == ["gpu-0001", "gpu-0005"]
    assert (train.jobs, train.disturbances) == (1, 1)


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    assert plan().waves == plan().waves
    assert plan().waves != plan(asked=replace(ASKED, seed=8)).waves


def test_no_gate_and_no_window_holds_a_measurement_that_a_person_asks_for() -> None:
    policy = plan().policy
    assert {gate.required for gate in policy.gates.values()} == {0}
    assert all(pool.waves.windows == () for pool in policy.pools.values())


def test_a_measurement_for_another_operation_keeps_to_the_windows() -> None:
    made = plan(asked=replace(ASKED, parent="dr-20261130-7k3q"))
    assert made.policy.pools["train"].waves.windows == ("Sat 02:00-06:00",)
    assert {gate.required for gate in made.policy.gates.values()} == {0}
    assert "for dr-20261130-7k3q" in describe_measurement(made)[1]


def test_nodes_that_no_limit_ever_lets_out_are_left_out_with_their_reason() -> None:
    closed = plan(fleet("{r01: {limit: 0}, r02: {}, r03: {}}"))
    assert closed.left_out == {f"gpu-000{n}": "rack r01 is closed (limit 0)" for n in range(1, 5)}
    assert len(closed.nodes) == 8
    tight = fleet(head=HEAD.replace("capacity_floor: 0.5", "capacity_floor: 1"))
    assert set(plan(tight).nodes) == {f"gpu-{n:04d}" for n in range(9, 13)}
    with pytest.raises(PreconditionError, match="the floor of pool train lets no node out"):
        plan(tight, numbers=range(1, 9))


def test_a_plan_survives_its_own_json_with_its_digest() -> None:
    made = plan(None, job("7", 1), asked=replace(ASKED, phase=Phase.AFTER, parent="dr-1", before="ms-1"))
    again = MeasurementPlan.model_validate_json(made.to_json())
    assert (again, again.digest) == (made, made.digest)


def test_no_job_may_be_stopped_without_a_checkpoint_and_a_node_has_its_pools_time() -> None:
    made = plan(None, job("7", 1))
    assert made.may_stop() == {}
    assert made.drain_seconds("train") == fleet().pools["train"].waves.drain_timeout_seconds


def test_the_plan_says_how_many_how_long_and_which_jobs() -> None:
    lines = "\n".join(describe_measurement(plan(None, job("7", 1, 5))))
    assert "12 nodes to measure, 3 runs of each benchmark, 0 left out; 1 job on them" in lines
    assert "pool train: 8 nodes in 4 rounds, at most 2 out together; about 48 min" in lines
    assert "stopping every job now would lose: 4.0 GPU-hours" in lines
    assert "job 7 of eva (ml): waits for its end" in lines


def test_a_loss_that_nobody_can_tell_is_not_zero() -> None:
    found = job("7", 1)
    unknown = replace(found, decision=replace(found.decision, lost_gpu_hours={Choice.STOP_NOW: None}))
    assert plan(None, unknown).lost_gpu_hours is None
    assert "would lose: not known" in "\n".join(describe_measurement(plan(None, unknown)))


def test_what_is_run_on_the_nodes_is_part_of_the_digest() -> None:
    spec = fleet()
    own = CanarySettings.model_validate({"commands": {"hpl": {"command": ["hpl.sh"], "json_path": "tflops"}}})
    changed = plan_measurement(spec, drained(spec), ASKED, own)
    assert changed.digest != plan(spec).digest
    assert MeasurementPlan.model_validate_json(changed.to_json()).canary == own


def test_measures_that_are_switched_off_make_it_shorter() -> None:
    off = CanarySettings.model_validate({"measures": {"gemm": {"measured": False}}})
    spec = fleet()
    (short, _), (long, _) = plan_measurement(spec, drained(spec), ASKED, off).waves, plan(spec).waves
    assert short.expected_seconds < long.expected_seconds


def test_a_thousand_nodes_are_planned_in_rounds_that_waste_no_room() -> None:
    racks = ", ".join(f"r{n:03d}: {{}}" for n in range(125))
    rows = [
        f'  - {{name: n{n:04d}, rack: r{n // 8:03d}, pool: train, model: HGX-H100-8, bmc: "https://10.0.{n // 250}.'
        f'{n % 250 + 1}", ssh: 10.1.{n // 250}.{n % 250 + 1}}}'
        for n in range(1000)
    ]
    head = HEAD.replace("windows", "#").splitlines()
    text = "\n".join(
        [*head[:6], "  train: {capacity_floor: 0.8, rack_limit: 2}", f"racks: {{{racks}}}", "nodes:", *rows]
    )
    spec = parse_fleet(text, "fleet.yaml")
    made = plan_measurement(
        spec, plan_drain(spec, spec.inventory(), {}, (), NOW, 3600.0, "", False), ASKED, CanarySettings()
    )
    assert (made.waves[0].out_at_most, made.waves[0].rounds) == (200, 5)
