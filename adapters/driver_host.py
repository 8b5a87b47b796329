"""A GPU host's shell in the words of a driver change: modules, services, holders, settings, one reading.

Each method is one bounded exchange (see fleet/ports.py). Vendor texts are returned as they are, to be judged above.
"""

from __future__ import annotations

import re

from adapters.host_jobs import HostJobs
from adapters.probe import Probe, ProbeRequest
from fleet.driver_holders import Holder, read_holders
from fleet.errors import ConfigurationError, TransientError
from fleet.node_reading import NodeReading
from fleet.ports import CommandResult, FileHost, Host

_HOLDERS = (
    "export LC_ALL=C; "
    "{ find /proc/[0-9]*/fd -maxdepth 1 -lname '/dev/nvidia*' -printf '%p\\t%l\\n' 2>/dev/null; "
    "grep -l /dev/nvidia /proc/[0-9]*/maps 2>/dev/null | sed -e 's,$,\\t/dev/nvidia (mapped),'; } "
    "| sed -e 's,^/proc/\\([0-9]*\\)/[^\\t]*,\\1,' | sort -u | while IFS='\t' read -r pid device; do "
    "test -d /proc/$pid || continue; name=$(cat /proc/$pid/comm 2>/dev/null); "
    "user=$(stat -c %U /proc/$pid 2>/dev/null); "
    "unit=$(sed -n -e 's,^.*/\\([^/]*\\.\\(service\\|scope\\)\\).*$,\\1,p' /proc/$pid/cgroup 2>/dev/null | head -n 1); "
    'printf \'%s\\t%s\\t%s\\t%s\\t%s\\n\' "$pid" "${name:--}" "${user:--}" "${unit:--}" "$device"; done'
)
_ACTIVE = ("active", "activating", "reloading")
_NUMBER = re.compile(r"[0-9]{1,15}")
_QUICK, _SLOW = 60.0, 300.0


class Elevated:
    """A host whose commands run as root by `sudo -n`; files are put, and the probe is run, as the login itself."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> CommandResult:
        """As the host's `run`. Raises ConfigurationError where sudo asks for a password."""
        result = self._host.run(("sudo", "-n", *arguments), timeout_seconds)
        if result.code and re.search(r"^sudo: .*(?:password|not allowed|sudoers)", result.stderr, re.M):
            raise ConfigurationError(f"sudo refuses: {result.stderr.strip()[-200:]}; see drivers.sudo")
        return result

    def close(self) -> None:
        self._host.close()


class DriverHost:
    """One host. `sudo` puts `sudo -n` before what needs root."""

    def __init__(self, host: FileHost, node: str, sudo: bool = False, probe_seconds: float = 30.0) -> None:
        self._node = node
        self.root: Host = Elevated(host) if sudo else host
        self.jobs = HostJobs(self.root, node)
        self._probe = Probe(host, node)
        self._probe_seconds = probe_seconds

    def read(self, sections: tuple[str, ...]) -> NodeReading:
        """The probe's sections. Raises as adapters/probe.py says."""
        return self._probe.read(ProbeRequest(sections=sections, deadline_seconds=self._probe_seconds))

    def boot_id(self) -> str:
        """New at each boot. Raises TransientError where the host does not tell."""
        result = self.root.run(("cat", "/proc/sys/kernel/random/boot_id"))
        text = result.stdout.strip().rpartition("\n")[2].strip()
        if result.code or not re.fullmatch(r"[0-9a-fA-F-]{32,36}", text):
            raise TransientError(f"the host tells no boot id: {(result.stderr or text)[-100:]}", node=self._node)
        return text

    def module_uses(self) -> int | None:
        """How many use the nvidia module; None where it is not loaded or does not tell."""
        result = self.root.run(("cat", "/sys/module/nvidia/refcnt"))
        text = result.stdout.strip()
        return int(text) if result.code == 0 and _NUMBER.fullmatch(text) else None

    def unload(self, modules: tuple[str, ...]) -> CommandResult:
        """`modules` in the order given; those that come later stay where one is in use."""
        return self.root.run(("modprobe", "-r", *modules), _SLOW)

    def load(self, module: str) -> CommandResult:
        return self.root.run(("modprobe", module), _SLOW)

    def module_version(self, kernel: str) -> str | None:
        """The version of the nvidia module on disk for that kernel; None where there is none."""
        return self._modinfo("version", kernel)

    def module_signer(self, kernel: str) -> str | None:
        """Who signed it, "" where nobody did; None where there is no module, or modinfo does not tell."""
        result = self.root.run(("modinfo", "-F", "signer", "-k", kernel, "nvidia"))
        return result.stdout.strip() if result.code == 0 else None

    def _modinfo(self, field: str, kernel: str) -> str | None:
        result = self.root.run(("modinfo", "-F", field, "-k", kernel, "nvidia"))
        return (result.stdout.strip() or None) if result.code == 0 else None

    def free_mib(self, places: tuple[str, ...] = ("/usr", "/boot", "/var")) -> dict[str, int]:
        """MiB that are free at each place; one that is not told is left out."""
        result = self.root.run(("df", "-Pk", *places))
        rows = [line.split() for line in result.stdout.splitlines() if re.search(r"\S\s+\S+\s+\d+%\s+/", line)]
        if len(rows) != len(places):
            return {}
        found = zip(places, rows, strict=True)
        return {place: int(row[-3]) // 1024 for place, row in found if _NUMBER.fullmatch(row[-3])}

    def holders(self) -> tuple[Holder, ...] | None:
        """Who has a GPU's device open; None where the host could not tell."""
        result = self.root.run(("sh", "-c", _HOLDERS, "gpufleet-holders"))
        return None if result.code and not result.stdout else read_holders(result.stdout)

    def active_units(self, units: tuple[str, ...]) -> tuple[str, ...]:
        """Those of `units` that run, in the order given. Raises TransientError where systemd does not answer."""
        if not units:
            return ()
        result = self.root.run(("systemctl", "is-active", *units))
        states = result.stdout.split()
        if len(states) != len(units):
            said = (result.stderr or result.stdout).strip()[-200:]
            raise TransientError(f"systemd does not tell which services run: {said}", node=self._node)
        return tuple(unit for unit, state in zip(units, states, strict=True) if state in _ACTIVE)

    def stop(self, unit: str) -> CommandResult:
        return self.root.run(("systemctl", "stop", unit), _SLOW)

    def start(self, unit: str) -> CommandResult:
        return self.root.run(("systemctl", "start", unit), _SLOW)

    def mask(self, unit: str) -> CommandResult:
        """Until the next boot."""
        return self.root.run(("systemctl", "mask", "--runtime", unit), _QUICK)

    def unmask(self, unit: str) -> CommandResult:
        return self.root.run(("systemctl", "unmask", "--runtime", unit), _QUICK)

    def sha256(self, path: str) -> str | None:
        """The digest of a file on the host; None where there is none."""
        result = self.root.run(("sha256sum", path), _SLOW)
        found = re.match(r"\\?([0-9a-f]{64})\b", result.stdout.strip())
        return found[1] if result.code == 0 and found else None

    def set_gpu(self, command: tuple[str, ...]) -> CommandResult:
        """One nvidia-smi command of fleet/gpu_settings.py. Not to be repeated blindly: it may create MIG devices."""
        return self.root.run(command, _SLOW)
