"""A small JSON object that a run leaves for the next one, replaced in one step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def read_kept(path: Path) -> dict[str, object] | None:
    """What was kept; None where nothing was, or it cannot be read: it is then learnt anew."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def keep(path: Path, value: Mapping[str, object]) -> None:
    """Replace the file. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file)
    temporary.replace(path)
