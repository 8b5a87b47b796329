"""Log entries of a BMC (event log, SEL, Dell LC, HPE IML): what happened, to which part, and does it matter?

Sources: DMTF LogEntry; NvidiaLogEntry (Oem.Nvidia.Device); HpeLogEntry; UEFI CPER severities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from fleet.bmc_messages import Severity
from fleet.json_values import JsonObject, flag_at, objects_at, text_at, texts_at


class LogKind(StrEnum):
    """What an entry is worth."""

    FAULT = "fault"  # a part says that something is wrong
    RECOVERY_NEEDED = "recovery_needed"  # a device's firmware sits in recovery mode: reflash it
    EXPECTED = "expected"  # follows from a restart or a power cycle
    NOISE = "noise"  # the BMC's own software, or a test event
    INFO = "info"  # administration and good news


@dataclass(frozen=True, slots=True)
class LogReading:
    """One entry. `at` is UTC, None where the clock was not set or has no zone; `created` is the BMC's text.

    `message_id` is None where the BMC gives a bare event number instead of Registry.Version.Key.
    `resolved` stays False for ever on some boards: it proves nothing.
    """

    id: str
    at: datetime | None
    created: str | None
    kind: LogKind
    severity: Severity
    device: str | None
    message_id: str | None
    text: str
    resolution: str | None
    resolved: bool | None


_REGISTRY_ID = re.compile(r"^[A-Za-z][A-Za-z0-9_-]*(\.\d+){1,3}\.[A-Za-z][A-Za-z0-9_]*$")
_SEVERITIES = {
    "ok": Severity.OK,
    "informational": Severity.OK,
    "warning": Severity.WARNING,
    "caution": Severity.WARNING,
    "critical": Severity.CRITICAL,
    "fatal": Severity.CRITICAL,
    "recoverable": Severity.WARNING,
    "corrected": Severity.OK,
}
_EXPECTED = re.compile(
    r"\b(reset|reboot\w*|restart\w*) due to\b|\bpower[- ]?on reset\b"
    r"|\b(bmc|host|system) (was )?(rebooted|restarted)\b"
    r"|\bac (power )?(lost|restored|cycle)\b",
    re.IGNORECASE,
)
_DBUS_NAME = re.compile(r"^[a-z]+(\.[A-Za-z0-9_]+){3,}$")
_TEST = re.compile(r"\btest\b|_TEST\b|\bcustom event\b", re.IGNORECASE)
_RECOVERY = re.compile(r"\brecovery mode\b|\bneeds? recovery\b", re.IGNORECASE)
_FIRST_REAL_YEAR = 2000


def read_log_entry(entry: JsonObject) -> LogReading:
    """One LogEntry resource."""
    text = text_at(entry, "Message") or ""
    device = _device(entry)
    severity = _severity(entry)
    created = text_at(entry, "EventTimestamp") or text_at(entry, "Created")
    ident = text_at(entry, "MessageId")
    return LogReading(
        id=text_at(entry, "Id") or "",
        at=utc_time(created),
        created=created,
        kind=_kind(text, device, severity, ident),
        severity=severity,
        device=device,
        message_id=ident if ident and _REGISTRY_ID.match(ident) else None,
        text=text,
        resolution=text_at(entry, "Resolution"),
        resolved=flag_at(entry, "Resolved"),
    )


def read_log(body: JsonObject) -> tuple[LogReading, ...]:
    """A LogEntryCollection with its members inside, in order of time; entries without a time come first."""
    entries = [read_log_entry(entry) for entry in objects_at(body, "Members")]
    start = datetime.min.replace(tzinfo=UTC)
    return tuple(sorted(entries, key=lambda entry: entry.at or start))


def utc_time(text: str | None) -> datetime | None:
    """A time with its offset as UTC; None for none, for no offset, and for a clock that was never set."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None or moment.year < _FIRST_REAL_YEAR:
        return None
    return moment.astimezone(UTC)


def _severity(entry: JsonObject) -> Severity:
    """The worse of what the entry and its CPER section say."""
    word = text_at(entry, "MessageSeverity") or text_at(entry, "Severity") or text_at(entry, "Oem", "Hpe", "Severity")
    own = _SEVERITIES.get((word or "").casefold(), Severity.UNKNOWN)
    section = text_at(entry, "CPER", "Oem", "Nvidia", "Nvidia", "Severity", "Name")
    if section is None:
        return own
    return max(own, _SEVERITIES.get(section.casefold(), Severity.UNKNOWN))


def _device(entry: JsonObject) -> str | None:
    named = text_at(entry, "Oem", "Nvidia", "Device")
    if named:
        return named
    origin = text_at(entry, "Links", "OriginOfCondition", "@odata.id")
    if origin:
        return origin.rstrip("/").rpartition("/")[2]
    arguments = texts_at(entry, "MessageArgs")
    about_part = (text_at(entry, "MessageId") or "").startswith("ResourceEvent.")
    return arguments[0].split()[0] if about_part and arguments and arguments[0].split() else None


def _kind(text: str, device: str | None, severity: Severity, ident: str | None) -> LogKind:
    if _TEST.search(device or "") or _TEST.search(text):
        return LogKind.NOISE
    if ident is None and _DBUS_NAME.match(text):
        return LogKind.NOISE  # an error name of the BMC's own services
    if _EXPECTED.search(text):
        return LogKind.EXPECTED
    if severity <= Severity.UNKNOWN:
        return LogKind.INFO
    return LogKind.RECOVERY_NEEDED if _RECOVERY.search(text) else LogKind.FAULT
