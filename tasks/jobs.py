"""What a drain does about the jobs on its nodes: one decision for each job, however many nodes it has."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from blocks.jobs import began_at
from fleet.checkpoint_json import checkpoint_from_json, checkpoint_to_json
from fleet.checkpoint_policy import DrainPolicy, policy_for
from fleet.checkpoint_readers.values import NewestCheckpoint
from fleet.checkpoints import Asked, Choice, Decision, decide, lost_hours
from fleet.errors import JobRefused
from fleet.job_consent import JobConsent
from fleet.model import Job
from ledger import JobAsk
from tasks.visit import Visit

_LEAVES_WITHIN_SECONDS = 60.0


def settle_job(visit: Visit, job: Job, deadline: datetime) -> Decision:
    """Decide about one job, and do it: wait, signal, requeue, or leave it to a person.

    What is about to be done is written down first; nothing is done twice. Raises LeaseLost, SchedulerUnreachable.
    """
    jobs = visit.fleet.jobs()
    with jobs.lock(job.id):
        known = jobs.decided(visit.operation, job.id)
        if known is not None:
            return known
        said = jobs.said(job)
        newest = jobs.newest(job, said)
        now = visit.fleet.clock.now()
        ask = visit.ledger.jobs.meet(
            visit.operation, visit.token, job.id, checkpoint_to_json(newest), began_at(job, now)
        )
        if ask.released_at is not None:
            return _released(visit, job, ask.released_at, now)
        asked = Asked(ask.announced_at, checkpoint_from_json(ask.before), ask.signalled_at)
        policy, protected = _policy(visit, job, said, now)
        decision = decide(job, newest, now, deadline, policy, asked)
        if job.id in visit.may_stop:
            decision = _force(decision, visit.may_stop[job.id], policy.requeue)
        if protected is not None and decision.choice in (Choice.WAIT_FOR_END, Choice.ASK_PERSON):
            decision = replace(decision, text=f"{decision.text}; {protected}")
        decision = _carry_out(visit, job, ask, newest, decision)
        jobs.keep(visit.operation, decision)
        return decision


def _force(decision: Decision, most: float | None, requeue: bool) -> Decision:
    """Stop the job, as was approved; one that would lose more by now than that waits like any other."""
    lost = decision.lost_gpu_hours.get(Choice.STOP_NOW)
    if most is not None and (lost is None or lost > most):
        grown = "is not known any more" if lost is None else f"has grown to {lost:.1f} GPU-hours"
        return replace(decision, text=f"{decision.text}; not forced: its loss {grown}, approved were {most:.1f}")
    choice = Choice.REQUEUE if requeue else Choice.STOP_NOW
    return replace(decision, choice=choice, text=f"{decision.text}; it is stopped, as was approved")


def _policy(visit: Visit, job: Job, said: JobConsent, now: datetime) -> tuple[DrainPolicy, str | None]:
    """The job's policy, and why it may not be stopped again yet, where that is so."""
    settings, ledger = visit.fleet.spec().drain, visit.ledger
    given = ledger.jobs.consent(job.id)
    if given is not None:
        said = replace(said, consent=given.consent)
    policy = policy_for(job, settings.policies(), said)
    if not visit.fleet.jobs().reads_checkpoints:
        policy = replace(policy, signals=False, grace=timedelta(0))  # an answer could not be seen
    if job.requeue is False:
        policy = replace(policy, requeue=False)
    if given is not None and given.consent:
        return policy, None
    stopped = ledger.jobs.last_disturbed((job.id,), now - settings.disturb_again_after).get(job.id)
    if stopped is None:
        return policy, None
    again = stopped + settings.disturb_again_after
    why = f"it was stopped at {stopped:%F %H:%M} UTC, and is not to be again before {again:%F %H:%M} UTC"
    return replace(policy, consent=False), why


def _released(visit: Visit, job: Job, at: datetime, now: datetime) -> Decision:
    """This run was let go before. One that runs on was perhaps never requeued: whoever noted it died then."""
    if (now - at).total_seconds() > _LEAVES_WITHIN_SECONDS and job.state == "RUNNING":
        with suppress(JobRefused):  # one that may not be requeued ends by itself, or was approved to be stopped
            visit.fleet.scheduler().requeue(job.id)
    text = f"job {job.id} of {job.user}: was let go at {at:%F %H:%M} UTC, its nodes are waited for ({job.state})"
    decision = Decision(job.id, Choice.WAIT_FOR_END, None, None, None, text)
    visit.fleet.jobs().keep(visit.operation, decision)
    return decision


def _carry_out(visit: Visit, job: Job, ask: JobAsk, newest: NewestCheckpoint, decision: Decision) -> Decision:
    if decision.choice is Choice.ASK and decision.signal is not None:
        return _ask(visit, job, ask, decision, decision.signal)
    lost = lost_hours(job, newest, visit.fleet.clock.now())
    if decision.choice is Choice.REQUEUE:
        visit.ledger.jobs.note_release(ask, visit.token, job, "requeued", lost)
        try:
            visit.fleet.scheduler().requeue(job.id)
        except JobRefused as error:
            return replace(decision, choice=Choice.ASK_PERSON, text=f"{decision.text}; refused: {error.message}")
    elif decision.choice is Choice.STOP_NOW:
        visit.ledger.jobs.note_release(ask, visit.token, job, "stopped", lost)
        try:
            visit.fleet.scheduler().cancel(job.id)
        except JobRefused as error:
            return replace(decision, choice=Choice.ASK_PERSON, text=f"{decision.text}; refused: {error.message}")
    elif decision.choice is Choice.LET_EXIT:
        visit.ledger.jobs.note_release(ask, visit.token, job, "saved and ended", lost)
    return decision


def _ask(visit: Visit, job: Job, ask: JobAsk, decision: Decision, signal: str) -> Decision:
    """Send the signal, once: whoever finds it noted waits for the answer."""
    if visit.ledger.jobs.note_signal(ask, visit.token, signal):
        try:
            visit.fleet.scheduler().signal(job.id, signal)
        except JobRefused as error:
            visit.ledger.jobs.forget_signal(ask, visit.token, error.message)
            return replace(decision, text=f"{decision.text}; refused: {error.message}")
    return decision
