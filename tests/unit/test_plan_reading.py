"""Reading nodes for a plan: patience with a busy BMC, none with a node that is out of service."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from unit.cli_site import SPEC, CliSite, cli_site
from unit.site_fakes import GPU, NEW, OLD, FakeBmc, FakeScheduler, SiteClock

from blocks.fleet import Fleet
from fleet.bundle import Bundle, BundleEntry
from fleet.config import parse_fleet
from fleet.errors import BmcBusy, CredentialsRejected
from fleet.model import FirmwareComponent, FirmwareRole, NodeState, ResetKind, SchedulerNode
from fleet.rollout import BundleSource, NodeReading, plan_rollout
from tasks.reading import read_nodes

NAMES = ("gpu-0001", "gpu-0002", "gpu-0003")


@dataclass
class AskedBmc(FakeBmc):
    """Remembers when it was asked; busy until `free_at`, asking for `wait` seconds each time."""

    free_at: float = 0.0
    wait: float | None = None
    locked: bool = False
    asked_at: list[float] = field(default_factory=list)
    closed: int = 0

    def _answer(self) -> None:
        self.asked_at.append(self.clock.monotonic())
        if self.locked:
            raise CredentialsRejected("wrong password")
        if self.clock.monotonic() < self.free_at:
            error = BmcBusy("503 Service Unavailable")
            error.retry_after_seconds = self.wait
            raise error
        super()._answer()

    def close(self) -> None:
        self.closed += 1


class ThreeNodes(FakeScheduler):
    def read_nodes(self) -> dict[str, SchedulerNode]:
        one = super().read_nodes()["gpu-0001"]
        return {name: replace(one, name=name) for name in NAMES}


@dataclass
class Reading:
    """Three nodes with a BMC each; gpu-0001's is the one that makes trouble."""

    site: CliSite
    bmc: AskedBmc
    others: tuple[AskedBmc, ...]
    began: float
    done: list[int] = field(default_factory=list)

    def read(self) -> dict[str, NodeReading]:
        fleet = Fleet(fleet_file=str(self.site.file))
        return read_nodes(fleet, self.site.spec.inventory(), self.done.append)

    def asked(self) -> list[float]:
        return [at - self.began for at in self.bmc.asked_at]


def _reading(folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str = SPEC) -> Reading:
    site = cli_site(folder, monkeypatch, spec)
    site.fake_scheduler = ThreeNodes()
    bmcs = [AskedBmc(site.site_clock) for _ in NAMES]
    site.own_bmcs |= dict(zip(NAMES, bmcs, strict=True))
    return Reading(site, bmcs[0], tuple(bmcs[1:]), site.site_clock.monotonic())


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reading:
    return _reading(tmp_path, monkeypatch)


def test_a_busy_bmc_is_asked_again_while_the_others_are_read(reading: Reading) -> None:
    reading.bmc.free_at = reading.began + 25
    found = reading.read()
    assert [found[name].fault for name in NAMES] == [None, None, None]
    assert reading.asked() == [0, 10, 20, 30]
    assert all(other.asked_at == [reading.began] for other in reading.others)
    assert reading.done == [1, 2, 3]


def test_a_bmc_that_says_when_is_asked_then_and_not_before(reading: Reading) -> None:
    reading.bmc.free_at, reading.bmc.wait = reading.began + 40, 45.0
    assert reading.read()["gpu-0001"].fault is None
    assert reading.asked() == [0, 45]


def test_a_bmc_that_wants_more_time_than_a_plan_has_is_left_out_at_once(reading: Reading) -> None:
    reading.bmc.free_at, reading.bmc.wait = reading.began + 600, 300.0
    fault = reading.read()["gpu-0001"].fault
    assert fault == "its firmware could not be read: 503 Service Unavailable"
    assert reading.asked() == [0]
    assert reading.site.site_clock.monotonic() == reading.began


