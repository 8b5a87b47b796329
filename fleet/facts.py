"""What is known of a node at one moment, flat: names for what seldom changes, and numbers for what always does.

The names are the keys of baselines, drift and history:

  of the node   health (ok, or the worst severity and the codes),
                driver.loaded, driver.on_disk, driver.user_space, driver.origin, kernel.running, os.release,
                fabric_manager.version, container_toolkit.version, secure_boot, gpu.count,
                service.<unit> (active, inactive, failed, absent), package.<name>, packages.listed (patterns that
                were looked for), updates.unattended (on, off), egress.<way>, firmware.<component>,
                firmware_staged.<component>, bios.<attribute>, bios.version, system.serial, system.model,
                probe.state, bmc.state …
  of a GPU      health, model, serial, uuid, part_number, pci_address, vbios, inforom, ecc_mode, ecc_mode_pending,
                mig_mode, mig_mode_pending, persistence,
                compute_mode, power_limit_watts, recovery_action, fabric_state …

A fact that could not be read is not absent: it stands in `unknown` with the reason; "*" there stands for every
other fact that the source told before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PartFacts:
    """One part. `kind` is gpu, nvswitch, nic, bmc, dimm or disk; `slot` is its place in the node (PCI address).

    `serial` is None where the part does not tell it: its history then follows `uuid`, else the slot.
    `numbers` are readings such as temperature_celsius, power_watts, ecc_uncorrected: None is "not read".
    """

    kind: str
    slot: str
    serial: str | None
    uuid: str | None
    facts: Mapping[str, str]
    unknown: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What its history follows: serial, else UUID; a part without either is its slot's."""
        return f"{self.kind}:{self.serial or self.uuid or 'slot ' + self.slot}"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Everything read of one node at `at` (UTC). `source` is probe, bmc, scheduler or file."""

    node: str
    at: datetime
    source: str
    facts: Mapping[str, str]
    unknown: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    parts: tuple[PartFacts, ...] = ()
