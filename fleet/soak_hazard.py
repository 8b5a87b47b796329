"""The failure hazard seen so far in a soak, and the rule that ends it.

A part that has run t hours without a fault fails in the next h hours with chance

    1 − exp(−r · ((t + h)^k − t^k)),        0 < k ≤ 1

a Weibull hazard r · k · t^(k−1), which falls with time for k < 1 and is constant for k = 1. The rate r is the same for
all parts that are pooled, and is known through a gamma distribution: shape a + faults, inverse scale b + Σ t^k over all
fault-free spells, those that go on and those that ended with a fault. With a = 1 and b = 0 nothing is known before, and
the upper limit of r is the classical one, χ²(2 · faults + 2) / 2 over the exposure; earlier burn-ins of the same model
add their faults to a and their exposure to b. A part that had a fault begins again at t = 0.

Sources: the Weibull hazard, MIL-HDBK-338B 5.3.6; the gamma prior and its upper limit, NIST/SEMATECH e-Handbook of
Statistical Methods 8.3.1.5 and 8.4.6 (there for k = 1; t^k of a Weibull life is exponential, so that the same holds for
it in that scale); that failures in large clusters follow a falling Weibull hazard, Schroeder and Gibson, "A large-scale
study of failures in high-performance computing systems", DSN 2006. The default k is an assumption, to be replaced by
what the fleet's own burn-ins show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from math import exp, inf

from scipy.special import gammaincinv

from fleet.soak import PartClock, SoakState

_HOUR = timedelta(hours=1)
_ZERO = timedelta(0)
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Exposure:
    """Faults, parts and hours that speak of the rate; `scaled` is the sum of the spells' hours to the power of k."""

    faults: int = 0
    parts: int = 0
    hours: float = 0.0
    scaled: float = 0.0

    def plus(self, other: Exposure) -> Exposure:
        return Exposure(
            self.faults + other.faults,
            self.parts + other.parts,
            self.hours + other.hours,
            self.scaled + other.scaled,
        )


@dataclass(frozen=True, slots=True)
class SoakPolicy:
    """When a soak is long enough.

    A node's chance of a fault within `horizon` in service must be at most `chance`, with `confidence`. `shape` is k.
    `prior` is what earlier burn-ins of the same model showed, with the same k. An hour of soak counts as `acceleration`
    hours of service; above 1 only with a measurement that says so. No soak ends by rule before `least`, and a part with
    more than `most_faults` faults is not soaked further.
    """

    chance: float = 0.05
    confidence: float = 0.95
    horizon: timedelta = timedelta(days=30)
    shape: float = 0.7
    prior: Exposure = Exposure()
    acceleration: float = 1.0
    least: timedelta = timedelta(hours=24)
    most_faults: int = 1


@dataclass(frozen=True, slots=True)
class EarlyChance:
    """Of a fault within the horizon: `most` with the policy's confidence, `mean` over what is known of the rate."""

    most: float
    mean: float


class SoakEnd(StrEnum):
    GO_ON = "go on"
    ENOUGH = "enough"
    LIMIT = "limit"
    """The longest time is over, and the chance is not shown to be as low as the policy asks."""
    FAULTY = "faulty"
    """A part had more faults than the policy allows."""
    DONE = "done"
    """A level that is no soak was run to its end."""


@dataclass(frozen=True, slots=True)
class SoakVerdict:
    """`clear` is the least fault-free time of the node's parts, `needed` how much more without a fault would be enough
    (None where that is more than the level's longest time). `faults` are those of the parts that are in the node now;
    `exposure` is of all parts that were pooled, without the prior."""

    end: SoakEnd
    clear: timedelta
    faults: int
    early: EarlyChance
    needed: timedelta | None
    exposure: Exposure
    policy: SoakPolicy


