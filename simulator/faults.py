"""The faults file: which node misbehaves, how, and how often. Its part `drivers` is read by simulator/host/faults.py.

    faults:
      - {nodes: "gpu-[0001-0003]", kind: bmc_503, retry_after_seconds: 30, times: 4}
      - {share: 0.1, kind: task_vanishes}        # a random tenth of the fleet, by the fleet's seed

`nodes` names them, `share` draws them (nodes that no earlier entry took come first). `times` bounds how
often a fault bites on each node; every bite is a `fault` line of the truth log. Seconds are simulated.

| kind | what the BMC does | settings (default) |
|---|---|---|
| bmc_503 | 503 with Retry-After | times (3), retry_after_seconds (30), requests: any, push, task, inventory |
| refused | refuses connections for longer at its next restart | times (1), seconds (300) |
| task_vanishes | the task's URI answers 404 half way | times (1), staged: it writes all the same (true) |
| completed_old_version | the task ends Completed, nothing was written | times (1) |
| completed_with_warnings | Completed with TaskStatus Warning; the image is written | times (1) |
| exception_with_extended_info | the task ends in Exception, nothing was written | times (1) |
| already_current | says that the version is there already | times (1), answer: refusal, exception (refusal) |
| slow_answers | answers late | times (20), seconds (20) |
| session_expires | forgets all sessions at a request that brings a token | times (2) |
| truncated_body | breaks off in the middle of an answer | times (2) |
| stuck_task | the task stays Running until the BMC restarts | times (1) |
| stale_inventory | shows the old versions after an activation | times (1), seconds (120) |
| wrong_reset_ignored | accepts a reset and does nothing | times (1), reset: any, or a ResetKind (any) |
| clock_1970 | its clock starts in 1970 at each restart | times (0: always) |
| update_fails_first_n | the first tasks fail, later ones work | times (1) |
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import yaml

from fleet.errors import ConfigurationError

Setting = float | str | bool


class FaultKind(StrEnum):
    BMC_503 = "bmc_503"
    REFUSED = "refused"
    TASK_VANISHES = "task_vanishes"
    COMPLETED_OLD_VERSION = "completed_old_version"
    COMPLETED_WITH_WARNINGS = "completed_with_warnings"
    EXCEPTION_WITH_EXTENDED_INFO = "exception_with_extended_info"
    ALREADY_CURRENT = "already_current"
    SLOW_ANSWERS = "slow_answers"
    SESSION_EXPIRES = "session_expires"
    TRUNCATED_BODY = "truncated_body"
    STUCK_TASK = "stuck_task"
    STALE_INVENTORY = "stale_inventory"
    WRONG_RESET_IGNORED = "wrong_reset_ignored"
    CLOCK_1970 = "clock_1970"
    UPDATE_FAILS_FIRST_N = "update_fails_first_n"


_TIMES: Mapping[FaultKind, int] = {
    FaultKind.BMC_503: 3,
    FaultKind.SLOW_ANSWERS: 20,
    FaultKind.SESSION_EXPIRES: 2,
    FaultKind.TRUNCATED_BODY: 2,
    FaultKind.CLOCK_1970: 0,
}

_SETTINGS: Mapping[FaultKind, Mapping[str, Setting]] = {
    FaultKind.BMC_503: {"retry_after_seconds": 30.0, "requests": "any"},
    FaultKind.REFUSED: {"seconds": 300.0},
    FaultKind.TASK_VANISHES: {"staged": True},
    FaultKind.ALREADY_CURRENT: {"answer": "refusal"},
    FaultKind.SLOW_ANSWERS: {"seconds": 20.0},
    FaultKind.STALE_INVENTORY: {"seconds": 120.0},
    FaultKind.WRONG_RESET_IGNORED: {"reset": "any"},
}

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "requests": ("any", "push", "task", "inventory"),
    "answer": ("refusal", "exception"),
    "reset": ("any", "host_reboot", "bmc_reset", "ac_cycle"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one node; `times` 0 bites always. Make it with `fault`, which knows the defaults."""

    kind: FaultKind
    times: int
    settings: Mapping[str, Setting]

    def seconds(self, name: str = "seconds") -> float:
        return float(self.settings[name])

    def text(self, name: str) -> str:
        return str(self.settings[name])

    def flag(self, name: str) -> bool:
        return bool(self.settings[name])


def make_fault(kind: FaultKind, times: int | None = None, settings: Mapping[str, Setting] | None = None) -> Fault:
    """A fault with its kind's defaults. Raises ValueError for a setting that it has not, or a wrong value."""
    known = _SETTINGS.get(kind, {})
    for name, value in (settings or {}).items():
        if name not in known:
            raise ValueError(f"{kind} has no setting {nearest(name, [*known, 'times', 'nodes', 'share', 'kind'])}")
        _check_value(name, value, known[name])
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 0):
        raise ValueError(f"times must be a whole number from 0 (always), not {times!r}")
    return Fault(kind, _TIMES.get(kind, 1) if times is None else times, {**known, **(settings or {})})


