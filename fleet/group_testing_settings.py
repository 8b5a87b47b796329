"""The fleet file's `group_testing`: how noisy its collectives are, and how sure a search must be."""

from __future__ import annotations

from pydantic import Field

from fleet.group_testing_values import Policy
from fleet.setting_types import Strict


class GroupTestingSettings(Strict):
    false_slow: float = Field(0.02, gt=0, lt=0.5, description="chance that a run is slow with nothing faulty in it")
    false_fast: float = Field(0.05, gt=0, lt=0.5, description="chance that a run is fast with a fault in it")
    expected_faults: float = Field(3.0, gt=0, le=1000, description="a guess; a wrong one costs runs, not rightness")
    sure: float = Field(0.999, gt=0.5, lt=1, description="the chance from which on a cause counts as found")
    direct_runs: int = Field(
        2, ge=1, le=20, description="slow runs with known-good partners that accusing a node takes"
    )
    missed: float = Field(0.02, gt=0, lt=1, description="expected number of faulty nodes that may stay unfound")
    most_repeats: int = Field(8, ge=2, le=50, description="runs spent on one suspect; then it stays undecided")
    most_rounds: int = Field(80, ge=1, le=10_000)
    most_runs: int = Field(600, ge=1, le=100_000)
    within: bool = Field(True, description="tell NVLink from fabric by runs within the nodes that were found")

    def policy(self) -> Policy:
        """The settings as the search takes them."""
        return Policy(
            false_slow=self.false_slow,
            false_fast=self.false_fast,
            expected_faults=self.expected_faults,
            sure=self.sure,
            direct_runs=self.direct_runs,
            missed=self.missed,
            most_repeats=self.most_repeats,
            most_rounds=self.most_rounds,
            most_runs=self.most_runs,
            within=self.within,
        )
