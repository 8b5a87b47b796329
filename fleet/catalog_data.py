"""The catalogue: facts about architectures, driver branches, toolkits and GPU models, read from fleet/catalog/.

Every entry has its source; most have the month as of which it holds and how sure it is. An operator's own file
extends or overrides it (fleet/operator_catalog.py).
"""

from __future__ import annotations

import calendar
import csv
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from typing import TypeVar

from fleet.drivers import CudaVersion, DriverVersion, parse_cuda, parse_driver
from fleet.errors import ConfigurationError

T = TypeVar("T")
Row = Mapping[str, str]

RETENTION_MONTHS = 18
OPERATOR = "operator"
"""The confidence of what an operator's file says."""


class BranchKind(StrEnum):
    """How long NVIDIA keeps a branch: 3 years, 1 year, or until the next one."""

    LONG_TERM = "LTSB"
    PRODUCTION = "PB"
    NEW_FEATURE = "NFB"


class GpuClass(StrEnum):
    """Which market a board is made for: decides who may use cuda-compat."""

    DATA_CENTER = "data_center"
    PROFESSIONAL = "professional"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact is from. `as_of` is a month ("2026-11"), None where nobody noted it."""

    source: str
    as_of: str | None = None
    confidence: str = ""


@dataclass(frozen=True, slots=True)
class DriverBranch:
    """A driver branch, R535 is 535. `released` is the first day of its month, `ends` the last day of support.

    `ends` is None where no date is known; `ended_by` is a day by which support had ended, whenever that was.
    """

    number: int
    kind: BranchKind
    released: date | None
    ends: date | None
    ended_by: date | None
    max_cuda_major: int | None
    note: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Architecture:
    """One or several compute capabilities with a common support range. None: still supported."""

    name: str
    capabilities: tuple[str, ...]
    first_cuda: CudaVersion
    last_cuda: CudaVersion | None
    last_driver: int | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A CUDA toolkit, the driver that it carries (Linux x86_64), and the oldest driver it runs on natively."""

    cuda: CudaVersion
    packaged_driver: DriverVersion
    minimum_driver: DriverVersion
    note: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model as it is sold. `coherent`: its memory is one address space with the CPU's (Grace)."""

    name: str
    capability: str
    gpu_class: GpuClass
    coherent: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class RuleFact:
    """A rule that verdicts name."""

    name: str
    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Catalog:
    """All of it. `compat_bases`: per (major, minor) of a cuda-compat package the branches it may sit on."""

    branches: Mapping[int, DriverBranch]
    architectures: tuple[Architecture, ...]
    toolkits: tuple[Toolkit, ...]
    models: tuple[GpuModel, ...]
    rules: Mapping[str, RuleFact]
    minimum_by_major: Mapping[int, DriverVersion]
    closed_modules_only: frozenset[str]
    open_modules_only: frozenset[str]
    open_modules_first_branch: int
    cdmm_default_since: DriverVersion
    compat_bases: Mapping[tuple[int, int], tuple[frozenset[int], Origin]] = field(default_factory=dict)
    retention_months: int | None = RETENTION_MONTHS

    def first_branch(self, architecture: Architecture) -> int | None:
        """The branch of the driver in the architecture's first toolkit; None where the catalogue lacks that."""
        first = architecture.first_cuda.parts
        carried = [kit.packaged_driver.branch for kit in self.toolkits if kit.cuda.parts[: len(first)] == first]
        return min(carried, default=None)

    def knows_branch(self, number: int) -> bool:
        """Is the branch listed, or named by a toolkit or as an architecture's last?"""
        named = {kit.packaged_driver.branch for kit in self.toolkits} | {a.last_driver for a in self.architectures}
        return number in self.branches or number in named


def month_end(year: int, month: int) -> date:
    if year > date.max.year:
        return date.max
    return date(year, month, calendar.monthrange(year, month)[1])


def read_text(name: str) -> str:
    """A file of fleet/catalog/."""
    return files("fleet.catalog").joinpath(name).read_text(encoding="utf-8")


def read_table(name: str, text: str, columns: tuple[str, ...], read: Callable[[Row], T]) -> tuple[T, ...]:
    """Every row of a CSV text through `read`.

    Raises ConfigurationError with file and line for other columns, and for a row that `read` cannot take
    (KeyError, ValueError).
    """
    reader = csv.DictReader(text.splitlines(), strict=True)
    if tuple(reader.fieldnames or ()) != columns:
        raise ConfigurationError(f"{name}:1: columns are {', '.join(columns)}")
    rows: list[T] = []
    for row in reader:
        if None in row or None in row.values():
            raise ConfigurationError(f"{name}:{reader.line_num}: a row has {len(columns)} cells")
        try:
            rows.append(read(row))
        except (KeyError, ValueError) as error:
            raise ConfigurationError(f"{name}:{reader.line_num}: {error}") from error
    return tuple(rows)


