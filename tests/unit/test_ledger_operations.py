"""Operations: their states, their runner, what people ask of them, and their nodes."""

from __future__ import annotations

import re

import pytest
from unit.ledger_tools import DIGEST, fleet_of, running

from fleet.errors import LeaseLost, PreconditionError
from fleet.reasons import ReasonKind
from ledger import Ledger
from ledger.operation import ControlVerb, OperationState, Runner
from ledger.progress import NodeStatus

pytest_plugins = ("unit.ledger_fixtures",)

FIRST = Runner("ctl1", 100, 1.0, "run-1")
SECOND = Runner("ctl1", 200, 2.0, "run-2")


def new(ledger: Ledger) -> str:
    return ledger.operations.create("firmware_rollout", '{"waves":[]}', DIGEST, "alice").id


def test_an_id_names_kind_and_day(ledger: Ledger) -> None:
    id = new(ledger)
    assert re.fullmatch(r"fw-20261130-[2-9a-z]{4}", id)
    operation = ledger.operations.get(id)
    assert (operation.state, operation.plan_json, operation.actor) == ("planned", '{"waves":[]}', "alice")


def test_an_unknown_operation_says_how_to_find_the_right_one(ledger: Ledger) -> None:
    with pytest.raises(PreconditionError, match="gpufleet status"):
        ledger.operations.get("fw-none")


def test_a_state_is_kept_with_its_reason(ledger: Ledger) -> None:
    id = new(ledger)
    ledger.operations.set_state(id, OperationState.HALTED, ReasonKind.FAILURE_BUDGET, "3 of 2 failed")
    operation = ledger.operations.get(id)
    assert (operation.state, operation.reason_kind) == (OperationState.HALTED, ReasonKind.FAILURE_BUDGET)
    assert operation.reason == "3 of 2 failed"


def test_a_closed_operation_stays_closed(ledger: Ledger) -> None:
    id = new(ledger)
    ledger.operations.set_state(id, OperationState.DONE, ReasonKind.NONE, "")
    assert ledger.operations.list(open_only=True) == ()
    with pytest.raises(PreconditionError, match="is done"):
        ledger.operations.set_state(id, OperationState.RUNNING, ReasonKind.NONE, "")
    with pytest.raises(PreconditionError, match="is done"):
        ledger.operations.claim(id, FIRST)


def test_a_second_runner_is_refused_until_it_takes_over(ledger: Ledger) -> None:
    id = new(ledger)
    token = ledger.operations.claim(id, FIRST)
    with pytest.raises(LeaseLost, match="process 100 on ctl1"):
        ledger.operations.claim(id, SECOND)
    newer = ledger.operations.claim(id, SECOND, takeover=True)
    assert newer > token
    ledger.operations.check(id, newer)
    with pytest.raises(LeaseLost, match="took over"):
        ledger.operations.heartbeat(id, token)
    with pytest.raises(LeaseLost, match="took over"):
        ledger.operations.set_state(id, OperationState.DONE, ReasonKind.NONE, "", token=token)


def test_a_runner_that_left_needs_no_takeover_and_its_token_is_never_used_again(ledger: Ledger) -> None:
    id = new(ledger)
    token = ledger.operations.claim(id, FIRST)
    ledger.operations.leave(id, token)
    assert ledger.operations.get(id).runner is None
    assert ledger.operations.claim(id, SECOND) > token


def test_the_newest_request_is_what_counts_until_an_abort(ledger: Ledger) -> None:
    id = new(ledger)
    assert ledger.operations.control(id) is None
    ledger.operations.request(id, ControlVerb.HALT, "bob", "strange noise")
    ledger.operations.request(id, ControlVerb.RESUME, "bob", "was the door", wave=2)
    control = ledger.operations.control(id)
    assert control is not None
    assert (control.verb, control.actor, control.wave) == (ControlVerb.RESUME, "bob", 2)
    ledger.operations.request(id, ControlVerb.ABORT, "bob", "enough")
    with pytest.raises(PreconditionError, match="being aborted"):
        ledger.operations.request(id, ControlVerb.RESUME, "carol", "")


def test_the_nodes_of_an_operation_keep_their_order_and_count_visits(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 4})
    id, token = running(ledger)
    ledger.operations.add_nodes(id, [("r1-2", 1, 0), ("r1-0", 1, 1), ("r1-1", 2, 0)])
    assert [row.node for row in ledger.operations.node_rows(id)] == ["r1-2", "r1-0", "r1-1"]
    for visits in (1, 2):
        ledger.operations.start_nodes(id, ["r1-0"], token)
        assert next(row.attempts for row in ledger.operations.node_rows(id) if row.node == "r1-0") == visits
    ledger.operations.finish_node(id, "r1-0", NodeStatus.FAILED, "no answer", token)
    row = ledger.operations.node_rows(id, wave=1)[1]
    assert (row.status, row.reason, row.attempts) == (NodeStatus.FAILED, "no answer", 2)
    with pytest.raises(PreconditionError, match="not a node of"):
        ledger.operations.start_nodes(id, ["r1-3"], token)


def test_adding_nodes_again_moves_only_those_not_begun(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 4})
    id, token = running(ledger)
    ledger.operations.add_nodes(id, [("r1-0", 1, 0), ("r1-1", 1, 1)])
    ledger.operations.start_nodes(id, ["r1-0"], token)
    ledger.operations.add_nodes(id, [("r1-0", 3, 0), ("r1-1", 3, 1), ("r1-2", 3, 2)])
    assert [(row.node, row.wave) for row in ledger.operations.node_rows(id)] == [
        ("r1-0", 1),
        ("r1-1", 3),
        ("r1-2", 3),
    ]


def test_waiting_texts_end_when_the_visit_begins(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 4})
    id, token = running(ledger)
    ledger.operations.add_nodes(id, [("r1-0", 1, 0), ("r1-1", 1, 1)])
    ledger.operations.say(id, "r1-0", "rack r1")
    ledger.operations.say(id, "r1-1", "window")
    assert [row.waiting_for for row in ledger.operations.node_rows(id)] == ["rack r1", "window"]
    ledger.operations.start_nodes(id, ["r1-0"], token)
    assert [row.waiting_for for row in ledger.operations.node_rows(id)] == [None, "window"]


def test_claims_count_as_fruitless_until_a_node_or_a_wave_is_finished_or_a_person_acts(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 4})
    id, _ = running(ledger)
    ledger.operations.add_nodes(id, [("r1-0", 1, 0)])

    def claimed() -> int:
        token = ledger.operations.claim(id, Runner("lab", 9, 1.0, None), takeover=True)
        counts.append(ledger.operations.get(id).fruitless)
        return token

    counts: list[int] = []
    claimed()
    ledger.operations.finish_node(id, "r1-0", NodeStatus.PENDING, "given back", claimed())
    ledger.operations.finish_node(id, "r1-0", NodeStatus.UPDATED, "", claimed())
    ledger.waves.mark(id, claimed(), 1, "changed")
    ledger.operations.request(id, ControlVerb.HALT, "eva", "")
    claimed()
    ledger.operations.request(id, ControlVerb.RESUME, "eva", "")
    claimed()
    assert counts == [2, 3, 4, 1, 1, 1]


def test_a_node_outside_the_inventory_cannot_be_planned(ledger: Ledger) -> None:
    id = new(ledger)
    with pytest.raises(PreconditionError, match="gpu-x; add them to the fleet file"):
        ledger.operations.add_nodes(id, [("gpu-x", 1, 0)])
