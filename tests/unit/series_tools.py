"""Series as dcgm-exporter's come out of a metrics server, a point a minute, for the tests of samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from fleet.measures import Phase, Sample
from fleet.metrics_port import Series
from fleet.metrics_settings import MetricsSettings
from fleet.series import PhaseWindow, SeriesReading, read_samples
from fleet.series_catalog import rules_for
from fleet.series_labels import NodeNames

START = datetime(2026, 3, 2, tzinfo=UTC)
BEFORE = PhaseWindow(Phase.BEFORE, START, START + timedelta(hours=1))
AFTER = PhaseWindow(Phase.AFTER, START + timedelta(hours=2), START + timedelta(hours=3))
MINUTES = tuple(range(1, 61))
AFTER_MINUTES = tuple(range(121, 181))
SETTINGS = MetricsSettings(url="https://metrics.example")
Answers = dict[str, list[Series]]


def series(
    values: Iterable[float] | float,
    minutes: Sequence[int] = MINUTES,
    gpu: str = "0",
    uuid: str = "GPU-a",
    host: str = "gpu001",
    **labels: str,
) -> Series:
    """Points at these minutes after START; one value stands for all."""
    given = [float(values)] * len(minutes) if isinstance(values, int | float) else [float(v) for v in values]
    times = tuple(START.timestamp() + 60 * minute for minute in minutes)
    named = {"Hostname": host, "gpu": gpu, "UUID": uuid} | labels
    return Series({key: value for key, value in named.items() if value}, times, tuple(given))


def busy(minutes: Sequence[int] = (*MINUTES, *AFTER_MINUTES), **labels: str) -> Series:
    return series(98, minutes, **labels)


def read(
    answers: Answers,
    measure: str = "sm_clock",
    windows: Sequence[PhaseWindow] = (BEFORE,),
    nodes: Sequence[str] = ("gpu001",),
    settings: MetricsSettings = SETTINGS,
    warnings: tuple[str, ...] = (),
) -> SeriesReading:
    answers = {"DCGM_FI_DEV_GPU_UTIL": [busy()], **answers}
    names = NodeNames(tuple(nodes), settings.names)
    return read_samples(rules_for([measure]), answers, names, windows, settings, warnings=warnings)


def one(answers: Answers, measure: str = "sm_clock", windows: Sequence[PhaseWindow] = (BEFORE,)) -> Sample:
    """The last window's only sample."""
    return read(answers, measure, windows).samples[-1]
