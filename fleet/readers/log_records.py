"""A kernel log's records: dmesg in all its time formats, journalctl, syslog, /dev/kmsg and JSON, one shape.

A message is what the kernel or program said, without time, host, priority and tag. Nothing here raises: a line
that fits no format is a record whose message is the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fleet.readers.pci_address import ADDRESS
from fleet.readers.plain_text import printed


class LogRecord(NamedTuple):
    """One line of a log; a tuple, since a log has a million.

    `number` counts lines (of JSON: records) from 1; `time` is as printed; `seconds` are since boot. `device` is
    the PCI address in the record's own fields; `cut` says that the text ends in this line without a line end.
    """

    number: int
    line: str
    message: str
    time: str | None = None
    seconds: float | None = None
    host: str | None = None
    program: str | None = None
    device: str | None = None
    cut: bool = False


_LONGEST = 4000  # characters of a line that are read
_LONGEST_MESSAGE = 1000  # the kernel's own are no longer (LOG_LINE_MAX, printk.c)
_PREFIXES_OF_A_LINE = 12
_INNER_ENDS = re.compile(r"#012|\\x0a|\n")
_DAY = r"\d{1,2}\.?"
_MONTH = r"(?:\d{1,2}月|[^\W\d]{2,10}\.?)"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_HOST_AND_PROGRAM = (
    r"(?:(?P<host>[\w.-]+)\s+)?(?P<program>kernel|[A-Za-z][\w./@-]*(?=\[\d+\]))(?:\[\d+\])?:\s?",
    r"(?P<host>[\w.-]+) (?P<program>[\w./-]+) (?:-|\d+) \S+ (?:-|\[[^\]]*\]) ",
)
_BRACKETS = (
    r"\[\s*(?P<seconds>\d{1,12}[.,]\d{1,12})\s*(?:<\s*[\d.,]+>)?\s*\]\s?",
    r"\[\s*[+<]\s*[\d.,]+\s*>?\s*\]\s?",
    r"\[\s*[TC]\d+\]\s?",
    r"\[(?P<time>[^\[\]]{0,48}\d\d:\d\d:\d\d[^\[\]]{0,40})\]\s?",
    r"\[(?P<time>[^\W\d]{2,6}\.?\s?\d{1,2} \d\d:\d\d)\]\s?",
)
_DIGITS = (
    r"\d{1,3},\d+,(?P<micros>\d{1,18}),[^;]{0,40};",
    r"(?:1 )?(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)\s?(?:Z|UTC|[+-]\d\d:?\d\d)?(?=\s)\s*",
    rf"(?P<time>(?:{_MONTH}\s+{_DAY}|{_DAY}\s+{_MONTH})\s+(?:\d{{4}}\s+)?{_CLOCK})(?=\s)\s*",
    *_HOST_AND_PROGRAM,
)
_LETTERS = (
    r"[a-z]+\d?\s*:(?:emerg|alert|crit|err|warn|notice|info|debug)\s*:\s*",
    rf"(?P<time>{_MONTH}\s+{_DAY}\s+(?:\d{{4}}\s+)?{_CLOCK})(?=\s)\s*",
    r"[^\W\d]{2,4}\.?\s+(?=\d{4}-\d\d-\d\d )",
    r"(?:std(?:out|err) [FP] )",
    *_HOST_AND_PROGRAM,
    r"(?P<host>[A-Za-z][\w.-]*):\s+(?=\[\s*\d+\.\d+\]|\[\w{3} \w{3} |<\d+>|\d{4}-\d\d-\d\dT|\w{3} [ \d]\d \d\d:)",
    r"(?:data: )?MESSAGE=",
)
_PREFIXES = {
    start: tuple(re.compile(pattern) for pattern in patterns)
    for start, patterns in (
        ("[", _BRACKETS),
        ("<", (r"<\d{1,3}>",)),
        ("0", _DIGITS),
        ("a", _LETTERS),
        (" ", (r"\s+MESSAGE=",)),
    )
}
_ANY_PREFIX = {
    start: re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", pattern.pattern) for pattern in patterns))
    for start, patterns in _PREFIXES.items()
}
_FIELD = re.compile(rf"^ (?:DEVICE=\+pci:(?P<device>{ADDRESS})|[A-Z_]+=.*)$")
_TEXT_KEYS = ("MESSAGE", "msg", "message", "log")
_LOST_TEXT = re.compile(r'"(?:MESSAGE|msg|message|log)"\s*:\s*"((?:[^"\\]|\\.)*)')


def read_records(text: str) -> tuple[LogRecord, ...]:
    """The records in their order; empty lines are left out."""
    text = printed(text)
    start = text.lstrip().removeprefix("data: ")
    if start[:1] == "{" or re.match(r'\[\s*\{\s*"', start):
        found = tuple(_json_records(text))
        if found:
            return found
    return _line_records(text)


def _line_records(text: str) -> tuple[LogRecord, ...]:
    records: list[LogRecord] = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        field = _FIELD.match(line) if line[:1] == " " else None
        if field and records:
            if field["device"]:
                records[-1] = records[-1]._replace(device=field["device"])
            continue
        shown = line.strip()
        if shown:
            records += _read_line(line, LogRecord(number, shown[:_LONGEST], "", cut=number == len(lines)))
    return tuple(records)


def _read_line(message: str, base: LogRecord) -> list[LogRecord]:
    """The message without its prefixes, in parts where a syslog daemon wrote a line end as an escape."""
    message, known = message[:_LONGEST], dict[str, str]()
    for _ in range(_PREFIXES_OF_A_LINE):
        found = _prefix(message) if message else None
        if found is None:
            break
        for key, value in found.groupdict().items():
            if value is not None:
                known.setdefault(key, value)
        message = message[found.end() :]
    seconds = known["seconds"].replace(",", ".") if "seconds" in known else None
    since_boot = float(seconds) if seconds else int(known["micros"]) / 1e6 if "micros" in known else base.seconds
    ends = "#012" in message or "\\x0a" in message or "\n" in message
    return [
        LogRecord(
            base.number,
            base.line,
            part[:_LONGEST_MESSAGE].rstrip(),
            known.get("time") or seconds or base.time,
            since_boot,
            known.get("host") or base.host,
            known.get("program") or base.program,
            base.device,
            base.cut,
        )
        for part in (_INNER_ENDS.split(message) if ends else (message,))
        if part and not part.isspace()
    ]


def _prefix(message: str) -> re.Match[str] | None:
    """The match of the first prefix that the message begins with."""
    first = message[0]
    kind = first if first in "[<" else "0" if first.isdigit() else "a" if first.isalpha() else " "
    if _ANY_PREFIX[kind].match(message) is None:
        return None
    for pattern in _PREFIXES[kind]:
        found = pattern.match(message)
        if found is not None:
            return found
    return None


def _json_records(text: str) -> Iterator[LogRecord]:
    """Records of journalctl's and dmesg's JSON, and of log shippers; a broken one gives the text that it still has."""
    decoder, place, number = json.JSONDecoder(strict=False), 0, 0
    while (start := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            following = text.find("\n{", start + 1)
            place = following if following >= 0 else len(text)
            value = _rescued(text[start:place])
        for fields in _entries(value):
            number += 1
            yield from _json_record(fields, number)


def _entries(value: object) -> Iterator[Mapping[str, object]]:
    if not isinstance(value, dict):
        return
    listed = value.get("dmesg")
    yield from (entry for entry in (listed if isinstance(listed, list) else [value]) if isinstance(entry, dict))


def _rescued(broken: str) -> object:
    found = _LOST_TEXT.findall(broken)
    try:
        return {"dmesg": [{"msg": json.loads(f'"{text}"', strict=False)} for text in found]}
    except ValueError:
        return None


def _json_record(fields: Mapping[str, object], number: int) -> Iterator[LogRecord]:
    raw = next((fields[key] for key in _TEXT_KEYS if key in fields), None)
    if isinstance(raw, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in raw):
        raw = bytes(raw).decode("utf-8", "replace")
    if not isinstance(raw, str):
        return
    raw = printed(raw)
    text = {key: value for key, value in fields.items() if isinstance(value, str)}
    device = re.search(ADDRESS, text.get("_KERNEL_DEVICE", "")) if "+pci:" in text.get("_KERNEL_DEVICE", "") else None
    micros = text.get("_SOURCE_MONOTONIC_TIMESTAMP", "")
    since_boot = fields.get("time")
    seconds = float(since_boot) if isinstance(since_boot, int | float) else None
    record = LogRecord(
        number,
        " ".join(raw[:_LONGEST].split()),
        "",
        time=text.get("__REALTIME_TIMESTAMP") or text.get("time"),
        seconds=int(micros) / 1e6 if re.fullmatch(r"[0-9]{1,18}", micros) else seconds,
        host=text.get("_HOSTNAME"),
        program=text.get("SYSLOG_IDENTIFIER"),
        device=device[0] if device else None,
    )
    yield from _read_line(raw.rstrip(), record)
