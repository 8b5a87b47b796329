"""How warm a host's GPUs are now, what they draw, and what holds their clocks back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.host.performance import COOLING_SECONDS, IDLE_WATTS, Load, Measure
from simulator.host.state import HostState
from simulator.settings import APPLICATION_CLOCKS_MHZ

_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "sw_thermal_slowdown": 0x20,
}  # NVML's nvmlClocksEventReason constants


@dataclass(frozen=True, slots=True)
class GpuNow:
    """One GPU at this moment. `mask` has NVML's bits of the clocks event reasons."""

    celsius: float
    watts: float
    clock_mhz: int
    mask: int
    busy: bool


class Heat:
    """Follows the loads of one host. A GPU that has worked cools down slowly."""

    def __init__(self, host: HostState) -> None:
        self._host = host
        self._running: dict[int, Load] = {}
        self._warmed: dict[int, tuple[float, float]] = {}  # slot → simulated second, °C above idle then

    def inlet(self) -> float:
        wall = self._host.machine.clock.wall().timestamp()
        return self._host.site.performance.inlet_celsius(self._host.place, wall)

    def load(self, slot: int, measure: Measure) -> Load:
        """What a load would do to the GPU now."""
        host = self._host
        flaw = host.faults.flaw(host.loaded.release if host.loaded else "")
        return host.site.performance.load(host.place, slot, measure, host.settings.gpus[slot], flaw, self.inlet())

    def begin(self, slots: list[int], measure: Measure) -> list[Load]:
        """The GPUs begin to work."""
        loads = [self.load(slot, measure) for slot in slots]
        self._running |= dict(zip(slots, loads, strict=True))
        return loads

    def end(self, slots: list[int]) -> None:
        """They are done, and as hot as the load made them."""
        now, inlet = self._host.machine.clock.now(), self.inlet()
        for slot in slots:
            load = self._running.pop(slot, None)
            if load is not None:
                self._warmed[slot] = (now, max(0.0, load.celsius - self._idle(slot, inlet)))

    def now(self, slot: int) -> GpuNow:
        host, inlet = self._host, self.inlet()
        load = self._running.get(slot)
        if load is None and host.loaded is not None and host.scheduled():
            load = self.load(slot, Measure.GEMM)
        if load is not None:
            mask = sum(_BITS[reason] for reason in load.reasons)
            return GpuNow(load.celsius, load.watts, load.clock_mhz, mask, busy=True)
        at, above = self._warmed.get(slot, (0.0, 0.0))
        passed = host.machine.clock.now() - at
        celsius = self._idle(slot, inlet) + above * math.exp(-passed / COOLING_SECONDS)
        return GpuNow(
            celsius, IDLE_WATTS + 0.3 * (celsius - 30), APPLICATION_CLOCKS_MHZ[1], _BITS["gpu_idle"], busy=False
        )

    def _idle(self, slot: int, inlet: float) -> float:
        return self._host.site.performance.idle_celsius(self._host.place, slot, inlet)
