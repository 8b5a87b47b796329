"""What a drain does about the jobs on its nodes: one decision for each job, however many nodes it has."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from blocks.fleet import Fleet
from blocks.jobs import began_at
from fleet.checkpoint_json import checkpoint_from_json, checkpoint_to_json
from fleet.checkpoint_policy import DrainPolicy, policy_for
from fleet.checkpoint_readers.values import NewestCheckpoint
from fleet.checkpoints import Asked, Choice, Decision, decide, lost_hours
from fleet.errors import JobRefused, OutcomeUnknown, SchedulerUnreachable, TransientError
from fleet.job_consent import JobConsent
from fleet.model import Job
from ledger import JobAsk
from tasks.visit import Visit

_HOW = {Choice.REQUEUE: "requeued", Choice.STOP_NOW: "stopped", Choice.LET_EXIT: "saved and ended"}


def settle_job(visit: Visit, job: Job, deadline: datetime) -> Decision:
    """Decide about one job, and do it: wait, signal, requeue, or leave it to a person.

    What is about to be done is written down first; nothing is done twice. Raises LeaseLost, SchedulerUnreachable.
    """
    jobs = visit.fleet.jobs()
    with jobs.lock(job.id):
        known = jobs.decided(visit.operation, job.id, deadline)
        if known is not None:
            return known
        said = jobs.said(job)
        newest = jobs.newest(job, said)
        now = visit.fleet.clock.now()
        began = None if jobs.goes_on(job) else began_at(job, now)
        ask = visit.ledger.jobs.meet(visit.operation, visit.token, job.id, checkpoint_to_json(newest), began)
        if ask.released_at is not None:
            decision = _released(visit, job, ask, ask.released_at, deadline)
        else:
            decision = _carry_out(visit, job, ask, newest, _decide(visit, job, said, newest, ask, deadline))
        jobs.keep(visit.operation, deadline, decision)
        return decision


def _decide(
    visit: Visit, job: Job, said: JobConsent, newest: NewestCheckpoint, ask: JobAsk, deadline: datetime
) -> Decision:
    now = visit.fleet.clock.now()
    policy, protected = job_policy(visit.fleet, job, said, now)
    if visit.fleet.jobs().refuses_signals(ask.id):
        policy = replace(policy, signals=False)
    asked = Asked(ask.announced_at, checkpoint_from_json(ask.before), ask.signalled_at)
    decision = decide(job, newest, now, deadline, policy, asked)
    if job.id in visit.may_stop and job.state != "COMPLETING":
        decision = _force(visit, decision, visit.may_stop[job.id], policy.requeue)
    if protected is not None and decision.choice in (Choice.WAIT_FOR_END, Choice.ASK_PERSON):
        return replace(decision, text=f"{decision.text}; {protected}")
    return decision


def _force(visit: Visit, decision: Decision, most: float | None, requeue: bool) -> Decision:
    """Stop the job, as was approved: once, and only while it loses no more than that; else it waits like any other."""
    if any(found.job == decision.job for found in visit.ledger.jobs.disturbances(visit.operation)):
        return replace(decision, text=f"{decision.text}; not forced: it was stopped once, as was approved")
    lost = decision.lost_gpu_hours.get(Choice.STOP_NOW)
    if most is not None and (lost is None or lost > most):
        grown = "is not known any more" if lost is None else f"has grown to {lost:.1f} GPU-hours"
        return replace(decision, text=f"{decision.text}; not forced: its loss {grown}, approved were {most:.1f}")
    choice = Choice.REQUEUE if requeue else Choice.STOP_NOW
    return replace(decision, choice=choice, text=f"{decision.text}; it is stopped, as was approved")


def job_policy(fleet: Fleet, job: Job, said: JobConsent, now: datetime) -> tuple[DrainPolicy, str | None]:
    """The job's policy, and why it may not be stopped again yet, where that is so."""
    settings, ledger = fleet.spec().drain, fleet.ledger()
    given = ledger.jobs.consent(job.id)
    if given is not None:
        said = replace(said, consent=given.consent)
    policy = policy_for(job, settings.policies(), said)
    if not fleet.jobs().reads_checkpoints:
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


def _released(visit: Visit, job: Job, ask: JobAsk, at: datetime, deadline: datetime) -> Decision:
    """This run was let go before. Where the scheduler's word is missing, whoever noted it died: it is asked again."""
    text = f"job {job.id} of {job.user}: was let go at {at:%F %H:%M} UTC ({ask.released}), and is {job.state}"
    over = visit.fleet.clock.now() >= deadline
    decision = Decision(job.id, Choice.ASK_PERSON if over else Choice.WAIT_FOR_END, None, None, None, text)
    if ask.confirmed_at is not None or job.state == "COMPLETING":
        return decision
    choice = next(choice for choice, how in _HOW.items() if how == ask.released)
    return _stop(visit, job, ask, replace(decision, choice=choice))


def _carry_out(visit: Visit, job: Job, ask: JobAsk, newest: NewestCheckpoint, decision: Decision) -> Decision:
    if decision.choice is Choice.ASK and decision.signal is not None:
        return _ask(visit, job, ask, decision, decision.signal)
    if decision.choice not in _HOW:
        return decision
    lost = lost_hours(job, newest, visit.fleet.clock.now())
    visit.ledger.jobs.note_release(ask, visit.token, job, _HOW[decision.choice], lost)
    return _stop(visit, job, ask, decision)


def _stop(visit: Visit, job: Job, ask: JobAsk, decision: Decision) -> Decision:
    """Have the scheduler stop the job; a refusal means that it was not disturbed."""
    scheduler, jobs = visit.fleet.scheduler(), visit.ledger.jobs
    try:
        if decision.choice is Choice.REQUEUE:
            scheduler.requeue(job.id)
        elif decision.choice is Choice.STOP_NOW:
            scheduler.cancel(job.id)
    except JobRefused as error:
        jobs.forget_release(ask, visit.token, error.message)
        return replace(decision, choice=Choice.ASK_PERSON, text=f"{decision.text}; refused: {error.message}")
    except SchedulerUnreachable:
        raise
    except (TransientError, OutcomeUnknown) as error:
        return replace(decision, choice=Choice.WAIT_FOR_END, text=f"{decision.text}; asked again: {error.message}")
    jobs.confirm_release(ask, visit.token)
    return decision


def _ask(visit: Visit, job: Job, ask: JobAsk, decision: Decision, signal: str) -> Decision:
    """Send the signal, once: whoever finds it noted waits for the answer."""
    if not visit.ledger.jobs.note_signal(ask, visit.token, signal):
        return decision
    try:
        visit.fleet.scheduler().signal(job.id, signal)
    except (JobRefused, SchedulerUnreachable, TransientError) as error:
        visit.ledger.jobs.forget_signal(ask, visit.token, error.message)
        if isinstance(error, SchedulerUnreachable):
            raise
        if isinstance(error, JobRefused):
            visit.fleet.jobs().note_refused_signal(ask.id)
        return replace(decision, text=f"{decision.text}; not sent: {error.message}")
    return decision
