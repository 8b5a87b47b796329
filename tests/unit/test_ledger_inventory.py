"""Nodes, racks and pools, as the fleet file and the BMCs have them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.ledger_tools import LIMITS, FakeClock, fleet_of, node, running, take

from fleet.errors import ConfigurationError, LeaseLost, PreconditionError
from fleet.model import FirmwareComponent, FirmwareRole, NodeState
from ledger import Ledger

pytest_plugins = ("unit.ledger_fixtures",)


def component(id: str, version: str | None) -> FirmwareComponent:
    return FirmwareComponent(id, version, None, FirmwareRole.ACTIVE, "Enabled", "OK", True, f"/fw/{id}", id)


def test_a_fleet_file_read_twice_changes_nothing(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1, "r2": 2})
    head = ledger.audit.head()
    fleet_of(ledger, {"r1": 1, "r2": 2})
    assert ledger.audit.head() == head
    assert [n.name for n in ledger.inventory.nodes(rack="r2")] == ["r2-0", "r2-1", "r2-2", "r2-3"]


def test_a_new_address_is_taken_over_and_the_state_is_kept(ledger: Ledger) -> None:
    ledger.inventory.sync([node("a")], {"r1": 1}, {"main": LIMITS})
    ledger.inventory.move("a", NodeState.QUARANTINED, "Xid 79")
    moved = replace(node("a"), bmc="https://10.0.0.9")
    ledger.inventory.sync([moved], {"r1": 1}, {"main": LIMITS})
    record = ledger.inventory.node("a")
    assert (record.node, record.state, record.reason) == (moved, NodeState.QUARANTINED, "Xid 79")


def test_a_vanished_node_keeps_its_row_and_may_come_back(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    ledger.inventory.sync([node("r1-0")], {"r1": 1}, {"main": LIMITS})
    assert [n.name for n in ledger.inventory.nodes()] == ["r1-0"]
    assert ledger.inventory.node("r1-1").absent
    fleet_of(ledger, {"r1": 1})
    assert not ledger.inventory.node("r1-1").absent


def test_a_node_without_limits_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ConfigurationError, match="r9-0"):
        ledger.inventory.sync([node("r9-0", "r9")], {"r1": 1}, {"main": LIMITS})


def test_an_illegal_move_is_refused_and_leaves_the_state(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    with pytest.raises(PreconditionError, match="cannot go from in_service to retired"):
        ledger.inventory.move("r1-0", NodeState.RETIRED, "")
    assert ledger.inventory.node("r1-0").state is NodeState.IN_SERVICE


def test_an_owned_node_is_moved_by_its_owner_or_into_quarantine(ledger: Ledger, clock: FakeClock) -> None:
    fleet_of(ledger, {"r1": 1})
    owner, other = running(ledger), running(ledger)
    take(ledger, owner, "r1-0")
    with pytest.raises(PreconditionError, match=f"held by {owner[0]}"):
        ledger.inventory.move("r1-0", NodeState.DRAINING, "")
    with pytest.raises(LeaseLost):
        ledger.inventory.move("r1-0", NodeState.DRAINING, "", other[0])
    clock.sleep(5)
    ledger.inventory.move("r1-0", NodeState.DRAINING, "for firmware", owner[0])
    assert ledger.inventory.node("r1-0").since == clock.now()
    ledger.inventory.move("r1-0", NodeState.QUARANTINED, "Xid 79")
    assert ledger.inventory.nodes(state=NodeState.QUARANTINED)[0].name == "r1-0"


def test_firmware_is_replaced_by_what_was_read_last(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    ledger.inventory.record_firmware("r1-0", [component("BMC", "1.0"), component("CPLD", None)])
    head = ledger.audit.head()
    ledger.inventory.record_firmware("r1-0", [component("BMC", "1.0"), component("CPLD", None)])
    assert ledger.audit.head() == head
    ledger.inventory.record_firmware("r1-0", [component("BMC", "2.0"), component("NIC", "7")])
    assert ledger.inventory.firmware("r1-0") == (component("BMC", "2.0"), component("NIC", "7"))


def test_a_node_that_was_never_read_has_no_firmware(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 1})
    assert ledger.inventory.firmware("r1-0") == ()
    with pytest.raises(PreconditionError, match="not in the ledger"):
        ledger.inventory.record_firmware("nobody", [])
