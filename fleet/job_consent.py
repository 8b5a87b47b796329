"""What a job says of its checkpoints and of being disturbed.

A text of pairs, in the job's comment: `ckpt=/path;kind=megatron;signal=USR1;notice=30m;consent=yes`. The same keys may
come from the job's environment (`GPUFLEET_CKPT=/path`, or all in one `GPUFLEET_JOB`) and from a partition's rule. The
comment goes before the environment, and that before the rule; where the folder is said, the kind is taken too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches

from fleet.checkpoint_readers.values import CheckpointKind
from fleet.checkpoint_trees import nearest_kind, read_kind
from fleet.json_values import printable
from fleet.model import Job

PREFIX = "GPUFLEET_"
WHOLE = "GPUFLEET_JOB"
_ALIASES = {"checkpoint": "ckpt", "format": "kind", "framework": "kind"}
_PAIR = re.compile(
    r"""(?:^|(?<=[;,\s]))(?P<key>[a-z][\w.-]{0,40})\s*=\s*"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"(?=\s*(?:[;,\s]|$))|'[^']*'(?=\s*(?:[;,\s]|$))|"""
    r"""[^;\n\r]*?(?=\s{0,4}(?:;|\n|\r|$|,?(?<=[,\s])\s{0,4}"""
    r"""(?:ckpt|checkpoint|kind|format|framework|signal|notice|consent|interval|requeue)\s{0,4}=)))""",
    re.IGNORECASE,
)
_LONGEST_TEXT = 8192
_YES = frozenset({"yes", "y", "true", "1", "on", "ok", "now"})
_NO = frozenset({"no", "n", "false", "0", "off", "never"})
_SIGNALS = {"1": "HUP", "2": "INT", "10": "USR1", "12": "USR2", "15": "TERM"}
_SLURM_SIGNAL = re.compile(r"^(?:[BR]{1,2}:)?(?P<name>\w+)(?:@\d+)?$")
_PART_OF_A_JOB = re.compile(r"\d+[_+]")
_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_CLOCK = re.compile(r"^(?:(\d+)-)?(\d{1,3}):(\d{2})(?::(\d{2}))?$")
_LONGEST = 366 * 86400.0
_SHOWN = 60
_NO_SPAN = "is no length of time like 30m"
_NO_WORD = "is neither yes nor no"


@dataclass(frozen=True, slots=True)
class JobConsent:
    """None is "not said". `signals` False: the job forbids them. `consent` True: it may be disturbed at once.

    `source` says where the folder was named, also where `path` is None because that name is none that can be read: it
    is then not taken from elsewhere. `unknown` holds a text for each thing that was not understood.
    """

    path: str | None = None
    kind: CheckpointKind | None = None
    signal: str | None = None
    signals: bool | None = None
    notice: timedelta | None = None
    consent: bool | None = None
    interval: timedelta | None = None
    requeue: bool | None = None
    source: str | None = None
    unknown: tuple[str, ...] = ()


def read_duration(text: str) -> timedelta | None:
    """`30m`, `1h30m`, `90` (seconds), `2d`, or Slurm's `1-02:00:00` and `00:30:00`; None for anything else."""
    clean = text.strip().lower()
    if clock := _CLOCK.match(clean):
        days, first, second, third = clock.groups()
        if third is None and days is None:
            seconds = int(first) * 60.0 + int(second)
        else:
            seconds = int(days or 0) * 86400.0 + int(first) * 3600.0 + int(second) * 60.0 + int(third or 0)
    else:
        parts = _PART.findall(clean) if clean.isascii() else []
        if not parts or "".join(a + b for a, b in parts) != clean.replace(" ", ""):
            return None
        if any(unit not in _UNITS or (not unit and len(parts) > 1) for _, unit in parts):
            return None
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return timedelta(seconds=seconds) if seconds <= _LONGEST else None


def read_signal(text: str) -> str | None:
    """`USR1`, `SIGUSR1`, `10`, or Slurm's `B:USR1@120` → `USR1`; None for one that no job can answer."""
    match = _SLURM_SIGNAL.match(text.strip().upper())
    name = match["name"].removeprefix("SIG") if match else ""
    name = _SIGNALS.get(name, name)
    return name if name in _SIGNALS.values() else None


def read_job_text(text: str, source: str = "comment") -> JobConsent:
    """What one text says. Never raises; a text that holds no pair says nothing."""
    pairs: dict[str, str | None] = {}  # None: said twice, and differently
    unknown: list[str] = []
    for key, value in _pairs(text):
        known = _ALIASES.get(key.casefold(), key.casefold())
        if known not in _READERS:
            unknown.append(f"{source}: unknown key {_shown(key)!r}{_near(known)}")
        elif (first := pairs.setdefault(known, value)) != value:
            unknown.append(f"{source}: {known} is said twice, {_shown(first or '')!r} and {_shown(value)!r}")
            pairs[known] = None
    found, faults = _read_pairs(pairs, source)
    return replace(found, unknown=(*unknown, *faults))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    clean = text.strip()[:_LONGEST_TEXT]
    if len(clean) > 1 and clean[0] == clean[-1] and clean[0] in "\"'" and clean.count(clean[0]) == 2:
        clean = clean[1:-1]
    for match in _PAIR.finditer(clean):
        yield match["key"], _unquoted(match["value"])


def _unquoted(value: str) -> str:
    clean = value.strip()
    if len(clean) > 1 and clean[0] == clean[-1] and clean[0] in "\"'":
        inner = clean[1:-1]
        return re.sub(r"\\(.)", r"\1", inner) if clean[0] == '"' else inner
    return clean


