"""How often a job should write checkpoints, and what failures cost it.

Sources: Young 1974; Daly 2006 (DOI 10.1016/j.future.2004.11.016), eq. 37 for the interval and the wall-clock model for
the efficiency; Saxena et al. 2024 (arXiv 2410.18124) for the interval that includes the save; Kokolis et al. (Meta
RSC, arXiv 2410.21680) for failures per 1,000 node-days and the effective training time ratio; Llama 3 (arXiv
2407.21783) for interruptions over a run. All times are seconds unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, isfinite, sqrt

_DAY = 86400.0
_INSTANT, _ENDLESS = 1e-3, 1e11  # seconds; nobody measures less, or 3,000 years
_LEAST_FAILURES = 3  # fewer make no rate: the true one may be several times as high


def young(write_seconds: float, mtbf_seconds: float) -> float:
    """Compute time between checkpoints. Raises ValueError for a time that is not above 0 (all functions here do)."""
    _positive(write_seconds, mtbf_seconds)
    return sqrt(2 * write_seconds * mtbf_seconds)


def daly(write_seconds: float, mtbf_seconds: float) -> float:
    """Compute time between checkpoints, without the write; the MTBF where a write takes twice that or more."""
    _positive(write_seconds, mtbf_seconds)
    if write_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    part = write_seconds / (2 * mtbf_seconds)
    return young(write_seconds, mtbf_seconds) * (1 + sqrt(part) / 3 + part / 9) - write_seconds


def daly_first_order(write_seconds: float, mtbf_seconds: float, restart_seconds: float) -> float:
    """As `young`, with the restart counted."""
    _positive(write_seconds, mtbf_seconds)
    return sqrt(2 * write_seconds * (mtbf_seconds + restart_seconds))


def saxena_total(write_seconds: float, mtbf_seconds: float, restart_seconds: float) -> float:
    """Time from one checkpoint to the next, the write included."""
    _positive(write_seconds, mtbf_seconds)
    return write_seconds + sqrt(2 * (mtbf_seconds + restart_seconds) * write_seconds + write_seconds**2)


def efficiency(interval_seconds: float, write_seconds: float, mtbf_seconds: float, restart_seconds: float) -> float:
    """Share of the time, 0 to 1, that is kept work (Daly's wall-clock model); the interval excludes the write."""
    _positive(interval_seconds, mtbf_seconds)
    cycle, restart = (interval_seconds + write_seconds) / mtbf_seconds, restart_seconds / mtbf_seconds
    if cycle + restart > 700:  # more than a float holds
        return 0.0
    return interval_seconds / (mtbf_seconds * exp(restart) * expm1(cycle))


def mttf_hours(gpus: int, gpus_per_node: int, failures_per_1000_node_days: float) -> float:
    """Hours until a job on so many GPUs is expected to fail."""
    _positive(gpus, gpus_per_node, failures_per_1000_node_days)
    return 24 * 1000 / (gpus / gpus_per_node * failures_per_1000_node_days)


def mean_hours_between(days: float, interruptions: int) -> float:
    """Hours between interruptions of one run."""
    _positive(days, interruptions)
    return days * 24 / interruptions


def effective_time_ratio(
    gpus: int,
    gpus_per_node: int,
    failures_per_1000_node_days: float,
    restart_seconds: float,
    interval_seconds: float,
) -> float:
    """Expected ETTR without time in the queue: a failure costs the restart and half an interval. Never below 0."""
    mttf = mttf_hours(gpus, gpus_per_node, failures_per_1000_node_days) * 3600
    return max(0.0, 1 - (restart_seconds + interval_seconds / 2) / mttf)


def failure_rate(failures: int, node_days: float) -> float | None:
    """Failures per 1,000 node-days; None where too few were seen to call it a rate."""
    if failures < _LEAST_FAILURES or not isfinite(node_days) or node_days <= 0:
        return None
    return failures * 1000 / node_days


@dataclass(frozen=True, slots=True)
class IntervalVerdict:
    """`suits` None is "cannot be told", for want of a figure; the other two are then None too.

    `best_seconds` is Daly's interval, `lost_share` (0 to 1) the time that the job's own interval loses against it.
    """

    suits: bool | None
    best_seconds: float | None
    lost_share: float | None
    text: str


def judge_interval(
    interval_seconds: float | None,
    write_seconds: float | None,
    mtbf_seconds: float | None,
    restart_seconds: float = 600.0,
    tolerance: float = 0.02,
) -> IntervalVerdict:
    """Does a job's interval (from one checkpoint to the next) suit how often a job of its size fails?

    It does where it loses at most `tolerance` of the time against the best one. A figure that is not known or makes
    no sense leaves it open. Never raises.
    """
    figures = {"interval": interval_seconds, "time to write": write_seconds, "failure rate": mtbf_seconds}
    missing = [name for name, value in figures.items() if value is None or not _INSTANT <= value <= _ENDLESS]
    if missing or interval_seconds is None or write_seconds is None or mtbf_seconds is None:
        text = f"whether it writes often enough cannot be told: no {', no '.join(missing)}"
        return IntervalVerdict(None, None, None, text)
    best = daly(write_seconds, mtbf_seconds)
    work = interval_seconds - write_seconds
    own = efficiency(work, write_seconds, mtbf_seconds, restart_seconds) if work > 0 else 0.0
    lost = min(1.0, max(0.0, efficiency(best, write_seconds, mtbf_seconds, restart_seconds) - own))
    due = f"{(best + write_seconds) / 60:.0f} min would suit a failure every {mtbf_seconds / 3600:.1f} h"
    if lost <= tolerance:
        return IntervalVerdict(True, best, lost, f"writes every {interval_seconds / 60:.0f} min; {due}")
    fault = "too seldom" if work > best else "too often"
    text = f"writes every {interval_seconds / 60:.0f} min, {fault}: {lost:.0%} of its time lost; {due}"
    return IntervalVerdict(False, best, lost, text)


def job_mtbf_seconds(nodes: int, failures_per_1000_node_days: float | None) -> float | None:
    """Seconds between failures of a job on so many nodes; None where the rate or the nodes are not known."""
    if failures_per_1000_node_days is None or failures_per_1000_node_days <= 0 or nodes <= 0:
        return None
    return 1000 * _DAY / (nodes * failures_per_1000_node_days)


def _positive(*values: float) -> None:
    if any(not isfinite(value) or value <= 0 for value in values):
        raise ValueError(f"times and counts must be above 0, got {', '.join(f'{value:g}' for value in values)}")
