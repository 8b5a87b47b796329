"""Resets: asked for once, read back from what a reset changes, never repeated blindly."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from fleet.activation import Progress, Stage, not_yet
from fleet.bundle import Bundle
from fleet.errors import FirmwareMismatch, NodeUnreachable, OutcomeUnknown, ResetIgnored, TransientError
from fleet.model import FirmwareComponent, PowerState, ResetKind, ResetMarks
from fleet.plan import Change, resets_for
from fleet.ports import Bmc
from ledger import Outcome
from tasks.bmc import patiently, patiently_change, read_firmware, wait_for_running_update, wait_until_ready
from tasks.pace import Pace
from tasks.presets import DISRUPTS, step
from tasks.visit import Visit

_ACTIVE = frozenset({Progress.ACTIVE})


@step("activate {visit.name}", DISRUPTS)
def activate_bundle(visit: Visit, bundle: Bundle, stage: Stage) -> None:
    """Do the resets that the written versions of `stage` need, then read every version back.

    Raises FirmwareMismatch where an active version is not the desired one afterwards, ResetIgnored,
    OutcomeUnknown, NodeUnreachable.
    """
    names = {entry.name for entry in stage.entries}
    changes = tuple(change for change in visit.plan.changes if change.entry in names)
    bmc = visit.bmc
    inventory = _settle_earlier_reset(visit, bmc)
    waiting = tuple(change for change, _ in not_yet(changes, inventory, _ACTIVE))
    for kind in resets_for(bundle, waiting):
        carry_out_reset(visit, bmc, kind, bundle.expected_reset_seconds(kind))
    read_back_active(visit, bmc, changes)


def carry_out_reset(visit: Visit, bmc: Bmc, kind: ResetKind, expected_seconds: float) -> None:
    """Reset once and wait until BMC and host are back.

    Raises LeaseLost where the node is no longer ours, NotDrained where it has work again, ResetIgnored where
    nothing changed.
    """
    wait_for_running_update(visit, bmc)  # a reset in the middle of a write may leave a board without firmware
    visit.check_undisturbed()
    before = patiently(visit, "reads its reset marks", bmc.read_reset_marks)
    visit.say(f"does the reset: {kind.value}")
    boots = {} if kind is ResetKind.BMC_RESET else visit.registration()
    with visit.step(f"reset:{kind.value}", _detail(before) | boots):
        try:
            patiently_change(visit, f"reset {kind.value}", lambda: bmc.reset(kind))
        except OutcomeUnknown:
            visit.say(f"reset {kind.value} was asked for, the connection broke: reads back")
        up_by = visit.fleet.clock.monotonic() + expected_seconds
        _wait_for_change(visit, bmc, kind, before)
        _wait_until_up(visit, bmc, up_by)


def _wait_for_change(visit: Visit, bmc: Bmc, kind: ResetKind, before: ResetMarks) -> None:
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.settle_seconds
    while True:
        marks = patiently(visit, f"waits for reset {kind.value}", bmc.read_reset_marks)
        if _happened(kind, before, marks) or not _told(kind, marks):
            return
        if clock.monotonic() >= deadline:
            raise ResetIgnored(f"{kind.value} was accepted, and its marks did not change", node=visit.name)
        clock.sleep(settings.poll_seconds)


def _happened(kind: ResetKind, before: ResetMarks, now: ResetMarks) -> bool:
    """Whether the marks that this reset changes have changed; an unchanged or untold mark is not enough."""
    host = now.host_last_reset is not None and now.host_last_reset != before.host_last_reset
    bmc = now.bmc_last_reset is not None and now.bmc_last_reset != before.bmc_last_reset
    if kind is ResetKind.HOST_REBOOT:
        return host
    return bmc if kind is ResetKind.BMC_RESET else host and bmc


def _told(kind: ResetKind, marks: ResetMarks) -> bool:
    """Whether this BMC tells the marks at all; where it does not, only the versions can show a reset."""
    host, bmc = marks.host_last_reset is not None, marks.bmc_last_reset is not None
    return {ResetKind.HOST_REBOOT: host, ResetKind.BMC_RESET: bmc}.get(kind, host and bmc)


def _wait_until_up(visit: Visit, bmc: Bmc, up_by: float) -> None:
    """The BMC answers steadily, the host has power, and its operating system answers.

    A host that stays off after its reset (a power restore policy of "always off") is switched on, once.
    Raises NodeUnreachable when the fleet's boot time is over.
    """
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    wait_until_ready(visit, bmc)
    pace = Pace(clock, settings.poll_seconds, up_by - clock.monotonic())
    deadline = clock.monotonic() + settings.boot_timeout_seconds
    stays_off = clock.monotonic() + settings.settle_seconds
    while True:
        marks = patiently(visit, "boots", bmc.read_reset_marks)
        why = _not_up(visit, marks)
        if why is None:
            return
        if marks.power is PowerState.OFF and clock.monotonic() >= stays_off:
            _switch_on(visit, bmc)
            stays_off = deadline
        if clock.monotonic() >= deadline:
            raise NodeUnreachable(f"not up after {settings.boot_timeout_seconds:.0f} s: {why}", node=visit.name)
        visit.say(f"boots: {why}")
        pace.sleep()


def _switch_on(visit: Visit, bmc: Bmc) -> None:
    visit.say("is off after its reset: switches it on")
    with visit.step("power_on", {}), suppress(OutcomeUnknown):  # whether it came on is looked at anyway
        patiently_change(visit, "power on", lambda: bmc.reset(ResetKind.HOST_REBOOT))


def _not_up(visit: Visit, marks: ResetMarks) -> str | None:
    if marks.power is not PowerState.ON:
        return f"power is {marks.power.value}"
    try:
        timeout = visit.fleet.spec().ssh.connect_timeout_seconds
        visit.fleet.host(visit.node).run(("true",), timeout_seconds=timeout)
    except TransientError as error:
        return error.message
    return None


def _settle_earlier_reset(visit: Visit, bmc: Bmc) -> tuple[FirmwareComponent, ...]:
    """Find out what became of a reset whose end nobody saw; the answer is the inventory after it."""
    for kind in (ResetKind.AC_CYCLE, ResetKind.BMC_RESET, ResetKind.HOST_REBOOT):
        last = visit.ledger.journal.last(visit.operation, visit.name, f"reset:{kind.value}")
        if last is None or last.outcome in (Outcome.DONE, Outcome.FAILED):
            continue
        visit.keep_firmware(None)
        wait_until_ready(visit, bmc)
        before = _marks(last.intent)
        try:
            _wait_for_change(visit, bmc, kind, before)
        except ResetIgnored:
            visit.ledger.journal.finish(last.id, Outcome.FAILED, {"error": "the reset was never carried out"})
            continue
        _wait_until_up(visit, bmc, visit.fleet.clock.monotonic())
        visit.ledger.journal.finish(last.id, Outcome.DONE, {"found": "its marks have changed"})
    return visit.recent_firmware or read_firmware(visit, bmc)


def read_back_active(visit: Visit, bmc: Bmc, changes: tuple[Change, ...]) -> None:
    """Every change is active, or FirmwareMismatch; an inventory may lag for the fleet's settle time."""
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.settle_seconds
    while True:
        inventory = read_firmware(visit, bmc)
        wrong = not_yet(changes, inventory, _ACTIVE)
        if not wrong:
            visit.ledger.inventory.record_firmware(visit.name, inventory)
            return
        if clock.monotonic() >= deadline:
            break
        clock.sleep(settings.poll_seconds)
    change, place = wrong[0]
    shown = next((c.version for c in inventory if c.id == change.component), None)
    raise FirmwareMismatch(
        f"active is {shown or 'not readable'} ({place.value}), not {change.desired}",
        node=visit.name,
        component=change.component,
        evidence=tuple(f"{c.component}: {p.value}" for c, p in wrong[:10]),
    )


def _detail(marks: ResetMarks) -> dict[str, object]:
    return {"power": marks.power.value, "host": marks.host_last_reset, "bmc": marks.bmc_last_reset}


def _marks(detail: Mapping[str, object]) -> ResetMarks:
    host, bmc = detail.get("host"), detail.get("bmc")
    return ResetMarks(
        power=PowerState(str(detail.get("power", "unknown"))),
        host_last_reset=None if host is None else str(host),
        bmc_last_reset=None if bmc is None else str(bmc),
    )
