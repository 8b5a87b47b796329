"""One GPU host: what its BMC, its operating system and the scheduler share about it."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from simulator.clock import SimClock
from simulator.truth import TruthLog


class Power(StrEnum):
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things take, in simulated seconds. `jitter` is the share by which each varies."""

    boot: float = 180.0
    shutdown: float = 20.0
    bmc_restart: float = 90.0
    ac_off: float = 10.0
    flash: float = 45.0  # one update task, whatever the number of its targets
    jitter: float = 0.1


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A GPU's identity, the same through the BMC and through NVML."""

    serial: str
    uuid: str  # without NVML's "GPU-" prefix
    part_number: str


def make_gpu_part(rng: random.Random) -> GpuPart:
    """A new part as from the factory."""
    return GpuPart(
        serial=f"165{rng.randrange(10**10):010d}",
        uuid=str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        part_number="2330-885-A1",
    )


@dataclass
class Machine:
    """Power and boot of one host.

    `up` means that the operating system runs (SSH answers, slurmd answers). `listeners` are called with
    the machine after every change of `up`; `start_listeners` each time that the host starts (power on or
    warm reboot), before it is up. `parts` are the GPUs in slot order; a repair replaces an entry. A host that `hangs`
    never gets to the end of its boot. `inlet_celsius` tells the temperature of the air that it takes in.
    """

    name: str
    rack: str
    pool: str
    model: str
    gpus: int
    clock: SimClock
    truth: TruthLog
    timing: Timing
    power: Power = Power.ON
    up: bool = True
    boots: int = 1
    last_boot: float = 0.0
    hangs: bool = False
    inlet_celsius: Callable[[], float] = lambda: 24.0
    listeners: list[Callable[[Machine], None]] = field(default_factory=list)
    start_listeners: list[Callable[[Machine], None]] = field(default_factory=list)
    parts: list[GpuPart] = field(default_factory=list)
    _boot_task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._rng = random.Random(self.name)
        if not self.parts:
            self.parts = [make_gpu_part(self._rng) for _ in range(self.gpus)]

    def vary(self, seconds: float) -> float:
        """`seconds` give or take the timing's jitter."""
        return seconds * (1 + self._rng.uniform(-self.timing.jitter, self.timing.jitter))

    def power_off(self) -> None:
        """Cut at once. Whoever wants a graceful end waits `timing.shutdown` first."""
        self._stop_booting()
        if self.power is Power.ON:
            self.power = Power.OFF
            self.truth.write("power", self.name, self.rack, state="off")
        self._set_up(False)

    def power_on(self) -> None:
        """Start booting; `up` follows after `timing.boot`. Nothing happens where power is on already."""
        if self.power is Power.ON:
            return
        self.power = Power.ON
        self.truth.write("power", self.name, self.rack, state="on")
        self._start()

    def reboot(self) -> None:
        """A warm reboot, as the operating system asks for it: power stays on. Nothing where it is off."""
        if self.power is Power.OFF:
            return
        self._stop_booting()
        self._set_up(False)
        self._start()

    def _start(self) -> None:
        for listener in self.start_listeners:
            listener(self)
        self._boot_task = asyncio.get_running_loop().create_task(self._boot())

    async def _boot(self) -> None:
        await self.clock.sleep(self.vary(self.timing.boot))
        if self.hangs:
            return
        self.boots += 1
        self.last_boot = self.clock.now()
        self._boot_task = None
        self._set_up(True)

    def _stop_booting(self) -> None:
        if self._boot_task is not None:
            self._boot_task.cancel()
            self._boot_task = None

    def _set_up(self, up: bool) -> None:
        if self.up != up:
            self.up = up
            for listener in self.listeners:
                listener(self)
