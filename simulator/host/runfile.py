"""NVIDIA's own installer on a simulated host: the file that lies there, what it installs, and its uninstaller."""

from __future__ import annotations

import hashlib
import re

from simulator.host.driver import Driver
from simulator.host.jobs import Phase, Program, one_phase
from simulator.host.releases import RELEASES
from simulator.host.state import RUNFILE, HostState
from simulator.slurm.reply import Reply, failure

INSTALL_SECONDS, BUILD_SECONDS, UNINSTALL_SECONDS = 30.0, 60.0, 25.0
_NAME = re.compile(r"(?:.*/)?NVIDIA-Linux-x86_64-(\d{3}(?:\.\d+){1,2})\.run")


class Runfile:
    """The installers of every release lie below any folder that is asked for."""

    def __init__(self, host: HostState, driver: Driver) -> None:
        self._host = host
        self._driver = driver
        self._former = ""
        self._writing = False

    def run(self, words: list[str]) -> Program | Reply | None:
        """None for another command."""
        match words:
            case ["sha256sum", path]:
                return self._digest(path)
            case ["sh", path, *_] if path.endswith(".run"):
                return self._install(path)
            case ["nvidia-uninstall", *_]:
                return self._uninstall()
            case _:
                return None

    def _release(self, path: str) -> str | None:
        found = _NAME.fullmatch(path)
        return found[1] if found is not None and found[1] in RELEASES else None

    def _digest(self, path: str) -> Reply:
        release = self._release(path)
        if release is None:
            return failure(f"sha256sum: {path}: No such file or directory\n")
        return Reply(0, f"{runfile_digest(release)}  {path}\n")

    def _install(self, path: str) -> Program | Reply:
        host, release = self._host, self._release(path)
        if release is None:
            return failure(f"sh: 0: cannot open {path}: No such file\n", 2)
        if host.manager != RUNFILE:
            text = (
                "ERROR: An alternate method of installing the NVIDIA driver was detected. (This is usually a package)"
            )
            return failure(f"{text}\n")
        if host.loaded is not None:
            text = "ERROR: An NVIDIA kernel module 'nvidia' appears to already be loaded in your kernel."
            return failure(
                f"{text}\nERROR: Installation has failed. Please see the file '/var/log/nvidia-installer.log'\n"
            )
        self._former, self._writing = host.user_space or "", False
        phases = (
            Phase(INSTALL_SECONDS, lambda: self._write(release)),
            Phase(BUILD_SECONDS, lambda: self._build(release)),
        )
        return Program(phases, self._lost)

    def _write(self, release: str) -> Reply:
        self._writing = True
        self._driver.drop_built()
        self._host.runfile_release = release
        self._host.tell_parts()
        line = f"Uncompressing NVIDIA Accelerated Graphics Driver for Linux-x86_64 {release}"
        return Reply(0, f"Verifying archive integrity... OK\n{line}\n")

    def _build(self, release: str) -> Reply:
        host = self._host
        built, printed = self._driver.build(release, open_module=False)
        host.truth("driver_install", version=release, **{"from": self._former}, ok=built)
        self._writing = False
        if not built:
            host.runfile_release = None
            host.tell_parts()
            text = "ERROR: Failed to install the kernel module through DKMS. No kernel module was installed.\n"
            return failure(printed + text)
        host.tell_parts()
        return Reply(0, printed)

    def _lost(self) -> None:
        if self._writing:
            release = self._host.runfile_release or ""
            self._host.truth("driver_install", version=release, **{"from": self._former}, ok=False)

    def _uninstall(self) -> Program | Reply:
        if self._host.runfile_release is None:
            return failure("bash: line 1: nvidia-uninstall: command not found\n", 127)
        return one_phase(UNINSTALL_SECONDS, self._removed)

    def _removed(self) -> Reply:
        self._driver.drop_built()
        self._host.runfile_release = None
        self._host.tell_parts()
        return Reply(0)


def runfile_digest(release: str) -> str:
    """SHA-256 of the installer of a release."""
    return hashlib.sha256(f"NVIDIA-Linux-x86_64-{release}.run".encode()).hexdigest()
