"""systemd on a simulated host, and the programs that have the GPUs' devices open."""

from __future__ import annotations

from collections.abc import Callable

from simulator.host.driver import Driver
from simulator.host.state import HostState, Process
from simulator.slurm.reply import Reply, failure

PERSISTENCED, FABRIC_MANAGER, DCGM, EXPORTER = (
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "nvidia-dcgm",
    "dcgm-exporter",
)
_AT_BOOT = (PERSISTENCED, FABRIC_MANAGER, DCGM, EXPORTER, "slurmd", "apt-daily.timer", "apt-daily-upgrade.timer")
_OFF = ("unattended-upgrades",)
_SWITCHES = tuple(f"/dev/nvidia-nvswitch{number}" for number in range(4))
_ALIASES = {"fabricmanager": FABRIC_MANAGER, "dcgm": DCGM}


class Services:
    """Units by name without ".service": states, masks, and the processes behind them."""

    def __init__(self, host: HostState) -> None:
        self._host = host
        self.states = dict.fromkeys(_AT_BOOT, "active") | dict.fromkeys(_OFF, "inactive")
        self._masked: set[str] = set()
        self._driver: Driver | None = None
        self._pids = {unit: 1100 + 37 * place for place, unit in enumerate(_AT_BOOT)}
        self._holding = {PERSISTENCED, FABRIC_MANAGER, DCGM, EXPORTER}

    def bind(self, driver: Driver) -> None:
        """The driver that the services need, which asks them in turn who holds it."""
        self._driver = driver

    def holders(self) -> list[Process]:
        """Everybody who has a device open: services, measurements, jobs and strangers."""
        host = self._host
        found = [self._process(unit) for unit in _AT_BOOT if self._holds(unit)]
        found += [*host.stray, *host.tools.values()]
        if host.loaded is not None:
            found += [_job_process(job, user, host.machine.gpus) for job, user in host.scheduled()]
        return found

    def listing(self) -> Reply:
        """One line for each open device: PID, command, user, unit, path."""
        lines = [
            "\t".join((str(process.pid), process.command, process.user, process.unit, device))
            for process in self.holders()
            for device in process.devices
        ]
        return Reply(0, "".join(f"{line}\n" for line in lines))

    def kill(self, words: list[str]) -> Reply:
        """`kill [-SIGNAL] PID…`: only a stranger's process can be ended so."""
        for word in words:
            if word.startswith("-"):
                continue
            gone = [process for process in self._host.stray if str(process.pid) == word]
            if not gone:
                return failure(f"bash: line 1: kill: ({word}) - No such process\n")
            self._host.stray = [process for process in self._host.stray if process not in gone]
        return Reply(0)

    def systemctl(self, verb: str, units: list[str], runtime: bool) -> Reply:
        """is-active, is-enabled, start, stop, restart, mask and unmask."""
        if verb in ("is-active", "is-enabled"):
            return self._ask(verb, units)
        act: dict[str, Callable[[str], Reply]] = {
            "start": self._start,
            "stop": self._stop,
            "restart": self._restart,
            "mask": lambda unit: self._mask(unit, runtime),
            "unmask": lambda unit: self._unmask(unit, runtime),
        }
        if verb not in act:
            return failure(f"Unknown command verb {verb}.\n")
        answers = [act[verb](unit) for unit in units]
        worst = max((answer.code for answer in answers), default=0)
        return Reply(worst, "".join(a.stdout for a in answers), "".join(a.stderr for a in answers))

    def boot(self) -> None:
        """Masks of the last run are gone; what is enabled is started."""
        self._masked.clear()
        self._holding.clear()
        self.states |= dict.fromkeys([*self.states], "inactive")
        for unit in _AT_BOOT:
            self._start(unit)

    def _ask(self, verb: str, units: list[str]) -> Reply:
        if verb == "is-active":
            states = [self.states.get(_plain(unit), "inactive") for unit in units]
            return Reply(0 if "active" in states else 3, "".join(f"{state}\n" for state in states))
        words = ["masked-runtime" if _plain(u) in self._masked else _enabled(_plain(u)) for u in units]
        return Reply(0 if "enabled" in words else 1, "".join(f"{word}\n" for word in words))

    def _start(self, unit: str) -> Reply:
        name = _plain(unit)
        full = name if "." in name else f"{name}.service"
        if name in self._masked:
            return failure(f"Failed to start {full}: Unit {full} is masked.\n")
        if name not in self.states:
            return failure(f"Failed to start {full}: Unit {full} not found.\n", 5)
        if self.states[name] == "active":
            return Reply(0)
        if not self._can_start(name):
            self.states[name] = "failed"
            reason = "because the control process exited with error code"
            see = f'See "systemctl status {full}" and "journalctl -xeu {full}" for details.'
            return failure(f"Job for {full} failed {reason}.\n{see}\n")
        self.states[name] = "active"
        self._pids[name] = self._host.next_pid()
        if self._host.loaded is not None and name in (PERSISTENCED, FABRIC_MANAGER, DCGM, EXPORTER):
            self._holding.add(name)
        self._started(name)
        return Reply(0)

    def _can_start(self, name: str) -> bool:
        host = self._host
        if name == PERSISTENCED:
            return host.usable
        if name == FABRIC_MANAGER:
            return host.loaded is not None and host.loaded.release == host.fabric_manager
        return True

    def _started(self, name: str) -> None:
        host = self._host
        if name == PERSISTENCED and host.loaded is not None:
            lost = host.faults.flaw(host.loaded.release).settings_lost
            with host.settings_change(PERSISTENCED):
                for gpu in host.settings.gpus:
                    gpu.persistence = gpu.persistence or "persistence" not in lost
        if name == FABRIC_MANAGER and self._driver is not None:
            self._driver.fabric_ready = True
            host.truth("fabric_manager", version=host.fabric_manager or "")

    def _stop(self, unit: str) -> Reply:
        name = _plain(unit)
        if name not in self.states:
            full = name if "." in name else f"{name}.service"
            return failure(f"Failed to stop {full}: Unit {full} not loaded.\n", 5)
        self.states[name] = "inactive"
        self._holding.discard(name)
        return Reply(0)

    def _restart(self, unit: str) -> Reply:
        stopped = self._stop(unit)
        return stopped if stopped.code else self._start(unit)

    def _mask(self, unit: str, runtime: bool) -> Reply:
        name = _plain(unit)
        full = name if "." in name else f"{name}.service"
        self._masked.add(name)
        folder = "/run/systemd/system" if runtime else "/etc/systemd/system"
        return Reply(0, "", f"Created symlink {folder}/{full} \u2192 /dev/null.\n")

    def _unmask(self, unit: str, runtime: bool) -> Reply:
        name = _plain(unit)
        full = name if "." in name else f"{name}.service"
        if name not in self._masked:
            return Reply(0)
        self._masked.discard(name)
        folder = "/run/systemd/system" if runtime else "/etc/systemd/system"
        return Reply(0, "", f"Removed {folder}/{full}.\n")

    def _holds(self, unit: str) -> bool:
        return unit in self._holding and self.states.get(unit) == "active" and self._host.loaded is not None

    def _process(self, unit: str) -> Process:
        gpus = tuple(f"/dev/nvidia{slot}" for slot in range(self._host.machine.gpus))
        command = {FABRIC_MANAGER: "nv-fabricmanager", DCGM: "nv-hostengine"}.get(unit, unit)
        devices = ("/dev/nvidia-nvswitchctl", *_SWITCHES) if unit == FABRIC_MANAGER else ("/dev/nvidiactl", *gpus)
        user = "nvidia-persistenced" if unit == PERSISTENCED else "root"
        return Process(self._pids[unit], command[:15], user, f"{unit}.service", devices)


def _plain(unit: str) -> str:
    name = unit.removesuffix(".service")
    return _ALIASES.get(name, name)


def _enabled(name: str) -> str:
    return "enabled" if name in _AT_BOOT else "disabled"


def _job_process(job: int, user: str, gpus: int) -> Process:
    devices = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{slot}" for slot in range(gpus)))
    return Process(20000 + job, "python3", user, "slurmstepd.scope", devices, cuda=True)
