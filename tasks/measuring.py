"""Running benchmarks on a drained node: samples with their conditions, and the raw output of each run kept.

Nothing here judges. A value that could not be had is a sample that says why; only a host that must not be talked to
any more (its key changed, it refuses our login) ends the measuring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fleet.canary_settings import CanarySettings
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, HostKeyChanged, TransientError
from fleet.measure_plan import MeasureCommand, measure_plan
from fleet.measure_readers.conditions import read_gpu_list
from fleet.measure_readers.values import Measured, ToolReading
from fleet.measure_record import MeasuredWith, Measurements, RawOutput
from fleet.measures import Conditions, Phase, Sample
from fleet.ports import Clock, CommandResult, Host
from fleet.readers.nvidia_smi_errors import read_errors
from fleet.readers.plain_text import evidence
from tasks.measuring_conditions import Observed, Ready, Watch

_LIST_SECONDS = 60.0
_CANNOT_RUN = (126, 127)
_NOT_FOUND = ("not found", "No such file or directory", "a password is required")
_SHORT = 2000  # what a shell says of a missing command, as against what a tool prints
_BEFORE_NAMES = ("env", "sudo", "-n")


class EvidenceStore(Protocol):
    """Where raw output is kept."""

    def keep(self, text: str) -> str:
        """Keep the text for good; returns the SHA-256 of its UTF-8 bytes in hexadecimal. Twice does no harm."""
        ...


@dataclass(frozen=True, slots=True)
class Bench:
    """What one node is measured with. `gpus` is how many it must have, None: as many as answer.

    `inlet` reads the air's temperature where it enters (°C, None: not known); `say` tells how far the measuring is;
    `prefix` are words before every tool's command ("sudo", "-n").
    """

    node: str
    host: Host
    clock: Clock
    store: EvidenceStore
    gpus: int | None = None
    inlet: Callable[[], float | None] = lambda: None
    say: Callable[[str], None] = lambda _: None
    prefix: tuple[str, ...] = ()


@dataclass
class Session:
    """One node's measuring while it goes on. `uuids` are by nvidia-smi's index, `slots` by UUID.

    `lost` are slots whose GPU does not answer; `before` is what the node was measured with in an earlier phase.
    """

    bench: Bench
    phase: Phase
    watch: Watch
    uuids: Mapping[int, str]
    slots: Mapping[str, int]
    lost: tuple[int, ...]
    before: MeasuredWith
    tools: dict[str, tuple[str, ...]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    raw: list[RawOutput] = field(default_factory=list)


def measure_node(
    bench: Bench, phase: Phase, runs: int, settings: CanarySettings, before: MeasuredWith | None = None
) -> Measurements:
    """Every benchmark of the settings, `runs` times.

    `before` is what the node was measured with in its first phase: the same tools and slots are used, or the sample
    is missing and says so. Raises ConfigurationError (HostKeyChanged, CredentialsRejected, or evidence that cannot be
    kept).
    """
    before = before or MeasuredWith()
    uuids, problem = _list_gpus(bench)
    if not uuids:
        gpus = bench.gpus or len(before.slots) or None
        return Measurements(tuple(_all_missing(bench, phase, runs, settings, gpus, problem)), (), before)
    slots, lost = _slots(uuids, before.slots, bench.gpus)
    session = Session(bench, phase, Watch(bench.host, bench.clock, settings), uuids, slots, lost, before)
    samples: list[Sample] = []
    for run in range(runs):
        for command in measure_plan(settings, len(uuids)):
            bench.say(f"measures {command.measure.name}, run {run + 1} of {runs}")
            samples += measure_once(session, command, run)
    tools, versions = {**session.tools, **before.tools}, {**session.versions, **before.versions}
    return Measurements(tuple(samples), tuple(session.raw), MeasuredWith(tools, versions, slots))


def measure_once(session: Session, command: MeasureCommand, run: int) -> tuple[Sample, ...]:
    """One run of one benchmark: wait until the GPUs are ready, run it, read what it printed."""
    ready = session.watch.wait_until_ready(command.cool)
    if ready.waits:
        return _samples(session, command, run, _none(session, command, _busy(ready)), Observed(ready))
    refusals: list[str] = []
    for words in _candidates(session, command):
        try:
            answer, looks = session.watch.run((*session.bench.prefix, *words), command.timeout_seconds)
        except (HostKeyChanged, CredentialsRejected):
            raise
        except (TransientError, ConfigurationError) as error:  # the latter: it printed more than is taken
            refusals.append(error.message)
            break
        observed = Observed(ready, looks, session.watch.processes() or ())
        reading = command.read(f"{answer.stdout}\n{answer.stderr}", len(session.uuids))
        _keep(session, command, run, words, answer, reading, observed)
        refusal = _refusal(command, words, answer, reading)
        if refusal is None:
            return _samples(session, command, run, _comparable(session, command, words, reading), observed)
        refusals.append(refusal)
    if command.measure.name in session.before.tools:
        refusals.append("before the change it was measured with this very tool, and another would not compare")
    return _samples(session, command, run, _none(session, command, "; ".join(refusals)), Observed(ready))


def _list_gpus(bench: Bench) -> tuple[Mapping[int, str], str]:
    """The UUIDs of the GPUs that answer, by nvidia-smi's index, and why there are none."""
    try:
        answer = bench.host.run(("nvidia-smi", "-L"), _LIST_SECONDS)
    except TransientError as error:
        return {}, error.message
    printed = f"{answer.stdout}\n{answer.stderr}"
    errors = read_errors(printed)
    said = errors[0].line if errors else printed.strip() or "it printed nothing"
    return read_gpu_list(answer.stdout), evidence(f"nvidia-smi lists no GPU: {said}")