def test_a_bmc_that_stays_away_is_left_out_within_a_minute(reading: Reading) -> None:
    reading.bmc.away_until = reading.began + 3600
    assert reading.read()["gpu-0001"].fault == "its firmware could not be read: connection refused"
    assert reading.asked() == [0, 10, 20, 30, 40, 50, 60]


def test_the_fleets_ready_time_bounds_it_where_it_is_shorter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPEC.replace("ready_timeout_seconds: 600", "ready_timeout_seconds: 20")
    reading = _reading(tmp_path, monkeypatch, spec)
    reading.bmc.away_until = reading.began + 3600
    assert reading.read()["gpu-0001"].fault is not None
    assert reading.asked() == [0, 10, 20]


def test_one_client_serves_all_tries_of_a_node_and_is_closed(reading: Reading) -> None:
    reading.bmc.free_at = reading.began + 25
    reading.read()
    assert sorted(reading.site.asked) == list(NAMES)
    assert [bmc.closed for bmc in (reading.bmc, *reading.others)] == [1, 1, 1]


def test_refused_credentials_are_not_tried_again(reading: Reading) -> None:
    reading.bmc.locked = True
    assert "wrong password" in (reading.read()["gpu-0001"].fault or "")
    assert reading.asked() == [0]


@pytest.mark.parametrize("cordoned", [True, False])
def test_a_quarantined_node_is_not_visited_and_says_why(reading: Reading, cordoned: bool) -> None:
    reading.site.quarantine()
    reading.site.fake_scheduler.cordoned = cordoned
    found = reading.read()["gpu-0001"]
    assert found.fault == "quarantined: reset ignored (after the repair: gpufleet clear NODE)"
    assert (found.set_aside, reading.bmc.asked_at) == (cordoned, [])


def test_a_node_that_another_operation_holds_is_left_out_with_its_name(reading: Reading) -> None:
    operation = reading.site.operation()
    reading.site.hold(operation)
    reading.site.ledger().inventory.move("gpu-0001", NodeState.DRAINING, "waits for its work", operation)
    assert f"draining: waits for its work (held by {operation}" in (reading.read()["gpu-0001"].fault or "")


def test_a_domain_goes_out_whole_but_for_nodes_set_aside_and_never_across_pools() -> None:
    spec = parse_fleet(SPEC.replace("train, model:", "train, nvlink_domain: d1, model:"), "fleet.yaml")
    entry = BundleEntry(
        name="gpu",
        match=("HGX_FW_GPU_*",),
        version=NEW,
        image="gpu.bin",
        sha256="0" * 64,
        reset=ResetKind.AC_CYCLE,
        scope="nvlink_domain",
    )
    bundle = Bundle(version=1, name="hgx", release="1", fits=("HGX-H100-8",), entries=(entry,))
    old = FirmwareComponent(GPU, OLD, None, FirmwareRole.ACTIVE, "Enabled", "OK", True, f"/fw/{GPU}", GPU)
    readings = {
        "gpu-0001": NodeReading(fault="quarantined", set_aside=True),
        "gpu-0002": NodeReading((old,), busy=False),
    }
    source = BundleSource(bundle, "/b/bundle.yaml", "b" * 64)
    plan = plan_rollout(spec, ("train",), source, readings, SiteClock().now(), 7)
    assert plan.waves[0].units == (("gpu-0002",),)
    assert plan.bundle_versions == {"gpu": NEW}
    readings["gpu-0001"] = replace(readings["gpu-0001"], set_aside=False)
    plan = plan_rollout(spec, ("train",), source, readings, SiteClock().now(), 7)
    assert sorted(plan.waves[0].nodes) == ["gpu-0001", "gpu-0002"]
    shared = parse_fleet(SPEC.replace(", model:", ", nvlink_domain: d1, model:"), "fleet.yaml")
    plan = plan_rollout(shared, ("train",), source, readings, SiteClock().now(), 7)
    assert plan.waves == ()
    assert "pool dev has nodes too" in plan.left_out["gpu-0002"]
