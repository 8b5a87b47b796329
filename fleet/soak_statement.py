"""What a soak's verdict says to a person, with all that it rests on."""

from __future__ import annotations

from datetime import timedelta
from math import ceil

from fleet.soak import SoakState
from fleet.soak_hazard import SoakEnd, SoakPolicy, SoakVerdict

_HOUR, _DAY = 3600, 86400
_SURE_TO_COME = 0.99


def soak_statement(state: SoakState, verdict: SoakVerdict) -> str:
    """What was seen and follows from it, what that rests on, what happens now, and which tests came to nothing."""
    sentences = [_seen(verdict), _assumed(verdict), _now(state, verdict)]
    if state.passed_over:
        sentences.append(f"Inconclusive, and passed over: {', '.join(state.passed_over)}.")
    return " ".join(sentences)


def span_words(span: timedelta) -> str:
    """`71 h`, `45 min`, `30 days`; rounded down."""
    seconds = int(span.total_seconds())
    if seconds < _HOUR:
        return f"{seconds // 60} min"
    if seconds >= 7 * _DAY and seconds % _DAY == 0:
        return f"{seconds // _DAY} days"
    return f"{seconds // _HOUR} h"


def share_words(share: float) -> str:
    """A chance rounded up, since it is an upper limit: `24 %`, `2.2 %`, `0.07 %`."""
    percent = 100 * share
    step, digits = (1.0, 0) if percent >= 10 else (0.1, 1) if percent >= 1 else (0.01, 2)
    rounded = f"{ceil(percent / step - 1e-9) * step:.{digits}f}"
    return (rounded.rstrip("0").rstrip(".") if "." in rounded else rounded) + " %"


def _seen(verdict: SoakVerdict) -> str:
    policy = verdict.policy
    before = f"{_faults(verdict.faults)}, and since then no fault in " if verdict.faults else "No fault in "
    head = f"{before}{span_words(verdict.clear)}: the chance of one in the next {span_words(policy.horizon)}"
    if verdict.early.most > _SURE_TO_COME:
        return f"{head} has no useful limit at {100 * policy.confidence:g} % confidence."
    limit = f"{share_words(verdict.early.most)} at {100 * policy.confidence:g} % confidence"
    return f"{head} is at most {limit}."


def _assumed(verdict: SoakVerdict) -> str:
    policy, exposure = verdict.policy, verdict.exposure
    falls = f"the hazard falls with time t as t^{policy.shape - 1:.2g} (Weibull, shape {policy.shape:g})"
    hazard = "the hazard is constant" if policy.shape == 1 else falls
    parts = "this part alone" if exposure.parts == 1 else f"all {exposure.parts:,} parts that are pooled"
    faults = _faults(exposure.faults) if exposure.faults else "no fault"
    return (
        f"That holds where {hazard}, one rate holds for {parts} ({faults} in {exposure.hours:,.0f} h), "
        f"{_prior_words(policy)}, and an hour of soak counts as {policy.acceleration:g} h of service."
    )


def _prior_words(policy: SoakPolicy) -> str:
    prior = policy.prior
    if not prior.parts:
        return "nothing was known before"
    return f"earlier burn-ins of {prior.parts:,} parts had {_faults(prior.faults)} in {prior.hours:,.0f} h"


def _now(state: SoakState, verdict: SoakVerdict) -> str:
    asked = f"The policy's {share_words(verdict.policy.chance)}"
    if verdict.end is SoakEnd.FAULTY:
        return f"A part had more than {_faults(verdict.policy.most_faults)}: it is not soaked further."
    if verdict.end is SoakEnd.DONE:
        return f"The level {state.level.name} is complete; it is no soak, and no rule was applied."
    if verdict.end is SoakEnd.ENOUGH:
        return f"{asked} is reached: the soak is long enough."
    if verdict.end is SoakEnd.LIMIT:
        longest = span_words(state.level.most)
        return f"{asked} is not shown, and the longest time, {longest}, is over: a person decides."
    if verdict.needed is None:
        return f"{asked} cannot be reached by this node's own time within the level."
    if not verdict.needed:
        return f"{asked} is reached; tests of the opening are still to come."
    return f"{asked} is reached after {span_words(verdict.needed)} more without a fault."


def _faults(count: int) -> str:
    return f"{count} fault" + ("" if count == 1 else "s")
