"""Measuring nodes as an operation of its own: the plan, a node's visit, and what people see of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from blocks.fleet import Fleet
from fleet.canary_settings import CanarySettings
from fleet.errors import ConfigurationError, FleetError, HardwareFault, LeaseLost, Released
from fleet.measure_plan import benchmark_measures
from fleet.measure_record import MeasuredWith, Measurements
from fleet.measurement_plan import MeasurementPlan, MeasurementRequest, describe_measurement, plan_measurement
from fleet.measurement_results import measured_rows, missing_reasons, missing_words
from fleet.measures import Phase
from fleet.model import NodeState
from ledger import NodeStatus, Operation
from tasks.acceptance import validate_node
from tasks.draining import make_drain_plan
from tasks.measured import measure_phase, measured_samples, measured_with
from tasks.node import VisitResult, ensure_maintenance, keep_quarantined, yield_node
from tasks.operations import OperationRun
from tasks.presets import DISRUPTS, step
from tasks.scheduler import drain_node, return_node, wait_until_empty
from tasks.taking_up import keep_plan, operation_of_this_run, read_kept, take_up
from tasks.visit import Visit

KIND = "measurement"


class Measuring:
    """What the visits of one measurement carry. Not a dataclass, as tasks/visit.py says.

    `before` is an earlier operation whose tools and GPU slots are used again.
    """

    def __init__(self, phase: Phase, runs: int, settings: CanarySettings, before: str | None = None) -> None:
        self.phase = phase
        self.runs = runs
        self.settings = settings
        self.before = before


def canary_settings(fleet: Fleet) -> CanarySettings:
    """How nodes of this fleet are measured."""
    return fleet.spec().canary


def make_measurement_plan(
    fleet: Fleet,
    names: Sequence[str],
    phase: Phase,
    runs: int,
    reason: str,
    parent: str | None = None,
    seed: int | None = None,
    before: str | None = None,
    settings: CanarySettings | None = None,
) -> MeasurementPlan:
    """Look at the nodes and the jobs on them, and plan; nothing is changed.

    `parent` and `before` are operations, as in MeasurementPlan; `settings` are the fleet file's, and the seed is drawn,
    where none are given. Raises PreconditionError for a node that is not in the fleet file or where no node can be
    measured, and SchedulerUnreachable.
    """
    spec = fleet.spec()
    wanted = set(names)
    pools = {node.pool for node in spec.inventory() if node.name in wanted}
    deadline = max((spec.pools[pool].waves.drain_timeout_seconds for pool in pools), default=0.0)
    drained = make_drain_plan(fleet, names, deadline, reason, forced=False)
    drawn = random.SystemRandom().randrange(2**31) if seed is None else seed
    request = MeasurementRequest(phase, runs, drawn, reason, parent, before)
    return plan_measurement(spec, drained, request, settings or canary_settings(fleet))


def keep_measurement(fleet: Fleet, plan: MeasurementPlan, actor: str) -> Operation:
    """Keep the plan as a new operation; nothing is run yet."""
    return keep_plan(fleet, KIND, plan, actor)


def open_or_take_up_measurement(
    fleet: Fleet, operation: str | None, nodes: list[str] | None, runs: int, reason: str
) -> OperationRun[MeasurementPlan]:
    """The measurement that this flow run carries out, claimed for this process.

    Raises LeaseLost where another live process runs it, ConfigurationError where neither operation nor nodes are
    given.
    """

    def plan() -> MeasurementPlan:
        if not nodes:
            raise ConfigurationError("give an operation to take up, or nodes to measure")
        return make_measurement_plan(fleet, nodes, Phase.BEFORE, runs, reason)

    return take_up(fleet, KIND, operation_of_this_run(fleet, KIND, operation, plan), read_measurement_plan)


def read_measurement_plan(operation: Operation) -> MeasurementPlan:
    """The kept plan. Raises ConfigurationError where it was altered behind its digest."""
    return read_kept(operation, MeasurementPlan)


def measuring_of(run: OperationRun[MeasurementPlan]) -> Measuring:
    """What the operation's visits carry."""
    return Measuring(run.plan.phase, run.plan.runs, run.plan.canary, run.plan.before)


