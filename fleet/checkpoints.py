"""What a drain does about one job: wait, ask for a checkpoint, let it go, or ask a person.

Only a complete checkpoint counts, and what is not known is never counted as nothing. Forcing a job off its nodes is
not decided here: that needs an approval which shows the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from fleet.checkpoint_policy import DrainPolicy
from fleet.checkpoint_readers.values import Checkpoint, NewestCheckpoint, UnknownCheckpoint
from fleet.json_values import printable
from fleet.model import Job

SKEW = timedelta(seconds=5)  # a checkpoint from further in the future than this has a wrong clock
_STANDS_STILL = frozenset({"SUSPENDED", "STOPPED", "CONFIGURING"})  # answers no signal, and no time limit runs
_FRESH = timedelta(minutes=10)
_OVERDUE = 1.5  # a checkpoint that is late by half its interval is not waited for


class Choice(StrEnum):
    """What is to be done now. STOP_NOW is only ever priced, never chosen."""

    WAIT_FOR_END = "wait_for_end"
    WAIT_FOR_CHECKPOINT = "wait_for_checkpoint"
    GIVE_NOTICE = "give_notice"  # the owner's notice runs; until then the job is not touched
    ASK = "ask"  # record the request, then send the signal, once
    WAIT_FOR_ANSWER = "wait_for_answer"
    REQUEUE = "requeue"
    LET_EXIT = "let_exit"  # it has saved, and ends by itself
    ASK_PERSON = "ask_person"
    STOP_NOW = "stop_now"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the drain has said to the job. `before` is the newest complete checkpoint when it began to watch.

    `announced_at` is when the drain first met the job: from then runs its notice. `signalled_at` is None until the
    signal was sent. The flow keeps this value from one decision to the next.
    """

    announced_at: datetime
    before: NewestCheckpoint
    signalled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """`until` is when this choice ends at the latest; `expected_at` when the next checkpoint or the end is expected.

    `lost_gpu_hours` has one figure for each choice that is open: what the job would lose by it, None where that
    cannot be told. `text` is one line for people.
    """

    job: str
    choice: Choice
    until: datetime | None
    expected_at: datetime | None
    signal: str | None
    text: str
    lost_gpu_hours: Mapping[Choice, float | None] = field(default_factory=dict)


def lost_hours(job: Job, checkpoint: NewestCheckpoint, now: datetime) -> float | None:
    """GPU-hours that are lost if the job is stopped now: since its newest complete checkpoint, on all its GPUs.

    A checkpoint from before the job's present start costs only the time since that start. None where the checkpoint,
    its time or the GPUs are not known, and where the time lies in the future.
    """
    if job.gpus is None or not isinstance(checkpoint, Checkpoint) or checkpoint.complete is not True:
        return None
    if checkpoint.completed_at is None or checkpoint.completed_at - now > SKEW:
        return None
    seconds = max(0.0, (now - checkpoint.completed_at).total_seconds())
    if job.elapsed_seconds is not None and job.elapsed_seconds >= 0:
        seconds = min(seconds, job.elapsed_seconds)
    return seconds * job.gpus / 3600


def lost_gpu_hours(jobs: Iterable[Job], checkpoints: Mapping[str, NewestCheckpoint], now: datetime) -> float | None:
    """The sum for a plan, by job id; a job on several nodes counts once. None where one job's loss is not known."""
    total = 0.0
    for job in {job.id: job for job in jobs}.values():
        lost = lost_hours(job, checkpoints.get(job.id, UnknownCheckpoint("was not read")), now)
        if lost is None:
            return None
        total += lost
    return total


def next_expected(checkpoint: NewestCheckpoint, policy: DrainPolicy, now: datetime) -> datetime | None:
    """When the next checkpoint is due, by the job's word, else by those it wrote; None where overdue or untold."""
    if not isinstance(checkpoint, Checkpoint) or checkpoint.complete is not True or checkpoint.completed_at is None:
        return None
    if checkpoint.completed_at - now > SKEW:
        return None
    seconds = policy.interval.total_seconds() if policy.interval else checkpoint.interval_seconds
    if not seconds or now - checkpoint.completed_at > timedelta(seconds=seconds * _OVERDUE):
        return None
    return max(now, checkpoint.completed_at + timedelta(seconds=seconds))


def is_newer(checkpoint: NewestCheckpoint, asked: Asked) -> bool:
    """Is this a complete checkpoint that was written after the request?

    It must be another one than before, by the storage's own order; and where the storage's clock was measured, it
    must also be from after the signal, or from after the drain began where no signal was sent.
    """
    if not isinstance(checkpoint, Checkpoint) or checkpoint.complete is not True or checkpoint.completed_at is None:
        return False
    since = asked.signalled_at or asked.announced_at
    if checkpoint.clock_measured and checkpoint.completed_at < since:
        return False
    before = asked.before
    if not isinstance(before, Checkpoint) or before.complete is not True or before.completed_at is None:
        # An unmounted storage looks empty: only a measured clock shows that this one was not there before.
        return checkpoint.clock_measured
    same = (checkpoint.path, checkpoint.step) == (before.path, before.step)
    higher = checkpoint.step is not None and before.step is not None and checkpoint.step > before.step
    if checkpoint.clock_measured != before.clock_measured:
        return higher
    # One file's time differs a little from reading to reading, as the clocks are measured anew.
    return higher or checkpoint.completed_at - before.completed_at > (SKEW if same else timedelta(0))


