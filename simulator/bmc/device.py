"""One BMC: its state, and what a reset does to it and to its host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from fleet.model import ResetKind
from simulator.bmc.events import EventLog
from simulator.bmc.faultbox import FaultBox
from simulator.bmc.host_settings import HostSettings
from simulator.bmc.sessions import Sessions
from simulator.bmc.updates import Updates
from simulator.clock import SimClock
from simulator.faults import Fault, FaultKind
from simulator.firmware import FirmwareSet
from simulator.machine import Machine, Power
from simulator.truth import TruthLog

RESET_TYPES = (
    "On",
    "ForceOn",
    "ForceOff",
    "GracefulShutdown",
    "ForceRestart",
    "GracefulRestart",
    "PowerCycle",
)
RESET_DELAY_SECONDS = 2.0  # simulated, between the answer and the reset
OFF_SECONDS = 5.0  # simulated, between off and on of a restart
STARTING_SHARE = 0.25  # of timing.bmc_restart: the BMC listens again, but answers 503
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Phase(StrEnum):
    UP = "up"
    AWAY = "away"  # connections are refused
    STARTING = "starting"  # 503 for everything but the service root


class Bmc:
    """The state of one board. `listen` is called with False when it goes away and True when it is back."""

    def __init__(
        self,
        machine: Machine,
        clock: SimClock,
        truth: TruthLog,
        firmware: FirmwareSet,
        faults: Iterable[Fault],
        user: str,
        password: str,
    ) -> None:
        self.machine = machine
        self.clock = clock
        self._truth = truth
        self.firmware = firmware
        self.faults = FaultBox(faults, self.log_fault)
        self.sessions = Sessions(self.clock, user, password)
        self.updates = Updates(self)
        self.settings = HostSettings()
        self.events = EventLog()
        self.phase = Phase.UP
        self.listen: Callable[[bool], None] = lambda _: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._epoch_started: float | None = None
        self._ac_cycling = False
        self._stale: dict[str, str] = {}
        self._stale_until = 0.0
        self._rendered: tuple[object, bytes] | None = None
        started = self.clock.now() - machine.vary(30 * 86400)
        self.host_last_reset = self.time_text(started)
        self.bmc_last_reset = self.time_text(started - 3600)
        machine.start_listeners.append(self._host_starts)

    def time_text(self, at: float | None = None) -> str:
        """The BMC's own clock in Redfish's format, at simulated second `at` or now."""
        now = self.clock.now() if at is None else at
        if self._epoch_started is None:
            moment = self.clock.wall(now)
        else:
            moment = _EPOCH + timedelta(seconds=now - self._epoch_started)
        return moment.strftime("%Y-%m-%dT%H:%M:%S+00:00")

    def shown_version(self, component: str) -> str:
        """The active version, or the one before where the inventory lags behind."""
        if self._stale and self.clock.now() < self._stale_until:
            return self._stale.get(component, self.firmware.active[component])
        return self.firmware.active[component]

    def is_stale(self, component: str) -> bool:
        return component in self._stale and self.clock.now() < self._stale_until

    def inventory_key(self) -> tuple[int, bool]:
        """Changes whenever the rendering of the firmware inventory does."""
        return self.firmware.revision, bool(self._stale) and self.clock.now() < self._stale_until

    def keep_rendered(self, key: object, render: Callable[[], bytes]) -> bytes:
        """One rendering is kept for as long as its key stays."""
        if self._rendered is None or self._rendered[0] != key:
            self._rendered = (key, render())
        return self._rendered[1]

    def log(self, event: str, **more: object) -> None:
        self._truth.write(event, self.machine.name, self.machine.rack, **more)

    def log_fault(self, kind: str) -> None:
        self.log("fault", kind=str(kind))

    def reset_host(self, reset_type: str) -> None:
        """Carry out a ComputerSystem.Reset; `reset_type` is one of RESET_TYPES."""
        if reset_type not in {"On", "ForceOn"} and self._ignores(ResetKind.HOST_REBOOT):
            return
        self.events.add(self.time_text(), "OK", f"Host reset requested: {reset_type}.")
        self.spawn(self._reset_host(reset_type))

    def reset_bmc(self) -> None:
        """Carry out a Manager.Reset."""
        if not self._ignores(ResetKind.BMC_RESET):
            self.spawn(self._restart(ResetKind.BMC_RESET))

    def cycle_ac(self) -> None:
        """Carry out NVIDIA's AuxPowerReset: host and BMC lose power."""
        if not self._ignores(ResetKind.AC_CYCLE):
            self.spawn(self._restart(ResetKind.AC_CYCLE))

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run `work` until it ends or the simulator stops."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ignores(self, kind: ResetKind) -> bool:
        fault = self.faults.bite(
            FaultKind.WRONG_RESET_IGNORED, where=lambda fault: fault.text("reset") in {"any", kind.value}
        )
        return fault is not None

    async def _reset_host(self, reset_type: str) -> None:
        machine = self.machine
        if reset_type.startswith("Graceful") and machine.power is Power.ON:
            await self.clock.sleep(machine.vary(machine.timing.shutdown))
        if reset_type not in {"On", "ForceOn"}:
            machine.power_off()
        if reset_type in {"ForceOff", "GracefulShutdown"}:
            return
        if machine.power is Power.OFF and reset_type not in {"On", "ForceOn"}:
            await self.clock.sleep(OFF_SECONDS)
        machine.power_on()

    def _host_starts(self, _: Machine) -> None:
        self.host_last_reset = self.time_text()
        self.settings.host_started()
        if not self._ac_cycling:
            self.log("reset", kind=ResetKind.HOST_REBOOT.value)
            self._activate(ResetKind.HOST_REBOOT)

    async def _restart(self, kind: ResetKind) -> None:
        # The answer to the request that asked for this goes out first.
        await self.clock.sleep(RESET_DELAY_SECONDS)
        if self.phase is not Phase.UP:
            return
        self.log("reset", kind=kind.value)
        self._go_away()
        if kind is ResetKind.AC_CYCLE:
            await self._lose_power()
        longer = self.faults.bite(FaultKind.REFUSED)
        timing = self.machine.timing
        await self.clock.sleep(self.machine.vary(timing.bmc_restart) + (longer.seconds() if longer else 0.0))
        if kind is ResetKind.BMC_RESET:
            self._activate(kind)
        self._come_back()
        await self.clock.sleep(self.machine.vary(timing.bmc_restart * STARTING_SHARE))
        self.phase = Phase.UP

    async def _lose_power(self) -> None:
        was_on = self.machine.power is Power.ON
        self._ac_cycling = True
        self.machine.power_off()
        await self.clock.sleep(self.machine.timing.ac_off)
        self._activate(ResetKind.AC_CYCLE)
        if was_on:
            self.machine.power_on()
        self._ac_cycling = False

    def _go_away(self) -> None:
        self.phase = Phase.AWAY
        self.sessions.clear()
        self.updates.forget()
        self.listen(False)

    def _come_back(self) -> None:
        if self.faults.bite(FaultKind.CLOCK_1970):
            self._epoch_started = self.clock.now() - self.machine.vary(20)
        self.bmc_last_reset = self.time_text()
        self.events.add(self.bmc_last_reset, "OK", "The BMC has started.")
        self.phase = Phase.STARTING
        self.listen(True)

    def _activate(self, kind: ResetKind) -> None:
        changed = self.firmware.activate(kind)
        for component, version in changed:
            self.log("activate", component=component, version=version)
        stale = self.faults.bite(FaultKind.STALE_INVENTORY) if changed else None
        if stale is not None:
            self._stale = {component: self.firmware.previous[component] for component, _ in changed}
            self._stale_until = self.clock.now() + stale.seconds()
