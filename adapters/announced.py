"""What was announced as arrived, kept in a file of one JSON payload a line, so that nothing arrives twice."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from fleet.arrival import Arrival, payload_of, read_payload
from fleet.errors import ConfigurationError


def read_announced(path: Path) -> tuple[Arrival, ...]:
    """Everything announced before; empty where the file is not there.

    A last line that a crash cut short is passed over: its event is then sent again rather than lost. Raises
    ConfigurationError with the line for anything else that cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"cannot read what was announced, {path}: {error}") from error
    found: list[Arrival] = []
    for number, line in enumerate(lines, start=1):
        if number == len(lines) or not line.strip():
            continue
        try:
            payload = json.loads(line)
            found.append(read_payload(payload if isinstance(payload, dict) else {}))
        except (ValueError, RecursionError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}:{number}: {error}; mend or remove this line") from error
    return tuple(found)


def add_announced(path: Path, arrivals: Sequence[Arrival]) -> None:
    """Append, and be sure that it is on disk. What a crash left half written at the end is cut off first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        file.seek(whole)
        file.write("".join(json.dumps(payload_of(arrival)) + "\n" for arrival in arrivals).encode())
        file.flush()
        os.fsync(file.fileno())
