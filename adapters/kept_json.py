"""Small private files, replaced in one step, and the JSON objects that a run leaves in them for the next one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def read_kept(path: Path) -> dict[str, object] | None:
    """What was kept; None where nothing was, or it cannot be read: it is then learnt anew."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def keep(path: Path, value: Mapping[str, object]) -> None:
    """Replace the file, made with its folder where there is none. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, json.dumps(value) + "\n")


def write_private(path: Path, text: str) -> None:
    """Replace `path` in one step by a file that only its owner can read. Raises OSError; the old one is then whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
