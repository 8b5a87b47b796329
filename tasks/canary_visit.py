"""One node's visit in a driver rollout or on the way back, from lease to return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from fleet.canary_settings import CanarySettings
from fleet.driver_rollout import DriverPlan
from fleet.driver_target import DriverTarget, FormerDriver, same_release
from fleet.errors import (
    DriverBlocked,
    FleetError,
    LeaseLost,
    NotQualified,
    OutcomeUnknown,
    PreconditionError,
    Released,
)
from fleet.measures import Phase
from fleet.model import NodeState
from fleet.plan import Wave
from ledger import NodeStatus, Outcome
from tasks.acceptance import validate_node
from tasks.driver import OBSERVED as DRIVER_STEPS
from tasks.driver import DriverSteps, change_driver, parts_now, restore_driver
from tasks.driver_give_back import give_back_services
from tasks.driver_work import DRIVER, RESTORE
from tasks.measured import measure_phase, measured_with
from tasks.node import VisitResult, ensure_maintenance, keep_quarantined, yield_node
from tasks.operations import OperationRun
from tasks.presets import DISRUPTS, step
from tasks.scheduler import drain_node, return_node, wait_until_empty
from tasks.visit import Visit

OUTCOME = "driver:outcome"
_CHANGED = frozenset({"driver:install", "driver:load", "driver:reboot", "restore:begun"})
_RESTORED = frozenset({"restore:mask", "restore:install", "restore:load", "restore:reboot"})


class CanaryWork:
    """What the visits of one wave carry. Not a dataclass, as tasks/visit.py says.

    `targets` are by node; `measured` are measured before and after. `fence` is called for a changed node before it
    takes work again.
    """

    def __init__(
        self,
        targets: Mapping[str, DriverTarget],
        measured: frozenset[str],
        settings: CanarySettings,
        fence: Callable[[Visit], None] = lambda _: None,
    ) -> None:
        self.targets = targets
        self.measured = measured
        self.settings = settings
        self.fence = fence


class BackWork:
    """What the visits on the way back carry: what each node had, and which are measured once more.

    `parent` is the rollout that brought `released`: its tools measure again.
    """

    def __init__(
        self,
        former: Mapping[str, FormerDriver],
        measured: frozenset[str],
        settings: CanarySettings,
        parent: str,
        released: str,
    ) -> None:
        self.former = former
        self.measured = measured
        self.settings = settings
        self.parent = parent
        self.released = released


def canary_work(run: OperationRun[DriverPlan], wave: Wave, fence: Callable[[Visit], None]) -> CanaryWork:
    """What the visits of this wave carry."""
    plan = run.plan
    targets = {node: plan.target(node) for node in wave.nodes}
    return CanaryWork(targets, frozenset(plan.cohorts[wave.number].measured), plan.measuring(), fence)


class CanarySteps(NamedTuple):
    """The parts that are seen in the Prefect UI; a test runs the functions behind them."""

    wait: Callable[[Visit, float], str]
    driver: DriverSteps


OBSERVED = CanarySteps(wait_until_empty, DRIVER_STEPS)


@step("change driver of {visit.name}", DISRUPTS)
def change_node(visit: Visit, work: CanaryWork) -> VisitResult:
    """Drain, measure, change the driver, validate, measure, return; see `visit_node`."""
    return visit_node(visit, work, OBSERVED)


@step("put back driver of {visit.name}", DISRUPTS)
def put_back_node(visit: Visit, work: BackWork) -> VisitResult:
    """Drain, put the former driver back, validate, measure, return; see `visit_back`."""
    return visit_back(visit, work, OBSERVED)


def visit_node(visit: Visit, work: CanaryWork, steps: CanarySteps) -> VisitResult:
    """Change one node's driver. A change that fails goes back on this node at once; every end is a true state.

    Raises SchedulerUnreachable or LeaseLost only where the runner itself must stop.
    """

    def change() -> None:
        _check_not_going_back(visit)
        _measure(visit, work.settings, Phase.BEFORE, visit.name in work.measured)
        _change(visit, work.targets[visit.name], steps)
        validate_node(visit)
        _measure(visit, work.settings, Phase.AFTER, visit.name in work.measured)
        work.fence(visit)

    return _visited(visit, steps, change, lambda error: _give_up(visit, steps, error), _CHANGED)


def visit_back(visit: Visit, work: BackWork, steps: CanarySteps) -> VisitResult:
    """Bring one node back to the driver that it had. Where that fails it is quarantined with the true reason.

    One that somebody has brought to a third release since is left alone.
    """

    def change() -> None:
        if not _began(visit, _RESTORED):
            _check_unchanged_since(visit, work)
        restore_driver(visit, steps.driver, work.former[visit.name])
        validate_node(visit)
        if visit.name in work.measured:
            before = measured_with(visit.ledger, work.parent, visit.name)
            measure_phase(visit, Phase.AFTER, work.settings.runs, work.settings, before)

    return _visited(visit, steps, change, lambda error: _quarantine(visit, error), _RESTORED)


def _visited(
    visit: Visit,
    steps: CanarySteps,
    change: Callable[[], None],
    give_up: Callable[[FleetError], VisitResult],
    changing: frozenset[str],
) -> VisitResult:
    """The frame of a visit. Until one of the steps `changing` has begun, the node can go back just as it was."""
    if visit.ledger.inventory.node(visit.name).state is NodeState.QUARANTINED:
        return keep_quarantined(visit)
    try:
        visit.wait_for_its_turn()
        returning = visit.last("return")
        if returning is not None:
            return _return(visit, NodeStatus(str(returning.intent["status"])), str(returning.intent["reason"]))
        drain_node(visit, steps.wait)
        ensure_maintenance(visit, "driver")
        change()
        return _return(visit, NodeStatus.UPDATED)
    except Released:
        return _return(visit, NodeStatus.PENDING)
    except LeaseLost as error:
        return yield_node(visit, error)
    except FleetError as error:
        blocked = isinstance(error, DriverBlocked)  # it stays out, with its holders named, until somebody ends them
        as_it_was = isinstance(error, PreconditionError) or not visit.done("drain")
        if as_it_was and not blocked and not _began(visit, changing - _untouched(visit)):
            return _return(visit, NodeStatus.SKIPPED, error.message)
        return give_up(error)
    finally:
        visit.close()


def _return(visit: Visit, status: NodeStatus, reason: str = "") -> VisitResult:
    return_node(visit, status, reason)
    return VisitResult(visit.name, status, reason)


def _measure(visit: Visit, settings: CanarySettings, phase: Phase, wanted: bool) -> None:
    if wanted:
        measure_phase(visit, phase, settings.runs, settings)


def _change(visit: Visit, target: DriverTarget, steps: CanarySteps) -> None:
    """Raises what `change_driver` raises."""
    outcome = change_driver(visit, target, steps.driver)
    if not visit.done(OUTCOME):
        with visit.step(OUTCOME, {"version": outcome.version}) as evidence:
            evidence |= {
                "parts": outcome.parts.as_detail(),
                "changed": outcome.changed,
                "rebooted": outcome.rebooted,
                "settings_lost": [str(one) for one in outcome.settings_lost],
                "held_by": list(outcome.held_by),
                "notes": list(outcome.notes),
            }


def _check_not_going_back(visit: Visit) -> None:
    """Raises OutcomeUnknown on a node that an earlier runner was already putting back: that goes on."""
    if visit.last("restore:begun") is not None:
        raise OutcomeUnknown("its former driver was being put back when the runner died", node=visit.name)


def _check_unchanged_since(visit: Visit, work: BackWork) -> None:
    """Raises NotQualified where the node has neither the release that is taken back nor what it had before, or its
    driver is somebody else's now."""
    seen = visit.look().nodes.get(visit.name)
    if seen is not None and seen.driver_refusal is not None:
        raise NotQualified(seen.driver_refusal, node=visit.name)
    loaded, former = parts_now(visit).loaded, work.former[visit.name].version or ""
    if loaded is not None and not same_release(loaded, work.released) and not same_release(loaded, former):
        raise NotQualified(f"has driver {loaded} now, which is not what {work.parent} brought", node=visit.name)


