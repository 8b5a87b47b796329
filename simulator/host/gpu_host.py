"""A simulated GPU host's shell: which part of the host answers which command."""

from __future__ import annotations

import asyncio
import shlex
import uuid
from collections.abc import Awaitable, Callable, Mapping

from simulator.host.apt import AptQueries
from simulator.host.apt_jobs import AptJobs
from simulator.host.dnf import Dnf
from simulator.host.document import Document
from simulator.host.driver import LOAD_SECONDS, UNLOAD_SECONDS, Driver
from simulator.host.exporter import Exporter
from simulator.host.heat import Heat
from simulator.host.jobs import Jobs, Program, one_phase
from simulator.host.packages import Packages
from simulator.host.releases import sort_key
from simulator.host.runfile import Runfile
from simulator.host.services import Services
from simulator.host.smi import Smi
from simulator.host.state import APT, DNF, HostState, Site, no_work
from simulator.host.tools import Tools
from simulator.host.xids import Xids
from simulator.machine import Machine
from simulator.probe import ProbeAnswers
from simulator.slurm.reply import Reply, failure

Answer = Reply | Awaitable[Reply]
_DISKS = {"/boot": ("/dev/md1", 1_992_552, 1_421_004), "/var": ("/dev/md2", 491_135_456, 391_204_112)}
_ROOT = ("/dev/md0", 959_786_032, 871_005_316)
_FULL_KIB = 184_320
_DPKG_LOCK = "/var/lib/dpkg/lock-frontend"


