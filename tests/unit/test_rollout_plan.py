"""The plan that people approve: complete, frozen, and void when anything under it changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from unit.site_fakes import GPU, NEW, OLD

from fleet.bundle import Bundle, BundleEntry
from fleet.config import FleetSpec, parse_fleet
from fleet.errors import ConfigurationError, PlanChanged
from fleet.model import FirmwareComponent, FirmwareRole, ResetKind
from fleet.plan import FirmwarePlan, check_unchanged, policy_of
from fleet.rollout import BundleSource, NodeReading, plan_rollout

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def spec(floor: float = 0.5, limit: int = 2, windows: str = "[]", days: str = "null") -> FleetSpec:
    nodes = "\n".join(
        f"  - {{name: gpu-000{n}, rack: r0{1 + n % 2}, pool: train, model: HGX-H100-8, "
        f'bmc: "https://10.0.0.{n}", ssh: 10.1.0.{n}, nvlink_domain: nv{n // 2}}}'
        for n in range(1, 9)
    )
    return parse_fleet(
        f"""\
version: 1
fleet: lab
bmc: {{user: a, password: {{env: X}}}}
ssh: {{user: root, key: {{file: k}}}}
gate: {{required: 0}}
pools:
  train: {{capacity_floor: {floor}, waves: {{windows: {windows}, visit_within_days: {days}, bake_seconds: 0}}}}
racks: {{r01: {{limit: {limit}}}, r02: {{}}}}
nodes:
{nodes}
""",
        "fleet.yaml",
    )


def source(scope: str = "node") -> BundleSource:
    entry = BundleEntry.model_validate(
        {
            "name": "gpu",
            "match": ["HGX_FW_GPU_*"],
            "version": NEW,
            "image": "gpu.bin",
            "sha256": "0" * 64,
            "reset": ResetKind.AC_CYCLE,
            "one_way": True,
            "scope": scope,
            "expected_seconds": 100,
        }
    )
    bundle = Bundle(version=1, name="hgx", release="1", fits=("HGX-H100-8",), entries=(entry,))
    return BundleSource(bundle, "/bundles/hgx/bundle.yaml", "b" * 64)


def reading(version: str = OLD, busy: bool = False) -> NodeReading:
    part = FirmwareComponent(GPU, version, None, FirmwareRole.ACTIVE, "Enabled", "OK", True, f"/fw/{GPU}", GPU)
    return NodeReading((part,), busy)


def plan(fleet: FleetSpec | None = None, scope: str = "node", **other: NodeReading) -> FirmwarePlan:
    chosen = fleet or spec()
    readings = {node.name: reading() for node in chosen.inventory()} | {
        k.replace("_", "-"): v for k, v in other.items()
    }
    return plan_rollout(chosen, ("train",), source(scope), readings, NOW, 7)


def test_current_nodes_and_nodes_that_cannot_be_read_are_told_apart() -> None:
    made = plan(gpu_0001=reading(NEW), gpu_0002=NodeReading(fault="its BMC does not answer"))
    assert made.current == ("gpu-0001",)
    assert made.left_out == {"gpu-0002": "its BMC does not answer"}
    assert len(made.nodes) == 6


def test_the_digest_names_the_whole_plan() -> None:
    assert plan().digest == plan().digest
    assert plan().digest != plan(gpu_0001=reading(NEW)).digest
    kept = FirmwarePlan.model_validate_json(plan().to_json())
    assert kept.digest == plan().digest


def test_one_way_components_stand_in_the_plan() -> None:
    assert plan().one_way == (GPU,)


def test_another_bundle_or_policy_voids_the_plan_and_says_which() -> None:
    made = plan()
    check_unchanged(made, policy_of(spec(), ("train",)), "b" * 64)
    with pytest.raises(PlanChanged, match="bundle"):
        check_unchanged(made, policy_of(spec(), ("train",)), "c" * 64)
    with pytest.raises(PlanChanged, match="rack_limits"):
        check_unchanged(made, policy_of(spec(limit=1), ("train",)), "b" * 64)
    with pytest.raises(PlanChanged, match="pools"):
        check_unchanged(made, policy_of(spec(floor=0.25), ("train",)), "b" * 64)


def test_a_wave_is_closed_over_the_domain_that_a_reset_takes_down() -> None:
    made = plan(scope="nvlink_domain", gpu_0003=reading(NEW))
    units = {unit for wave in made.waves for unit in wave.units}
    assert ("gpu-0002", "gpu-0003") in units
    assert made.nodes["gpu-0003"].changes == ()


def test_a_closed_rack_is_left_out_by_name() -> None:
    made = plan(spec(limit=0))
    assert set(made.left_out.values()) == {"rack r01 is closed (limit 0)"}
    assert {node.rack for node in made.nodes.values()} == {"r02"}


def test_a_pool_that_may_lose_no_node_cannot_be_planned() -> None:
    with pytest.raises(ConfigurationError, match="lets none out"):
        plan(spec(floor=1.0))


def test_a_date_that_the_waves_cannot_meet_is_said() -> None:
    assert plan(spec(days="7")).reachable is True
    assert plan(spec(days="0.001")).reachable is False
    assert plan(spec()).reachable is None


def test_the_expected_end_waits_for_the_maintenance_window() -> None:
    made = plan(spec(windows='["Sat 02:00-06:00"]'))
    assert made.expected_end is not None
    assert made.expected_end > datetime(2026, 12, 5, 2, tzinfo=UTC)
