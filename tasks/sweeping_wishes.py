"""What a sweep is to look for: the BIOS attributes that a baseline names, and the serials that the fleet file says."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from adapters.baseline_file import BASELINE, read_baseline_file
from blocks.fleet import Fleet
from fleet.config import FleetSpec
from fleet.errors import ConfigurationError


class BiosWishes:
    """The attributes by pool, from the baseline as it is now; a broken one leaves the last good one in force."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._lock = threading.Lock()  # a sweep's threads ask at once, and none may get half a reading
        self._read: tuple[int, FleetSpec] | None = None
        self._names: Mapping[str, tuple[str, ...]] = {}

    def of(self, pool: str) -> tuple[str, ...]:
        """Empty where the pool's baseline names none, or there is no baseline."""
        path, spec = self._fleet.folder() / BASELINE, self._fleet.spec()
        with self._lock:
            try:
                modified = path.stat().st_mtime_ns
            except OSError:
                return ()
            if self._read is None or self._read[0] != modified or self._read[1] is not spec:
                self._read = modified, spec
                with suppress(ConfigurationError):  # whoever judges drift says what is wrong with it
                    pools = read_baseline_file(path, spec).pools
                    self._names = {name: tuple(wanted.bios) for name, wanted in pools.items()}
            return self._names.get(pool, ())


@dataclass(frozen=True, slots=True)
class Serials:
    """`owners` are nodes by their serial in lower case."""

    by_node: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)


class WrittenSerials:
    """The serials of the fleet file as it is now."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._read: tuple[FleetSpec, Serials] | None = None

    def now(self) -> Serials:
        spec = self._fleet.spec()
        read = self._read
        if read is None or read[0] is not spec:
            by_node = {entry.name: entry.serial for entry in spec.nodes if entry.serial is not None}
            read = self._read = spec, Serials(by_node, {serial.casefold(): node for node, serial in by_node.items()})
        return read[1]
