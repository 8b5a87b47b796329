"""Whose word holds about a job's notice, signals and consent."""

from __future__ import annotations

from unit.checkpoint_tools import job, minutes

from fleet.checkpoint_policy import PolicyRule, policy_for
from fleet.job_consent import JobConsent


def test_a_rule_for_a_job_goes_before_one_for_an_account_and_that_before_a_partitions() -> None:
    rules = [
        PolicyRule(job="812", notice=minutes(1)),
        PolicyRule(account="llm", notice=minutes(2), signals=False),
        PolicyRule(partition="train", notice=minutes(3), grace=minutes(99), signal="TERM"),
        PolicyRule(partition="other", notice=minutes(500)),
    ]
    found = policy_for(job(), rules, JobConsent())
    assert (found.notice, found.signals, found.grace, found.signal) == (minutes(1), False, minutes(99), "TERM")


def test_a_job_may_ask_for_more_notice_within_the_sites_bound_and_never_for_less() -> None:
    rules = [PolicyRule(notice=minutes(10), longest_notice=minutes(60))]
    assert policy_for(job(), rules, JobConsent(notice=minutes(5))).notice == minutes(10)
    assert policy_for(job(), rules, JobConsent(notice=minutes(30))).notice == minutes(30)
    assert policy_for(job(), rules, JobConsent(notice=minutes(600))).notice == minutes(60)


def test_the_jobs_word_counts_where_the_site_does_not_say_no() -> None:
    said = JobConsent(signals=False, consent=True, requeue=False, interval=minutes(30))
    found = policy_for(job(), [], said)
    assert (found.signals, found.consent, found.requeue, found.interval) == (False, True, False, minutes(30))
    assert policy_for(job(), [PolicyRule(consent=False)], said).consent is False
    assert policy_for(job(), [PolicyRule(signals=False)], JobConsent(signals=True, signal="USR1")).signals is False