def _check_value(name: str, value: object, default: Setting) -> None:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, not {value!r}")
    elif isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise ValueError(f"{name} must be seconds from 0, not {value!r}")
    elif value not in _CHOICES[name]:
        raise ValueError(f"{name} must be {' or '.join(_CHOICES[name])}, not {nearest(str(value), _CHOICES[name])}")


def parse_faults(text: str, filename: str, nodes: Iterable[str], seed: int) -> dict[str, list[Fault]]:
    """The faults of each node that has any.

    Raises ConfigurationError that lists every wrong entry with its position and the nearest right word.
    """
    names = list(nodes)
    faults: dict[str, list[Fault]] = {}
    wrong: list[str] = []
    for position, entry in enumerate(_entries(text, filename)):
        try:
            fault = _read_entry(entry)
            for node in _pick(entry, names, set(faults), random.Random(f"{seed} {position}")):
                faults.setdefault(node, []).append(fault)
        except ValueError as error:
            wrong.append(f"{filename}: faults[{position}]: {error}")
    if wrong:
        raise ConfigurationError("\n".join(wrong))
    return faults


def section(text: str, filename: str, key: str) -> object:
    """What the faults file has below `faults` or `drivers`; None where it has no such key.

    Raises ConfigurationError for a text that is no faults file.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{filename}: not YAML: {error}") from error
    if not isinstance(data, dict) or not data or not set(data) <= {"faults", "drivers"}:
        raise ConfigurationError(f"{filename}: a faults file has the keys `faults`, a list of faults, and `drivers`")
    return data.get(key)


def _entries(text: str, filename: str) -> list[dict[str, object]]:
    faults = section(text, filename, "faults")
    if faults is None:
        return []
    if not isinstance(faults, list) or not all(isinstance(entry, dict) for entry in faults):
        raise ConfigurationError(f"{filename}: each fault is a mapping like {{share: 0.1, kind: bmc_503}}")
    return faults


def _read_entry(entry: Mapping[str, object]) -> Fault:
    if "kind" not in entry:
        raise ValueError(f"no kind; use one of {', '.join(FaultKind)}")
    try:
        kind = FaultKind(str(entry["kind"]))
    except ValueError:
        raise ValueError(f"no fault of kind {nearest(str(entry['kind']), list(FaultKind))}") from None
    times = entry.get("times")
    if times is not None and not isinstance(times, int):
        raise ValueError(f"times must be a whole number from 0 (always), not {times!r}")
    settings: dict[str, Setting] = {}
    for name, value in entry.items():
        if name in {"kind", "times", "nodes", "share"}:
            continue
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} must be a plain value, not {value!r}")
        settings[str(name)] = value
    return make_fault(kind, times, settings)


def _pick(entry: Mapping[str, object], names: list[str], taken: set[str], rng: random.Random) -> list[str]:
    pattern, share = entry.get("nodes"), entry.get("share")
    if (pattern is None) == (share is None):
        raise ValueError("give exactly one of nodes and share")
    if pattern is not None:
        chosen = expand_nodes(str(pattern))
        for node in chosen:
            if node not in names:
                raise ValueError(f"no node {nearest(node, names)}")
        return chosen
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1, not {share!r}")
    shuffled = rng.sample(names, len(names))
    shuffled.sort(key=lambda node: node in taken)
    return sorted(shuffled[: round(share * len(names))])


def expand_nodes(pattern: str) -> list[str]:
    """`gpu-[0001-0003,7],login` → names, in order. Raises ValueError for an unreadable range."""
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", pattern):
        found = re.fullmatch(r"([^\[\]]*)\[([^\]]+)\]([^\[\]]*)", part)
        if found is None:
            names.append(part.strip())
            continue
        before, ranges, after = found.groups()
        names += [f"{before.strip()}{n}{after}" for piece in ranges.split(",") for n in _expand_range(piece)]
    if not names:
        raise ValueError(f"no nodes in {pattern!r}")
    return names


def _expand_range(piece: str) -> list[str]:
    found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", piece)
    if found is None:
        raise ValueError(f"cannot read the range {piece!r}; write it like [0001-0016]")
    first, last = found.group(1), found.group(2) or found.group(1)
    if int(last) < int(first):
        raise ValueError(f"the range {piece!r} runs backwards")
    return [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]


def nearest(word: str, known: Iterable[str]) -> str:
    """The word in quotes, with the known one that is nearest to it."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.4)
    return f"{word!r} (nearest: {near[0]})" if near else repr(word)
