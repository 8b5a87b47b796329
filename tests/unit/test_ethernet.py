"""Ethernet interfaces and PCIe links: no link and a narrow link are told from what is normal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import Explanation, Severity
from fleet.readers import ethernet, lspci
from fleet.readers.ethernet import Interface, interface_findings, read_interfaces
from fleet.readers.lspci import read_lspci


def _ethtool(speed: str = "400000Mb/s", duplex: str = "Full", link: str = "yes") -> str:
    return f"""\
Settings for ens1f0np0:
	Supported ports: [ FIBRE ]
	Advertised link modes:  400000baseCR4/Full
	Speed: {speed}
	Duplex: {duplex}
	Auto-negotiation: on
	Link detected: {link}
"""


def _one(text: str) -> Interface:
    (interface,) = read_interfaces(text)
    return interface


def test_a_link_has_its_speed() -> None:
    interface = _one(_ethtool())
    assert (interface.name, interface.link, interface.speed_mbit_s) == ("ens1f0np0", True, 400000.0)
    assert interface_findings(interface) == ()


def test_an_unknown_speed_is_none() -> None:
    interface = _one(_ethtool("Unknown!", "Unknown! (255)", "no (No cable)"))
    assert (interface.speed_mbit_s, interface.duplex, interface.link) == (None, None, False)
    (found,) = interface_findings(interface)
    assert (found.code, found.severity) == ("ethernet.no_link", Severity.WARNING)


def test_half_duplex_is_a_finding() -> None:
    (found,) = interface_findings(_one(_ethtool("100Mb/s", "Half")))
    assert found.code == "ethernet.half_duplex"


def test_statistics_count_errors_and_not_traffic() -> None:
    text = "NIC statistics:\n     rx_packets: 123456\n     rx_crc_errors_phy: 7\n     rx_symbol_err_phy: 0\n"
    assert ethernet.recognises(text)
    (found,) = ethernet.explain(text).findings
    assert (found.code, found.evidence) == ("ethernet.errors", "rx_crc_errors_phy: 7")


_IP = """\
1: lo: <LOOPBACK> mtu 65536 qdisc noqueue state DOWN mode DEFAULT group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
2: eno1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN mode DEFAULT group default qlen 1000
    link/ether aa:bb:cc:00:00:01 brd ff:ff:ff:ff:ff:ff
    RX:  bytes packets errors dropped  missed   mcast
             0       0      0       0       0       0
3: ens1f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    RX:  bytes packets errors dropped  missed   mcast
    1234567890 9999999     12       0       0       0
4: ens1f1np1: <BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN mode DEFAULT group default qlen 1000
"""


def test_an_interface_that_is_switched_off_has_no_fault() -> None:
    found = {one.name: one for one in read_interfaces(_IP)}
    assert (found["eno1"].admin_up, found["eno1"].link) == (True, False)
    assert (found["ens1f0np0"].mtu, found["ens1f0np0"].counters["rx errors"]) == (9000, 12)
    codes = [(item.subject, item.code) for item in ethernet.explain(_IP).findings]
    assert codes == [("link eno1", "ethernet.no_link"), ("link ens1f0np0", "ethernet.errors")]


def test_the_json_of_ip_says_the_same() -> None:
    text = json.dumps(
        [
            {"ifname": "eno1", "flags": ["NO-CARRIER", "UP"], "mtu": 1500, "operstate": "DOWN"},
            {"ifname": "eth1", "flags": ["UP", "LOWER_UP"], "mtu": 9000, "stats64": {"rx": {"errors": 3}}},
            {"ifname": "odd"},
        ]
    )
    first, second, third = read_interfaces(text)
    assert (first.link, first.admin_up, second.counters) == (False, True, {"rx errors": 3})
    assert (third.link, third.admin_up) == (None, None)
    assert [item.subject for item in ethernet.explain(text).findings] == ["link eno1", "link eth1"]


@pytest.mark.parametrize(
    "text",
    [
        "Interface:    eth0, via: LLDP, RID: 1\n    SysName:      leaf1\n    PortID:       ifname swp3\n",
        "lldp.eth0.chassis.name=leaf1\nlldp.eth0.port.ifname=ifname swp3\n",
    ],
)
def test_the_switch_port_of_an_interface_is_known_by_lldp(text: str) -> None:
    assert _one(text).neighbour == "leaf1 ifname swp3"


@given(st.text(), st.integers(0, 900))
def test_any_text_gives_an_answer(junk: str, place: int) -> None:
    for text in (_ethtool(), _IP, _GPU):
        for damaged in (junk, text[:place] + junk, text[:place] + junk + text[place:]):
            for reader in (ethernet, lspci):
                reader.recognises(damaged)
                assert isinstance(reader.explain(damaged), Explanation)


def _device(head: str, runs: str, can: str = "Speed 32GT/s, Width x16") -> str:
    return (
        f"{head}\n\tCapabilities: [60] Express (v2) Endpoint\n\t\tLnkCap:\tPort #0, {can}, ASPM\n\t\tLnkSta:\t{runs}\n"
    )


_GPU = _device("1b:00.0 3D controller: NVIDIA Corporation GH100 (rev a1)", "Speed 32GT/s (ok), Width x8 (downgraded)")


def test_a_narrow_gpu_is_an_error() -> None:
    (found,) = lspci.explain(_GPU).findings
    assert (found.subject, found.code, found.severity) == ("gpu 1b:00.0", "pcie.width_degraded", Severity.ERROR)


def test_a_new_lspci_without_a_mark_is_compared_with_what_the_device_can() -> None:
    text = _device("0019:01:00.0 3D controller: NVIDIA Corporation GB200", "Speed 32GT/s, Width x4")
    (link,) = read_lspci(text)
    assert (link.width_downgraded, link.speed_downgraded) == (True, False)
    assert lspci.explain(text).findings[0].subject == "gpu 0019:01:00.0"


def test_an_idle_gpu_with_a_lower_speed_is_only_noted() -> None:
    text = _device("1b:00.0 3D controller: NVIDIA Corporation GH100", "Speed 2.5GT/s (downgraded), Width x16 (ok)")
    assert [(found.code, found.severity) for found in lspci.explain(text).findings] == [
        ("pcie.speed_reduced", Severity.INFO)
    ]


def test_a_narrow_nic_warns_and_a_management_nic_does_not() -> None:
    runs = "Speed 32GT/s (ok), Width x4 (downgraded)"
    nic = _device("18:00.0 Infiniband controller: Mellanox Technologies MT2910", runs)
    (found,) = lspci.explain(nic).findings
    assert (found.subject, found.severity) == ("pcie 18:00.0", Severity.WARNING)
    slow = "Speed 5GT/s (ok), Width x1 (downgraded)"
    small = _device("03:00.0 Ethernet controller: Intel Corporation I210", slow, "Speed 5GT/s, Width x2")
    assert lspci.explain(small).findings == ()


@pytest.mark.corpus
def test_downgraded_ports_that_belong_to_no_gpu_are_no_finding(shared: Path) -> None:
    text = (shared / "corpus/net/lspci_vvv_downgraded_non_gpu.txt").read_text()
    assert len(read_lspci(text)) == 3
    assert lspci.explain(text).findings == ()


@pytest.mark.corpus
def test_both_downgrades_of_one_line_are_read(shared: Path) -> None:
    text = (shared / "corpus/net/lspci_both_downgraded.txt").read_text()
    (link,) = read_lspci(text)
    assert (link.speed_downgraded, link.width_downgraded, link.width) == (True, True, 1)
    assert lspci.explain(text).findings[0].code == "pcie.width_degraded"
