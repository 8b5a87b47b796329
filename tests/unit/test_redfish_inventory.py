"""Collections and the firmware inventory: complete, or not at all."""

from __future__ import annotations

import httpx
import pytest
from redfish_fake import INVENTORY, ROOT, FakeBmc, collection, component, link, problem

from fleet.errors import BmcBusy, NodeUnreachable


def _expanding(fake: FakeBmc) -> None:
    fake.resources[ROOT]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True}}


def test_an_expanded_collection_takes_one_request() -> None:
    fake = FakeBmc()
    _expanding(fake)
    entries = [component("FW_BMC_0"), component("FW_ERoT_BMC_0", "2.0")]
    fake.put({**link(INVENTORY), "Members": entries, "Members@odata.count": 2})
    assert [c.version for c in fake.bmc().read_firmware()] == ["1.0", "2.0"]
    assert fake.count("GET", INVENTORY) == 1
    assert fake.count("GET", f"{INVENTORY}/FW_BMC_0") == 0


def test_a_bmc_that_promises_to_expand_and_does_not_is_read_member_by_member() -> None:
    fake = FakeBmc()
    _expanding(fake)
    fake.components(component("FW_BMC_0"), component("FW_CPLD_0", "0.00"))
    assert [c.version for c in fake.bmc().read_firmware()] == ["1.0", "0.00"]


@pytest.mark.parametrize("status", [400, 404, 500, 501])
def test_a_bmc_that_chokes_on_expand_is_asked_without_it(status: int) -> None:
    fake = FakeBmc()
    _expanding(fake)
    fake.components(component("FW_BMC_0"))
    fake.once["GET", INVENTORY] = [problem(status, "Base.1.18.QueryNotSupported", "no")]
    assert len(fake.bmc().read_firmware()) == 1


def test_an_expanded_answer_that_is_cut_short_is_read_again_member_by_member() -> None:
    fake = FakeBmc()
    _expanding(fake)
    fake.components(component("A"), component("B"))
    short = {**link(INVENTORY), "Members": [component("A")], "Members@odata.count": 2}
    fake.once["GET", INVENTORY] = [httpx.Response(200, json=short)]
    assert [c.id for c in fake.bmc().read_firmware()] == ["A", "B"]


def test_all_pages_are_read() -> None:
    fake = FakeBmc()
    fake.components(component("A"), component("B"), component("C"))
    first = {**collection(INVENTORY, f"{INVENTORY}/A"), "Members@odata.count": 3}
    fake.put({**first, "Members@odata.nextLink": f"{INVENTORY}/page2"})
    fake.put({**collection(f"{INVENTORY}/page2", f"{INVENTORY}/B", f"{INVENTORY}/C"), "Members@odata.count": 3})
    assert [c.id for c in fake.bmc().read_firmware()] == ["A", "B", "C"]


def test_a_page_that_links_to_itself_ends() -> None:
    fake = FakeBmc()
    fake.components(component("A"))
    fake.resources[INVENTORY]["Members@odata.nextLink"] = INVENTORY
    assert [c.id for c in fake.bmc().read_firmware()] == ["A"]


def test_an_inventory_shorter_than_its_own_count_raises() -> None:
    fake = FakeBmc()
    fake.components(component("A"))
    fake.resources[INVENTORY]["Members@odata.count"] = 2
    with pytest.raises(BmcBusy, match="counts 2 members and lists 1"):
        fake.bmc().read_firmware()


def test_a_member_that_is_gone_makes_the_inventory_raise_and_the_survey_go_on() -> None:
    fake = FakeBmc()
    fake.components(component("A"), component("B"), component("C"))
    del fake.resources[f"{INVENTORY}/B"]
    with pytest.raises(BmcBusy):
        fake.bmc().read_firmware()
    survey = fake.bmc().survey()
    assert [c.id for c in survey.firmware] == ["A", "C"]
    assert len(survey.problems) == 1
    assert "firmware inventory B" in survey.problems[0]


def test_a_member_listed_twice_is_one_component() -> None:
    fake = FakeBmc()
    fake.components(component("A"), component("A"))
    assert [c.id for c in fake.bmc().read_firmware()] == ["A"]


def test_a_bmc_that_falls_silent_in_the_middle_is_unreachable_and_not_a_long_list_of_problems() -> None:
    fake = FakeBmc()
    fake.components(*(component(f"C{number}") for number in range(9)))
    for number in range(9):
        fake.once["GET", f"{INVENTORY}/C{number}"] = [httpx.ReadTimeout("timed out")]
    survey = fake.bmc().survey()
    assert survey.firmware == ()
    assert "the firmware is not known" in survey.problems[-1]
    assert sum(path.startswith(f"{INVENTORY}/C") for _, path in fake.requests) == 3


def test_a_silent_member_is_unreachable_for_a_complete_read() -> None:
    fake = FakeBmc()
    fake.components(component("A"))
    fake.once["GET", f"{INVENTORY}/A"] = [httpx.ReadError("cut")]
    with pytest.raises(NodeUnreachable):
        fake.bmc().read_firmware()


def test_gpus_are_found_in_every_system_and_the_host_stands_for_itself() -> None:
    fake = FakeBmc()
    board = f"{ROOT}/Systems/HGX_Baseboard_0"
    gpu = {
        **link(f"{board}/Processors/GPU_0"),
        "Id": "GPU_0",
        "ProcessorType": "GPU",
        "Model": "H100",
        "SerialNumber": " 165 ",
        "UUID": "",
        "Status": {"State": "Enabled", "Health": "Critical"},
    }
    cpu = {**link(f"{board}/Processors/CPU_0"), "Id": "CPU_0", "ProcessorType": "CPU"}
    fake.put({**link(board), "Id": "HGX_Baseboard_0", "Model": "", "Processors": link(f"{board}/Processors")})
    fake.put(gpu)
    fake.put(cpu)
    fake.put(collection(f"{board}/Processors", f"{board}/Processors/GPU_0", f"{board}/Processors/CPU_0"))
    fake.put(collection(f"{ROOT}/Systems", board, f"{ROOT}/Systems/System_0"))
    system = fake.bmc().read_system()
    assert (system.model, system.serial, system.problems) == ("HGX", "S1", ())
    assert [(g.id, g.serial, g.uuid, g.health) for g in system.gpus] == [("GPU_0", "165", None, "Critical")]


def test_model_and_serial_come_from_the_hosts_own_chassis_where_the_system_has_none() -> None:
    fake = FakeBmc()
    system = fake.resources[f"{ROOT}/Systems/System_0"]
    system.update({"Model": None, "SerialNumber": "", "Links": {"Chassis": [link(f"{ROOT}/Chassis/BMC_0")]}})
    fake.resources[f"{ROOT}/Chassis/BMC_0"].update({"Model": "P3809", "SerialNumber": "158"})
    reading = fake.bmc().read_system()
    assert (reading.vendor, reading.model, reading.serial) == ("NVIDIA", "P3809", "158")


def test_what_nobody_tells_stays_unknown() -> None:
    fake = FakeBmc()
    fake.resources[f"{ROOT}/Systems/System_0"].update({"SerialNumber": None, "PowerState": "Paused"})
    reading = fake.bmc().read_system()
    assert (reading.serial, reading.bios_version, reading.power.value) == (None, None, "unknown")
