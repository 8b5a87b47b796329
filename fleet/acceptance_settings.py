"""The fleet file's `acceptance`: an operator's own limits, and how closely parts are compared with their like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from fleet.acceptance_limits import Limit, LimitKind, load_limits, read_model
from fleet.acceptance_rules import RULES, AcceptanceRule, rule_named
from fleet.acceptance_units import same_kind
from fleet.catalog_data import OPERATOR, Origin
from fleet.errors import ConfigurationError
from fleet.setting_types import Strict

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Unit = Annotated[str, StringConstraints(min_length=1, max_length=24)]
Measured = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


class OwnLimit(Strict):
    """A pass limit of the operator's: a part on its wrong side fails."""

    measure: Measured
    model: str = Field("any", description="H100 SXM 80GB, H100 SXM, H100 or any")
    op: Literal[">=", "<=", "<", ">"] = ">="
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Unit
    requires: dict[str, str] = Field({}, description="facts of the measurement: gpus, nodes, link_gbit, platform …")

    @field_validator("model")
    @classmethod
    def _a_model(cls, model: str) -> str:
        read_model(model)
        return model

    def limit(self) -> Limit:
        """As the judge takes it."""
        chip, form, memory = read_model(self.model)
        origin = Origin("fleet file", None, OPERATOR)
        kind, asked = LimitKind.OPERATOR_LIMIT, dict(self.requires)
        return Limit(self.measure, self.op, self.value, self.unit, kind, origin, chip, form, memory, requires=asked)


class TestSettings(Strict):
    """One test's own. Shares of the cohort's median; of temperatures, degrees."""

    __test__ = False  # no test of ours, whatever its name

    margin: Positive | None = Field(None, description="a shortfall that is accepted however sure it is")
    loss: Positive | None = Field(None, description="a shortfall that must be found, or the comparison judges nothing")
    noise: Positive | None = Field(None, description="the most that healthy parts are assumed to scatter")
    runs: int | None = Field(None, ge=1, le=50, description="repetitions")


class AcceptanceSettings(Strict):
    alpha: float = Field(0.01, gt=0, lt=1, description="how often a healthy cohort may have an outlier, in one test")
    cohort_needed: bool = Field(
        False, description="a part without enough of its like to compare with cannot pass by its limits alone"
    )
    limits: tuple[OwnLimit, ...] = Field((), description="replace the catalogue's for the same measure and model")
    tests: dict[str, TestSettings] = Field({}, description="by the test's id")
    setup: dict[str, str] = Field({}, description="facts that limits may require and no tool tells: platform …")
    inlet_celsius: float = Field(35.0, gt=0, le=60, description="air warmer than this spoils every test of heat")

    @field_validator("tests")
    @classmethod
    def _known_tests(cls, tests: dict[str, TestSettings]) -> dict[str, TestSettings]:
        for id in tests:
            try:
                rule_named(id)
            except ConfigurationError as error:
                raise ValueError(error.message) from error
        return tests

    def rules(self) -> tuple[AcceptanceRule, ...]:
        """The known tests' rules with this fleet's figures. Raises ConfigurationError for a loss below its margin."""
        return tuple(self._rule(rule) for rule in RULES)

    def all_limits(self) -> tuple[Limit, ...]:
        """The operator's own, and those of the catalogue that none of them replaces."""
        own = tuple(limit.limit() for limit in self.limits)
        return (*own, *(limit for limit in load_limits() if not any(_replaces(mine, limit) for mine in own)))

    def _rule(self, rule: AcceptanceRule) -> AcceptanceRule:
        own = self.tests.get(rule.id, TestSettings())
        runs = rule.runs if own.runs is None else own.runs
        if rule.cohort is None:
            return replace(rule, runs=runs)
        given: Mapping[str, float | None] = {"margin": own.margin, "loss": own.loss, "noise": own.noise}
        figures = {name: value for name, value in given.items() if value is not None}
        cohort = replace(rule.cohort, alpha=self.alpha)
        cohort = replace(
            cohort,
            margin=figures.get("margin", cohort.margin),
            loss=figures.get("loss", cohort.loss),
            noise=figures.get("noise", cohort.noise),
        )
        if not cohort.margin < cohort.loss or (not cohort.additive and cohort.loss >= 1):
            raise ConfigurationError(f"acceptance.tests.{rule.id}: the loss to be found lies above the accepted margin")
        return replace(rule, runs=runs, cohort=cohort)


def _replaces(own: Limit, limit: Limit) -> bool:
    """Whether the operator says it for the same measure of the same or all models, in the same setup."""
    wider = own.chip is None or (
        own.chip == limit.chip and own.form in (None, limit.form) and own.memory_gb in (None, limit.memory_gb)
    )
    alike = all(limit.requires.get(name) in (None, wanted) for name, wanted in own.requires.items())
    return own.measure == limit.measure and limit.kind.may_fail and wider and alike and same_kind(own.unit, limit.unit)
