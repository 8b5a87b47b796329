"""Which nodes a driver plan leaves to somebody else or refuses, and what it says that its controls cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from unit.canary_site import reading_of, spec_of
from unit.driver_host_fake import NEW, OLD, DriverSite, target
from unit.site_fakes import SPEC, FakeScheduler, SiteClock

from fleet.config import FleetSpec
from fleet.driver_cost import ControlScene, control_cost
from fleet.driver_describe import cohort_rows, describe_driver_plan
from fleet.driver_digests import OfferedTarget, other_bytes
from fleet.driver_nodes import NodeDriverReading
from fleet.driver_operator_labels import DEPLOY_LABEL, STATE_LABEL, refusal
from fleet.driver_rollout import DriverPlan, plan_driver_rollout
from fleet.driver_target import DriverTarget
from fleet.errors import ConfigurationError
from fleet.job_waves import RunningJob
from fleet.model import SchedulerNode
from tasks.canary_planning import make_driver_plan

NOW = SiteClock().now()
OWNED = refusal({DEPLOY_LABEL: "true", STATE_LABEL: "upgrade-done"})
CHANGING = refusal({STATE_LABEL: "drain-required"})


@pytest.fixture(scope="module")
def spec() -> FleetSpec:
    return spec_of({"train": 40})


def readings(spec: FleetSpec, **changed: NodeDriverReading) -> dict[str, NodeDriverReading]:
    """Of every node; `changed` by name, with _ for -."""
    found = {node.name: reading_of(node) for node in spec.inventory()}
    return found | {name.replace("_", "-"): reading for name, reading in changed.items()}


def plan(spec: FleetSpec, found: Mapping[str, NodeDriverReading], jobs: tuple[RunningJob, ...] = ()) -> DriverPlan:
    return plan_driver_rollout(spec, ("train",), NEW, found, NOW, 7, jobs)


def owned(spec: FleetSpec, name: str, why: str | None = OWNED) -> NodeDriverReading:
    return NodeDriverReading(readings(spec)[name].traits, driver_refusal=why)


def offering(byte: str, wanted: DriverTarget | None = None) -> DriverTarget:
    """The target with another file under one of its versions."""
    known = wanted or target()
    first, *others = known.packages
    return known.model_copy(update={"packages": (first.model_copy(update={"sha256": byte * 64}), *others)})


def test_a_node_whose_driver_the_operator_owns_is_left_out_and_the_plan_says_what_to_do(spec: FleetSpec) -> None:
    made = plan(spec, readings(spec, train_01=owned(spec, "train-01"), train_02=owned(spec, "train-02", CHANGING)))
    assert made.left_out == {"train-01": OWNED, "train-02": CHANGING}
    assert "set the version in its ClusterPolicy or NVIDIADriver" in made.left_out["train-01"]
    assert "wait for it" in made.left_out["train-02"]
    assert len(made.nodes) == 38
    text = describe_driver_plan(made, "drv-1")
    assert "the drivers of 2 nodes are left to NVIDIA's GPU Operator" in text
    watched = {node for kept in made.cohorts.values() for node in (*kept.measured, *kept.controls)}
    assert not watched & {"train-01", "train-02"}


def test_where_every_driver_is_the_operators_there_is_no_plan(spec: FleetSpec) -> None:
    found = {node.name: owned(spec, node.name) for node in spec.inventory()}
    found["train-03"] = replace(found["train-03"], driver_refusal=None, fault="no power")
    with pytest.raises(ConfigurationError, match=r"owns the driver of every node here \(39; train-00: ") as raised:
        plan(spec, found)
    assert "driver.enabled=false" in raised.value.message
    assert raised.value.evidence[0].startswith("train-00: the GPU Operator manages its driver")


def test_a_plan_without_the_operator_says_nothing_of_it(spec: FleetSpec) -> None:
    assert "Operator" not in describe_driver_plan(plan(spec, readings(spec)), "drv-1")


def test_a_node_that_is_offered_other_bytes_under_one_version_is_refused_with_both_digests(spec: FleetSpec) -> None:
    odd = replace(readings(spec)["train-07"], target=offering("0"))
    made = plan(spec, readings(spec, train_07=odd))
    assert set(made.left_out) == {"train-07"}
    why, pin = made.left_out["train-07"], target().packages[0]
    assert f"{pin.name} {pin.version} with SHA-256 {'0' * 64}" in why
    assert f"that of train-00 and 38 more with {pin.sha256}" in why
    assert len(made.targets) == 1
    assert any("other bytes under the same version" in note for note in made.notes)


def test_without_a_majority_nobody_can_tell_and_all_are_refused() -> None:
    two = {"a": OfferedTarget(offering("0")), "b": OfferedTarget(offering("1"))}
    found = other_bytes(two)
    assert set(found) == {"a", "b"}
    for why in found.values():
        assert "0" * 64 in why
        assert "1" * 64 in why
        assert "which one is right" in why
    assert set(other_bytes(two | {"c": OfferedTarget(offering("1"))})) == {"a"}


def test_packages_of_another_platform_have_bytes_of_their_own() -> None:
    offers = {
        "a": OfferedTarget(offering("0"), "ubuntu 24.04 x86_64"),
        "b": OfferedTarget(offering("1"), "ubuntu 24.04 aarch64"),
        "c": OfferedTarget(offering("2"), "ubuntu 22.04 x86_64"),
    }
    assert other_bytes(offers) == {}


def test_another_version_and_a_package_without_a_digest_are_not_compared() -> None:
    bare = target().model_copy(
        update={"packages": tuple(pin.model_copy(update={"sha256": None}) for pin in target().packages)}
    )
    assert other_bytes({"a": OfferedTarget(target()), "b": OfferedTarget(target(OLD)), "c": OfferedTarget(bare)}) == {}


def test_the_plan_says_what_draining_and_measuring_its_controls_costs(spec: FleetSpec) -> None:
    eight = {name: replace(reading, gpus=8) for name, reading in readings(spec).items()}
    made = plan(spec, eight)
    cost = made.control_cost()
    assert cost is not None
    controls = [kept.controls for kept in made.cohorts.values()]
    assert cost.nodes == len({node for nodes in controls for node in nodes})
    assert cost.drains == 2 * sum(map(len, controls)) > 0
    assert cost.gpu_hours == pytest.approx(8 * cost.hours)
    assert cost.lost_gpu_hours == 0.0
    text = describe_driver_plan(made, "drv-1")
    assert f"controls are drained and measured too: {cost.nodes} nodes, {cost.drains} drains" in text
    assert f"({cost.gpu_hours:.1f} GPU-hours) out of service" in text
    assert [row[4] for row in cohort_rows(made)] == [
        f"{kept.cost.gpu_hours:.1f}" for kept in made.cohorts.values() if kept.cost and kept.cost.gpu_hours is not None
    ]


def test_what_is_not_known_of_the_controls_is_said_to_be_unknown(spec: FleetSpec) -> None:
    made = plan(spec, {name: replace(reading, busy=True) for name, reading in readings(spec).items()})
    cost = made.control_cost()
    assert cost is not None
    assert (cost.gpu_hours, cost.lost_gpu_hours) == (None, None)
    assert "(GPU-hours not known) out of service" in describe_driver_plan(made, "drv-1")
    assert {row[4] for row in cohort_rows(made)} == {"unknown"}


def test_the_jobs_of_controls_count_once_for_each_drain() -> None:
    jobs = (RunningJob("1", ("a", "b"), 16, 3.0), RunningJob("2", ("z",), 8, 50.0))
    cost = control_cost(("a", "b"), ControlScene(1800.0, {"a": 8, "b": 4}, frozenset({"a", "b"}), jobs))
    assert (cost.drains, cost.hours, cost.gpu_hours, cost.lost_gpu_hours) == (4, 2.0, 12.0, 6.0)


def test_a_plan_that_does_not_tell_the_cost_is_still_read(spec: FleetSpec) -> None:
    made = plan(spec, readings(spec))
    bare = {number: kept.model_copy(update={"cost": None}) for number, kept in made.cohorts.items()}
    assert made.model_copy(update={"cohorts": bare}).control_cost() is None
    assert plan(spec_of({"train": 2}), readings(spec_of({"train": 2}))).control_cost() is not None


class LabelledScheduler(FakeScheduler):
    """Its one node carries the operator's labels."""

    def read_nodes(self) -> dict[str, SchedulerNode]:
        return {name: replace(node, driver_refusal=OWNED) for name, node in super().read_nodes().items()}


def test_a_node_of_the_operator_is_not_even_asked(tmp_path: Path) -> None:
    site = DriverSite(tmp_path)
    site.fake_scheduler = LabelledScheduler()
    with pytest.raises(ConfigurationError, match="gpu-0001: the GPU Operator manages its driver, last state upgrade"):
        make_driver_plan(site, NEW, ("train",))  # type: ignore[arg-type]
    assert site.gpu_host.commands == []


def test_a_node_of_nobody_else_is_read_and_planned(tmp_path: Path) -> None:
    site = DriverSite(tmp_path, SPEC)
    made = make_driver_plan(site, NEW, ("train",), 7)  # type: ignore[arg-type]
    pins = made.target("gpu-0001").packages
    assert {pin.name: pin.sha256 for pin in pins} == {pin.name: pin.sha256 for pin in target().packages}
