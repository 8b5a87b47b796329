"""What a rollout does around the changing of a wave's nodes."""

from __future__ import annotations

from fleet.errors import FailureBudgetSpent, RolloutHalted
from fleet.plan import Wave
from fleet.reasons import ReasonKind
from fleet.windows import next_open
from ledger import OperationState
from tasks.dispatch import Stopped
from tasks.operations import AnyRun, BreakerTripped, BudgetStuck, StoppedByRequest

_LOOK_SECONDS = 2.0


def is_over(run: AnyRun, wave: Wave) -> bool:
    """Whether the wave was changed, baked and judged by an earlier runner."""
    return run.ledger.waves.marked(run.operation, wave.number, "judged") is not None


def is_changed(run: AnyRun, wave: Wave) -> bool:
    """Whether every node of the wave was visited; only watching and judging are left."""
    return run.ledger.waves.marked(run.operation, wave.number, "changed") is not None


def has_nodes_in_hand(run: AnyRun) -> bool:
    """Whether an earlier runner took nodes out of service and died: they come before every gate and window."""
    return bool(run.ledger.leases.held_by(run.operation))


def note(run: AnyRun, wave: Wave, mark: str) -> None:
    """Write down how far the wave got; the first time counts."""
    run.ledger.waves.mark(run.operation, run.token, wave.number, mark)


def hold_for_window(run: AnyRun, wave: Wave) -> None:
    """Wait until the pool's maintenance window is open. Raises StoppedByRequest."""
    if is_changed(run, wave):
        return
    windows = run.plan.policy.pools[wave.pool].waves.windows
    clock = run.fleet.clock
    while True:
        now = clock.now()
        opens = next_open(windows, now)
        if opens <= now:
            run.set_state(OperationState.RUNNING)
            return
        run.set_state(OperationState.WAITING, ReasonKind.WINDOW, f"wave {wave.number}: opens {opens:%a %F %H:%M} UTC")
        run.stop_if_asked()
        clock.sleep(min(_LOOK_SECONDS, (opens - now).total_seconds()))


def stop_on(stopped: Stopped | None) -> None:
    """Raise what the wave stopped for; None is no reason."""
    if stopped is None:
        return
    errors: dict[ReasonKind, type[RolloutHalted]] = {
        ReasonKind.PERSON: StoppedByRequest,
        ReasonKind.FAILURE_BUDGET: FailureBudgetSpent,
        ReasonKind.BUDGET: BudgetStuck,
        ReasonKind.BREAKER: BreakerTripped,
    }
    raise errors.get(stopped.kind, RolloutHalted)(stopped.text)


def bake(run: AnyRun, wave: Wave) -> None:
    """Watch for the policy's bake time, counted from the wave's end. Raises StoppedByRequest."""
    note(run, wave, "changed")
    began = run.ledger.waves.marked(run.operation, wave.number, "changed")
    assert began is not None
    clock = run.fleet.clock
    while (left := wave.bake_seconds - (clock.now() - began).total_seconds()) > 0:
        run.set_state(OperationState.BAKING, ReasonKind.NONE, f"wave {wave.number} until {wave.bake_seconds:.0f} s")
        run.stop_if_asked()
        clock.sleep(min(_LOOK_SECONDS, left))
    run.set_state(OperationState.RUNNING)
