"""An operator's own facts, which extend or override the catalogue: a YAML file, read strictly.

For a branch that came out after this release of gpufleet, an end that a contract moved, a board of one's own, the
bases of a cuda-compat package, or another retention. Every entry names its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from fleet.catalog_data import (
    OPERATOR,
    Architecture,
    BranchKind,
    Catalog,
    DriverBranch,
    GpuClass,
    GpuModel,
    Origin,
    Toolkit,
    cuda_of,
    driver_of,
    month_end,
)
from fleet.errors import ConfigurationError
from fleet.model_faults import faults_of
from fleet.yaml_text import duplicate_keys, line_of, read_yaml


def _a_driver(text: str) -> str:
    driver_of(text)
    return text


def _a_toolkit(text: str) -> str:
    cuda_of(text)
    return text


def _month_or_day(value: object) -> object:
    """A month counts as its last day."""
    found = re.fullmatch(r"([0-9]{4})-(0[1-9]|1[0-2])", value) if isinstance(value, str) else None
    return month_end(int(found[1]), int(found[2])) if found and int(found[1]) else value


BranchName = Annotated[str, StringConstraints(pattern=r"^R[3-9][0-9]{2}$")]
Capability = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}\.[0-9]$")]
PackageName = Annotated[str, StringConstraints(pattern=r"^cuda-compat-[0-9]{1,2}-[0-9]{1,2}$")]
DriverText = Annotated[str, AfterValidator(_a_driver)]
CudaText = Annotated[str, AfterValidator(_a_toolkit)]
Day = Annotated[date, BeforeValidator(_month_or_day)]
Month = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$")]
Words = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Words = Field(description="who says so")
    as_of: Month | None = None

    def origin(self) -> Origin:
        return Origin(self.source, self.as_of, OPERATOR)


class BranchEntry(_Entry):
    """What is not given stays as in the catalogue; a branch that is new to it needs `kind`."""

    kind: BranchKind | None = None
    released: Day | None = None
    ends: Day | None = Field(None, description="last day of support; a month: its last day")
    max_cuda_major: int | None = Field(None, ge=1, le=99)


class ArchitectureEntry(_Entry):
    """One compute capability. What is not given stays; one that is new needs `architecture` and `first_cuda`."""

    architecture: Words | None = None
    first_cuda: CudaText | None = None
    last_cuda: CudaText | None = None
    last_driver: BranchName | None = None


class GpuEntry(_Entry):
    capability: Capability
    gpu_class: GpuClass
    coherent: bool = False


class ToolkitEntry(_Entry):
    packaged_driver: DriverText
    minimum_driver: DriverText


class BasesEntry(_Entry):
    bases: tuple[BranchName, ...] = Field(min_length=1)


class OperatorCatalog(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    retention_months: int | None = Field(None, ge=0, le=600, description="0: no retention policy")
    branches: dict[BranchName, BranchEntry] = Field(default_factory=dict)
    architectures: dict[Capability, ArchitectureEntry] = Field(default_factory=dict)
    gpus: dict[Words, GpuEntry] = Field(default_factory=dict)
    toolkits: dict[CudaText, ToolkitEntry] = Field(default_factory=dict)
    cuda_compat: dict[PackageName, BasesEntry] = Field(default_factory=dict)


def extend(catalog: Catalog, text: str, filename: str) -> Catalog:
    """`catalog` with an operator's file laid over it.

    Raises ConfigurationError that lists every fault as `file:line: what is wrong`.
    """
    tree, data = read_yaml(text, filename)
    if tree is None or not isinstance(data, dict):
        raise ConfigurationError(f"{filename}:1: a catalogue file is a mapping with the keys version, branches …")
    faults = [(line_of(tree, path), what) for path, what in duplicate_keys(tree)]
    try:
        given = OperatorCatalog.model_validate(data)
    except ValidationError as error:
        faults += faults_of(OperatorCatalog, tree, error)
    else:
        faults += [(line_of(tree, (section, key)), what) for section, key, what in _lacking(catalog, given)]
    if faults:
        lines = (f"{PurePath(filename)}:{line}: {what}" for line, what in sorted(set(faults)))
        raise ConfigurationError("\n".join(lines))
    return _laid_over(catalog, given)


def _lacking(catalog: Catalog, given: OperatorCatalog) -> list[tuple[str, str, str]]:
    """What an entry needs because the catalogue does not have it."""
    found = [
        ("branches", name, f"branches.{name}: new to the catalogue, so it needs kind (LTSB, PB or NFB)")
        for name, branch in given.branches.items()
        if branch.kind is None and int(name[1:]) not in catalog.branches
    ]
    known = {capability for row in catalog.architectures for capability in row.capabilities}
    found += [
        ("architectures", name, f"architectures.{name}: new to the catalogue, so it needs architecture and first_cuda")
        for name, row in given.architectures.items()
        if name not in known and (row.architecture is None or row.first_cuda is None)
    ]
    known |= set(given.architectures)
    found += [
        ("gpus", name, f"gpus.{name}.capability: no architecture with {gpu.capability}; give it under architectures")
        for name, gpu in given.gpus.items()
        if gpu.capability not in known
    ]
    return found


def _laid_over(catalog: Catalog, given: OperatorCatalog) -> Catalog:
    branches = {int(name[1:]): _branch(catalog, int(name[1:]), entry) for name, entry in given.branches.items()}
    toolkits = {cuda_of(name).parts: _toolkit(name, entry) for name, entry in given.toolkits.items()}
    names = {name.casefold() for name in given.gpus}
    months = catalog.retention_months if given.retention_months is None else given.retention_months
    return replace(
        catalog,
        branches={**catalog.branches, **branches},
        architectures=_architectures(catalog, given.architectures),
        toolkits=(*(kit for kit in catalog.toolkits if kit.cuda.parts not in toolkits), *toolkits.values()),
        models=(
            *(model for model in catalog.models if model.name.casefold() not in names),
            *(GpuModel(n, e.capability, e.gpu_class, e.coherent, e.origin()) for n, e in given.gpus.items()),
        ),
        compat_bases={**catalog.compat_bases, **_bases(given.cuda_compat)},
        retention_months=months or None,
    )


def _branch(catalog: Catalog, number: int, entry: BranchEntry) -> DriverBranch:
    known = catalog.branches.get(number)
    kind = entry.kind or (known.kind if known else None)
    assert kind is not None  # _lacking has seen to it
    return DriverBranch(
        number=number,
        kind=kind,
        released=entry.released or (known.released if known else None),
        ends=entry.ends or (known.ends if known else None),
        ended_by=None if entry.ends or known is None else known.ended_by,
        max_cuda_major=entry.max_cuda_major or (known.max_cuda_major if known else None),
        note="",
        origin=entry.origin(),
    )


def _architectures(catalog: Catalog, given: Mapping[str, ArchitectureEntry]) -> tuple[Architecture, ...]:
    """The rows of the catalogue without the capabilities that are given, then a row for each of these."""
    rows: list[Architecture] = []
    known: dict[str, Architecture] = {}
    for row in catalog.architectures:
        known |= dict.fromkeys(row.capabilities, row)
        kept = tuple(capability for capability in row.capabilities if capability not in given)
        if kept:
            rows.append(replace(row, capabilities=kept))
    for capability, entry in given.items():
        old = known.get(capability)
        name = entry.architecture or (old.name if old else "")
        first = cuda_of(entry.first_cuda) if entry.first_cuda else old.first_cuda if old else None
        assert first is not None  # _lacking has seen to it
        last_cuda = cuda_of(entry.last_cuda) if entry.last_cuda else old.last_cuda if old else None
        last_driver = int(entry.last_driver[1:]) if entry.last_driver else old.last_driver if old else None
        rows.append(Architecture(name, (capability,), first, last_cuda, last_driver, entry.origin()))
    return tuple(rows)


def _toolkit(name: str, entry: ToolkitEntry) -> Toolkit:
    return Toolkit(cuda_of(name), driver_of(entry.packaged_driver), driver_of(entry.minimum_driver), "", entry.origin())


def _bases(given: Mapping[str, BasesEntry]) -> dict[tuple[int, int], tuple[frozenset[int], Origin]]:
    found = {}
    for name, entry in given.items():
        major, minor = name.removeprefix("cuda-compat-").split("-")
        found[int(major), int(minor)] = (frozenset(int(base[1:]) for base in entry.bases), entry.origin())
    return found
