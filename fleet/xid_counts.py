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

    def without(self, counted: XidCounts) -> XidCounts:
        """What is left when `counted` of them were counted before."""
        left = {gpu: max(0, count - counted.by_gpu.get(gpu, 0)) for gpu, count in self.by_gpu.items()}
        return XidCounts(max(0, self.total - counted.total), left)


def count_xids(reading: NodeReading, since: str | None = None) -> XidCounts | None:
    """The Xids of the reading's log lines, each line once; None where they are not all that came since the last one.

    That is where the log was not read, where lines of it are left out, and where the whole log of the boot came again
    behind the cursor `since`, as from another source.
    """
    log = reading.kernel_log
    if log is None or log.missed or log.omitted:
        return None
    if since is not None and not log.continued and _boot(since) == _boot(log.cursor):
        return None
    counts: dict[str, int] = {}
    for event in read_kernel_log("\n".join(log.lines)).xids if log.lines else ():
        counts[event.device] = counts.get(event.device, 0) + event.count
    return XidCounts(sum(counts.values()), counts)


def _boot(cursor: str | None) -> str | None:
    """The boot of a cursor `SOURCE:BOOT:POSITION`."""
    parts = (cursor or "").split(":", 2)
    return parts[1] if len(parts) == 3 else None
