"""What the software and the settings of a simulated host are, and how an administrator changes them."""

from __future__ import annotations

from dataclasses import dataclass, field

KERNEL = "5.15.0-105-generic"
DRIVER = "550.54.15"
GPU_NAME = "NVIDIA H100 80GB HBM3"
POWER_LIMIT_WATTS = (200.0, 700.0)


def _services() -> dict[str, str]:
    active = ("nvidia-persistenced", "nvidia-fabricmanager", "slurmd", "nvidia-dcgm")
    return dict.fromkeys(active, "active") | {"unattended-upgrades": "inactive"}


@dataclass
class GpuSettings:
    """One GPU's modes. `ecc_pending` becomes `ecc` at the next boot."""

    ecc: bool = True
    ecc_pending: bool = True
    persistence: bool = True
    compute_mode: str = "Default"
    power_limit_watts: float = POWER_LIMIT_WATTS[1]


@dataclass
class HostSettings:
    """One host. Settings that the driver keeps only while it is loaded are back at their defaults after a boot."""

    gpus: list[GpuSettings]
    driver: str = DRIVER
    kernel: str = KERNEL
    services: dict[str, str] = field(default_factory=_services)

    def booted(self) -> None:
        """What a boot brings: pending modes, default power limits."""
        for gpu in self.gpus:
            gpu.ecc = gpu.ecc_pending
            gpu.power_limit_watts = POWER_LIMIT_WATTS[1]

    def nvidia_smi(self, options: list[str]) -> tuple[int, str] | None:
        """`-pl`, `-pm`, `-e` and `-c`, for all GPUs or `-i N`; None where the options ask for nothing of this kind."""
        given = dict(zip(options[::2], options[1::2], strict=False))
        chosen = self.gpus
        if "-i" in given:
            index = given["-i"]
            if not index.isdigit() or int(index) >= len(self.gpus):
                return 6, "No devices were found\n"
            chosen = [self.gpus[int(index)]]
        if not given.get("-pl", "0").replace(".", "", 1).isdigit():
            return 2, f"Invalid power limit: {given['-pl']}\n"
        for option, value in given.items():
            if option != "-i" and not self._set(chosen, option, value):
                return None
        return (0, "All done.\n") if any(option != "-i" for option in given) else None

    def systemctl(self, verb: str, unit: str) -> tuple[int, str]:
        """start, stop and is-active."""
        name = unit.removesuffix(".service")
        if name not in self.services:
            return 5, f"Failed to {verb} {unit}: Unit {unit} not loaded.\n"
        if verb == "is-active":
            return (0 if self.services[name] == "active" else 3), f"{self.services[name]}\n"
        self.services[name] = {"start": "active", "restart": "active"}.get(verb, "inactive")
        return 0, ""

    def _set(self, gpus: list[GpuSettings], option: str, value: str) -> bool:
        for gpu in gpus:
            if option == "-pl":
                gpu.power_limit_watts = min(max(float(value), POWER_LIMIT_WATTS[0]), POWER_LIMIT_WATTS[1])
            elif option == "-pm":
                gpu.persistence = value in ("1", "ENABLED")
            elif option == "-e":
                gpu.ecc_pending = value in ("1", "ENABLED")
            elif option == "-c":
                gpu.compute_mode = {"0": "Default", "2": "Prohibited", "3": "Exclusive_Process"}.get(value, value)
            else:
                return False
        return True