def _slots(
    uuids: Mapping[int, str], known: Mapping[str, int], expected: int | None
) -> tuple[dict[str, int], tuple[int, ...]]:
    """The slot of each GPU that answers, and the slots whose GPU does not.

    A UUID that was not there before is a part that was put in since: it gets the lowest slot that is free.
    """
    slots = {uuid: known[uuid] for uuid in uuids.values() if uuid in known}
    if not known:
        slots = {uuid: index for index, uuid in uuids.items()}
    every = set(range(max(expected or 0, len(uuids)))) | set(known.values()) | set(slots.values())
    free = iter(sorted(every - set(slots.values())))
    for uuid in uuids.values():
        if uuid not in slots:
            slots[uuid] = next(free, len(every))
    return slots, tuple(sorted(every - set(slots.values())))


def _candidates(session: Session, command: MeasureCommand) -> tuple[tuple[str, ...], ...]:
    """The tool that measured it before, and no other unless the settings allow it; else all that may."""
    name = command.measure.name
    known = session.before.tools.get(name) or session.tools.get(name)
    if known is None:
        return command.candidates
    others = command.candidates if session.watch.settings.tools.across_cuda_versions else ()
    return (known, *(other for other in others if other != known))


def _comparable(session: Session, command: MeasureCommand, words: tuple[str, ...], reading: ToolReading) -> ToolReading:
    """The reading, if the tool is of the version that measured before; else one that says so."""
    name = command.measure.name
    session.tools.setdefault(name, words)
    if not any(value.value is not None for value in reading.values):
        return reading
    known = session.before.versions.get(name) or session.versions.setdefault(name, reading.tool)
    if reading.tool == known:
        return reading
    return _none(session, command, f"measured with {reading.tool}, and before with {known}: they do not compare")


def _busy(ready: Ready) -> str:
    return f"not measured: {ready.waits} holds a GPU that must be idle"


def _refusal(
    command: MeasureCommand, words: tuple[str, ...], answer: CommandResult, reading: ToolReading
) -> str | None:
    """Why the tool did not even begin; None where it did, whatever came of it.

    A shell's status for "no such command" is also some tools' own: values decide first.
    """
    if any(value.value is not None for value in reading.values):
        return None
    name = next((word for word in words if word not in _BEFORE_NAMES and "=" not in word), words[0])
    said = answer.stderr.strip() or answer.stdout.strip()
    if command.refused(f"{answer.stdout}\n{answer.stderr}"):
        return f"{name} does not fit the driver's CUDA version"
    if "shared librar" in said and answer.code != 0:
        return evidence(f"{name} cannot start: {said}")
    silent = not answer.stdout.strip() and len(said) < _SHORT
    if answer.code in _CANNOT_RUN and silent:
        return f"{name} is not installed" if answer.code == _CANNOT_RUN[1] else evidence(f"{name} cannot run: {said}")
    if answer.code != 0 and silent and any(text in said for text in _NOT_FOUND):
        return evidence(f"{name} cannot be run: {said}")
    return None


