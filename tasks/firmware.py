"""Writing firmware images, each observed before, during and after. The inventory decides, not the task's word."""

from __future__ import annotations

from pathlib import Path

from fleet.activation import Progress, Stage, not_yet
from fleet.bundle import BundleEntry
from fleet.errors import FlashInterrupted, NotQualified, OutcomeUnknown, UpdateFailed
from fleet.model import FirmwareComponent, RedfishTask, TaskOutcome
from fleet.plan import Change, change_for
from fleet.ports import Bmc
from ledger import Entry, Outcome
from tasks.bmc import (
    patiently,
    patiently_change,
    read_firmware,
    wait_for_running_update,
    wait_for_task,
    wait_until_ready,
)
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

    Raises UpdateFailed, FlashInterrupted, NotQualified, LeaseLost, NotDrained, or what the BMC raises.
    """
    shown = visit.recent_firmware
    for entry in stage.entries:
        changes = tuple(change for change in visit.plan.changes if change.entry == entry.name)
        if changes:
            shown = ensure_written(visit, visit.bmc, entry, changes, images[entry.name], shown)


def ensure_written(
    visit: Visit,
    bmc: Bmc,
    entry: BundleEntry,
    changes: tuple[Change, ...],
    image: Path,
    shown: tuple[FirmwareComponent, ...] | None = None,
) -> tuple[FirmwareComponent, ...]:
    """Bring `changes` to staged or active; nothing is sent where they are already.

    `shown` is an inventory that was read a moment ago, if there is one. The answer is the newest that was read.
    """
    if visit.last(f"push:{entry.name}") is not None:
        shown = None  # read before an earlier push of this entry was waited for
    _settle_earlier_push(visit, bmc, entry, changes)
    while True:
        inventory, shown = shown or read_firmware(visit, bmc), None
        missing = tuple(change for change, _ in not_yet(changes, inventory, _WRITTEN))
        if not missing or _trusted_without_staging(visit, entry):
            return inventory
        allowed = visit.fleet.spec().pools[visit.node.pool].waves.attempts
        tried = visit.ledger.journal.attempts(visit.operation, visit.name, f"push:{entry.name}")
        if tried >= allowed:
            raise UpdateFailed(_last_word(visit, entry), node=visit.name, component=missing[0].component)
        if not tried:
            inventory = _check_still_qualified(visit, bmc, entry, missing, inventory)
        try:
            _push(visit, bmc, entry, missing, inventory, image)
        except OutcomeUnknown:
            _settle_earlier_push(visit, bmc, entry, changes)
        else:
            written, inventory = _await_written(visit, bmc, entry, missing)
            if written and missing == changes:
                return inventory  # which was just read back and shows all of it


def _check_still_qualified(
    visit: Visit,
    bmc: Bmc,
    entry: BundleEntry,
    missing: tuple[Change, ...],
    inventory: tuple[FirmwareComponent, ...],
) -> tuple[FirmwareComponent, ...]:
    """The inventory that shows it: the plan may be days old, and somebody may have put a newer version there.

    Raises NotQualified where the components may not go to the entry's version from what they run now.
    """
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.settle_seconds
    while True:
        shown = {component.id: component for component in inventory}
        try:
            for change in missing:
                if change.component not in shown:
                    raise NotQualified("is not in the inventory any more", component=change.component)
                change_for(entry, shown[change.component])
        except NotQualified as error:
            if clock.monotonic() >= deadline:
                raise NotQualified(f"{error}; plan again", node=visit.name) from error
            visit.say(f"reads again: {error}")
            clock.sleep(settings.poll_seconds)
            inventory = read_firmware(visit, bmc)
        else:
            return inventory


def _push(
    visit: Visit,
    bmc: Bmc,
    entry: BundleEntry,
    missing: tuple[Change, ...],
    inventory: tuple[FirmwareComponent, ...],
    image: Path,
) -> None:
    """Send the image once. The intent is in the journal before the first byte leaves."""
    known = wait_for_running_update(visit, bmc)
    visit.check_undisturbed()
    targets = _targets(visit, missing, inventory)
    detail = {
        "components": [change.component for change in missing],
        "to": entry.version,
        "tasks": [_mark(task) for task in known],
    }
    visit.say(f"sends {entry.name} {entry.version} to {len(targets)} components")
    with visit.step(f"push:{entry.name}", detail) as evidence:
        task = patiently_change(visit, "refuses the image for now", lambda: bmc.push_image(image, targets))
        evidence |= {"task": task.uri, "outcome": task.outcome.value}


def _targets(visit: Visit, missing: tuple[Change, ...], inventory: tuple[FirmwareComponent, ...]) -> tuple[str, ...]:
    uris = {component.id: component.uri for component in inventory}
    gone = next((change.component for change in missing if change.component not in uris), None)
    if gone is not None:
        raise UpdateFailed("is not in the inventory any more", node=visit.name, component=gone)
    return tuple(uris[change.component] for change in missing)


def _mark(task: RedfishTask) -> str:
    """Tells tasks apart also where a BMC numbers them anew after a restart."""
    return f"{task.uri} {task.started or ''}".strip()


def _begun_by(pushed: Entry, tasks: tuple[RedfishTask, ...]) -> RedfishTask | None:
    """The task of a push whose answer nobody saw: one that the BMC did not know before."""
    known = pushed.intent.get("tasks")
    new = [task for task in tasks if isinstance(known, list) and _mark(task) not in known]
    return new[-1] if new else None


def _await_written(
    visit: Visit, bmc: Bmc, entry: BundleEntry, changes: tuple[Change, ...]
) -> tuple[bool, tuple[FirmwareComponent, ...]]:
    """Follow the update that was accepted, then read back: whether the inventory shows every change, and it."""
    pushed = visit.last(f"push:{entry.name}")
    accepted = pushed.result if pushed is not None else {}
    uri = str(accepted.get("task", ""))
    with visit.step(f"write:{entry.name}", {"task": uri}) as evidence:
        task = wait_for_task(visit, bmc, uri, entry.expected_seconds) if uri else None
        said = task.outcome if task is not None else TaskOutcome.UNKNOWN
        patience = visit.fleet.spec().bmc.settle_seconds
        if not uri:
            wait_for_running_update(visit, bmc)
            said = TaskOutcome(str(accepted.get("outcome", TaskOutcome.UNKNOWN)))
            patience += entry.expected_seconds if said is TaskOutcome.UNKNOWN else 0.0
        evidence |= {"said": said.value, "messages": list(task.messages[:5]) if task is not None else []}
        missing, inventory = _read_back(visit, bmc, changes, 0.0 if said is TaskOutcome.FAILED else patience)
        evidence["missing"] = [change.component for change in missing]
        if missing and said is TaskOutcome.UNKNOWN:
            raise FlashInterrupted(
                f"{_no_word_from(visit, bmc, uri, task)}, and {missing[0].component} shows no {missing[0].desired}",
                node=visit.name,
                component=missing[0].component,
            )
    return not missing, inventory


def _no_word_from(visit: Visit, bmc: Bmc, uri: str, task: RedfishTask | None) -> str:
    """Why nobody knows how the task ended: a person treats a stuck BMC otherwise than a forgetful one."""
    if not uri:
        return "the BMC took the image and named no task"
    if task is not None:
        return f"BMC task {uri} ended as {task.state!r}, which says nothing"
    if patiently(visit, "reads its task", lambda: bmc.read_task(uri)) is None:
        return f"the BMC lost task {uri}"
    return f"BMC task {uri} did not end in {visit.fleet.spec().bmc.update_timeout_seconds:.0f} s"


def _read_back(
    visit: Visit, bmc: Bmc, changes: tuple[Change, ...], seconds: float
) -> tuple[tuple[Change, ...], tuple[FirmwareComponent, ...]]:
    """The changes that the inventory does not show as written, and it; it may lag, so it is asked for `seconds`."""
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + seconds
    while True:
        inventory = read_firmware(visit, bmc)
        missing = tuple(change for change, _ in not_yet(changes, inventory, _WRITTEN))
        if not missing or clock.monotonic() >= deadline:
            return missing, inventory
        visit.say(f"reads back {missing[0].component}: {missing[0].desired} not shown yet")
        clock.sleep(settings.poll_seconds)


def _settle_earlier_push(visit: Visit, bmc: Bmc, entry: BundleEntry, changes: tuple[Change, ...]) -> None:
    """Clear up a push or a write whose end nobody saw, before anything else is decided."""
    pushed = visit.last(f"push:{entry.name}")
    if pushed is None or pushed.outcome is Outcome.FAILED:
        return
    if pushed.outcome is Outcome.DONE:
        written = visit.last(f"write:{entry.name}")
        if written is None or written.id < pushed.id or written.outcome is not Outcome.DONE:
            _await_written(visit, bmc, entry, changes)
        return
    wait_until_ready(visit, bmc)
    tasks = wait_for_running_update(visit, bmc)
    own = _begun_by(pushed, tasks)
    finish = visit.ledger.journal.finish
    if own is not None:
        finish(pushed.id, Outcome.DONE, {"task": own.uri, "outcome": own.outcome.value, "found": "its task"})
        _await_written(visit, bmc, entry, changes)
    elif not _read_back(visit, bmc, changes, visit.fleet.spec().bmc.settle_seconds)[0]:
        finish(pushed.id, Outcome.DONE, {"found": "the inventory shows it"})
    elif pushed.outcome is Outcome.UNKNOWN and not tasks:
        raise FlashInterrupted(
            f"{entry.name} was sent, the connection broke, and the BMC knows no task and no new version",
            node=visit.name,
            component=changes[0].component,
        )
    else:
        finish(pushed.id, Outcome.FAILED, {"error": "the BMC never took it: no task, no new version"})


def _trusted_without_staging(visit: Visit, entry: BundleEntry) -> bool:
    """A BMC that shows no staged versions, said "done", and needs a reset: only activation can tell."""
    written = visit.last(f"write:{entry.name}")
    said = "" if written is None or written.outcome is not Outcome.DONE else str(written.result.get("said"))
    return entry.reset.value != "none" and said in {outcome.value for outcome in _SAID_DONE}


def _last_word(visit: Visit, entry: BundleEntry) -> str:
    written = visit.last(f"write:{entry.name}")
    if written is None:
        return f"{entry.name}: the BMC never took the image"
    messages = written.result.get("messages")
    words = "; ".join(str(message) for message in messages) if isinstance(messages, list) else ""
    return f"{entry.name}: BMC task ended {written.result.get('said')}: {words or 'no message'}"
