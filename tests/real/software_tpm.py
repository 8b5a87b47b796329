"""A real TPM in software for tests: swtpm on loopback, its own folder and ports, ended by its process."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from adapters.tpm_host import TOOLS


def missing_parts() -> str | None:
    """Why no TPM can be had here; None where one can."""
    wanted = ("swtpm", *TOOLS, "tpm2_pcrextend", "tpm2_nvdefine", "tpm2_nvwrite", "tpm2_clear")
    missing = [name for name in wanted if shutil.which(name) is None]
    return f"no {', '.join(missing)} (Debian: swtpm tpm2-tools libtss2-tcti-swtpm0)" if missing else None


class SoftwareTpm:
    """swtpm on loopback, with its state in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def tcti(self) -> str:
        return f"swtpm:host=127.0.0.1,port={self.port}"

    def start(self) -> None:
        """Power on; without an orderly shutdown before, this is a reset."""
        self.port = _two_free_ports()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self._folder}"),
                    *("--server", f"type=tcp,port={self.port},bindaddr=127.0.0.1"),
                    *("--ctrl", f"type=tcp,port={self.port + 1},bindaddr=127.0.0.1"),
                    *("--flags", "not-need-init,startup-clear"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port + 1), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < end, (self._folder / "log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def run(self, tool: str, *arguments: str) -> str:
        """One of tpm2-tools, which must succeed."""
        command = [tool, "-T", self.tcti, *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def extend(self, index: int, letter: str) -> None:
        self.run("tpm2_pcrextend", f"{index}:sha256={letter * 64}")


def _two_free_ports() -> int:
    """A free port whose successor is free: tpm2-tools look for the control channel there."""
    for _ in range(200):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports in a row")
