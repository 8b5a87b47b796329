"""What a canary asks a metrics server for, and what it makes of partial answers and of errors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from unit.series_tools import AFTER, BEFORE, MINUTES, SETTINGS, busy, series

from blocks.metrics import open_metrics, read_nodes_seen, read_present_rules, read_series_samples
from fleet.errors import ConfigurationError, NodeUnreachable, TransientError
from fleet.metrics_port import Metrics, MetricsAnswer, Series
from fleet.metrics_settings import MetricsSettings
from fleet.series_catalog import judged_rules, rules_for

CLOCK = "DCGM_FI_DEV_SM_CLOCK"


class FakeMetrics:
    """Answers ranges with the series of the metric that a query is for; `names` is what it says that it has."""

    def __init__(self, by_metric: dict[str, list[Series]], names: frozenset[str] | None = None) -> None:
        self.by_metric = by_metric
        self.names = names
        self.warnings: tuple[str, ...] = ()
        self.error: Exception | None = None
        self.queries: list[str] = []
        self.starts: list[datetime] = []

    def read_instant(self, query: str, at: datetime) -> MetricsAnswer:
        raise AssertionError("nothing here is asked for at one moment")

    def read_range(self, query: str, start: datetime, end: datetime, step: timedelta) -> MetricsAnswer:
        if self.error is not None:
            raise self.error
        self.queries.append(query)
        self.starts.append(start)
        span = start.timestamp(), end.timestamp()
        found = [one for name, of in self.by_metric.items() if f"({name}{{" in query for one in of]
        cut = [Series(s.labels, *_between(s, *span)) for s in found]
        return MetricsAnswer(tuple(cut), self.warnings, (), bool(self.warnings))

    def read_series(self, selectors: Iterable[str], start: datetime, end: datetime) -> MetricsAnswer:
        self.queries += selectors
        found = [Series(one.labels, (), ()) for of in self.by_metric.values() for one in of]
        return MetricsAnswer(tuple(found), self.warnings, (), bool(self.warnings))

    def read_names(self, selectors: Iterable[str], start: datetime, end: datetime) -> frozenset[str] | None:
        return self.names


def _between(one: Series, start: float, end: float) -> tuple[list[float], list[float]]:
    points = [(t, v) for t, v in zip(one.times, one.values, strict=True) if start <= t <= end]
    return [t for t, _ in points], [v for _, v in points]


def fake(names: frozenset[str] | None = None) -> FakeMetrics:
    return FakeMetrics({CLOCK: [series(1755), series(1700, range(121, 181))], "DCGM_FI_DEV_GPU_UTIL": [busy()]}, names)


def values(metrics: Metrics, settings: MetricsSettings = SETTINGS) -> list[float | None]:
    reading = read_series_samples(metrics, settings, rules_for(["sm_clock"]), ["gpu001"], (BEFORE, AFTER))
    return [sample.value for sample in reading.samples]


def test_every_window_is_asked_for_from_its_first_step_on() -> None:
    metrics = fake()
    assert values(metrics) == [1755.0, 1700.0]
    assert set(metrics.starts) == {BEFORE.start + SETTINGS.step, AFTER.start + SETTINGS.step}


def test_metrics_that_the_server_does_not_have_are_not_asked_for() -> None:
    metrics = fake(frozenset({CLOCK, "DCGM_FI_DEV_GPU_UTIL", "up"}))
    assert values(metrics) == [1755.0, 1700.0]
    assert len(metrics.queries) == 4


def test_of_a_partial_list_of_names_nothing_is_concluded() -> None:
    metrics = fake(None)
    values(metrics)
    assert any("DCGM_FI_DEV_SM_CLOCK_HERTZ" in query for query in metrics.queries)


def test_a_server_that_cannot_be_asked_is_an_error_and_no_missing_series() -> None:
    metrics = fake()
    metrics.error = NodeUnreachable("no answer")
    with pytest.raises(NodeUnreachable):
        values(metrics)


def test_what_is_missing_from_a_partial_answer_says_so() -> None:
    metrics = fake()
    metrics.warnings = ("store 10.0.0.7: deadline exceeded",)
    metrics.by_metric[CLOCK] = [series(1755, MINUTES[:10])]
    reading = read_series_samples(metrics, SETTINGS, rules_for(["sm_clock"]), ["gpu001"], (BEFORE,))
    assert reading.warnings == metrics.warnings
    assert reading.samples[0].value is None
    assert "the answer was partial: store 10.0.0.7" in reading.samples[0].missing


def test_a_large_fleet_is_asked_for_a_few_nodes_at_a_time() -> None:
    metrics = fake(frozenset({CLOCK}))
    nodes = [f"gpu{number:03}" for number in range(100)]
    read_series_samples(metrics, SETTINGS, rules_for(["sm_clock"]), nodes, (BEFORE,))
    assert len(metrics.queries) == 4
    assert all(sum(f"{node}(" in query for query in metrics.queries) == 1 for node in nodes)


def test_the_inlet_selector_keeps_its_own_matchers() -> None:
    settings = MetricsSettings(url="https://m", inlet='ipmi_temperature_celsius{name="Inlet Temp"}')
    metrics = fake(frozenset())
    metrics.by_metric["ipmi_temperature_celsius"] = [
        Series({"instance": "gpu001:9290"}, [BEFORE.start.timestamp() + 60], [24.5])
    ]
    reading = read_series_samples(metrics, settings, rules_for(["sm_clock"]), ["gpu001"], (BEFORE,))
    (query,) = metrics.queries
    assert query.count('name="Inlet Temp"') == len(settings.labels.node)
    assert "[300000ms]" in query
    assert reading.samples[0].missing == "no series of this node"


def test_nodes_that_have_series_are_seen() -> None:
    nodes = ["gpu001", "gpu002"]
    assert read_nodes_seen(fake(), SETTINGS, nodes, BEFORE) == {"gpu001"}


def test_nodes_that_a_partial_answer_lacks_are_not_called_unseen() -> None:
    metrics = fake()
    metrics.warnings = ("a store is gone",)
    with pytest.raises(TransientError, match="a store is gone"):
        read_nodes_seen(metrics, SETTINGS, ["gpu001"], BEFORE)


def test_only_measures_that_are_exported_can_be_planned_for() -> None:
    def planned(*names: str) -> list[str]:
        rules = read_present_rules(fake(frozenset(names)), SETTINGS, judged_rules(), ["gpu001"], BEFORE)
        return [rule.measure for rule in rules]

    xid = "DCGM_FI_DEV_XID_ERRORS"
    assert planned(CLOCK, xid, "DCGM_FI_DEV_GPU_UTIL") == ["sm_clock", "xids"]
    assert planned(CLOCK, xid) == ["xids"]
    with pytest.raises(TransientError):
        read_present_rules(fake(None), SETTINGS, judged_rules(), ["gpu001"], BEFORE)


def test_no_windows_give_no_samples() -> None:
    assert read_series_samples(fake(), SETTINGS, rules_for(["sm_clock"]), ["gpu001"], ()).samples == ()


class Clock:
    """A clock that nobody waits on."""

    def now(self) -> datetime:
        return datetime(2026, 11, 30, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing is asked")


def test_a_secret_that_is_not_there_is_named_by_its_key(tmp_path: Path) -> None:
    settings = MetricsSettings.model_validate({"url": "https://m", "bearer": {"file": "token"}})
    with pytest.raises(ConfigurationError, match=r"metrics\.bearer"):
        open_metrics(settings, tmp_path, Clock())


def test_a_ca_that_is_not_there_is_an_error_before_anything_is_asked(tmp_path: Path) -> None:
    settings = MetricsSettings.model_validate({"url": "https://m", "tls": {"ca": "no.pem"}})
    with pytest.raises(ConfigurationError, match=r"no\.pem"):
        open_metrics(settings, tmp_path, Clock())