def _give_up(visit: Visit, steps: CanarySteps, error: FleetError) -> VisitResult:
    """The former driver is put back and the node has failed; where it was never changed, it is only kept out."""
    if not _began(visit, _CHANGED):
        return _quarantine(visit, error)
    began = visit.last("restore:begun")
    why = str(began.intent["why"]) if began is not None else error.message
    if began is None:
        with visit.step("restore:begun", {"why": why}):
            pass
    try:
        restore_driver(visit, steps.driver)
        validate_node(visit)
        return _return(visit, NodeStatus.FAILED, f"{why}; its former driver is back")
    except LeaseLost as lost:
        return yield_node(visit, lost)
    except FleetError as second:
        return _quarantine(visit, second, f"{why}; and its former driver could not be put back: ")


def _untouched(visit: Visit) -> frozenset[str]:
    """Steps that changed nothing in the end: no package was changed, and the driver's steps have put the rest back."""
    found: set[str] = set()
    for way in (DRIVER, RESTORE):
        back, begun = visit.last(f"{way}:put_back"), visit.last(f"{way}:mask")
        if back is not None and back.outcome is Outcome.DONE and begun is not None and back.id > begun.id:
            found |= {f"{way}:mask", f"{way}:install"}
    return frozenset(found)


def _began(visit: Visit, steps: frozenset[str]) -> bool:
    return any(entry.step in steps for entry in visit.ledger.journal.entries(visit.operation, visit.name))


def _quarantine(visit: Visit, error: FleetError, before: str = "") -> VisitResult:
    """Out of service with its reason; the services that were stopped there run again."""
    left = give_back_services(visit, error)
    why = f"{before}{error}; {left}" if left else f"{before}{error}"
    visit.ledger.inventory.move(visit.name, NodeState.QUARANTINED, why, visit.operation)
    return keep_quarantined(visit)
