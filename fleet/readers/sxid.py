"""SXid lines of the NVSwitch driver: one line read, the lines of one fault made one event, and what it asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.findings import DRAINS, Action, Finding, Severity
from fleet.health_catalog import sxid_rule
from fleet.readers.line_rules import gravity, part_name
from fleet.readers.log_records import LogRecord
from fleet.readers.pci_address import ADDRESS, device_address
from fleet.readers.plain_text import evidence

_LINE = re.compile(
    r"\bSXid\s*\((?P<where>[^()]{0,80})\)\s*:\s*(?P<code>\d{1,7})(?P<comma>\s*,\s*|\s*$|\s+)(?P<rest>.*)"
)
_BROKEN = re.compile(r"nvswitch\S*.{0,24}\bSXid\b|\bSXid\s*\(")
_HOW = re.compile(r"^(?P<how>(?:Non-?\s?)?Fatal)\b\s*,?\s*", re.IGNORECASE)
_LINK = re.compile(r"\bLink\s+(?P<link>-?\d+)", re.IGNORECASE)
_CONTINUES = re.compile(r"^(?:Data\s*\{|Severity\s+\d+\s+Engine)", re.IGNORECASE)
_LINKS = 256  # of one switch; none has as many
_LINK_FAULTS = (range(19084, 19085), range(20000, 21000), range(22012, 22014), range(25000, 26000))


@dataclass(frozen=True, slots=True)
class SxidEvent:
    """One fault that an NVSwitch reported: `count` alike lines, the first in `evidence`.

    `device` is the switch's address with function ("0000:06:00.0"), None where the line has none. `fatal` is what
    the line says, None where it says nothing. `links` are the NVLink ports named. `data_only` says that only the
    lines that continue a fault are in the text, and not the one that tells it.
    """

    code: int
    device: str | None
    text: str
    evidence: str
    line: int
    fatal: bool | None = None
    links: tuple[int, ...] = ()
    count: int = 1
    data_only: bool = False
    seconds: float | None = None
    last_seconds: float | None = None
    host: str | None = None

    @property
    def of_a_link(self) -> bool:
        """Whether the fault is of one NVLink: its other end may have caused it."""
        return any(self.code in codes for codes in _LINK_FAULTS)

    def finding(self) -> Finding:
        """What the event means and asks for; the line's own word on fatal goes before the catalogue's."""
        severity, action = self._verdict()
        return Finding(
            part_name("switch", self.device or ""), f"sxid.{self.code}", severity, action, self.evidence, self._said()
        )

    def _verdict(self) -> tuple[Severity, Action]:
        rule = sxid_rule(self.code)
        if self.data_only:
            return Severity.INFO, Action.INVESTIGATE
        if rule is None:
            return (Severity.ERROR if self.fatal else Severity.WARNING), Action.INVESTIGATE
        if self.fatal:
            return Severity.FATAL, rule.action if rule.action is Action.CHECK_COOLING else Action.RESET_FABRIC
        if self.fatal is False:
            severity = min(rule.severity, Severity.WARNING, key=gravity)
            return severity, Action.WATCH if rule.action in DRAINS else rule.action
        return rule.severity, rule.action

    def _said(self) -> str:
        rule = sxid_rule(self.code)
        how = {True: "fatal", False: "not fatal", None: "severity not printed"}[self.fatal]
        name = rule.name if rule else "not in the catalogue, so no action is automatic"
        said = [f"SXid {self.code}: {name}; {how}."]
        if self.data_only:
            said = [
                f"SXid {self.code}: {name}; only lines that continue the fault are here, not the one that tells it."
            ]
        if self.links:
            said.append(f"NVLink {', '.join(str(link) for link in self.links[:8])}.")
        if self.count > 1:
            said.append(f"Seen {self.count} times.")
        return " ".join(said)


def read_sxid(record: LogRecord) -> SxidEvent | str | None:
    """The SXid in a record; why it cannot be read, as a text; None where the record has none."""
    if "SXid" not in record.message:
        return None
    found = _LINE.search(record.message)
    if found is None:
        return f"line {record.number}: an SXid line that cannot be read" if _BROKEN.search(record.message) else None
    where = re.search(ADDRESS, found["where"])
    if record.cut and not found["rest"] and "," not in found["comma"]:
        return f"line {record.number}: an SXid whose code may be cut off"
    rest = found["rest"].strip()
    how = _HOW.match(rest)
    link = _LINK.search(rest)
    return SxidEvent(
        int(found["code"]),
        device_address(where[0]) if where else None,
        rest[how.end() :] if how else rest,
        evidence(record.line),
        record.number,
        how["how"].lower() == "fatal" if how else None,
        (int(link["link"]),) if link and int(link["link"]) >= 0 else (),
        data_only=_CONTINUES.match(rest) is not None,
        seconds=record.seconds,
        last_seconds=record.seconds,
        host=record.host,
    )


def merged(first: SxidEvent, again: SxidEvent) -> SxidEvent:
    """One event of two of the same switch and code; lines that continue a fault are not counted."""
    keep = again if first.data_only and not again.data_only else first
    fatal = first.fatal or again.fatal if first.fatal is not None and again.fatal is not None else None
    if fatal is None:
        fatal = first.fatal if first.fatal is not None else again.fatal
    told = [event for event in (first, again) if not event.data_only]
    return replace(
        keep,
        line=first.line,
        fatal=fatal,
        seconds=first.seconds,
        last_seconds=again.last_seconds if again.last_seconds is not None else first.last_seconds,
        links=first.links if len(first.links) >= _LINKS else tuple(dict.fromkeys(first.links + again.links)),
        count=sum(event.count for event in told) or 1,
    )


def merge_sxids(events: Iterable[SxidEvent]) -> tuple[SxidEvent, ...]:
    """Alike events as one, in the order of their first lines."""
    found: dict[tuple[str | None, str | None, int], SxidEvent] = {}
    for event in events:
        key = (event.host, event.device, event.code)
        found[key] = merged(found[key], event) if key in found else event
    return tuple(found.values())
