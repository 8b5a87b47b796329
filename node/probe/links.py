"""PCIe links, network interfaces and InfiniBand ports, all from /sys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .files import Root, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workers import Pair

_DEVICES = "/sys/bus/pci/devices"
_NVIDIA = 0x10DE
_AER = ("correctable", "nonfatal", "fatal")
_LINK = ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width")
_NET_COUNTERS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors")
_IB_COUNTERS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)


def read_pci(root: Root) -> Iterator[Pair]:
    """Every NVIDIA function, network card and NVMe drive: {"devices": […]}, addresses with their domain."""
    addresses = root.names(_DEVICES)
    if not addresses:
        yield "devices", unknown("no PCI devices in /sys")
        return
    yield "devices", [found for found in (_pci(root, address) for address in addresses) if found]


def _pci(root: Root, address: str) -> dict[str, object] | None:
    path = f"{_DEVICES}/{address}"
    vendor, kind = root.number(f"{path}/vendor"), root.number(f"{path}/class")
    if kind is None or not (vendor == _NVIDIA or kind >> 16 == 0x02 or kind >> 8 == 0x0108):
        return None
    found: dict[str, object] = {
        "address": address,
        "vendor": root.text(f"{path}/vendor"),
        "device": root.text(f"{path}/device"),
        "subsystem": root.text(f"{path}/subsystem_device"),
        "class": f"0x{kind:06x}",
        "revision": root.text(f"{path}/revision"),
        "driver": root.link(f"{path}/driver"),
        "virtual_function": root.exists(f"{path}/physfn"),
        "numa_node": root.number(f"{path}/numa_node"),
        **_link(root, path),
        **{f"aer_{kind_}": _aer_total(root, f"{path}/aer_dev_{kind_}") for kind_ in _AER},
    }
    found["slot"] = _link(root, f"{path}/..") if root.exists(f"{path}/../max_link_speed") else None
    return found


def _link(root: Root, path: str) -> dict[str, object]:
    """Speed in GT/s and width in lanes, now and at most; None where the kernel says Unknown or 0."""
    link: dict[str, object] = {}
    for name in _LINK:
        words = (root.text(f"{path}/{name}") or "").split()
        try:
            number = float(words[0]) if words else 0.0
        except ValueError:
            number = 0.0
        if name.endswith("speed"):
            link[f"{name}_gts"] = number or None
        else:
            link[name] = int(number) if 0 < number < 255 else None
    return link


def _aer_total(root: Root, path: str) -> int | None:
    for line in (root.text(path) or "").splitlines():
        name, _, count = line.rpartition(" ")
        if name.startswith("TOTAL_ERR") and count.isdigit():
            return int(count)
    return None


def read_network(root: Root) -> Iterator[Pair]:
    """Interfaces with hardware behind them, bonds, and InfiniBand devices with their ports."""
    folder = "/sys/class/net"
    names = [
        n for n in root.names(folder) if root.exists(f"{folder}/{n}/device") or root.exists(f"{folder}/{n}/bonding")
    ]
    permanent = _permanent_of_bonds(root)
    yield "interfaces", [_interface(root, name, permanent.get(name)) for name in names]
    yield "infiniband", [_hca(root, name) for name in root.names("/sys/class/infiniband")]


def _permanent_of_bonds(root: Root) -> dict[str, str]:
    """The members of bonds with the address that each had before the bond gave it another."""
    found: dict[str, str] = {}
    for bond in root.names("/proc/net/bonding"):
        member = ""
        for line in (root.text(f"/proc/net/bonding/{bond}") or "").splitlines():
            name, _, value = line.partition(": ")
            if name.strip() == "Slave Interface":
                member = value.strip()
            elif name.strip() == "Permanent HW addr" and member:
                found[member] = value.strip()
    return found


def _interface(root: Root, name: str, permanent: str | None) -> dict[str, object]:
    path = f"/sys/class/net/{name}"
    speed = root.number(f"{path}/speed")
    made_with = root.number(f"{path}/addr_assign_type") == 0  # NET_ADDR_PERM
    return {
        "name": name,
        "state": root.text(f"{path}/operstate"),
        "carrier": root.number(f"{path}/carrier"),
        "speed_mbps": speed if speed is not None and speed > 0 else None,
        "duplex": root.text(f"{path}/duplex"),
        "mtu": root.number(f"{path}/mtu"),
        "mac": root.text(f"{path}/address"),
        "mac_permanent": permanent or (root.text(f"{path}/address") if made_with else None),
        "pci": root.pci(f"{path}/device"),
        "driver": root.link(f"{path}/device/driver"),
        "carrier_changes": root.number(f"{path}/carrier_changes"),
        "bond_slaves": (root.text(f"{path}/bonding/slaves") or "").split() or None,
        **{counter: root.number(f"{path}/statistics/{counter}") for counter in _NET_COUNTERS},
    }


def _hca(root: Root, name: str) -> dict[str, object]:
    path = f"/sys/class/infiniband/{name}"
    return {
        "name": name,
        "firmware": root.text(f"{path}/fw_ver"),
        "board": root.text(f"{path}/board_id"),
        "model": root.text(f"{path}/hca_type"),
        "node_guid": root.text(f"{path}/node_guid"),
        "pci": root.pci(f"{path}/device"),
        "interfaces": root.names(f"{path}/device/net"),
        "ports": [_port(root, f"{path}/ports/{port}", port) for port in root.names(f"{path}/ports")],
    }


def _port(root: Root, path: str, port: str) -> dict[str, object]:
    counters = {counter: root.number(f"{path}/counters/{counter}") for counter in _IB_COUNTERS}
    return {
        "port": int(port) if port.isdigit() else None,
        "state": _word(root.text(f"{path}/state")),
        "physical_state": _word(root.text(f"{path}/phys_state")),
        "rate": root.text(f"{path}/rate"),
        "link_layer": root.text(f"{path}/link_layer"),
        "lid": root.number(f"{path}/lid"),
        "sm_lid": root.number(f"{path}/sm_lid"),
        "counters": {counter: count for counter, count in counters.items() if count is not None},
    }


def _word(text: str | None) -> str | None:
    """`4: ACTIVE` is ACTIVE."""
    return None if text is None else text.rpartition(":")[2].strip()
