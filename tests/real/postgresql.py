"""A real PostgreSQL for tests: its own data folder, a free loopback port, no password, no fsync."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg

_ROLE = "gpufleet"


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl: on the PATH, or where Debian keeps them; None where not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    kept = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return kept[-1].parent if kept else None


class Server:
    """One server. initdb refuses root, so root starts it as `postgres` or `nobody`."""

    def __init__(self, folder_of_binaries: Path) -> None:
        self._binaries = folder_of_binaries
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self._numbers = itertools.count()
        self.folder = Path(tempfile.mkdtemp(prefix="gpufleet-pg-"))
        self.port = 0

    def __enter__(self) -> Self:
        if self._user is not None:
            os.chown(self.folder, pwd.getpwnam(self._user).pw_uid, -1)
        try:
            self._run("initdb", "-D", f"{self.folder}/data", "-U", _ROLE, "-A", "trust", "--no-sync", "-E", "UTF8")
            self.start()
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def start(self) -> None:
        """Start on a free port; the same one after a stop."""
        self.port = self.port or _free_port()
        options = f"-h 127.0.0.1 -p {self.port} -k {self.folder} -F"
        log = f"{self.folder}/log"
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-l", log, "-w", "-t", "60", "-o", options, "start")

    def stop(self) -> None:
        """Stop at once, cutting every connection."""
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "-w", "stop")

    def url(self, database: str) -> str:
        return f"postgresql://{_ROLE}@127.0.0.1:{self.port}/{database}"

    def create(self, template: str = "template1") -> str:
        """A fresh database, a copy of `template`."""
        name = f"ledger{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(
            command,
            user=self._user,
            cwd=self.folder,
            env={"LC_ALL": "C.UTF-8", "PATH": os.environ.get("PATH", "")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {(done.stderr or b'').decode()}")


def _unprivileged() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
