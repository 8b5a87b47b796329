"""The baseline file on disk."""

from __future__ import annotations

from pathlib import Path

from adapters.operator_files import read_operator_text
from fleet.baseline import BaselineSpec, parse_baseline
from fleet.config import FleetSpec

BASELINE = "baseline.yaml"
"""Its name, beside the fleet file."""


def read_baseline_file(path: Path, spec: FleetSpec) -> BaselineSpec:
    """Read and check the baseline of a fleet. Raises ConfigurationError that lists every fault of it."""
    return parse_baseline(read_operator_text(path, "the baseline"), str(path), spec)
