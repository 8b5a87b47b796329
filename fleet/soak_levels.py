"""The levels of burn-in as values: which tests, in which order, for how long.

Order within a level: sanity, validation, performance, stress. Bandwidth is measured before the heat, or after a
cool-down. Whole racks under full load are a step of their own, which `fleet.soak_racks` plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Stage(StrEnum):
    """Kinds of tests, in the order in which a level has them."""

    SANITY = "sanity"
    VALIDATION = "validation"
    PERFORMANCE = "performance"
    STRESS = "stress"


class Scope(StrEnum):
    """What has to be free for a test: one node, a pair of nodes, or whole racks."""

    NODE = "node"
    PAIR = "pair"
    RACK = "rack"


@dataclass(frozen=True, slots=True)
class SoakStep:
    """One test. `loads`: its time under load counts as fault-free time; `heats`: what is measured next needs a
    cool-down first, where it is `cool`."""

    test: str
    stage: Stage
    lasts: timedelta
    scope: Scope = Scope.NODE
    loads: bool = True
    heats: bool = False
    cool: bool = False


@dataclass(frozen=True, slots=True)
class SoakLevel:
    """`opening` runs once; `cycle` then over and over until the rule stops it, at the latest after `most` without a
    fault. A level without a cycle ends with its opening."""

    name: str
    opening: tuple[SoakStep, ...]
    cycle: tuple[SoakStep, ...] = ()
    most: timedelta = timedelta(0)

    def step(self, number: int) -> SoakStep | None:
        """The test at this place of the level, counted from 0; None past its end."""
        if number < len(self.opening):
            return self.opening[number]
        return self.cycle[(number - len(self.opening)) % len(self.cycle)] if self.cycle else None

    def cycle_of(self, number: int) -> int:
        """0 in the opening, then the number of the cycle."""
        past = number - len(self.opening)
        return past // len(self.cycle) + 1 if past >= 0 and self.cycle else 0

    @property
    def lasts(self) -> timedelta:
        """The tests of the opening, and the longest soak without a fault."""
        return max(sum((step.lasts for step in self.opening), timedelta(0)), self.most)


def _step(
    test: str,
    stage: Stage,
    seconds: int,
    scope: Scope = Scope.NODE,
    *,
    loads: bool = True,
    heats: bool = False,
    cool: bool = False,
) -> SoakStep:
    return SoakStep(test, stage, timedelta(seconds=seconds), scope, loads, heats, cool)


_QUICK = (
    _step("node/bill_of_materials", Stage.SANITY, 20, loads=False),
    _step("node/configuration", Stage.SANITY, 20, loads=False),
    _step("node/gpu/diagnostics_quick", Stage.VALIDATION, 60),
    _step("node/gpu/hbm_bandwidth", Stage.PERFORMANCE, 60, cool=True),
    _step("node/gpu/host_transfer", Stage.PERFORMANCE, 60, cool=True),
    _step("node/nvlink/all_reduce", Stage.PERFORMANCE, 80, cool=True),
    _step("node/nic/write_bandwidth", Stage.PERFORMANCE, 60, cool=True),
    _step("node/gpu/gemm", Stage.STRESS, 240, heats=True),
)
_STANDARD = (
    _step("node/bill_of_materials", Stage.SANITY, 60, loads=False),
    _step("node/configuration", Stage.SANITY, 60, loads=False),
    _step("node/gpu/diagnostics_medium", Stage.VALIDATION, 600),
    _step("node/gpu/memory_patterns", Stage.VALIDATION, 1200),
    _step("node/host/memory", Stage.VALIDATION, 600),
    _step("node/host/disk", Stage.PERFORMANCE, 300),
    _step("node/gpu/hbm_bandwidth", Stage.PERFORMANCE, 180, cool=True),
    _step("node/gpu/host_transfer", Stage.PERFORMANCE, 180, cool=True),
    _step("node/nvlink/all_reduce", Stage.PERFORMANCE, 300, cool=True),
    _step("node/nic/write_bandwidth", Stage.PERFORMANCE, 300, cool=True),
    _step("pair/nccl/all_reduce", Stage.PERFORMANCE, 420, Scope.PAIR, cool=True),
    _step("node/gpu/gemm", Stage.STRESS, 1500, heats=True),
    _step("node/thermal/full_load", Stage.STRESS, 1500, heats=True),
)
_RACK = (_step("rack/power/full_load", Stage.STRESS, 2 * 3600, Scope.RACK, heats=True),)
_CYCLE = (
    _step("node/gpu/memory_patterns", Stage.VALIDATION, 1800),
    _step("node/gpu/hbm_bandwidth", Stage.PERFORMANCE, 300, cool=True),
    _step("node/nvlink/all_reduce", Stage.PERFORMANCE, 900, cool=True),
    _step("node/nic/write_bandwidth", Stage.PERFORMANCE, 600, cool=True),
    _step("node/gpu/diagnostics_long", Stage.STRESS, 5400, heats=True),
    _step("node/gpu/gemm", Stage.STRESS, 5400, heats=True),
    _step("node/thermal/full_load", Stage.STRESS, 7200, heats=True),
)

QUICK = SoakLevel("quick", _QUICK)
STANDARD = SoakLevel("standard", _STANDARD)
SOAK = SoakLevel("soak", _STANDARD + _RACK, _CYCLE, timedelta(hours=72))
SOAK_WEEK = SoakLevel("soak-168", _STANDARD + _RACK, _CYCLE, timedelta(hours=168))

LEVELS: Mapping[str, SoakLevel] = {level.name: level for level in (QUICK, STANDARD, SOAK, SOAK_WEEK)}
