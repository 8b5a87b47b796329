"""What one simulated host is at this moment, and how its changes reach the truth log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from simulator.host.faults import DriverFaults
from simulator.host.packages import Packages, red_hat, ubuntu
from simulator.host.performance import Performance, Place
from simulator.host.releases import KERNEL, NEXT_KERNEL, RPM_KERNEL
from simulator.machine import Machine
from simulator.settings import GpuSettings, HostSettings

APT, DNF, RUNFILE = "apt", "dnf", "runfile"


def no_work() -> list[tuple[int, str]]:
    """A host on which no job runs."""
    return []


@dataclass(frozen=True)
class Site:
    """What the hosts of one fleet share. `units` are the rack units by node, where they are known."""

    seed: int = 7
    faults: DriverFaults = field(default_factory=DriverFaults)
    performance: Performance = field(default_factory=lambda: Performance(7))
    units: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Module:
    """A kernel module as it lies on the disk, for one kernel."""

    release: str
    open: bool = False


@dataclass
class Process:
    """A program that has devices open. `cuda` ones have nvidia_uvm in use as well."""

    pid: int
    command: str
    user: str
    unit: str = "-"
    devices: tuple[str, ...] = ()
    cuda: bool = False


class HostState:
    """Everything that the parts of a host share. `jobs` tells the scheduler's jobs there: id, and GPUs of this node."""

    def __init__(self, machine: Machine, site: Site, jobs: Callable[[], list[tuple[int, str]]] = no_work) -> None:
        self.machine = machine
        self.site = site
        self.faults = site.faults
        self.place = Place(machine.name, machine.rack, site.units.get(machine.name))
        self.scheduled = jobs
        name, faults = machine.name, site.faults
        self.manager = DNF if name in faults.dnf else RUNFILE if name in faults.runfile else APT
        self.kernel = RPM_KERNEL if self.manager == DNF else KERNEL
        self.kernels = {self.kernel: True}  # kernel → are its headers there?
        self.packages = self._first_packages()
        self.runfile_release = faults.installed if self.manager == RUNFILE else None
        self.dkms_tree: str | None = faults.installed  # the release whose sources DKMS has
        self.built = {self.kernel: Module(faults.installed)}
        self._add_kernels()
        self.settings = HostSettings(self._first_gpus())
        self.loaded: Module | None = Module(faults.installed)
        self.modules: list[str] = ["nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"]
        self.stray = self._first_stray()
        self.tools: dict[int, Process] = {}  # measurements that run
        self.kernel_log: list[str] = []
        self._next_pid = 3000 + sum(map(ord, name)) % 997
        self._told: tuple[str | None, ...] = self._parts()

    def _first_packages(self) -> Packages:
        if self.manager == DNF:
            return red_hat(self.faults.installed)
        release = self.faults.installed if self.manager == APT else None
        return ubuntu(release, self.machine.name in self.faults.hold_kernel)

    def _add_kernels(self) -> None:
        name = self.machine.name
        if self.manager != DNF and name in self.faults.new_kernel | self.faults.new_kernel_without_headers:
            headers = name in self.faults.new_kernel
            self.kernels[NEXT_KERNEL] = headers
            if headers:
                self.built[NEXT_KERNEL] = Module(self.faults.installed)

    def _first_gpus(self) -> list[GpuSettings]:
        wanted = self.faults.settings
        gpus = [GpuSettings() for _ in range(self.machine.gpus)]
        for gpu in gpus:
            gpu.power_limit_watts = wanted.power_limit_watts or gpu.power_limit_watts
            gpu.application_clocks_mhz = wanted.application_clocks_mhz or gpu.application_clocks_mhz
            gpu.compute_mode = wanted.compute_mode or gpu.compute_mode
            if wanted.ecc is not None:
                gpu.ecc = gpu.ecc_pending = wanted.ecc
        if wanted.mig and gpus:
            gpus[0].mig = gpus[0].mig_pending = True
            gpus[0].make_instances(list(wanted.mig))
        return gpus

    def _first_stray(self) -> list[Process]:
        if self.machine.name not in self.faults.stray_holder:
            return []
        devices = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
        return [Process(4121, "python3", "alice", "session-42.scope", devices, cuda=True)]

    @property
    def up_seconds(self) -> float:
        return max(0.0, self.machine.clock.now() - self.machine.last_boot)

    @property
    def user_space(self) -> str | None:
        """The release of the libraries that programs get."""
        return self.runfile_release or self.packages.release(
            "libnvidia-compute", "nvidia-driver-cuda-libs", "libnvidia-ml"
        )

    @property
    def fabric_manager(self) -> str | None:
        """The release of the fabric manager that lies on the disk; the runfile's host has a matching one."""
        return self.packages.release("nvidia-fabricmanager", "nvidia-fabric-manager") or self.runfile_release

    @property
    def on_disk(self) -> Module | None:
        """The module that the running kernel would load."""
        return self.built.get(self.kernel)

    @property
    def library_owner(self) -> str | None:
        """The package that libnvidia-ml belongs to; None where it belongs to none."""
        return self.packages.name_of("libnvidia-compute", "nvidia-driver-cuda-libs", "libnvidia-ml")

    @property
    def usable(self) -> bool:
        """Do the loaded module and the libraries fit?"""
        return self.loaded is not None and self.loaded.release == self.user_space

    def next_pid(self) -> int:
        self._next_pid += 7
        return self._next_pid

    def log(self, text: str, at: float | None = None) -> None:
        """A line of the kernel, at `at` seconds of its uptime."""
        self.kernel_log.append(f"[{self.up_seconds if at is None else at:12.6f}] {text}")

    def truth(self, event: str, **more: object) -> None:
        self.machine.truth.write(event, self.machine.name, self.machine.rack, **more)

    def _parts(self) -> tuple[str | None, ...]:
        disk = self.on_disk
        loaded = None if self.loaded is None else self.loaded.release
        return loaded, None if disk is None else disk.release, self.user_space, self.fabric_manager

    def tell_parts(self) -> None:
        """Write what the driver consists of now, where that is not what was written last."""
        parts = self._parts()
        if parts != self._told:
            self._told = parts
            names = ("module", "on_disk", "user_space", "fabric_manager")
            self.truth("driver_state", **dict(zip(names, parts, strict=True)))

    @contextmanager
    def settings_change(self, by: str) -> Iterator[None]:
        """Writes each setting that is another one at the end of the block than at its beginning."""
        before = [gpu.values() for gpu in self.settings.gpus]
        yield
        for slot, (gpu, old) in enumerate(zip(self.settings.gpus, before, strict=True)):
            for name, value in gpu.values().items():
                if value != old[name]:
                    self.truth("setting", gpu=slot, name=name, value=value, by=by)
