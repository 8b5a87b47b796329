"""The settings of a simulated host's GPUs: which there are, and which of them a reload or a boot loses."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

GPU_NAME = "NVIDIA H100 80GB HBM3"
POWER_LIMIT_WATTS = (200.0, 700.0)
APPLICATION_CLOCKS_MHZ = (2619, 1980)  # memory, graphics
# Name → id, compute slices, memory slices, multiprocessors. Source: NVIDIA's MIG user guide, H100 80GB.
MIG_PROFILES = {
    "1g.10gb": (19, 1, 1, 16),
    "1g.20gb": (15, 1, 2, 26),
    "2g.20gb": (14, 2, 2, 32),
    "3g.40gb": (9, 3, 4, 60),
    "4g.40gb": (5, 4, 4, 64),
    "7g.80gb": (0, 7, 8, 132),
}
_SLICES = (7, 8)


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A GPU instance with one compute instance that fills it."""

    id: int
    profile: str

    def uuid(self, gpu: str) -> str:
        return f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gpu} {self.id} {self.profile}')}"


@dataclass
class GpuSettings:
    """One GPU's modes. `ecc_pending` becomes `ecc` at the next reset or boot; `mig_pending` becomes `mig` then, too."""

    ecc: bool = True
    ecc_pending: bool = True
    persistence: bool = True
    compute_mode: str = "Default"
    power_limit_watts: float = POWER_LIMIT_WATTS[1]
    application_clocks_mhz: tuple[int, int] = APPLICATION_CLOCKS_MHZ
    locked_clocks_mhz: tuple[int, int] | None = None
    mig: bool = False
    mig_pending: bool = False
    instances: list[MigInstance] = field(default_factory=list)

    def values(self) -> dict[str, object]:
        """What counts as a setting, by the name that the truth log gives it."""
        return {
            "ecc": self.ecc,
            "persistence": self.persistence,
            "compute_mode": self.compute_mode,
            "power_limit_watts": self.power_limit_watts,
            "application_clocks_mhz": list(self.application_clocks_mhz),
            "locked_clocks_mhz": None if self.locked_clocks_mhz is None else list(self.locked_clocks_mhz),
            "mig_mode": self.mig,
            "mig_layout": sorted(one.profile for one in self.instances),
        }

    @property
    def clock_limit_mhz(self) -> int:
        """The highest clock that its settings allow."""
        locked = APPLICATION_CLOCKS_MHZ[1] if self.locked_clocks_mhz is None else self.locked_clocks_mhz[1]
        return min(locked, self.application_clocks_mhz[1], APPLICATION_CLOCKS_MHZ[1])

    def make_instances(self, profiles: list[str]) -> list[MigInstance] | None:
        """New MIG devices; None, and none made, where there is no room for all."""
        every = [*(one.profile for one in self.instances), *profiles]
        used = [sum(MIG_PROFILES[profile][kind] for profile in every) for kind in (1, 2)]
        if used[0] > _SLICES[0] or used[1] > _SLICES[1]:
            return None
        first = max((one.id for one in self.instances), default=0) + 1
        made = [MigInstance(first + number, profile) for number, profile in enumerate(profiles)]
        self.instances.extend(made)
        return made

    def set_mig(self, on: bool) -> None:
        self.mig = self.mig_pending = on
        if not on:
            self.instances.clear()

    def module_gone(self) -> None:
        """What the driver keeps only while it is loaded is back at its default."""
        self.persistence = False
        self.compute_mode = "Default"
        self.power_limit_watts = POWER_LIMIT_WATTS[1]
        self.application_clocks_mhz = APPLICATION_CLOCKS_MHZ
        self.locked_clocks_mhz = None
        self.instances.clear()
        self.mig = self.mig_pending

    def reset(self) -> None:
        """A reset of the GPU, by itself or in a boot: modes that waited are there, MIG devices are gone."""
        self.ecc = self.ecc_pending
        self.instances.clear()
        self.mig = self.mig_pending

    def lose(self, name: str) -> None:
        """What a faulty driver makes of a setting."""
        if name == "ecc":
            self.ecc = self.ecc_pending = False
        elif name == "persistence":
            self.persistence = False
        elif name == "compute_mode":
            self.compute_mode = "Default"
        elif name == "power_limit_watts":
            self.power_limit_watts = 500.0
        elif name == "application_clocks_mhz":
            self.application_clocks_mhz = (2619, 1410)
        elif name == "mig_mode":
            self.set_mig(False)


@dataclass
class HostSettings:
    """All GPUs of a host, in slot order."""

    gpus: list[GpuSettings]
