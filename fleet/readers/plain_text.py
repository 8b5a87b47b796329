"""A tool's text without what its way to us added: colours, carriage returns, log stamps, a host's name per line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

EVIDENCE_CHARACTERS = 300
_LINE_CHARACTERS = 8000  # no tool prints longer ones; a bound on what an expression walks over

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDS = re.compile(r"\r\n|\n|\r|\x85|\u2028|\u2029")
_STAMPS = (
    re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)? (?:(?:stdout|stderr) [FP] )?"),
    re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?: "),
    re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:"),
)
_BLOCK = re.compile(r"^-{5,}\n([A-Za-z0-9][\w.,\[\]-]*)(?: \(\d+\))?\n-{5,}\n", re.MULTILINE)
_HOST = re.compile(r"^\s?([A-Za-z0-9][\w.-]*):(?: |\t|$)")


def plain_lines(text: str) -> tuple[str, ...]:
    """The lines without terminal escapes and without the stamp or host name that a log or pdsh put before each.

    A host name is taken away only where every line has the same one. Blanks at the start of a line stay.
    """
    text = _ANSI.sub("", text).replace("\ufeff", "").replace("\x00", "")
    lines = [_without_stamp(line) for line in _ENDS.split(text)]
    return tuple(line[:_LINE_CHARACTERS].rstrip() for line in _without_host(lines))


def _without_stamp(line: str) -> str:
    for stamp in _STAMPS:
        found = stamp.match(line)
        if found:
            return line[found.end() :]
    return line


def _without_host(lines: Sequence[str]) -> Sequence[str]:
    found = [_HOST.match(line) for line in lines if line.strip()]
    names = {match[1] if match else None for match in found}
    if len(found) < 2 or len(names) != 1 or None in names:
        return lines
    return [_HOST.sub("", line, count=1) for line in lines]


def by_host(text: str) -> Mapping[str, str]:
    """The text of each host, where each line begins with a host's name (pdsh, clush), or each block (dshbak, clush -b).

    Anything else is one text under the empty name. Two hosts with two lines at least are needed to take names for
    hosts' names; a host with one line is one that could not be asked.
    """
    blocks = _BLOCK.split(text)
    if len(blocks) > 3 and not blocks[0].strip():
        return dict(zip(blocks[1::2], blocks[2::2], strict=True))
    lines = [line for line in _ENDS.split(text) if line.strip()]
    found = [_HOST.match(line) for line in lines]
    counts = Counter(match[1] if match else None for match in found)
    if None in counts or sum(count > 1 for count in counts.values()) < 2:
        return {"": text}
    parts: dict[str, list[str]] = {}
    for line, match in zip(lines, found, strict=True):
        if match:
            parts.setdefault(match[1], []).append(line[match.end() :])
    return {host: "\n".join(own) + "\n" for host, own in parts.items()}


def evidence(*parts: str) -> str:
    """The parts on one line, printable, cut to what a finding may carry."""
    joined = " ".join(" ".join(part.split()) for part in parts if part.strip())
    return "".join(c if c.isprintable() else "\ufffd" for c in joined)[:EVIDENCE_CHARACTERS]


def number(text: str | None) -> float | None:
    """The finite number that the text is, with a unit after a blank ignored; None for anything else."""
    if text is None:
        return None
    found = re.fullmatch(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?:\s.*)?", text.strip(), re.DOTALL)
    if found is None:
        return None
    value = float(found[1])
    return value if abs(value) < float("inf") else None


def whole(text: str | None) -> int | None:
    """The whole number that the text is, decimal or with 0x; None for anything else."""
    if text is None:
        return None
    found = re.fullmatch(r"(0[xX][0-9a-fA-F]{1,16})|([+-]?\d{1,20})", text.strip(), re.ASCII)
    if found is None:
        return None
    return int(found[1], 16) if found[1] else int(found[2])


def named(values: Iterable[str]) -> str:
    """A list for a sentence: "1, 2, 3"."""
    return ", ".join(values)
