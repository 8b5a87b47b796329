"""The baseline file: what the nodes of each pool should run, and how they should be set.

It stands beside the fleet file and is the one source of the desired state: a rollout that leaves other versions
behind, or a node that somebody upgraded by hand, does not move it. `parse_baseline` takes text and reports every
fault at once, each with its line and the nearest right key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from fleet.baseline_names import cross_check
from fleet.config import FleetSpec
from fleet.errors import ConfigurationError
from fleet.findings import Action, Finding, Severity
from fleet.hostlist import expand
from fleet.model_faults import faults_of
from fleet.setting_types import Name
from fleet.version_text import parse
from fleet.versions import is_same
from fleet.yaml_text import duplicate_keys, line_of, read_yaml

SAME_AS_DRIVER = "same as driver"
NOT_USED = "none"


def is_pattern(text: str) -> bool:
    """Is it a shell pattern (`580.*`) rather than one value?"""
    return any(mark in text for mark in "*?[")


def _text_only(value: object) -> object:
    if isinstance(value, int | float | date):
        raise ValueError("YAML reads this as a number or a date; write it in quotes")
    return value


def _a_version(value: str) -> str:
    if not is_pattern(value) and parse(value) is None:
        raise ValueError("this stands for no version")
    return value


def _a_driver(value: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{2}(\.[0-9*?]+){1,2}", value):
        raise ValueError("give a full version such as 580.105.08, or a pattern such as 580.*")
    return value


def _a_fabric_manager(value: str) -> str:
    return value if value in (SAME_AS_DRIVER, NOT_USED) else _a_version(value)


def _switch(value: object) -> object:
    word = value.strip().lower() if isinstance(value, str) else value
    return {"enabled": True, "disabled": False}.get(word, value) if isinstance(word, str) else value


def _setting(value: object) -> object:
    """BIOS values are texts; YAML makes switches and numbers of some of them."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, int) else value


