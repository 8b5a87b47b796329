"""The conditions of a measurement on a host: is it idle and cool before, and what slowed it while it ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fleet.canary_settings import CanarySettings
from fleet.errors import TransientError
from fleet.measure_readers.conditions import (
    NEW_REASONS,
    OLD_REASONS,
    ConditionsReading,
    ForeignProcess,
    GpuConditions,
    conditions_query,
    is_unknown_field,
    processes_query,
    read_conditions,
    read_processes,
)
from fleet.measures import Conditions
from fleet.ports import Clock, CommandResult, Host

_LOOK_SECONDS = 30.0  # nvidia-smi on a node whose GPU is dying hangs
_SETTLED_CELSIUS = 1.0  # what a GPU may fall between two looks and yet count as cool
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether a test may begin. `others` counts the processes on each GPU by its UUID; None: could not be asked.

    `waits` says what stands against it ("" where nothing does).
    """

    others: Mapping[str, int] | None
    gpus: tuple[GpuConditions, ...]
    waits: str = ""


@dataclass
class Watch:
    """Looks at one host. What it learns is kept from test to test: the name of the mask, and each GPU's idle heat."""

    host: Host
    clock: Clock
    settings: CanarySettings
    idle_celsius: dict[int, float] = field(default_factory=dict)
    reasons: str = NEW_REASONS

    def look(self) -> ConditionsReading:
        """One look at all GPUs; a host or driver that does not answer is a reading with a problem."""
        try:
            answer = self.host.run(conditions_query(self.reasons), _LOOK_SECONDS)
            if is_unknown_field(answer.stdout + answer.stderr) and self.reasons == NEW_REASONS:
                self.reasons = OLD_REASONS
                answer = self.host.run(conditions_query(self.reasons), _LOOK_SECONDS)
        except TransientError as error:
            return ConditionsReading((), error.message)
        return read_conditions(f"{answer.stdout}\n{answer.stderr}")

    def processes(self) -> tuple[ForeignProcess, ...] | None:
        """The compute processes on the GPUs; None where it cannot be told."""
        try:
            answer = self.host.run(processes_query(), _LOOK_SECONDS)
        except TransientError:
            return None
        return read_processes(f"{answer.stdout}\n{answer.stderr}")

    def wait_until_ready(self, cool: bool) -> Ready:
        """Wait until no process holds a GPU and, with `cool`, the GPUs are near their idle temperature.

        Bounded by the settings. Heat that does not go is no hindrance: it is a condition of the measurement.
        """
        deadline = self.clock.monotonic() + self.settings.cool_seconds
        before: ConditionsReading | None = None
        while True:
            processes, now = self.processes(), self.look()
            is_cool = not cool or self._is_cool(before, now)
            late = self.clock.monotonic() >= deadline
            if late or (not processes and is_cool):
                return Ready(_counted(processes), now.gpus, _holders(processes))
            before = now
            self.clock.sleep(self.settings.cool_poll_seconds)

    def _is_cool(self, before: ConditionsReading | None, now: ConditionsReading) -> bool:
        """Near the lowest heat seen at rest, or no longer falling. What tells no temperature is not waited for."""
        heat = {gpu.index: gpu.celsius for gpu in now.gpus if gpu.celsius is not None}
        within = self.settings.cool_within_celsius
        if all(index in self.idle_celsius and hot <= self.idle_celsius[index] + within for index, hot in heat.items()):
            return True
        if before is None:
            return False
        was = {gpu.index: gpu.celsius for gpu in before.gpus if gpu.celsius is not None}
        if any(was.get(index, celsius) - celsius >= _SETTLED_CELSIUS for index, celsius in heat.items()):
            return False
        for index, celsius in heat.items():
            self.idle_celsius[index] = min(self.idle_celsius.get(index, celsius), celsius)
        return True

    def run(self, command: tuple[str, ...], timeout_seconds: float) -> tuple[CommandResult, list[ConditionsReading]]:
        """Run the command, and look at the GPUs every `look_seconds` meanwhile.

        Raises what `Host.run` raises.
        """
        looks: list[ConditionsReading] = []
        with ThreadPoolExecutor(1, thread_name_prefix="measure") as executor:
            running = executor.submit(self.host.run, command, timeout_seconds)
            while not running.done():
                self.clock.sleep(self.settings.look_seconds)
                if not running.done():
                    looks.append(self.look())
            return running.result(), looks


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen around one run of a test: before it, from time to time during it, and right after it."""

    ready: Ready
    looks: Sequence[ConditionsReading] = ()
    after: Sequence[ForeignProcess] = ()

    def conditions(self, index: int | None, uuid: str | None, inlet_celsius: float | None) -> Conditions:
        """Those of one GPU's value (nvidia-smi's `index`, and its UUID), or of the whole node's with None for both.

        Reasons count only from looks while the test ran: before it, an idle GPU is slowed by nothing.
        """
        during = [gpu for look in self.looks for gpu in look.gpus if index in (None, gpu.index)]
        before = [gpu for gpu in self.ready.gpus if index in (None, gpu.index)]
        limits = [gpu.power_limit_watts for gpu in (*during, *before) if gpu.power_limit_watts is not None]
        heat = [gpu.celsius for gpu in (*during, *before) if gpu.celsius is not None]
        return Conditions(
            throttled=_slowed(during),
            inlet_celsius=inlet_celsius,
            gpu_celsius=max(heat, default=None),
            power_limit_watts=min(limits, default=None),
            others=self._others(uuid),
        )

    def _others(self, uuid: str | None) -> int | None:
        """Processes that are not the test's: those that were there before it began, or are when it has ended."""
        if self.ready.others is None:
            return None
        counts = self.ready.others
        before = sum(counts.values()) if uuid is None else counts.get(uuid, 0)
        after = [process for process in self.after if uuid in (None, process.gpu_uuid)]
        return max(before, len(after))


def _slowed(looks: Sequence[GpuConditions]) -> tuple[str, ...] | None:
    """All reasons seen; none is only said where every look told its mask."""
    found = dict.fromkeys(reason for look in looks for reason in look.slowed or ())
    told = bool(looks) and all(look.slowed is not None for look in looks)
    return tuple(found) if found or told else None


def _counted(processes: Sequence[ForeignProcess] | None) -> Mapping[str, int] | None:
    if processes is None:
        return None
    uuids = [process.gpu_uuid for process in processes]
    return {uuid: uuids.count(uuid) for uuid in uuids}


def _holders(processes: Sequence[ForeignProcess] | None) -> str:
    shown = [f"pid {process.pid} ({process.name})" for process in (processes or ())[:_SHOWN]]
    more = len(processes or ()) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
