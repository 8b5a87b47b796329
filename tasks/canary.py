"""What a driver rollout does around the changing of a wave: its controls, its looks, its verdict, and the way back."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from prefect.logging import get_run_logger

from blocks.metrics import open_metrics, read_series_samples
from fleet.canary import judge_canary
from fleet.canary_return import effect_gone
from fleet.canary_verdict import CanaryVerdict, Outcome, ReturnVerdict
from fleet.driver_rollout import DriverPlan, check_driver_unchanged
from fleet.errors import LeaseLost, PreconditionError, RolloutHalted, TransientError
from fleet.measures import Phase, Sample
from fleet.model import NodeState
from fleet.plan import Wave
from fleet.sample_json import samples_from_json, samples_to_json
from fleet.series import PhaseWindow
from fleet.series_catalog import rules_for
from ledger import NodeStatus, Operation, OperationState
from tasks.canary_planning import keep_rollback, make_rollback_plan
from tasks.children import child_of, run_child
from tasks.measured import measured_samples
from tasks.measurement import keep_measurement, make_measurement_plan
from tasks.operations import CanaryInconclusive, OperationRun, RolledBack

ROLLBACK = "rollback"
BEFORE_CHANGE, AFTER_CHANGE, AFTER_RETURN = "controls-before", "controls-after", "controls-returned"
"""When the controls of a wave are measured: around the change, and once more after the way back."""
_LOOK_SECONDS = 2.0
_SHORTEST_WINDOW = timedelta(hours=1)
_WINDOWS = 6  # of each phase: a series gives no repetitions by itself

CanaryRun = OperationRun[DriverPlan]


def check_driver_plan(run: CanaryRun) -> None:
    """Raise PlanChanged where policy or settings are not what was planned and approved."""
    check_driver_unchanged(run.plan, run.fleet.spec())


def measure_controls(run: CanaryRun, wave: Wave, role: str) -> None:
    """Measure the wave's controls, by an operation of their own; ones that are not in service now are left out.

    `role` is BEFORE_CHANGE, AFTER_CHANGE or AFTER_RETURN. Raises StoppedByRequest.
    """
    serving = {r.name for r in run.ledger.inventory.nodes() if r.state is NodeState.IN_SERVICE}
    names = [node for node in run.plan.cohorts[wave.number].controls if node in serving]
    if not names and child_of(run, wave, role) is None:
        return
    phase = Phase.BEFORE if role == BEFORE_CHANGE else Phase.AFTER
    before = None if role == BEFORE_CHANGE else child_of(run, wave, BEFORE_CHANGE)

    def open_child(actor: str) -> Operation:
        reason, settings = f"{role} of {run.operation} wave {wave.number}", run.plan.measuring()
        plan = make_measurement_plan(
            run.fleet, names, phase, settings.runs, reason, run.operation, run.plan.seed, before, settings
        )
        return keep_measurement(run.fleet, plan, actor)

    try:
        run_child(run, wave, role, open_child, f"its controls are measured ({phase.value})")
    except LeaseLost:
        raise
    except PreconditionError as error:  # none of them can be drained now: the verdict will say what is missing
        get_run_logger().warning("no control is measured (%s): %s", phase.value, error.message)


def bake_and_judge(run: CanaryRun, wave: Wave) -> None:
    """Look at the data while the wave bakes, as often as the plan says; the last look decides.

    Raises RolledBack after a failed one, once every changed node has its former driver; CanaryInconclusive where a
    production pool's canary is not decided; StoppedByRequest.
    """
    began = run.ledger.waves.marked(run.operation, wave.number, "changed")
    assert began is not None
    bake = bake_time(run, wave)
    looks = run.plan.canary.looks
    first = 1 if run.plan.series else looks  # benchmarks alone are all there at once
    verdict: CanaryVerdict | None = None
    for look in range(first, looks + 1):
        _wait_until(run, wave, began + bake * (look / looks if first < looks else 0.0))
        verdict = look_at(run, wave, look)
        if verdict.outcome is Outcome.FAIL:
            go_back(run, wave, verdict)
    _wait_until(run, wave, began + bake)
    assert verdict is not None
    if verdict.outcome is Outcome.INCONCLUSIVE and _decides(run, wave):
        raise CanaryInconclusive(
            f"wave {wave.number}: {verdict.text}; `gpufleet verdict {run.operation}` says what would decide it",
            operation=run.operation,
        )


def bake_time(run: CanaryRun, wave: Wave) -> timedelta:
    """The pool's own; for its canary at least the policy's hours, where there are series to look at."""
    pool = timedelta(seconds=wave.bake_seconds)
    if not run.plan.series or not is_canary(run.plan, wave):
        return pool
    return max(pool, timedelta(hours=run.plan.canary.bake_hours))


def is_canary(plan: DriverPlan, wave: Wave) -> bool:
    """Whether it is the first wave of its pool."""
    return wave.number == min(one.number for one in plan.waves if one.pool == wave.pool)


def look_at(run: CanaryRun, wave: Wave, look: int) -> CanaryVerdict:
    """One look: the verdict on all data had so far, kept; a look that was taken before stays as it was."""
    records = run.ledger.verdicts.of(run.operation)
    kept = {one.look: CanaryVerdict.from_json(one.verdict_json) for one in records if one.wave == wave.number}
    if look in kept:
        return kept[look]
    run.set_state(OperationState.BAKING, reason=f"wave {wave.number}: look {look} of {run.plan.canary.looks}")
    samples = wave_samples(run, wave)
    measures = run.plan.measures()
    verdict = judge_canary(
        run.plan.design(measures),
        run.plan.cohorts_of(wave),
        samples,
        {},
        look,
        tuple(kept[number] for number in sorted(kept) if number < look),
    )
    dumped = json.dumps(samples_to_json(samples), separators=(",", ":"))
    run.ledger.verdicts.record(run.operation, run.token, wave.number, look, verdict.to_json(), dumped)
    return verdict


def wave_samples(run: CanaryRun, wave: Wave) -> tuple[Sample, ...]:
    """Everything measured for the wave: its own nodes, its controls, and the series of both.

    A measured node that was not changed after all has nothing from after a change: its data are missing.
    """
    cohort = run.plan.cohorts[wave.number]
    found = [one for one in measured_samples(run.ledger, run.operation) if one.node in cohort.measured]
    for role in (BEFORE_CHANGE, AFTER_CHANGE):
        child = child_of(run, wave, role)
        found += () if child is None else measured_samples(run.ledger, child)
    judged = {measure.name for measure in run.plan.measures()}
    rows = run.ledger.operations.node_rows(run.operation, wave.number)
    unchanged = set(cohort.measured) - {row.node for row in rows if row.status is NodeStatus.UPDATED}
    return tuple(
        one
        for one in (*found, *_series(run, wave))
        if one.measure in judged and not (one.phase is Phase.AFTER and one.node in unchanged)
    )


def go_back(run: CanaryRun, wave: Wave, verdict: CanaryVerdict) -> None:
    """Put the former driver back on every node that was changed, see whether the loss goes with it, and stop.

    Raises RolledBack where every changed node has its former driver, RolloutHalted where some have not, and
    StoppedByRequest before.
    """

    def open_child(actor: str) -> Operation:
        plan = make_rollback_plan(run.fleet, run.operation, f"wave {wave.number}: {verdict.text}")
        return keep_rollback(run.fleet, plan, actor)

    said = f"wave {wave.number}: {verdict.text}"
    try:
        child = run_child(
            run, wave, ROLLBACK, open_child, "the former driver is put back", lambda: bool(_still_changed(run))
        )
    except LeaseLost:
        raise
    except PreconditionError as error:
        raise RolloutHalted(f"{said}; no driver could be put back: {error.message}", operation=run.operation) from error
    left = _still_changed(run)
    if left:
        named = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
        raise RolloutHalted(
            f"{said}; {child.id} ended {child.state.value}, and {named} still have {run.plan.to}: mend them, then "
            f"`gpufleet resume {run.operation}`",
            operation=run.operation,
        )
    measure_controls(run, wave, AFTER_RETURN)
    returned = judge_return(run, wave, verdict)
    gone = f"; {returned.text}" if returned is not None else ""
    back = f"the former driver was put back by {child.id} ({_rows(run, child)})"
    raise RolledBack(f"{said}; {back}{gone}", operation=run.operation)


def _still_changed(run: CanaryRun) -> list[str]:
    """Nodes that this operation changed and none of its rollbacks brought back."""
    back = {node for child in _ways_back(run) for node in _updated(run, child)}
    return sorted(_updated(run, run.operation) - back)


def _ways_back(run: CanaryRun) -> list[str]:
    """The rollbacks that this operation began, oldest first; a second one is for nodes that the first did not reach."""
    marks = [mark for wave in run.plan.waves for mark in run.ledger.waves.marks(run.operation, wave.number)]
    return [mark.partition(":")[2] for mark in marks if mark.startswith(f"{ROLLBACK}:")]


def _updated(run: CanaryRun, operation: str) -> set[str]:
    return {row.node for row in run.ledger.operations.node_rows(operation) if row.status is NodeStatus.UPDATED}


def judge_return(run: CanaryRun, wave: Wave, verdict: CanaryVerdict) -> ReturnVerdict | None:
    """Whether the loss went away with the driver; None where nothing was measured on the way back."""
    measured = set(run.plan.cohorts[wave.number].measured)
    taken = [one for child in _ways_back(run) for one in measured_samples(run.ledger, child)]
    returned = [one for one in taken if one.node in measured]
    controls = child_of(run, wave, AFTER_RETURN)
    returned += () if controls is None else measured_samples(run.ledger, controls)
    record = run.ledger.verdicts.newest(run.operation, wave.number)
    if not returned or record is None or record.samples_json is None:
        return None
    samples = samples_from_json(json.loads(record.samples_json))
    return effect_gone(run.plan.design(run.plan.measures()), run.plan.cohorts_of(wave), verdict, samples, returned)


def _rows(run: CanaryRun, child: Operation) -> str:
    found = run.ledger.operations.counts(child.id)
    return ", ".join(f"{count} {status.value}" for status, count in sorted(found.items()))


def _decides(run: CanaryRun, wave: Wave) -> bool:
    """A production pool's canary must pass; smaller samples after it, and pools that serve nobody, must not fail.

    A pool with too few nodes for any verdict was approved as such: its plan says so.
    """
    able = run.plan.cohorts[wave.number].smallest_detectable is not None
    return able and run.plan.policy.pools[wave.pool].production and is_canary(run.plan, wave)


def _wait_until(run: CanaryRun, wave: Wave, until: datetime) -> None:
    clock = run.fleet.clock
    while (left := (until - clock.now()).total_seconds()) > 0:
        run.set_state(OperationState.BAKING, reason=f"wave {wave.number} bakes until {until:%F %T} UTC")
        run.stop_if_asked()
        clock.sleep(min(_LOOK_SECONDS, left))
    run.set_state(OperationState.RUNNING)


def _series(run: CanaryRun, wave: Wave) -> tuple[Sample, ...]:
    """What the metrics server has of both cohorts. Raises StoppedByRequest; a server that is away is waited for."""
    settings = run.fleet.spec().metrics
    began = run.ledger.waves.marked(run.operation, wave.number, "began")
    changed = run.ledger.waves.marked(run.operation, wave.number, "changed")
    if settings is None or not run.plan.series or began is None or changed is None:
        return ()
    cohort = run.plan.cohorts[wave.number]
    windows = _windows(began, changed, run.fleet.clock.now(), bake_time(run, wave))
    while True:
        try:
            with open_metrics(settings, run.fleet.folder(), run.fleet.clock) as metrics:
                nodes = (*cohort.measured, *cohort.controls)
                return read_series_samples(metrics, settings, rules_for(run.plan.series), nodes, windows).samples
        except TransientError as error:
            run.set_state(OperationState.WAITING, reason=f"metrics server: {error.message}")
            run.stop_if_asked()
            run.fleet.clock.sleep(_LOOK_SECONDS)


def _windows(began: datetime, changed: datetime, now: datetime, bake: timedelta) -> tuple[PhaseWindow, ...]:
    """As much time before the wave as after it, each cut into a few."""
    length = max(bake, _SHORTEST_WINDOW)
    found: list[PhaseWindow] = []
    for phase, start, end in ((Phase.BEFORE, began - length, began), (Phase.AFTER, changed, now)):
        part = (end - start) / _WINDOWS
        found += [PhaseWindow(phase, start + part * n, start + part * (n + 1), n) for n in range(_WINDOWS)]
    return tuple(found)
