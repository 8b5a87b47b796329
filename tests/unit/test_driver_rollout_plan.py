"""The plan of a driver rollout: who is changed when, who is watched beside them, and what voids it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from unit.canary_site import reading_of, spec_of
from unit.driver_host_fake import NEW, OLD, target
from unit.site_fakes import SiteClock

from fleet.config import FleetSpec
from fleet.driver_describe import COHORT_COLUMNS, cohort_rows, describe_driver_plan
from fleet.driver_rollback import describe_rollback, plan_rollback
from fleet.driver_rollout import DriverPlan, NodeDriverReading, check_driver_unchanged, plan_driver_rollout
from fleet.driver_target import FormerDriver
from fleet.errors import ConfigurationError, PlanChanged

NOW = SiteClock().now()
POOLS = {"dev": 8, "train": 40}


def plan(
    spec: FleetSpec, to: str = NEW, seed: int = 7, readings: Mapping[str, NodeDriverReading] | None = None
) -> DriverPlan:
    """Over every pool; nodes that `readings` does not name run OLD and can have NEW."""
    found = {node.name: reading_of(node) for node in spec.inventory()} | dict(readings or {})
    return plan_driver_rollout(spec, tuple(spec.pools), to, found, NOW, seed)


@pytest.fixture(scope="module")
def spec() -> FleetSpec:
    return spec_of(POOLS, production=False)


@pytest.fixture(scope="module")
def made(spec: FleetSpec) -> DriverPlan:
    return plan(spec)


def named(spec: FleetSpec, name: str, **changed: object) -> NodeDriverReading:
    node = next(node for node in spec.inventory() if node.name == name)
    values = {"current": OLD, "age": 400.0} | changed
    return reading_of(node, **values)  # type: ignore[arg-type]


def test_every_node_is_in_one_wave_and_pools_that_serve_nobody_go_first(made: DriverPlan) -> None:
    visited = [node for wave in made.waves for node in wave.nodes]
    assert sorted(visited) == sorted(made.nodes)
    assert len(visited) == 48
    pools = [wave.pool for wave in made.waves]
    assert pools == sorted(pools)
    assert [wave.number for wave in made.waves] == list(range(1, len(made.waves) + 1))


def test_each_pool_begins_with_a_canary_of_the_size_that_the_verdict_needs(made: DriverPlan) -> None:
    first = {wave.pool: wave for wave in reversed(made.waves)}
    assert made.size.nodes > 2
    assert len(first["train"].nodes) == min(made.size.nodes, 20)
    assert len(first["dev"].nodes) == min(made.size.nodes, 4)
    assert made.size.finds >= made.canary.power
    assert [wave.name for wave in first.values()] == ["train canary", "dev canary"]


def test_a_wave_is_watched_beside_nodes_of_its_pool_that_are_not_changed_in_it(made: DriverPlan) -> None:
    for wave in made.waves:
        kept = made.cohorts[wave.number]
        assert set(kept.measured) <= set(wave.nodes)
        assert len(kept.measured) == min(len(wave.nodes), made.size.nodes)
        assert not set(kept.controls) & set(wave.nodes)
        assert {made.traits[node].rack.partition("-")[0] for node in kept.controls} == {wave.pool}
        assert len(kept.controls) == len(set(kept.controls)) > 0
        assert set(made.cohorts_of(wave).canary) == set(kept.measured)
        assert set(made.cohorts_of(wave).control) == set(kept.controls)


def test_nodes_that_have_the_release_already_may_be_controls() -> None:
    small = spec_of({"train": 8})
    current = {f"train-{n:02}": named(small, f"train-{n:02}", current=NEW) for n in range(4)}
    made = plan(small, readings=current)
    assert set(made.current) == set(current)
    (wave,) = made.waves
    assert len(wave.nodes) == 4
    assert set(made.cohorts[1].controls) == set(current)


def test_nodes_that_cannot_be_visited_are_left_out_with_their_reason(spec: FleetSpec) -> None:
    fault = NodeDriverReading(named(spec, "train-01").traits, fault="down in the scheduler: no power")
    found = {node.name: reading_of(node) for node in spec.inventory() if node.name != "train-02"}
    made = plan_driver_rollout(spec, tuple(spec.pools), NEW, found | {"train-01": fault}, NOW, 7)
    assert made.left_out == {"train-01": "down in the scheduler: no power", "train-02": "was not read"}
    assert not {"train-01", "train-02"} & {node for wave in made.waves for node in wave.nodes}
    watched = {node for kept in made.cohorts.values() for node in (*kept.measured, *kept.controls)}
    assert not {"train-01", "train-02"} & watched


def test_a_pool_of_two_nodes_is_planned_and_says_that_its_verdict_decides_nothing() -> None:
    made = plan(spec_of({"train": 2}))
    assert sum(len(wave.nodes) for wave in made.waves) == 2
    for kept in made.cohorts.values():
        assert kept.smallest_detectable is None
        assert any("too few nodes for a verdict" in note for note in kept.notes)


def test_a_wave_without_any_other_node_says_that_it_has_no_control() -> None:
    one = spec_of({"train": 2})
    fault = {"train-01": NodeDriverReading(named(one, "train-01").traits, fault="no power")}
    made = plan(one, readings=fault)
    assert made.cohorts[1].controls == ()
    assert "no node of pool train is left to be a control" in made.cohorts[1].notes
    assert made.cohorts_of(made.waves[0]).control == ()


def test_a_pool_whose_floor_lets_no_node_out_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lets none out"):
        plan(spec_of({"train": 1}))


def test_a_larger_cohort_finds_a_smaller_loss(made: DriverPlan) -> None:
    found = {kept.smallest_detectable for kept in made.cohorts.values() if len(kept.measured) >= made.size.nodes}
    small = made.cohorts[1].smallest_detectable
    assert small is not None
    assert all(one is not None and made.canary.margin < one <= made.canary.loss for one in found)
    assert small > min(one for one in found if one is not None)


def test_gemm_is_not_compared_across_cuda_versions_and_the_plan_says_so(made: DriverPlan) -> None:
    assert made.unmeasured == ("gemm",)
    assert "gemm" not in {measure.name for measure in made.measures()}
    assert made.measuring().measures["gemm"].measured is False
    assert any(note.startswith("not measured: gemm") for note in made.notes)


def test_gemm_is_compared_within_one_cuda_version() -> None:
    small = spec_of({"train": 2})
    within = {node.name: reading_of(node, current="580.65.06") for node in small.inventory()}
    made = plan(small, readings=within)
    assert (made.unmeasured, made.notes) == ((), ())
    assert "gemm" in {measure.name for measure in made.measures()}


def test_gemm_is_compared_where_the_fleet_file_allows_another_tool() -> None:
    made = plan(spec_of({"train": 2}, "canary: {tools: {across_cuda_versions: true}}\n"))
    assert made.unmeasured == ()


def test_a_benchmark_that_the_fleet_file_switches_off_is_not_planned() -> None:
    made = plan(spec_of({"train": 2}, "canary: {measures: {host_to_device: {measured: false}}}\n"))
    assert {measure.name for measure in made.measures()} == {"hbm_bandwidth", "all_reduce"}


def test_a_release_of_an_unknown_branch_counts_as_another_cuda_version() -> None:
    small = spec_of({"train": 2})
    odd = {node.name: reading_of(node, current="999.10.01") for node in small.inventory()}
    assert plan(small, readings=odd).unmeasured == ("gemm",)


def test_a_plan_is_whole_after_its_json(made: DriverPlan) -> None:
    kept = DriverPlan.model_validate_json(made.to_json())
    assert kept == made
    assert kept.digest == made.digest
    assert kept.cohorts[1] == made.cohorts[1]
    assert kept.target("train-00") == target()


def test_the_same_seed_gives_the_same_plan_and_another_one_another(spec: FleetSpec, made: DriverPlan) -> None:
    assert plan(spec).digest == made.digest
    other = plan(spec, seed=8)
    assert {kept.controls for kept in other.cohorts.values()} != {kept.controls for kept in made.cohorts.values()}


@pytest.mark.parametrize(
    "more", ["canary: {margin: 0.03}\n", "drivers: {sudo: true}\n", "canary: {measures: {gemm: {margin: 0.04}}}\n"]
)
def test_other_settings_are_another_plan(more: str) -> None:
    assert plan(spec_of({"train": 4}, more)).digest != plan(spec_of({"train": 4})).digest


def test_a_plan_under_the_same_fleet_file_still_holds(spec: FleetSpec, made: DriverPlan) -> None:
    check_driver_unchanged(made, spec)
    check_driver_unchanged(DriverPlan.model_validate_json(made.to_json()), spec_of(POOLS, production=False))


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("canary: {looks: 2}\n", "canary"),
        ("canary: {tools: {gemm_seconds: 20}}\n", "canary"),
        ("drivers: {unload_attempts: 2}\n", "drivers"),
        ("drivers: {free: {boot_mib: 1}}\n", "drivers"),
    ],
)
def test_another_setting_of_the_fleet_file_voids_the_plan_and_is_named(made: DriverPlan, more: str, part: str) -> None:
    with pytest.raises(PlanChanged, match=f"the fleet file's {part} differs"):
        check_driver_unchanged(made, spec_of(POOLS, more, production=False))


def test_another_policy_voids_the_plan_and_its_part_is_named(spec: FleetSpec, made: DriverPlan) -> None:
    with pytest.raises(PlanChanged, match="pools"):
        check_driver_unchanged(made, spec_of(POOLS))
    gate = spec.gate.model_copy(update={"required": 1})
    with pytest.raises(PlanChanged, match="gates"):
        check_driver_unchanged(made, spec.model_copy(update={"gate": gate}))
    racks = {name: rack.model_copy(update={"limit": 1}) for name, rack in spec.racks.items()}
    with pytest.raises(PlanChanged, match="rack_limits"):
        check_driver_unchanged(made, spec.model_copy(update={"racks": racks}))


def test_a_pool_that_does_not_exist_and_a_loss_that_nothing_finds_are_refused(spec: FleetSpec) -> None:
    with pytest.raises(ConfigurationError, match="no pool 'nope'; the fleet file has dev, train"):
        plan_driver_rollout(spec, ("nope",), NEW, {}, NOW, 7)
    with pytest.raises(ConfigurationError, match="between the margin"):
        plan(spec_of({"train": 2}, "canary: {loss: 0.02}\n"))


def test_every_node_has_its_target_and_equal_ones_are_kept_once(made: DriverPlan) -> None:
    assert len(made.targets) == 1
    assert all(made.target(node) == target() for node in made.nodes)
    with pytest.raises(KeyError):
        made.target("gpu-9999")


def test_the_expected_end_counts_every_bake_and_no_waiting(made: DriverPlan) -> None:
    assert made.expected_end is not None
    baking = sum(wave.bake_seconds + wave.expected_seconds for wave in made.waves)
    assert made.expected_end > NOW + timedelta(seconds=baking)


def test_what_people_approve_names_sizes_errors_and_who_is_left_out(spec: FleetSpec) -> None:
    fault = NodeDriverReading(named(spec, "train-01").traits, fault="no power")
    made = plan(spec, readings={"train-01": fault})
    text = describe_driver_plan(made, "drv-1")
    assert f"driver {NEW}: 47 nodes to change, 0 already there, 1 left out" in text
    assert f"{OLD} × 47" in text
    assert "- train-01: no power" in text
    assert "not measured: gemm" in text
    assert {len(row) for row in cohort_rows(made)} == {len(COHORT_COLUMNS)}
    assert len(cohort_rows(made)) == len(made.waves)


def test_the_way_back_has_a_wave_for_each_pool_and_asks_nobody(spec: FleetSpec, made: DriverPlan) -> None:
    former = {node: FormerDriver(version=OLD, driver=target(OLD)) for node in ("dev-00", "train-00", "train-01")}
    former["train-02"] = FormerDriver(version=OLD, why_not="its driver came by container")
    back = plan_rollback(
        spec, "drv-1", made, former, {"train-03": "no power"}, ["train-00", "train-09"], NOW, "too slow"
    )
    assert [(wave.pool, wave.nodes) for wave in back.waves] == [
        ("train", ("train-00", "train-01")),
        ("dev", ("dev-00",)),
    ]
    assert back.left_out == {"train-03": "no power", "train-02": "its driver came by container"}
    assert {gate.required for gate in back.policy.gates.values()} == {0}
    assert back.measured == ("train-00",)
    assert back.canary == made.measuring()
    assert f"3 nodes go back from {NEW} to {OLD} × 3" in describe_rollback(back)
