"""How many Xids a kernel log told since it was read before: the number from which days and months are counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.node_reading import NodeReading
from fleet.readers.kernel_log import read_kernel_log
from fleet.readers.pci_address import gpu_address

XID_COUNT = "xid_count"


@dataclass(frozen=True, slots=True)
class XidCounts:
    """By GPU address without its function ("0000:3b:00"); `total` has those of no known GPU too."""

    total: int = 0
    by_gpu: Mapping[str, int] = field(default_factory=dict)

    def of(self, pci_address: str | None) -> int | None:
        """A GPU's count; None for one without an address."""
        address = gpu_address(pci_address or "")
        return None if address is None else self.by_gpu.get(address, 0)


def count_xids(reading: NodeReading) -> XidCounts | None:
    """The Xids of the reading's log lines, each line once; None where the log was not read."""
    if reading.kernel_log is None:
        return None
    counts: dict[str, int] = {}
    for event in read_kernel_log("\n".join(reading.kernel_log.lines)).xids if reading.kernel_log.lines else ():
        counts[event.device] = counts.get(event.device, 0) + event.count
    return XidCounts(sum(counts.values()), counts)
