"""What a model's values are held against: fleet/catalog/acceptance_limits.csv, with its sources.

Four kinds that must not be mixed. An operator's pass limit and a floor of the vendor may fail a part. A value that
somebody measured, and a specification, are expectations: a part that stays below them is told so, and not failed.
DCGM's floors are about three quarters of what its own plugins measure on a good part: a part that passes one may still
be a fifth too slow, which only its like can show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from math import isfinite

from fleet.acceptance_sku import Sku
from fleet.acceptance_units import convert
from fleet.catalog_data import Origin, Row, read_table, read_text

_FILE = "acceptance_limits.csv"
_COLUMNS = (
    *("measure", "model", "pci_id", "op", "value", "unit", "kind", "usable"),
    *("requires", "confidence", "note", "source"),
)
_OPS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": lambda value, limit: value >= limit,
    "<=": lambda value, limit: value <= limit,
    "<": lambda value, limit: value < limit,
    ">": lambda value, limit: value > limit,
}
_MODEL = re.compile(r"(?P<chip>any|[A-Z]{1,3}[0-9]{1,3}[A-Z]?)(?: (?P<form>SXM|PCIE|NVL))?(?: (?P<memory>[0-9]+)GB)?")
_PCI = re.compile(r"[0-9a-fA-F]{4}(?:[0-9a-fA-F]{4})?")


class LimitKind(StrEnum):
    """Whose figure it is, and so what it may do."""

    OPERATOR_LIMIT = "operator_limit"
    FLOOR = "floor"
    MEASURED = "measured"
    SPECIFICATION = "specification"

    @property
    def may_fail(self) -> bool:
        return self in (LimitKind.OPERATOR_LIMIT, LimitKind.FLOOR)

    @property
    def word(self) -> str:
        return _WORDS[self]


_WORDS: Mapping[LimitKind, str] = {
    LimitKind.OPERATOR_LIMIT: "an operator's pass limit",
    LimitKind.FLOOR: "the vendor's floor",
    LimitKind.MEASURED: "a value measured elsewhere",
    LimitKind.SPECIFICATION: "the specification",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """One figure. `chip`, `form` and `memory_gb` None: of any; `pci_id` has 4 digits, or 8 with the board's.

    `requires` are facts of the measurement without which it means nothing (gpus, nodes, link_gbit, platform …).
    `usable` False: the figure stands in its source and is surely wrong; `note` says why.
    """

    measure: str
    op: str
    value: float
    unit: str
    kind: LimitKind
    origin: Origin
    chip: str | None = None
    form: str | None = None
    memory_gb: int | None = None
    pci_id: str = ""
    requires: Mapping[str, str] = field(default_factory=dict)
    usable: bool = True
    note: str = ""

    def holds(self, value: float, unit: str) -> bool | None:
        """Whether the value is on the right side; None where its unit is of another kind, or it is not finite."""
        told = convert(value, unit, self.unit)
        return None if told is None or not isfinite(told) else _OPS[self.op](told, self.value)

    def __str__(self) -> str:
        return f"{self.op} {self.value:g} {self.unit}, {self.kind.word} ({self.origin.source})"


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """One limit applied to one value. `short_by` is the share of the limit that is missing, 0 or less where none is."""

    limit: Limit
    holds: bool | None
    short_by: float | None = None

    @property
    def fails(self) -> bool:
        return self.limit.kind.may_fail and self.holds is False

    @property
    def text(self) -> str:
        if self.holds is None:
            return f"cannot be held against {self.limit}: the units are of two kinds"
        if self.holds:
            return f"is {self.limit}"
        short = "" if self.short_by is None else f", {self.short_by * 100:.1f} % off"
        tail = "" if self.limit.kind.may_fail else "; this is no limit and fails nothing"
        return f"is not {self.limit}{short}{tail}"


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What applies to one measure on one product; `not_applied` says of the others why, a text each."""

    limits: tuple[Limit, ...] = ()
    not_applied: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether any of them may fail a part."""
        return any(limit.kind.may_fail for limit in self.limits)

    def check(self, value: float, unit: str) -> tuple[LimitCheck, ...]:
        """Every limit against the value, those that may fail it first."""
        checks = [_check(limit, value, unit) for limit in self.limits]
        return tuple(sorted(checks, key=lambda one: not one.limit.kind.may_fail))


@lru_cache(maxsize=1)
def load_limits() -> tuple[Limit, ...]:
    """All of the catalogue. Raises ConfigurationError where the file is damaged."""
    return read_table(f"fleet/catalog/{_FILE}", read_text(_FILE), _COLUMNS, _limit)


def limits_for(
    measure: str, sku: Sku, setup: Mapping[str, str] | None = None, limits: Iterable[Limit] | None = None
) -> ModelLimits:
    """What of the catalogue applies to a product that was measured in this way; `limits` instead of the catalogue's.

    `setup` has what `Limit.requires` may ask for. Of limits of one source and kind the one of the very PCI id goes
    before that of the name, and a board's before its chip's.
    """
    told = setup or {}
    fitting: list[tuple[int, Limit]] = []
    reasons: list[str] = []
    for limit in load_limits() if limits is None else limits:
        if limit.measure != measure:
            continue
        rank, why = _fit(limit, sku)
        why = why or ("" if rank is None else _unfit(limit, told))
        if rank is not None and not why:
            fitting.append((rank, limit))
        elif why:
            reasons.append(f"{limit}: {why}")
    return ModelLimits(tuple(_nearest(fitting)), tuple(dict.fromkeys(reasons)))


def _nearest(fitting: Sequence[tuple[int, Limit]]) -> list[Limit]:
    """Without those that a closer one of the same source, kind and setup replaces."""

    def group(limit: Limit) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        return limit.kind.value, limit.origin.source, tuple(sorted(limit.requires.items()))

    best: dict[tuple[str, str, tuple[tuple[str, str], ...]], int] = {}
    for rank, limit in fitting:
        best[group(limit)] = max(rank, best.get(group(limit), 0))
    return [limit for rank, limit in fitting if rank == best[group(limit)]]


def _fit(limit: Limit, sku: Sku) -> tuple[int | None, str]:
    """How closely it is of this product (None: of another one), and what would have to be known to tell."""
    if limit.pci_id:
        known = f"{sku.pci_id or ''}{sku.pci_subsystem_id or ''}"
        if sku.pci_id and known.startswith(limit.pci_id):
            return 10 + len(limit.pci_id), ""
        if sku.pci_id or limit.chip is None:
            return None, ""
    if limit.chip is None:
        return (1, "") if not limit.pci_id else (None, "")
    if limit.chip != sku.chip:
        return None, ""
    wanted = (("form factor", limit.form, sku.form), ("memory size", limit.memory_gb, sku.memory_gb))
    if any(have is not None and want is not None and want != have for _, want, have in wanted):
        return None, ""
    untold = [name for name, want, have in wanted if want is not None and have is None]
    if untold:
        return None, f"the {' and '.join(untold)} of this {sku.chip} {'is' if len(untold) == 1 else 'are'} not known"
    return 2 + sum(want is not None for _, want, _ in wanted), ""


def _unfit(limit: Limit, setup: Mapping[str, str]) -> str:
    """Why a limit of this product does not apply to this measurement; "" where it does."""
    if not limit.usable:
        return limit.note
    for name, wanted in limit.requires.items():
        have = setup.get(name)
        if have is None:
            return f"holds for {name} {wanted}, which this measurement does not tell"
        if have.casefold() != wanted.casefold():
            return f"holds for {name} {wanted}, and this is {have}"
    return ""


def _check(limit: Limit, value: float, unit: str) -> LimitCheck:
    told = convert(value, unit, limit.unit)
    short = None
    if told is not None and limit.value:
        short = (limit.value - told if limit.op.startswith(">") else told - limit.value) / abs(limit.value)
    return LimitCheck(limit, limit.holds(value, unit), short)


def read_model(text: str) -> tuple[str | None, str | None, int | None]:
    """Chip (None for "any"), form factor and GB of memory of a text like "H100 SXM 80GB". Raises ValueError."""
    model = _MODEL.fullmatch(text)
    if model is None:
        raise ValueError(f"{text!r} is no model like H100 SXM 80GB")
    chip, memory = model["chip"], model["memory"]
    return (None if chip == "any" else chip), model["form"], int(memory) if memory else None


def _limit(row: Row) -> Limit:
    if not row["model"] and not row["pci_id"]:
        raise ValueError("a limit names a model or a PCI id")
    if row["pci_id"] and not _PCI.fullmatch(row["pci_id"]):
        raise ValueError(f"{row['pci_id']!r} is no PCI id of 4 or 8 digits")
    if row["op"] not in _OPS or not row["source"] or not row["measure"] or not row["unit"]:
        raise ValueError("a limit has a measure, a comparison, a unit and a source")
    chip, form, memory_gb = read_model(row["model"] or "any")
    return Limit(
        measure=row["measure"],
        op=row["op"],
        value=_figure(row["value"]),
        unit=row["unit"],
        kind=LimitKind(row["kind"]),
        origin=Origin(row["source"], None, row["confidence"]),
        chip=chip,
        form=form,
        memory_gb=memory_gb,
        pci_id=row["pci_id"].lower(),
        requires=_requires(row["requires"]),
        usable={"yes": True, "no": False}[row["usable"]],
        note=row["note"],
    )


def _figure(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text!r} is no figure")
    return value


def _requires(text: str) -> dict[str, str]:
    """ "gpus=8;nodes=2"."""
    pairs = [part.partition("=") for part in text.split(";") if part]
    if not all(name and mark and wanted for name, mark, wanted in pairs):
        raise ValueError(f"{text!r} is not written like gpus=8;nodes=2")
    return {name: wanted for name, _, wanted in pairs}
