"""Writing firmware images, each observed before, during and after. The inventory decides, not the task's word."""

from __future__ import annotations

from pathlib import Path

from fleet.activation import Progress, Stage, not_yet
from fleet.bundle import BundleEntry
from fleet.errors import BmcBusy, FlashInterrupted, UpdateFailed
from fleet.model import FirmwareComponent, RedfishTask, TaskOutcome
from fleet.plan import Change
from fleet.ports import Bmc
from ledger import Outcome
from tasks.bmc import patiently, read_firmware, wait_for_running_update, wait_for_task, wait_until_ready
from tasks.presets import DISRUPTS, step
from tasks.visit import Visit

_WRITTEN = frozenset({Progress.ACTIVE, Progress.STAGED})
_SAID_DONE = frozenset(
    {
        TaskOutcome.SUCCEEDED,
        TaskOutcome.SUCCEEDED_WITH_WARNINGS,
        TaskOutcome.ALREADY_CURRENT,
        TaskOutcome.WAITING_FOR_RESET,
    }
)


@step("flash {visit.name}", DISRUPTS)
def flash_bundle(visit: Visit, stage: Stage, images: dict[str, Path]) -> None:
    """Write every image of `stage` that this node lacks, in order, one at a time.

    Raises UpdateFailed, FlashInterrupted, LeaseLost, or what the BMC raises.
    """
    for entry in stage.entries:
        changes = tuple(change for change in visit.plan.changes if change.entry == entry.name)
        if changes:
            ensure_written(visit, visit.bmc, entry, changes, images[entry.name])


def ensure_written(visit: Visit, bmc: Bmc, entry: BundleEntry, changes: tuple[Change, ...], image: Path) -> None:
    """Bring `changes` to staged or active; nothing is sent where they are already."""
    _settle_earlier_push(visit, bmc, entry, changes)
    while True:
        inventory = read_firmware(visit, bmc)
        missing = tuple(change for change, _ in not_yet(changes, inventory, _WRITTEN))
        if not missing:
            return
        if _trusted_without_staging(visit, entry):
            return
        allowed = visit.fleet.spec().pools[visit.node.pool].waves.attempts
        tried = visit.ledger.journal.attempts(visit.operation, visit.name, f"push:{entry.name}")
        if tried >= allowed:
            raise UpdateFailed(_last_word(visit, entry), node=visit.name, component=missing[0].component)
        _push(visit, bmc, entry, missing, inventory, image)
        _await_written(visit, bmc, entry, missing)


def _push(
    visit: Visit,
    bmc: Bmc,
    entry: BundleEntry,
    missing: tuple[Change, ...],
    inventory: tuple[FirmwareComponent, ...],
    image: Path,
) -> None:
    """Send the image once. The intent is in the journal before the first byte leaves."""
    visit.check_ours()
    wait_for_running_update(visit, bmc)
    uris = {component.id: component.uri for component in inventory}
    targets = tuple(uris[change.component] for change in missing)
    detail = {"components": [change.component for change in missing], "to": entry.version}
    visit.say(f"sends {entry.name} {entry.version} to {len(targets)} components")
    with visit.step(f"push:{entry.name}", detail) as evidence:
        task = patiently_push(visit, bmc, image, targets)
        evidence |= {"task": task.uri, "outcome": task.outcome.value}


def patiently_push(visit: Visit, bmc: Bmc, image: Path, targets: tuple[str, ...]) -> RedfishTask:
    """Send the image; a BMC that *refuses* because it is busy has taken nothing and may be asked again."""
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.ready_timeout_seconds
    while True:
        try:
            return bmc.push_image(image, targets)
        except BmcBusy as error:
            if clock.monotonic() >= deadline:
                raise
            visit.say(f"BMC refuses the image for now: {error.message}")
            clock.sleep(min(error.retry_after_seconds or settings.poll_seconds, max(settings.poll_seconds, 30.0)))


