"""The baseline file on disk."""

from __future__ import annotations

from pathlib import Path

from fleet.baseline import BaselineSpec, parse_baseline
from fleet.config import FleetSpec
from fleet.errors import ConfigurationError

BASELINE = "baseline.yaml"
"""Its name, beside the fleet file."""


def read_baseline_file(path: Path, spec: FleetSpec) -> BaselineSpec:
    """Read and check the baseline of a fleet. Raises ConfigurationError that lists every fault of it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot read the baseline {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise ConfigurationError(f"the baseline {path} is not UTF-8 text: {error}") from error
    return parse_baseline(text, str(path), spec)
