"""What a text is that an operator hands in, and what it says, by the readers that everything else uses.

A text may hold several outputs: a bug report, or files of several hosts joined by `cat`. Each is read for itself where
it is clear where it begins (`fleet.readers.text_parts`), and what belongs to which is said in the subject "text".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fleet.findings import Explanation, Finding, Severity, Subject
from fleet.json_values import printable
from fleet.readers import (
    dcgm_diag_json,
    dcgm_health,
    dcgm_metrics,
    dcgm_text,
    ethernet,
    fabric_manager,
    firmware_table,
    infiniband,
    kernel_log,
    lspci,
    network_tests,
    nvidia_smi_csv,
    nvidia_smi_table,
    nvidia_smi_text,
    nvidia_smi_xml,
    nvlink,
    redfish,
    slurm,
    topology,
)
from fleet.readers.nvidia_smi_errors import lone_errors
from fleet.readers.outputs import Output, grouped, logs, one_answer, subjects_of
from fleet.readers.plain_text import by_host, printed
from fleet.readers.text_parts import TextPart, text_parts


class Reader(Protocol):
    """A module of fleet/readers: cheap to ask whether a text is of its kind, and silent on every other kind."""

    def recognises(self, text: str) -> bool: ...

    def explain(self, text: str) -> Explanation: ...


_READERS: tuple[tuple[str, Reader], ...] = (
    ("a kernel log (dmesg, journalctl, syslog, /dev/kmsg)", kernel_log),
    ("a fabric manager log", fabric_manager),
    ("nvidia-smi -q -x", nvidia_smi_xml),
    ("nvidia-smi -q", nvidia_smi_text),
    ("nvidia-smi --query-… --format=csv", nvidia_smi_csv),
    ("nvidia-smi's table, -L or error messages", nvidia_smi_table),
    ("nvidia-smi nvlink", nvlink),
    ("nvidia-smi topo -m", topology),
    ("dcgmi diag as JSON", dcgm_diag_json),
    ("dcgmi's tables and messages", dcgm_text),
    ("dcgmi health", dcgm_health),
    ("dcgm-exporter's metrics", dcgm_metrics),
    ("InfiniBand ports and links (ibstat, ibv_devinfo, perfquery, mlxlink …)", infiniband),
    ("Ethernet ports (ethtool, ip link …)", ethernet),
    ("lspci -vv", lspci),
    ("bandwidth tests (nccl-tests, ib_write_bw, iperf3)", network_tests),
    ("a Redfish resource or error body", redfish),
    ("Slurm's nodes or jobs (scontrol, sinfo, squeue, as text or JSON)", slurm),
    ("the table of nvfwupd show_version", firmware_table),
)

KINDS: tuple[str, ...] = tuple(name for name, _ in _READERS)
"""What can be explained, in words."""

_BY_LINE = (kernel_log, fabric_manager)  # logs: lines of one log are one, whatever stands between them
_WITH_ERRORS = (nvidia_smi_xml, nvidia_smi_text, nvidia_smi_csv, nvidia_smi_table)  # read nvidia-smi's error lines too
_RANK = {Severity.FATAL: 0, Severity.ERROR: 1, Severity.WARNING: 2, Severity.INFO: 3}
_LISTED = 5000  # findings and subjects of one answer
_UNKNOWN_LISTED = 2000
_PARTS_LISTED = 100
_NAMED = 10  # in one sentence
_LOGS_NUMBERED = 20
_LINE = re.compile(r"\bline (\d+)\b")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one reader said of one host's outputs; `outputs` are their numbers in the text, from 1.

    `parts` are all outputs of that host's text. A reader that does not know the text says nothing: `said` is None.
    """

    host: str
    text: str
    parts: tuple[TextPart, ...]
    outputs: tuple[int, ...] = ()
    said: Explanation | None = None


def explain(text: str) -> Explanation:
    """Everything that the readers find in `text`; a bug report may hold several kinds.

    A text of no known kind is said to be so: nothing found in it is no sign of health. No word of the answer acts on
    a terminal, whatever the text holds.
    """
    return answer(list(pieces(text)))


