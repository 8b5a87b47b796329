"""What the reconciler does with operations that nobody runs; Prefect is played by three functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest
from unit.site_fakes import Site

from fleet.reasons import ReasonKind
from ledger import Control, ControlVerb, Operation, OperationState, Runner
from tasks import reconciliation
from tasks.operations import OperationRun
from tasks.standing import before_now

DEAD = Runner("another-host", 1, 1.0, None)


@dataclass
class Prefect:
    """`condition` is that of every run; a run that is asked for again under the same key is the same."""

    condition: str = "over"
    started: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)

    def start(self, fleet: str, operation: Operation, after: str = "") -> str:
        key = f"run-{operation.token}-{operation.since.timestamp()}-{after}"
        self.started.append(key)
        return key

    def resume(self, run: str, form: dict[str, str]) -> bool:
        self.resumed.append(run)
        return True

    def look(self, run: str | None, now: datetime) -> str:
        return self.condition

    def crash(self, run: str, why: str) -> None:
        self.crashed.append(run)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Prefect:
    played = Prefect()
    monkeypatch.setattr(reconciliation, "start_run", played.start)
    monkeypatch.setattr(reconciliation, "resume_run", played.resume)
    monkeypatch.setattr(reconciliation, "run_condition", played.look)
    monkeypatch.setattr(reconciliation, "crash_run", played.crash)
    return played


def _reconcile(site: Site) -> list[str]:
    site.clock.sleep(600)  # another host's runner counts as dead by then
    return reconciliation.reconcile_operations(site, "lab")  # type: ignore[arg-type]


def _stands(site: Site, state: OperationState, kind: ReasonKind = ReasonKind.NONE, reason: str = "") -> int:
    token = site.ledger().operations.claim(site.operation, DEAD, takeover=True)
    site.ledger().operations.set_state(site.operation, state, kind, reason, token)
    site.ledger().operations.bind_flow_run(site.operation, "run-0")
    return token


def _asked(site: Site) -> Control | None:
    return site.ledger().operations.control(site.operation)


def test_a_run_that_died_before_it_claimed_the_operation_is_followed_by_another(site: Site, prefect: Prefect) -> None:
    _stands(site, OperationState.RUNNING)
    _reconcile(site)
    _reconcile(site)
    assert len(set(prefect.started)) == 2


def test_two_reconcilers_at_the_same_moment_start_one_run(site: Site, prefect: Prefect) -> None:
    _stands(site, OperationState.RUNNING)
    _reconcile(site)
    site.ledger().operations.bind_flow_run(site.operation, "run-0")  # the other had read it before
    _reconcile(site)
    assert len(set(prefect.started)) == 1


def test_a_suspended_run_is_left_alone_although_a_person_resumed_the_operation_once(
    site: Site, prefect: Prefect
) -> None:
    _stands(site, OperationState.WAITING, ReasonKind.GATE, "wave 2")
    site.ledger().operations.request(site.operation, ControlVerb.RESUME, "eva", "", 1)
    prefect.condition = "suspended"
    assert _reconcile(site) == []
    assert prefect.resumed == []


def test_a_suspended_run_hears_that_it_is_to_halt(site: Site, prefect: Prefect) -> None:
    _stands(site, OperationState.WAITING, ReasonKind.GATE, "wave 2")
    site.ledger().operations.request(site.operation, ControlVerb.HALT, "eva", "")
    prefect.condition = "suspended"
    _reconcile(site)
    assert prefect.resumed == ["run-0"]


@pytest.mark.parametrize("state", [OperationState.RUNNING, OperationState.WAITING])
def test_a_cancel_is_a_halt_also_after_an_earlier_resume_and_at_a_gate(
    site: Site, prefect: Prefect, state: OperationState
) -> None:
    site.ledger().operations.request(site.operation, ControlVerb.RESUME, "eva", "", 1)
    _stands(site, state, ReasonKind.GATE if state is OperationState.WAITING else ReasonKind.NONE)
    prefect.condition = "cancelled"
    _reconcile(site)
    asked = _asked(site)
    assert asked is not None
    assert asked.verb is ControlVerb.HALT
    assert len(prefect.started) == 1


def test_a_resume_whose_new_run_never_came_is_not_undone_by_the_old_cancelled_run(site: Site, prefect: Prefect) -> None:
    token = _stands(site, OperationState.HALTED, ReasonKind.PERSON, "halt was asked for")
    site.ledger().operations.leave(site.operation, token)
    site.clock.sleep(60)
    site.ledger().operations.request(site.operation, ControlVerb.RESUME, "eva", "", 1)
    prefect.condition = "cancelled"
    _reconcile(site)
    asked = _asked(site)
    assert asked is not None
    assert asked.verb is ControlVerb.RESUME
    assert len(prefect.started) == 1


def test_a_halted_operation_with_a_node_in_hand_finishes_it_and_keeps_the_reason_of_its_halt(
    site: Site, prefect: Prefect
) -> None:
    token = _stands(site, OperationState.HALTED, ReasonKind.FAILURE_BUDGET, "3 nodes failed")
    run = OperationRun(site, site.operation, token, None)  # type: ignore[arg-type]
    site.ledger().leases.acquire(site.operation, token, ("gpu-0001",), before_now(run, ("gpu-0001",)))
    _reconcile(site)
    assert len(prefect.started) == 1
    assert run.beat() is ControlVerb.HALT
    assert run.what_was_asked() == "3 nodes failed"


def test_what_fails_each_time_is_halted_for_a_person_and_goes_on_when_resumed(site: Site, prefect: Prefect) -> None:
    for _ in range(reconciliation.MOST_FRUITLESS):
        _stands(site, OperationState.RUNNING)
    assert "halted" in _reconcile(site)[0]
    assert (_reconcile(site), prefect.started) == ([], [])
    kept = site.ledger().operations.get(site.operation)
    assert kept.state is OperationState.HALTED
    assert f"gpufleet resume {site.operation}" in kept.reason
    site.clock.sleep(1)
    site.ledger().operations.request(site.operation, ControlVerb.RESUME, "eva", "disk is no longer full", 1)
    _reconcile(site)
    assert len(prefect.started) == 1


@pytest.mark.parametrize("kind", [ReasonKind.GATE, ReasonKind.NONE])
def test_a_run_that_a_dead_worker_had_taken_up_and_never_began_is_followed_by_another(
    site: Site, prefect: Prefect, kind: ReasonKind
) -> None:
    _stands(site, OperationState.WAITING if kind is ReasonKind.GATE else OperationState.RUNNING, kind, "wave 1")
    prefect.condition = "stuck"
    assert "taken up" in _reconcile(site)[0]
    assert (prefect.crashed, len(prefect.started)) == (["run-0"], 1)