Text = Annotated[str, BeforeValidator(_text_only), StringConstraints(min_length=1, strip_whitespace=True)]
VersionText = Annotated[Text, AfterValidator(_a_version)]
DriverText = Annotated[Text, AfterValidator(_a_driver)]
FabricManagerText = Annotated[Text, AfterValidator(_a_fabric_manager)]
Switch = Annotated[bool, BeforeValidator(_switch)]
Setting = Annotated[str, BeforeValidator(_setting), StringConstraints(min_length=1, strip_whitespace=True)]
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:_.@\\-]+$")]
Watts = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ComputeMode = Literal["default", "exclusive_process", "prohibited"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FirmwareWish(_Strict):
    """One version for the components that it matches."""

    match: tuple[Text, ...] = Field(min_length=1, description="inventory ids, shell patterns")
    version: VersionText
    models: tuple[str, ...] = Field((), description="node models that it is for; empty: all of the pool")
    required: bool = Field(True, description="false: a node without such a component is as it should be")


class GpuSettings(_Strict):
    """How each GPU is set. None is "not judged"."""

    ecc: Switch | None = None
    mig: Switch | None = None
    persistence: Switch | None = None
    compute_mode: ComputeMode | None = None
    power_limit_watts: Watts | None = None
    power_limit_tolerance_watts: float = Field(1.0, ge=0, allow_inf_nan=False)
    vbios: VersionText | None = None
    inforom: VersionText | None = None


class ModelWish(_Strict):
    """What is wanted of one node model only."""

    gpu_count: int | None = Field(None, ge=0, le=256)
    gpu: GpuSettings = Field(GpuSettings(), description="each key given here replaces the pool's")


class Forbidden(_Strict):
    packages: tuple[Text, ...] = Field((), description="names, shell patterns")
    egress: tuple[Name, ...] = Field((), description="ways out that must be off")
    unattended_upgrades: bool = Field(False, description="true forbids them")


class Acceptance(_Strict):
    """A deviation that is known and allowed until the end of a day (UTC)."""

    nodes: Text = Field(description="hostlist")
    fact: Text = Field(description="name of a fact, shell pattern")
    until: date
    why: str = Field(min_length=3)

    def covers(self, node: str, fact: str) -> bool:
        return fnmatchcase(fact, self.fact) and node in _names(self.nodes)


@lru_cache(maxsize=256)
def _names(hostlist: str) -> frozenset[str]:
    return frozenset(expand(hostlist))


class PoolBaseline(_Strict):
    """The desired state of a pool. What is not given is not judged."""

    driver: DriverText | None = Field(None, description="full version, or a pattern such as 580.*")
    fabric_manager: FabricManagerText | None = Field(None, description="same as driver, none, or a version")
    kernel: Text | None = Field(None, description="shell pattern")
    os: Text | None = Field(None, description="shell pattern")
    container_toolkit: VersionText | None = None
    secure_boot: Switch | None = None
    firmware: dict[Name, FirmwareWish] = Field(default_factory=dict)
    bios: dict[str, Setting] = Field(default_factory=dict)
    services: dict[Unit, Literal["active", "inactive"]] = Field(default_factory=dict)
    gpu: GpuSettings = GpuSettings()
    models: dict[str, ModelWish] = Field(default_factory=dict, description="by node model of the fleet file")
    forbidden: Forbidden = Forbidden()
    accept: tuple[Acceptance, ...] = ()

    @property
    def fabric_manager_wanted(self) -> str | None:
        """SAME_AS_DRIVER where a driver is wanted and nothing else is said; None: not judged."""
        if self.fabric_manager is None:
            return None if self.driver is None else SAME_AS_DRIVER
        return None if self.fabric_manager == NOT_USED else self.fabric_manager

    def gpu_count(self, model: str) -> int | None:
        wish = self.models.get(model)
        return None if wish is None else wish.gpu_count

    def gpu_for(self, model: str) -> GpuSettings:
        """The pool's settings with those of the node model over them."""
        wish = self.models.get(model)
        if wish is None:
            return self.gpu
        own = {name: getattr(wish.gpu, name) for name in wish.gpu.model_fields_set}
        return self.gpu.model_copy(update=own)


class BaselineSpec(_Strict):
    """A whole baseline file."""

    version: Literal[1]
    pools: dict[Name, PoolBaseline] = Field(min_length=1)


def parse_baseline(text: str, filename: str, fleet: FleetSpec) -> BaselineSpec:
    """Read the baseline of `fleet`.

    Raises ConfigurationError that lists every fault as `file:line: what is wrong (nearest right value)`.
    """
    tree, data = read_yaml(text, filename)
    if not isinstance(data, dict) or tree is None:
        raise ConfigurationError(f"{PurePath(filename)}:1: a baseline is a mapping with the keys version and pools")
    faults = [(line_of(tree, path), what) for path, what in [*duplicate_keys(tree), *cross_check(data, fleet)]]
    try:
        spec = BaselineSpec.model_validate(data)
    except ValidationError as error:
        faults += faults_of(BaselineSpec, tree, error)
    if faults:
        lines = [f"{PurePath(filename)}:{line}: {what}" for line, what in sorted(set(faults))]
        raise ConfigurationError("\n".join(lines))
    return spec


def disagreements(pool: str, baseline: PoolBaseline, recorded: Mapping[str, str]) -> tuple[Finding, ...]:
    """Where the last rollout left other firmware than the baseline wants.

    `recorded` are the rollout's versions by bundle entry; they are compared with `firmware` entries of that name.
    """
    found = []
    for name, wish in baseline.firmware.items():
        version = recorded.get(name)
        if version is None or matches_version(wish.version, version):
            continue
        text = "one of them must be changed, or the next rollout and this baseline work against each other"
        evidence = f"baseline {wish.version}, last rollout {version}"[:300]
        found.append(
            Finding(
                f"pool {pool} firmware {name}",
                "baseline.disagrees",
                Severity.WARNING,
                Action.FIX_CONFIGURATION,
                evidence,
                text,
            )
        )
    return tuple(found)


def matches_version(wanted: str, found: str) -> bool | None:
    """Is `found` the version (or one of the pattern) `wanted`? None where that cannot be told."""
    if not is_pattern(wanted):
        return is_same(found, wanted)
    return None if parse(found) is None else fnmatchcase(found.strip().lower(), wanted.lower())
