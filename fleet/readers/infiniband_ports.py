"""Ports as ibstat, ibstatus, ibv_devinfo, `rdma link` and ibdev2netdev print them: one shape for all five.

Source of the layouts: linux-rdma/rdma-core (infiniband-diags, libibverbs/examples), iproute2's rdma, and MLNX_OFED's
ibdev2netdev. A text pasted without its indentation is read alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from fleet.readers.plain_text import number, plain_lines, whole

NO_LID = (0, 0xFFFF)


@dataclass(frozen=True, slots=True)
class IbPort:
    """One port of one device; every value None where it was not printed.

    `state` and `physical` are one spelling for all tools ("active", "initializing", "armed", "down"; "linkup",
    "polling", "disabled" …). `rate_gbit_s` is Gbit/s; of a port without a link it is a default that means nothing.
    `netdev_up` is ibdev2netdev's word about the network interface, which says nothing about the InfiniBand link.
    """

    device: str
    port: int | None = None
    state: str | None = None
    physical: str | None = None
    rate_gbit_s: float | None = None
    link_layer: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    port_guid: str | None = None
    netdev: str | None = None
    netdev_up: bool | None = None

    @property
    def name(self) -> str:
        return self.device if self.port is None else f"{self.device}/{self.port}"


@dataclass(frozen=True, slots=True)
class IbDevice:
    """A device with its ports. `node_guid` is None where it is all zeros: that is no key of an inventory."""

    name: str
    model: str | None = None
    firmware: str | None = None
    node_guid: str | None = None
    guid_is_zero: bool = False
    ports: tuple[IbPort, ...] = ()


@dataclass(frozen=True, slots=True)
class IbReading:
    """All devices of a text, and what the tool complained of; `failed` are devices that it could not read."""

    devices: tuple[IbDevice, ...] = ()
    failed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def ports(self) -> tuple[IbPort, ...]:
        return tuple(port for device in self.devices for port in device.ports)


_DEVICE = (
    re.compile(r"^\s*CA:?\s+'([^']+)'"),
    re.compile(r"^\s*hca_id:\s*(\S+)"),
)
_STATUS = re.compile(r"Infiniband device '([^']+)' port (\d+) status", re.IGNORECASE)
_PORT = re.compile(r"^\s*(?:Port (\d+):|port:\s*(\d+))\s*$", re.IGNORECASE)
_PAIR = re.compile(r"^\s*([A-Za-z][\w ]*?)\s*:\s*(.*?)\s*$")
_RDMA = re.compile(r"^\s*(?:\d+/\d+:\s*)?link ([\w.-]+)/(\d+):? (.*\bstate .*)$")
_NETDEV = re.compile(r"^\s*(\S+) port (\d+) ==> (\S+) \((\w+)\)")
_ERROR = re.compile(r"\b(ibpanic|ibwarn|iberror|ibv_\w+ failed|Failed to (?:open|get|query)|No IB devices found)\b.*")
_FAILED = re.compile(r"(?:IB device|device) '([^']+)'")


@dataclass(slots=True)
class _Device:
    facts: dict[str, str] = field(default_factory=dict)
    ports: dict[int | None, IbPort] = field(default_factory=dict)


def read_ports(text: str) -> IbReading:
    """Every device and port. What was printed before a tool's panic is kept; the devices after it are not known."""
    devices: dict[str, _Device] = {}
    errors: list[str] = []
    current: tuple[str, int | None] | None = None
    for line in plain_lines(text):
        error, status, port = _ERROR.search(line), _STATUS.search(line), _PORT.match(line)
        device = next((found for pattern in _DEVICE if (found := pattern.match(line))), None)
        if error:
            errors.append(line.strip())
        elif device:
            devices.setdefault(device[1], _Device())
            current = (device[1], None)
        elif status:
            current = (status[1], whole(status[2]))
            _port(devices, current)
        elif port and current:
            current = (current[0], whole(port[1] or port[2]))
            _port(devices, current)
        elif not _one_line(devices, line) and current:
            pair = _PAIR.match(line)
            if pair:
                _take(devices, current, pair[1].casefold().replace("_", " "), pair[2])
    return IbReading(
        devices=tuple(_device(name, device) for name, device in devices.items()),
        failed=tuple(dict.fromkeys(name for error in errors for name in _FAILED.findall(error))),
        errors=tuple(errors),
    )


