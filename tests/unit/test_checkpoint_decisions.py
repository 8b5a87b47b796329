"""What a drain does about a job, and what each choice would cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.checkpoint_tools import NOW, job, minutes

from fleet.checkpoint_policy import DrainPolicy
from fleet.checkpoint_readers.values import Checkpoint, NewestCheckpoint, UnknownCheckpoint
from fleet.checkpoints import Asked, Choice, Decision, decide, is_newer, lost_gpu_hours, lost_hours
from fleet.model import Job

SIX_HOURS = NOW + timedelta(hours=6)
UNREADABLE = UnknownCheckpoint("may not be read by this login")
NONE_YET = UnknownCheckpoint("no checkpoint in /ckpt", none_yet=True)
SIGNAL = DrainPolicy(signal="USR1")
HALF_HOURLY = DrainPolicy(interval=minutes(30))


def saved(age: float, step: int = 4000, measured: bool = True, done: bool | None = True) -> Checkpoint:
    """A checkpoint that was complete `age` minutes before NOW."""
    return Checkpoint(f"/ckpt/iter_{step:07d}", step, NOW - minutes(age), done, "is there", None, measured)


def told(
    seen: NewestCheckpoint,
    policy: DrainPolicy,
    asked: Asked | None = None,
    work: Job | None = None,
    deadline: datetime = SIX_HOURS,
) -> Decision:
    return decide(work or job(), seen, NOW, deadline, policy, asked)


def watching(before: NewestCheckpoint, since: float = 60.0, signalled: float | None = None) -> Asked:
    return Asked(NOW - minutes(since), before, None if signalled is None else NOW - minutes(signalled))


# What would be lost


def test_lost_is_the_time_since_the_newest_complete_checkpoint_times_the_gpus() -> None:
    assert lost_hours(job(gpus=64), saved(30), NOW) == 32.0


def test_a_checkpoint_from_before_the_jobs_start_costs_only_the_time_since_the_start() -> None:
    assert lost_hours(job(gpus=64, elapsed=900), saved(600), NOW) == 16.0


@pytest.mark.parametrize("seen", [UNREADABLE, NONE_YET, saved(5, done=None), saved(5, done=False), saved(-10)])
def test_what_is_not_known_is_never_counted_as_nothing(seen: NewestCheckpoint) -> None:
    assert lost_hours(job(), seen, NOW) is None
    assert told(seen, SIGNAL).lost_gpu_hours[Choice.STOP_NOW] is None
    assert lost_gpu_hours([job(), job("9")], {"812": saved(5), "9": seen}, NOW) is None


def test_a_job_without_a_count_of_gpus_has_no_known_loss() -> None:
    assert lost_hours(job(gpus=None), saved(5), NOW) is None


def test_the_loss_of_a_plan_counts_a_job_of_many_nodes_once() -> None:
    jobs = [job(), job(), job("9", gpus=8)]
    assert lost_gpu_hours(jobs, {"812": saved(30), "9": saved(60)}, NOW) == 40.0
    assert lost_gpu_hours([], {}, NOW) == 0.0
    assert lost_gpu_hours(jobs, {"812": saved(30)}, NOW) is None


def test_every_choice_that_is_open_has_its_price() -> None:
    found = told(saved(20), replace(HALF_HOURLY, signal="USR1"), work=job(limit=40000.0)).lost_gpu_hours
    assert found == {
        Choice.WAIT_FOR_END: 0.0,
        Choice.WAIT_FOR_CHECKPOINT: 0.0,
        Choice.ASK: 0.0,
        Choice.STOP_NOW: pytest.approx(21.333, abs=0.001),
    }
    blind = told(UNREADABLE, SIGNAL).lost_gpu_hours
    assert set(blind.values()) == {None}
    assert Choice.ASK not in told(saved(20), DrainPolicy(signal="USR1", signals=False)).lost_gpu_hours


# Which is newer


def test_a_checkpoint_that_is_newer_than_the_request_is_an_answer() -> None:
    asked = watching(saved(40), signalled=10)
    assert is_newer(saved(5, 5000), asked)
    assert not is_newer(saved(40), asked)


def test_a_checkpoint_from_between_the_last_look_and_the_request_is_no_answer() -> None:
    assert not is_newer(saved(15, 5000), watching(saved(40), signalled=10))


@pytest.mark.parametrize("done", [None, False])
def test_a_half_written_checkpoint_is_no_answer(done: bool | None) -> None:
    assert not is_newer(saved(5, 5000, done=done), watching(saved(40), signalled=10))


def test_without_a_measured_clock_the_storages_own_order_decides() -> None:
    asked = watching(saved(-400, measured=False), signalled=10)  # the storage is far ahead
    assert not is_newer(saved(-400, measured=False), asked)
    assert is_newer(saved(-430, 5000, measured=False), asked)


def test_a_clock_that_is_measured_anew_makes_no_old_checkpoint_newer() -> None:
    before = saved(9.99)
    assert not is_newer(replace(before, completed_at=NOW - minutes(9.95)), watching(before, since=10))
    assert not is_newer(saved(5), watching(saved(300, measured=False), since=10))


@pytest.mark.parametrize("before", [NONE_YET, UNREADABLE, saved(40, done=False)])
def test_a_tree_that_showed_nothing_may_have_been_unmounted_so_only_a_measured_clock_proves_an_answer(
    before: NewestCheckpoint,
) -> None:
    assert not is_newer(saved(5, measured=False), watching(before, signalled=10))
    assert not is_newer(saved(15), watching(before, signalled=10))
    assert is_newer(saved(5), watching(before, signalled=10))


# The decision


def test_a_job_that_ends_before_the_deadline_is_waited_for() -> None:
    found = told(saved(30), SIGNAL, work=job(elapsed=3600.0, limit=7200.0))
    assert (found.choice, found.expected_at) == (Choice.WAIT_FOR_END, NOW + minutes(60))


def test_a_job_that_is_completing_is_waited_for_and_is_not_empty() -> None:
    found = told(UNREADABLE, SIGNAL, work=job(state="COMPLETING"), deadline=NOW + minutes(600))
    assert found.choice is Choice.WAIT_FOR_END
    late = told(UNREADABLE, SIGNAL, work=job(state="COMPLETING"), deadline=NOW - minutes(600))
    assert late.choice is Choice.ASK_PERSON
    assert "does not end" in late.text


def test_a_checkpoint_that_comes_before_the_deadline_is_waited_for() -> None:
    found = told(saved(20), HALF_HOURLY)
    assert (found.choice, found.expected_at) == (Choice.WAIT_FOR_CHECKPOINT, NOW + minutes(10))


def test_the_interval_may_come_from_the_checkpoints_themselves() -> None:
    found = told(replace(saved(20), interval_seconds=1500.0), DrainPolicy())
    assert (found.choice, found.expected_at) == (Choice.WAIT_FOR_CHECKPOINT, NOW + minutes(5))


def test_a_job_is_asked_where_its_next_checkpoint_is_overdue_or_too_late_or_not_known() -> None:
    late = replace(SIGNAL, interval=minutes(900))
    overdue = replace(SIGNAL, interval=minutes(30))
    for seen, policy in ((saved(20), late), (saved(60), overdue), (saved(20), SIGNAL), (UNREADABLE, SIGNAL)):
        found = told(seen, policy)
        assert (found.choice, found.signal) == (Choice.ASK, "USR1")


def test_a_job_that_was_asked_is_not_asked_again_while_it_may_answer() -> None:
    found = told(saved(40), SIGNAL, watching(saved(40), signalled=10))
    assert (found.choice, found.until, found.signal) == (Choice.WAIT_FOR_ANSWER, NOW + minutes(5), None)


def test_a_job_that_answered_is_requeued() -> None:
    assert told(saved(5, 5000), SIGNAL, watching(saved(40), signalled=10)).choice is Choice.REQUEUE


def test_an_answer_that_has_become_old_is_asked_for_again() -> None:
    asked = watching(saved(400), since=400, signalled=390)
    assert told(saved(380, 5000), SIGNAL, asked).choice is Choice.ASK
    assert (
        told(saved(380, 5000, measured=False), SIGNAL, replace(asked, before=saved(400, measured=False))).choice
        is Choice.REQUEUE
    )
    over = NOW - SIGNAL.grace
    assert told(saved(380, 5000), SIGNAL, asked, deadline=over).choice is Choice.ASK_PERSON


def test_a_job_that_ends_by_itself_after_its_answer_is_let_exit() -> None:
    policy = replace(SIGNAL, requeue=False, exits_after_signal=True)
    assert told(saved(5, 5000), policy, watching(saved(40), signalled=10)).choice is Choice.LET_EXIT


def test_a_job_that_may_not_be_requeued_and_does_not_end_is_a_persons_affair() -> None:
    policy = replace(SIGNAL, requeue=False)
    assert told(saved(5, 5000), policy, watching(saved(40), signalled=10)).choice is Choice.ASK_PERSON


def test_a_job_that_does_not_answer_is_a_persons_affair() -> None:
    assert told(saved(60), SIGNAL, watching(saved(60), signalled=20)).choice is Choice.ASK_PERSON
    due = replace(HALF_HOURLY, signal="USR1")
    assert told(saved(25), due, watching(saved(25), signalled=20)).choice is Choice.WAIT_FOR_CHECKPOINT


def test_a_checkpoint_that_came_by_itself_lets_the_job_go_while_it_is_fresh() -> None:
    assert told(saved(2, 5000), HALF_HOURLY, watching(saved(32))).choice is Choice.REQUEUE
    assert told(saved(25, 5000), HALF_HOURLY, watching(saved(85))).choice is Choice.WAIT_FOR_CHECKPOINT


def test_the_owners_notice_holds_for_signals_and_for_checkpoints_that_come_by_themselves() -> None:
    policy = replace(SIGNAL, notice=minutes(120))
    first = told(saved(20), policy)
    assert (first.choice, first.until) == (Choice.GIVE_NOTICE, NOW + minutes(120))
    assert told(saved(2, 5000), policy, watching(saved(62))).choice is Choice.GIVE_NOTICE
    assert told(saved(2, 5000), policy, watching(saved(62), since=120)).choice is Choice.REQUEUE
    assert told(saved(62), policy, watching(saved(62), since=120)).choice is Choice.ASK


def test_a_job_without_a_signal_has_its_notice_too() -> None:
    policy = replace(HALF_HOURLY, notice=minutes(120))
    found = told(saved(20), policy)
    assert (found.choice, found.until) == (Choice.GIVE_NOTICE, NOW + minutes(120))
    assert told(saved(20), policy, watching(saved(20), since=115)).choice is Choice.WAIT_FOR_CHECKPOINT


def test_no_notice_outlasts_the_deadline_and_its_grace() -> None:
    policy = replace(SIGNAL, notice=minutes(6000))
    found = told(saved(20), policy)
    assert found.until == SIX_HOURS + policy.grace - policy.answer_within


def test_a_yes_ends_the_notice_and_the_job_is_asked_at_once() -> None:
    policy = DrainPolicy(notice=minutes(120), signal="USR1", consent=True, interval=minutes(30))
    assert told(saved(20), policy).choice is Choice.ASK
    assert told(saved(20), replace(policy, signal=None)).choice is Choice.REQUEUE


def test_a_yes_does_not_stop_a_job_whose_loss_is_not_known() -> None:
    for seen in (UNREADABLE, NONE_YET, saved(5, done=False)):
        assert told(seen, DrainPolicy(consent=True)).choice is Choice.WAIT_FOR_CHECKPOINT


def test_a_no_holds_until_the_deadline_and_its_grace_and_then_a_person_decides() -> None:
    policy = replace(SIGNAL, consent=False)
    assert told(saved(2, 5000), policy, watching(saved(40))).choice is Choice.WAIT_FOR_END
    over = told(saved(2, 5000), policy, watching(saved(40)), deadline=NOW - policy.grace)
    assert over.choice is Choice.ASK_PERSON


def test_where_signals_are_forbidden_none_is_sent() -> None:
    found = told(saved(20), replace(SIGNAL, signals=False))
    assert (found.choice, found.signal, found.expected_at) == (Choice.WAIT_FOR_CHECKPOINT, None, None)


def test_a_suspended_job_is_not_signalled_and_its_time_limit_tells_nothing() -> None:
    found = told(saved(20), SIGNAL, work=job(state="SUSPENDED", elapsed=3600.0, limit=7200.0))
    assert found.choice is Choice.WAIT_FOR_CHECKPOINT


def test_after_the_deadline_the_grace_holds_and_after_it_only_a_person_decides() -> None:
    in_grace, over = NOW - minutes(10), NOW - minutes(30)
    assert told(saved(20), HALF_HOURLY, deadline=in_grace).choice is Choice.WAIT_FOR_CHECKPOINT
    assert told(saved(20), SIGNAL, deadline=in_grace).choice is Choice.ASK
    assert told(saved(20), DrainPolicy(), deadline=in_grace).choice is Choice.ASK_PERSON
    assert told(saved(20), HALF_HOURLY, deadline=over).choice is Choice.ASK_PERSON
    assert told(saved(20), SIGNAL, watching(saved(20), signalled=5), deadline=over).choice is Choice.ASK_PERSON


def test_the_line_names_job_owner_last_checkpoint_and_the_next() -> None:
    assert told(saved(20), HALF_HOURLY).text == (
        "job 812 of mlee (llm), 64 GPUs: its next checkpoint is expected at 2026-11-30 12:10 UTC; "
        "last checkpoint step 4000 at 2026-11-30 11:40 UTC, 20 min ago; next expected at 2026-11-30 12:10 UTC; "
        "stopping it now loses 21.3 GPU-hours"
    )


def test_the_line_says_what_is_not_known() -> None:
    text = told(UNREADABLE, DrainPolicy()).text
    assert "last checkpoint not known (may not be read by this login)" in text
    assert text.endswith("what stopping it now loses is not known; this run has done 640.0 GPU-hours")
    assert "a clock is wrong" in told(saved(-10), DrainPolicy()).text
    assert "was not measured" in told(saved(5, measured=False), DrainPolicy()).text
    assert "is not complete (is there)" in told(saved(5, done=False), DrainPolicy()).text


def test_the_line_is_one_line_that_no_terminal_obeys() -> None:
    seen = UnknownCheckpoint("broken\n\x1b[2J")
    assert told(seen, SIGNAL, work=job(user="a\nb\x1b")).text.isprintable()


ages = st.floats(-600, 6000)
checkpoints = st.one_of(
    st.sampled_from([UNREADABLE, NONE_YET]),
    st.builds(saved, ages, st.integers(0, 9), st.booleans(), st.sampled_from([True, False, None])),
)
spans = st.sampled_from([minutes(0), minutes(30), minutes(600)])
policies = st.builds(
    DrainPolicy,
    spans,
    st.booleans(),
    st.sampled_from([None, "USR1"]),
    st.sampled_from([None, True, False]),
    spans,
    spans,
    st.booleans(),
    st.booleans(),
    st.none() | spans,
)
askeds = st.none() | st.builds(watching, checkpoints, st.floats(0, 600), st.none() | st.floats(0, 600))
jobs = st.builds(
    job,
    gpus=st.none() | st.integers(0, 9),
    elapsed=st.none() | st.floats(0, 1e6),
    limit=st.none() | st.floats(0, 1e6),
    state=st.sampled_from(["RUNNING", "COMPLETING", "SUSPENDED", "WHATEVER"]),
)


@given(checkpoints, policies, askeds, jobs, st.floats(-900, 900))
def test_no_decision_forces_a_job_nor_lets_one_go_whose_loss_is_not_known(
    seen: NewestCheckpoint, policy: DrainPolicy, asked: Asked | None, work: Job, deadline: float
) -> None:
    found = told(seen, policy, asked, work, NOW + minutes(deadline))
    assert found.choice is not Choice.STOP_NOW
    assert (found.signal is not None) == (found.choice is Choice.ASK)
    if found.choice is Choice.ASK:
        assert policy.signals
        assert policy.consent is not False
        assert asked is None or asked.signalled_at is None or is_newer(seen, asked)
    if found.choice in (Choice.REQUEUE, Choice.LET_EXIT):
        assert isinstance(seen, Checkpoint)
        assert seen.complete
        assert policy.consent is not False
        assert found.choice is Choice.LET_EXIT or policy.requeue
