"""The fleet file's `drivers`: how a node's GPU driver is changed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from fleet.setting_types import Seconds, Strict

UnitName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9:_.@\\-]*$")]

HOLDERS = (
    *("dcgm-exporter", "nvidia-dcgm-exporter", "nvidia_gpu_exporter", "telegraf", "gpud", "fleetint", "nvsm"),
    *("nvidia-dcgm", "dcgm", "nvidia-mps", "nvidia-imex", "nvidia-fabricmanager", "nvidia-persistenced"),
)
"""Services that hold GPUs, in the order in which they are stopped: what asks before what is asked."""

UPGRADERS = (
    *("unattended-upgrades.service", "apt-daily.timer", "apt-daily.service"),
    *("apt-daily-upgrade.timer", "apt-daily-upgrade.service", "dnf-automatic.timer", "dnf-automatic.service"),
    *("dnf-automatic-install.timer", "dnf-automatic-install.service", "packagekit.service"),
)
"""What changes packages by itself."""


class FreeSpace(Strict):
    """What must be free before packages are changed, in MiB."""

    usr_mib: int = Field(2048, ge=0)
    boot_mib: int = Field(256, ge=0, description="a new initramfs is written beside the old one")
    var_mib: int = Field(2048, ge=0, description="downloaded packages, and DKMS' builds")


class DriverSettings(Strict):
    sudo: bool = Field(False, description="put `sudo -n` before commands that need root; false: the login is root")
    holders: tuple[UnitName, ...] = Field(
        HOLDERS, description="services to stop before the driver is unloaded, in order"
    )
    stop_if_holding: tuple[UnitName, ...] = Field(
        ("slurmd",), description="services that are stopped only where they are seen to hold a GPU"
    )
    upgraders: tuple[UnitName, ...] = Field(UPGRADERS, description="masked until the driver is changed")
    unload_attempts: int = Field(5, ge=1, le=60, description="then the node is blocked, and its holders are named")
    unload_pause_seconds: Seconds = Field(10.0, description="between two attempts to unload")
    lock_seconds: Seconds = Field(900.0, description="another package manager may work this long")
    install_seconds: Seconds = Field(3600.0, description="one install; DKMS builds a module for every kernel in it")
    install_attempts: int = Field(2, ge=1, le=10, description="tries of one install before the node has failed")
    poll_seconds: float = Field(5.0, gt=0, le=600, description="between two looks at a job on a host")
    reach_seconds: Seconds = Field(
        300.0, description="a host, or a repository that it fetches from, may be out of reach this long during a change"
    )
    expected_boot_seconds: Seconds = Field(300.0, description="what a reboot usually takes")
    probe_seconds: float = Field(30.0, gt=0, le=600, description="one reading of the node")
    free: FreeSpace = FreeSpace()
    lock_gpu_clocks_mhz: tuple[int, int] | None = Field(
        None, description="[lowest, highest] to lock after each change, as no driver tells what was locked before"
    )
    allow_end_of_life: bool = Field(False, description="true: also a branch that NVIDIA no longer supports")
    require_digests: bool = Field(True, description="false: packages without a SHA-256 in the plan may be installed")
    require_way_back: bool = Field(True, description="false: also where the former driver can't be installed again")
    egress: Literal["ignore", "report", "refuse"] = Field(
        "report", description="packages and settings by which a node reports to somebody outside"
    )
