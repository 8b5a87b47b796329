"""One real Prometheus with all scenarios for a whole test run, and its readings, each had once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from real.prometheus_scenarios import NODES, WINDOWS, Reader, openmetrics, settings_for
from real.prometheus_server import PrometheusServer, missing_prometheus

from adapters.clock import SystemClock
from adapters.prometheus import Prometheus
from blocks.metrics import read_series_samples
from fleet.series import SeriesReading
from fleet.series_catalog import rules_for


@pytest.fixture(scope="session")
def server() -> Iterator[PrometheusServer]:
    missing = missing_prometheus()
    if missing is not None:
        pytest.skip(missing)
    with PrometheusServer(openmetrics()) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: PrometheusServer) -> Iterator[Prometheus]:
    prometheus = Prometheus(server.url, SystemClock())
    yield prometheus
    prometheus.close()


@pytest.fixture(scope="session")
def read_scenario(client: Prometheus, server: PrometheusServer) -> Reader:
    readings: dict[tuple[str, ...], SeriesReading] = {}

    def read(scenario: str, *measures: str) -> SeriesReading:
        key = (scenario, *measures)
        if key not in readings:
            settings = settings_for(scenario, server.url)
            rules = rules_for(measures or ("sm_clock",))
            readings[key] = read_series_samples(client, settings, rules, NODES, WINDOWS)
        return readings[key]

    return read