def _port(devices: dict[str, _Device], at: tuple[str, int | None]) -> IbPort:
    return devices.setdefault(at[0], _Device()).ports.setdefault(at[1], IbPort(at[0], at[1]))


def _one_line(devices: dict[str, _Device], line: str) -> bool:
    """A port that is one line: of `rdma link` or ibdev2netdev."""
    rdma, netdev = _RDMA.match(" ".join(line.split())), _NETDEV.match(" ".join(line.split()))
    if rdma:
        words = rdma[3].split()
        facts = dict(pairwise(words))
        at = (rdma[1], whole(rdma[2]))
        devices.setdefault(at[0], _Device()).ports[at[1]] = replace(
            _port(devices, at),
            state=_state(facts.get("state")),
            physical=_physical(facts.get("physical_state")),
            netdev=facts.get("netdev"),
            lid=whole(facts.get("lid")),
            sm_lid=whole(facts.get("sm_lid")),
            link_layer="infiniband" if "subnet_prefix" in facts or "lid" in facts else None,
        )
    elif netdev:
        at = (netdev[1], whole(netdev[2]))
        old = _port(devices, at)
        up = {"up": True, "down": False}.get(netdev[4].casefold())
        devices[at[0]].ports[at[1]] = replace(old, netdev=netdev[3], netdev_up=up, link_layer=_layer_in(line))
    return bool(rdma or netdev)


def _layer_in(line: str) -> str | None:
    found = re.search(r"infiniband|ethernet", line.partition("#")[2], re.IGNORECASE)
    return found[0].casefold() if found else None


def _take(devices: dict[str, _Device], at: tuple[str, int | None], key: str, value: str) -> None:
    if at[1] is None:
        devices[at[0]].facts[key] = value
        return
    old = _port(devices, at)
    new = old
    if key == "state":
        new = replace(old, state=_state(value))
    elif key in ("physical state", "phys state"):
        new = replace(old, physical=_physical(value))
    elif key == "rate":
        new = replace(old, rate_gbit_s=number(value))
    elif key == "active speed" and "gb" in value.casefold():
        lanes = {"1x": 1, "2x": 2, "4x": 4, "8x": 8, "12x": 12}.get(devices[at[0]].facts.get("active width", ""))
        speed = number(value)
        new = replace(old, rate_gbit_s=speed * lanes if speed is not None and lanes else None)
    elif key == "active width":
        devices[at[0]].facts[key] = value.split(" ")[0].casefold()
    elif key in ("base lid", "port lid", "lid"):
        new = replace(old, lid=whole(value))
    elif key in ("sm lid", "port sm lid"):
        new = replace(old, sm_lid=whole(value))
    elif key == "link layer":
        new = replace(old, link_layer=value.casefold() or None)
    elif key == "port guid":
        new = replace(old, port_guid=value)
    devices[at[0]].ports[at[1]] = new


def _state(value: str | None) -> str | None:
    """ "4: ACTIVE", "PORT_ACTIVE (4)", "Active" → "active"; INIT and Initializing are one."""
    word = re.search(r"[A-Za-z_]{3,}", (value or "").replace("PORT_", ""))
    if word is None:
        return None
    plain = word[0].casefold()
    return {"init": "initializing", "initialize": "initializing", "act": "active"}.get(plain, plain)


def _physical(value: str | None) -> str | None:
    """ "5: LinkUp", "LINK_UP (5)", "LinkUp" → "linkup"."""
    word = re.search(r"[A-Za-z_]{3,}", value or "")
    return word[0].casefold().replace("_", "") if word else None


def _device(name: str, device: _Device) -> IbDevice:
    guid = device.facts.get("node guid")
    zero = guid is not None and not guid.casefold().removeprefix("0x").replace(":", "").strip("0")
    return IbDevice(
        name=name,
        model=device.facts.get("ca type") or device.facts.get("board id"),
        firmware=device.facts.get("firmware version") or device.facts.get("fw ver"),
        node_guid=None if zero else guid,
        guid_is_zero=zero,
        ports=tuple(port for number_, port in device.ports.items() if number_ is not None),
    )


def active_ports(ports: Iterable[IbPort]) -> tuple[IbPort, ...]:
    """The ports that carry traffic: logically active."""
    return tuple(port for port in ports if port.state == "active")