def _await_written(visit: Visit, bmc: Bmc, entry: BundleEntry, changes: tuple[Change, ...]) -> None:
    """Follow the update that was accepted, then read back."""
    pushed = visit.ledger.journal.last(visit.operation, visit.name, f"push:{entry.name}")
    uri = str(pushed.result.get("task", "")) if pushed is not None else ""
    with visit.step(f"write:{entry.name}", {"task": uri}) as evidence:
        task = wait_for_task(visit, bmc, uri, entry.expected_seconds) if uri else None
        said = task.outcome if task is not None else (TaskOutcome.UNKNOWN if uri else TaskOutcome.ALREADY_CURRENT)
        evidence |= {"said": said.value, "messages": list(task.messages[:5]) if task is not None else []}
        missing = _read_back(visit, bmc, changes, patient=said is not TaskOutcome.FAILED)
        evidence["missing"] = [change.component for change in missing]
        if missing and said is TaskOutcome.UNKNOWN:
            raise FlashInterrupted(
                f"{_no_word_from(visit, bmc, uri)}, and {missing[0].component} shows no {missing[0].desired}",
                node=visit.name,
                component=missing[0].component,
            )


def _no_word_from(visit: Visit, bmc: Bmc, uri: str) -> str:
    """Why nobody knows how the task ended: a person treats a stuck BMC otherwise than a forgetful one."""
    if patiently(visit, "reads its task", lambda: bmc.read_task(uri)) is None:
        return f"the BMC lost task {uri}"
    return f"BMC task {uri} did not end in {visit.fleet.spec().bmc.update_timeout_seconds:.0f} s"


def _read_back(visit: Visit, bmc: Bmc, changes: tuple[Change, ...], patient: bool) -> tuple[Change, ...]:
    """The changes that the inventory does not show as written; it may lag, so it is asked for a while."""
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + (settings.settle_seconds if patient else 0.0)
    while True:
        missing = tuple(change for change, _ in not_yet(changes, read_firmware(visit, bmc), _WRITTEN))
        if not missing or clock.monotonic() >= deadline:
            return missing
        visit.say(f"reads back {missing[0].component}: {missing[0].desired} not shown yet")
        clock.sleep(settings.poll_seconds)


def _settle_earlier_push(visit: Visit, bmc: Bmc, entry: BundleEntry, changes: tuple[Change, ...]) -> None:
    """Clear up a push or a write whose end nobody saw, before anything else is decided."""
    pushed = visit.ledger.journal.last(visit.operation, visit.name, f"push:{entry.name}")
    if pushed is None or pushed.outcome is Outcome.FAILED:
        return
    written = visit.ledger.journal.last(visit.operation, visit.name, f"write:{entry.name}")
    if pushed.outcome is Outcome.DONE:
        if written is None or written.id < pushed.id or written.outcome is None:
            _await_written(visit, bmc, entry, changes)
        return
    wait_until_ready(visit, bmc)
    wait_for_running_update(visit, bmc)
    if _read_back(visit, bmc, changes, patient=True):
        tasks = patiently(visit, "reads its tasks", bmc.read_tasks)
        if pushed.outcome is Outcome.UNKNOWN and not tasks:
            raise FlashInterrupted(
                f"{entry.name} was sent, the connection broke, and the BMC knows no task and no new version",
                node=visit.name,
                component=changes[0].component,
            )
        visit.ledger.journal.finish(
            pushed.id, Outcome.FAILED, {"error": "the BMC never took it: no task, no new version"}
        )
    else:
        visit.ledger.journal.finish(pushed.id, Outcome.DONE, {"found": "the inventory shows it"})


def _trusted_without_staging(visit: Visit, entry: BundleEntry) -> bool:
    """A BMC that shows no staged versions, said "done", and needs a reset: only activation can tell."""
    written = visit.ledger.journal.last(visit.operation, visit.name, f"write:{entry.name}")
    said = "" if written is None or written.outcome is not Outcome.DONE else str(written.result.get("said"))
    return entry.reset.value != "none" and said in {outcome.value for outcome in _SAID_DONE}


def _last_word(visit: Visit, entry: BundleEntry) -> str:
    written = visit.ledger.journal.last(visit.operation, visit.name, f"write:{entry.name}")
    if written is None:
        return f"{entry.name}: the BMC never took the image"
    messages = written.result.get("messages")
    words = "; ".join(str(message) for message in messages) if isinstance(messages, list) else ""
    return f"{entry.name}: BMC task ended {written.result.get('said')}: {words or 'no message'}"
