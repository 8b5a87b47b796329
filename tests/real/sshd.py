"""A real sshd for tests, on loopback, with keys of its own; it logs in the user who runs the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

_SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def missing_parts() -> str | None:
    """Why no sshd can be started here; None where it can."""
    if _SSHD is None or shutil.which("ssh-keygen") is None:
        return "sshd or ssh-keygen is not installed (Debian: openssh-server)"
    return None


class RealSshd:
    """sshd on 127.0.0.1 and a free port; `port`, `user`, `key` and `known_hosts` say how to log in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = getpass.getuser()
        self.key = folder / "id"
        self.known_hosts = folder / "known_hosts"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.new_host_key()
        _make_key(self.key)
        shutil.copy(self.key.with_suffix(".pub"), self.folder / "authorized_keys")
        self.pin()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def new_host_key(self) -> None:
        """Another host key from the next start on."""
        for path in self.folder.glob("host*"):
            path.unlink()
        _make_key(self.folder / "host")

    def pin(self) -> None:
        kind, blob, *_ = (self.folder / "host.pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {blob}\n")

    def start(self) -> None:
        assert _SSHD is not None
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        (self.folder / "sshd_config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 200\n"
        )
        log = (self.folder / "sshd.log").open("ab")
        with log:
            self._daemon = subprocess.Popen(
                [_SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")], stdout=log, stderr=log
            )
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < end, (self.folder / "sshd.log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        """End the listener; sessions that are open live on."""
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait(timeout=10)
            self._daemon = None

    def cut_sessions(self) -> None:
        """Kill the processes that serve the open sessions."""
        assert self._daemon is not None
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._daemon.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        for child in children:
            os.kill(int(child), 9)


def _make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
