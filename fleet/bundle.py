"""A firmware bundle: which versions belong together, in which order, and how they become active."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from fleet.errors import BundleRejected, ConfigurationError
from fleet.model import ResetKind
from fleet.model_faults import faults_of
from fleet.yaml_text import duplicate_keys, line_of, read_yaml

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BundleEntry(_Strict):
    """One image and the components that it is for. Entries are flashed in the order they are listed."""

    name: str
    match: tuple[str, ...] = Field(min_length=1, description="inventory ids, shell patterns")
    version: str
    image: str = Field(description="relative to the manifest")
    sha256: Sha256
    reset: ResetKind
    direct_from: tuple[str, ...] = Field((), description="versions (patterns) it may be applied to; empty: any")
    one_way: bool = Field(False, description="cannot be downgraded afterwards")
    allow_downgrade: bool = False
    unordered: bool = Field(False, description="versions have no order: any other one is replaced")
    required: bool = Field(True, description="a node without such a component does not fit")
    activate_first: bool = Field(False, description="must be active before the next entry is flashed")
    scope: Literal["node", "nvlink_domain", "power_domain"] = Field("node", description="what its reset takes down")
    expected_seconds: _Seconds = 600.0

    @field_validator("image")
    @classmethod
    def _inside(cls, value: str) -> str:
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError("must lie inside the bundle's folder")
        return value

    def matches(self, component: str) -> bool:
        return any(fnmatchcase(component, pattern) for pattern in self.match)

    def direct(self, version: str) -> bool:
        return not self.direct_from or any(fnmatchcase(version.strip(), pattern) for pattern in self.direct_from)


class Bundle(_Strict):
    """A manifest. `fits` are node models, letter by letter."""

    version: Literal[1]
    name: str
    release: str
    fits: tuple[str, ...] = Field(min_length=1)
    reset_seconds: dict[ResetKind, _Seconds] = Field(default_factory=dict, description="expected, for the plan")
    entries: tuple[BundleEntry, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names(self) -> Self:
        names = [entry.name for entry in self.entries]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"entries named twice: {', '.join(twice)}")
        return self

    def entry(self, name: str) -> BundleEntry:
        return next(entry for entry in self.entries if entry.name == name)

    def expected_reset_seconds(self, kind: ResetKind) -> float:
        """The manifest's figure, else a cautious default for HGX boards (see docs/glossary.md, reset)."""
        return self.reset_seconds.get(kind, _RESET_SECONDS[kind])


_RESET_SECONDS = {
    ResetKind.NONE: 0.0,
    ResetKind.HOST_REBOOT: 600.0,
    ResetKind.BMC_RESET: 300.0,
    ResetKind.AC_CYCLE: 900.0,
}


def parse_bundle(text: str, filename: str) -> Bundle:
    """Read a manifest. Raises BundleRejected that lists every fault with the nearest right key."""
    try:
        tree, data = read_yaml(text, filename)
    except ConfigurationError as error:
        raise BundleRejected(error.message) from error
    if tree is None or not isinstance(data, dict):
        raise BundleRejected(f"{filename}:1: a manifest is a mapping with the keys version, name, release, fits …")
    faults = [(line_of(tree, path), what) for path, what in duplicate_keys(tree)]
    try:
        bundle = Bundle.model_validate(data)
    except ValidationError as error:
        faults += faults_of(Bundle, tree, error)
    if faults:
        raise BundleRejected("\n".join(f"{filename}:{line}: {what}" for line, what in sorted(set(faults))))
    return bundle


def resets_needed(kinds: frozenset[ResetKind]) -> tuple[ResetKind, ...]:
    """The fewest resets that activate everything: an AC cycle does all, else the BMC first, then the host."""
    if ResetKind.AC_CYCLE in kinds:
        return (ResetKind.AC_CYCLE,)
    return tuple(kind for kind in (ResetKind.BMC_RESET, ResetKind.HOST_REBOOT) if kind in kinds)
