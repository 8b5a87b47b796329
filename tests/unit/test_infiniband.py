"""InfiniBand's tools are read as one, and waiting, disabled and unknown are told from broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import DRAINS, Action, Explanation, Severity
from fleet.readers import infiniband
from fleet.readers.infiniband import counter_findings, module_findings, port_findings
from fleet.readers.infiniband_links import read_counters, read_diagnet, read_linkinfo, read_mlxlink
from fleet.readers.infiniband_ports import IbPort, read_ports


def _ibstat(device: str, state: str, physical: str, rate: str = "400", layer: str = "InfiniBand") -> str:
    return f"""\
CA '{device}'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.43.2026
	Node GUID: 0xa088c20300e30a10
	Port 1:
		State: {state}
		Physical state: {physical}
		Rate: {rate}
		Base lid: 77
		SM lid: 1
		Link layer: {layer}
"""


def _one(text: str) -> IbPort:
    (port,) = read_ports(text).ports
    return port


def _codes(text: str) -> list[tuple[str, str, Action]]:
    return [(found.subject, found.code, found.action) for found in infiniband.explain(text).findings]


def test_an_active_port_has_no_finding() -> None:
    text = _ibstat("mlx5_0", "Active", "LinkUp")
    port = _one(text)
    assert (port.name, port.state, port.physical, port.rate_gbit_s) == ("mlx5_0/1", "active", "linkup", 400.0)
    assert infiniband.explain(text).findings == ()


@pytest.mark.parametrize(
    ("state", "physical", "code", "action"),
    [
        ("Down", "Polling", "ib.down", Action.CHECK_LINK),
        ("Down", "LinkErrorRecovery", "ib.down", Action.CHECK_LINK),
        ("Down", "Disabled", "ib.disabled", Action.FIX_CONFIGURATION),
        ("Initializing", "LinkUp", "ib.waits_for_subnet_manager", Action.WAIT),
        ("Armed", "LinkUp", "ib.waits_for_subnet_manager", Action.WAIT),
    ],
)
def test_each_state_has_its_meaning(state: str, physical: str, code: str, action: Action) -> None:
    assert _codes(_ibstat("mlx5_3", state, physical, "10")) == [("link mlx5_3/1", code, action)]


def test_the_rate_of_a_port_without_a_link_is_not_shown() -> None:
    explained = infiniband.explain(_ibstat("mlx5_3", "Down", "Disabled", "10"))
    assert "rate" not in explained.subjects[-1].facts


def test_an_active_port_that_is_slower_than_its_peers_is_found() -> None:
    text = "".join(_ibstat(f"mlx5_{n}", "Active", "LinkUp", "200" if n == 2 else "400") for n in range(4))
    assert _codes(text) == [("link mlx5_2/1", "ib.rate_below_peers", Action.CHECK_LINK)]


def test_another_model_of_adapter_may_be_slower() -> None:
    text = "".join(_ibstat(f"mlx5_{n}", "Active", "LinkUp") for n in range(3))
    assert _codes(text + _ibstat("mlx5_9", "Active", "LinkUp", "200").replace("MT4129", "MT4123")) == []


def test_an_ethernet_port_without_a_cable_is_no_fault() -> None:
    (found,) = infiniband.explain(_ibstat("mlx5_1", "Down", "Disabled", "40", "Ethernet")).findings
    assert (found.code, found.severity) == ("ethernet.down", Severity.INFO)


def test_a_pasted_text_without_indentation_is_read_alike() -> None:
    text = _ibstat("mlx5_0", "Initializing", "LinkUp")
    assert _one("\n".join(line.strip() for line in text.splitlines())) == _one(text)


def test_ibstatus_devinfo_and_rdma_link_say_the_same() -> None:
    status = "Infiniband device 'mlx5_0' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
    status += "\trate:\t\t 400 Gb/sec (4X NDR)\n\tlink_layer:\t InfiniBand\n"
    devinfo = "hca_id:\tmlx5_0\n\tnode_guid:\ta088:c203:00e3:0a10\n\t\tport:\t1\n\t\t\tstate:\tPORT_ACTIVE (4)\n"
    devinfo += "\t\t\tphys_state:\tLINK_UP (5)\n\t\t\tlink_layer:\tInfiniBand\n"
    rdma = (
        "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 77 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP \n"
    )
    for text in (status, devinfo, rdma, rdma.replace("link mlx5_0/1", "0/1: link mlx5_0/1:")):
        port = _one(text)
        assert infiniband.recognises(text)
        assert (port.name, port.state, port.physical) == ("mlx5_0/1", "active", "linkup")
        assert port_findings(read_ports(text)) == ()


def test_a_roce_port_of_rdma_link_has_its_interface() -> None:
    port = _one("link mlx5_1/1 state DOWN physical_state DISABLED netdev ens3f1 \n")
    assert (port.state, port.physical, port.netdev, port.link_layer) == ("down", "disabled", "ens3f1", None)


def test_a_virtual_function_without_a_guid_is_configuration() -> None:
    text = "hca_id:\tmlx5_9\n\tnode_guid:\t0000:0000:0000:0000\n\t\tport:\t1\n\t\t\tstate:\tPORT_DOWN (1)\n"
    assert ("device mlx5_9", "ib.guid_unset", Action.FIX_CONFIGURATION) in _codes(text)
    assert read_ports(text).devices[0].node_guid is None


def test_a_tool_that_finds_nothing_is_a_finding() -> None:
    assert [code for _, code, _ in _codes("ibwarn: [7] x: No IB devices found\n")] == ["ib.no_devices"]


def test_a_cut_port_is_unknown() -> None:
    explained = infiniband.explain(_ibstat("mlx5_0", "Active", "LinkUp").split("\t\tState")[0])
    assert explained.findings == ()
    assert any("mlx5_0/1" in note for note in explained.unknown)


_LINKS = """\
CA: node7 mlx5_0:
      0xa088c20300e30a10     12    1[  ] ==( 4X       106.25 Gbps Active/  LinkUp)==>      33    5[  ] "leaf1" ( )
