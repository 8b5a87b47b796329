"""Three answers to every item: as it should be, drifted, unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.drift_facts import AT, BASELINE, VBIOS, baseline, fleet, good_fleet, gpu, reading, without

from fleet.drift import DriftReport, DriftRow, DriftVerdict, judge_drift
from fleet.drift_rules import Mend
from fleet.facts import NodeFacts, PartFacts

TODAY = date(2026, 11, 30)
OK, DRIFTED, UNKNOWN = DriftVerdict.OK, DriftVerdict.DRIFTED, DriftVerdict.UNKNOWN


def judge(*facts: NodeFacts, text: str = BASELINE, today: date = TODAY) -> DriftReport:
    return judge_drift(baseline(text), fleet().inventory(), facts, today)


def changed(name: str, value: str) -> NodeFacts:
    return reading("gpu-0001", {name: value})


def row(facts: NodeFacts, fact: str, text: str = BASELINE) -> DriftRow:
    """The first row of the fact of gpu-0001."""
    return next(r for r in judge(facts, text=text).rows if (r.node, r.fact) == ("gpu-0001", fact))


def answers(report: DriftReport) -> dict[str, list[str]]:
    return {v.value: [f"{r.node} {r.subject} {r.fact}" for r in report.of(v)] for v in (DRIFTED, UNKNOWN)}


def test_a_fleet_that_is_as_it_should_be_has_no_drift_and_nothing_unknown() -> None:
    report = judge(*good_fleet())
    assert answers(report) == {"drifted": [], "unknown": []}
    assert {r.node for r in report.of(OK)} == {"gpu-0001", "gpu-0002"}
    assert len(report.of(OK)) == 2 * (16 + 2 * 5)
    assert report.not_judged == {"dev": 1}


def test_three_changes_on_three_nodes_are_exactly_three_rows() -> None:
    text = BASELINE + "  dev:\n    services: {packagekit: inactive}\n"
    report = judge(
        reading("gpu-0001", {"kernel.running": "6.11.0-9-generic"}),
        reading("gpu-0002", gpus=(gpu(1, "gpu-0002"), gpu(2, "gpu-0002", {"ecc_mode": "disabled"}))),
        reading("gpu-0003", {"service.packagekit": "active"}),
        text=text,
    )
    assert answers(report)["drifted"] == [
        "gpu-0001 node kernel.running",
        "gpu-0002 gpu 0000:2b:00.0 ecc_mode",
        "gpu-0003 node service.packagekit",
    ]
    assert answers(report)["unknown"] == []


@pytest.mark.parametrize(
    ("fact", "value", "verdict", "mend"),
    [
        ("driver.loaded", "580.105.8", OK, Mend.DRIVER_CANARY),
        ("driver.loaded", "590.44.01", DRIFTED, Mend.DRIVER_CANARY),
        ("driver.loaded", "[N/A]", UNKNOWN, Mend.DRIVER_CANARY),
        ("driver.user_space", "580.95.05", DRIFTED, Mend.DRIVER_CANARY),
        ("fabric_manager.version", "580.95.05", DRIFTED, Mend.DRIVER_CANARY),
        ("fabric_manager.version", "580", UNKNOWN, Mend.DRIVER_CANARY),
        ("kernel.running", "6.8.0-111-generic", OK, Mend.PERSON),
        ("os.release", "Ubuntu 22.04.5 LTS", DRIFTED, Mend.PERSON),
        ("container_toolkit.version", "1.17.8", DRIFTED, Mend.DRIVER_CANARY),
        ("gpu.count", "1", DRIFTED, Mend.PERSON),
        ("gpu.count", "two", UNKNOWN, Mend.PERSON),
        ("firmware.HGX_FW_GPU_SXM_2", "96.00.89.00.01", DRIFTED, Mend.FIRMWARE_ROLLOUT),
        ("firmware.HGX_FW_GPU_SXM_2", "00.00.00.00.00", UNKNOWN, Mend.FIRMWARE_ROLLOUT),
        ("bios.SriovGlobalEnable", "Disabled", DRIFTED, Mend.PERSON),
        ("service.nvidia-persistenced", "failed", DRIFTED, Mend.DRIVER_SETTINGS),
        ("service.nvidia-persistenced", "activating", UNKNOWN, Mend.DRIVER_SETTINGS),
        ("service.packagekit", "failed", DRIFTED, Mend.PERSON),
        ("service.packagekit", "absent", OK, Mend.PERSON),
        ("egress.motd_news", "1", DRIFTED, Mend.PERSON),
        ("egress.motd_news", "", UNKNOWN, Mend.PERSON),
        ("updates.unattended", "on", DRIFTED, Mend.PERSON),
        ("updates.unattended", "perhaps", UNKNOWN, Mend.PERSON),
    ],
)
def test_each_fact_of_a_node_has_its_answer_and_its_mend(
    fact: str, value: str, verdict: DriftVerdict, mend: Mend
) -> None:
    judged = row(changed(fact, value), fact)
    assert (judged.verdict, judged.mend) == (verdict, mend)
    assert bool(judged.why) or verdict is not UNKNOWN


@pytest.mark.parametrize(
    ("fact", "value", "verdict"),
    [
        ("ecc_mode", "Enabled", OK),
        ("ecc_mode", "false", DRIFTED),
        ("ecc_mode", "N/A", UNKNOWN),
        ("mig_mode", "enabled", DRIFTED),
        ("persistence", "Disabled", DRIFTED),
        ("compute_mode", "Exclusive_Process", DRIFTED),
        ("compute_mode", "E. Process", DRIFTED),
        ("compute_mode", "?", UNKNOWN),
        ("power_limit_watts", "699.5 W", OK),
        ("power_limit_watts", "650", DRIFTED),
        ("power_limit_watts", "nan", UNKNOWN),
        ("power_limit_watts", "[Unknown Error]", UNKNOWN),
    ],
)
def test_each_setting_of_a_gpu_has_its_answer(fact: str, value: str, verdict: DriftVerdict) -> None:
    gpus = (gpu(1, "gpu-0001", {fact: value}), gpu(2, "gpu-0001"))
    rows = [r for r in judge(reading("gpu-0001", gpus=gpus)).rows if (r.node, r.fact) == ("gpu-0001", fact)]
    assert [r.verdict for r in rows] == [verdict, OK]
    assert (rows[0].subject, rows[0].part, rows[0].mend) == (
        "gpu 0000:1b:00.0",
        "gpu:gpu-0001-1",
        Mend.DRIVER_SETTINGS,
    )


def test_what_was_never_read_is_unknown_and_says_so() -> None:
    report = judge(reading("gpu-0001"))
    silent = [r for r in report.rows if r.node == "gpu-0002"]
    assert {r.verdict for r in silent} == {UNKNOWN}
    assert {r.why for r in silent} == {"the node was never read"}
    assert {"driver.loaded", "firmware.HGX_FW_GPU_SXM_*", "ecc_mode", "gpu.count"} <= {r.fact for r in silent}


@pytest.mark.parametrize("told", ["container_toolkit.version", "container_toolkit", "container_toolkit.*", "*"])
def test_what_could_not_be_read_is_unknown_with_the_readings_reason(told: str) -> None:
    left = without(reading("gpu-0001"), "container_toolkit.version")
    judged = row(replace(left, unknown={told: "nvidia-ctk timed out"}), "container_toolkit.version")
    assert (judged.verdict, judged.found, judged.why) == (UNKNOWN, None, "nvidia-ctk timed out")
    assert row(left, "container_toolkit.version").why == "not told by the probe"


def test_a_firmware_inventory_without_the_component_is_unknown_unless_it_may_be_missing() -> None:
    names = [name for name in reading("gpu-0001").facts if name.startswith("firmware.")]
    bare = reading("gpu-0001")
    for name in names:
        bare = without(bare, name, "the BMC did not answer")
    lost = replace(bare, unknown={"firmware.*": "the BMC did not answer"})
    judged = row(lost, "firmware.HGX_FW_GPU_SXM_*")
    assert (judged.verdict, judged.why) == (UNKNOWN, "the BMC did not answer")
    free = BASELINE.replace("00.03}", "00.03, required: false}")
    assert not [r for r in judge(lost, text=free).rows if r.node == "gpu-0001" and r.fact.startswith("firmware")]


def test_an_unknown_driver_leaves_the_fabric_manager_unknown() -> None:
    judged = row(without(reading("gpu-0001"), "driver.loaded", "no module"), "fabric_manager.version")
    assert (judged.verdict, judged.why) == (UNKNOWN, "the loaded driver is not known")


def test_a_fabric_manager_that_moved_with_a_drifted_driver_is_no_drift_of_its_own() -> None:
    new = "590.44.01"
    moved = reading("gpu-0001", {"driver.loaded": new, "fabric_manager.version": new})
    assert row(moved, "driver.loaded").verdict is DRIFTED
    assert row(moved, "fabric_manager.version").verdict is OK


def test_a_package_is_absent_only_where_the_list_covers_its_name() -> None:
    fact = "package.cuda-drivers*"
    assert row(reading("gpu-0001"), fact).verdict is OK
    for listed in ("*nvidia*", "cuda-drivers", "cuda-driver?*", ""):
        judged = row(changed("packages.listed", listed), fact)
        assert (judged.verdict, judged.why) == (UNKNOWN, "the node's list of packages does not cover it"), listed
    found = row(changed("package.cuda-drivers-580", "580.105.08-1"), fact)
    assert (found.verdict, found.found) == (DRIFTED, "cuda-drivers-580 580.105.08-1")


def test_a_default_route_is_a_way_out_whatever_its_interface_is_called() -> None:
    text = BASELINE.replace("[motd_news]", "[default_route]")
    assert row(changed("egress.default_route", "eno1"), "egress.default_route", text).verdict is DRIFTED
    assert row(changed("egress.default_route", "none"), "egress.default_route", text).verdict is OK


@pytest.mark.parametrize(
    ("fact", "value", "pending", "said"),
    [
        ("driver.loaded", "580.95.05", ("driver.on_disk", "580.105.08"), "reload or a reboot"),
        ("firmware.HGX_FW_GPU_SXM_1", "96.00.89.00.01", ("firmware_staged.HGX_FW_GPU_SXM_1", VBIOS), "its reset"),
    ],
)
def test_a_drift_whose_mending_only_waits_says_for_what(
    fact: str, value: str, pending: tuple[str, str], said: str
) -> None:
    assert said in row(reading("gpu-0001", {fact: value, pending[0]: pending[1]}), fact).why
    assert row(reading("gpu-0001", {fact: value, pending[0]: value}), fact).why == ""


def test_an_ecc_mode_that_waits_for_a_reset_says_so() -> None:
    waiting = gpu(1, "gpu-0001", {"ecc_mode": "disabled", "ecc_mode_pending": "enabled"})
    assert "next GPU reset" in row(reading("gpu-0001", gpus=(waiting,)), "ecc_mode").why


def test_gpus_that_were_not_read_are_unknown_not_left_out() -> None:
    one = judge(reading("gpu-0001", gpus=(gpu(1, "gpu-0001"),)))
    missing = [r for r in one.rows if r.subject == "gpu ?" and r.node == "gpu-0001"]
    assert {(r.verdict, r.why) for r in missing} == {(UNKNOWN, "1 of 2 GPUs were not read")}
    assert len(missing) == 5
    none = replace(reading("gpu-0001", gpus=()), unknown={"gpus": "NVML hung"})
    assert row(none, "ecc_mode").why == "NVML hung"


def test_a_gpu_that_is_lost_is_unknown_with_its_reason() -> None:
    lost = PartFacts("gpu", "0000:1b:00.0", None, None, {}, {"*": "GPU is lost"})
    judged = row(reading("gpu-0001", gpus=(lost, gpu(2, "gpu-0001"))), "ecc_mode")
    assert (judged.verdict, judged.why, judged.part) == (UNKNOWN, "GPU is lost", "gpu:slot 0000:1b:00.0")


def test_what_only_the_bmc_calls_a_gpu_is_not_judged_twice() -> None:
    bmc = PartFacts("gpu", "GPU_SXM_1", None, None, {"model": "H100"})
    parts = (gpu(1, "gpu-0001"), gpu(2, "gpu-0001"), bmc)
    assert len([r for r in judge(reading("gpu-0001", gpus=parts)).rows if r.fact == "ecc_mode" and r.part]) == 2


def test_a_models_own_settings_are_wanted_of_its_gpus() -> None:
    text = BASELINE.replace("{gpu_count: 2}", f"{{gpu: {{power_limit_watts: 650, vbios: {VBIOS}}}}}")
    assert row(reading("gpu-0001"), "power_limit_watts", text).verdict is DRIFTED
    assert row(reading("gpu-0001"), "vbios", text).verdict is OK


ACCEPT = (
    BASELINE + "    accept:\n      - {nodes: 'gpu-[0001-0002]', fact: 'driver.*', until: 2026-12-24, why: a trial}\n"
)


def test_an_exception_makes_a_deviation_ok_until_its_last_day_is_over() -> None:
    new = reading("gpu-0001", {"driver.loaded": "590.44.01", "driver.on_disk": "590.44.01"})
    allowed = next(r for r in judge(new, text=ACCEPT, today=date(2026, 12, 24)).rows if r.fact == "driver.loaded")
    assert (allowed.verdict, allowed.accepted) == (OK, "until 2026-12-24: a trial")
    late = next(r for r in judge(new, text=ACCEPT, today=date(2026, 12, 25)).rows if r.fact == "driver.loaded")
    assert (late.verdict, late.accepted, late.why) == (DRIFTED, None, "its exception ended on 2026-12-24")


def test_an_exception_hides_nothing_else_and_nothing_unknown() -> None:
    both = reading("gpu-0001", {"container_toolkit.version": "1.17.8"})
    assert row(both, "container_toolkit.version", ACCEPT).verdict is DRIFTED
    assert row(without(reading("gpu-0001"), "driver.loaded"), "driver.loaded", ACCEPT).verdict is UNKNOWN


def test_since_when_comes_from_the_history_of_the_node_and_of_the_part() -> None:
    long_ago, lately = AT - timedelta(days=9), AT - timedelta(hours=2)
    since = {
        ("gpu-0001", "node", "kernel.running"): lately,
        ("gpu-0001", "gpu:gpu-0001-1", "ecc_mode"): long_ago,
    }
    report = judge_drift(baseline(), fleet().inventory(), good_fleet(), TODAY, since)
    told = {r.key: r.since for r in report.rows if r.since}
    assert told == since


@settings(deadline=None, max_examples=30)
@given(st.permutations(range(5)))
def test_the_order_of_readings_changes_nothing(order: list[int]) -> None:
    bmc = NodeFacts("gpu-0001", AT + timedelta(minutes=1), "bmc", {"firmware.HGX_FW_GPU_SXM_1": "96.00.89.00.01"})
    old = replace(reading("gpu-0002", {"gpu.count": "7"}), at=AT - timedelta(days=1))
    readings = [*good_fleet(), bmc, old]
    report = judge(*(readings[index] for index in order))
    assert report == judge(*readings)
    assert answers(report)["drifted"] == ["gpu-0001 node firmware.HGX_FW_GPU_SXM_1"]


def test_a_source_that_could_not_read_takes_nothing_from_one_that_did() -> None:
    silent = NodeFacts("gpu-0001", AT + timedelta(hours=1), "bmc", {}, {"gpu.count": "no GPU in Redfish"})
    judged = [r for r in judge(reading("gpu-0001"), silent).rows if (r.node, r.fact) == ("gpu-0001", "gpu.count")]
    assert [(r.verdict, r.read_at) for r in judged] == [(OK, AT + timedelta(hours=1))]


def test_a_node_that_the_fleet_file_does_not_have_is_named() -> None:
    assert judge(*good_fleet(), reading("gpu-0099")).strangers == ("gpu-0099",)


_TEXTS = st.dictionaries(st.sampled_from([*reading("x").facts, "firmware.*", "driver"]) | st.text(), st.text())


@settings(deadline=None, max_examples=100)
@given(_TEXTS, _TEXTS, _TEXTS)
def test_whatever_a_node_tells_there_is_an_answer(
    facts: Mapping[str, str], unknown: Mapping[str, str], of_gpu: Mapping[str, str]
) -> None:
    part = PartFacts("gpu", "0000:1b:00.0", None, None, of_gpu, unknown)
    told = NodeFacts("gpu-0001", AT, "file", facts, unknown, parts=(part,))
    rows = [r for r in judge(told).rows if r.node == "gpu-0001"]
    assert all(r.found is not None or r.verdict is UNKNOWN for r in rows)
    assert all(r.why for r in rows if r.verdict is UNKNOWN)
