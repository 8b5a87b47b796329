"""Several outputs of one tool in one text: of one GPU server again and again, of several, or of nobody knows how many.

Two outputs that share a GPU's UUID, its serial number or an adapter's GUID are of one host, and read as one. Where
both name such and share none they are of two. Where nothing tells, a fault in any of them is told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleet.findings import Explanation, Finding, Severity, Subject
from fleet.readers.text_parts import COMMAND, TextPart

_NAMES = re.compile(
    r"\bGPU-[0-9a-fA-F]{8}-[0-9a-fA-F-]{20,27}|"
    r"\b(?<!Chassis )(?:Serial Number|serial|serial_num|SerialNumber)\"?>?\s{0,40}[:=]?\s{0,4}\"?([A-Z0-9]{10,16})\b|"
    r"\b(?:[Nn]ode|[Pp]ort)[ _](?:GUID|guid):?\s{0,20}((?:0x)?[0-9a-fA-F:]{16,19})\b"
)
_JSON = re.compile(r"^[^\S\n]*[\[{][^\S\n]*(?:$|[\"\[{])", re.MULTILINE)  # readers read one document of a text
_NUMBERED = re.compile(r"[A-Za-z][\w.]*(?:-[\w.]+)*\d[\w.]*")  # gpu-0001, node7.example
_GRAVEST_FIRST = tuple(reversed(Severity))
_NAMED = 8


@dataclass(frozen=True, slots=True)
class Output:
    """What one output says, or several of one host: their places in the text's parts."""

    places: tuple[int, ...]
    said: Explanation


def grouped(places: Sequence[int], parts: Sequence[TextPart]) -> list[tuple[int, ...]]:
    """The places of parts that one reader knows; those that follow each other and are surely of one host together."""
    groups: list[tuple[int, ...]] = []
    last: frozenset[str] = frozenset()
    for place in places:
        names = hardware_names(parts[place].text) if len(places) > 1 else frozenset()
        apart = groups and any(_JSON.search(parts[n].text) for n in (groups[-1][-1], place))
        if groups and names & last and not apart:
            groups[-1] = (*groups[-1], place)
            last |= names
        else:
            groups.append((place,))
            last = names
    return groups


def logs(places: Sequence[int], parts: Sequence[TextPart]) -> list[tuple[int, ...]]:
    """The places of a log's parts by the host that a prompt or title above them names: what a boot ends on one host
    goes on on another. Parts below no such name are of the host before them."""
    groups: dict[str, list[int]] = {}
    host = ""
    wanted = frozenset(places)
    for place, part in enumerate(parts):
        host = part.host or _host_in(part.title) or host
        if place in wanted:
            groups.setdefault(host, []).append(place)
    return [tuple(group) for group in groups.values()]


def _host_in(title: str) -> str:
    """The title where it may be a host's, "" where it is a command or a file that every host has."""
    words = title.split()
    if not words or words[0].startswith("/"):
        return ""
    if COMMAND.fullmatch(words[0].rsplit("/", 1)[-1]) or words[0] == "sudo":
        return next((word for word in words[1:] if _NUMBERED.fullmatch(word)), "")
    return title


def hardware_names(text: str) -> frozenset[str]:
    """UUIDs, serial numbers and GUIDs: what is of one machine only."""
    names = {next(filter(None, (match[1], match[2], match[0]))) for match in _NAMES.finditer(text)}
    return frozenset(name.casefold() for name in names if set(name) - set("0x:-"))


def one_answer(outputs: Sequence[Output], parts: Sequence[TextPart]) -> Explanation:
    """The outputs' answers as one; a subject carries its host or output where there are surely several."""
    if len(outputs) == 1:
        return outputs[0].said
    hosts = [parts[output.places[0]].host for output in outputs]
    if all(hosts) and len(set(hosts)) == len(hosts):
        return _apart([_under(host, output.said) for host, output in zip(hosts, outputs, strict=True)])
    names = [frozenset().union(*(hardware_names(parts[n].text) for n in output.places)) for output in outputs]
    repeated = _repeated(outputs)
    if not repeated:
        return _apart([output.said for output in outputs])
    if all(names) and sum(map(len, names)) == len(frozenset().union(*names)):
        return _apart([_under(f"output {output.places[0] + 1}", output.said) for output in outputs])
    return _any_of_them(outputs, repeated)


def _repeated(outputs: Sequence[Output]) -> list[str]:
    """The subjects that more than one output names."""
    seen: dict[str, int] = {}
    for output in outputs:
        for name in {*(s.name for s in output.said.subjects), *(f.subject for f in output.said.findings)}:
            seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]


def _under(label: str, said: Explanation) -> Explanation:
    return replace(
        said,
        subjects=tuple(replace(subject, name=_named(label, subject.name)) for subject in said.subjects),
        findings=tuple(replace(finding, subject=_named(label, finding.subject)) for finding in said.findings),
        unknown=tuple(f"{label}: {line}" for line in said.unknown),
    )


def _named(label: str, subject: str) -> str:
    return subject if "GPU-" in subject else f"{label} {subject}"  # a UUID is of one GPU in the world


def _apart(answers: Sequence[Explanation]) -> Explanation:
    return Explanation(
        kind="+".join(dict.fromkeys(said.kind for said in answers)),
        subjects=subjects_of(answers),
        findings=tuple(dict.fromkeys(finding for said in answers for finding in said.findings)),
        unknown=tuple(dict.fromkeys(line for said in answers for line in said.unknown)),
    )


def subjects_of(answers: Sequence[Explanation]) -> tuple[Subject, ...]:
    """The subjects of several answers, each once; where they tell of the same fact, the last one counts."""
    facts: dict[str, dict[str, str]] = {}
    for said in answers:
        for subject in said.subjects:
            facts.setdefault(subject.name, {}).update(subject.facts)
    return tuple(Subject(name, known) for name, known in facts.items())


def _any_of_them(outputs: Sequence[Output], repeated: Sequence[str]) -> Explanation:
    """A finding of any of them, once, with the outputs that tell it."""
    told: dict[tuple[str, str], list[tuple[int, Finding]]] = {}
    for output in outputs:
        for finding in output.said.findings:
            told.setdefault((finding.subject, finding.code), []).append((output.places[0] + 1, finding))
    whole = _apart([output.said for output in outputs])
    numbers = _listed([output.places[0] + 1 for output in outputs])
    shown = ", ".join(repeated[:_NAMED]) + (f" and {len(repeated) - _NAMED} more" if len(repeated) > _NAMED else "")
    doubt = (
        f"whether outputs {numbers} are of one host ({whole.kind}): nothing in them tells. A finding of any is listed"
    )
    return replace(
        whole,
        findings=tuple(_once(said, len(outputs)) for said in told.values()),
        unknown=(*whole.unknown, f"{doubt}; they share the names {shown}"),
    )


def _once(said: Sequence[tuple[int, Finding]], outputs: int) -> Finding:
    gravest = min((finding for _, finding in said), key=lambda finding: _GRAVEST_FIRST.index(finding.severity))
    numbers = list(dict.fromkeys(number for number, _ in said))
    if len(numbers) == outputs:
        return gravest
    return replace(gravest, text=f"{gravest.text} Told by output {_listed(numbers)} of {outputs}.".strip())


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMED]))
    return shown + (f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else "")
