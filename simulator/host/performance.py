"""How fast the GPUs of a simulated fleet are, and how hot: a true level for each, and honest noise around it.

Levels are those of an 8-GPU H100 board. What is drawn once, by the fleet's seed: nodes differ by 1.2 % (standard
deviation), GPUs of one node by 0.4 %. Each run differs by 0.5 %. Air comes in at 20 to 27 °C: warmer in some racks,
higher up and in the afternoon. A GPU above 83 °C is throttled; a power limit below what the work draws costs clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from simulator.host.faults import Flaw
from simulator.settings import APPLICATION_CLOCKS_MHZ, GpuSettings

NODE_SHARE, GPU_SHARE, RUN_SHARE = 0.012, 0.004, 0.005
THROTTLE_CELSIUS = 83.0
COOLING_SECONDS = 45.0  # time constant with which a GPU cools down
IDLE_WATTS = 72.0
_DAY = 86400.0
_KEPT = 200_000  # draws that are kept: 16 for each of 12,500 GPUs


class Measure(StrEnum):
    """What the benchmarks measure; the names are those of the faults file."""

    GEMM = "gemm"  # GFLOP/s of the tensor cores
    HBM = "hbm"  # GB/s of a copy inside a GPU
    HOST_DEVICE = "host_device"  # GB/s
    ALL_REDUCE = "all_reduce"  # GB/s of bus bandwidth


LEVELS: Mapping[Measure, float] = {
    Measure.GEMM: 612_000.0,
    Measure.HBM: 1519.0,
    Measure.HOST_DEVICE: 55.3,
    Measure.ALL_REDUCE: 478.0,
}
_WATTS: Mapping[Measure, float] = {
    Measure.GEMM: 690.0,
    Measure.HBM: 455.0,
    Measure.HOST_DEVICE: 110.0,
    Measure.ALL_REDUCE: 330.0,
}
_CLOCK_POWER: Mapping[Measure, float] = {  # level ~ clock to this power
    Measure.GEMM: 1.0,
    Measure.HBM: 0.12,
    Measure.HOST_DEVICE: 0.02,
    Measure.ALL_REDUCE: 0.35,
}
# Without persistence the links sleep between two collectives; the others hardly notice.
_WITHOUT_PERSISTENCE: Mapping[Measure, float] = {Measure.ALL_REDUCE: 0.91, Measure.HOST_DEVICE: 0.985}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands. `unit` is its place in the rack from below, None where it is not known."""

    node: str
    rack: str
    unit: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How a GPU fares under a load: level as a share of its own, °C, watts, clock, and what holds it back."""

    share: float
    celsius: float
    watts: float
    clock_mhz: int
    reasons: tuple[str, ...]


class Performance:
    """The truth about a fleet's speed. The same seed gives the same truth."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._draw = lru_cache(maxsize=_KEPT)(self._drawn)

    def _drawn(self, *what: object) -> float:
        """One draw of a normal distribution, the same for the same words."""
        return random.Random(f"{self._seed} {' '.join(map(str, what))}").gauss(0.0, 1.0)

    def inlet_celsius(self, place: Place, wall_seconds: float) -> float:
        """Of the air that the node takes in at a second of the wall clock."""
        rack = self._draw("rack", place.rack)
        height = 0.05 * (place.unit or 20)
        day = 1.2 * math.sin(2 * math.pi * (wall_seconds / _DAY - 0.4))
        flutter = 0.2 * self._drawn("air", place.node, int(wall_seconds // 30))
        return 22.5 + rack + height + day + flutter

    def idle_celsius(self, place: Place, slot: int, inlet: float) -> float:
        return inlet + 7.0 + self._draw("cool", place.node, slot) * 1.0

    def level(self, place: Place, slot: int | None, measure: Measure) -> float:
        """What this GPU reaches with nothing in its way, in the measure's unit; `slot` None: all GPUs together."""
        node = NODE_SHARE * self._draw("node", place.node, measure)
        gpu = 0.0 if slot is None else GPU_SHARE * self._draw("gpu", place.node, slot, measure)
        return LEVELS[measure] * (1 + node) * (1 + gpu)

    def load(self, place: Place, slot: int, measure: Measure, settings: GpuSettings, flaw: Flaw, inlet: float) -> Load:
        """The GPU while it works on `measure`."""
        most, limit = APPLICATION_CLOCKS_MHZ[1], settings.clock_limit_mhz
        wanted = _WATTS[measure] * limit / most
        watts = min(wanted, settings.power_limit_watts)
        held_back = (watts / wanted) ** 0.5
        reasons = ["applications_clocks_setting"] if limit < most else []
        reasons += ["sw_power_cap"] if watts < wanted - 0.5 else []
        celsius = inlet + 3.0 + 0.062 * watts + 1.5 * self._draw("heat", place.node, slot)
        celsius += flaw.heat_celsius * watts / _WATTS[Measure.GEMM]
        if celsius > THROTTLE_CELSIUS:
            reasons.append("sw_thermal_slowdown")
            held_back *= max(0.5, 1 - 0.015 * (celsius - THROTTLE_CELSIUS))
            celsius = THROTTLE_CELSIUS + 0.3 * (celsius - THROTTLE_CELSIUS)
        share = held_back * (limit / most) ** _CLOCK_POWER[measure]
        share *= 1 - 0.0008 * (celsius - 65.0) if measure is Measure.GEMM else 1.0
        share *= 1.0 if settings.persistence else _WITHOUT_PERSISTENCE.get(measure, 1.0)
        share *= 1 + flaw.effects.get(measure.value, 0.0)
        return Load(share, celsius, watts, round(limit * held_back), tuple(reasons))

    def run(self, place: Place, slot: int | None, measure: Measure, loads: list[Load], run: int) -> float:
        """What one run shows. Work of all GPUs together (`slot` None) goes at the pace of the slowest."""
        share = min(load.share for load in loads)
        noise = RUN_SHARE * self._drawn("run", place.node, slot, measure, run)
        return self.level(place, slot, measure) * share * (1 + noise)

    def noise(self, *what: object) -> float:
        """A draw of a normal distribution that is the same for the same words; not kept."""
        return self._drawn("noise", *what)
