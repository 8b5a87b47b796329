"""Several units that are asked for together are answered as if each had been asked for by itself."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.ledger_tools import FREE, FakeClock, node, running

from fleet.budget import Granted, PoolLimits, Refused
from fleet.model import NodeState
from fleet.ownership import Before
from ledger import Ledger

BY_BOB = Before(cordoned=True, reason="bad fan", reason_by="bob", state=NodeState.IN_SERVICE)
Asked = list[tuple[tuple[str, ...], dict[str, Before]]]
Ask = Callable[[Ledger, tuple[str, int], Asked], list[Granted | Refused]]


def _site(path: Path, seed: int) -> tuple[Ledger, tuple[str, int], Asked]:
    """A fleet with nodes that are out for every kind of reason, and units to ask for."""
    rng = random.Random(seed)
    ledger = Ledger.open(f"sqlite:///{path}", FakeClock(), actor="tester@desk")
    nodes = [
        node(f"{rack}-{at}", rack, rng.choice(("main", "dev")), f"{rack}-d{at // 2}" if rng.random() < 0.5 else None)
        for rack in ("r1", "r2", "r3", "r4")
        for at in range(6)
    ]
    limits = {
        name: PoolLimits(rng.choice((0.5, 0.8)), rng.choice((1, 3)), rng.choice((0.3, 1.0)), 600.0, 2)
        for name in ("main", "dev")
    }
    ledger.inventory.sync(nodes, {rack: rng.randrange(4) for rack in ("r1", "r2", "r3", "r4")}, limits)
    names = [one.name for one in nodes]
    rng.shuffle(names)
    ledger.inventory.record_cordons(dict.fromkeys(names[:2], "bob: bad fan"))
    ledger.inventory.move(names[2], NodeState.QUARANTINED, "Xid 79")
    other, owner = running(ledger), running(ledger)
    ledger.leases.acquire(*other, (names[3],), {names[3]: FREE})
    units = [tuple(rng.sample(names, rng.choice((1, 1, 1, 2)))) for _ in range(14)]
    return ledger, owner, [(unit, {name: BY_BOB if name in names[:2] else FREE for name in unit}) for unit in units]


def _together(ledger: Ledger, owner: tuple[str, int], asked: Asked) -> list[Granted | Refused]:
    return ledger.leases.acquire_each(*owner, asked)


def _one_by_one(ledger: Ledger, owner: tuple[str, int], asked: Asked) -> list[Granted | Refused]:
    return [ledger.leases.acquire(*owner, unit, before) for unit, before in asked]


@pytest.mark.parametrize("seed", range(25))
def test_units_asked_for_together_get_the_answers_that_each_alone_would_get(seed: int, tmp_path: Path) -> None:
    answers: list[list[Granted | Refused]] = []
    for number, ask in enumerate((_together, _one_by_one)):
        ledger, owner, asked = _site(tmp_path / f"{number}.db", seed)
        answers.append(ask(ledger, owner, asked))
        ledger.close()
    named = [[_without_ids(answer) for answer in one] for one in answers]
    assert named[0] == named[1]
    assert any(isinstance(answer, Refused) for answer in answers[0])


def _without_ids(answer: Granted | Refused) -> object:
    """Operations of two ledgers have other ids; what they say is the same but for those."""
    if isinstance(answer, Granted):
        return answer
    words = ["OPERATION" if word.strip("(),;:").startswith("fw-") else word for word in answer.text.split()]
    return answer.reason_kind, " ".join(words), answer.blocked_by, answer.passes
