"""What the InfiniBand tools say, and what of it is a fault.

A port that is up but not active waits for the subnet manager; the rate of a port without a link is a default; the
state of its network interface says nothing about the link; a disabled port is configuration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.readers.infiniband_links import (
    FabricLink,
    ModuleLink,
    PortCounters,
    is_mlxlink,
    read_counters,
    read_diagnet,
    read_linkinfo,
    read_mlxlink,
)
from fleet.readers.infiniband_ports import NO_LID, IbDevice, IbPort, IbReading, active_ports, read_ports
from fleet.readers.plain_text import LineStart, evidence, named, number

KIND = "infiniband"

_ANY_CASE = re.IGNORECASE
# A sign of these tools, each behind a word, in lower case, that it cannot be without.
_SIGNS: tuple[tuple[str, LineStart | re.Pattern[str]], ...] = (
    ("ca '", LineStart(r"[ \t]*CA '[^']+'", _ANY_CASE)),
    ("ca:", LineStart(r"[ \t]*CA:\s+'[^']+'", _ANY_CASE)),
    ("ca\t", LineStart(r"[ \t]*CA\s+'[^']+'", _ANY_CASE)),
    ("ca  ", LineStart(r"[ \t]*CA\s+'[^']+'", _ANY_CASE)),
    ("hca_id:", LineStart(r"[ \t]*hca_id:", _ANY_CASE)),
    ("infiniband device '", re.compile(r"Infiniband device '", _ANY_CASE)),
    ("==>", re.compile(r"\bport +\d+ +==> +\S+", _ANY_CASE)),
    ("state ", LineStart(r"[ \t]*(?:\d+/\d+: *)?link [\w.-]+/\d+:? .*state ", _ANY_CASE)),
    ("==(", re.compile(r"\]\s*==\(")),
    ("counters:", re.compile(r"#\s*Port (?:extended )?counters:", _ANY_CASE)),
    ("-e-", LineStart(r"[ \t]*-E-\s.*(?:lid|port|width|speed|counter)", _ANY_CASE)),
    ("-w-", LineStart(r"[ \t]*-W-\s.*(?:lid|port|width|speed|counter)", _ANY_CASE)),
    ("ibpanic:", re.compile(r"\bibpanic:", _ANY_CASE)),
    ("ibwarn:", re.compile(r"\bibwarn:", _ANY_CASE)),
    ("-i-", LineStart(r"[ \t]*-I-\s+.*(?:Stage\s+Warnings\s+Errors|Link Width)", _ANY_CASE)),
)


def recognises(text: str) -> bool:
    """Is it the output of one of the InfiniBand tools?"""
    lower = text.lower()
    return any(word in lower and sign.search(text) is not None for word, sign in _SIGNS) or is_mlxlink(text)


def port_findings(reading: IbReading) -> tuple[Finding, ...]:
    """What is wrong with ports and devices, in the text's order."""
    found = [item for device in reading.devices for item in _of_device(device)]
    for model in dict.fromkeys(device.model for device in reading.devices):
        found += _slow([port for device in reading.devices if device.model == model for port in device.ports])
    return (*found, *(_complaint(error) for error in reading.errors))


def _slow(ports: list[IbPort]) -> Iterable[Finding]:
    """Ports that are slower than most of the same model of adapter."""
    alive = [(port, port.rate_gbit_s) for port in active_ports(ports) if _is_ib(port) and port.rate_gbit_s]
    usual, count = Counter(rate for _, rate in alive).most_common(1)[0] if alive else (0.0, 0)
    for port, rate in alive:
        if rate < usual and count > len(alive) / 2:
            text = f"Active at {rate:g} Gbit/s; most ports of this kind have {usual:g}."
            shown = evidence(f"Rate: {rate:g}")
            yield _finding(port, "ib.rate_below_peers", Severity.WARNING, Action.CHECK_LINK, shown, text)


def _complaint(error: str) -> Finding:
    device = re.search(r"device '([^']+)'", error)
    if "No IB devices" in error:
        return Finding("node", "ib.no_devices", Severity.WARNING, Action.INVESTIGATE, evidence(error), "No device.")
    text = "The tool gave up here: what it printed before holds, the rest is not known."
    if device:
        text += " Ask ibstatus. Azure's accelerated networking (mlx5_an0) and Ethernet bonds do this harmlessly."
    subject = f"link {device[1]}" if device else "node"
    return Finding(subject, "ib.tool_failed", Severity.WARNING, Action.INVESTIGATE, evidence(error), text)