CA: node7 mlx5_1:
      0xa088c20300e30a11     13    1[  ] ==( 4X       106.25 Gbps Active/  LinkUp)==>      33    6[  ] "leaf1" ( )
CA: node8 mlx5_0:
      0xa088c20300e30a12     14    1[  ] ==( 2X       106.25 Gbps Active/  LinkUp)==>  33  7[  ] "leaf1" ( Could be 4X )
CA: node9 mlx5_0:
      0xa088c20300e30a13     15    1[  ] ==(                Down/ Polling)==>             [  ] "" ( )
"""


def test_iblinkinfo_finds_the_narrow_link() -> None:
    links = read_linkinfo(_LINKS)
    assert [(link.near, link.width, link.state, link.far) for link in links] == [
        ("node7 mlx5_0 port 1", "4X", "active", "leaf1"),
        ("node7 mlx5_1 port 1", "4X", "active", "leaf1"),
        ("node8 mlx5_0 port 1", "2X", "active", "leaf1"),
        ("node9 mlx5_0 port 1", None, "down", None),
    ]
    assert _codes(_LINKS) == [("link node8 mlx5_0 port 1", "ib.link_degraded", Action.CHECK_LINK)]


def test_perfquerys_counters_are_numbers_and_only_errors_count() -> None:
    text = "# Port counters: Lid 12 port 1 (CapMask: 0x5A00)\nPortSelect:......................1\n"
    text += "SymbolErrorCounter:..............450\nLinkDownedCounter:...............0\n"
    (port,) = read_counters(text)
    assert (port.port, port.counters["SymbolErrorCounter"]) == ("Lid 12 port 1", 450)
    assert [found.code for found in counter_findings(port)] == ["ib.symbol_errors"]
    assert infiniband.recognises(text)


_MLXLINK = {
    "Operational Info": {"State": "Active", "Physical state": "LinkUp", "Speed": "IB-NDR", "Width": "4x"},
    "Troubleshooting Info": {"Status Opcode": "0", "Recommendation": "No issue was observed"},
    "Physical Counters and BER Info": {
        "Effective Physical BER": "15E-255",
        "Raw Physical BER": "2E-07",
        "Raw Physical Errors Per Lane": ["3", "5"],
    },
}


def _mlxlink(**changes: str) -> str:
    pages = {page: {**fields} for page, fields in _MLXLINK.items()}
    for key, value in changes.items():
        for fields in pages.values():
            fields |= {key.replace("_", " "): value} if key.replace("_", " ") in fields else {}
    return "some log {line}\n" + json.dumps({"result": {"output": pages}, "status": {"code": 0}})


def test_mlxlinks_raw_errors_are_no_fault() -> None:
    assert infiniband.recognises(_mlxlink())
    module = read_mlxlink(_mlxlink())
    assert (module.get("Speed"), module.get("Raw Physical Errors Per Lane")) == ("IB-NDR", "3, 5")
    assert module_findings(module) == ()


def test_mlxlinks_json_tells_of_a_bad_link() -> None:
    assert [code for _, code, _ in _codes(_mlxlink(Effective_Physical_BER="3E-10"))] == ["link.bit_error_rate"]
    text = _mlxlink(State="Polling", Physical_state="ETH_AN_FSM_ENABLE", Recommendation="Cable is unplugged")
    (found,) = infiniband.explain(text).findings
    assert (found.code, found.severity, found.text) == ("link.down", Severity.ERROR, "Cable is unplugged")
    (off,) = infiniband.explain(_mlxlink(State="Disable", Physical_state="Disabled")).findings
    assert (off.code, off.action) == ("link.disabled", Action.FIX_CONFIGURATION)


def test_mlxlink_without_a_value_is_unknown() -> None:
    explained = infiniband.explain(
        "Operational Info\n----\nState                  : N/A\nSpeed                  : N/A\n"
    )
    assert explained.findings == ()
    assert any("state" in note for note in explained.unknown)


@given(st.text(), st.integers(0, 500))
def test_any_text_gives_an_answer(junk: str, place: int) -> None:
    texts = (_ibstat("mlx5_0", "Down", "Polling"), _LINKS, _mlxlink())
    for damaged in (
        junk,
        *(text[:place] + junk for text in texts),
        *(text[:place] + junk + text[place:] for text in texts),
    ):
        infiniband.recognises(damaged)
        assert isinstance(infiniband.explain(damaged), Explanation)


def test_other_texts_are_not_claimed() -> None:
    for text in ("", "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n", "2: eth0: <UP> mtu 9000 state UP"):
        assert not infiniband.recognises(text)


def _corpus(shared: Path, name: str) -> str:
    return (shared / "corpus" / "net" / name).read_text()


@pytest.mark.corpus
def test_a_real_port_that_waits_for_its_subnet_manager_is_not_drained(shared: Path) -> None:
    text = _corpus(shared, "ibstat_initializing.txt")
    assert _codes(text) == [("link mlx5_ib0/1", "ib.waits_for_subnet_manager", Action.WAIT)]
    assert Action.WAIT not in DRAINS
    assert "lid" not in infiniband.explain(text).subjects[-1].facts


@pytest.mark.corpus
def test_what_was_printed_before_a_panic_is_kept(shared: Path) -> None:
    reading = read_ports(_corpus(shared, "ibstat_partial_ibpanic.txt"))
    assert [(port.name, port.state, port.rate_gbit_s) for port in reading.ports] == [("mlx5_7/1", "active", 200.0)]
    assert reading.failed == ("mlx5_8",)
    (found,) = port_findings(reading)
    assert (found.subject, found.severity) == ("link mlx5_8", Severity.WARNING)


@pytest.mark.corpus
def test_a_disabled_port_is_no_slow_link(shared: Path) -> None:
    assert _codes(_corpus(shared, "ibstatus_down_10g_sdr.txt")) == [
        ("link mlx5_4/1", "ib.disabled", Action.FIX_CONFIGURATION)
    ]


@pytest.mark.corpus
def test_interfaces_without_an_address_say_nothing_about_the_links(shared: Path) -> None:
    text = _corpus(shared, "ibdev2netdev_h100_ib_down_is_normal.txt")
    explained = infiniband.explain(text)
    assert (len(read_ports(text).ports), explained.findings) == (12, ())
    layers = [port.link_layer for port in read_ports(text).ports]
    assert (layers.count("infiniband"), layers.count("ethernet")) == (8, 4)
    assert any("network interface" in note for note in explained.unknown)


@pytest.mark.corpus
def test_a_zero_guid_is_configuration_and_no_key(shared: Path) -> None:
    text = _corpus(shared, "ibv_devinfo_port_init_zero_guid.txt")
    codes = [code for _, code, _ in _codes(text)]
    assert codes == ["ib.guid_unset", "ib.waits_for_subnet_manager"]
    assert read_ports(text).devices[0].node_guid is None


@pytest.mark.corpus
def test_mlxlinks_text_is_read_as_its_json_is(shared: Path) -> None:
    module = read_mlxlink(_corpus(shared, "mlxlink_text_active.txt"))
    assert (module.get("State"), module.get("Speed"), module.get("Width")) == ("Active", "25GbE", "1x")
    assert module_findings(module) == ()


@pytest.mark.corpus
def test_ibdiagnets_warning_of_a_narrow_link_counts_beside_its_error(shared: Path) -> None:
    notes = read_diagnet(_corpus(shared, "ibdiagnet_fragment.txt"))
    assert [note.level for note in notes] == ["warning", "error"]
    found = infiniband.explain(_corpus(shared, "ibdiagnet_fragment.txt")).findings
    assert [item.code for item in found] == ["ib.link_width", "ib.symbol_errors"]
    assert {item.subject for item in found} == {"link gpu017/mlx5_3"}
