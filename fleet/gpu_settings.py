"""The settings of a node's GPUs that a driver's install may lose: what they are, what was lost, how they are set.

The commands are nvidia-smi's (its manual, version 580). A setting that is None is not known and never "lost".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fleet.gpu import GpuReading
from fleet.setting_types import Strict

_COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
_WATTS_APART = 1.0  # a limit is set in whole watts
_SLICES = re.compile(r"^([0-9]+)g\.")
_GI_PROFILE = re.compile(r"^[0-9]+g\.[0-9]+gb(?:[+-][a-z.]+)*$")


class GpuSettings(Strict):
    """One GPU's. `uuid` names it; `mig` are the profiles of its MIG devices, biggest first, () for none.

    `clocks_mhz` are the application clocks (graphics, memory).
    """

    index: int
    uuid: str | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    compute_mode: int | None = None
    power_limit_watts: float | None = None
    power_default_watts: float | None = None
    clocks_mhz: tuple[int, int] | None = None
    mig_mode: bool | None = None
    mig_pending: bool | None = None
    mig: tuple[str, ...] | None = None


class NodeGpuSettings(Strict):
    """All GPUs of a node in slot order; empty where they could not be read."""

    gpus: tuple[GpuSettings, ...] = ()

    def of(self, gpu: GpuSettings) -> GpuSettings | None:
        """The same GPU here: by UUID where both have one, else by index."""
        if gpu.uuid is not None and any(one.uuid is not None for one in self.gpus):
            return next((one for one in self.gpus if one.uuid == gpu.uuid), None)
        return next((one for one in self.gpus if one.index == gpu.index), None)


@dataclass(frozen=True, slots=True)
class LostSetting:
    """A setting that is not as it was. `setting` is a field of GpuSettings, or "gpu" for one that is not seen.

    `waits` says that it is set and waits for a reset of the GPU.
    """

    gpu: int
    setting: str
    before: str
    now: str
    waits: bool = False

    def __str__(self) -> str:
        tail = " (set, waits for a reset)" if self.waits else ""
        return f"gpu {self.gpu}: {self.setting} was {self.before}, is {self.now}{tail}"


def settings_of(gpus: Iterable[GpuReading] | None) -> NodeGpuSettings:
    """The settings in the probe's reading; GPUs without an index or a setting that could be read are left out."""
    found = [_of_gpu(gpu) for gpu in gpus or () if gpu.index is not None]
    return NodeGpuSettings(gpus=tuple(sorted(found, key=lambda gpu: gpu.index)))


def _of_gpu(gpu: GpuReading) -> GpuSettings:
    graphics, memory = gpu.clock_application_graphics_mhz, gpu.clock_application_memory_mhz
    limit = gpu.power_limit_requested_watts
    assert gpu.index is not None
    return GpuSettings(
        index=gpu.index,
        uuid=gpu.uuid,
        persistence=gpu.persistence_mode,
        ecc=gpu.ecc_mode_current,
        ecc_pending=gpu.ecc_mode_pending,
        compute_mode=read_compute_mode(gpu.compute_mode),
        power_limit_watts=gpu.power_limit_watts if limit is None else limit,
        power_default_watts=gpu.power_limit_default_watts,
        clocks_mhz=None if graphics is None or memory is None else (graphics, memory),
        mig_mode=gpu.mig_mode_current,
        mig_pending=gpu.mig_mode_pending,
        mig=_layout(gpu),
    )


def read_compute_mode(text: str | None) -> int | None:
    """nvidia-smi's number of a compute mode, however it is spelled ("Exclusive_Process", "E. Process", "3")."""
    plain = re.sub(r"[^a-z0-9]+", "_", (text or "").strip().lower()).strip("_")
    plain = {"e_process": "exclusive_process", "e_thread": "exclusive_thread"}.get(plain, plain)
    if plain.isdigit() and int(plain) in _COMPUTE_MODES.values():
        return int(plain)
    return _COMPUTE_MODES.get(plain)


def _layout(gpu: GpuReading) -> tuple[str, ...] | None:
    """The profiles of its MIG devices; None where they are not known."""
    if gpu.mig_mode_current is False:
        return ()
    if gpu.mig_instances is None or any(one.profile is None for one in gpu.mig_instances):
        return None
    return _biggest_first(one.profile.removeprefix("MIG ").strip() for one in gpu.mig_instances if one.profile)


def _biggest_first(profiles: Iterable[str]) -> tuple[str, ...]:
    """The order in which they are created: small ones first would leave no place for a big one."""

    def size(profile: str) -> int:
        match = _SLICES.match(profile)
        return int(match[1]) if match else 0

    return tuple(sorted(profiles, key=lambda profile: (-size(profile), profile)))


def cannot_be_put_back(settings: NodeGpuSettings) -> tuple[str, ...]:
    """Why parts of these settings could not be restored: compute instances that do not fill their GPU instance."""
    return tuple(
        f"gpu {gpu.index}: MIG device {profile} is no whole GPU instance"
        for gpu in settings.gpus
        for profile in gpu.mig or ()
        if not _GI_PROFILE.match(profile)
    )


