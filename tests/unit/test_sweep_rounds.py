"""Whose turn it is."""

from __future__ import annotations

from fleet.sweep import Rounds


def test_everybody_is_due_at_first_and_then_on_the_interval() -> None:
    rounds = Rounds(["a", "b"], 30.0, 600.0, now=0.0)
    assert rounds.due(0.0) == ("a", "b")
    rounds.read("a", 1.0)
    rounds.read("b", 2.0)
    assert (rounds.due(29.0), rounds.next_due()) == ((), 30.0)
    assert rounds.due(30.0) == ("a", "b")


def test_a_rhythm_that_cannot_be_kept_does_not_pile_up_turns() -> None:
    rounds = Rounds(["a"], 30.0, 600.0, now=0.0)
    rounds.read("a", 100.0)
    assert rounds.next_due() == 100.0


def test_a_node_that_does_not_answer_is_asked_ever_more_seldom_and_after_all_others() -> None:
    rounds = Rounds(["down", "up"], 30.0, 100.0, now=0.0)
    pauses = []
    now = 0.0
    for _ in range(4):
        rounds.failed("down", now)
        rounds.read("up", now)
        pauses.append((rounds._turns["down"].due) - now)
        now = rounds._turns["down"].due
    assert pauses == [30.0, 60.0, 100.0, 100.0]
    assert (rounds.failing("down"), rounds.due(now)[-1]) == (True, "down")
    rounds.read("down", now)
    assert not rounds.failing("down")


def test_a_bmc_that_was_busy_is_not_left_alone_until_its_turn_hours_later() -> None:
    rounds = Rounds(["a"], 21600.0, 3600.0, now=0.0)
    rounds.failed("a", 0.0)
    assert rounds.next_due() == 300.0
    rounds.read("a", 300.0)
    assert rounds.next_due() == 21900.0


def test_a_node_that_is_down_for_good_is_asked_for_ever() -> None:
    rounds = Rounds(["a"], 1.0, 1.0, now=0.0)
    for second in range(2000):
        rounds.failed("a", float(second))
    assert rounds.next_due() == 2000.0
