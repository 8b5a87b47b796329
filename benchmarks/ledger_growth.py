"""How much a ledger grows, and what a sweep costs to write: 1,250 nodes, 10,000 GPUs, a sweep each 30 s.

    python benchmarks/ledger_growth.py --nodes 1250 --sweeps 120

The sweeps are made up: 60 facts a node, 30 facts and 20 numbers a GPU. Of the numbers, eight waver as temperatures,
power and clocks do, two count up and ten stand still; one node in a hundred changes a fact in each sweep. Time is
simulated, writing is not. Growth is pages of the SQLite file; a day is extrapolated from the sweeps that were run.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from fleet.facts import NodeFacts, PartFacts
from ledger import Ledger, Tiers

SWEEP_SECONDS = 30
SWEEPS_A_DAY = 86400 // SWEEP_SECONDS
T = TypeVar("T")


class Clock:
    """Simulated time."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 30, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class MadeUpFleet:
    """Readings that resemble those of HGX nodes in size and in how they change."""

    def __init__(self, nodes: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = [f"gpu-{number:04}" for number in range(nodes)]
        self._revisions = dict.fromkeys(self._names, 0)

    def sweep(self, number: int, at: datetime, changed_share: float) -> list[NodeFacts]:
        for name in self._random.sample(self._names, round(len(self._names) * changed_share)):
            self._revisions[name] += 1
        return [self._node(name, number, at) for name in self._names]

    def _node(self, name: str, number: int, at: datetime) -> NodeFacts:
        facts = {f"firmware.COMPONENT_{index:02}": f"24.09-{index}.7" for index in range(59)}
        facts["driver.loaded"] = f"570.{self._revisions[name]}"
        parts = tuple(self._gpu(name, index, number) for index in range(8))
        return NodeFacts(name, at, "probe", facts, {}, {"load": round(self._random.random() * 200, 2)}, parts)

    def _gpu(self, name: str, index: int, number: int) -> PartFacts:
        serial, rand = f"165{name[4:]}{index:04}", self._random
        facts = {f"attribute_{attribute:02}": f"value {attribute}" for attribute in range(28)}
        facts |= {"serial": serial, "pci_address": f"0000:{index:02x}:00.0"}
        numbers: dict[str, float | None] = {f"still_{still}": float(still % 2) for still in range(10)}
        numbers |= {"count_0": number * 7.0 + index, "count_1": number * 1_000_003.0}
        numbers |= {f"temperature_{sensor}": float(rand.randint(45, 52)) for sensor in range(3)}
        numbers |= {f"clock_{clock}": float(rand.choice((1965, 1980, 1980, 1980))) for clock in range(2)}
        numbers |= {f"utilization_{kind}": float(rand.randint(85, 100)) for kind in range(2)}
        numbers["power_watts"] = round(rand.uniform(550, 700), 3)
        return PartFacts("gpu", f"0000:{index:02x}:00.0", serial, f"GPU-{serial}", facts, {}, numbers)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What the work returns, and its wall seconds."""
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


class Database:
    """Size and rows of the SQLite file."""

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)

    def used_bytes(self) -> int:
        with self._engine.connect() as connection:
            pages, free, size = (
                connection.exec_driver_sql(f"PRAGMA {what}").scalar_one()
                for what in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def rows(self, table: str) -> int:
        with self._engine.connect() as connection:
            return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


def measure(folder: Path, nodes: int, sweeps: int) -> dict[str, float]:
    url, clock = f"sqlite:///{folder}/ledger.db", Clock()
    ledger, database, fleet = Ledger.open(url, clock, "benchmark"), Database(url), MadeUpFleet(nodes, 7)
    found: dict[str, float] = {}
    empty = database.used_bytes()
    readings = fleet.sweep(0, clock.now(), 0)
    _, found["first_record_s"] = timed(lambda: ledger.facts.record(readings))
    found["first_record_mb"] = (database.used_bytes() - empty) / 1e6
    found["rows_of_facts_and_parts"] = sum(database.rows(table) for table in ("known", "parts", "placements"))
    _still(ledger, clock, fleet, found)
    _sweeps(ledger, clock, fleet, database, sweeps, found)
    _queries(ledger, clock, found)
    _tiers(ledger, clock, database, found)
    ledger.close()
    return found


def _still(ledger: Ledger, clock: Clock, fleet: MadeUpFleet, found: dict[str, float]) -> None:
    """An unchanged sweep, with its numbers and without."""
    clock.sleep(SWEEP_SECONDS)
    readings = fleet.sweep(1, clock.now(), 0)
    _, found["unchanged_record_s"] = timed(lambda: ledger.facts.record(readings))
    clock.sleep(SWEEP_SECONDS)
    bare = [NodeFacts(r.node, clock.now(), r.source, r.facts, r.unknown, {}, _without(r.parts)) for r in readings]
    _, found["unchanged_record_without_numbers_s"] = timed(lambda: ledger.facts.record(bare))


def _without(parts: tuple[PartFacts, ...]) -> tuple[PartFacts, ...]:
    return tuple(PartFacts(p.kind, p.slot, p.serial, p.uuid, p.facts, p.unknown) for p in parts)


def _sweeps(
    ledger: Ledger, clock: Clock, fleet: MadeUpFleet, database: Database, sweeps: int, found: dict[str, float]
) -> None:
    seconds, cpu = [], 0.0
    before, rows = database.used_bytes(), {t: database.rows(t) for t in ("samples", "past_facts", "audit")}
    for number in range(2, sweeps + 2):
        clock.sleep(SWEEP_SECONDS)
        readings = fleet.sweep(number, clock.now(), 0.01)
        began = time.process_time()
        seconds.append(timed(lambda: ledger.facts.record(readings))[1])  # noqa: B023
        cpu += time.process_time() - began
    found["sweep_record_cpu_s"] = cpu / sweeps
    found["sweep_record_median_s"], found["sweep_record_worst_s"] = sorted(seconds)[len(seconds) // 2], max(seconds)
    a_day = SWEEPS_A_DAY / sweeps
    found["bytes_a_node_and_sweep"] = (database.used_bytes() - before) / sweeps / len(readings)
    found["raw_mb_a_day"] = (database.used_bytes() - before) * a_day / 1e6
    for table, old in rows.items():
        found[f"{table}_rows_a_day"] = (database.rows(table) - old) * a_day


def _queries(ledger: Ledger, clock: Clock, found: dict[str, float]) -> None:
    hour = timedelta(hours=1)
    _, found["current_of_all_s"] = timed(lambda: ledger.facts.current())
    _, found["node_at_a_date_s"] = timed(lambda: ledger.facts.at("gpu-0007", clock.now() - hour / 2))
    _, found["history_of_a_fact_s"] = timed(lambda: ledger.facts.history("gpu-0007", "driver.loaded"))
    series = ledger.samples.series
    points, found["series_s"] = timed(lambda: series("gpu-0007", "load", clock.now() - hour, clock.now()))
    found["series_points"] = len(points)


def _tiers(ledger: Ledger, clock: Clock, database: Database, found: dict[str, float]) -> None:
    """Roll everything up, delete raw, then hours; the size of each tier and what the work costs."""
    day = timedelta(days=1)
    clock.sleep(86400)
    before = database.used_bytes()
    keep_all = Tiers(raw=99 * day, hourly=99 * day, daily=99 * day)
    thinned, seconds = timed(lambda: ledger.retention.thin(keep_all))
    hours, days = thinned.hours, thinned.days
    found["roll_up_s_an_hour_of_all_nodes"] = seconds / max(1, hours / (days or 1))
    rolled = (database.used_bytes() - before) / (hours + days)
    found["bytes_a_node_and_hour"] = rolled
    nodes = database.rows("readings")
    found["hourly_mb_a_day"], found["daily_mb_a_day"] = rolled * nodes * 24 / 1e6, rolled * nodes / 1e6
    thinned, seconds = timed(lambda: ledger.retention.thin(Tiers(raw=day / 24, hourly=99 * day, daily=99 * day)))
    found["delete_s_a_million_samples"] = seconds / thinned.deleted * 1e6
    default = Tiers()
    found["steady_state_gb"] = (
        found["raw_mb_a_day"] * (default.raw / day)
        + found["hourly_mb_a_day"] * (default.hourly / day)
        + found["daily_mb_a_day"] * (default.daily / day)
    ) / 1e3 + found["first_record_mb"] / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--sweeps", type=int, default=120)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), arguments.nodes, arguments.sweeps)
    print(json.dumps({name: round(value, 4) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