def lost(before: NodeGpuSettings, after: NodeGpuSettings) -> tuple[LostSetting, ...]:
    """What is not as it was, GPU by GPU. What is not known on either side is not among it, a missing GPU is."""
    found: list[LostSetting] = []
    for was in before.gpus:
        now = after.of(was)
        if now is None:
            found.append(LostSetting(was.index, "gpu", was.uuid or "there", "not seen"))
        else:
            found.extend(_lost_of(was, now))
    return tuple(found)


def unknown_since(before: NodeGpuSettings, after: NodeGpuSettings) -> tuple[str, ...]:
    """What was known before and cannot be read now, as "gpu 3: power_limit_watts"."""
    names = ("persistence", "ecc", "compute_mode", "power_limit_watts", "mig_mode", "mig")
    return tuple(
        f"gpu {was.index}: {name}"
        for was in before.gpus
        if (now := after.of(was)) is not None
        for name in names
        if getattr(was, name) is not None and getattr(now, name) is None
    )


def _lost_of(was: GpuSettings, now: GpuSettings) -> Iterator[LostSetting]:
    slot = now.index
    if _differ(was.persistence, now.persistence):
        yield LostSetting(slot, "persistence", _word(was.persistence), _word(now.persistence))
    if _differ(was.ecc, now.ecc):
        yield LostSetting(slot, "ecc", _word(was.ecc), _word(now.ecc), waits=now.ecc_pending == was.ecc)
    if _differ(was.compute_mode, now.compute_mode):
        yield LostSetting(slot, "compute_mode", str(was.compute_mode), str(now.compute_mode))
    limit, limit_now = was.power_limit_watts, now.power_limit_watts
    if limit is not None and limit_now is not None and abs(limit - limit_now) >= _WATTS_APART:
        yield LostSetting(slot, "power_limit_watts", f"{limit:g} W", f"{limit_now:g} W")
    if _differ(was.clocks_mhz, now.clocks_mhz):
        yield LostSetting(slot, "clocks_mhz", _clocks(was.clocks_mhz), _clocks(now.clocks_mhz))
    if _differ(was.mig_mode, now.mig_mode):
        waits = now.mig_pending == was.mig_mode
        yield LostSetting(slot, "mig_mode", _word(was.mig_mode), _word(now.mig_mode), waits=waits)
    elif was.mig is not None and now.mig is not None and Counter(was.mig) != Counter(now.mig):
        yield LostSetting(slot, "mig", _listed(was.mig), _listed(now.mig))


def commands_for(before: NodeGpuSettings, after: NodeGpuSettings) -> tuple[tuple[str, ...], ...]:
    """The nvidia-smi commands that set what was lost, in the order in which they work; what waits is not set again.

    Modes that need a reset come first. MIG devices are only created, never destroyed: where there are others than
    before, `lost` goes on to name them.
    """
    found: list[tuple[int, tuple[str, ...]]] = []
    for was in before.gpus:
        now = after.of(was)
        if now is not None:
            for one in _lost_of(was, now):
                found.extend(() if one.waits else _commands(one.setting, was, now))
    return tuple(command for _, command in sorted(found, key=lambda pair: pair[0]))


def _commands(setting: str, was: GpuSettings, now: GpuSettings) -> Iterator[tuple[int, tuple[str, ...]]]:
    smi = ("nvidia-smi", "-i", str(now.index))
    if setting == "ecc":
        yield 0, (*smi, "-e", "1" if was.ecc else "0")
    elif setting == "mig_mode":
        yield 1, (*smi, "-mig", "1" if was.mig_mode else "0")
    elif setting == "persistence":
        yield 2, (*smi, "-pm", "1" if was.persistence else "0")
    elif setting == "compute_mode":
        yield 3, (*smi, "-c", str(was.compute_mode))
    elif setting == "power_limit_watts":
        yield 4, (*smi, "-pl", f"{was.power_limit_watts:g}")
    elif setting == "clocks_mhz" and was.clocks_mhz is not None:
        graphics, memory = was.clocks_mhz
        yield 5, (*smi, "-ac", f"{memory},{graphics}")
    elif setting == "mig":
        missing = _biggest_first((Counter(was.mig) - Counter(now.mig)).elements())
        if missing:
            yield 6, ("nvidia-smi", "mig", "-i", str(now.index), "-cgi", ",".join(missing), "-C")


def _differ(was: object, now: object) -> bool:
    return was is not None and now is not None and was != now


def _word(value: bool | None) -> str:
    return "unknown" if value is None else "enabled" if value else "disabled"


def _clocks(clocks: tuple[int, int] | None) -> str:
    return "unknown" if clocks is None else f"{clocks[0]} MHz, memory {clocks[1]} MHz"


def _listed(profiles: tuple[str, ...]) -> str:
    return " ".join(profiles) or "no MIG devices"
