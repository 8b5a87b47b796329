"""A hand-written GPU host for driver changes, which answers commands, and a site around it; time only jumps.

It may die for us at any command (`dies_at`, before or after the command had its effect), as a controller that is
killed sees it. Its own jobs go on meanwhile.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

from unit.driver_state_fake import JOB_SECONDS, KERNEL, NEW, OLD, REVISION, SERVICES, FakeJob, HostState, target
from unit.site_fakes import SPEC, Answer, Site, SiteClock

from fleet.driver_readback import DriverOutcome
from fleet.driver_target import DriverTarget
from fleet.errors import NodeUnreachable
from fleet.model import Node
from ledger import Ledger
from tasks.driver import OBSERVED, DriverSteps, change_driver, restore_driver

__all__ = [
    "KERNEL",
    "NEW",
    "OLD",
    "SERVICES",
    "DriverSite",
    "FakeGpuHost",
    "change",
    "check_whole",
    "restore",
    "target",
]

_HOLDING = {"dcgm-exporter": 4121, "nvidia-dcgm": 4100, "nvidia-persistenced": 5180}


class FakeGpuHost(HostState):
    """The commands of a driver change."""

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
        self.commands.append(arguments)
        self.written.append(self.journal())
        here = len(self.commands)
        if here == self.dies_at and not self.dies_after:
            raise KeyboardInterrupt(" ".join(arguments)[:80])
        if self.clock.monotonic() < self.away_until or here == self.unreachable_at:
            raise NodeUnreachable("connection refused")
        self._end_jobs()
        answer = self._answer(arguments)
        if here == self.dies_at:
            raise KeyboardInterrupt(" ".join(arguments)[:80])
        return answer

    def put(self, path: str, content: bytes, digest: str, timeout_seconds: float = 60.0) -> None:
        raise AssertionError("the probe is there")

    def close(self) -> None:
        """Nothing is kept open."""

    def _answer(self, arguments: tuple[str, ...]) -> Answer:
        while arguments[0] == "env" or "=" in arguments[0]:
            arguments = arguments[1:]
        match arguments:
            case ("sh", "-c", _, "gpufleet-job-start", ident, *command):
                return self._start(ident, tuple(command))
            case ("sh", "-c", _, "gpufleet-job-read", ident):
                return self._read(ident)
            case ("sh", "-c", _, "gpufleet-holders"):
                return Answer(stdout=self._holders())
            case ("sh", "-c", *rest):
                return Answer(stdout=self._probe(rest))
            case ("cat", "/proc/sys/kernel/random/boot_id"):
                return Answer(stdout=f"{self.boot_id}\n")
            case ("cat", "/sys/module/nvidia/refcnt"):
                return Answer(stdout="3\n") if self.modules else Answer(1)
            case ("modprobe", "-r", *modules):
                return self._unload(modules)
            case ("modprobe", module):
                return self._load(module)
            case ("modinfo", "-F", "version", "-k", kernel, "nvidia"):
                found = self.modules_on_disk.get(kernel)
                return Answer(stdout=f"{found}\n") if found else Answer(1, stderr="modinfo: ERROR: not found")
            case ("modinfo", "-F", "signer", *_):
                return Answer(stdout=f"{self.signer}\n")
            case ("df", "-Pk", *places):
                rows = "".join(f"/dev/sda1 99999999 1 20000000 80% {place}\n" for place in places)
                return Answer(stdout=f"Filesystem 1024-blocks Used Available Capacity Mounted on\n{rows}")
            case ("systemctl", "is-active", *units):
                states = [self.services.get(unit.removesuffix(".service"), "inactive") for unit in units]
                return Answer(3, "".join(f"{state}\n" for state in states))
            case ("systemctl", verb, *rest):
                return self._systemctl(verb, rest[-1])
            case ("nvidia-smi", *options):
                return self._nvidia_smi(options)
            case _:
                return self._packages(arguments)

    # jobs

    def _start(self, ident: str, command: tuple[str, ...]) -> Answer:
        if ident in self.jobs:
            return Answer()
        plain = tuple(word for word in command if word != "env" and "=" not in word.partition("-")[0])
        plain = command[next(n for n, word in enumerate(command) if word != "env" and "=" not in word) :]
        if plain[:2] == ("systemctl", "reboot"):
            self.jobs[ident] = FakeJob(command, self.clock.monotonic(), self._reboot)
            self._end_jobs()
            return Answer()
        end = self._update
        if plain[0] == "dpkg" or "-f" in plain:
            end = self._configure
        elif "install" in plain:
            self.installs.append(ident)
            self.running_installs += 1
            assert self.running_installs == 1, "two installs at once"
            wanted = dict(
                word.split("=", 1) for word in plain[plain.index("install") + 1 :] if not word.startswith("-")
            )
            self.broken |= set() if self.install_fault else set(wanted)

            def end() -> tuple[int, str]:
                return self._install(wanted)

        self.jobs[ident] = FakeJob(command, self.clock.monotonic() + JOB_SECONDS, end)
        return Answer()

    def _end_jobs(self) -> None:
        for job in self.jobs.values():
            if job.state == "running" and self.clock.monotonic() >= job.ends_at:
                job.state = "ended"
                job.code, job.tail = job.end()

    def kill_jobs(self) -> None:
        """What a reboot or a kill of the job does to those that run."""
        for job in self.jobs.values():
            if job.state == "running":
                job.state = "lost"
                self.running_installs = 0

    def _read(self, ident: str) -> Answer:
        job = self.jobs.get(ident)
        told = {"state": job.state, "code": job.code, "tail": job.tail} if job else {"state": "absent", "code": None}
        return Answer(stdout="Welcome!\n" + json.dumps(told) + "\n")

    def _reboot(self) -> tuple[int, str]:
        self.kill_jobs()
        self.boots += 1
        self.away_until = self.clock.monotonic() + (1e9 if self.stays_away else 200.0)
        self.masked.clear()
        for gpu in self.gpus:
            gpu.ecc = gpu.ecc_pending
            gpu.forget()
        self.services |= dict.fromkeys(SERVICES, "active")
        self.modules, self.loaded = ["nvidia", "nvidia_uvm"], self.modules_on_disk.get(KERNEL)
        if self.load_fault:
            self.modules, self.loaded = [], None
        return 0, ""

    def _holders(self) -> str:
        if not self.modules:
            return ""
        known = [f"{pid}\t{unit[:15]}\troot\t{unit}.service\t/dev/nvidia0" for unit, pid in _HOLDING.items()]
        active = [line for line in known if self.services[line.split("\t")[3].removesuffix(".service")] == "active"]
        return "".join(f"{line}\n" for line in [*active, *self.strangers])

    def _unload(self, modules: list[str]) -> Answer:
        if self._holders():
            if "nvidia_uvm" in self.modules:
                self.modules.remove("nvidia_uvm")
            return Answer(1, stderr="modprobe: FATAL: Module nvidia is in use.\n")
        self.modules = [module for module in self.modules if module not in modules]
        self.loaded = None if "nvidia" not in self.modules else self.loaded
        return Answer()

    def _load(self, module: str) -> Answer:
        if self.load_fault and self.modules_on_disk.get(KERNEL) == NEW:
            return Answer(1, stderr=self.load_fault)
        if self.modules_on_disk.get(KERNEL) is None:
            return Answer(1, stderr="modprobe: FATAL: Module nvidia not found in directory /lib/modules/x")
        if not self.modules:
            self.loaded = self.modules_on_disk[KERNEL]
            for gpu in self.gpus:
                gpu.forget()
        if module not in self.modules:
            self.modules.append(module)
        return Answer()

    def _systemctl(self, verb: str, unit: str) -> Answer:
        name = unit.removesuffix(".service")
        if verb == "mask":
            self.masked.add(unit)
        elif verb == "unmask":
            self.masked.discard(unit)
        elif name not in self.services:
            return Answer(5, stderr=f"Unit {unit} not loaded.")
        elif verb == "start" and not self.modules:
            return Answer(1, stderr="Job failed")
        else:
            self.services[name] = "active" if verb == "start" else "inactive"
        return Answer()

    def _nvidia_smi(self, options: list[str]) -> Answer:
        if not self.modules:
            return Answer(9, stderr="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
        gpu = self.gpus[int(options[options.index("-i") + 1])]
        given = dict(itertools.pairwise(options))
        if "-pm" in given:
            gpu.persistence = given["-pm"] == "1"
        if "-e" in given:
            gpu.ecc_pending = given["-e"] == "1"
        if "-c" in given:
            gpu.compute_mode = {"0": "Default", "3": "Exclusive_Process"}[given["-c"]]
        if "-pl" in given:
            gpu.power_limit = float(given["-pl"])
        if "-mig" in given:
            gpu.mig_mode = given["-mig"] == "1"
        if "-cgi" in given:
            gpu.mig += given["-cgi"].split(",")
            assert len(gpu.mig) <= 7, "more MIG devices than the GPU holds"
        return Answer()


@cache
def _empty_ledger() -> Path:
    """A ledger's tables take longer to make than a driver to change."""
    file = Path(tempfile.mkdtemp()) / "ledger.db"
    Ledger.open(f"sqlite:///{file}", SiteClock(), "tester").close()
    return file


