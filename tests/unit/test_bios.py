"""BIOS attributes: what is in force counts, what waits is told apart, and what the BMC does not give is unknown."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redfish_fake import SYSTEM, FakeBmc, link, problem

from fleet.bios import BiosReading, not_read, read_attributes
from fleet.errors import CredentialsRejected, NodeUnreachable
from fleet.node_facts import facts_of_bmc

NOW = datetime(2026, 11, 30, tzinfo=UTC)
BIOS, SETTINGS = f"{SYSTEM}/Bios", f"{SYSTEM}/Bios/Settings"


def fake(active: dict[str, object], waiting: dict[str, object] | None = None) -> FakeBmc:
    made = FakeBmc()
    made.resources[SYSTEM]["Bios"] = link(BIOS)
    body: dict[str, object] = {**link(BIOS), "Attributes": active}
    if waiting is not None:
        made.put({**link(SETTINGS), "Attributes": waiting})
        body["@Redfish.Settings"] = {"SettingsObject": link(SETTINGS)}
    made.put(body)
    return made


def test_what_waits_for_the_next_start_is_not_in_force() -> None:
    read = fake({"Sriov": "Enabled", "IommuMode": "On"}, {"Sriov": "Disabled"}).bmc().read_bios(["Sriov", "IommuMode"])
    assert read == BiosReading({"Sriov": "Enabled", "IommuMode": "On"}, {"Sriov": "Disabled"})


def test_a_settings_object_that_repeats_everything_says_only_what_differs() -> None:
    read = read_attributes(["A", "B"], {"Attributes": {"A": "x", "B": 1}}, {"Attributes": {"A": "x", "B": 2}})
    assert read.waiting == {"B": "2"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (4096, "4096"), (4096.0, "4096"), (" On ", "On"), (1.5, "1.5")],
)
def test_switches_and_numbers_are_told_as_text(value: object, text: str) -> None:
    assert read_attributes(["A"], {"Attributes": {"A": value}}, {}).attributes == {"A": text}


@pytest.mark.parametrize("value", [None, "", ["x"], {"x": 1}])
def test_an_attribute_without_a_value_is_unknown(value: object) -> None:
    read = read_attributes(["A"], {"Attributes": {"A": value}}, {})
    assert (read.attributes, read.unknown) == ({}, {"A": "the BMC gives no value for A"})


def test_a_name_in_another_case_is_the_same_one_and_a_wrong_one_shows_the_nearest() -> None:
    read = read_attributes(["SRIOV", "NumaPerSocket"], {"Attributes": {"Sriov": "On", "NumaNodesPerSocket": 4}}, {})
    assert read.attributes == {"SRIOV": "On"}
    assert "NumaNodesPerSocket" in read.unknown["NumaPerSocket"]
    twice = read_attributes(["a"], {"Attributes": {"A": "1", "á": "2", "A ": "3"}}, {})
    assert twice.attributes == {"a": "1"}


def test_nothing_is_asked_where_no_attribute_is_wanted() -> None:
    bmc = fake({"A": "1"})
    assert bmc.bmc().read_bios([]) == BiosReading()
    assert bmc.requests == []


def test_a_sweep_asks_for_the_bios_without_reading_the_system_again() -> None:
    bmc = fake({"A": "1"})
    client = bmc.bmc()
    client.read_system()
    before = bmc.count("GET", SYSTEM)
    client.read_bios(["A"])
    assert (bmc.count("GET", SYSTEM), bmc.count("GET", BIOS)) == (before, 1)


def test_a_bmc_without_a_bios_resource_leaves_every_attribute_unknown() -> None:
    assert FakeBmc().bmc().read_bios(["A", "B"]) == not_read(["A", "B"], "the BMC shows no BIOS of the host")


@pytest.mark.parametrize("status", [404, 403, 500, 503])
def test_a_bios_that_is_refused_is_unknown_and_costs_nothing_else(status: int) -> None:
    bmc = fake({"A": "1"})
    bmc.once["GET", BIOS] = [problem(status, "Base.1.18.GeneralError", "no")]
    read = bmc.bmc().read_bios(["A"])
    assert (read.attributes, set(read.unknown)) == ({}, {"A"})


def test_an_answer_that_is_no_json_is_unknown() -> None:
    bmc = fake({"A": "1"})
    bmc.once["GET", BIOS] = [httpx.Response(200, text="<html>starting</html>")]
    assert bmc.bmc().read_bios(["A"]).attributes == {}


def test_settings_that_cannot_be_read_leave_what_is_in_force_known() -> None:
    bmc = fake({"A": "1"}, {"A": "2"})
    bmc.once["GET", SETTINGS] = [problem(500, "Base.1.18.InternalError", "no")]
    read = bmc.bmc().read_bios(["A"])
    assert (read.attributes, read.waiting, bool(read.waiting_unknown)) == ({"A": "1"}, {}, True)


def test_a_bmc_that_does_not_answer_is_no_unknown_attribute() -> None:
    bmc = fake({"A": "1"})
    bmc.once["GET", BIOS] = [httpx.ReadTimeout("timed out")]
    with pytest.raises(NodeUnreachable):
        bmc.bmc().read_bios(["A"])
    with pytest.raises(CredentialsRejected):
        FakeBmc(password="other").bmc().read_bios(["A"])


def test_bios_facts_have_the_names_that_baselines_use() -> None:
    told = facts_of_bmc("n1", NOW, (), None, BiosReading({"A": "1"}, {"A": "2"}, {"B": "why"}))
    assert (told.facts["bios.A"], told.facts["bios_waiting.A"], told.unknown["bios.B"]) == ("1", "2", "why")
    nothing = facts_of_bmc("n1", NOW, (), None, not_read(["A"], "HTTP 500"))
    assert nothing.unknown == {"bios.A": "HTTP 500", "bios_waiting.*": "HTTP 500"}


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.floats() | st.text()), st.text())
def test_every_name_has_a_value_or_a_reason(attributes: dict[str, object], name: str) -> None:
    read = read_attributes([name], {"Attributes": attributes}, {"Attributes": attributes})
    assert (name in read.attributes) != (name in read.unknown)