def decide(
    job: Job,
    checkpoint: NewestCheckpoint,
    now: datetime,
    deadline: datetime,
    policy: DrainPolicy,
    asked: Asked | None,
) -> Decision:
    """What to do about `job` now, so that its nodes are free by `deadline`.

    `asked` is None at the first look; the drain then announces itself. After `deadline` plus the policy's grace only
    a person can decide. Times carry a zone.
    """
    case = _Case(job, checkpoint, now, deadline, policy, asked)
    choice, until, expected, reason = _choose(case)
    signal = policy.signal if choice is Choice.ASK else None
    return Decision(job.id, choice, until, expected, signal, _line(case, reason), _losses(case))


@dataclass(frozen=True, slots=True)
class _Case:
    job: Job
    checkpoint: NewestCheckpoint
    now: datetime
    deadline: datetime
    policy: DrainPolicy
    asked: Asked | None

    @property
    def last_moment(self) -> datetime:
        return self.deadline + self.policy.grace

    @property
    def ends_at(self) -> datetime | None:
        """When the job's time limit ends it."""
        if self.job.limit_seconds is None or self.job.elapsed_seconds is None or self.job.state in _STANDS_STILL:
            return None
        return self.now + timedelta(seconds=max(0.0, self.job.limit_seconds - self.job.elapsed_seconds))

    @property
    def next_at(self) -> datetime | None:
        return next_expected(self.checkpoint, self.policy, self.now)

    @property
    def may_ask(self) -> bool:
        return self.policy.signals and self.policy.signal is not None and self.job.state not in _STANDS_STILL

    @property
    def notice_ends(self) -> datetime:
        """When the job may be asked. Consent ends the notice, and no notice outlasts the deadline's grace."""
        begun = self.asked.announced_at if self.asked else self.now
        notice = timedelta(0) if self.policy.consent else self.policy.notice
        return min(begun + notice, self.last_moment - self.policy.answer_within)


_Chosen = tuple[Choice, datetime | None, datetime | None, str]


def _choose(case: _Case) -> _Chosen:
    if case.job.state == "COMPLETING" and case.now >= case.last_moment:
        return Choice.ASK_PERSON, None, None, "is ending, and does not end: a person must look at its node"
    if case.job.state == "COMPLETING":
        return Choice.WAIT_FOR_END, case.last_moment, case.now, "is ending"
    if case.policy.consent is False:
        return _owner_says_no(case)
    signalled = case.asked.signalled_at if case.asked else None
    answered = case.asked is not None and is_newer(case.checkpoint, case.asked)
    if answered and _is_fresh(case) and (signalled is not None or case.now >= case.notice_ends):
        return _let_go(case, "has a newer complete checkpoint")
    if case.now >= case.last_moment:
        return Choice.ASK_PERSON, None, case.next_at, "the deadline and its grace are over: a person must decide"
    if signalled is not None and not answered:
        return _await_answer(case, signalled)
    return _wait_or_ask(case)


def _is_fresh(case: _Case) -> bool:
    """An old answer is asked for again. Where the clock was not measured, that it is newer must do."""
    seen = case.checkpoint
    if not isinstance(seen, Checkpoint) or seen.completed_at is None:
        return False
    return not seen.clock_measured or -SKEW <= case.now - seen.completed_at <= _FRESH


def _owner_says_no(case: _Case) -> _Chosen:
    if case.now < case.last_moment:
        return Choice.WAIT_FOR_END, case.last_moment, case.ends_at, "may not be disturbed: its end is waited for"
    return Choice.ASK_PERSON, None, case.next_at, "may not be disturbed, and the deadline is over: a person must decide"


def _let_go(case: _Case, reason: str) -> _Chosen:
    if case.policy.requeue:
        return Choice.REQUEUE, case.last_moment, case.now, f"{reason}: it is requeued"
    signalled = case.asked is not None and case.asked.signalled_at is not None
    if case.policy.exits_after_signal and signalled and case.now < case.last_moment:
        return Choice.LET_EXIT, case.last_moment, None, f"{reason}: it ends by itself"
    return Choice.ASK_PERSON, None, None, f"{reason}, may not be requeued and does not end by itself: ask its owner"


def _await_answer(case: _Case, signalled: datetime) -> _Chosen:
    until = min(signalled + case.policy.answer_within, case.last_moment)
    if case.now < until:
        return Choice.WAIT_FOR_ANSWER, until, None, f"was asked at {_clock(signalled)}, and has not answered yet"
    if case.next_at is not None and case.next_at <= case.last_moment:
        return Choice.WAIT_FOR_CHECKPOINT, case.last_moment, case.next_at, "did not answer; its next one is waited for"
    return Choice.ASK_PERSON, None, None, f"was asked at {_clock(signalled)} and did not answer: a person must decide"


