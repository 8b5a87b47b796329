"""What a hand-written GPU host is made of: packages, modules, settings, and how the probe shows them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from unit.site_fakes import Answer, SiteClock

from fleet.driver_target import DriverTarget, InstallKind, PackagePin, RebootPolicy

OLD, NEW = "570.133.20", "580.95.05"
KERNEL, NEXT_KERNEL = "6.8.0-45-generic", "6.8.0-60-generic"
OLD_NAMES = (
    *("nvidia-dkms-570-server-open", "libnvidia-compute-570-server", "nvidia-utils-570-server"),
    "nvidia-fabricmanager-570",
)
NEW_NAMES = tuple(name.replace("570", "580") for name in OLD_NAMES)
REVISION = "-0ubuntu0.24.04.1"
SERVICES = ("dcgm-exporter", "nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced")
JOB_SECONDS = 60.0


def digest_of(name: str, version: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"{name} {version}").hex * 2


def target(version: str = NEW, reboot: RebootPolicy = RebootPolicy.WHEN_NEEDED) -> DriverTarget:
    names = NEW_NAMES if version == NEW else OLD_NAMES
    pins = [PackagePin(name=n, version=version + REVISION, sha256=digest_of(n, version + REVISION)) for n in names]
    return DriverTarget(version=version, kind=InstallKind.APT, packages=tuple(pins), reboot=reboot)


@dataclass
class FakeGpu:
    """One GPU's settings; the driver forgets some of them when it is loaded anew."""

    uuid: str
    persistence: bool = True
    ecc: bool = True
    ecc_pending: bool = True
    compute_mode: str = "Exclusive_Process"
    power_limit: float = 600.0
    mig_mode: bool = False
    mig: list[str] = field(default_factory=list)

    def forget(self) -> None:
        self.persistence, self.compute_mode, self.power_limit, self.mig = False, "Default", 700.0, []


@dataclass
class FakeJob:
    command: tuple[str, ...]
    ends_at: float
    end: Callable[[], tuple[int, str]]
    state: str = "running"
    code: int | None = None
    tail: str = ""