@step("measure {visit.name}", DISRUPTS)
def measure_and_return(visit: Visit, measuring: Measuring) -> VisitResult:
    """As `measure_visit`, with its waiting seen in the Prefect UI."""
    return measure_visit(visit, measuring, wait_until_empty)


def measure_visit(visit: Visit, measuring: Measuring, wait: Callable[[Visit, float], str]) -> VisitResult:
    """Drain the node, measure it, validate it, and give it back as it was found.

    A node that could not be measured goes back too. One that is not fit for work after the load is quarantined.
    Raises LeaseLost only where the runner itself must stop.
    """
    if visit.ledger.inventory.node(visit.name).state is NodeState.QUARANTINED:
        return keep_quarantined(visit)
    try:
        visit.wait_for_its_turn()
        returning = visit.last("return")
        if returning is not None:
            return _back(visit, NodeStatus(str(returning.intent["status"])), str(returning.intent["reason"]))
        drain_node(visit, wait)
        ensure_maintenance(visit, "measures")
        found = measure_phase(visit, measuring.phase, measuring.runs, measuring.settings, _before(visit, measuring))
        validate_node(visit)
        return _back(visit, *_outcome(found))
    except Released:
        return _back(visit, NodeStatus.PENDING, "")
    except LeaseLost as error:
        return yield_node(visit, error)
    except HardwareFault as error:
        visit.ledger.inventory.move(visit.name, NodeState.QUARANTINED, str(error), visit.operation)
        return keep_quarantined(visit)
    except FleetError as error:
        return _back(visit, NodeStatus.SKIPPED, error.message)
    finally:
        visit.close()


def _back(visit: Visit, status: NodeStatus, reason: str) -> VisitResult:
    return_node(visit, status, reason)
    return VisitResult(visit.name, status, reason)


def _before(visit: Visit, measuring: Measuring) -> MeasuredWith | None:
    return None if measuring.before is None else measured_with(visit.ledger, measuring.before, visit.name)


def _outcome(found: Measurements) -> tuple[NodeStatus, str]:
    """Unchanged where there is any value: a node without one was drained in vain."""
    values = sum(sample.value is not None for sample in found.samples)
    missing = missing_words(missing_reasons(found.samples))
    if not values:
        return NodeStatus.SKIPPED, f"nothing could be measured: {missing or 'every measure is switched off'}"
    return NodeStatus.UNCHANGED, f"measured: {values} values" + (f", {missing}" if missing else "")


def publish_measurement_plan(run: OperationRun[MeasurementPlan]) -> None:
    """The plan as the run's first artifact."""
    lines = [f"# {run.operation}: measurement", "", *(f"- {line}" for line in describe_measurement(run.plan))]
    create_markdown_artifact("\n".join(lines), key=f"plan-{run.operation}", description="What was planned")


def publish_measurements(run: OperationRun[MeasurementPlan]) -> None:
    """What was measured, as a table: a row for each node and measure."""
    units = measure_units(run.fleet)
    rows = [
        {
            "node": row.node,
            "measure": row.measure,
            "median": row.median,
            "spread %": None if row.spread is None else round(100 * row.spread, 2),
            "unit": units.get(row.measure, ""),
            "values": row.values,
            "slowed by": ", ".join(row.slowed),
            "missing": missing_words(row.missing),
        }
        for row in measured_rows(measured_samples(run.ledger, run.operation))
    ]
    create_table_artifact(rows, key=f"measured-{run.operation}", description=f"{run.operation}: what was measured")


def measure_units(fleet: Fleet) -> dict[str, str]:
    """The unit of each benchmark of this fleet, by the measure's name."""
    return {measure.name: measure.unit for measure in benchmark_measures(canary_settings(fleet), None)}
