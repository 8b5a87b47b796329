"""What a model's values are held against: four kinds of figures, each with its source, and only where it applies."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from unit.test_acceptance import H2D, healthy, rack

from fleet.acceptance import judge_acceptance
from fleet.acceptance_limits import Limit, LimitKind, limits_for, load_limits
from fleet.acceptance_settings import AcceptanceSettings
from fleet.acceptance_sku import sku_of, sku_of_gpu
from fleet.acceptance_units import convert
from fleet.canary_verdict import Outcome
from fleet.errors import ConfigurationError
from fleet.gpu import GpuReading

H100 = sku_of("NVIDIA H100 80GB HBM3", "0x233010DE")
A_NODE = {"gpus": "8", "nodes": "1"}
RATES = ("GB/s", "MB/s", "Gb/s")


def applying(measure: str, name: str, setup: dict[str, str] | None = None) -> dict[str, float]:
    return {limit.kind.value: limit.value for limit in limits_for(measure, sku_of(name), setup).limits}


def test_every_figure_has_a_source_and_a_unit_that_is_known() -> None:
    limits = load_limits()
    assert len(limits) > 300
    assert all(limit.origin.source and limit.origin.confidence for limit in limits)
    assert {limit.kind for limit in limits} == set(LimitKind)
    assert {limit.unit for limit in limits} <= {*RATES, "GFLOP/s", "TFLOP/s", "ms", "rows", "count", "events"}


def test_only_an_operators_limit_and_a_floor_may_fail_a_part() -> None:
    assert [kind for kind in LimitKind if kind.may_fail] == [LimitKind.OPERATOR_LIMIT, LimitKind.FLOOR]
    checks = limits_for("hbm_bandwidth", H100).check(2000.0, "GB/s")
    assert [(check.holds, check.fails) for check in checks] == [(False, False)]
    assert "this is no limit" in checks[0].text


def test_the_models_own_limit_applies_and_no_other() -> None:
    assert applying("host_to_device", "NVIDIA A100-SXM4-40GB")["operator_limit"] == 21
    assert applying("host_to_device", "NVIDIA H100 80GB HBM3") == {"operator_limit": 48, "measured": 54.8}
    assert applying("host_to_device", "NVIDIA H100 PCIe") == {}
    assert applying("host_to_device", "AMD Instinct MI300X OAM") == {"operator_limit": 48}


def test_a_name_that_leaves_the_form_open_gets_no_limit_that_needs_it_and_says_so() -> None:
    found = limits_for("host_to_device", sku_of("H100"))
    assert found.limits == ()
    assert any("form factor of this H100 is not known" in why for why in found.not_applied)


def test_a_limit_of_a_setup_applies_to_that_setup_alone() -> None:
    assert applying("all_reduce", "HGX-H100-8", A_NODE) == {"operator_limit": 460, "measured": 479.72}
    found = limits_for("all_reduce", sku_of("HGX-H100-8"), {"gpus": "4"})
    assert found.limits == ()
    assert any("holds for gpus 8, and this is 4" in why for why in found.not_applied)
    silent = limits_for("all_reduce", sku_of("HGX-H100-8"))
    assert any("does not tell" in why for why in silent.not_applied)
    assert applying("ib_write_bw_gdr", "HGX-H100-8", {"link_gbit": "200"}) == {}
    assert applying("all_reduce_nodes", "H100", {"nodes": "2", "platform": "a3-megagpu"})["operator_limit"] == 150


def test_a_figure_that_is_surely_a_slip_is_never_used() -> None:
    found = limits_for("dcgm_memory_bandwidth", sku_of("NVIDIA H200", "0x233510DE"))
    assert found.limits == ()
    assert any("2333" in why and "never to be used" in why for why in found.not_applied)
    assert all(
        not limit.usable for limit in load_limits() if limit.measure == "dcgm_memory_bandwidth" and limit.value < 5000
    )


def test_the_floor_of_one_h200_is_not_that_of_the_other() -> None:
    (floor,) = limits_for("dcgm_memory_bandwidth", sku_of("NVIDIA H200 NVL", "0x233B10DE")).limits
    assert (floor.value, floor.kind) == (2212500, LimitKind.FLOOR)
    (by_name,) = limits_for("dcgm_memory_bandwidth", sku_of("NVIDIA H200 NVL")).limits
    assert by_name == floor


def test_a_boards_own_floor_goes_before_its_chips() -> None:
    board = sku_of("NVIDIA A100-SXM4-80GB", "0x20B210DE", "0x147F10DE")
    assert [limit.value for limit in limits_for("dcgm_memory_bandwidth", board).limits] == [1270624]
    other = sku_of("NVIDIA A100-SXM4-80GB", "0x20B210DE", "0x146310DE")
    assert [limit.value for limit in limits_for("dcgm_memory_bandwidth", other).limits] == [1173000]


def test_of_two_products_with_one_id_the_lower_floor_is_used() -> None:
    assert [limit.value for limit in limits_for("dcgm_memory_bandwidth", sku_of(None, "25b6")).limits] == [123225]


def test_a_floor_may_be_held_against_another_unit_of_the_same_kind() -> None:
    floors = limits_for("dcgm_memory_bandwidth", H100)
    assert [check.holds for check in floors.check(1900.0, "GB/s")] == [False]
    assert [check.holds for check in floors.check(1906.0, "GB/s")] == [True]
    assert [check.holds for check in floors.check(1906.0, "C")] == [None]


def test_a_limit_is_met_by_its_own_value() -> None:
    (limit,) = limits_for("rows_remapped_uncorrectable", H100).limits
    assert (limit.holds(512, "rows"), limit.holds(513, "rows")) == (True, False)
    (flaps,) = limits_for("ib_link_flaps_24h", H100).limits
    assert (flaps.holds(4, "events"), flaps.holds(5, "events")) == (True, False)


@pytest.mark.parametrize(
    ("name", "chip", "form", "memory"),
    [
        ("NVIDIA H100 80GB HBM3", "H100", "SXM", 80),
        ("NVIDIA H100 PCIe", "H100", "PCIE", None),
        ("NVIDIA H100 NVL", "H100", "NVL", None),
        ("NVIDIA H200", "H200", "SXM", None),
        ("NVIDIA A100-SXM4-80GB", "A100", "SXM", 80),
        ("NVIDIA A100 80GB PCIe", "A100", "PCIE", 80),
        ("Tesla V100-SXM2-32GB", "V100", "SXM", 32),
        ("HGX-H100-8", "H100", "SXM", None),
        ("NVIDIA GB200", "GB200", None, None),
        ("NVIDIA L40S", "L40S", None, None),
        ("Tesla T4", "T4", None, None),
        ("AMD Instinct MI300X OAM", "MI300X", None, None),
        ("", None, None, None),
        ("a server of 2 kinds: H100 and A100", None, None, None),
        ("\x00\r\n" * 500, None, None, None),
    ],
)
def test_a_product_is_read_from_its_name(name: str, chip: str | None, form: str | None, memory: int | None) -> None:
    found = sku_of(name)
    assert (found.chip, found.form, found.memory_gb) == (chip, form, memory)


@pytest.mark.parametrize(
    ("text", "id"), [("0x233010DE", "2330"), ("2330", "2330"), ("0x20B2", "20b2"), ("N/A", None), ("", None)]
)
def test_a_pci_id_is_read_in_every_shape(text: str, id: str | None) -> None:
    assert sku_of_gpu(GpuReading(pci_device_id=text)).pci_id == id


@pytest.mark.parametrize(
    ("value", "unit", "to", "told"),
    [
        (400, "Gb/s", "GB/s", 50),
        (400, "Gbit/s", "GB/s", 50),
        (400, "Gbps", "GB/s", 50),
        (50, "GBps", "Gb/s", 400),
        (1905000, "MB/s", "GB/s", 1905),
        (1, "GiB/s", "MiB/s", 1024),
        (794.5, "TFLOPS", "GFLOP/s", 794500),
        (5, "%", "fraction", 0.05),
        (30, "Cel", "C", 30),
        (3, "rows", "rows", 3),
        (3, "rows", "events", None),
        (3, "W", "GB/s", None),
        (3, "", "GB/s", None),
    ],
)
def test_units_convert_within_their_kind(value: float, unit: str, to: str, told: float | None) -> None:
    found = convert(value, unit, to)
    assert found is None if told is None else found == pytest.approx(told)


def test_an_operators_own_limit_replaces_the_catalogues() -> None:
    own = {"measure": "host_to_device", "model": "H100 SXM", "value": 56.0, "unit": "GB/s"}
    settings = AcceptanceSettings.model_validate({"limits": [own]})
    nodes = rack(H2D, healthy(55.0))
    assert {node.outcome for node in judge_acceptance(nodes, [H2D], settings).nodes} == {Outcome.FAIL}
    mild = AcceptanceSettings.model_validate({"limits": [{**own, "value": 30.0}]})
    low = rack(H2D, healthy(40.0))
    assert {node.outcome for node in judge_acceptance(low, [H2D], mild).nodes} == {Outcome.PASS}


def test_a_limit_of_a_model_that_is_none_is_refused() -> None:
    bad = {"limits": [{"measure": "gemm", "model": "hopper 3", "value": 1.0, "unit": "GFLOP/s"}]}
    with pytest.raises(ValidationError, match="is no model like"):
        AcceptanceSettings.model_validate(bad)


def test_settings_of_an_unknown_test_name_the_nearest() -> None:
    with pytest.raises(ValidationError, match="node/gpu/hbm_bandwidth"):
        AcceptanceSettings.model_validate({"tests": {"node/gpu/hbm_bandwith": {"margin": 0.02}}})


def test_a_loss_to_be_found_below_the_accepted_margin_is_refused() -> None:
    settings = AcceptanceSettings.model_validate({"tests": {"node/gpu/hbm_bandwidth": {"margin": 0.09}}})
    with pytest.raises(ConfigurationError, match="node/gpu/hbm_bandwidth"):
        settings.rules()


def test_a_tests_own_figures_reach_its_rule() -> None:
    settings = AcceptanceSettings.model_validate(
        {"tests": {"node/gpu/gemm": {"margin": 0.04, "runs": 3}}, "alpha": 0.02}
    )
    (rule,) = (rule for rule in settings.rules() if rule.id == "node/gpu/gemm")
    assert rule.cohort is not None
    assert (rule.cohort.margin, rule.cohort.alpha, rule.runs) == (0.04, 0.02, 3)


def test_a_value_that_is_no_number_holds_nothing() -> None:
    (limit, *_) = limits_for("host_to_device", H100).limits
    assert isinstance(limit, Limit)
    assert limit.holds(float("nan"), "GB/s") is None
    assert replace(limit, op="<").holds(1.0, "GB/s") is True


@pytest.mark.corpus
def test_every_floor_of_the_facts_is_in_the_catalogue_and_a_suspect_one_is_never_used(shared: Path) -> None:
    text = (shared / "facts" / "G_dcgm_skus.csv").read_text(encoding="utf-8")
    floors = [limit for limit in load_limits() if limit.measure == "dcgm_memory_bandwidth"]
    two_skus = {"25b6"}
    for row in csv.DictReader(text.splitlines()):
        if row["mem_bw_min_mb_s"]:
            own = [f for f in floors if f.pci_id == row["pci_device_id"].lower() and f.note.startswith(row["name"])]
            assert [f.value for f in own] == [float(row["mem_bw_min_mb_s"])], row
            assert own[0].usable is (not row["suspect"]) or own[0].pci_id in two_skus, row


@pytest.mark.corpus
def test_every_figure_of_the_facts_stands_under_its_own_kind(shared: Path) -> None:
    kinds = {
        "operator pass limit": LimitKind.OPERATOR_LIMIT,
        "vendor floor": LimitKind.FLOOR,
        "measured reference": LimitKind.MEASURED,
        "spec": LimitKind.SPECIFICATION,
    }
    text = (shared / "facts" / "G_acceptance_thresholds.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["kind"] in kinds and row["unit"] != "mask"]
    assert len(rows) > 70
    for row in rows:
        chips = {limit.chip for limit in _with_figure(kinds[row["kind"]], float(row["value"]))}
        named = {chip for chip in chips if chip is not None and chip in row["gpu"]}
        assert named or (None in chips and row["gpu"] in ("any", "other")), row


def _with_figure(kind: LimitKind, value: float) -> list[Limit]:
    return [limit for limit in load_limits() if limit.kind is kind and limit.value == value]