class HostState:
    """A node with Ubuntu's driver packages; its attributes are what a test sets and looks at."""

    def __init__(self, clock: SiteClock) -> None:
        self.clock = clock
        self.packages = dict.fromkeys(OLD_NAMES, OLD + REVISION) | {"linux-image-" + KERNEL: "6.8.0-45.45"}
        self.broken: set[str] = set()
        self.held: set[str] = set()
        self.offered = {name: [OLD + REVISION] for name in OLD_NAMES} | {name: [NEW + REVISION] for name in NEW_NAMES}
        self.digests: dict[str, str] = {}
        self.kernels = {KERNEL: True}  # kernel → has headers
        self.modules_on_disk: dict[str, str | None] = {KERNEL: OLD}
        self.modules = ["nvidia", "nvidia_uvm"]
        self.loaded: str | None = OLD
        self.services = dict.fromkeys(SERVICES, "active")
        self.masked: set[str] = set()
        self.strangers: list[str] = []
        self.gpus = [FakeGpu(f"GPU-{n}") for n in range(2)]
        self.jobs: dict[str, FakeJob] = {}
        self.boots = 1
        self.away_until = 0.0
        self.commands: list[tuple[str, ...]] = []
        self.journal: Callable[[], int] = lambda: 0
        self.written: list[int] = []
        self.installs: list[str] = []
        self.running_installs = 0
        self.dies_at = 0
        self.dies_after = False
        self.unreachable_at = 0
        self.lock_until = 0.0
        self.install_fault = ""
        self.update_says = ""
        self.load_fault = ""
        self.stays_away = False
        self.ecc_lost = False
        self.bound = "nvidia"
        self.secure_boot = False
        self.signer = "DKMS module signing key"
        self.dkms_fails_for: set[str] = set()

    # packages

    def _update(self) -> tuple[int, str]:
        if self.clock.monotonic() < self.lock_until:
            return 100, "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 777 (unattended-upgr)"
        return (100 if self.update_says.startswith("E:") else 0), self.update_says

    def _configure(self) -> tuple[int, str]:
        for name in sorted(self.broken):
            self._unpacked(name, (NEW if "580" in name else OLD) + REVISION)
        self.broken.clear()
        return 0, "Setting up"

    def _install(self, wanted: dict[str, str]) -> tuple[int, str]:
        self.running_installs = 0
        if self.install_fault:
            return 100, self.install_fault
        for name, version in wanted.items():
            self._unpacked(name, version)
        self.broken.clear()
        if self.dkms_fails_for:
            return 100, "Error! Bad return status for module build on kernel"
        return 0, "Setting up"

    def _unpacked(self, name: str, version: str) -> None:
        other = name.replace("580", "570") if "580" in name else name.replace("570", "580")
        self.packages.pop(other, None)
        self.packages[name] = version
        if "dkms" in name:
            release = version.partition("-")[0]
            for kernel in self.kernels:
                self.modules_on_disk[kernel] = None if kernel in self.dkms_fails_for else release
        if self.ecc_lost and version.startswith(NEW):
            for gpu in self.gpus:
                gpu.ecc_pending = False

    def _packages(self, arguments: tuple[str, ...]) -> Answer:
        match arguments:
            case ("dpkg-query", *_):
                states = {
                    n: ("hi " if n in self.held else "ii ") if n not in self.broken else "iF " for n in self.packages
                }
                return Answer(stdout="".join(f"{n}\t{v}\t{states[n]}\tamd64\n" for n, v in self.packages.items()))
            case ("dpkg", "--audit"):
                named = "".join(f" {name}   a driver\n" for name in sorted(self.broken))
                return Answer(stdout=f"The following packages are only half configured:\n{named}" if named else "")
            case ("apt-mark", "showhold"):
                return Answer(stdout="".join(f"{name}\n" for name in sorted(self.held)))
            case ("apt-mark", "hold", *names):
                self.held |= set(names)
                return Answer()
            case ("apt-cache", "policy", *names):
                return Answer(stdout="".join(map(self._policy, names)))
            case ("apt-cache", "show", *names):
                pairs = [name.split("=", 1) for name in names]
                return Answer(stdout="\n".join(self._record(name, version) for name, version in pairs))
            case ("apt-get", "-s", "install", *words):
                wanted = [word.split("=", 1) for word in words if not word.startswith("-")]
                return Answer(stdout="".join(f"Inst {name} ({version} repo [amd64])\n" for name, version in wanted))
            case _:
                return Answer(127, stderr=f"{arguments[0]}: command not found")

    def _policy(self, name: str) -> str:
        rows = "".join(
            f"     {v} 500\n        500 http://mirror x/y amd64 Packages\n" for v in self.offered.get(name, [])
        )
        return f"{name}:\n  Installed: (none)\n  Candidate: x\n  Version table:\n{rows}"

    def _record(self, name: str, version: str) -> str:
        return f"Package: {name}\nVersion: {version}\nSHA256: {self.digests.get(name, digest_of(name, version))}\n"

    @property
    def boot_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"boot {self.boots}"))

    @property
    def user_space(self) -> str | None:
        version = next((v for n, v in self.packages.items() if n.startswith("libnvidia-compute")), None)
        return version.partition("-")[0] if version else None

    @property
    def fabric_manager(self) -> str | None:
        version = next((v for n, v in self.packages.items() if "fabricmanager" in n), None)
        return version.partition("-")[0] if version else None

    # the probe

    def _probe(self, arguments: list[str]) -> str:
        asked = next((a.partition("=")[2].split(",") for a in arguments if a.startswith("--sections=")), [])
        parts = {
            "driver": self._driver,
            "gpus": self._gpus,
            "packages": self._listed,
            "system": lambda: {"hostname": "gpu-0001", "kernel": KERNEL, "boot_id": self.boot_id},
            "pci": self._pci,
            "kernel_log": lambda: {"lines": [], "cursor": "1"},
        }
        document = {"version": 1, "at": 1796040000.5, "sections": {name: parts[name]() for name in asked}, "probe": {}}
        return f"=====gpufleet-probe-begin=====\n{json.dumps(document)}\n=====gpufleet-probe-end=====\n"

    def _driver(self) -> dict[str, object]:
        kernels = [
            {
                "version": kernel,
                "running": kernel == KERNEL,
                "headers": headers,
                "nvidia_module": "nvidia.ko" if self.modules_on_disk.get(kernel) else None,
            }
            for kernel, headers in self.kernels.items()
        ]
        none = {"unknown": "not there"}
        user, disk, manager = self.user_space, self.modules_on_disk.get(KERNEL), self.fabric_manager
        return {
            "loaded": {"version": self.loaded, "open": True} if self.loaded else none,
            "on_disk": {"version": disk} if disk else none,
            "user_space": {"version": user, "folders": {"/usr/lib": [user]}} if user else none,
            "fabric_manager": {"version": manager} if manager else none,
            "modules": {name: {"uses": 1, "holders": []} for name in self.modules},
            "kernels": kernels,
            "dkms": [],
            "secure_boot": self.secure_boot,
            "library_owner": next((n for n in self.packages if n.startswith("libnvidia-compute")), False),
            "installers": {"runfile": False, "cuda_runfile": False, "container": False},
        }

    def _gpus(self) -> dict[str, object]:
        if not self.loaded:
            return {"source": {"unknown": "no driver"}}
        if self.loaded != self.user_space:
            return {"source": {"unknown": "mismatch"}, "nvml": {"code": 18, "words": "Driver/library version mismatch"}}
        devices = [
            {
                "index": slot,
                "known": {
                    "uuid": gpu.uuid,
                    "product_name": "NVIDIA H100 80GB HBM3",
                    "persistence_mode": gpu.persistence,
                    "ecc_mode_current": gpu.ecc,
                    "ecc_mode_pending": gpu.ecc_pending,
                    "compute_mode": gpu.compute_mode,
                    "power_limit_watts": gpu.power_limit,
                    "mig_mode_current": gpu.mig_mode,
                    "mig_mode_pending": gpu.mig_mode,
                    "mig_instances": [{"profile": profile} for profile in gpu.mig],
                },
                "unknown": {},
            }
            for slot, gpu in enumerate(self.gpus)
        ]
        return {"source": "nvml", "count": len(devices), "devices": devices, "system": {"driver_version": self.loaded}}

    def _listed(self) -> dict[str, object]:
        return {
            "manager": "dpkg",
            "listed": ["*nvidia*"],
            "packages": [{"name": n, "version": v, "hold": n in self.held} for n, v in self.packages.items()],
            "services": {name: {"state": state} for name, state in self.services.items()},
            "updates": {"apt_periodic": {}},
            "egress": {"motd_news": "absent"},
        }

    def _pci(self) -> dict[str, object]:
        gpus = [
            {"address": f"0000:{n:02x}:00.0", "vendor": "0x10de", "class": "0x030200", "driver": self.bound}
            for n, _ in enumerate(self.gpus)
        ]
        return {"devices": [*gpus, {"address": "0000:50:00.0", "vendor": "0x10de", "class": "0x068000"}]}
