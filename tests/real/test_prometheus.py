"""Samples from a real Prometheus: what was written into its blocks comes out as values, or as missing with a reason."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from real.prometheus_scenarios import (
    BEGAN,
    BUSY_CLOCK_MHZ,
    CANARIES,
    CONTROLS,
    NODES,
    STEP_SECONDS,
    WINDOWS,
    Reader,
    counted,
    rack_of,
    settings_for,
)
from real.prometheus_server import PrometheusServer

from adapters.clock import SystemClock
from adapters.prometheus import Prometheus
from blocks.metrics import read_nodes_seen, read_series_samples
from fleet.errors import ConfigurationError
from fleet.measures import Phase, Sample
from fleet.series import PhaseWindow, SeriesReading
from fleet.series_catalog import rules_for
from fleet.series_notes import NoteKind

pytest_plugins = ("real.prometheus_fixtures",)
pytestmark = pytest.mark.prometheus
_COUNTS = ("pcie_replays", "ecc_corrected", "xids")


def middle(reading: SeriesReading, nodes: tuple[str, ...], phase: Phase) -> float:
    """The mean of the samples that have a value."""
    values = [s.value for s in reading.samples if s.node in nodes and s.phase is phase and s.value is not None]
    return statistics.fmean(values)


def loss(reading: SeriesReading, nodes: tuple[str, ...]) -> float:
    return 1 - middle(reading, nodes, Phase.AFTER) / middle(reading, nodes, Phase.BEFORE)


def test_a_clean_change_with_a_new_exporter_keeps_every_gpu_and_its_unit(read_scenario: Reader) -> None:
    reading = read_scenario("clean")
    assert len(reading.samples) == len(NODES) * 8 * len(WINDOWS)
    assert [s for s in reading.samples if s.value is None] == []
    assert min(reading.complete.values()) == 1.0
    assert middle(reading, CANARIES, Phase.AFTER) == pytest.approx(BUSY_CLOCK_MHZ, rel=0.005)
    assert abs(loss(reading, CANARIES) - loss(reading, CONTROLS)) < 0.005
    assert reading.notes == ()
    assert all(21 < (s.conditions.inlet_celsius or 0) < 25 for s in reading.samples)


def test_a_loss_of_three_percent_on_the_canaries_is_in_their_samples_only(read_scenario: Reader) -> None:
    reading = read_scenario("loss")
    assert loss(reading, CANARIES) == pytest.approx(0.03, abs=0.004)
    assert loss(reading, CONTROLS) == pytest.approx(0.0, abs=0.004)


def test_a_slow_drift_is_in_both_cohorts(read_scenario: Reader) -> None:
    reading = read_scenario("drift")
    assert loss(reading, CANARIES) == pytest.approx(loss(reading, CONTROLS), abs=0.004)
    assert loss(reading, CONTROLS) > 0.015


def test_one_bad_rack_loses_on_canaries_and_controls_alike(read_scenario: Reader) -> None:
    reading = read_scenario("rack")
    bad = tuple(node for node in NODES if rack_of(node) == "r4")
    assert loss(reading, bad) == pytest.approx(0.06, abs=0.004)
    assert loss(reading, tuple(node for node in NODES if node not in bad)) == pytest.approx(0.0, abs=0.004)


def test_series_that_do_not_come_back_are_missing_and_no_zero(
    read_scenario: Reader, client: Prometheus, server: PrometheusServer
) -> None:
    reading = read_scenario("missing")
    silent = [s for s in reading.samples if s.node in CANARIES[:12] and s.phase is Phase.AFTER]
    assert {(s.value, s.missing) for s in silent} == {(None, "no points")}
    assert len(silent) == 12 * 8 * 2
    assert all(s.value is not None for s in reading.samples if s not in silent)
    seen = read_nodes_seen(client, settings_for("missing", server.url), NODES, WINDOWS[-1])
    assert seen == frozenset(NODES) - frozenset(CANARIES[:12])


def test_the_last_value_before_a_window_is_not_looked_back_for(client: Prometheus, server: PrometheusServer) -> None:
    down = PhaseWindow(Phase.AFTER, BEGAN + timedelta(hours=1), BEGAN + timedelta(hours=1, minutes=10))
    settings = settings_for("missing", server.url)
    reading = read_series_samples(client, settings, rules_for(["sm_clock"]), CANARIES[:1], (WINDOWS[1], down))
    assert [s.missing for s in reading.samples if s.phase is Phase.AFTER] == ["no points"] * 8


def test_counters_that_begin_again_count_what_came(read_scenario: Reader) -> None:
    reading = read_scenario("resets", *_COUNTS)
    found: dict[tuple[str, int | None, Phase], float] = {}
    for sample in of_measure(reading, "pcie_replays"):
        assert sample.value is not None
        assert sample.exposure_hours == pytest.approx(0.5, abs=0.05)
        key = sample.node, sample.gpu, sample.phase
        found[key] = found.get(key, 0.0) + sample.value
    for (node, gpu, phase), count in found.items():
        if (node, phase) != (CANARIES[0], Phase.AFTER):
            assert count == counted(node, int(gpu or 0))
        else:
            assert counted(node, int(gpu or 0)) - 2 <= count <= counted(node, int(gpu or 0))
    assert {(n.kind, n.node, n.phase) for n in reading.notes if n.measure == "pcie_replays"} == {
        (NoteKind.RESET, CANARIES[0], Phase.AFTER)
    }
    assert {s.value for s in of_measure(reading, "ecc_corrected")} == {0.0}


def test_an_old_xid_that_a_gauge_still_shows_is_no_new_one(read_scenario: Reader) -> None:
    reading = read_scenario("resets", *_COUNTS)
    assert {s.value for s in of_measure(reading, "xids")} == {0.0}
    assert {n.gpu for n in reading.notes if n.kind is NoteKind.XID} == {5}


def test_throttled_controls_say_so_with_every_sample(read_scenario: Reader) -> None:
    reading = read_scenario("throttled")
    assert {
        (s.node in CONTROLS, s.phase, s.conditions.throttled) for s in reading.samples if s.conditions.throttled != ()
    } == {(True, Phase.AFTER, ("hw_thermal",))}
    assert loss(reading, CONTROLS) == pytest.approx(0.05, abs=0.004)


def test_a_measure_that_is_not_exported_is_absent(read_scenario: Reader) -> None:
    reading = read_scenario("clean", "sm_clock", "dram_active")
    assert reading.absent == ("dram_active",)
    assert {(s.value, s.missing) for s in of_measure(reading, "dram_active")} == {(None, "no series")}


def test_a_range_of_more_points_than_one_answer_takes_comes_whole(client: Prometheus) -> None:
    start = WINDOWS[0].start
    query = 'DCGM_FI_DEV_SM_CLOCK{fleet="loss",Hostname="gpu020.example.net",gpu="0"}'
    whole = client.read_range(query, start, start + timedelta(hours=2), timedelta(milliseconds=500))
    (series,) = whole.series
    assert len(series.times) > 11_000
    assert len(set(series.times)) == len(series.times)
    assert series.times[-1] == (start + timedelta(hours=2)).timestamp()


def test_a_raw_selector_gives_the_points_as_they_were_scraped(client: Prometheus) -> None:
    query = 'DCGM_FI_DEV_GPU_UTIL{fleet="loss",Hostname="gpu020.example.net",gpu="0"}[10m]'
    (series,) = client.read_instant(query, WINDOWS[0].end).series
    assert len(series.times) == 5
    assert {round(time) % STEP_SECONDS for time in series.times} == {7}


def test_what_the_server_refuses_is_an_error_with_its_words(client: Prometheus) -> None:
    with pytest.raises(ConfigurationError, match="parse error"):
        client.read_instant("sum(", datetime(2026, 3, 2, tzinfo=UTC))


def test_a_server_with_a_small_limit_is_asked_for_less_at_a_time() -> None:
    with PrometheusServer(_few_lines(), "--query.max-samples=500") as small:
        client = Prometheus(small.url, SystemClock())
        start = datetime(2026, 3, 2, tzinfo=UTC)
        (series,) = client.read_range("up", start, start + timedelta(hours=1), timedelta(seconds=2)).series
        client.close()
    assert len(series.times) == 1801


def _few_lines() -> Iterator[str]:
    start = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
    for minute in range(61):
        yield f"up 1 {start + 60 * minute:.0f}"


def of_measure(reading: SeriesReading, measure: str) -> list[Sample]:
    return [sample for sample in reading.samples if sample.measure == measure]