def _read_pairs(pairs: Mapping[str, str | None], source: str) -> tuple[JobConsent, list[str]]:
    found, faults = JobConsent(), []
    for key, value in pairs.items():
        read, fault = _READERS[key](value) if value else (JobConsent(), "")
        found = _completed(found, replace(read, source=source) if key == "ckpt" and value != "" else read)
        if fault:
            faults.append(f"{source}: {key}={_shown(value or '')!r} {fault}")
    return found, faults


def _read_path(value: str) -> tuple[JobConsent, str]:
    path, fault = _path(value)
    return JobConsent(path=path), fault


def _read_kind(value: str) -> tuple[JobConsent, str]:
    kind = read_kind(value)
    return JobConsent(kind=kind), "" if kind else f"is no framework; {nearest_kind(value)}"


def _read_signal(value: str) -> tuple[JobConsent, str]:
    if value.casefold() in _NO | {"none"}:
        return JobConsent(signals=False), ""
    name = read_signal(value)
    if name is None:
        return JobConsent(), "is no signal to ask for a checkpoint with (USR1, USR2, TERM, INT, HUP, or none)"
    return JobConsent(signal=name, signals=True), ""


def _read_notice(value: str) -> tuple[JobConsent, str]:
    span = read_duration(value)
    return JobConsent(notice=span), _NO_SPAN if span is None else ""


def _read_interval(value: str) -> tuple[JobConsent, str]:
    span = read_duration(value) or None
    return JobConsent(interval=span), _NO_SPAN if span is None else ""


def _read_consent(value: str) -> tuple[JobConsent, str]:
    said = _yes_or_no(value)
    return JobConsent(consent=said), _NO_WORD if said is None else ""


def _read_requeue(value: str) -> tuple[JobConsent, str]:
    said = _yes_or_no(value)
    return JobConsent(requeue=said), _NO_WORD if said is None else ""


_READERS: dict[str, Callable[[str], tuple[JobConsent, str]]] = {
    "ckpt": _read_path,
    "kind": _read_kind,
    "signal": _read_signal,
    "notice": _read_notice,
    "consent": _read_consent,
    "interval": _read_interval,
    "requeue": _read_requeue,
}


def _yes_or_no(value: str) -> bool | None:
    word = value.strip().casefold()
    return True if word in _YES else (False if word in _NO else None)


def _path(value: str) -> tuple[str | None, str]:
    if re.match(r"^[A-Za-z][A-Za-z0-9+.-]*://", value):
        return None, "is no path on a file system that can be listed"
    if not value.startswith("/") or not value.isprintable():
        return None, "is no absolute path"
    if ".." in value.split("/"):
        return None, "goes upwards (..)"
    return (value.rstrip("/") or None), ""


def _near(key: str) -> str:
    near = get_close_matches(key, list(_READERS), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _shown(text: str) -> str:
    return str(printable(text))[:_SHOWN]


def read_environment(environment: Mapping[str, str]) -> JobConsent:
    """The same keys from a job's environment; `GPUFLEET_JOB` holds them all in one text, single ones go before it."""
    whole = read_job_text(environment.get(WHOLE, ""), "environment")
    pairs: dict[str, str | None] = {}
    for name, value in environment.items():
        key = name.removeprefix(PREFIX).casefold()
        key = _ALIASES.get(key, key)
        if name.startswith(PREFIX) and key in _READERS:
            pairs[key] = value.strip()
    found, faults = _read_pairs(pairs, "environment")
    return _merge(replace(found, unknown=tuple(faults)), whole)


def read_job_consent(job: Job, environment: Mapping[str, str] | None = None, rule: str | None = None) -> JobConsent:
    """What is said for this job, by its comment, its environment and its partition's rule, in that order.

    Slurm's patterns %j (job), %u (user) and %x (job name) in the folder are filled in; a value that would lead out of
    the folder is refused.
    """
    said = read_job_text(job.comment)
    if environment is not None:
        said = _merge(said, read_environment(environment))
    if rule is not None:
        said = _merge(said, read_job_text(rule, f"rule of partition {job.partition}"))
    return _filled(said, job)


def _merge(first: JobConsent, second: JobConsent) -> JobConsent:
    """What `first` does not say is taken from `second`; folder and kind go together."""
    if first.source is not None:
        second = replace(second, path=None, kind=None, source=None)
    if first.signals is not None:
        second = replace(second, signal=None)
    return _completed(first, second)


def _completed(first: JobConsent, second: JobConsent) -> JobConsent:
    return JobConsent(
        path=first.path or second.path,
        kind=first.kind or second.kind,
        signal=first.signal or second.signal,
        signals=first.signals if first.signals is not None else second.signals,
        notice=first.notice if first.notice is not None else second.notice,
        consent=first.consent if first.consent is not None else second.consent,
        interval=first.interval or second.interval,
        requeue=first.requeue if first.requeue is not None else second.requeue,
        source=first.source or second.source,
        unknown=(*first.unknown, *second.unknown),
    )


def _filled(said: JobConsent, job: Job) -> JobConsent:
    if said.path is None or "%" not in said.path:
        return said
    values = {"%j": job.id, "%u": job.user, "%x": job.name}
    path = re.sub("%[jux]", lambda match: values[match[0]], said.path)
    if "%j" in said.path and _PART_OF_A_JOB.match(job.id):  # its own $SLURM_JOB_ID is another number
        fault = f"{said.source}: %j in {_shown(said.path)!r} cannot be filled in for a task of an array"
        return replace(said, path=None, unknown=(*said.unknown, fault))
    used = [value for pattern, value in values.items() if pattern in said.path]
    if any(not value or "/" in value or value in {".", ".."} or not value.isprintable() for value in used):
        fault = f"{said.source}: the folder {_shown(said.path)!r} cannot be filled in for this job"
        return replace(said, path=None, unknown=(*said.unknown, fault))
    return replace(said, path=path)
