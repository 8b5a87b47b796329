"""A tool's text without what its way to us added: colours, carriage returns, log stamps, a host's name per line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

EVIDENCE_CHARACTERS = 300
_LINE_CHARACTERS = 8000  # no tool prints longer ones; a bound on what an expression walks over

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OTHER_ENDS = re.compile(r"\r+\n|\r|\x85|\u2028|\u2029")
_OTHER_END = ("\r", "\x85", "\u2028", "\u2029")
_ASCII_CONTROLS = bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")
_STAMPS = (
    re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*(?:Z|[+-]\d\d:?\d\d)? (?:(?:stdout|stderr) [FP] )?"),
    re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?: "),
    re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:"),
)
_BLOCK = re.compile(r"^-{5,}\n([A-Za-z0-9][\w.,\[\]-]*)(?: \(\d+\))?\n-{5,}\n", re.MULTILINE)
_HOST = re.compile(r"^\s?([A-Za-z0-9][\w.-]*):(?: |\t|$)")


class LineStart:
    """A pattern at the start of any line: what `^` finds with MULTILINE, and many times as fast in a long text."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self._first = re.compile(pattern, flags)
        self._later = re.compile(rf"\n(?:{pattern})", flags)

    def search(self, text: str) -> re.Match[str] | None:
        """The first match; behind the first line it begins with the line end before it."""
        return self._first.match(text) or self._later.search(text)


def any_of(words: Iterable[str], text: str) -> bool:
    """Whether a word is in the text: asked before an expression that walks over all of it."""
    return any(word in text for word in words)


def printed(text: str) -> str:
    """What a terminal would show: no escapes, control characters, marks of direction or byte order; tabs stay.

    Every line end is a newline.
    """
    plain = _ESCAPES.sub("", text) if "\x1b" in text else text
    if plain.isascii():
        plain = plain.encode("ascii").translate(None, _ASCII_CONTROLS).decode("ascii")
    else:
        plain = _CONTROLS.sub("", plain)
    return _OTHER_ENDS.sub("\n", plain) if any_of(_OTHER_END, plain) else plain


def clean(text: str) -> str:
    """As `printed`, with blanks for tabs: for what is set in columns."""
    return printed(text).expandtabs(8)


def plain_lines(text: str) -> tuple[str, ...]:
    """The lines without terminal escapes and without the stamp or host name that a log or pdsh put before each.

    A host name is taken away only where every line has the same one. Blanks at the start of a line stay.
    """
    lines = [_without_stamp(line) for line in printed(text).split("\n")]
    return tuple(line[:_LINE_CHARACTERS].rstrip() for line in _without_host(lines))


def _without_stamp(line: str) -> str:
    for stamp in _STAMPS:
        found = stamp.match(line)
        if found:
            return line[found.end() :]
    return line


def _without_host(lines: Sequence[str]) -> Sequence[str]:
    name: str | None = None
    count = 0
    for line in lines:
        if line.strip():
            found = _HOST.match(line)
            if found is None or (name is not None and found[1] != name):
                return lines
            name, count = found[1], count + 1
    if count < 2:
        return lines
    return [_HOST.sub("", line, count=1) for line in lines]


def by_host(text: str) -> Mapping[str, str]:
    """The text of each host, where each line begins with a host's name (pdsh, clush), or each block (dshbak, clush -b).

    Anything else is one text under the empty name. Two hosts with two lines at least are needed to take names for
    hosts' names; a host with one line is one that could not be asked.
    """
    blocks = _BLOCK.split(text) if text.lstrip().startswith("-----") else []
    if len(blocks) > 3 and not blocks[0].strip():
        joined: dict[str, str] = {}
        for host, block in zip(blocks[1::2], blocks[2::2], strict=True):
            joined[host] = joined.get(host, "") + block
        return joined
    parts: dict[str, list[str]] = {}
    for line in (_OTHER_ENDS.sub("\n", text) if any_of(_OTHER_END, text) else text).split("\n"):
        found = _HOST.match(line)
        if found:
            parts.setdefault(found[1], []).append(line[found.end() :])
        elif line.strip():
            return {"": text}
    if sum(len(own) > 1 for own in parts.values()) < 2:
        return {"": text}
    return {host: "\n".join(own) + "\n" for host, own in parts.items()}


def evidence(*parts: str) -> str:
    """The parts on one line, printable, cut to what a finding may carry."""
    joined = " ".join(" ".join(part.split()) for part in parts if part.strip())[:EVIDENCE_CHARACTERS]
    return joined if joined.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in joined)


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
