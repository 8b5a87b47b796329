"""Log lines that each mean one thing: a table of patterns in, events with subject, severity and action out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.findings import Action, Finding, Severity
from fleet.readers.log_records import LogRecord
from fleet.readers.pci_address import device_address, gpu_address
from fleet.readers.plain_text import evidence

_RELATED = 64  # GPUs that one event names; a port has no more
_GRAVITY = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class LineEvent:
    """What one or more alike lines say. `related` are addresses of GPUs that the same lines name.

    `count` is how many lines said it; `line` the number of the first, `seconds` and `last_seconds` the
    times of the first and last since boot.
    """

    code: str
    subject: str
    severity: Severity
    action: Action
    text: str
    evidence: str
    line: int
    seconds: float | None = None
    last_seconds: float | None = None
    host: str | None = None
    count: int = 1
    related: tuple[str, ...] = ()

    def finding(self) -> Finding:
        """The event as a finding; a count above one stands in its text."""
        times = f" Seen {self.count} times." if self.count > 1 else ""
        return Finding(self.subject, self.code, self.severity, self.action, self.evidence, self.text + times)


@dataclass(frozen=True, slots=True)
class LineRule:
    """A pattern and what it means.

    `subject` is "node", or a kind of part ("gpu", "nic"), which gets the address of the pattern's group `device` or
    `other`, of the record's own fields, or the word "unknown". `text` may name the pattern's groups in braces.
    """

    pattern: re.Pattern[str]
    code: str
    severity: Severity
    action: Action
    subject: str
    text: str

    def event(self, record: LogRecord, message: str) -> LineEvent | None:
        """The event of `message`, None where the pattern isn't in it."""
        found = self.pattern.search(message)
        if found is None:
            return None
        groups = {key: (value or "?").strip() for key, value in found.groupdict().items()}
        subject = self.subject
        if subject != "node":
            named = found.groupdict()
            subject = part_name(subject, named.get("device") or named.get("other") or record.device or "")
        return LineEvent(
            self.code,
            subject,
            self.severity,
            self.action,
            self.text.format_map(groups),
            evidence(record.line),
            record.number,
            record.seconds,
            record.seconds,
            record.host,
        )


def rule(pattern: str, code: str, severity: Severity, action: Action, subject: str, text: str) -> LineRule:
    """A rule whose pattern ignores case."""
    return LineRule(re.compile(pattern, re.IGNORECASE), code, severity, action, subject, text)


@dataclass(frozen=True, slots=True)
class RuleTable:
    """Rules of which the first that fits counts. Every line that one fits has one of `words`, in lower case.

    The words are there for speed: nearly all lines of a log have none of them.
    """

    words: tuple[str, ...]
    rules: tuple[LineRule, ...]

    def event(self, record: LogRecord, message: str) -> LineEvent | None:
        """The event of the first rule that fits the message; None where none does."""
        lower = message.lower()
        for word in self.words:
            if word in lower:
                break
        else:
            return None
        for each in self.rules:
            event = each.event(record, message)
            if event is not None:
                return event
        return None


def part_name(kind: str, address: str) -> str:
    """How findings name a part: "gpu 0000:3b:00", "switch 0000:06:00.0", "nic unknown"."""
    normal = gpu_address(address) if kind == "gpu" else device_address(address)
    return f"{kind} {normal or 'unknown'}"


def merge_events(events: Iterable[LineEvent]) -> tuple[LineEvent, ...]:
    """Alike events as one, in the order of their first lines, with the gravest of their severities."""
    merged: dict[tuple[str | None, str, str], LineEvent] = {}
    for event in events:
        key = (event.host, event.code, event.subject)
        first = merged.get(key)
        if first is None:
            merged[key] = event
            continue
        graver = max(first, event, key=lambda e: _GRAVITY[e.severity])
        merged[key] = replace(
            first,
            severity=graver.severity,
            action=graver.action,
            text=graver.text,
            last_seconds=event.last_seconds if event.last_seconds is not None else first.last_seconds,
            count=first.count + event.count,
            related=_with_related(first.related, event.related),
        )
    return tuple(merged.values())


def _with_related(first: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    if not more or len(first) >= _RELATED:
        return first
    return tuple(dict.fromkeys(first + more))[:_RELATED]


def gravity(severity: Severity) -> int:
    """A severity's rank: 0 for INFO, 3 for FATAL."""
    return _GRAVITY[severity]
