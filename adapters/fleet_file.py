"""The fleet file on disk."""

from __future__ import annotations

from pathlib import Path

from fleet.config import FleetSpec, parse_fleet
from fleet.errors import ConfigurationError


def read_fleet_file(path: Path) -> FleetSpec:
    """Read and check a fleet file. Raises ConfigurationError that lists every fault of it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"cannot read the fleet file {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise ConfigurationError(f"the fleet file {path} is not UTF-8 text: {error}") from error
    return parse_fleet(text, str(path))