def pieces(text: str) -> Iterator[Piece]:
    """The same reader by reader, for a caller that may have to stop before the end."""
    clean = printed(text)
    hosts = by_host(clean)
    if len(hosts) > 1:
        silent = [host for host, own in hosts.items() if not any(reader.recognises(own) for _, reader in _READERS)]
        if len(silent) == len(hosts) or any(hosts[host].count("\n") > 1 for host in silent):
            hosts = {"": clean}  # no hosts after all: two lines of a host that is one are known for what they are
    for host, own in hosts.items():
        yield from _pieces(host, own)


def answer(found: Sequence[Piece], stopped: str = "") -> Explanation:
    """One answer of what was read. `stopped` says why not all was."""
    hosts: dict[str, list[Piece]] = {}
    for piece in found:
        hosts.setdefault(piece.host, []).append(piece)
    joined = _of_hosts(hosts)
    unknown = joined.unknown
    if joined.kind == "unknown" and not stopped:
        empty = not any(piece.text.strip() for piece in found)
        unknown = ("what this text is: " + ("it is empty" if empty else f"known are {'; '.join(KINDS)}"),)
    return _limited(replace(joined, unknown=(*((stopped,) if stopped else ()), *unknown)))


def _pieces(host: str, text: str) -> Iterator[Piece]:
    parts = text_parts(text)
    yield Piece(host, text, parts)
    of_smi: set[int] = set()
    for _, reader in _READERS:
        known = [number for number, part in enumerate(parts) if reader.recognises(part.text)]
        if not known:
            continue
        if reader in _WITH_ERRORS:
            of_smi.update(known)
        if reader in _BY_LINE:
            groups = logs(known, parts)
            outputs = [Output(group, _said_of_log(reader, group, parts, len(groups))) for group in groups]
        else:
            outputs = [
                Output(group, reader.explain("".join(parts[n].text for n in group))) for group in grouped(known, parts)
            ]
        yield Piece(host, text, parts, tuple(number + 1 for number in known), one_answer(outputs, parts))
    lone = {n: lone_errors(part.text) for n, part in enumerate(parts) if n not in of_smi}
    outputs = [Output((n,), nvidia_smi_table.explain(lines)) for n, lines in lone.items() if lines]
    if outputs:
        yield Piece(host, text, parts, tuple(o.places[0] + 1 for o in outputs), one_answer(outputs, parts))


def _said_of_log(reader: Reader, group: Sequence[int], parts: Sequence[TextPart], logs: int) -> Explanation:
    """One log's answer, with blank lines for what is not of it: its lines keep their numbers in the whole text.

    Of many logs each has numbers of its own: the blank lines of all would be read for each.
    """
    if logs > _LOGS_NUMBERED:
        said = reader.explain("".join(parts[n].text for n in group))
        return replace(said, unknown=tuple(_LINE.sub(r"line \1 of its log", line) for line in said.unknown))
    own = frozenset(group)
    return reader.explain(
        "".join(part.text if n in own else "\n" * part.text.count("\n") for n, part in enumerate(parts))
    )


def _of_hosts(hosts: dict[str, list[Piece]]) -> Explanation:
    """The answers of all hosts. pdsh and clush put a host before each line: its GPU 0 is not the other's GPU 0."""
    answers = {host: _of_host(own) for host, own in hosts.items()}
    named = [host for host in answers if host]
    if not named:
        return answers.get("", Explanation("unknown"))
    silent = [host for host in named if answers[host].kind == "unknown"]
    parts = [_on_host(host, answers[host]) for host in named if host not in silent]
    lost = [f"{host}: nothing of it is known, it says {hosts[host][0].text.strip()[:200]!r}" for host in silent]
    if not parts:
        return Explanation("unknown")
    joined = _joined(parts)
    return replace(joined, unknown=(*joined.unknown, *lost))


