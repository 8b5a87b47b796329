"""The fleet file's `soak`: how long new hardware runs without a fault before it is trusted."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from pydantic import Field, model_validator

from fleet.setting_types import Seconds, Strict
from fleet.soak_hazard import Exposure, SoakPolicy


class EarlierBurnIns(Strict):
    """Nodes of the same model that went through a burn-in before."""

    nodes: int = Field(ge=1, le=1_000_000, description="that were soaked")
    hours: float = Field(gt=0, le=100_000, description="each of them, on average, under load")
    faults: int = Field(ge=0, description="of all of them together, in that time")


class SoakSettings(Strict):
    chance: float = Field(0.05, gt=0, lt=1, description="of a fault of a node within horizon_days that is accepted")
    confidence: float = Field(0.95, gt=0.5, lt=1)
    horizon_days: float = Field(30.0, gt=0, le=3650)
    shape: float = Field(0.7, gt=0, le=1, description="of the Weibull hazard; 1 is a constant hazard")
    acceleration: float = Field(1.0, ge=1, le=1000, description="hours of service that an hour of soak counts as")
    least_hours: float = Field(24.0, ge=0, le=10_000, description="no soak ends by rule before")
    most_faults: int = Field(1, ge=0, description="of one part; with more it is not soaked further")
    tries: int = Field(3, ge=1, le=100, description="of a test that is inconclusive, before it is passed over")
    ramp_share: float = Field(0.25, gt=0, le=1, description="of a rack's load that may come at once")
    cool_down_seconds: Seconds = Field(300.0, description="before a bandwidth test that follows a heat test")
    earlier: EarlierBurnIns | None = Field(None, description="none: nothing is known before")

    @model_validator(mode="after")
    def _plausible(self) -> Self:
        if self.earlier is not None and self.earlier.faults > self.earlier.nodes * 10:
            raise ValueError("earlier.faults: more than ten faults for each node that was soaked")
        return self

    def policy(self) -> SoakPolicy:
        """The settings as the rule takes them."""
        known, earlier = Exposure(), self.earlier
        if earlier is not None:
            hours, scaled = earlier.nodes * earlier.hours, earlier.nodes * earlier.hours**self.shape
            known = Exposure(earlier.faults, earlier.nodes, hours, scaled)
        return SoakPolicy(
            chance=self.chance,
            confidence=self.confidence,
            horizon=timedelta(days=self.horizon_days),
            shape=self.shape,
            prior=known,
            acceleration=self.acceleration,
            least=timedelta(hours=self.least_hours),
            most_faults=self.most_faults,
        )
