"""What the shells of the simulated machines answer: GPU hosts, and the Slurm controller host."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol

from simulator.machine import Machine
from simulator.probe import ProbeAnswers
from simulator.settings import GPU_NAME, GpuSettings, HostSettings
from simulator.slurm.reply import Reply, failure
from simulator.slurm.shell import Shell


class HostShell(Protocol):
    def run(self, line: str, user: str, stdin: bytes) -> Reply | Awaitable[Reply]:
        """Run one command line; what takes its time is awaited."""
        ...

    def wants_input(self, line: str) -> bool:
        """Does the command read its standard input?"""
        ...


def split(line: str) -> list[str]:
    """The words of a line; empty where the quoting is broken."""
    try:
        return shlex.split(line)
    except ValueError:
        return []


def reads_script(words: list[str]) -> bool:
    """sbatch without a script's name reads the script from its standard input."""
    if not words or words[0].rpartition("/")[2] != "sbatch":
        return False
    return not any(word.startswith("--wrap") for word in words) and not words[-1].endswith(".sh")


def not_found(word: str) -> Reply:
    return failure(f"bash: line 1: {word}: command not found\n", 127)


class GpuHost:
    """A node's shell. `vbios` tells the active GPU firmware in slot order."""

    def __init__(self, machine: Machine, vbios: Callable[[], list[str]]) -> None:
        self._machine = machine
        self._vbios = vbios
        self.settings = HostSettings([GpuSettings() for _ in range(machine.gpus)])
        self._probe = ProbeAnswers(machine, self.settings, vbios)
        machine.start_listeners.append(lambda _: self.settings.booted())

    def wants_input(self, line: str) -> bool:
        return self._probe.wants_input(split(line))

    def run(self, line: str, user: str, stdin: bytes) -> Reply:  # noqa: ARG002
        words = split(line)
        probed = self._probe.run(words, stdin, self.boot_id())
        if probed is not None:
            return probed
        match words:
            case ["hostname", *_]:
                return Reply(0, f"{self._machine.name}\n")
            case ["uname", "-r"]:
                return Reply(0, f"{self.settings.kernel}\n")
            case ["uptime", *rest]:
                return self._uptime(rest)
            case ["cat", "/proc/sys/kernel/random/boot_id"]:
                return Reply(0, f"{self.boot_id()}\n")
            case ["cat", "/proc/uptime"]:
                return Reply(0, f"{self._up_seconds():.2f} {self._up_seconds() * 150:.2f}\n")
            case ["systemctl", "is-system-running", *_]:
                return Reply(0, "running\n")
            case ["logger", "--", text]:  # as a fault of the hardware would make the kernel say it
                self._probe.kernel_log.append(f"[{self._up_seconds():12.6f}] {text}")
                return Reply(0)
            case ["systemctl", verb, unit]:
                code, said = self.settings.systemctl(verb, unit)
                return Reply(code, said)
            case ["nvidia-smi", *rest]:
                return self._nvidia_smi(rest)
            case ["true"]:
                return Reply(0)
            case [] if not line.strip():
                return Reply(0)
            case []:
                return failure("bash: -c: line 1: unexpected EOF while looking for matching quote\n", 2)
            case ["cat", path, *_]:
                return failure(f"cat: {path}: No such file or directory\n")
            case _:
                return not_found(words[0])

    def boot_id(self) -> str:
        """New at each boot, the same within one."""
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self._machine.name} {self._machine.boots}"))

    def _up_seconds(self) -> float:
        return max(0.0, self._machine.clock.now() - self._machine.last_boot)

    def _uptime(self, options: list[str]) -> Reply:
        clock, minutes = self._machine.clock, int(self._up_seconds() // 60)
        if options == ["-s"]:
            return Reply(0, clock.wall(self._machine.last_boot).strftime("%Y-%m-%d %H:%M:%S\n"))
        shown = f"{minutes} min" if minutes < 60 else f"{minutes // 60:2d}:{minutes % 60:02d}"
        now = clock.wall().strftime("%H:%M:%S")
        return Reply(0, f" {now} up {shown},  0 users,  load average: 0.31, 0.28, 0.25\n")

    def _nvidia_smi(self, options: list[str]) -> Reply:
        if options in (["-L"], ["--list-gpus"]):
            return Reply(
                0,
                "".join(
                    f"GPU {slot}: {GPU_NAME} (UUID: GPU-{part.uuid})\n" for slot, part in enumerate(self._machine.parts)
                ),
            )
        changed = self.settings.nvidia_smi(options)
        if changed is not None:
            return Reply(*changed)
        query = next((word.partition("=")[2] for word in options if word.startswith("--query-gpu=")), None)
        shape = next((word.partition("=")[2] for word in options if word.startswith("--format=")), "")
        if query is None or "csv" not in shape.split(","):
            return failure("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2)
        return self._query(query.split(","), shape.split(","))

    def _query(self, names: list[str], shape: list[str]) -> Reply:
        versions = self._vbios()
        rows: list[list[str]] = []
        for slot, part in enumerate(self._machine.parts):
            bus = f"00000000:{0x18 + slot * 0x11:02X}:00.0"
            known = {
                "index": str(slot),
                "name": GPU_NAME,
                "gpu_name": GPU_NAME,
                "serial": part.serial,
                "gpu_serial": part.serial,
                "uuid": f"GPU-{part.uuid}",
                "gpu_uuid": f"GPU-{part.uuid}",
                "vbios_version": versions[slot] if slot < len(versions) else "[N/A]",
                "pci.bus_id": bus,
                "gpu_bus_id": bus,
                "driver_version": self.settings.driver,
                "count": str(self._machine.gpus),
                "board_part_number": part.part_number,
                "persistence_mode": _switch(self.settings.gpus[slot].persistence),
                "mig.mode.current": "Disabled",
                "ecc.mode.current": _switch(self.settings.gpus[slot].ecc),
                "temperature.gpu": "31",
                "memory.total": "81559" if "nounits" in shape else "81559 MiB",
            }
            wrong = next((name for name in names if name.strip() not in known), None)
            if wrong is not None:
                return Reply(2, f'Field "{wrong.strip()}" is not a valid field to query.\n')
            rows.append([known[name.strip()] for name in names])
        titles = [] if "noheader" in shape else [[name.strip() for name in names]]
        return Reply(0, "".join(", ".join(row) + "\n" for row in titles + rows))


def _switch(on: bool) -> str:
    return "Enabled" if on else "Disabled"


class ControllerHost:
    """The host on which Slurm's commands are."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def wants_input(self, line: str) -> bool:
        return reads_script(split(line))

    def run(self, line: str, user: str, stdin: bytes) -> Reply:
        words = split(line)
        if not words:
            return Reply(0) if not line.strip() else failure("bash: -c: line 1: unexpected EOF\n", 2)
        if self._shell.knows(words[0].rpartition("/")[2]):
            return self._shell.run(words, user, stdin.decode("utf-8", "replace"))
        match words:
            case ["hostname", *_]:
                return Reply(0, "slurm-01\n")
            case ["true"]:
                return Reply(0)
            case _:
                return not_found(words[0])
