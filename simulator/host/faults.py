"""The part `drivers` of a faults file: what is wrong with driver releases, and with hosts where drivers are changed.

    drivers:
      "580.65.06": {all_reduce: -0.05, xid_per_hour: 0.02, settings_lost: [power_limit_watts]}
      stray_holder: "gpu-[0003-0004]"
      does_not_load: [gpu-0007]
      settings: {power_limit_watts: 650, application_clocks_mhz: [2619, 1755]}

A key that is a release says what that release does:

| key | what |
|---|---|
| gemm, hbm, host_device, all_reduce | the measure's change as a share: -0.05 is 5 % slower |
| heat_celsius | GPUs run so much hotter under load |
| xid_per_hour, xid | a node's mean number of Xids in an hour, and which (119) |
| settings_lost | what its first load after an install sets wrongly: settings by their name in the truth log |
| does_not_load, dkms_fails, no_boot | nodes on which its module is refused, is not built, or whose next boot hangs |

Nodes are a pattern ("gpu-[0001-0003]"), a list of patterns, or a share that is drawn by the fleet's seed. Other keys
name nodes: stray_holder (a person's process has GPUs open), hold_kernel (its kernel is held), new_kernel and
new_kernel_without_headers (another kernel waits for a boot), secure_boot (refuses modules that are not signed),
disk_full, apt_busy (an automatic upgrade holds dpkg's lock for the first half hour), wrong_digest (its repository
offers other files), dnf and runfile (how its driver was installed), does_not_load, dkms_fails and no_boot (with any
release but the first). `settings` is how the GPUs are set at the start, `installed` the release that they have.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Literal, TypeVar

from pydantic import Field, ValidationError

from fleet.errors import ConfigurationError
from fleet.setting_types import Strict
from simulator.faults import expand_nodes, nearest, section
from simulator.host.releases import FIRST, RELEASES

Nodes = str | tuple[str, ...] | Annotated[float, Field(ge=0, le=1)]
SettingName = Literal["persistence", "ecc", "compute_mode", "power_limit_watts", "application_clocks_mhz", "mig_mode"]
Effect = Annotated[float, Field(gt=-1, lt=1)]
_RELEASE = re.compile(r"\d{3}(?:\.\d+){1,2}")
NOBODY: frozenset[str] = frozenset()
_Keys = TypeVar("_Keys", bound=Strict)


class FleetSettings(Strict):
    """How the GPUs of the fleet are set at the start. Clocks are (memory, graphics), `mig` the profiles of GPU 0."""

    power_limit_watts: float | None = Field(None, ge=200, le=700)
    application_clocks_mhz: tuple[int, int] | None = None
    compute_mode: Literal["Default", "Prohibited", "Exclusive_Process"] | None = None
    ecc: bool | None = None
    mig: tuple[str, ...] = ()


class _ReleaseKeys(Strict):
    gemm: Effect = 0.0
    hbm: Effect = 0.0
    host_device: Effect = 0.0
    all_reduce: Effect = 0.0
    heat_celsius: float = Field(0.0, ge=0, le=60)
    xid_per_hour: float = Field(0.0, ge=0)
    xid: int = Field(119, ge=1)
    settings_lost: tuple[SettingName, ...] = ()
    does_not_load: Nodes = ()
    dkms_fails: Nodes = ()
    no_boot: Nodes = ()


class _HostKeys(Strict):
    stray_holder: Nodes = ()
    hold_kernel: Nodes = ()
    new_kernel: Nodes = ()
    new_kernel_without_headers: Nodes = ()
    secure_boot: Nodes = ()
    disk_full: Nodes = ()
    apt_busy: Nodes = ()
    wrong_digest: Nodes = ()
    dnf: Nodes = ()
    runfile: Nodes = ()
    does_not_load: Nodes = ()
    dkms_fails: Nodes = ()
    no_boot: Nodes = ()
    settings: FleetSettings = FleetSettings()
    installed: str = FIRST


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with one release. `effects` has the measures that it changes, as shares."""

    effects: Mapping[str, float] = field(default_factory=dict)
    heat_celsius: float = 0.0
    xid_per_hour: float = 0.0
    xid: int = 119
    settings_lost: tuple[str, ...] = ()
    does_not_load: frozenset[str] = NOBODY
    dkms_fails: frozenset[str] = NOBODY
    no_boot: frozenset[str] = NOBODY


_SOUND = Flaw()