@lru_cache(maxsize=1)
def load_catalog() -> Catalog:
    """The catalogue that ships with gpufleet. Raises ConfigurationError where a file of it is damaged."""
    branches = _table("driver_branches.csv", _BRANCH_COLUMNS, _branch)
    architectures = _table("architectures.csv", _ARCHITECTURE_COLUMNS, _architecture)
    toolkits = _table("cuda_min_driver.csv", _TOOLKIT_COLUMNS, _toolkit)
    models = _table("gpu_models.csv", _MODEL_COLUMNS, _models)
    try:
        settled = json.loads(read_text("compat_rules.json"))
        modules = settled["kernel_modules"]
        return Catalog(
            branches={branch.number: branch for branch in branches},
            architectures=architectures,
            toolkits=toolkits,
            models=tuple(model for row in models for model in row),
            rules={rule["name"]: RuleFact(rule["name"], rule["text"], _origin(rule)) for rule in settled["rules"]},
            minimum_by_major={int(major): driver_of(text) for major, text in settled["minor_version_minimum"].items()},
            closed_modules_only=frozenset(modules["closed_only"]),
            open_modules_only=frozenset(modules["open_only"]),
            open_modules_first_branch=driver_of(modules["open_first_branch"]).branch,
            cdmm_default_since=driver_of(settled["cdmm_default_since"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"fleet/catalog/compat_rules.json: {error!r}") from error


def _table(name: str, columns: tuple[str, ...], read: Callable[[Row], T]) -> tuple[T, ...]:
    return read_table(f"fleet/catalog/{name}", read_text(name), columns, read)


_ARCHITECTURE_COLUMNS = (
    *("architecture", "compute_capability", "first_cuda", "last_cuda", "last_driver_branch"),
    *("note", "as_of", "confidence", "source"),
)
_BRANCH_COLUMNS = (
    *("branch", "kind", "released", "ends", "ended_by", "max_cuda_major", "note", "as_of"),
    *("confidence_kind", "confidence_released", "confidence_ends", "source"),
)
_TOOLKIT_COLUMNS = ("cuda", "packaged_driver", "minimum_driver", "note", "as_of", "confidence", "source")
_MODEL_COLUMNS = ("compute_capability", "class", "coherent", "models", "confidence", "source")


def _architecture(row: Row) -> Architecture:
    capabilities = tuple(row["compute_capability"].split(","))
    if not all(re.fullmatch(r"[0-9]{1,2}\.[0-9]", capability) for capability in capabilities):
        raise ValueError(f"{row['compute_capability']!r} is no compute capability")
    last_cuda, last_driver = row["last_cuda"], row["last_driver_branch"]
    return Architecture(
        name=row["architecture"],
        capabilities=capabilities,
        first_cuda=cuda_of(row["first_cuda"]),
        last_cuda=cuda_of(last_cuda) if last_cuda else None,
        last_driver=driver_of(last_driver).branch if last_driver else None,
        origin=_origin(row),
    )


def _branch(row: Row) -> DriverBranch:
    released = _month(row["released"])
    return DriverBranch(
        number=driver_of(row["branch"]).branch,
        kind=BranchKind(row["kind"]),
        released=date(*released, 1) if released else None,
        ends=_last_day(row["ends"]),
        ended_by=_last_day(row["ended_by"]),
        max_cuda_major=int(row["max_cuda_major"]) if row["max_cuda_major"] else None,
        note=row["note"],
        origin=Origin(row["source"], row["as_of"] or None, row["confidence_ends"] or row["confidence_kind"]),
    )


def _toolkit(row: Row) -> Toolkit:
    return Toolkit(
        cuda=cuda_of(row["cuda"]),
        packaged_driver=driver_of(row["packaged_driver"]),
        minimum_driver=driver_of(row["minimum_driver"]),
        note=row["note"],
        origin=_origin(row),
    )


def _models(row: Row) -> tuple[GpuModel, ...]:
    coherent = {"yes": True, "no": False}[row["coherent"]]
    origin = Origin(row["source"], None, row["confidence"])
    return tuple(
        GpuModel(name.strip(), row["compute_capability"], GpuClass(row["class"]), coherent, origin)
        for name in row["models"].split(";")
    )


def _origin(row: Row) -> Origin:
    if not row["source"]:
        raise ValueError("every fact has a source")
    return Origin(row["source"], row["as_of"] or None, row["confidence"])


def driver_of(text: str) -> DriverVersion:
    """The driver version in `text`. Raises ValueError."""
    found = parse_driver(text)
    if found is None:
        raise ValueError(f"{text!r} is no driver version or branch")
    return found


def cuda_of(text: str) -> CudaVersion:
    """The CUDA version in `text`. Raises ValueError."""
    found = parse_cuda(text)
    if found is None:
        raise ValueError(f"{text!r} is no CUDA version")
    return found


def _month(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{4})-(0[1-9]|1[0-2])", text)
    if found is None:
        raise ValueError(f"{text!r} is no month like 2026-11")
    return int(found[1]), int(found[2])


def _last_day(text: str) -> date | None:
    month = _month(text)
    return month_end(*month) if month else None
