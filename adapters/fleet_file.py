"""The fleet file on disk."""

from __future__ import annotations

from pathlib import Path

from adapters.operator_files import read_operator_text
from fleet.config import FleetSpec, parse_fleet


def read_fleet_file(path: Path) -> FleetSpec:
    """Read and check a fleet file. Raises ConfigurationError that lists every fault of it."""
    return parse_fleet(read_operator_text(path, "the fleet file"), str(path))
