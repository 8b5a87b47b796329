"""Values of the public corpus' scrapes as a metrics server would keep them, read in place."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.series_tools import MINUTES, busy, one, read, series

from fleet.readers.dcgm_metrics import read_dcgm_metrics
from fleet.series_catalog import load_series_rules

pytestmark = pytest.mark.corpus


def _lines(shared: Path, name: str) -> list[tuple[str, str, float]]:
    """Metric, GPU and raw value of every sample of a scrape."""
    text = (shared / "corpus" / "dcgm" / name).read_text()
    samples = read_dcgm_metrics(text)
    raw = [float(line.split()[-1]) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(s.metric, s.labels.get("gpu", "0"), v) for s, v in zip(samples, raw[-len(samples) :], strict=True)]


def test_blanks_of_a_real_scrape_are_missing_and_its_value_is_not(shared: Path) -> None:
    lines = _lines(shared, "metrics_fp64_blank.prom")
    scraped = {gpu: value for metric, gpu, value in lines if metric == "DCGM_FI_PROF_SM_ACTIVE"}
    found = {}
    for gpu, value in scraped.items():
        answers = {
            "DCGM_FI_PROF_SM_ACTIVE": [series(value, gpu=gpu, uuid="")],
            "DCGM_FI_DEV_GPU_UTIL": [busy(MINUTES, gpu=gpu, uuid="")],
        }
        found[gpu] = one(answers, "sm_active").value
    assert found == {"0": None, "1": pytest.approx(0.9126, abs=1e-4)}
    transmitted = next(value for metric, _, value in lines if metric == "DCGM_FI_PROF_NVLINK_TX_BYTES")
    answers = {"DCGM_FI_PROF_NVLINK_TX_BYTES": [series(transmitted)]}
    assert one(answers, "nvlink_transmitted").missing == "DCGM has no value"


def test_a_gb200_without_an_xid_metric_has_no_count_of_xids(shared: Path) -> None:
    lines = _lines(shared, "metrics_gb200_domain_metric_absent.prom")
    answers = {metric: [series(value, gpu=gpu)] for metric, gpu, value in lines}
    assert one(answers, "xids").missing == "no series"
    assert one(answers, "rows_remapped_uncorrected").value == 0.0


def test_a_count_within_a_window_is_not_taken_for_the_last_xid(shared: Path) -> None:
    lines = _lines(shared, "metrics_xid_active_name_mismatch.prom")
    answers = {metric: [series(value, gpu=gpu)] for metric, gpu, value in lines}
    assert all(read(answers, rule.measure).samples[0].value is None for rule in load_series_rules() if rule.judged)
