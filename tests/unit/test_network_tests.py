"""Measured bandwidths are read in their units, and a run that broke off or gave wrong numbers says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.bus_bandwidth import algorithm_bandwidth, bus_bandwidth, bus_factor
from fleet.findings import Explanation, Severity
from fleet.readers import (
    dcgm_diag_json,
    dcgm_health,
    dcgm_metrics,
    dcgm_text,
    ethernet,
    infiniband,
    lspci,
    network_tests,
    nvlink,
    topology,
)
from fleet.readers.nccl_tests import NcclRun, read_nccl
from fleet.readers.network_tests import read_iperf, read_rdma


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 8, 1.75),
        ("all_reduce_perf", 2, 1.0),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 8, 0.875),
        ("alltoall", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("sendrecv", 8, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_each_collective_has_its_factor(collective: str, ranks: int, factor: float) -> None:
    assert bus_factor(collective, ranks) == factor


@pytest.mark.parametrize(("collective", "ranks"), [("all_reduce", 0), ("all_resign", 8), ("", 8)])
def test_what_has_no_bus_bandwidth_is_refused(collective: str, ranks: int) -> None:
    with pytest.raises(ValueError, match="no bus bandwidth"):
        bus_bandwidth(collective, 1.0, ranks)


def test_a_bandwidth_is_size_over_time() -> None:
    assert algorithm_bandwidth(17179869184, 127660) == pytest.approx(134.58, abs=0.01)
    with pytest.raises(ValueError, match="no bandwidth"):
        algorithm_bandwidth(1, 0)


def _nccl(*rows: str, average: str | None = "199.9", wrong: str = "0 OK") -> str:
    lines = [
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 17179869184 step: 2(factor) validation: 1",
        "#  Rank  0 Group  0 Pid  199 on      node7 device  0 [0x1b] NVIDIA H100 80GB HBM3",
        "#  Rank  1 Group  0 Pid  199 on      node8 device  1 [0x43] NVIDIA H100 80GB HBM3",
        "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong",
        *rows,
    ]
    if average is not None:
        lines += [f"# Out of bounds values : {wrong}", f"# Avg bus bandwidth    : {average} "]
    return "\n".join(lines) + "\n"


_ROW = "  2147483648  536870912  float     sum      -1    16195  132.60  232.06      0    16921  126.91  222.09      0"
_SMALL = (
    "           8          2  float     sum      -1    32.10    0.00    0.00      0    31.88    0.00    0.00      0"
)


def test_a_whole_run_has_its_peak_and_its_average() -> None:
    run = read_nccl(_nccl(_SMALL, _ROW))
    assert (run.collective, run.ranks, run.hosts, run.average_bus_gb_s) == ("all_reduce", 2, ("node7", "node8"), 199.9)
    assert run.peak is not None
    assert (run.peak.size_bytes, run.peak.best_bus_gb_s) == (2147483648, 232.06)
    assert network_tests.explain(_nccl(_SMALL, _ROW)).findings == ()


@pytest.mark.parametrize(
    "row",
    [
        _ROW.replace("-1 ", "   "),  # before 2.12: no root
        _ROW.replace("sum      -1", "             "),  # all_gather of old versions
        _ROW.replace("sum", "none"),
        _ROW.replace("      0    16921", "  0e+00    16921"),
        f" 0: {_ROW}",
        f"[1,0]<stdout>:{_ROW}",
    ],
)
def test_a_row_of_any_version_gives_the_same_figures(row: str) -> None:
    (read,) = read_nccl(_nccl(row)).rows
    assert (read.time_us, read.algorithm_gb_s, read.bus_gb_s, read.wrong) == (16195.0, 132.6, 232.06, 0)
    assert (read.in_place_bus_gb_s, read.in_place_wrong) == (222.09, 0)


def test_wrong_numbers_are_an_error() -> None:
    (found,) = network_tests.explain(_nccl(_ROW[:-1] + "3")).findings
    assert (found.code, found.severity) == ("nccl.wrong_results", Severity.ERROR)
    (found,) = network_tests.explain(_nccl(_ROW, wrong="4 FAILED")).findings
    assert found.code == "nccl.wrong_results"


def test_what_was_not_checked_is_not_right() -> None:
    explained = network_tests.explain(_nccl(_ROW.replace(" 0    16921", "N/A   16921")))
    assert explained.findings == ()
    assert any("not checked" in note for note in explained.unknown)


def test_a_run_that_broke_off_is_not_complete() -> None:
    text = _nccl(_ROW, average=None) + "node7: Test NCCL failure common.cu:303 'unhandled system error'\n"
    run = read_nccl(text)
    assert (run.complete, len(run.rows)) == (False, 1)
    explained = network_tests.explain(text)
    assert [found.code for found in explained.findings] == ["nccl.failed"]
    assert any("cut" in note for note in explained.unknown)


def test_text_without_a_run_is_an_empty_run() -> None:
    assert read_nccl("nothing") == NcclRun()


def _perftest(unit: str, average: str) -> str:
    return f"""\
