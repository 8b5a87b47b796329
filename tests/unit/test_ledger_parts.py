"""Where parts sit over time, whose history is whose, and who claims what."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.knowledge_tools import gpu, reading
from unit.ledger_tools import FakeClock

from fleet.errors import PreconditionError
from fleet.facts import NodeFacts, PartFacts
from ledger import Conflict, Ledger

pytest_plugins = ("unit.ledger_fixtures",)


def places(ledger: Ledger, part: str) -> list[tuple[str, str, bool]]:
    """Node, slot, and whether the part is still there, oldest first."""
    return [(place.node, place.slot, place.until is None) for place in ledger.parts.placements(part)]


def sweep(ledger: Ledger, clock: FakeClock, *readings: NodeFacts, after: float = 30) -> tuple[Conflict, ...]:
    """Time passes, then these readings (made for the time before) come in."""
    clock.sleep(after)
    moved = [NodeFacts(r.node, clock.now(), r.source, r.facts, r.unknown, r.numbers, r.parts) for r in readings]
    return ledger.facts.record(moved).conflicts


def told(clock: FakeClock, node: str, *parts: PartFacts, empty: str | None = None) -> NodeFacts:
    facts = {"driver.loaded": "570"} | ({} if empty is None else {f"slot.gpu.{empty}": "empty"})
    return reading(node, clock.now(), *parts, facts=facts)


def test_a_replaced_gpu_begins_its_own_history_and_the_old_one_keeps_its_own(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", facts={"vbios": "1"})))
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S2", facts={"vbios": "2"})))
    assert places(ledger, "S1") == [("a", "3b", False)]
    assert places(ledger, "S2") == [("a", "3b", True)]
    assert [fact.value for fact in ledger.facts.history("S1", "vbios")] == ["1"]
    assert [fact.value for fact in ledger.facts.history("gpu:S2", "vbios")] == ["2"]
    assert ledger.facts.history("S1", "vbios")[0].last_seen == clock.now() - timedelta(seconds=30)


def test_a_gpu_is_found_again_in_another_node_with_all_its_past(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", facts={"vbios": "1"})))
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S2")))
    sweep(ledger, clock, told(clock, "b", gpu("5d", "S1", facts={"vbios": "9"})), after=86400)
    assert places(ledger, "S1") == [("a", "3b", False), ("b", "5d", True)]
    assert [fact.value for fact in ledger.facts.history("S1", "vbios")] == ["1", "9"]
    assert [part.key for part in ledger.facts.at("b").parts] == ["gpu:S1"]


def test_two_gpus_that_change_places_in_one_sweep_are_no_conflict(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1")), told(clock, "b", gpu("3b", "S2")))
    assert sweep(ledger, clock, told(clock, "a", gpu("3b", "S2")), told(clock, "b", gpu("3b", "S1"))) == ()
    assert places(ledger, "S1") == [("a", "3b", False), ("b", "3b", True)]
    assert places(ledger, "S2") == [("b", "3b", False), ("a", "3b", True)]


def test_two_gpus_that_change_slots_in_one_node_move_within_it(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1"), gpu("5d", "S2")))
    assert sweep(ledger, clock, told(clock, "a", gpu("3b", "S2"), gpu("5d", "S1"))) == ()
    assert places(ledger, "S1") == [("a", "3b", False), ("a", "5d", True)]


def test_a_serial_that_two_nodes_claim_is_a_conflict_and_moves_nothing(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", facts={"vbios": "1"})))
    both = (
        told(clock, "a", gpu("3b", "S1", facts={"vbios": "1"})),
        told(clock, "b", gpu("5d", "S1", facts={"vbios": "7"})),
    )
    (conflict,) = sweep(ledger, clock, *both)
    began = clock.now()
    assert (conflict.part, conflict.node, conflict.slot, conflict.holder) == ("gpu:S1", "b", "5d", "a")
    assert places(ledger, "S1") == [("a", "3b", True)]
    assert [fact.value for fact in ledger.facts.history("S1", "vbios")] == ["1"]
    head = ledger.audit.head()
    (still,) = sweep(ledger, clock, *both)
    assert (still.since, ledger.parts.conflicts(), ledger.audit.head()) == (began, (still,), head)


def test_a_conflict_ends_when_one_node_no_longer_claims_the_part(ledger: Ledger, clock: FakeClock) -> None:
    both = told(clock, "a", gpu("3b", "S1")), told(clock, "b", gpu("5d", "S1"))
    assert len(sweep(ledger, clock, *both)) == 1
    assert sweep(ledger, clock, told(clock, "a", empty="3b"), both[1]) == ()
    assert places(ledger, "S1") == [("a", "3b", False), ("b", "5d", True)]
    assert ledger.parts.conflicts() == ()
    assert ledger.audit.verify() == []


def test_a_part_that_its_node_has_not_claimed_for_long_is_taken_over_and_said_so(
    ledger: Ledger, clock: FakeClock
) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1")))
    last = clock.now()
    assert sweep(ledger, clock, told(clock, "b", gpu("5d", "S1")), after=7200) == ()
    old, new = ledger.parts.placements("S1")
    assert (old.node, old.until, old.last_seen) == ("a", clock.now(), last)
    assert (new.node, new.until) == ("b", None)
    assert "read in b" in ledger.audit.tail(1, subject="a")[0].payload


def test_a_node_that_comes_back_with_a_part_that_was_taken_over_is_a_conflict(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1")))
    sweep(ledger, clock, told(clock, "b", gpu("5d", "S1")), after=7200)
    (conflict,) = sweep(ledger, clock, told(clock, "a", gpu("3b", "S1")))
    assert (conflict.node, conflict.holder) == ("a", "b")


def test_a_gpu_that_is_not_seen_any_more_has_not_left(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1"), gpu("5d", "S2")))
    seen = clock.now()
    sweep(ledger, clock, told(clock, "a", gpu("5d", "S2")))
    (place,) = ledger.parts.placements("S1")
    assert (place.until, place.last_seen) == (None, seen)
    assert [(part.seen == seen, part.missing) for part in ledger.facts.current()[0].parts] == [
        (True, True),
        (False, False),
    ]
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1"), gpu("5d", "S2")))
    assert places(ledger, "S1") == [("a", "3b", True)]
    assert ledger.parts.placements("S1")[0].last_seen == clock.now()


def test_a_slot_that_was_seen_empty_ends_the_placement(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1")))
    sweep(ledger, clock, told(clock, "a", empty="3b"))
    assert places(ledger, "S1") == [("a", "3b", False)]
    assert ledger.facts.at("a").parts == ()


def test_a_lost_gpu_that_tells_nothing_is_taken_for_the_one_in_its_slot(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", "GPU-1")))
    lost = gpu("3b", facts={}, unknown={"vbios": "GPU is lost"})
    sweep(ledger, clock, told(clock, "a", lost))
    assert places(ledger, "S1") == [("a", "3b", True)]
    fact = ledger.facts.at("a").parts[0].facts["vbios"]
    assert (fact.value, fact.reason, fact.last_value) == (None, "GPU is lost", "96.00")


def test_a_gpu_goes_by_uuid_until_it_tells_its_serial(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", None, "GPU-1")))
    assert ledger.parts.get("GPU-1").key == "gpu:GPU-1"
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", "GPU-1")))
    assert ledger.parts.get("GPU-1").key == "gpu:S1"
    sweep(ledger, clock, told(clock, "a", gpu("3b", None, "GPU-1")))
    assert places(ledger, "S1") == [("a", "3b", True)]


def test_a_gpu_without_any_name_goes_by_its_slot_until_it_has_one(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b")), told(clock, "b", gpu("3b")))
    assert places(ledger, "gpu:slot b/3b") == [("b", "3b", True)]
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1")), told(clock, "b", gpu("3b")))
    assert places(ledger, "S1") == [("a", "3b", True)]
    with pytest.raises(PreconditionError, match="no part"):
        ledger.parts.get("gpu:slot a/3b")


def test_gpus_of_one_board_share_its_serial_and_go_by_uuid(ledger: Ledger, clock: FakeClock) -> None:
    board = gpu("3b", "S1", "GPU-1"), gpu("3c", "S1", "GPU-2")
    assert sweep(ledger, clock, told(clock, "a", *board)) == ()
    assert [part.key for part in ledger.parts.find("S1")] == ["gpu:GPU-1", "gpu:GPU-2"]
    with pytest.raises(PreconditionError, match="names 2 parts"):
        ledger.parts.get("S1")
    sweep(ledger, clock, told(clock, "a", board[1]))
    assert places(ledger, "GPU-2") == [("a", "3c", True)]


def test_a_serial_of_a_board_without_a_uuid_names_no_part_and_the_slot_does(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S3", "U2"), gpu("5d", "S3", "U1")))
    sweep(ledger, clock, told(clock, "b", gpu("3b", "S3")))
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S2", "U1"), gpu("5d", "S2")))
    sweep(ledger, clock, told(clock, "a", gpu("5d", "S3"), gpu("3b", "S3", "U1")))
    keys = [part.key for part in ledger.parts.find("S3")]
    assert keys == ["gpu:U2", "gpu:U1", "gpu:slot b/3b", "gpu:slot a/5d"]
    assert places(ledger, "gpu:slot b/3b") == [("b", "3b", True)]
    assert places(ledger, "gpu:slot a/5d") == [("a", "5d", True)]
    sweep(ledger, clock, told(clock, "b", gpu("3b", "S3", "U9")))
    assert places(ledger, "gpu:U9") == [("b", "3b", True)]


def test_a_gpu_of_a_board_that_falls_silent_keeps_its_key(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", "U1")), told(clock, "b", gpu("3b", "S9", "U9")))
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", "U1"), gpu("3c", "S1", "U2")))
    sweep(ledger, clock, told(clock, "a", gpu("3c", "S1", "U2")), told(clock, "b", gpu("5d", "S1", "U1")), after=7200)
    sweep(ledger, clock, told(clock, "b", gpu("5d")))
    assert [part.key for part in ledger.parts.find("S1")] == ["gpu:U1", "gpu:U2"]
    assert places(ledger, "gpu:U1") == [("a", "3b", False), ("b", "5d", True)]


def test_what_a_gpu_told_piece_by_piece_in_two_places_is_found_to_be_one(ledger: Ledger, clock: FakeClock) -> None:
    sweep(ledger, clock, told(clock, "b", gpu("3b", "S1")), told(clock, "a", gpu("5d", None, "U1")))
    sweep(ledger, clock, told(clock, "b", gpu("3b", "S1", "U1")))
    sweep(ledger, clock, told(clock, "b", gpu("3b", "S1", "U1"), gpu("5d", "S1", "U2")))
    (conflict,) = sweep(ledger, clock, told(clock, "a", gpu("5d", "S1")))
    assert (conflict.part, conflict.node, conflict.holder) == ("gpu:U1", "a", "b")


def test_one_serial_and_uuid_in_two_slots_of_a_node_is_a_conflict_with_itself(ledger: Ledger, clock: FakeClock) -> None:
    (conflict,) = sweep(ledger, clock, told(clock, "a", gpu("3b", "S1", "GPU-1"), gpu("5d", "S1", "GPU-1")))
    assert (conflict.node, conflict.holder, conflict.slot) == ("a", "a", "5d")
    assert places(ledger, "S1") == [("a", "3b", True)]


def test_two_sources_may_name_one_slot_differently(ledger: Ledger, clock: FakeClock) -> None:
    by_bmc = reading("a", clock.now(), gpu("SXM1", "S1", facts={"health": "OK"}), facts={"x": "1"}, source="bmc")
    for _ in range(2):
        assert sweep(ledger, clock, told(clock, "a", gpu("3b", "S1")), by_bmc) == ()
    (part,) = ledger.facts.current()[0].parts
    assert (part.slot, part.known.facts["health"], part.known.facts["vbios"]) == ("3b", "OK", "96.00")
    assert {place.slot for place in ledger.parts.in_node("a") if place.until is None} == {"3b", "SXM1"}
    assert len(ledger.facts.at("a").parts) == 1


def test_only_the_wanted_kinds_and_nodes_are_read(ledger: Ledger, clock: FakeClock) -> None:
    nic = PartFacts("nic", "17", "N1", None, {"firmware": "28"})
    sweep(ledger, clock, told(clock, "a", gpu("3b", "S1"), nic), told(clock, "b", gpu("3b", "S2")))
    (node,) = ledger.facts.current(["a"], kinds=("gpu",))
    assert [part.kind for part in node.parts] == ["gpu"]
    assert [node.node for node in ledger.facts.current(kinds=("nic",))] == ["a", "b"]


serials = st.sampled_from([None, "S1", "S2", "S3"])
gpus = st.builds(gpu, st.sampled_from(["3b", "5d"]), serials, st.sampled_from([None, "U1", "U2"]))
steps = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.lists(gpus, max_size=3, unique_by=lambda part: part.slot),
        st.booleans(),
        st.sampled_from([30, 7200]),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a ledger that is migrated already: each example begins with a copy of it."""
    file = tmp_path_factory.mktemp("parts") / "empty.db"
    Ledger.open(f"sqlite:///{file}", FakeClock()).close()
    return file


@settings(max_examples=40)
@given(steps)
def test_whatever_is_told_a_part_sits_in_one_node_and_a_slot_holds_one_part(
    empty_ledger: Path, steps: list[tuple[str, list[PartFacts], bool, int]]
) -> None:
    clock = FakeClock()
    with TemporaryDirectory(dir=empty_ledger.parent) as folder:
        ledger = Ledger.open(f"sqlite:///{shutil.copy(empty_ledger, folder)}", clock, actor="tester@desk")
        for node, parts, empty, after in steps:
            sweep(ledger, clock, told(clock, node, *parts, empty="3b" if empty and not parts else None), after=after)
        held = [(node.node, part) for node in ledger.facts.current() for part in node.parts]
        found = [part for serial in ("S1", "S2", "S3") for part in ledger.parts.find(serial)]
        faults = ledger.audit.verify()
        ledger.close()
    named = [(part.serial, part.uuid) for part in found if part.uuid]
    assert len({(node, part.slot) for node, part in held}) == len(held)
    assert len({(part.key, part.serial, part.uuid) for _, part in held}) == len(held)
    assert len(set(named)) == len(named)
    assert faults == []
