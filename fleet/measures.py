"""What is measured on nodes to judge a change, and one measurement. The words of every verdict on a change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Better(StrEnum):
    HIGHER = "higher"
    LOWER = "lower"


class MeasureKind(StrEnum):
    """Where a value comes from, and so how it is compared."""

    BENCHMARK = "benchmark"  # a run on a drained node
    SERIES = "series"  # a level that a metrics server kept: clocks, utilisation, temperatures
    COUNT = "count"  # events in an exposure: Xid, ECC, replays, remapped rows
    STEP_TIME = "step_time"  # of a job, from its beacon


class Cohort(StrEnum):
    CANARY = "canary"  # gets the change
    CONTROL = "control"  # does not, and is watched at the same time


class Phase(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Measure:
    """`margin` is the loss that is accepted, as a share of the value before: 0.02 for 2 %.

    A COUNT has no share: its margin is the ratio of rates above one that is accepted.
    """

    name: str
    unit: str
    better: Better
    kind: MeasureKind
    margin: float = 0.02


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was so while it was measured; None: not known, which is not "no".

    `throttled` names the clocks event reasons that slowed it ("hw_thermal", "sw_power_cap" …). `others` counts
    processes on the GPU that are not the measurement's own.
    """

    throttled: tuple[str, ...] | None = None
    inlet_celsius: float | None = None
    gpu_celsius: float | None = None
    power_limit_watts: float | None = None
    others: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. `value` None with `missing` saying why: it is not zero.

    `gpu` is the slot on the node, None for a value of the whole node. `run` counts repetitions on one node and phase.
    `exposure_hours` is what a COUNT was counted over.
    """

    node: str
    measure: str
    phase: Phase
    at: datetime
    value: float | None
    gpu: int | None = None
    run: int = 0
    missing: str = ""
    exposure_hours: float | None = None
    conditions: Conditions = Conditions()


@dataclass(frozen=True, slots=True)
class NodeTraits:
    """What nodes of one stratum share. `age_days` None where it is not known since when the node serves."""

    node: str
    model: str
    rack: str
    firmware: str
    age_days: float | None = None