def _is_ib(port: IbPort) -> bool:
    return port.link_layer in (None, "infiniband")


def _of_device(device: IbDevice) -> Iterable[Finding]:
    idle = device.ports and all(port.state != "active" for port in device.ports)
    if device.guid_is_zero and idle:
        yield Finding(
            f"device {device.name}",
            "ib.guid_unset",
            Severity.WARNING,
            Action.FIX_CONFIGURATION,
            "node_guid all zeros",
            "A virtual function without a GUID, or one that the subnet manager has not set up: no hardware fault.",
        )
    for port in device.ports:
        yield from _of_port(port)


def _of_port(port: IbPort) -> Iterable[Finding]:
    shown = evidence(f"State: {port.state}", f"Physical state: {port.physical}" if port.physical else "")
    if not _is_ib(port):
        if port.state == "down":
            text = "An Ethernet port without a link; second ports often have no cable."
            yield _finding(port, "ethernet.down", Severity.INFO, Action.NONE, shown, text)
    elif port.state in ("initializing", "armed"):
        if port.physical in (None, "linkup"):
            text = "The link is up and waits for the subnet manager: look again before anything is drained."
            yield _finding(port, "ib.waits_for_subnet_manager", Severity.WARNING, Action.WAIT, shown, text)
        else:
            text = "Neither up nor waiting: look again."
            yield _finding(port, "ib.not_ready", Severity.WARNING, Action.WAIT, shown, text)
    elif port.physical in ("disabled", "sleep"):
        text = "The port is switched off; the rate that is printed with it is a default, not a slow link."
        yield _finding(port, "ib.disabled", Severity.WARNING, Action.FIX_CONFIGURATION, shown, text)
    elif port.physical not in (None, "linkup"):
        text = "There is no link: cable, transceiver, or the port at the other end."
        yield _finding(port, "ib.down", Severity.ERROR, Action.CHECK_LINK, shown, text)
    elif port.state == "down":
        text = "The port is down: cable, transceiver, or the port at the other end."
        yield _finding(port, "ib.down", Severity.ERROR, Action.CHECK_LINK, shown, text)


def _finding(port: IbPort, code: str, severity: Severity, action: Action, shown: str, text: str) -> Finding:
    return Finding(f"link {port.name}", code, severity, action, shown, text)


def explain(text: str) -> Explanation:
    """What of the tools there is in the text, for a person."""
    reading, module, fabric = read_ports(text), read_mlxlink(text), read_linkinfo(text)
    counters, notes = read_counters(text), read_diagnet(text)
    usual = Counter((link.width, link.speed) for link in fabric if link.state == "active").most_common(1)
    findings = [
        *port_findings(reading),
        *module_findings(module),
        *(item for link in fabric for item in _of_link(link, usual[0][0] if usual else None)),
        *(item for port in counters for item in counter_findings(port)),
    ]
    for note in notes:
        severity = Severity.ERROR if note.level == "error" else Severity.WARNING
        code = (
            "ib.link_width" if "width" in note.text.casefold() else "ib.symbol_errors" if "symbol" in note.text else ""
        )
        place = re.search(r"\(?([\w-]+/mlx\w+|lid=\d+)", note.text)
        subject = f"link {place[1]}" if place else "fabric"
        findings.append(
            Finding(
                subject, code or f"ib.{note.level}", severity, Action.CHECK_LINK, evidence(note.text), "By ibdiagnet."
            )
        )
    subjects = [Subject(f"device {device.name}", _device_facts(device)) for device in reading.devices]
    subjects += [Subject(f"link {port.name}", _port_facts(port)) for port in reading.ports]
    if module.fields:
        shown = {
            key: value for key in ("State", "Physical state", "Speed", "Width", "FEC") if (value := module.get(key))
        }
        subjects.append(Subject("link", shown))
    return Explanation(KIND, tuple(subjects), tuple(dict.fromkeys(findings)), tuple(_unknown(reading, module)))


def _device_facts(device: IbDevice) -> dict[str, str]:
    pairs = (("model", device.model), ("firmware", device.firmware), ("node guid", device.node_guid))
    return {key: value for key, value in pairs if value}


def _port_facts(port: IbPort) -> dict[str, str]:
    rate = f"{port.rate_gbit_s:g} Gbit/s" if port.rate_gbit_s is not None and port.state == "active" else None
    lid = str(port.lid) if port.lid is not None and port.lid not in NO_LID else None
    pairs = (("state", port.state), ("physical", port.physical), ("rate", rate), ("layer", port.link_layer))
    more = (("lid", lid), ("interface", port.netdev))
    return {key: value for key, value in (*pairs, *more) if value}


