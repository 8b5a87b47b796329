"""Operations that a rollout begins and waits for: begun once, stopped and resumed with it, and judged by its wave."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.canary_site import RolloutSite

from fleet.errors import ConfigurationError, TransientError
from fleet.measure_record import Measurements
from fleet.measures import Phase, Sample
from fleet.reasons import ReasonKind
from fleet.sample_json import measurements_to_json
from ledger import ControlVerb, NodeStatus, Operation, OperationState
from tasks.canary import wave_samples
from tasks.children import child_of, run_child
from tasks.operations import StoppedByRequest

ROLE = "controls-before"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutSite:
    return RolloutSite(tmp_path, monkeypatch)


class Parent:
    """The rollout's first wave, which wants one child. `opened` are the children that were opened for it."""

    def __init__(self, site: RolloutSite) -> None:
        self.site = site
        self.opened: list[str] = []

    def open(self, actor: str) -> Operation:
        made = self.site.open("measurement", actor)
        self.opened.append(made.id)
        return made

    def go(self, role: str = ROLE) -> Operation:
        """By a new runner, which takes over from any before it."""
        return run_child(self.site.run(), self.site.plan.waves[0], role, self.open, "its controls are measured")


@pytest.fixture
def parent(site: RolloutSite) -> Parent:
    return Parent(site)


def state_of(site: RolloutSite, operation: str) -> OperationState:
    return site.ledger().operations.get(operation).state


def asked_of(site: RolloutSite, operation: str) -> tuple[ControlVerb, str] | None:
    asked = site.ledger().operations.control(operation)
    return None if asked is None else (asked.verb, asked.actor)


def ask(site: RolloutSite, verb: ControlVerb) -> None:
    site.ledger().operations.request(site.rollout, verb, "eva", "")


def halts_as_asked(site: RolloutSite, operation: str) -> None:
    """A child's runner that halts once it is asked to, and else goes on for good."""
    if asked_of(site, operation) == (ControlVerb.HALT, site.rollout):
        site.end(operation, OperationState.HALTED)
        return
    site.end(operation, OperationState.RUNNING)
    site.clock.after(2.0, lambda: halts_as_asked(site, operation))


def test_a_child_is_begun_and_waited_for(site: RolloutSite, parent: Parent) -> None:
    found = parent.go()
    assert (found.id, found.state) == (parent.opened[0], OperationState.DONE)
    assert site.started == parent.opened
    assert child_of(site.run(), site.plan.waves[0], ROLE) == found.id
    assert site.ledger().operations.get(found.id).flow_run_id == "run-1"


def test_the_wave_says_what_it_waits_for(site: RolloutSite, parent: Parent) -> None:
    said: list[str] = []
    site.clock.after(2.0, lambda: said.append(site.ledger().operations.get(site.rollout).reason))
    parent.go()
    assert said == [f"wave 1: its controls are measured by {parent.opened[0]}, which is planned"]
    assert state_of(site, site.rollout) is OperationState.RUNNING


def test_a_child_that_has_ended_is_not_begun_again(site: RolloutSite, parent: Parent) -> None:
    first = parent.go()
    assert parent.go().id == first.id
    assert (len(parent.opened), len(site.started)) == (1, 1)


def test_each_role_has_a_child_of_its_own(site: RolloutSite, parent: Parent) -> None:
    first, second = parent.go(), parent.go("controls-after")
    assert [first.id, second.id] == parent.opened == site.started