class DriverSite(Site):
    """A site whose host can change its driver."""

    def __init__(self, folder: Path, text: str = SPEC) -> None:
        folder.mkdir(exist_ok=True)
        shutil.copy(_empty_ledger(), folder / "ledger.db")
        super().__init__(folder, text)
        self.gpu_host = FakeGpuHost(self.clock)
        self.fake_scheduler.cordoned = True

    def watch_journal(self) -> None:
        """Note with each command how much the journal says."""

        def words() -> int:
            entries = self._ledger.journal.entries(self.operation, "gpu-0001")
            return sum(1 + (entry.outcome is not None) for entry in entries)

        self.gpu_host.journal = words

    def host(self, node: Node) -> FakeGpuHost:  # type: ignore[override]
        return self.gpu_host

    def file_host(self, node: Node) -> FakeGpuHost:
        return self.gpu_host


PLAIN = DriverSteps(*(step.fn for step in OBSERVED))  # type: ignore[attr-defined]


def change(site: DriverSite, wanted: DriverTarget | None = None) -> DriverOutcome:
    return change_driver(site.new_visit(), wanted or target(), PLAIN)


def restore(site: DriverSite) -> DriverOutcome:
    return restore_driver(site.new_visit(), PLAIN)


def check_whole(host: FakeGpuHost, version: str) -> None:
    """One driver in all parts, settings and services as they were at first."""
    assert (host.loaded, host.user_space, host.fabric_manager, host.modules_on_disk[KERNEL]) == (version,) * 4
    assert not host.broken
    assert not [n for n, v in host.packages.items() if "nvidia" in n and v != version + REVISION]
    assert host.services == dict.fromkeys(SERVICES, "active")
    assert not host.masked
    for gpu in host.gpus:
        assert (gpu.persistence, gpu.compute_mode, gpu.power_limit, gpu.ecc) == (True, "Exclusive_Process", 600.0, True)
