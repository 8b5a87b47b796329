"""Who holds a node's GPUs: which of them we know and may stop, and the words for those that we may not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.node_reading import NodeReading

UNLOAD_ORDER = ("nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm", "nvidia")
_ATOP = ("gdrdrv", "nvidia_fs", "nv_peer_mem")  # modules of others that sit on the driver and can be put back
_CONTAINER = re.compile(r"(docker|cri-containerd|crio|libpod|containerd|podman)[-:]([0-9a-f]{12,64})")
_COMM_LENGTH = 15  # what the kernel keeps of a command's name


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has a GPU's device open. `unit` is its systemd unit, "" where it has none."""

    pid: int
    command: str
    user: str
    unit: str
    device: str

    @property
    def container(self) -> str | None:
        """The container that it runs in, as runtime and short id."""
        found = _CONTAINER.search(self.unit)
        return f"{found[1]} {found[2][:12]}" if found else None

    def __str__(self) -> str:
        where = f"container {self.container}" if self.container else self.unit or "no unit"
        return f"pid {self.pid} ({self.command}) of {self.user}, {where}, holds {self.device}"


def read_holders(text: str) -> tuple[Holder, ...]:
    """Lines of PID, command, user, unit or "-", device, tab separated; lines of another shape are left out."""
    found: dict[int, Holder] = {}
    for line in text.replace("\r", "").splitlines():
        fields = line.split("\t")
        if len(fields) < 5 or not re.fullmatch(r"\s*[0-9]{1,10}\s*", fields[0]):
            continue
        pid = int(fields[0])
        command, user, unit, device = (field.strip() for field in fields[1:5])
        found.setdefault(pid, Holder(pid, command or "?", user or "?", "" if unit == "-" else unit, device or "?"))
    return tuple(found[pid] for pid in sorted(found))


def unit_of(holder: Holder, known: Iterable[str]) -> str | None:
    """The unit among `known` ("nvidia-dcgm", "slurmd") that this process belongs to; None: not ours to stop.

    By its unit; by its command's name only where it has no unit and no container.
    """
    names = {name.removesuffix(".service"): name for name in known}
    plain = holder.unit.removesuffix(".service").rpartition("/")[2]
    if plain in names:
        return names[plain]
    if holder.unit:
        return None
    return next((name for short, name in names.items() if short[:_COMM_LENGTH] == holder.command[:_COMM_LENGTH]), None)


def foreign(holders: Iterable[Holder], known: Iterable[str]) -> tuple[Holder, ...]:
    """Those that nobody of ours may stop."""
    units = tuple(known)
    return tuple(holder for holder in holders if unit_of(holder, units) is None)


def loaded_modules(reading: NodeReading) -> tuple[str, ...] | None:
    """NVIDIA's loaded modules and what sits on them, in the order in which they are unloaded; None: not known."""
    modules = reading.driver.modules
    if modules is None:
        return None
    above = dict.fromkeys(
        name for name in (*_ATOP, *atop_of(reading)) if name in _ATOP and name in {*modules, *atop_of(reading)}
    )
    return (*above, *(one for one in UNLOAD_ORDER if one in modules))


def atop_of(reading: NodeReading) -> tuple[str, ...]:
    """Modules that use NVIDIA's and are none of its own."""
    section = reading.sections.get("driver", {}).get("modules")
    found: list[str] = []
    for name, told in section.items() if isinstance(section, dict) else ():
        holders = told.get("holders") if isinstance(told, dict) else None
        if name in UNLOAD_ORDER and isinstance(holders, list):
            found += [one for one in holders if isinstance(one, str) and one not in UNLOAD_ORDER]
    return tuple(dict.fromkeys(found))


def blocked_text(said: str, holders: Iterable[Holder], atop: Iterable[str], uses: int | None) -> str:
    """Why the driver cannot be unloaded, with everybody who is in the way."""
    named = [str(holder) for holder in holders] + [f"the kernel module {name} uses it" for name in atop]
    if not named:
        count = "" if uses is None else f" ({uses} uses)"
        named = [
            f"no process holds a device of it and the kernel says that it is in use{count}: a stuck process, or a mount"
        ]
    return f"the driver cannot be unloaded: {said or 'in use'}; " + "; ".join(named[:8])
