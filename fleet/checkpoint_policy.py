"""How much a job's wishes count while its nodes are drained: limits by partition, account and job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from fleet.job_consent import JobConsent
from fleet.model import Job

_ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """What holds for one job.

    `notice` runs from the drain's first look until the job is asked. `signals` False: it is never signalled. `consent`
    True: no notice, asked at once. `grace`: for how long after the deadline an answer or a checkpoint is still waited
    for. `answer_within`: how long a signalled job has. `requeue`: it may be requeued once it has saved.
    `exits_after_signal`: it ends by itself after it was signalled and has saved. `interval`: how often it says that it
    writes.
    """

    notice: timedelta = _ZERO
    signals: bool = True
    signal: str | None = None
    consent: bool | None = None
    grace: timedelta = timedelta(minutes=30)
    answer_within: timedelta = timedelta(minutes=15)
    requeue: bool = True
    exits_after_signal: bool = False
    interval: timedelta | None = None


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of the site. It holds for jobs that match all of partition, account and job that it names.

    None leaves a value as the rules before it have it. `longest_notice` bounds what an owner may ask for.
    """

    partition: str | None = None
    account: str | None = None
    job: str | None = None
    notice: timedelta | None = None
    longest_notice: timedelta | None = None
    signals: bool | None = None
    signal: str | None = None
    consent: bool | None = None
    grace: timedelta | None = None
    answer_within: timedelta | None = None
    requeue: bool | None = None
    exits_after_signal: bool | None = None

    def matches(self, job: Job) -> bool:
        named = ((self.partition, job.partition), (self.account, job.account), (self.job, job.id))
        return all(wanted is None or wanted == found for wanted, found in named)

    @property
    def _rank(self) -> int:
        """A job's rule goes before an account's, that before a partition's, that before one for all."""
        return 4 * (self.job is not None) + 2 * (self.account is not None) + (self.partition is not None)


def policy_for(job: Job, rules: Sequence[PolicyRule], said: JobConsent) -> DrainPolicy:
    """The site's rules with the job's own word: a job may forbid signals and ask for more notice, never for less.

    A rule that forbids signals, or denies consent, holds against the job's word; so does `longest_notice`.
    """
    policy = DrainPolicy()
    longest: timedelta | None = None
    denied = False
    for rule in sorted((rule for rule in rules if rule.matches(job)), key=lambda rule: rule._rank):
        policy = _with(policy, rule)
        longest = rule.longest_notice if rule.longest_notice is not None else longest
        denied = rule.consent is False if rule.consent is not None else denied
    notice = max(policy.notice, said.notice or _ZERO)
    if longest is not None:
        notice = max(policy.notice, min(notice, longest))
    consent = said.consent if said.consent is not None else policy.consent
    return DrainPolicy(
        notice=notice,
        signals=policy.signals and said.signals is not False,
        signal=said.signal or policy.signal,
        consent=False if denied else consent,
        grace=policy.grace,
        answer_within=policy.answer_within,
        requeue=policy.requeue and said.requeue is not False,
        exits_after_signal=policy.exits_after_signal,
        interval=said.interval,
    )


def _with(policy: DrainPolicy, rule: PolicyRule) -> DrainPolicy:
    return DrainPolicy(
        notice=policy.notice if rule.notice is None else rule.notice,
        signals=policy.signals if rule.signals is None else rule.signals,
        signal=policy.signal if rule.signal is None else rule.signal,
        consent=policy.consent if rule.consent is None else rule.consent,
        grace=policy.grace if rule.grace is None else rule.grace,
        answer_within=policy.answer_within if rule.answer_within is None else rule.answer_within,
        requeue=policy.requeue if rule.requeue is None else rule.requeue,
        exits_after_signal=policy.exits_after_signal if rule.exits_after_signal is None else rule.exits_after_signal,
    )
