"""The fleet file's `drain`: where jobs keep their checkpoints, and how far their wishes go."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from fleet.checkpoint_policy import PolicyRule
from fleet.checkpoint_trees import nearest_kind, read_kind
from fleet.job_consent import read_signal
from fleet.model import Job
from fleet.setting_types import Seconds, SshAddress, Strict

AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f]*$")]


class CheckpointStorageSettings(Strict):
    """Where the jobs' checkpoint folders can be listed."""

    host: SshAddress | None = Field(None, description="host:port of an SSH host that has them mounted; none: here")
    user: str | None = Field(None, description="SSH user there; default: ssh.user")
    clock_folder: AbsolutePath | None = Field(
        None, description="a folder of ours on the same storage, to measure its clock with"
    )
    read_seconds: float = Field(20.0, gt=0, le=600, description="one job's folder; what was not read by then is named")


class DrainRule(Strict):
    """Holds for the jobs that match all of partition, account and job that it names; later keys as in PolicyRule."""

    partition: str | None = None
    account: str | None = None
    job: str | None = None
    ckpt: AbsolutePath | None = Field(None, description="the jobs' checkpoint folder; %j job, %u user, %x job name")
    kind: str | None = Field(None, description="who writes it: megatron, deepspeed, dcp, huggingface …")
    notice_seconds: Seconds | None = None
    longest_notice_seconds: Seconds | None = None
    signals: bool | None = None
    signal: str | None = None
    consent: bool | None = None
    grace_seconds: Seconds | None = None
    answer_within_seconds: Seconds | None = None
    requeue: bool | None = None
    exits_after_signal: bool | None = None

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, kind: str | None) -> str | None:
        if kind is not None and read_kind(kind) is None:
            raise ValueError(f"no framework; {nearest_kind(kind)}")
        return kind

    @field_validator("signal")
    @classmethod
    def _known_signal(cls, signal: str | None) -> str | None:
        if signal is not None and read_signal(signal) is None:
            raise ValueError("no signal to ask for a checkpoint with; USR1, USR2, TERM, INT or HUP")
        return signal

    @model_validator(mode="after")
    def _folder_with_kind(self) -> Self:
        if self.kind is not None and self.ckpt is None:
            raise ValueError("kind says who writes ckpt; give ckpt too")
        return self

    def policy(self) -> PolicyRule:
        """The rule as the decision takes it."""
        return PolicyRule(
            partition=self.partition,
            account=self.account,
            job=self.job,
            notice=_span(self.notice_seconds),
            longest_notice=_span(self.longest_notice_seconds),
            signals=self.signals,
            signal=self.signal,
            consent=self.consent,
            grace=_span(self.grace_seconds),
            answer_within=_span(self.answer_within_seconds),
            requeue=self.requeue,
            exits_after_signal=self.exits_after_signal,
        )

    def matches(self, job: Job) -> bool:
        return self.policy().matches(job)

    @property
    def _narrowness(self) -> int:
        return 4 * (self.job is not None) + 2 * (self.account is not None) + (self.partition is not None)


class DrainSettings(Strict):
    checkpoints: CheckpointStorageSettings | None = Field(
        None, description="none: jobs' checkpoints are not read, and a drain waits for the jobs to end"
    )
    rules: tuple[DrainRule, ...] = ()
    disturb_again_after_days: float = Field(
        7.0, ge=0, allow_inf_nan=False, description="the same job is not stopped again before, whatever the operation"
    )

    @property
    def disturb_again_after(self) -> timedelta:
        return timedelta(days=self.disturb_again_after_days)

    def policies(self) -> tuple[PolicyRule, ...]:
        """The rules as `policy_for` takes them."""
        return tuple(rule.policy() for rule in self.rules)

    def folder_rule(self, job: Job) -> str | None:
        """The text of the narrowest rule that says where this job's checkpoints are, as a job would say it."""
        fitting = [rule for rule in self.rules if rule.ckpt is not None and rule.matches(job)]
        if not fitting:
            return None
        rule = max(fitting, key=lambda one: one._narrowness)
        return f"ckpt={rule.ckpt}" + (f";kind={rule.kind}" if rule.kind else "")


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
