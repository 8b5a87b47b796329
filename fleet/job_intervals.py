"""Whether a running job writes checkpoints often enough for its size and for how often nodes fail.

The interval that is recommended is Daly's (fleet/checkpoint_intervals.py), from one checkpoint to the next: the write
is part of it. Sources: Kokolis et al. 2024 (Meta RSC, arXiv 2410.21680), RSC-1: 6.5 failures per 1,000 node-days of
8-GPU nodes, the rate that is assumed where the fleet's own is not known; Byar's approximation (Breslow and Day 1987)
for the limits within which a rate of so many failures lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import isfinite, sqrt

from fleet.canary_words import count, percent
from fleet.checkpoint_intervals import IntervalVerdict, daly, failure_rate, job_mtbf_seconds, judge_interval
from fleet.checkpoint_readers.values import Checkpoint, NewestCheckpoint, UnknownCheckpoint
from fleet.checkpoints import SKEW
from fleet.json_values import printable
from fleet.model import Job

PUBLISHED_RATE = 6.5
PUBLISHED = "Meta's RSC-1, arXiv 2410.21680"
_NORMAL = 1.959964  # 95 % of a normal distribution lie within so many standard deviations
_MOST_SECONDS = 1e11  # as in judge_interval
_UNSURE = "; other rates within the limits say otherwise"


class Fit(StrEnum):
    """How a job's own interval stands to the recommended one."""

    SUITS = "suits"
    TOO_RARE = "too rare"
    TOO_OFTEN = "too often"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FleetRate:
    """How often a node in service fails, per 1,000 node-days.

    `failures` and `node_days` are the fleet's own, whatever rate holds. `limits` are the ends of the 95 % interval of
    a measured rate. `assumed` says whose rate it is where the fleet's own is not known; `limits` are then None.
    """

    per_1000_node_days: float
    failures: int
    node_days: float
    limits: tuple[float, float] | None
    assumed: str | None = None

    @property
    def text(self) -> str:
        """In words, with the count it rests on."""
        if self.node_days > 0:
            seen = f"{count(self.failures, 'failure')} in {self.node_days:,.1f} node-days in service"
        else:
            seen = "no node in service was read by a sweep in this time"
        if self.assumed is not None:
            own = f"{seen}: too little to call it a rate"
            return f"{own}; {self.per_1000_node_days:g} per 1,000 node-days is assumed ({self.assumed})"
        low, high = self.limits or (0.0, 0.0)
        return f"{seen}: {self.per_1000_node_days:.2f} per 1,000 node-days (95 %: {low:.2f} to {high:.2f})"


def fleet_rate(failures: int, node_days: float) -> FleetRate:
    """The fleet's own rate, or the published one where fewer than three failures were seen."""
    rate = failure_rate(failures, node_days)
    if rate is None:
        return FleetRate(PUBLISHED_RATE, failures, node_days, None, PUBLISHED)
    low, high = (limit * 1000 / node_days for limit in _poisson_limits(failures))
    return FleetRate(rate, failures, node_days, (low, high))


def _poisson_limits(number: int) -> tuple[float, float]:
    """What a count of `number` (at least 1) may be expected to be: the 95 % interval."""
    least = number * (1 - 1 / (9 * number) - _NORMAL / (3 * sqrt(number))) ** 3
    above = number + 1
    return least, above * (1 - 1 / (9 * above) + _NORMAL / (3 * sqrt(above))) ** 3


@dataclass(frozen=True, slots=True)
class JobInterval:
    """What one job's checkpoints are like, in seconds; None is "not known".

    `interval_seconds` is from one checkpoint to the next: as measured, or (`interval_measured` False) as the job says.
    `write_seconds` is as its files show it, or (`write_measured` False) as it was assumed. `lost_share` is the time,
    0 to 1, that the job loses against the recommended interval, and `lost_gpu_hours_a_day` the same on its GPUs.
    `firm`: the verdict is the same at both ends of the rate's limits; None where it is open or the rate is assumed.
    `text` is the verdict for people.
    """

    interval_seconds: float | None
    interval_measured: bool
    write_seconds: float | None
    write_measured: bool
    mtbf_seconds: float | None
    recommended_seconds: float | None
    fit: Fit
    lost_share: float | None
    lost_gpu_hours_a_day: float | None
    firm: bool | None
    text: str


def judge_job(
    job: Job,
    checkpoint: NewestCheckpoint,
    said: timedelta | None,
    rate: FleetRate,
    assumed_write_seconds: float | None = None,
) -> JobInterval:
    """Does the job's own interval suit the rate at which nodes fail?

    `said` is how often the job says that it writes: it counts where the storage shows no interval. The assumed time to
    write counts where its files show none. What is not known leaves the verdict open. Never raises.
    """
    interval, measured = _interval(checkpoint, said)
    write, write_measured, doubt = _write(checkpoint, interval, assumed_write_seconds)
    mtbf = _known(job_mtbf_seconds(len(job.nodes), rate.per_1000_node_days))
    found = judge_interval(interval, write, mtbf)
    fit = _fit(found, interval, write)
    share = None if fit is Fit.UNKNOWN else found.lost_share
    lost = None if share is None or job.gpus is None else share * job.gpus * 24
    firm = _is_firm(fit, rate, len(job.nodes), interval, write)
    why = _why_open(checkpoint, interval, doubt)
    return JobInterval(
        interval_seconds=interval,
        interval_measured=measured,
        write_seconds=write,
        write_measured=write_measured,
        mtbf_seconds=mtbf,
        recommended_seconds=None if write is None or mtbf is None else daly(write, mtbf) + write,
        fit=fit,
        lost_share=share,
        lost_gpu_hours_a_day=lost,
        firm=firm,
        text=_text(fit, share, lost, why) + (_UNSURE if firm is False else ""),
    )


