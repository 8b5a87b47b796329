"""One node's visit, from lease to return. What an error means for the node is decided here, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fleet.activation import Stage
from fleet.bundle import Bundle
from fleet.errors import (
    ConfigurationError,
    FleetError,
    LeaseLost,
    NotDrained,
    PreconditionError,
    Released,
    SchedulerUnreachable,
)
from fleet.model import NodeState
from ledger import NodeStatus
from tasks.acceptance import validate_node
from tasks.bmc import read_firmware
from tasks.firmware import flash_bundle
from tasks.power import activate_bundle
from tasks.presets import DISRUPTS, step
from tasks.scheduler import drain_node, keep_cordoned, return_node, wait_until_empty
from tasks.unit import meet_unit, wait_for_unit
from tasks.visit import Visit


@dataclass(frozen=True, slots=True)
class VisitResult:
    node: str
    status: NodeStatus
    reason: str


class Firmware:
    """What a firmware visit carries: the bundle, its images by entry name, and its stages.

    `fence` is called for an updated node before it takes work again.
    """

    def __init__(
        self,
        bundle: Bundle,
        images: dict[str, Path],
        stages: tuple[Stage, ...],
        fence: Callable[[Visit], None] = lambda _: None,
    ) -> None:
        self.bundle = bundle
        self.images = images
        self.stages = stages
        self.fence = fence


class Steps(NamedTuple):
    """The parts of a visit that wait or disrupt, each seen in the Prefect UI; a test runs the functions behind them.

    A task run costs 50 ms of CPU here and at the server, so what only reads has none.
    """

    wait: Callable[[Visit, float], str]
    flash: Callable[[Visit, Stage, dict[str, Path]], None]
    activate: Callable[[Visit, Bundle, Stage], None]


OBSERVED = Steps(wait_until_empty, flash_bundle, activate_bundle)


@step("update {visit.name}", DISRUPTS)
def update_node(visit: Visit, firmware: Firmware) -> VisitResult:
    """Drain, flash, activate, read back, validate, return; see `visit_node`."""
    return visit_node(visit, firmware, OBSERVED)


def visit_node(visit: Visit, firmware: Firmware, steps: Steps) -> VisitResult:
    """Drain, flash, activate, read back, validate, return. Every error ends in a state that is true.

    Raises SchedulerUnreachable or LeaseLost only where the runner itself must stop.
    """
    if visit.ledger.inventory.node(visit.name).state is NodeState.QUARANTINED:
        return keep_quarantined(visit)
    try:
        visit.wait_for_its_turn()
        returning = visit.last("return")
        if returning is not None:
            status = NodeStatus(str(returning.intent["status"]))
            if status is NodeStatus.UPDATED:
                firmware.fence(visit)
            return _return(visit, status, str(returning.intent["reason"]))
        _change(visit, firmware, steps)
        if visit.plan.changes:
            firmware.fence(visit)
        return _return(visit, NodeStatus.UPDATED if visit.plan.changes else NodeStatus.UNCHANGED)
    except NotDrained as error:
        return _return(visit, NodeStatus.SKIPPED, error.message)
    except Released:
        return _return(visit, NodeStatus.PENDING)
    except LeaseLost as error:
        return yield_node(visit, error)
    except FleetError as error:
        return _give_up(visit, error)
    finally:
        visit.close()


def _return(visit: Visit, status: NodeStatus, reason: str = "") -> VisitResult:
    return_node(visit, status, reason)
    return VisitResult(visit.name, status, reason)


def _change(visit: Visit, firmware: Firmware, steps: Steps) -> None:
    if visit.last("cordon") is None:
        read_firmware(visit, visit.bmc)  # a BMC that refuses us is found before any work is disturbed
    drain_node(visit, steps.wait)
    wait_for_unit(visit, "drain")
    ensure_maintenance(visit, "firmware")
    for number, stage in enumerate(firmware.stages):
        if visit.plan.changes:
            steps.flash(visit, stage, firmware.images)
        meet_unit(visit, f"flash:{number}")  # a reset may take the whole domain down: nobody may be flashing then
        if visit.plan.changes:
            steps.activate(visit, firmware.bundle, stage)
        meet_unit(visit, f"activate:{number}")
    validate_node(visit)
    wait_for_unit(visit, "validate")


def ensure_maintenance(visit: Visit, what: str) -> None:
    """A drained node is the operation's to change from here on."""
    state = visit.ledger.inventory.node(visit.name).state
    if state is NodeState.DRAINED:
        visit.ledger.inventory.move(visit.name, NodeState.MAINTENANCE, what, visit.operation)


def yield_node(visit: Visit, error: LeaseLost) -> VisitResult:
    """A person took the node back: touch nothing more. Another runner took over: stop without a word."""
    visit.ledger.operations.check(visit.operation, visit.token)
    visit.ledger.leases.take_back(visit.name, "a person, at the scheduler", error.message)
    return VisitResult(visit.name, NodeStatus.SKIPPED, error.message)


def _give_up(visit: Visit, error: FleetError) -> VisitResult:
    """Before anything was disturbed the node goes back; afterwards it is quarantined with the true reason."""
    untouched = not any(
        e.step.startswith(("push:", "reset:")) for e in visit.ledger.journal.entries(visit.operation, visit.name)
    )
    at_work = not visit.done("drain")  # a BMC that is away does not make a working node a bad one
    kinds = PreconditionError | ConfigurationError | SchedulerUnreachable
    if untouched and (at_work or isinstance(error, kinds)):
        return _return(visit, NodeStatus.SKIPPED, error.message)
    visit.ledger.inventory.move(visit.name, NodeState.QUARANTINED, str(error), visit.operation)
    return keep_quarantined(visit)


def keep_quarantined(visit: Visit) -> VisitResult:
    """Also where an earlier runner died between the verdict and the cordon."""
    reason = visit.ledger.inventory.node(visit.name).reason
    if visit.before.state is NodeState.QUARANTINED:  # not by this operation, and no failure of its own
        return VisitResult(visit.name, NodeStatus.SKIPPED, f"was quarantined before: {reason}")
    keep_cordoned(visit, reason)
    return VisitResult(visit.name, NodeStatus.FAILED, reason)