def _wait_or_ask(case: _Case) -> _Chosen:
    ends, due = case.ends_at, case.next_at
    quick = case.policy.consent is True and case.may_ask
    soon = case.now + case.policy.answer_within if quick else case.deadline
    if ends is not None and ends <= min(soon, case.deadline):
        return Choice.WAIT_FOR_END, case.last_moment, ends, f"ends by {_clock(ends)} at the latest"
    if case.now < case.notice_ends and not (due is not None and case.notice_ends <= due <= case.deadline):
        return Choice.GIVE_NOTICE, case.notice_ends, due, f"has notice until {_clock(case.notice_ends)}"
    if due is not None and due <= case.deadline and not case.policy.consent:
        return Choice.WAIT_FOR_CHECKPOINT, case.last_moment, due, f"its next checkpoint is expected at {_clock(due)}"
    if case.may_ask:
        return Choice.ASK, case.now + case.policy.answer_within, case.now, f"is asked now, by {case.policy.signal}"
    if case.policy.consent and lost_hours(case.job, case.checkpoint, case.now) is not None:
        return _let_go(case, "its owner has said yes at once, and its newest checkpoint is complete")
    if case.now < case.deadline or (due is not None and due <= case.last_moment):
        when = f"expected at {_clock(due)}" if due is not None else "when it comes is not known"
        return Choice.WAIT_FOR_CHECKPOINT, case.last_moment, due, f"its next checkpoint is waited for; {when}"
    return Choice.ASK_PERSON, None, due, "no checkpoint came by the deadline: a person must decide"


def _losses(case: _Case) -> dict[Choice, float | None]:
    """Waiting loses nothing only where it is known that it ends in time, and that a checkpoint would be seen."""
    seen = isinstance(case.checkpoint, Checkpoint) and case.checkpoint.complete is True
    ends, due = case.ends_at, case.next_at
    in_time = ends is not None and ends <= case.last_moment
    losses: dict[Choice, float | None] = {
        Choice.WAIT_FOR_END: 0.0 if in_time or case.job.state == "COMPLETING" else None,
        Choice.WAIT_FOR_CHECKPOINT: 0.0 if due is not None and due <= case.last_moment else None,
        Choice.STOP_NOW: lost_hours(case.job, case.checkpoint, case.now),
    }
    if case.may_ask:
        losses[Choice.ASK] = 0.0 if seen and case.now + case.policy.answer_within <= case.last_moment else None
    return losses


def describe_checkpoint(checkpoint: NewestCheckpoint, now: datetime) -> str:
    """In words: which, when, how old; or why that cannot be told."""
    if isinstance(checkpoint, UnknownCheckpoint):
        return f"last checkpoint not known ({checkpoint.reason})"
    name = f"step {checkpoint.step}" if checkpoint.step is not None else checkpoint.path.rpartition("/")[2]
    if checkpoint.complete is not True:
        state = "is not complete" if checkpoint.complete is False else "may not be complete"
        return f"last checkpoint {name} {state} ({checkpoint.why})"
    if checkpoint.completed_at is None:
        return f"last checkpoint {name}, its time is not known"
    age = now - checkpoint.completed_at
    if -age > SKEW:
        return (
            f"last checkpoint {name} bears a time in the future ({_clock(checkpoint.completed_at)}): a clock is wrong"
        )
    told = "" if checkpoint.clock_measured else ", by the storage's clock, which was not measured"
    return f"last checkpoint {name} at {_clock(checkpoint.completed_at)}, {_span(max(age, timedelta(0)))} ago{told}"


def _line(case: _Case, reason: str) -> str:
    job = case.job
    gpus = f"{job.gpus} GPUs" if job.gpus is not None else "GPUs not known"
    lost = lost_hours(job, case.checkpoint, case.now)
    if lost is not None:
        loss = f"stopping it now loses {lost:.1f} GPU-hours"
    elif job.gpus is not None and job.elapsed_seconds is not None:
        done = job.elapsed_seconds * job.gpus / 3600
        loss = f"what stopping it now loses is not known; this run has done {done:.1f} GPU-hours"
    else:
        loss = "what stopping it now loses is not known"
    due = case.next_at
    expected = f"next expected at {_clock(due)}" if due is not None else "when the next comes is not known"
    owner = f"{job.user} ({job.account})" if job.account else job.user
    last = describe_checkpoint(case.checkpoint, case.now)
    whole = f"job {job.id} of {owner}, {gpus}: {reason}; {last}; {expected}; {loss}"
    return " ".join(str(printable(whole)).split())


def _clock(moment: datetime) -> str:
    return f"{moment:%F %H:%M} UTC"


def _span(span: timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes // 1440} days"