def exposure_of(clocks: Iterable[PartClock], shape: float) -> Exposure:
    """What these parts showed."""
    seen = list(clocks)
    spells = [_hours(spell) for clock in seen for spell in (*clock.spells, clock.clear)]
    faults = sum(len(clock.spells) for clock in seen)
    return Exposure(faults, len(seen), sum(spells), sum(hours**shape for hours in spells if hours > 0))


def early_chance(clear: Sequence[timedelta], exposure: Exposure, policy: SoakPolicy) -> EarlyChance:
    """For a node whose parts have had no fault for `clear` each, with what `exposure` and the prior say of the rate."""
    shape, ahead = policy.shape, _hours(policy.horizon) / policy.acceleration
    known = policy.prior.plus(exposure)
    load = sum((_hours(one) + ahead) ** shape - _hours(one) ** shape for one in clear)
    if known.scaled <= 0:
        return EarlyChance(1.0, 1.0)
    most = float(gammaincinv(1 + known.faults, policy.confidence)) / known.scaled
    return EarlyChance(1 - exp(-most * load), 1 - (known.scaled / (known.scaled + load)) ** (1 + known.faults))


def judge_soak(state: SoakState, policy: SoakPolicy, alike: Iterable[PartClock] = ()) -> SoakVerdict:
    """Whether the soak of a node is long enough.

    `alike` are the clocks of other nodes' parts of the same kind whose rate is taken to be the same; what the policy's
    prior counts already must not be among them.
    """
    others = (*alike, *state.gone)
    exposure = exposure_of((*state.clocks, *others), policy.shape)
    early = early_chance([clock.clear for clock in state.clocks], exposure, policy)
    needed = _needed(state, exposure_of(others, policy.shape), policy)
    return SoakVerdict(
        end=_end(state, policy, needed),
        clear=_least_clear(state.clocks),
        faults=sum(len(clock.spells) for clock in state.clocks),
        early=early,
        needed=needed,
        exposure=exposure,
        policy=policy,
    )


def _end(state: SoakState, policy: SoakPolicy, needed: timedelta | None) -> SoakEnd:
    if any(len(clock.spells) > policy.most_faults for clock in state.clocks):
        return SoakEnd.FAULTY
    if not state.level.cycle:
        return SoakEnd.GO_ON if state.next is not None else SoakEnd.DONE
    if not state.opened:
        return SoakEnd.GO_ON
    if needed == _ZERO:
        return SoakEnd.ENOUGH
    return SoakEnd.LIMIT if _least_clear(state.clocks) >= state.level.most else SoakEnd.GO_ON


def _needed(state: SoakState, others: Exposure, policy: SoakPolicy) -> timedelta | None:
    """How much longer all parts must go without a fault; 0 where it is enough. Only the node's own time is added."""

    def enough(hours: float) -> bool:
        later = [replace(one, clear=one.clear + hours * _HOUR) for one in state.clocks]
        if _least_clear(later) < policy.least:
            return False
        exposure = exposure_of(later, policy.shape).plus(others)
        return early_chance([one.clear for one in later], exposure, policy).most <= policy.chance

    if enough(0.0):
        return _ZERO
    least, most = 0.0, _hours(max(state.level.most - _least_clear(state.clocks), _ZERO))
    if not enough(most):
        return None
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return timedelta(seconds=int(most * 3600) + 1)


def hazard_per_day(clear: timedelta, exposure: Exposure, policy: SoakPolicy) -> float:
    """Faults of one part a day at this moment, by the mean of the rate; infinite at the very beginning if k < 1."""
    hours, known = _hours(clear), policy.prior.plus(exposure)
    if known.scaled <= 0 or (hours <= 0 and policy.shape < 1):
        return inf
    falls = hours ** (policy.shape - 1) if policy.shape < 1 else 1.0
    return 24 * (1 + known.faults) / known.scaled * policy.shape * falls


def _least_clear(clocks: Sequence[PartClock]) -> timedelta:
    return min((clock.clear for clock in clocks), default=_ZERO)


def _hours(span: timedelta) -> float:
    return span / _HOUR
