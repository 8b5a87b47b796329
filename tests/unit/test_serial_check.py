"""The serial that a machine tells, against the one that is written."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from fleet.model import PowerState, SystemReading
from fleet.node_facts import facts_of_bmc, facts_of_probe
from fleet.node_reading import read_node
from fleet.serial_check import SAME, check_serial, serial_findings

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def system(serial: str | None) -> SystemReading:
    return SystemReading("NVIDIA", "HGX", serial, "1.0", PowerState.ON, (), ())


@pytest.mark.parametrize(
    ("read", "written", "told"),
    [
        ("SN-1", "SN-1", SAME),
        (" sn-1 ", "SN-1", SAME),
        ("SN-2", "SN-1", "differs: the fleet file says SN-1"),
        ("To be filled by O.E.M.", "SN-1", None),
        (None, "SN-1", None),
        ("SN-1", "N/A", None),
    ],
)
def test_a_serial_is_the_same_another_one_or_not_known(read: str | None, written: str, told: str | None) -> None:
    assert check_serial(read, written) == told


def test_a_bmc_that_tells_no_serial_leaves_the_check_unknown() -> None:
    told = facts_of_bmc("n1", NOW, (), system(None), written_serial="SN-1")
    assert told.unknown["system.serial_check"] == "the BMC does not tell it"
    assert serial_findings(told.facts, {}) == ()


def test_nothing_is_checked_where_nothing_is_written() -> None:
    told = facts_of_bmc("n1", NOW, (), system("SN-2"))
    assert "system.serial_check" not in {**told.facts, **told.unknown}


def test_host_and_bmc_are_each_checked_and_the_owner_of_the_serial_is_named() -> None:
    machine = {"machine": {"product_serial": "SN-2"}}
    document = {"version": 1, "at": NOW.timestamp(), "sections": {"system": machine}}
    told = facts_of_probe("n1", NOW, read_node(json.dumps(document)), written_serial="SN-1")
    (finding,) = serial_findings(told.facts, {"sn-2": "gpu-0007"})
    assert (finding.code, finding.severity.value) == ("inventory.serial_differs", "error")
    assert "the host tells serial SN-2, which the fleet file gives to gpu-0007" in finding.text
    assert finding.evidence == "host.serial=SN-2; differs: the fleet file says SN-1"
