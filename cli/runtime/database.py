"""Prefect's database, ready made.

Its two hundred migrations take 10 s or more on SQLite. They give the same empty database each time, so
set-up runs them once and `up` copies the result. Without the copy the server migrates by itself.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path


def template_path() -> Path:
    """Where the empty database of the installed Prefect version is kept, inside the virtual environment."""
    return Path(sys.prefix) / "var" / "gpufleet" / f"prefect-{version('prefect')}.db"


def copy_template(database: Path) -> bool:
    """Put the ready database in place where there is none. True if it was copied."""
    template = template_path()
    if database.exists() or not template.is_file():
        return False
    temporary = database.with_suffix(".new")
    shutil.copyfile(template, temporary)
    temporary.chmod(0o600)
    temporary.replace(database)
    return True


def build_template() -> None:
    """Run Prefect's own migrations on an empty database and keep it. Nothing happens where it is there."""
    target = template_path()
    if target.is_file():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        database = Path(folder) / "prefect.db"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
        environment |= {
            "PREFECT_HOME": folder,
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        }
        command = (sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y")
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        _fold_journal(database)
        database.replace(target)


def _fold_journal(database: Path) -> None:
    """Move what is still in SQLite's write-ahead log into the file itself, so that one file is all."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()


if __name__ == "__main__":
    build_template()
