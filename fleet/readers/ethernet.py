"""Ethernet interfaces as ethtool (settings and `-S`), `ip -s link` (text and JSON) and lldpctl print them.

Source of the layouts: the ethtool and iproute2 sources, and lldpd's client.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.json_values import JsonObject, number_at, object_at, text_at, texts_at
from fleet.readers.json_in_text import find_json
from fleet.readers.plain_text import LineStart, evidence, number, plain_lines, whole

KIND = "ethernet"


@dataclass(slots=True)
class _Found:
    facts: dict[str, str] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface; every value None where the text has none.

    `speed_mbit_s` is Mbit/s; `link` whether there is a carrier; `admin_up` whether it is switched on; `counters` by the
    tool's name, for `ip` "rx errors" and the like; `neighbour` is the switch and port that LLDP tells of.
    """

    name: str
    link: bool | None = None
    admin_up: bool | None = None
    speed_mbit_s: float | None = None
    duplex: str | None = None
    mtu: int | None = None
    state: str | None = None
    neighbour: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


_SETTINGS = re.compile(r"Settings for ([^\s:]+):")
_IP = re.compile(r"^\s*\d+: ([\w.@-]+?)(?:@[\w.-]+)?: <([A-Z0-9_,-]*)>(.*)$")
_LLDP = re.compile(r"^\s*Interface:\s+([\w.-]+), via: LLDP")
_SIGNS: tuple[tuple[str, LineStart | re.Pattern[str]], ...] = (
    ("Settings for ", LineStart(r"[ \t]*Settings for \S+:")),
    ("NIC statistics:", LineStart(r"[ \t]*NIC statistics:")),
    ("Link detected: ", LineStart(r"[ \t]*Link detected: ")),
    ("mtu ", LineStart(r"[ \t]*\d+: [\w.@-]+: <[A-Z0-9_,-]*> .*mtu \d+")),
    ("via: LLDP", LineStart(r"[ \t]*Interface:\s+\S+ via: LLDP")),
    ("lldp.", LineStart(r"lldp\.\w+")),
    ('"ifname"', re.compile(r'"ifname"\s*:')),
)


def recognises(text: str) -> bool:
    """Is it the output of ethtool, ip or lldpctl?"""
    return any(word in text and sign.search(text) is not None for word, sign in _SIGNS)


def read_interfaces(text: str) -> tuple[Interface, ...]:
    """Every interface, in order; the same one from several commands is one. Nameless settings are of "interface"."""
    found = find_json(text, lambda value: isinstance(value, list) and any(text_at(item, "ifname") for item in value))
    if found is not None and isinstance(found.value, list):
        return tuple(_of_json(item) for item in found.value if isinstance(item, Mapping))
    interfaces: dict[str, _Found] = {}
    current, heads = "interface", ""
    for line in plain_lines(text):
        settings, ip, lldp = _SETTINGS.search(line), _IP.match(line), _LLDP.match(line)
        keyed = re.match(r"^lldp\.([\w-]+)\.(?:\d+\.)?(chassis\.name|port\.ifname|port\.descr)=(.*)$", line)
        if settings or lldp:
            current = (settings or lldp or [""])[1]
        elif keyed:
            interfaces.setdefault(keyed[1], _Found()).facts.setdefault(keyed[2], keyed[3])
        elif ip:
            current = ip[1]
            interfaces.setdefault(current, _Found()).facts |= _of_ip(ip[2], ip[3])
        elif re.match(r"\s*[RT]X(?: errors)?: ", line):
            heads = " ".join(line.split())
        elif heads:
            interfaces.setdefault(current, _Found()).counters |= _ip_counters(heads, line)
            heads = ""
        else:
            _take(interfaces, current, line)
    return tuple(_interface(name, found) for name, found in interfaces.items())


def _take(interfaces: dict[str, _Found], current: str, line: str) -> None:
    key, colon, value = line.strip().partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z][\w \[\]().-]*", key):
        return
    counter = re.fullmatch(r"\d{1,20}", value.strip())
    if counter and re.search(r"_|\d", key):
        interfaces.setdefault(current, _Found()).counters[key.strip()] = int(counter[0])
    elif key in ("Speed", "Duplex", "Link detected", "SysName", "PortID", "PortDescr"):
        interfaces.setdefault(current, _Found()).facts[key] = value.strip()


def _of_ip(flags: str, rest: str) -> dict[str, str]:
    words = rest.split()
    facts = {key: value for key, value in pairwise(words) if key in ("mtu", "state")}
    return {**facts, "flags": flags}