WARNING: BW peak won't be measured in this run.
---------------------------------------------------------------------------------------
                    RDMA_Write Bidirectional BW Test
 Dual-port       : OFF		Device         : mlx5_0
 Link type       : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 800.0 != 2100.0. CPU Frequency is not max.
 65536      5000             0.00               {average}		     0.747
---------------------------------------------------------------------------------------
"""


@pytest.mark.parametrize(
    ("unit", "average", "gbit"), [("Gb/sec", "391.83", 391.83), ("MB/sec", "1000", 8.0), ("MiB/sec", "1000", 8.388608)]
)
def test_the_unit_of_perftest_is_in_its_heading(unit: str, average: str, gbit: float) -> None:
    run = read_rdma(_perftest(unit, average))
    assert (run.device, run.link, run.bidirectional) == ("mlx5_0", "IB", True)
    (row,) = run.rows
    assert row.average_gbit_s == pytest.approx(gbit)
    assert network_tests.recognises(_perftest(unit, average))


def test_a_perftest_that_did_not_connect_measured_nothing() -> None:
    text = " #bytes     #iterations    BW peak[Gb/sec]\n Couldn't connect to node8:18515\n"
    explained = network_tests.explain(text)
    assert [found.code for found in explained.findings] == ["rdma.failed"]
    assert explained.unknown == ("The bandwidth: the text has no result.",)


_IPERF = """\
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  54.9 GBytes  47.2 Gbits/sec   11             sender
[  5]   0.00-10.04  sec  54.9 GBytes  47.0 Gbits/sec                  receiver
[SUM]   0.00-10.00  sec   110 GBytes  94.2 Gbits/sec   23             sender
[SUM]   0.00-10.04  sec   110 GBytes  93.9 Gbits/sec                  receiver
"""


def test_iperfs_sum_goes_before_a_single_stream() -> None:
    run = read_iperf(_IPERF)
    assert (run.sent_gbit_s, run.received_gbit_s, run.retransmits) == (94.2, 93.9, 23)
    alone = read_iperf(_IPERF.split("[SUM]")[0])
    assert (alone.sent_gbit_s, alone.received_gbit_s, alone.retransmits) == (47.2, 47.0, 11)
    assert network_tests.recognises(_IPERF)


def test_iperfs_json_says_the_same() -> None:
    end = {"sum_sent": {"bits_per_second": 94.2e9, "retransmits": 23}, "sum_received": {"bits_per_second": 93.9e9}}
    run = read_iperf(json.dumps({"start": {"version": "iperf 3.9"}, "end": end}))
    assert (run.sent_gbit_s, run.received_gbit_s, run.retransmits) == (94.2, 93.9, 23)
    failed = read_iperf(json.dumps({"start": {"version": "iperf 3.9"}, "end": {}, "error": "unable to connect"}))
    assert (failed.sent_gbit_s, failed.errors) == (None, ("unable to connect",))


@given(st.text(), st.integers(0, 700))
def test_any_text_gives_an_answer(junk: str, place: int) -> None:
    for text in (_nccl(_SMALL, _ROW), _perftest("Gb/sec", "391.83"), _IPERF):
        for damaged in (junk, text[:place] + junk, text[:place] + junk + text[place:]):
            network_tests.recognises(damaged)
            assert isinstance(network_tests.explain(damaged), Explanation)


def test_other_texts_are_not_claimed() -> None:
    for text in ("", "GPU 0: NVIDIA H100 (UUID: GPU-1)", "[  5] some log bits", '{"end": 1}'):
        assert not network_tests.recognises(text)


@pytest.mark.corpus
def test_the_known_case_of_bus_bandwidth_comes_out(shared: Path) -> None:
    cases = [case for case in json.loads((shared / "facts/cases.json").read_text()) if case["id"] == "busbw"]
    assert cases
    for case in cases:
        given_ = case["input"]
        assert bus_bandwidth("all_reduce", given_["algbw"], given_["n"]) == pytest.approx(
            case["expected"], rel=case["tol"]
        )


_READERS = (
    dcgm_diag_json,
    dcgm_health,
    dcgm_metrics,
    dcgm_text,
    ethernet,
    infiniband,
    lspci,
    network_tests,
    nvlink,
    topology,
)


@pytest.mark.corpus
def test_each_text_of_a_network_is_known_by_one_reader(shared: Path) -> None:
    for path in (shared / "corpus" / "net").iterdir():
        claims = [reader.__name__ for reader in _READERS if reader.recognises(path.read_text())]
        assert len(claims) == 1, (path.name, claims)


@pytest.mark.corpus
@pytest.mark.parametrize("folder", ["nvsmi", "dmesg", "redfish", "slurm", "fwver"])
def test_texts_of_other_kinds_are_not_claimed(shared: Path, folder: str) -> None:
    for path in (shared / "corpus" / folder).iterdir():
        claims = [reader.__name__ for reader in _READERS if reader.recognises(path.read_text())]
        assert claims == [], path.name