def test_a_child_that_was_opened_by_a_runner_that_died_at_once_is_taken_and_not_opened_again(
    site: RolloutSite, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(operation: str, token: int, wave: int, mark: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(site.ledger().waves, "mark", die)
        with pytest.raises(KeyboardInterrupt):
            parent.go()
    assert parent.go().id == parent.opened[0]
    assert (len(parent.opened), site.started) == (1, parent.opened)


def test_an_operation_that_a_person_planned_is_not_taken_for_a_child(site: RolloutSite, parent: Parent) -> None:
    other = site.open("measurement", "eva")
    assert parent.go().id == parent.opened[0] != other.id
    assert state_of(site, other.id) is OperationState.PLANNED


def test_a_child_whose_runner_died_before_its_run_was_begun_is_begun_by_the_next(
    site: RolloutSite, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(fleet: str, operation: Operation) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tasks.children.start_run", die)
        with pytest.raises(KeyboardInterrupt):
            parent.go()
    assert parent.go().id == parent.opened[0]
    assert (len(parent.opened), site.started) == (1, parent.opened)


def test_a_child_that_has_a_run_is_not_given_another_by_the_next_runner(site: RolloutSite, parent: Parent) -> None:
    def die(operation: str) -> None:
        site.acts = lambda _: None
        site.clock.after(60.0, lambda: site.end(operation))
        raise KeyboardInterrupt

    site.acts = die
    with pytest.raises(KeyboardInterrupt):
        parent.go()
    assert parent.go().state is OperationState.DONE
    assert (len(parent.opened), len(site.started)) == (1, 1)


@pytest.mark.parametrize("state", [OperationState.ABORTED, OperationState.FAILED])
def test_a_child_that_ended_in_vain_is_given_back_and_replaced_at_the_next_try(
    site: RolloutSite, parent: Parent, state: OperationState
) -> None:
    site.acts = lambda operation: site.end(operation, state)
    assert parent.go().state is state
    site.acts = site.end
    again = parent.go()
    assert (again.id, again.state) == (parent.opened[1], OperationState.DONE)
    assert child_of(site.run(), site.plan.waves[0], ROLE) == again.id


def test_a_halt_stops_the_child_too_and_a_resume_begins_it_again(site: RolloutSite, parent: Parent) -> None:
    site.acts = lambda operation: halts_as_asked(site, operation)
    site.clock.after(10.0, lambda: ask(site, ControlVerb.HALT))
    with pytest.raises(StoppedByRequest):
        parent.go()
    child = parent.opened[0]
    assert asked_of(site, child) == (ControlVerb.HALT, site.rollout)
    site.clock.sleep(10.0)
    assert state_of(site, child) is OperationState.HALTED

    ask(site, ControlVerb.RESUME)
    site.acts = site.end
    assert parent.go().id == child
    assert asked_of(site, child) == (ControlVerb.RESUME, site.rollout)
    assert (len(parent.opened), site.started) == (1, [child, child])


def test_a_child_that_a_person_halted_is_waited_for_and_not_resumed(site: RolloutSite, parent: Parent) -> None:
    def halt(operation: str) -> None:
        site.ledger().operations.request(operation, ControlVerb.HALT, "eva", "")
        site.end(operation, OperationState.HALTED)
        site.clock.after(600.0, lambda: site.end(operation))

    site.acts = halt
    parent.go()
    assert asked_of(site, parent.opened[0]) == (ControlVerb.HALT, "eva")
    assert len(site.started) == 1


def test_a_halted_child_does_not_keep_its_parent_from_being_aborted(site: RolloutSite, parent: Parent) -> None:
    site.acts = lambda operation: site.end(operation, OperationState.HALTED)
    site.clock.after(10.0, lambda: ask(site, ControlVerb.ABORT))
    with pytest.raises(StoppedByRequest):
        parent.go()
    assert asked_of(site, parent.opened[0]) == (ControlVerb.ABORT, site.rollout)


def test_an_abort_is_passed_on_and_the_child_is_waited_for_until_it_is_over(site: RolloutSite, parent: Parent) -> None:
    def aborts_as_asked(operation: str) -> None:
        if asked_of(site, operation) == (ControlVerb.ABORT, site.rollout):
            site.clock.after(120.0, lambda: site.end(operation, OperationState.ABORTED))
            return
        site.clock.after(2.0, lambda: aborts_as_asked(operation))

    site.acts = aborts_as_asked
    site.clock.after(10.0, lambda: ask(site, ControlVerb.ABORT))
    began = site.clock.monotonic()
    assert parent.go().state is OperationState.ABORTED
    assert site.clock.monotonic() - began >= 120.0


@pytest.mark.parametrize("verb", [ControlVerb.HALT, ControlVerb.ABORT])
def test_a_child_that_closes_just_as_it_is_asked_to_stop_does_no_harm(
    site: RolloutSite, parent: Parent, monkeypatch: pytest.MonkeyPatch, verb: ControlVerb
) -> None:
    operations = site.ledger().operations
    request = operations.request
    site.acts = lambda _: None

    def close_first(id: str, verb: ControlVerb, actor: str, reason: str, wave: int | None = None) -> None:
        if actor == site.rollout:
            site.end(id)
        request(id, verb, actor, reason, wave)

    monkeypatch.setattr(operations, "request", close_first)
    site.clock.after(10.0, lambda: ask(site, verb))
    if verb is ControlVerb.HALT:
        with pytest.raises(StoppedByRequest):
            parent.go()
        ask(site, ControlVerb.RESUME)
    assert parent.go().state is OperationState.DONE
    assert (len(parent.opened), len(site.started)) == (1, 1)


def test_a_child_that_closes_just_as_it_is_asked_to_go_on_does_no_harm(
    site: RolloutSite, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = site.ledger().operations
    request = operations.request
    site.acts = lambda operation: site.end(operation, OperationState.RUNNING)
    site.clock.after(10.0, lambda: ask(site, ControlVerb.HALT))
    with pytest.raises(StoppedByRequest):
        parent.go()
    ask(site, ControlVerb.RESUME)

    def close_first(id: str, verb: ControlVerb, actor: str, reason: str, wave: int | None = None) -> None:
        site.end(id)
        request(id, verb, actor, reason, wave)

    monkeypatch.setattr(operations, "request", close_first)
    assert parent.go().state is OperationState.DONE
    assert len(parent.opened) == 1


def test_a_flow_that_is_not_deployed_aborts_the_child_so_that_the_next_try_opens_another(
    site: RolloutSite, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fleet: str, operation: Operation) -> str:
        raise ConfigurationError("measurement is not deployed")

    with monkeypatch.context() as patched:
        patched.setattr("tasks.children.start_run", refuse)
        with pytest.raises(ConfigurationError, match="not deployed"):
            parent.go()
    kept = site.ledger().operations.get(parent.opened[0])
    assert (kept.state, kept.reason_kind) == (OperationState.ABORTED, ReasonKind.CONFLICT)
    assert parent.go().id == parent.opened[1]


def test_a_server_that_is_away_leaves_the_child_to_the_next_runner(
    site: RolloutSite, parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(fleet: str, operation: Operation) -> str:
        raise TransientError("the Prefect server does not answer")

    with monkeypatch.context() as patched:
        patched.setattr("tasks.children.start_run", away)
        with pytest.raises(TransientError):
            parent.go()
    assert parent.go().id == parent.opened[0]
    assert len(parent.opened) == 1


def kept_samples(site: RolloutSite, operation: str, node: str, phase: Phase) -> None:
    sample = Sample(node, "hbm_bandwidth", phase, site.clock.now(), 2900.0, 0)
    site.write(operation, node, f"measure:{phase.value}", measurements_to_json(Measurements((sample,))))


def seen(site: RolloutSite) -> set[tuple[str, Phase]]:
    return {(one.node, one.phase) for one in wave_samples(site.run(), site.plan.waves[0])}


def test_a_measured_node_that_was_not_changed_has_nothing_from_after(site: RolloutSite) -> None:
    wave = site.plan.waves[0]
    changed, skipped, *_ = site.plan.cohorts[1].measured
    for node in (changed, skipped):
        for phase in Phase:
            kept_samples(site, site.rollout, node, phase)
    site.finish(site.rollout, *wave.nodes)
    site.finish(site.rollout, skipped, status=NodeStatus.SKIPPED)
    assert seen(site) == {(changed, Phase.BEFORE), (changed, Phase.AFTER), (skipped, Phase.BEFORE)}


def test_controls_are_judged_by_what_the_waves_own_children_measured(site: RolloutSite) -> None:
    control = site.plan.cohorts[1].controls[0]
    run = site.run()
    for wave, phase in ((1, Phase.BEFORE), (1, Phase.AFTER), (2, Phase.AFTER)):
        child = site.open("measurement", site.rollout, (control,)).id
        site.ledger().waves.mark(site.rollout, run.token, wave, f"controls-{phase.value}:{child}")
        kept_samples(site, child, control, phase)
        site.clock.sleep(1.0)
    kept_samples(site, site.rollout, control, Phase.BEFORE)  # as a node of a later wave
    assert len(wave_samples(site.run(), site.plan.waves[0])) == 2
    assert seen(site) == {(control, Phase.BEFORE), (control, Phase.AFTER)}


def test_a_measure_that_is_not_judged_is_left_out(site: RolloutSite) -> None:
    node = site.plan.cohorts[1].measured[0]
    samples = tuple(Sample(node, name, Phase.BEFORE, site.clock.now(), 1.0) for name in ("all_reduce", "sm_clock"))
    site.write(site.rollout, node, "measure:before", measurements_to_json(Measurements(samples)))
    assert [one.measure for one in wave_samples(site.run(), site.plan.waves[0])] == ["all_reduce"]