def _ip_counters(heads: str, line: str) -> dict[str, int]:
    """`ip -s link` prints the names on one line and the values on the next."""
    way, _, names = heads.partition(":")
    values = line.split()
    prefix = way.split()[0].casefold() if way else ""
    return {
        f"{prefix} {name}": int(value)
        for name, value in zip(names.split(), values, strict=False)
        if re.fullmatch(r"\d{1,20}", value)
    }


def _interface(name: str, found: _Found) -> Interface:
    facts = found.facts
    flags = set(facts["flags"].split(",")) if "flags" in facts else None
    detected = facts.get("Link detected", "").casefold()
    link = True if detected.startswith("yes") else False if detected.startswith("no") else None
    if link is None and flags is not None:
        link = "LOWER_UP" in flags
    speed = re.match(r"(\d+)\s*Mb/s", facts.get("Speed", ""))
    duplex = facts.get("Duplex", "").casefold()
    system = facts.get("SysName") or facts.get("chassis.name")
    port = facts.get("PortID") or facts.get("port.ifname") or facts.get("PortDescr") or facts.get("port.descr")
    return Interface(
        name=name,
        link=link,
        admin_up=None if flags is None else "UP" in flags,
        speed_mbit_s=number(speed[1]) if speed else None,
        duplex=duplex if duplex in ("full", "half") else None,
        mtu=whole(facts.get("mtu")),
        state=facts.get("state"),
        neighbour=" ".join(part for part in (system, port) if part) or None,
        counters=found.counters,
    )


def _of_json(item: JsonObject) -> Interface:
    """One interface of `ip -j -s link`."""
    flags = texts_at(item, "flags")
    stats = object_at(item, "stats64") or object_at(item, "stats")
    counters = {
        f"{way} {name}": int(value)
        for way in ("rx", "tx")
        for name in object_at(stats, way)
        if (value := number_at(stats, way, name)) is not None
    }
    mtu = number_at(item, "mtu")
    return Interface(
        name=text_at(item, "ifname") or "interface",
        link=("LOWER_UP" in flags) if flags else None,
        admin_up=("UP" in flags) if flags else None,
        mtu=int(mtu) if mtu is not None else None,
        state=text_at(item, "operstate"),
        counters=counters,
    )


_BAD = re.compile(
    r"crc|symbol_err|fcs|rx errors|tx errors|phy_err|link_down_events|out_of_buffer|rx_errors|tx_errors", re.I
)


def interface_findings(interface: Interface) -> tuple[Finding, ...]:
    """What is wrong with an interface. One without a link is a fault only where it is meant to have one."""
    return tuple(_findings(interface))


def _findings(interface: Interface) -> Iterable[Finding]:
    subject = f"link {interface.name}"
    if interface.link is False and interface.admin_up is not False and interface.name != "lo":
        text = "Switched on, and no link; whether one must be there, the cabling plan says."
        shown = f"link: no, state {interface.state}" if interface.state else "Link detected: no"
        yield Finding(subject, "ethernet.no_link", Severity.WARNING, Action.CHECK_LINK, shown, text)
    if interface.duplex == "half" and interface.link is not False:
        text = "Half duplex: the two ends did not agree."
        yield Finding(subject, "ethernet.half_duplex", Severity.WARNING, Action.CHECK_LINK, "Duplex: Half", text)
    for name, value in interface.counters.items():
        if value and _BAD.search(name):
            text = "Since the driver was loaded; its growth decides."
            shown = evidence(f"{name}: {value}")
            yield Finding(subject, "ethernet.errors", Severity.INFO, Action.WATCH, shown, text)


def explain(text: str) -> Explanation:
    """The interfaces for a person."""
    interfaces = read_interfaces(text)
    unknown = [f"{one.name}: its speed." for one in interfaces if one.link and one.speed_mbit_s is None]
    unknown += [f"{one.name}: whether it has a link." for one in interfaces if one.link is None]
    unknown.append("Which interfaces must have a link, and at what speed.")
    return Explanation(
        kind=KIND,
        subjects=tuple(Subject(f"link {one.name}", _facts(one)) for one in interfaces),
        findings=tuple(item for one in interfaces for item in interface_findings(one)),
        unknown=tuple(unknown),
    )


def _facts(one: Interface) -> dict[str, str]:
    speed = f"{one.speed_mbit_s:g} Mbit/s" if one.speed_mbit_s is not None and one.link is not False else None
    link = None if one.link is None else "yes" if one.link else "no"
    pairs = (("link", link), ("speed", speed), ("state", one.state), ("neighbour", one.neighbour))
    return {key: value for key, value in (*pairs, ("mtu", str(one.mtu) if one.mtu else None)) if value}
