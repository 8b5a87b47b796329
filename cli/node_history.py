"""The part of `gpufleet node` that tells of heat and errors over time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cli.session import console, plain_table
from fleet.part_history import COLUMNS, By, HistoryRow, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ledger import Ledger, PartThen

_DAYS = {By.DAY: 7, By.MONTH: 400, By.TOTAL: 30}
_HEADS = {
    "temperature_max_celsius": "max °C",
    "temperature_margin_min_celsius": "least margin °C",
    "memory_temperature_max_celsius": "memory max °C",
    "ecc_correctable": "ECC corrected",
    "ecc_uncorrectable": "ECC uncorrected",
    "remapped_rows": "rows remapped",
    "xids": "Xids",
    "hot_seconds": "slowed by heat (s)",
}


@dataclass(frozen=True, slots=True)
class PartHistory:
    """A GPU's own history, in whatever node it sat."""

    part: PartThen
    rows: tuple[HistoryRow, ...]


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """The GPUs of a node, and the time that is looked at."""

    by: By
    since: datetime
    until: datetime
    gpus: tuple[PartHistory, ...]


def read_history(ledger: Ledger, parts: Sequence[PartThen], until: datetime, by: By) -> NodeHistory:
    """Seven days, 400 days (as long as numbers are kept) or the last 30 days in one, up to `until`."""
    earliest, latest = datetime.min.replace(tzinfo=until.tzinfo), datetime.max.replace(tzinfo=until.tzinfo)
    since = max(until, earliest + timedelta(days=_DAYS[by])) - timedelta(days=_DAYS[by])
    if by is By.DAY:
        since = since.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    moment = timedelta(microseconds=1)
    end = min(until, latest - moment) + moment  # what was read at that very moment counts

    def rows(key: str) -> tuple[HistoryRow, ...]:
        return rows_of(lambda name: ledger.samples.series(key, name, since, end), by)

    gpus = tuple(PartHistory(part, rows(part.key)) for part in parts if part.kind == "gpu")
    return NodeHistory(by, since, until, gpus)


def history_json(history: NodeHistory) -> dict[str, object]:
    return {
        "by": history.by.value,
        "since": history.since.isoformat(),
        "until": history.until.isoformat(),
        "gpus": [
            {
                "slot": gpu.part.slot,
                "key": gpu.part.key,
                "periods": [{"period": row.period, **row.values} for row in gpu.rows],
            }
            for gpu in history.gpus
        ],
    }


def show_history(history: NodeHistory) -> None:
    """A row for each GPU and period, without the columns that no GPU tells; nothing for a node without GPUs."""
    if not history.gpus:
        return
    told = [name for name in COLUMNS if any(row.values[name] is not None for gpu in history.gpus for row in gpu.rows)]
    console.print(f"\nheat and errors since {history.since:%F %H:%M} UTC", highlight=False)
    if not told:
        console.print("no numbers were read in this time", highlight=False)
        return
    periods = () if history.by is By.TOTAL else (history.by.value,)
    heads = ("GPU", "serial", *periods, *(_HEADS[name] for name in told))
    console.print(plain_table(heads, _cells(history, told)))


def _cells(history: NodeHistory, told: Sequence[str]) -> Iterable[tuple[str, ...]]:
    for gpu in history.gpus:
        name = (gpu.part.slot, gpu.part.serial or "?")
        for row in gpu.rows:
            periods = () if history.by is By.TOTAL else (row.period,)
            values = (row.values[column] for column in told)
            yield (*name, *periods, *("?" if value is None else f"{value:,.10g}" for value in values))
