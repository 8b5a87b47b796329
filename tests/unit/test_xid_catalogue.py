"""The catalogues and limits of GPU health: the published cases, and what stands in the data files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fleet.findings import Action, Severity
from fleet.health_catalog import nvlink_rule, nvlink_rules, sxid_rule, sxid_rules, xid_rule, xid_rules
from fleet.health_limits import (
    RemapVerdict,
    RetirementVerdict,
    page_retirement_verdict,
    pcie_replays_per_minute_limit,
    read_clock_events,
    recovery_action,
    row_remap_verdict,
    source_of,
    sram_threshold_exceeded,
)
from fleet.readers.kernel_log import read_kernel_log


def _cases(shared: Path, kind: str) -> list[Mapping[str, object]]:
    found = [case for case in json.loads((shared / "facts" / "cases.json").read_text()) if case["id"] == kind]
    assert found
    return found


@pytest.mark.corpus
def test_the_catalogues_own_action_of_every_published_case(shared: Path) -> None:
    for case in _cases(shared, "xid_nvidia_action"):
        code = case["input"]
        assert isinstance(code, int)
        rule = xid_rule(code)
        assert rule is not None
        assert rule.immediate_action == case["expected"], code


@pytest.mark.corpus
def test_every_published_log_line_gives_its_code(shared: Path) -> None:
    for case in _cases(shared, "xid_parse"):
        log = read_kernel_log(str(case["input"]))
        read = [{"kind": "Xid", "code": x.code} for x in log.xids] + [
            {"kind": "SXid", "code": s.code} for s in log.sxids
        ]
        assert read == [case["expected"]]


@pytest.mark.corpus
def test_the_published_cases_of_row_remapping(shared: Path) -> None:
    names = {"total_uncorrectable_remaps": "uncorrectable_remaps"}
    for case in _cases(shared, "row_remap"):
        given = case["input"]
        assert isinstance(given, dict)
        known = {names.get(key, key): value for key, value in given.items()}
        verdict = row_remap_verdict(
            pending=bool(known["pending"]) if "pending" in known else None,
            failure=bool(known["failure"]) if "failure" in known else None,
            uncorrectable_remaps=known.get("uncorrectable_remaps"),
            new_uncorrectable=known.get("new_uncorrectable", 0),
        )
        assert verdict.value == case["expected"]


@pytest.mark.corpus
def test_the_published_cases_of_page_retirement(shared: Path) -> None:
    for case in _cases(shared, "page_retirement_dcgm"):
        given = case["input"]
        assert isinstance(given, dict)
        verdict = page_retirement_verdict(
            total=given.get("total"), double_bit=given.get("dbe"), new_last_week=given.get("new_last_week")
        )
        assert verdict.value == case["expected"]


@pytest.mark.corpus
def test_the_published_cases_of_clock_events_and_pcie_replays(shared: Path) -> None:
    for case in _cases(shared, "clock_mask"):
        assert read_clock_events(int(str(case["input"]), 16)).verdict == case["expected"]
    for case in _cases(shared, "pcie_replay_limit_per_min_x16"):
        given = case["input"]
        assert isinstance(given, dict)
        assert pcie_replays_per_minute_limit(given["gen"]) == case["expected"]


def test_every_row_of_the_catalogues_names_its_source() -> None:
    sources = [xid.source for xid in xid_rules().values()]
    sources += [sxid.source for sxid in sxid_rules().values()]
    sources += [nvlink.source for nvlink in nvlink_rules()]
    assert len(sources) > 300
    assert all(sources)
    assert all(
        source_of(name) for name in ("row_remap", "page_retirement", "pcie_replay_per_minute", "clock_event_bits")
    )


def test_a_code_that_the_catalogue_does_not_have_has_no_rule() -> None:
    assert xid_rule(0) is None
    assert xid_rule(999) is None
    assert sxid_rule(1) is None


def test_a_code_without_a_published_action_is_for_a_person() -> None:
    rule = xid_rule(167)
    assert rule is not None
    assert (rule.immediate_action, rule.severity, rule.action) == ("", Severity.WARNING, Action.INVESTIGATE)


def test_an_nvlink_fault_is_found_by_either_layout_of_its_register() -> None:
    first = nvlink_rule(145, "RLW_RXPIPE", 0x0409A0C2, 0x00000008)
    second = nvlink_rule(146, "TLW_RX/TLW_RX_PIPE0", 0x0000000A, 0x00000004)
    assert first is not None
    assert (first.unit, first.resolution) == ("RLW_RXPIPE", "IGNORE")
    assert second is not None
    assert (second.unit, second.resolution) == ("TLW_RX/TLW_RX_PIPE0", "RESET_GPU")


def test_of_several_error_bits_the_gravest_counts() -> None:
    rule = nvlink_rule(144, "SAW_MVB", 0x00000021, 0x00000006)
    assert rule is not None
    assert (rule.error_status, rule.resolution) == (2, "RESET_GPU")


def test_a_register_that_no_rule_covers_has_none() -> None:
    assert nvlink_rule(145, "RLW_CTRL", 0x03FFFFFF, 0x00000001) is None
    assert nvlink_rule(99, "RLW_CTRL", 0, 0) is None


def test_a_pending_row_asks_for_a_reset_and_a_failed_one_for_more() -> None:
    assert row_remap_verdict(pending=True, failure=False) is RemapVerdict.RESET_TO_APPLY
    assert row_remap_verdict(pending=True, failure=True) is RemapVerdict.RMA_AFTER_FIELD_DIAG
    assert row_remap_verdict(pending=False, failure=False) is RemapVerdict.OK
    assert (
        row_remap_verdict(pending=False, failure=False, remaps_in_bank=8, new_uncorrectable=1)
        is RemapVerdict.FAILURE_FLAG
    )


def test_rows_and_pages_that_were_not_read_are_unknown() -> None:
    assert row_remap_verdict() is RemapVerdict.UNKNOWN
    assert row_remap_verdict(pending=False) is RemapVerdict.UNKNOWN
    assert page_retirement_verdict() is RetirementVerdict.UNKNOWN
    assert page_retirement_verdict(double_bit=16) is RetirementVerdict.UNKNOWN
    assert sram_threshold_exceeded() is None


def test_pages_fail_by_their_number_or_by_their_growth() -> None:
    assert page_retirement_verdict(total=62) is RetirementVerdict.OK
    assert page_retirement_verdict(double_bit=16, new_last_week=2) is RetirementVerdict.FAIL
    assert page_retirement_verdict(double_bit=15, new_last_week=9) is RetirementVerdict.OK


def test_sram_errors_count_by_the_kind_of_memory() -> None:
    assert sram_threshold_exceeded(parity=5) is True
    assert sram_threshold_exceeded(parity=4) is False
    assert sram_threshold_exceeded(secded=3) is True


@pytest.mark.parametrize(("generation", "lanes", "limit"), [(4, 16, 16), (5, 8, 16), (6, 16, 62), (1, 1, 1)])
def test_the_limit_of_replays_follows_generation_and_width(generation: int, lanes: int, limit: int) -> None:
    assert pcie_replays_per_minute_limit(generation, lanes) == limit


def test_a_link_of_unknown_generation_or_width_has_no_limit() -> None:
    assert pcie_replays_per_minute_limit(9) is None
    assert pcie_replays_per_minute_limit(5, 0) is None


def test_a_clock_event_without_a_name_is_unknown_and_an_idle_gpu_is_well() -> None:
    assert read_clock_events(0).verdict == "ok"
    assert read_clock_events(0x5).reasons == ("gpu_idle", "sw_power_cap")
    assert read_clock_events(1 << 20).verdict == "unknown"
    assert read_clock_events(-1).verdict == "unknown"
    assert read_clock_events(1 << 20 | 0x80).verdict == "hw_power_brake"


def test_the_drivers_recovery_actions_have_names_and_a_new_one_has_none() -> None:
    reboot = recovery_action(2)
    assert reboot is not None
    assert (reboot.name, reboot.action) == ("node reboot", Action.REBOOT_NODE)
    assert recovery_action(99) is None