@dataclass(frozen=True, slots=True)
class DriverFaults:
    """The whole section, its nodes by name. Made by `parse_driver_faults`."""

    flaws: Mapping[str, Flaw] = field(default_factory=dict)
    stray_holder: frozenset[str] = NOBODY
    hold_kernel: frozenset[str] = NOBODY
    new_kernel: frozenset[str] = NOBODY
    new_kernel_without_headers: frozenset[str] = NOBODY
    secure_boot: frozenset[str] = NOBODY
    disk_full: frozenset[str] = NOBODY
    apt_busy: frozenset[str] = NOBODY
    wrong_digest: frozenset[str] = NOBODY
    dnf: frozenset[str] = NOBODY
    runfile: frozenset[str] = NOBODY
    does_not_load: frozenset[str] = NOBODY
    dkms_fails: frozenset[str] = NOBODY
    no_boot: frozenset[str] = NOBODY
    settings: FleetSettings = field(default_factory=FleetSettings)
    installed: str = FIRST

    def flaw(self, release: str) -> Flaw:
        """What is wrong with `release`; nothing for one that is not named."""
        return self.flaws.get(release, _SOUND)

    def refuses_to_load(self, node: str, release: str) -> bool:
        return node in self.flaw(release).does_not_load or (node in self.does_not_load and release != self.installed)

    def fails_to_build(self, node: str, release: str) -> bool:
        return node in self.flaw(release).dkms_fails or (node in self.dkms_fails and release != self.installed)

    def hangs_in_boot(self, node: str, release: str) -> bool:
        return node in self.flaw(release).no_boot or (node in self.no_boot and release != self.installed)


def parse_driver_faults(text: str, filename: str, nodes: Sequence[str], seed: int) -> DriverFaults:
    """The section `drivers` of a faults file; a fleet without faults where there is none.

    Raises ConfigurationError that lists every wrong key with the nearest right one.
    """
    given = section(text, filename, "drivers")
    if given is None:
        return DriverFaults()
    if not isinstance(given, dict):
        raise ConfigurationError(f"{filename}: drivers must be a mapping of releases and of what is wrong with nodes")
    known = {str(key): value for key, value in given.items()}
    wrong: list[str] = []
    chooser = _Chooser(list(nodes), seed)
    flaws: dict[str, Flaw] = {}
    for key in [key for key in known if _RELEASE.fullmatch(key)]:
        keys = _read(_ReleaseKeys, known.pop(key), f"drivers.{key}", wrong)
        if key not in RELEASES:
            wrong.append(f"drivers: no release {nearest(key, RELEASES)}")
        elif keys is not None:
            flaws[key] = _flaw(keys, key, chooser, wrong)
    host = _read(_HostKeys, known, "drivers", wrong)
    if host is not None and host.installed not in RELEASES:
        wrong.append(f"drivers.installed: no release {nearest(host.installed, RELEASES)}")
    chosen: dict[str, frozenset[str]] = {}
    if host is not None:
        chosen = {name: chooser.choose(getattr(host, name), name, wrong) for name in _NODE_KEYS}
    if wrong or host is None:
        raise ConfigurationError("\n".join(f"{filename}: {line}" for line in wrong))
    return DriverFaults(flaws, **chosen, settings=host.settings, installed=host.installed)


_NODE_KEYS = tuple(each.name for each in fields(DriverFaults) if each.name not in {"flaws", "settings", "installed"})


def _flaw(keys: _ReleaseKeys, release: str, chooser: _Chooser, wrong: list[str]) -> Flaw:
    effects = {"gemm": keys.gemm, "hbm": keys.hbm, "host_device": keys.host_device, "all_reduce": keys.all_reduce}
    return Flaw(
        {name: effect for name, effect in effects.items() if effect},
        keys.heat_celsius,
        keys.xid_per_hour,
        keys.xid,
        keys.settings_lost,
        *(
            chooser.choose(getattr(keys, name), f"{release}.{name}", wrong)
            for name in ("does_not_load", "dkms_fails", "no_boot")
        ),
    )


def _read(model: type[_Keys], given: object, where: str, wrong: list[str]) -> _Keys | None:
    try:
        return model.model_validate({} if given is None else given)
    except ValidationError as error:
        for fault in error.errors():
            path = ".".join(str(part) for part in (where, *fault["loc"]))
            if fault["type"] == "extra_forbidden":
                word = nearest(str(fault["loc"][-1]), model.model_fields)
                wrong.append(f"{where}: no key {word}")
            else:
                wrong.append(f"{path}: {fault['msg']}")
        return None


class _Chooser:
    """Nodes by name, or drawn by the seed."""

    def __init__(self, nodes: list[str], seed: int) -> None:
        self._nodes = nodes
        self._seed = seed

    def choose(self, given: Nodes, where: str, wrong: list[str]) -> frozenset[str]:
        if isinstance(given, float):
            rng = random.Random(f"{self._seed} drivers {where}")
            return frozenset(rng.sample(self._nodes, round(given * len(self._nodes))))
        found: set[str] = set()
        for pattern in (given,) if isinstance(given, str) else given:
            try:
                found.update(expand_nodes(pattern))
            except ValueError as error:
                wrong.append(f"drivers.{where}: {error}")
        for node in sorted(found.difference(self._nodes)):
            wrong.append(f"drivers.{where}: no node {nearest(node, self._nodes)}")
        return frozenset(found)
