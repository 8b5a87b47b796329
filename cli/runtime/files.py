"""Where a fleet's runtime keeps its things: `<folder of the fleet file>/run/`."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from adapters.kept_json import write_private
from fleet.errors import ConfigurationError

DEFAULT_FLEET_FILE = Path("fleet.yaml")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one fleet's runtime. `fleet_file` is absolute."""

    fleet_file: Path

    @property
    def path(self) -> Path:
        return self.fleet_file.parent / "run"

    @property
    def prefect_home(self) -> Path:
        return self.path / "prefect"

    @property
    def database(self) -> Path:
        return self.prefect_home / "prefect.db"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def auth_file(self) -> Path:
        return self.path / "auth"

    def record(self, component: str) -> Path:
        """The file that says which process `component` (server, worker) is."""
        return self.path / f"{component}.json"

    def create(self) -> None:
        """Make the folders, for their owner only, and the auth string."""
        for folder in (self.path, self.prefect_home, self.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.auth_file.exists():
            write_private(self.auth_file, f"gpufleet:{secrets.token_urlsafe(24)}\n")

    def auth(self) -> str:
        """The `user:password` of the Prefect API. Raises ConfigurationError where `up` never ran here."""
        try:
            return self.auth_file.read_text().strip()
        except FileNotFoundError as error:
            raise ConfigurationError(f"{self.auth_file} is not there: start the runtime with `gpufleet up`") from error
        except PermissionError as error:
            raise ConfigurationError(
                f"{self.auth_file} is not readable by this user: run the command as its owner"
            ) from error


def find_fleet_file(given: Path | None) -> Path:
    """The fleet file to use: as given, else $GPUFLEET_FLEET, else ./fleet.yaml.

    Raises ConfigurationError where there is no such file.
    """
    named = given or Path(os.environ.get("GPUFLEET_FLEET") or DEFAULT_FLEET_FILE)
    path = named.expanduser().absolute()
    if path.exists() and not path.is_file():
        raise ConfigurationError(f"the fleet file {path} is no regular file: give --fleet FILE")
    if not path.is_file():
        raise ConfigurationError(
            f"no fleet file at {path}: give --fleet FILE, set GPUFLEET_FLEET, or make one with `gpufleet simulate`"
        )
    return path