def _unknown(reading: IbReading, module: ModuleLink) -> Iterable[str]:
    for name in reading.failed:
        yield f"{name} and any device after it: the tool ended there."
    for device in reading.devices:
        if device.guid_is_zero:
            yield f"{device.name}: its GUID is all zeros and no key for an inventory."
    mute = [port.name for port in reading.ports if port.state is None]
    if mute and all(port.netdev for port in reading.ports):
        yield "The links' state: (Up) and (Down) are of the network interface, which is down without an address."
    elif mute:
        yield f"{named(mute)}: its state; the text is cut or has none."
    if any(port.lid in NO_LID for port in reading.ports):
        yield "The address (lid) of ports that the subnet manager has not given one."
    if module.fields and not module.get("State"):
        yield "The link's state: mlxlink printed none."


# Counters of a port that should not grow, with what they mean. Source: InfiniBand specification, PortCounters.
_BAD_COUNTERS = {
    "SymbolErrorCounter": "ib.symbol_errors",
    "LinkErrorRecoveryCounter": "ib.link_recovered",
    "LinkDownedCounter": "ib.link_went_down",
    "PortRcvErrors": "ib.receive_errors",
    "LocalLinkIntegrityErrors": "ib.link_integrity",
    "ExcessiveBufferOverrunErrors": "ib.buffer_overrun",
}


def counter_findings(port: PortCounters) -> tuple[Finding, ...]:
    """Counters above 0. They count since they were cleared, so it is their growth that decides."""
    found = []
    for name, code in _BAD_COUNTERS.items():
        value = port.counters.get(name, 0)
        full = value in (0xFF, 0xFFFF) and name != "PortRcvErrors"
        text = "Since the counters were cleared; its growth decides." + (" The counter is full." if full else "")
        if value:
            shown = evidence(f"{name}: {value}")
            found.append(Finding(f"link {port.port}", code, Severity.WARNING, Action.CHECK_LINK, shown, text))
    return tuple(found)


_BER_LIMIT = 1e-12  # source: InfiniBand specification, volume 2, and IEEE 802.3: the rate that a link must keep


def module_findings(module: ModuleLink) -> tuple[Finding, ...]:
    """What mlxlink says is wrong. Raw errors and a raw bit error rate are before correction and never a fault."""
    found = []
    state, physical = module.get("State"), module.get("Physical state")
    if state and state.casefold() not in ("active", "linkup", "up"):
        off = bool(physical and "disable" in physical.casefold())
        action = Action.FIX_CONFIGURATION if off else Action.CHECK_LINK
        shown = evidence(f"State: {state}", f"Physical state: {physical}" if physical else "")
        text = module.get("Recommendation") or "There is no link."
        code = "link.disabled" if off else "link.down"
        found.append(Finding("link", code, Severity.WARNING if off else Severity.ERROR, action, shown, evidence(text)))
    opcode = number(module.get("Status Opcode"))
    if opcode and not found:
        shown = evidence(f"Status Opcode: {opcode:g}", module.get("Recommendation") or "")
        found.append(Finding("link", "link.trouble", Severity.WARNING, Action.CHECK_LINK, shown, "mlxlink's advice."))
    rate = number(module.get("Effective Physical BER"))
    if rate is not None and _BER_LIMIT < rate <= 1:
        shown = evidence(f"Effective Physical BER: {rate:g}")
        text = "Above 1e-12: errors are left after correction."
        found.append(Finding("link", "link.bit_error_rate", Severity.WARNING, Action.CHECK_LINK, shown, text))
    return tuple(found)


def _of_link(link: FabricLink, usual: tuple[str | None, str | None] | None) -> Iterable[Finding]:
    shown = evidence(link.near, f"{link.width} {link.speed} {link.state}/{link.physical}", link.hint or "")
    if link.state == "active" and ((usual and (link.width, link.speed) != usual) or link.hint):
        text = "Slower or narrower than the fabric's other links, or than its two ends can."
        yield Finding(f"link {link.near}", "ib.link_degraded", Severity.WARNING, Action.CHECK_LINK, shown, text)
    elif link.state in ("initialize", "initializing", "armed"):
        text = "Waits for the subnet manager."
        yield Finding(f"link {link.near}", "ib.waits_for_subnet_manager", Severity.WARNING, Action.WAIT, shown, text)
