"""Which of several findings is the cause of which: causes first, what follows from them after, and said so.

One fault shows itself many times: a GPU that falls off the bus takes its channels and its NVLinks with it. The
rules here are about what the driver's catalogue calls sympathetic errors (Xid 45, 43, 94, 95, 154), and about links
between parts: PCIe port and GPU, GPU and NVSwitch.

Possible causes are looked up by what they can explain, and of each kind only the nearest lines: a log with fifty
thousand faulty parts costs no more for each finding than one with ten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.findings import Action, Finding, Severity
from fleet.readers.line_rules import gravity

_FABRIC = "nvlink.fabric_wide"
_PCIE = ("pcie.aer_fatal", "pcie.aer_uncorrected", "pcie.aer_nonfatal", "pcie.contained", "pcie.slot_lost")
_GPU_GONE = frozenset({"gpu.init_failed", "gpu.gsp_failed", "gpu.locked"})
_NVLINK_XIDS = frozenset({74, *range(144, 151)})
_LAST = frozenset({43, 45, 154})
_MEMORY = frozenset({63, 64, 94, 95, 171, 172})
_DEAD = frozenset({79, 119, 120, 62})
_FOLLOWERS: Mapping[int, frozenset[int]] = {
    79: frozenset({8, 13, 31, 32, 46, 61, 62, 69, 109, 119, 120, 136, 155, 158}) | _NVLINK_XIDS,
    48: _MEMORY | {13, 31},
    140: frozenset({94, 95, 171, 172}),
    95: frozenset({63, 64, 94, 13, 31}),
    94: frozenset({63, 64, 13, 31}),
    62: frozenset({109, 119, 120}),
    119: frozenset({8, 109, 120}),
    120: frozenset({8, 109}),
}
_RANK = {code: rank for rank, code in enumerate((79, 48, 140, 95, 94, *range(144, 151), 74, 62, 119, 120))}
_OTHER_RANKS = {_FABRIC: 6, "driver.conflict": 8}
_NEAR_LINES = 40
_NEAR_SECONDS = 60.0  # between parts
_SAME_GPU_SECONDS = 600.0  # between errors of one GPU
_LOOKED_AT = 16  # possible causes of one kind: half of them before the line, half behind it
Key = tuple[str, str | None, str | None]  # a kind of cause, its host, and the part that it is of, if that matters

FABRIC_WIDE_GPUS = 4
"""From this many GPUs with NVLink faults on, the fabric is at fault and not each of them (a decision of ours)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding with where it stands: line, host, and seconds since boot of its first and last line where known.

    `related` are addresses of GPUs that its lines name; `of_a_link` marks an NVSwitch fault of one NVLink.
    """

    finding: Finding
    line: int
    host: str | None = None
    seconds: float | None = None
    last_seconds: float | None = None
    related: tuple[str, ...] = ()
    of_a_link: bool = False

    @property
    def gpu(self) -> str | None:
        """The address of the GPU it is about."""
        kind, _, address = self.finding.subject.partition(" ")
        return address if kind == "gpu" else None

    @property
    def number(self) -> int | None:
        """The number of an Xid."""
        kind, _, code = self.finding.code.partition(".")
        return int(code) if kind == "xid" and code.isascii() and code.isdigit() else None


def ordered(found: Sequence[Found]) -> tuple[Finding, ...]:
    """The findings, gravest incident first, in each the cause first; subjects name the host where there are several."""
    found = _with_fabric(sorted(found, key=lambda each: each.line))
    hosts = {each.host for each in found if each.host}
    causes = _possible(found)
    parents = [_cause_of(effect, found, causes) for effect in found]
    roots = [_root(place, parents) for place in range(len(found))]
    incidents: dict[int, list[int]] = {}
    for place, (root, _) in enumerate(roots):
        incidents.setdefault(root, []).append(place)
    order = sorted(
        incidents,
        key=lambda root: (-max(gravity(found[p].finding.severity) for p in incidents[root]), found[root].line),
    )
    told: list[Finding] = []
    for root in order:
        for place in sorted(incidents[root], key=lambda p: (roots[p][1], found[p].line)):
            cause = parents[place]
            told.append(_told(found[place], found[cause] if cause is not None else None, len(hosts) > 1))
    return tuple(told)


def _with_fabric(found: Sequence[Found]) -> Sequence[Found]:
    """The same with one finding more where so many GPUs have NVLink faults that the fabric must be at fault."""
    faults = [each for each in found if each.number in _NVLINK_XIDS]
    gpus = {(each.host, each.gpu) for each in faults}
    times = [each.seconds for each in faults if each.seconds is not None]
    apart = len(times) == len(faults) and len({each.host for each in faults}) == 1 and max(times) - min(times) > 600
    if len(gpus) < FABRIC_WIDE_GPUS or apart:
        return found
    first = min(faults, key=lambda each: each.line)
    text = f"NVLink faults on {len(gpus)} GPUs: one fault of the fabric (a switch or its links), not one of each GPU."
    wide = Finding("fabric", _FABRIC, Severity.ERROR, Action.INVESTIGATE, first.finding.evidence, text)
    return [Found(wide, first.line), *found]


def _possible(found: Sequence[Found]) -> Mapping[Key, list[int]]:
    """The places of what may be a cause, by what it can explain; in the order of their lines."""
    causes: dict[Key, list[int]] = {}
    for place, each in enumerate(found):
        for key in _as_cause(each):
            causes.setdefault(key, []).append(place)
    return causes


def _as_cause(found: Found) -> Iterator[Key]:
    code, gpu = found.finding.code, found.gpu
    if code == _FABRIC:
        yield ("fabric", None, None)
    elif code in _PCIE:
        yield ("port", found.host, found.finding.subject)
        near = dict.fromkeys((*found.related, *((gpu.rsplit(".", 1)[0],) if gpu else ())))
        yield from (("link", found.host, part) for part in near or (None,))
    elif code.startswith("sxid."):
        yield ("switch", found.host, None)
    elif code == "driver.conflict":
        yield ("conflict", found.host, None)
    elif found.number is not None:
        yield ("gpu", found.host, gpu)
        if found.number == 79:
            yield ("lost", found.host, None)


def _as_effect(found: Found) -> Iterator[Key]:
    """Where a cause of it would stand."""
    code, number = found.finding.code, found.number
    if number in _NVLINK_XIDS or number == 45:
        yield from (("fabric", None, None), ("switch", found.host, None))
    if code in _PCIE:
        yield ("port", found.host, found.finding.subject)
    if number == 79:
        yield from (("link", found.host, found.gpu), ("link", found.host, None))
    if found.of_a_link:
        yield ("lost", found.host, None)
    if code == "driver.no_device":
        yield ("conflict", found.host, None)
    if found.gpu is not None and (number is not None or code in _GPU_GONE):
        yield ("gpu", found.host, found.gpu)


def _cause_of(effect: Found, found: Sequence[Found], causes: Mapping[Key, list[int]]) -> int | None:
    """The place of what explains `effect`; the strongest cause where several do."""
    near = [place for key in _as_effect(effect) for place in _nearest(causes.get(key, ()), effect, found)]
    good = [place for place in near if found[place] is not effect and _explains(found[place], effect)]
    return min(good, key=lambda place: (_rank(found[place]), found[place].line), default=None)


def _nearest(places: Sequence[int], effect: Found, found: Sequence[Found]) -> Sequence[int]:
    """Those whose lines stand nearest to the effect's."""
    if len(places) <= _LOOKED_AT:
        return places
    middle = bisect_left(places, effect.line, key=lambda place: found[place].line)
    begin = min(max(middle - _LOOKED_AT // 2, 0), len(places) - _LOOKED_AT)
    return places[begin : begin + _LOOKED_AT]


def _rank(found: Found) -> int:
    """The lower, the nearer to the cause; what explains has a lower rank than what it explains."""
    code = found.finding.code
    if code in _PCIE:
        return _PCIE.index(code)
    if code in _OTHER_RANKS:
        return _OTHER_RANKS[code]
    if code.startswith("sxid."):
        return 7
    number = found.number
    if number is None:
        return 100
    return 5 if number == 79 else 10 + _RANK.get(number, 50) + (30 if number in _LAST else 0)


def _explains(cause: Found, effect: Found) -> bool:
    if cause.finding.code == _FABRIC:
        return effect.number in _NVLINK_XIDS or effect.number == 45
    if cause.host != effect.host or _rank(cause) >= _rank(effect):
        return False
    if cause.finding.code in _PCIE:
        same_port = effect.finding.code in _PCIE and cause.finding.subject == effect.finding.subject
        return same_port or (effect.number == 79 and _lost_its_link(cause, effect))
    if cause.finding.code.startswith("sxid."):
        grave = gravity(cause.finding.severity) >= gravity(Severity.ERROR)
        return grave and (effect.number in _NVLINK_XIDS or effect.number == 45) and _near(cause, effect, _NEAR_SECONDS)
    if cause.number == 79 and effect.of_a_link:
        return _near(cause, effect, _NEAR_SECONDS)
    if cause.number is None:
        return cause.finding.code == "driver.conflict" and effect.finding.code == "driver.no_device"
    if cause.gpu != effect.gpu:
        return False
    if effect.number is None:
        return cause.number in _DEAD and effect.finding.code in _GPU_GONE and cause.line < effect.line
    return _explains_xid(cause, cause.number, effect, effect.number)


def _explains_xid(cause: Found, code: int, effect: Found, followed: int) -> bool:
    if code == 79 and followed not in _LAST:
        return followed in _FOLLOWERS[79] and cause.line < effect.line
    follows = code not in _LAST if followed in _LAST else followed in _FOLLOWERS.get(code, frozenset())
    return follows and _near(cause, effect, _SAME_GPU_SECONDS)


def _lost_its_link(cause: Found, effect: Found) -> bool:
    """Whether the PCIe fault is that of the lost GPU: its lines name it, or it stands just before."""
    if cause.related or cause.gpu:
        return effect.gpu in (*cause.related, *((cause.gpu.rsplit(".", 1)[0],) if cause.gpu else ()))
    if cause.seconds is not None and effect.seconds is not None:
        return cause.seconds <= effect.seconds and _near(cause, effect, _NEAR_SECONDS)
    return 0 <= effect.line - cause.line <= _NEAR_LINES


def _near(one: Found, other: Found, seconds: float) -> bool:
    """Whether the two are at most so far apart; where a time is not known, they may be."""
    begins = [each.seconds for each in (one, other)]
    ends = [each.last_seconds if each.last_seconds is not None else each.seconds for each in (one, other)]
    known = [time for time in (*begins, *ends) if time is not None]
    if len(known) < 4:
        return True
    return max(known[0], known[1]) - min(known[2], known[3]) <= seconds


def _root(place: int, parents: Sequence[int | None]) -> tuple[int, int]:
    """The last cause behind a finding, and how many causes lie between."""
    depth = 0
    while (parent := parents[place]) is not None and depth < len(parents):
        place, depth = parent, depth + 1
    return place, depth


def _told(found: Found, cause: Found | None, several_hosts: bool) -> Finding:
    finding = found.finding
    if several_hosts and found.host:
        finding = replace(finding, subject=f"{found.host} {finding.subject}")
    if cause is None:
        return finding
    finding = replace(finding, text=f"{finding.text} Follows from {cause.finding.code} of {cause.finding.subject}.")
    if found.number == 45:
        return replace(finding, severity=Severity.INFO, action=Action.NONE)
    if cause.finding.code == _FABRIC:
        return replace(finding, action=Action.INVESTIGATE)
    return finding
