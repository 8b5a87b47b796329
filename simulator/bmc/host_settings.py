"""Boot override, BIOS attributes and secure boot: what is set now, and what the next host start applies."""

from __future__ import annotations

from collections.abc import Mapping

BiosValue = str | int | bool

BOOT_TARGETS = ("None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb", "UefiHttp")
BOOT_ENABLED = ("Disabled", "Once", "Continuous")
BOOT_MODES = ("UEFI", "Legacy")

DEFAULT_BIOS: Mapping[str, BiosValue] = {
    "AcsControl": "Enabled",
    "IommuMode": "Passthrough",
    "LogicalProcessor": "Enabled",
    "NumaNodesPerSocket": "NPS4",
    "PcieMaxReadRequest": 4096,
    "PcieRelaxedOrdering": True,
    "PowerProfile": "Performance",
    "Sriov": "Enabled",
    "TurboBoost": "Enabled",
    "VirtualizationTechnology": "Enabled",
    "WorkloadProfile": "HPC",
}


class HostSettings:
    """The settings of one host. Dictionaries stay the shared defaults until something is changed."""

    def __init__(self) -> None:
        self.boot: dict[str, str] = {"Enabled": "Disabled", "Target": "None", "Mode": "UEFI"}
        self.bios: Mapping[str, BiosValue] = DEFAULT_BIOS
        self.pending_bios: Mapping[str, BiosValue] = {}
        self.secure_boot_enable = True
        self.secure_boot_current = True
        self.last_boot_target = "None"

    def host_started(self) -> None:
        """Apply what waited for a host start; a one-time boot override is used up."""
        self.bios = {**self.bios, **self.pending_bios} if self.pending_bios else self.bios
        self.pending_bios = {}
        self.secure_boot_current = self.secure_boot_enable
        self.last_boot_target = self.boot["Target"] if self.boot["Enabled"] != "Disabled" else "None"
        if self.boot["Enabled"] == "Once":
            self.boot |= {"Enabled": "Disabled", "Target": "None"}

    def set_pending_bios(self, attributes: Mapping[str, object]) -> None:
        """Keep attributes for the next start. Raises ValueError for an unknown one or another type."""
        checked: dict[str, BiosValue] = {}
        for name, value in attributes.items():
            if name not in self.bios:
                raise ValueError(f"the BIOS has no attribute {name}")
            if not isinstance(value, str | int) or type(value) is not type(self.bios[name]):
                raise ValueError(f"the attribute {name} does not take {value!r}")
            checked[name] = value
        self.pending_bios = {**self.pending_bios, **checked}

    def set_boot(self, change: Mapping[str, object]) -> None:
        """Change the boot override by its Redfish properties. Raises ValueError for what it does not know."""
        choices = {"Enabled": BOOT_ENABLED, "Target": BOOT_TARGETS, "Mode": BOOT_MODES}
        new = dict(self.boot)
        for name, value in change.items():
            short = name.removeprefix("BootSourceOverride")
            if not name.startswith("BootSourceOverride") or short not in choices:
                raise ValueError(f"Boot has no writable property {name}")
            if not isinstance(value, str) or value not in choices[short]:
                raise ValueError(f"{name} must be one of {', '.join(choices[short])}, not {value!r}")
            new[short] = value
        self.boot = new
