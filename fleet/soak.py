"""Where a burn-in stands, from the tests that were run: which test is next, and how long each part has had no fault.

The state is made from the list of runs alone, so that a process that was killed goes on at the test it was at, and
runs no test again that was complete. A run that has no end was interrupted, and is run again. A test that was
inconclusive is tried again as often as the rule says, and then passed over by name; its time counts as nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.soak_levels import SoakLevel, SoakStep

WHOLE_NODE = ("node",)
_NONE = timedelta(0)


class RunOutcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class SoakRun:
    """One run of a test. `ended` and `outcome` are None while it runs, and for ever if it was interrupted.

    `faulty` names the parts (serials) that failed it; a failed run without names is a fault of all that it tested.
    `parts` are those that it tested, None only where it was all that are in the node now: after a part was replaced,
    the runs before it must name theirs, else the new part gets their time.
    """

    test: str
    begun: datetime
    ended: datetime | None = None
    outcome: RunOutcome | None = None
    faulty: tuple[str, ...] = ()
    parts: tuple[str, ...] | None = None

    @property
    def complete(self) -> bool:
        """Passed or failed: not to be run again."""
        return self.ended is not None and self.outcome in (RunOutcome.PASSED, RunOutcome.FAILED)


@dataclass(frozen=True, slots=True)
class PartClock:
    """`clear` is the time under load since the part's last fault, or since it came; `spells` the fault-free times that
    each ended with a fault."""

    part: str
    clear: timedelta = _NONE
    spells: tuple[timedelta, ...] = ()


@dataclass(frozen=True, slots=True)
class NextTest:
    """The test to run now: its place in the level and its cycle (0: the opening). `tries` counts the runs of it that
    came to nothing; `cool_first` asks for a cool-down, since a test that heats ran last."""

    number: int
    cycle: int
    step: SoakStep
    tries: int
    cool_first: bool


@dataclass(frozen=True, slots=True)
class SoakState:
    """`next` is None when the level is at its end by itself. `clocks` are of the parts that are in the node now,
    `gone` of those that were tested and are not. `passed_over` names the tests that stayed inconclusive."""

    level: SoakLevel
    next: NextTest | None
    clocks: tuple[PartClock, ...]
    gone: tuple[PartClock, ...]
    passed_over: tuple[str, ...]
    complete: int
    interrupted: int

    @property
    def opened(self) -> bool:
        """Whether each test of the opening was complete or passed over."""
        return self.next is None or self.next.cycle > 0


@dataclass(slots=True)
class _Progress:
    """How often a test was done with, and the fruitless runs since."""

    done: int = 0
    inconclusive: int = 0
    interrupted: int = 0


def soak_state(
    level: SoakLevel,
    runs: Iterable[SoakRun],
    parts: Sequence[str] = WHOLE_NODE,
    *,
    tries: int = 3,
    most_interrupted: int = 10,
) -> SoakState:
    """`parts` are in the node now. Times must all have a time zone, or none of them."""
    ordered = sorted(runs, key=lambda run: run.begun)
    progress: dict[str, _Progress] = {}
    passed_over: list[str] = []
    for run in ordered:
        of_test = progress.setdefault(run.test, _Progress())
        of_test.inconclusive += run.ended is not None and not run.complete
        of_test.interrupted += run.ended is None
        given_up = of_test.inconclusive >= tries or of_test.interrupted >= most_interrupted
        if run.complete or given_up:
            passed_over += [] if run.complete else [run.test]
            progress[run.test] = _Progress(of_test.done + 1)
    clocks = _clocks(level, ordered, tuple(parts))
    return SoakState(
        level=level,
        next=_next(level, progress, ordered),
        clocks=tuple(clocks.pop(part) for part in dict.fromkeys(parts)),
        gone=tuple(clocks.values()),
        passed_over=tuple(dict.fromkeys(passed_over)),
        complete=sum(run.complete for run in ordered),
        interrupted=sum(run.ended is None for run in ordered),
    )


def _next(level: SoakLevel, progress: dict[str, _Progress], ordered: Sequence[SoakRun]) -> NextTest | None:
    """The first place of the level whose test has not been done with as often as the level has it until there."""
    wanted = Counter[str]()
    number = 0
    while (step := level.step(number)) is not None:
        wanted[step.test] += 1
        of_test = progress.get(step.test, _Progress())
        if of_test.done < wanted[step.test]:
            fruitless = of_test.inconclusive + of_test.interrupted
            return NextTest(number, level.cycle_of(number), step, fruitless, step.cool and _hot(level, ordered))
        number += 1
    return None


def _hot(level: SoakLevel, ordered: Sequence[SoakRun]) -> bool:
    """Whether what ran last heats; a test that the level does not have may."""
    if not ordered:
        return False
    heats = {step.test: step.heats for step in (*level.opening, *level.cycle)}
    return heats.get(ordered[-1].test, True)


@dataclass(slots=True)
class _Running:
    clear: timedelta = _NONE
    spells: list[timedelta] = field(default_factory=list)


def _clocks(level: SoakLevel, ordered: Sequence[SoakRun], parts: tuple[str, ...]) -> dict[str, PartClock]:
    """Time counts once, however many runs overlap; a failed run adds nothing to the parts that failed it, since nobody
    knows when in it they did."""
    loading = {step.test for step in (*level.opening, *level.cycle) if step.loads}
    running: dict[str, _Running] = {part: _Running() for part in parts}
    counted: dict[str, datetime] = {}
    for run in sorted((run for run in ordered if run.complete), key=lambda run: run.ended or run.begun):
        tested = run.parts if run.parts is not None else parts
        failed = run.outcome is RunOutcome.FAILED
        faulty = frozenset(run.faulty or tested) if failed else frozenset[str]()
        for part in dict.fromkeys((*tested, *(run.faulty if failed else ()))):
            clock = running.setdefault(part, _Running())
            if part in faulty:
                clock.spells.append(clock.clear)
                clock.clear = _NONE
            elif run.test in loading:
                clock.clear += _new_time(run, counted.get(part))
            counted[part] = max(run.ended or run.begun, counted.get(part, run.begun))
    return {part: PartClock(part, clock.clear, tuple(clock.spells)) for part, clock in running.items()}


def _new_time(run: SoakRun, counted: datetime | None) -> timedelta:
    """What the run adds after the moment until which time was counted."""
    begun = run.begun if counted is None else max(run.begun, counted)
    return max((run.ended or run.begun) - begun, _NONE)