def _interval(checkpoint: NewestCheckpoint, said: timedelta | None) -> tuple[float | None, bool]:
    """Seconds, and whether they were measured."""
    if isinstance(checkpoint, Checkpoint) and checkpoint.complete is True:
        seen = _known(checkpoint.interval_seconds)
        if seen is not None:
            return seen, True
    return _known(None if said is None else said.total_seconds()), False


def _write(
    checkpoint: NewestCheckpoint, interval: float | None, assumed: float | None
) -> tuple[float | None, bool, str]:
    """Seconds, whether its files show them, and why there are none.

    Files that were touched later, copied or written behind the training's back show more than the interval is long:
    that is no time to write.
    """
    told = checkpoint.write_seconds if isinstance(checkpoint, Checkpoint) and checkpoint.complete is True else None
    seen, guess = _known(told), _known(assumed)
    for seconds, measured in ((seen, True), (guess, False)):
        if seconds is not None and (interval is None or seconds < interval):
            return seconds, measured, ""
    if guess is not None:
        return None, False, "the assumed time to write is not below its interval"
    if seen is not None:
        why = "its files bear times further apart than its interval"
        return None, False, f"{why}; --write-seconds assumes a time to write"
    return None, False, "its files do not show how long a write takes; --write-seconds assumes it"


def _known(seconds: float | None) -> float | None:
    """A length of time that can be; shorter than a millisecond nobody measures."""
    return seconds if seconds is not None and isfinite(seconds) and 1e-3 <= seconds <= _MOST_SECONDS else None


def _fit(found: IntervalVerdict, interval: float | None, write: float | None) -> Fit:
    if found.suits is None or found.best_seconds is None or interval is None or write is None:
        return Fit.UNKNOWN
    if found.suits:
        return Fit.SUITS
    return Fit.TOO_RARE if interval - write > found.best_seconds else Fit.TOO_OFTEN


def _is_firm(fit: Fit, rate: FleetRate, nodes: int, interval: float | None, write: float | None) -> bool | None:
    if fit is Fit.UNKNOWN or rate.limits is None:
        return None
    verdicts = (judge_interval(interval, write, job_mtbf_seconds(nodes, limit)) for limit in rate.limits)
    return all(_fit(verdict, interval, write) is fit for verdict in verdicts)


def _why_open(checkpoint: NewestCheckpoint, interval: float | None, doubt: str) -> str:
    if interval is not None:
        return doubt or "how often a job of its size fails is not known"
    if isinstance(checkpoint, UnknownCheckpoint):
        what = "it has no checkpoint yet" if checkpoint.none_yet else "its last checkpoint is not known"
        return f"{what} ({checkpoint.reason})"
    if checkpoint.complete is not True:
        return f"its newest checkpoint is not known to be complete ({checkpoint.why})"
    return "fewer than two complete checkpoints are there to measure its interval by"


def _text(fit: Fit, share: float | None, lost: float | None, why: str) -> str:
    if fit is Fit.UNKNOWN or share is None:
        return " ".join(str(printable(f"{Fit.UNKNOWN.value}: {why}")).split())
    if fit is Fit.TOO_RARE:
        cost = f"{percent(share)} of its time" if lost is None else f"about {gpu_hours(lost)} GPU-hours per day"
        return f"{fit.value}: loses {cost}"
    return f"{fit.value}: costs {percent(share)} of its time" if fit is Fit.TOO_OFTEN else fit.value


def gpu_hours(hours: float) -> str:
    """With as many digits as it is worth."""
    return f"{hours:.1f}" if hours < 100 else f"{hours:,.0f}"


def age_seconds(checkpoint: NewestCheckpoint, now: datetime) -> float | None:
    """How old the newest complete checkpoint is; None where there is none, or its time is not known or yet to come."""
    if not isinstance(checkpoint, Checkpoint) or checkpoint.complete is not True or checkpoint.completed_at is None:
        return None
    age = now - checkpoint.completed_at
    return None if -age > SKEW else max(0.0, age.total_seconds())


def last_words(checkpoint: NewestCheckpoint, now: datetime) -> str:
    """The newest checkpoint in a few words: "step 4000, 20 min ago"; ? where nothing can be told."""
    if isinstance(checkpoint, UnknownCheckpoint):
        return "none yet" if checkpoint.none_yet else "?"
    name = f"step {checkpoint.step}" if checkpoint.step is not None else checkpoint.path.rpartition("/")[2]
    if checkpoint.complete is not True:
        what = "not complete" if checkpoint.complete is False else "may not be complete"
    elif (age := age_seconds(checkpoint, now)) is not None:
        what = f"{span_words(age)} ago" + ("" if checkpoint.clock_measured else " by the storage's clock")
    else:
        what = "time not known" if checkpoint.completed_at is None else "bears a time in the future"
    return " ".join(str(printable(f"{name}, {what}")).split())


def span_words(seconds: float | None) -> str:
    """A length of time in a few letters; ? for one that is not known."""
    if seconds is None:
        return "?"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min" if minutes < 2880 else f"{minutes // 1440} days"
