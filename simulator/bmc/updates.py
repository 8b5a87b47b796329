"""Firmware update tasks of one BMC: at most one writes at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulator.bmc.messages import Message, message
from simulator.faults import Fault, FaultKind
from simulator.firmware import FirmwareImage

if TYPE_CHECKING:
    from simulator.bmc.device import Bmc

LoadImage = Callable[[], Awaitable[FirmwareImage]]
"""Brings the image; raises ValueError where it cannot be had or read."""

FAULTS = (
    FaultKind.UPDATE_FAILS_FIRST_N,
    FaultKind.EXCEPTION_WITH_EXTENDED_INFO,
    FaultKind.TASK_VANISHES,
    FaultKind.COMPLETED_OLD_VERSION,
    FaultKind.COMPLETED_WITH_WARNINGS,
    FaultKind.STUCK_TASK,
)
KEPT_TASKS = 20


@dataclass(slots=True)
class UpdateTask:
    """A task as a client sees it. Times `began` and `seconds` are simulated."""

    id: str
    began: float
    seconds: float
    start_text: str
    state: str = "Running"
    status: str = "OK"
    messages: list[Message] = field(default_factory=list)
    end_text: str | None = None
    hidden: bool = False
    percent_cap: int = 99

    def percent(self, now: float) -> int:
        if self.state == "Completed":
            return 100
        return max(0, min(self.percent_cap, int(100 * (now - self.began) / self.seconds)))


class Updates:
    """The update service behind `Bmc`."""

    def __init__(self, bmc: Bmc) -> None:
        self._bmc = bmc
        self.tasks: dict[str, UpdateTask] = {}
        self._next = 1
        self._running: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._running is not None

    def begin(self, load: LoadImage, targets: tuple[str, ...], force: bool) -> UpdateTask:
        """Start a task for component ids `targets` (empty: every component the image fits)."""
        bmc = self._bmc
        now = bmc.clock.now()
        task = UpdateTask(str(self._next), now, bmc.machine.vary(bmc.machine.timing.flash), bmc.time_text())
        task.messages.append(
            message("TaskEvent.1.0.3.TaskStarted", f"The task with Id '{task.id}' has started.", task.id)
        )
        self._next += 1
        self.tasks[task.id] = task
        while len(self.tasks) > KEPT_TASKS:
            del self.tasks[next(iter(self.tasks))]
        self._running = bmc.spawn(self._run(task, load, targets, force))
        return task

    def forget(self) -> None:
        """The BMC restarts: no task survives, and what was being written is lost."""
        if self._running is not None:
            self._running.cancel()
            self._running = None
            self._bmc.log_fault("reset_during_flash")
        self.tasks.clear()

    async def _run(self, task: UpdateTask, load: LoadImage, targets: tuple[str, ...], force: bool) -> None:
        try:
            image = await load()
            chosen = targets or tuple(id_ for id_ in self._bmc.firmware.components if image.fits(id_))
            self._check(image, chosen)
        except ValueError as error:
            await self._bmc.clock.sleep(task.seconds / 10)
            self._fail(
                task,
                message("Update.1.0.0.VerificationFailed", f"Verification failed: {error}.", severity="Critical"),
            )
        else:
            await self._flash(task, image, chosen, force)
        self._running = None

    def _check(self, image: FirmwareImage, targets: tuple[str, ...]) -> None:
        if not targets:
            raise ValueError(f"the image {image.family} fits no component of this system")
        for id_ in targets:
            if not self._bmc.firmware.components[id_].family.updateable:
                raise ValueError(f"the component {id_} is not updateable")
            if not image.fits(id_):
                raise ValueError(f"the image {image.family} does not fit the component {id_}")

    async def _flash(self, task: UpdateTask, image: FirmwareImage, targets: tuple[str, ...], force: bool) -> None:
        active = self._bmc.firmware.active
        same = tuple(id_ for id_ in targets if active[id_] == image.version and not force)
        todo = tuple(id_ for id_ in targets if id_ not in same)
        for id_ in same:
            text = f"The component {id_} update was skipped because its version is identical to the image's."
            task.messages.append(message("NvidiaUpdate.1.0.0.ComponentUpdateSkipped", text, id_))
        if not todo:
            self._end(task)
            return
        fault = self._bmc.faults.bite(*FAULTS) or self._claims_current()
        if fault is None:
            await self._bmc.clock.sleep(task.seconds)
            self._write(task, image, todo)
            self._end(task)
        else:
            await self._misbehave(fault, task, image, todo)

    def _claims_current(self) -> Fault | None:
        return self._bmc.faults.bite(FaultKind.ALREADY_CURRENT, where=lambda fault: fault.text("answer") == "exception")

    async def _misbehave(self, fault: Fault, task: UpdateTask, image: FirmwareImage, todo: tuple[str, ...]) -> None:
        if fault.kind is FaultKind.STUCK_TASK:
            task.percent_cap = 40
            await asyncio.Event().wait()
        if fault.kind is FaultKind.TASK_VANISHES:
            await self._bmc.clock.sleep(task.seconds / 2)
            task.hidden = True
            if fault.flag("staged"):
                await self._bmc.clock.sleep(task.seconds / 2)
                self._write(task, image, todo)
                self._end(task)
            return
        await self._bmc.clock.sleep(task.seconds)
        if fault.kind is FaultKind.COMPLETED_WITH_WARNINGS:
            self._write(task, image, todo)
            text = "The update succeeded; the event log of the component was cleared."
            task.messages.append(message("Update.1.0.0.OperationTransitionedToJob", text, severity="Warning"))
            self._end(task, status="Warning")
        elif fault.kind is FaultKind.COMPLETED_OLD_VERSION:
            self._end(task)
        elif fault.kind is FaultKind.ALREADY_CURRENT:
            text = f"The image {image.family} {image.version} is already installed; nothing to update."
            self._fail(
                task,
                message("NvidiaUpdate.1.0.0.ComponentUpdateSkipped", text, severity="Warning"),
                "Warning",
            )
        else:
            text = f"Transfer of image '{image.family}' to '{todo[0]}' failed: the component did not answer."
            self._fail(task, message("Update.1.0.0.TransferFailed", text, image.family, todo[0], severity="Critical"))

    def _write(self, task: UpdateTask, image: FirmwareImage, todo: tuple[str, ...]) -> None:
        firmware = self._bmc.firmware
        for id_ in todo:
            old = firmware.active[id_]
            runs = firmware.write(id_, image.version)
            self._bmc.log("flash", component=id_, **{"from": old, "to": image.version, "task": task.id})
            if runs:
                self._bmc.log("activate", component=id_, version=image.version)
            word = "UpdateSuccessful" if runs else "AwaitToActivate"
            text = f"Image '{image.version}' of '{id_}' " + ("is running." if runs else "waits for its activation.")
            task.messages.append(message(f"Update.1.0.0.{word}", text, image.version, id_))

    def _end(self, task: UpdateTask, status: str = "OK") -> None:
        task.state, task.status, task.end_text = "Completed", status, self._bmc.time_text()
        task.messages.append(
            message("TaskEvent.1.0.3.TaskCompletedOK", f"The task with Id '{task.id}' has completed.", task.id)
        )

    def _fail(self, task: UpdateTask, why: Message, status: str = "Critical") -> None:
        task.percent_cap = task.percent(self._bmc.clock.now())
        task.state, task.status, task.end_text = "Exception", status, self._bmc.time_text()
        task.messages.append(why)
        aborted = f"The task with Id '{task.id}' has completed with errors."
        task.messages.append(message("TaskEvent.1.0.3.TaskAborted", aborted, task.id, severity="Critical"))
        self._bmc.events.add(self._bmc.time_text(), "Critical", str(why["Message"]))