def _of_host(own: Sequence[Piece]) -> Explanation:
    said = [piece.said for piece in own if piece.said is not None]
    if not said:
        return Explanation("unknown")
    joined = said[0] if len(said) == 1 else _joined(said)
    parts = own[0].parts
    if len(parts) == 1:
        return joined
    kinds = ["+".join(p.said.kind for p in own if p.said and n in p.outputs) for n in range(1, len(parts) + 1)]
    facts = {
        f"output {n}": f"{kind or 'unknown'}, {_lines(part)}"
        for n, (kind, part) in enumerate(zip(kinds, parts, strict=True), 1)
    }
    shown = dict(list(facts.items())[:_PARTS_LISTED])
    if len(facts) > _PARTS_LISTED:
        shown["more"] = f"{len(facts) - _PARTS_LISTED} more outputs, to line {parts[-1].last}"
    unread = [_lines(part) for kind, part in zip(kinds, parts, strict=True) if not kind]
    unknown = joined.unknown
    if unread:
        more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
        unknown = (*unknown, f"what these are: {'; '.join(unread[:_NAMED])}{more}")
    if parts[-1].rest:
        unknown = (
            *unknown,
            f"which outputs there are from line {parts[-1].first} on: there are too many to tell apart",
        )
    return replace(joined, subjects=(Subject("text", shown), *joined.subjects), unknown=unknown)


def _lines(part: TextPart) -> str:
    title = f" ({part.title[:80]})" if part.title else ""
    return f"line {part.first}{title}" if part.first == part.last else f"lines {part.first} to {part.last}{title}"


def _joined(parts: Sequence[Explanation]) -> Explanation:
    kinds = dict.fromkeys(kind for part in parts for kind in part.kind.split("+"))
    return Explanation(
        kind="+".join(kinds),
        subjects=subjects_of(parts),
        findings=worst_first(finding for part in parts for finding in part.findings),
        unknown=tuple(dict.fromkeys(line for part in parts for line in part.unknown)),
    )


def _limited(found: Explanation) -> Explanation:
    """No more than a person or a program can use, and no word that acts on a terminal; what is left out is counted."""
    findings, unknown = found.findings[:_LISTED], list(found.unknown[:_UNKNOWN_LISTED])
    if len(found.findings) > _LISTED:
        left = Counter((f.severity.value, f.code) for f in found.findings[_LISTED:])
        kinds = ", ".join(f"{count} of {severity} {code}" for (severity, code), count in left.most_common(_NAMED))
        more = f" and of {len(left) - _NAMED} codes more" if len(left) > _NAMED else ""
        unknown.insert(0, f"{len(found.findings) - _LISTED} findings more than are listed here: {kinds}{more}")
    if len(found.subjects) > _LISTED:
        unknown.insert(0, f"{len(found.subjects) - _LISTED} subjects more than are listed here")
    if len(found.unknown) > _UNKNOWN_LISTED:
        unknown.insert(
            0, f"{len(found.unknown) - _UNKNOWN_LISTED} things more that cannot be told and are not listed here"
        )
    subjects = found.subjects[:_LISTED]
    return Explanation(
        found.kind,
        tuple(Subject(_safe(s.name), {_safe(k): _safe(v) for k, v in s.facts.items()}) for s in subjects),
        tuple(
            replace(f, subject=_safe(f.subject), code=_safe(f.code), evidence=_safe(f.evidence), text=_safe(f.text))
            for f in findings
        ),
        tuple(_safe(line) for line in unknown),
    )


def _safe(text: str) -> str:
    return str(printable(text))


def _on_host(host: str, part: Explanation) -> Explanation:
    return Explanation(
        kind=part.kind,
        subjects=tuple(replace(subject, name=f"{host} {subject.name}") for subject in part.subjects),
        findings=tuple(replace(finding, subject=f"{host} {finding.subject}") for finding in part.findings),
        unknown=tuple(f"{host}: {line}" for line in part.unknown),
    )


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity; equal ones stay in their order, each once."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: _RANK[finding.severity]))