def split(line: str) -> list[str]:
    """The words of a line; empty where the quoting is broken."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def not_found(word: str) -> Reply:
    return failure(f"bash: line 1: {word}: command not found\n", 127)


def bare(words: list[str]) -> list[str]:
    """A command without `sudo -n` and without the variables that `env` sets for it."""
    rest = list(words)
    while rest[:1] in (["sudo"], ["env"]):
        rest = rest[1:]
        while rest and (rest[0] in ("-n", "--") or ("=" in rest[0] and not rest[0].startswith("/"))):
            rest = rest[1:]
    return rest


class GpuHost:
    """A node's shell. `vbios` tells the active GPU firmware in slot order, `jobs` the scheduler's jobs there."""

    def __init__(
        self,
        machine: Machine,
        vbios: Callable[[], list[str]],
        site: Site | None = None,
        jobs: Callable[[], list[tuple[int, str]]] = no_work,
    ) -> None:
        self._machine = machine
        self.state = state = HostState(machine, site or Site(), jobs)
        self.services = Services(state)
        self.driver = Driver(state, self.services.holders)
        self.services.bind(self.driver)
        self.heat = Heat(state)
        self._xids = Xids(state, state.site.seed)
        self._smi = Smi(state, self.services, self.heat, vbios)
        document = Document(state, self.driver, self.services, self.heat, self._smi, vbios)
        self._probe = ProbeAnswers(state, document)
        self._queries = AptQueries(state)
        self._apt = AptJobs(state, self.driver)
        self._changes = (self._apt, Dnf(state, self.driver), Runfile(state, self.driver))
        self._tools = Tools(state, self.driver, self.heat)
        self.jobs = Jobs(machine.clock, self._begin)
        self.exporter = Exporter(state, self.services, self.heat, self._xids)
        self._leaving: asyncio.Task[None] | None = None
        machine.listeners.append(self._power_changed)
        machine.start_listeners.append(self._booting)

    @property
    def packages(self) -> Packages:
        return self.state.packages

    def wants_input(self, line: str) -> bool:
        return self._probe.wants_input(split(line))

    def run(self, line: str, user: str, stdin: bytes) -> Answer:  # noqa: ARG002
        words = bare(split(line))
        self._xids.catch_up()
        probed = self._probe.run(words, stdin, self.boot_id())
        if probed is not None:
            return probed
        match words:
            case ["sh", "-c", _, "gpufleet-job-start", *rest]:
                return self.jobs.begin(rest)
            case ["sh", "-c", _, "gpufleet-job-read", *rest]:
                return self.jobs.read(rest)
            case ["sh", "-c", _, "gpufleet-holders"]:
                return self.services.listing()
            case ["sh", "-c", _, "gpufleet-locks", *files]:
                return self._locks(files)
            case []:
                wrong = "bash: -c: line 1: unexpected EOF while looking for matching quote\n"
                return failure(wrong, 2) if line.strip() else Reply(0)
            case _:
                started = self._begin(words)
                return self.jobs.wait(started) if isinstance(started, Program) else started

    def _locks(self, files: list[str]) -> Reply:
        """Who holds dpkg's lock, where that is asked for."""
        holder = self._apt.lock_holder() if _DPKG_LOCK in files else None
        line = "" if holder is None else f"lock\t{holder[0]}\t{holder[1]}\t{_DPKG_LOCK}\n"
        return Reply(0, f"{line}gpufleet-locks-end\n")

    def _begin(self, words: list[str]) -> Program | Answer:
        """What a command does, at once or in its time; the same where a job runs it."""
        self._xids.catch_up()
        words = bare(words)
        if not words:
            return Reply(0)
        if not _is_here(words[0], self.state.manager):
            return not_found(words[0])
        asked = self._queries.run(words) if self.state.manager != DNF else None
        if asked is not None:
            return asked
        for part in self._changes:
            changed = part.run(words)
            if changed is not None:
                return changed
        measured = self._tools.run(words)
        if measured is not None:
            return measured
        return self._driver_command(words) or self._plain(words)

    def _driver_command(self, words: list[str]) -> Program | Reply | None:
        match words:
            case ["modprobe", ("-r" | "--remove"), *names]:
                return one_phase(UNLOAD_SECONDS, lambda: self.driver.remove(names))
            case ["modprobe", name]:
                return one_phase(LOAD_SECONDS if name == "nvidia" else 0.5, lambda: self.driver.load(name))
            case ["modinfo", *rest] if rest:
                return self.driver.modinfo(rest)
            case ["dkms", "status", *_]:
                return self.driver.dkms_status()
            case ["cat", path] if path.startswith("/sys/module/") and path.endswith("/refcnt"):
                name = path.split("/")[3]
                if name not in self.state.modules:
                    return failure(f"cat: {path}: No such file or directory\n")
                return Reply(0, f"{self.driver.refcount(name)}\n")
            case ["cat", "/sys/module/nvidia/version"] if self.state.loaded is not None:
                return Reply(0, f"{self.state.loaded.release}\n")
            case ["nvidia-smi", *rest]:
                return self._smi.run(rest)
            case ["systemctl", "reboot" | "kexec", *_]:
                return self._reboot()
            case ["systemctl", "is-system-running", *_]:
                return Reply(0, "running\n")
            case ["systemctl", *rest]:
                plain = [word for word in rest if not word.startswith("-")]
                if not plain:
                    return Reply(0)
                return self.services.systemctl(plain[0], plain[1:], "--runtime" in rest)
            case ["kill", *rest]:
                return self.services.kill(rest)
            case _:
                return None

    def _plain(self, words: list[str]) -> Reply:
        match words:
            case ["hostname", *_]:
                return Reply(0, f"{self._machine.name}\n")
            case ["uname", "-r"]:
                return Reply(0, f"{self.state.kernel}\n")
            case ["uptime", *rest]:
                return self._uptime(rest)
            case ["cat", "/proc/sys/kernel/random/boot_id"]:
                return Reply(0, f"{self.boot_id()}\n")
            case ["cat", "/proc/uptime"]:
                seconds = self.state.up_seconds
                return Reply(0, f"{seconds:.2f} {seconds * 150:.2f}\n")
            case ["logger", "--", text]:  # as a fault of the hardware would make the kernel say it
                self.state.log(text)
                return Reply(0)
            case ["df", "-Pk", *places]:
                return self._free(places)
            case ["true"]:
                return Reply(0)
            case ["cat", path, *_]:
                return failure(f"cat: {path}: No such file or directory\n")
            case _:
                return not_found(words[0])

    def boot_id(self) -> str:
        """New at each boot, the same within one."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self._machine.name} {self._machine.boots}"))

    def samples(self) -> dict[str, list[str]]:
        """What the node's exporter shows now, by metric."""
        return self.exporter.samples()

    def _uptime(self, options: list[str]) -> Reply:
        clock, minutes = self._machine.clock, int(self.state.up_seconds // 60)
        if options == ["-s"]:
            return Reply(0, clock.wall(self._machine.last_boot).strftime("%Y-%m-%d %H:%M:%S\n"))
        shown = f"{minutes} min" if minutes < 60 else f"{minutes // 60:2d}:{minutes % 60:02d}"
        now = clock.wall().strftime("%H:%M:%S")
        return Reply(0, f" {now} up {shown},  0 users,  load average: 0.31, 0.28, 0.25\n")

    def _free(self, places: list[str]) -> Reply:
        lines = ["Filesystem     1024-blocks      Used Available Capacity Mounted on"]
        for place in places:
            device, size, available = _DISKS.get(place, _ROOT)
            if self._machine.name in self.state.faults.disk_full and place != "/boot":
                available = _FULL_KIB
            share = round(100 * (size - available) / size)
            mount = place if place in _DISKS else "/"
            lines.append(f"{device:<14} {size:>11} {size - available:>9} {available:>9} {share:>7}% {mount}")
        return Reply(0, "".join(f"{line}\n" for line in lines))

    def _reboot(self) -> Reply:
        """systemd is told, and shuts the host down in its own time."""
        self.state.truth("reboot", by="systemctl")
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.get_running_loop().create_task(self._shut_down(self._machine.boots))
        return Reply(0)

    async def _shut_down(self, boots: int) -> None:
        await self._machine.clock.sleep(self._machine.timing.shutdown)
        if self._machine.up and self._machine.boots == boots:
            self._machine.reboot()

    def _power_changed(self, machine: Machine) -> None:
        if not machine.up:
            self._xids.catch_up()
            self.jobs.host_down()

    def _booting(self, machine: Machine) -> None:
        """The kernel starts: the newest one, with the modules that it has."""
        state = self.state
        state.stray, state.tools = [], {}
        state.kernel = max(state.kernels, key=sort_key)
        disk = state.on_disk
        machine.hangs = disk is not None and state.faults.hangs_in_boot(machine.name, disk.release)
        self.driver.boot()
        self.services.boot()
        self._xids.last.clear()


_ONLY: Mapping[str, tuple[str, ...]] = {
    APT: ("rpm", "dnf"),
    DNF: ("dpkg", "dpkg-query", "apt-get", "apt-mark", "apt-cache"),
}


def _is_here(command: str, manager: str) -> bool:
    """Has a host with this package manager the command?"""
    return command not in _ONLY.get(manager, _ONLY[APT])