def _none(session: Session, command: MeasureCommand, reason: str) -> ToolReading:
    gpus = range(len(session.uuids)) if command.per_gpu else (None,)
    return ToolReading(tuple(Measured(gpu, None, reason) for gpu in gpus), "", {})


def _samples(
    session: Session, command: MeasureCommand, run: int, reading: ToolReading, observed: Observed
) -> tuple[Sample, ...]:
    """The reading's values by slot, each with its conditions, and one that is missing for every lost GPU."""
    inlet, at = _inlet(session.bench), session.bench.clock.now()

    def sample(value: float | None, slot: int | None, missing: str, conditions: Conditions) -> Sample:
        node, phase, name = session.bench.node, session.phase, command.measure.name
        return Sample(node, name, phase, at, value, slot, run, missing, conditions=conditions)

    order = _order(reading.addresses, len(session.uuids))
    found: list[Sample] = []
    for value in reading.values:
        index = None if value.gpu is None else order.get(value.gpu, value.gpu)
        uuid = None if index is None else session.uuids.get(index)
        slot = index if uuid is None else session.slots[uuid]
        found.append(sample(value.value, slot, value.missing, observed.conditions(index, uuid, inlet)))
    if command.per_gpu:
        found += [sample(None, slot, "its GPU does not answer to the driver", Conditions()) for slot in session.lost]
    return tuple(found)


def _inlet(bench: Bench) -> float | None:
    """The air at the inlet; a BMC that does not tell it does not stop a measurement."""
    try:
        return bench.inlet()
    except FleetError:
        return None


def _order(addresses: Mapping[int, str], gpus: int) -> Mapping[int, int]:
    """nvidia-smi's index of each of the tool's GPUs: it counts them by PCI address, and a tool may not.

    Empty where the tool does not print the address of every GPU; its own count then stands.
    """
    if len(set(addresses.values())) != gpus:
        return {}
    ranked = sorted(addresses, key=lambda index: addresses[index])
    return {index: rank for rank, index in enumerate(ranked)}


def _keep(
    session: Session,
    command: MeasureCommand,
    run: int,
    words: tuple[str, ...],
    answer: CommandResult,
    reading: ToolReading,
    observed: Observed,
) -> None:
    """Everything that the values could be computed from again, as one JSON document."""
    bench, name = session.bench, command.measure.name
    document = {
        "node": bench.node,
        "measure": name,
        "phase": session.phase.value,
        "run": run,
        "at": bench.clock.now().isoformat(),
        "command": [*bench.prefix, *words],
        "code": answer.code,
        "stdout": answer.stdout,
        "stderr": answer.stderr,
        "gpus": {str(index): uuid for index, uuid in session.uuids.items()},
        "looks": [
            [{"gpu": g.index, "slowed": g.slowed, "celsius": g.celsius, "watts": g.power_draw_watts} for g in look.gpus]
            for look in observed.looks
        ],
    }
    digest = bench.store.keep(json.dumps(document, ensure_ascii=False, indent=1))
    session.raw.append(RawOutput(name, run, words, reading.tool or words[0], answer.code, digest))


def _all_missing(
    bench: Bench, phase: Phase, runs: int, settings: CanarySettings, gpus: int | None, reason: str
) -> Iterator[Sample]:
    """For a node none of whose GPUs answers: a sample for each slot, where it is known how many there are."""
    at = bench.clock.now()
    for run in range(runs):
        for command in measure_plan(settings, gpus or 2):  # with two, no measure is left out
            slots: Sequence[int | None] = range(gpus) if gpus and command.per_gpu else (None,)
            for slot in slots:
                yield Sample(bench.node, command.measure.name, phase, at, None, slot, run, reason)
