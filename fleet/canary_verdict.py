"""What a driver canary found: the verdict on the change and on each measure, as values that go to JSON and back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import TypeAdapter

from fleet.measures import MeasureKind, Phase


class Outcome(StrEnum):
    PASS = "pass"  # noqa: S105 - an outcome
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Why(StrEnum):
    """The reason of an outcome, in one word of the field."""

    OK = "ok"
    SLOWER = "slower"
    SICKER = "sicker"
    SETTINGS_LOST = "settings lost"
    THROTTLED = "throttled"
    HEAT = "heat"
    UNEVEN = "uneven"  # some of the canary's nodes differ from the others
    DATA_MISSING = "data missing"
    TOO_FEW_NODES = "too few nodes"
    TOO_FEW_HOURS = "too few hours"


class CauseKind(StrEnum):
    """Whose doing a loss is, as far as it is known."""

    NONE = "none"
    UNKNOWN = "unknown"
    DRIVER = "driver"
    SETTING = "setting"
    THROTTLING = "throttling"
    HEAT = "heat"
    RACK = "rack"
    MODEL = "model"
    FIRMWARE = "firmware"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Cause:
    """`names`: the settings, throttle reasons, racks or nodes that are meant; `nodes`: where. `text`: a sentence."""

    kind: CauseKind = CauseKind.NONE
    names: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Gap:
    """What a node did not give. `measure` "" stands for all of them, `phase` None for both."""

    node: str
    measure: str
    phase: Phase | None
    reason: str


@dataclass(frozen=True, slots=True)
class MeasuredNoise:
    """Of the BEFORE samples, as shares (standard deviations of the logarithm); None where nothing tells it.

    `run_to_run` is of one node's repetitions (its GPUs averaged), `node_to_node` of the nodes' levels, `change` of a
    node's after/before ratio as the verdict saw it. `unlike` names nodes whose repetitions scatter unlike the others'.
    """

    run_to_run: float | None
    node_to_node: float | None
    change: float | None = None
    unlike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureVerdict:
    """One measure's verdict. All shares: -0.05 is a loss of 5 %, whichever direction is better for the measure.

    A COUNT's share is one minus the ratio of rates: -1.0 is twice as many events. `low` is the bound above which the
    effect lies with confidence `confidence_low` (it decides PASS), `high` the one below which it lies with
    `confidence_high` (it decides FAIL); None: not bounded, or not known. FAIL: high < -margin. PASS: low > -margin.

    `smallest_detectable` is the loss, positive, that this very test would have failed with the design's power.
    `more_nodes` are nodes per cohort, `more_hours` hours of the same nodes, beyond those had, that would decide if
    the effect stays as it looks; None: not needed, or no reasonable number would.
    """

    name: str
    unit: str
    kind: MeasureKind
    outcome: Outcome
    why: Why
    text: str
    effect: float | None
    low: float | None
    high: float | None
    margin: float
    smallest_detectable: float | None
    n_canary: int
    n_control: int
    confidence_low: float
    confidence_high: float
    cause: Cause = Cause()
    noise: MeasuredNoise = MeasuredNoise(None, None)
    more_nodes: int | None = None
    more_hours: float | None = None
    missing: tuple[Gap, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def decision(self) -> Outcome:
        """The outcome, in the word that reports use."""
        return self.outcome


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """The verdict on the change. `look` counts from 1; `alpha` is the false-alarm rate of the whole canary.

    `information` is the share of the planned data that this look had. `missing` are gaps that concern all measures;
    each measure names its own besides.
    """

    outcome: Outcome
    why: Why
    text: str
    cause: Cause
    measures: tuple[MeasureVerdict, ...]
    look: int
    looks: int
    information: float
    alpha: float
    canary: tuple[str, ...]
    control: tuple[str, ...]
    missing: tuple[Gap, ...] = ()
    more_nodes: int | None = None
    more_hours: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def decision(self) -> Outcome:
        return self.outcome

    def to_json(self) -> str:
        """The whole tree; numbers are finite or null."""
        return _CANARY.dump_json(self).decode()

    @staticmethod
    def from_json(text: str | bytes) -> CanaryVerdict:
        """The inverse of `to_json`. Raises pydantic.ValidationError (a ValueError) for any other text."""
        return _CANARY.validate_json(text)


@dataclass(frozen=True, slots=True)
class MeasureReturn:
    """`remaining`: the effect after the way back against before the change; `regained`: against the changed state."""

    name: str
    outcome: Outcome
    text: str
    remaining: float | None
    remaining_low: float | None
    remaining_high: float | None
    regained: float | None
    regained_low: float | None
    margin: float
    missing: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class ReturnVerdict:
    """Did the effect go away with the driver? PASS: it did, so it was the driver. FAIL: it stayed, so it was not."""

    outcome: Outcome
    text: str
    measures: tuple[MeasureReturn, ...]

    def to_json(self) -> str:
        return _RETURN.dump_json(self).decode()

    @staticmethod
    def from_json(text: str | bytes) -> ReturnVerdict:
        """The inverse of `to_json`. Raises pydantic.ValidationError (a ValueError) for any other text."""
        return _RETURN.validate_json(text)


_CANARY = TypeAdapter(CanaryVerdict)
_RETURN = TypeAdapter(ReturnVerdict)
