"""DCGM's health, discovery, monitor and metrics are read with their blanks as unknown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import Action, Explanation, Severity
from fleet.readers import dcgm_health, dcgm_metrics, dcgm_text
from fleet.readers.dcgm_health import health_findings, read_health
from fleet.readers.dcgm_metrics import blank_reason, metric_findings, read_dcgm_metrics
from fleet.readers.dcgm_text import read_discovery, read_monitor


def _health_json(overall: str, **systems: tuple[str, str]) -> str:
    children = {name: {"value": status, "overflow": [text]} for name, (status, text) in systems.items()}
    body: dict[str, object] = {"Overall Health": {"value": overall}}
    if systems:
        body["GPU"] = {"children": {"3": {"value": overall, "children": {"Errors": {"children": children}}}}}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=8)


def test_a_healthy_report_does_not_cover_the_recovery_action() -> None:
    explained = dcgm_health.explain(_health_json("Healthy"))
    assert (explained.findings, explained.subjects[0].facts) == ((), {"overall health": "Healthy"})
    assert any("recovery action" in note for note in explained.unknown)


def test_a_failed_system_is_named_with_its_gpu() -> None:
    text = _health_json("Failure", Memory=("Failure", "A pending row remap on GPU 3; reset it."))
    (found,) = health_findings(read_health(text))
    assert (found.subject, found.code, found.action) == ("gpu 3", "dcgm.pending_row_remap", Action.RESET_GPU)


def test_a_warning_stays_a_warning() -> None:
    text = _health_json("Warning", PCIe=("Warning", "More than 8 PCIe replays a minute on GPU 3: 12"))
    (found,) = health_findings(read_health(text))
    assert (found.code, found.severity) == ("dcgm.pci_replay_rate", Severity.WARNING)


_HEALTH_TABLE = """\
+---------------------------+----------------------------------------------------------+
| Health Monitor Report                                                                |
+===========================+==========================================================+
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 0                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> NVLINK system    | Failure                                                  |
|                           | NvLink 4 of GPU 0 is down at the moment. It takes a      |
|                           | field diagnostic to tell why.                            |
+---------------------------+----------------------------------------------------------+
"""


def test_the_health_table_is_a_tree() -> None:
    report = read_health(_HEALTH_TABLE)
    (incident,) = report.incidents
    assert (report.overall, incident.entity, incident.status) == ("Failure", "gpu 0", "Failure")
    explained = dcgm_health.explain(_HEALTH_TABLE)
    assert explained.findings[0].code == "dcgm.nvlink_down"
    assert any("bridge" in note for note in explained.unknown)


def test_an_overall_failure_without_parts_is_still_a_finding() -> None:
    (found,) = health_findings(read_health(_HEALTH_TABLE.split("| GPU ")[0]))
    assert (found.subject, found.severity) == ("node", Severity.ERROR)


def test_a_health_line_of_the_host_engine_is_read() -> None:
    text = "ERROR [7:9] [[Health]] Detected a WARNING in health system Thermal: 'A clocks event for thermal in GPU 2.'"
    (found,) = dcgm_health.explain(text).findings
    assert (found.subject, found.code, found.action) == (
        "gpu 2",
        "dcgm.clocks_event_thermal",
        Action.CHECK_COOLING,
    )


_DISCOVERY = """\
2 GPUs found.
+--------+----------------------------------------------------------------------+
| GPU ID | Device Information                                                   |
+--------+----------------------------------------------------------------------+
| 0      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:1B:00.0                                         |
|        | Device UUID: GPU-0b4c0d72-1b51-4f0e-9a2c-0d5c3a7a1111                |
+--------+----------------------------------------------------------------------+
| 1      | Name: NVIDIA H100 80GB HBM3                                          |
|        | PCI Bus ID: 00000000:43:00.0                                         |
+--------+----------------------------------------------------------------------+
4 NvSwitches found.
+-----------+
| Switch ID |
+-----------+
"""


def test_discovery_names_the_gpus_with_their_addresses() -> None:
    found = read_discovery(_DISCOVERY)
    assert found.counts == {"gpu": 2, "switch": 4}
    assert [(part.name, part.facts["PCI Bus ID"]) for part in found.parts] == [
        ("gpu 0", "00000000:1B:00.0"),
        ("gpu 1", "00000000:43:00.0"),
    ]
    assert dcgm_text.explain(_DISCOVERY).findings == ()


def test_a_gpu_that_is_counted_and_not_listed_is_missing() -> None:
    (found,) = dcgm_text.explain(_DISCOVERY.replace("2 GPUs found", "8 GPUs found")).findings
    assert (found.code, found.evidence) == ("dcgm.count_mismatch", "8 gpu found, 2 listed")


def test_no_gpu_at_all_is_an_error() -> None:
    (found,) = dcgm_text.explain("0 GPUs found.\n").findings
    assert found.code == "gpu.none"


_DMON = """\
#Entity    XIDER        GPUUTIL   POWER
ID                                W
GPU 0      0            N/A       71.330
GPU 1      119          98        nan
GPU 0      0            9223372036854775794  70.1
"""


def test_dmon_has_blanks_and_keeps_the_last_sample() -> None:
    rows = read_monitor(_DMON)
    assert [(row.entity, row.values) for row in rows] == [
        ("gpu 0", {"XIDER": 0.0, "GPUUTIL": None, "POWER": 71.33}),
        ("gpu 1", {"XIDER": 119.0, "GPUUTIL": 98.0, "POWER": None}),
        ("gpu 0", {"XIDER": 0.0, "GPUUTIL": None, "POWER": 70.1}),
    ]
    assert [(found.subject, found.code) for found in dcgm_text.explain(_DMON).findings] == [("gpu 1", "xid.119")]


@pytest.mark.parametrize(
    "line",
    [
        "Error: unable to establish a connection to the specified host: localhost (dcgmi)",
        "Error: Health watches not enabled. Please enable watches.",
        "bash: dcgmi: command not found",
    ],
)
def test_a_tool_that_could_not_ask_judged_nothing(line: str) -> None:
    assert dcgm_text.recognises(line)
    explained = dcgm_text.explain(line)
    assert [found.code for found in explained.findings] == ["dcgm.did_not_run"]
    assert explained.subjects[0].facts["hardware"] == "inconclusive"


@pytest.mark.parametrize("scale", [1, 100, 0.001, 1e6])
@pytest.mark.parametrize("blank", [140737488355328.0, 140737488355330.0, 9223372036854775792])
def test_a_blank_is_known_in_every_unit(blank: float, scale: float) -> None:
    assert blank_reason(blank * scale) is not None


@pytest.mark.parametrize("value", [0.0, 41.0, 100.0, 1.5e9, 2147483647.0, 80e9, 1e12])
def test_a_real_value_is_no_blank(value: float) -> None:
    assert blank_reason(value) is None


def _metric(name: str, value: str, labels: str = "") -> str:
    return f'{name}{{gpu="1",UUID="GPU-1",pci_bus_id="00000000:3B:00.0"{labels}}} {value}\n'


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1", "ecc.row_remap_failed"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILED", "1", "ecc.row_remap_failed"),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", "1", "ecc.row_remap_pending"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "2", "ecc.uncorrectable"),
        ("DCGM_FI_DEV_XID_ERRORS", "79", "xid.79"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "72", "clocks.slowed"),
        ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "1", "gpu.recovery_action"),
        ("DCGM_FI_DEV_GPU_TEMP", "91", "thermal.gpu_hot"),
    ],
)
def test_a_bad_value_is_a_finding_under_its_old_and_new_name(name: str, value: str, code: str) -> None:
    (found,) = metric_findings(read_dcgm_metrics(_metric(name, value)))
    assert (found.subject, found.code) == ("gpu 1", code)


@pytest.mark.parametrize("value", ["0", "NaN", "+Inf", "2147483632", "9.223372036854776e+18", "140737488355328"])
def test_a_blank_or_zero_is_no_finding(value: str) -> None:
    text = "".join(_metric(rule, value) for rule in ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_XID_ERRORS"))
    assert metric_findings(read_dcgm_metrics(text)) == ()


@pytest.mark.parametrize("mask", ["1", "4", "5"])
def test_idle_and_the_power_cap_are_no_slowdown(mask: str) -> None:
    assert metric_findings(read_dcgm_metrics(_metric("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", mask))) == ()


def test_a_sample_may_have_a_timestamp_and_a_label_odd_signs() -> None:
    text = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",container="a\\"b}, c"} 55 1700000000000\r\n'
    (sample,) = read_dcgm_metrics(text)
    assert (sample.value, sample.labels["container"]) == (55.0, 'a"b}, c')


def test_a_sample_that_was_cut_is_left_out() -> None:
    assert read_dcgm_metrics('DCGM_FI_DEV_GPU_TEMP{gpu="0"} 55\nDCGM_FI_DEV_GPU_TEMP{gpu="1",UU') != ()
    assert len(read_dcgm_metrics('DCGM_FI_DEV_GPU_TEMP{gpu="0"} 55\nDCGM_FI_DEV_GPU_TEMP{gpu="1",UU')) == 1


@given(st.text(), st.integers(0, 700))
def test_any_text_gives_an_answer(junk: str, place: int) -> None:
    metrics = _metric("DCGM_FI_DEV_XID_ERRORS", "79")
    for text in (junk, _HEALTH_TABLE[:place] + junk, _DISCOVERY[:place] + junk, _DMON[:place] + junk, metrics[:place]):
        for reader in (dcgm_health, dcgm_text, dcgm_metrics):
            reader.recognises(text)
            assert isinstance(reader.explain(text), Explanation)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI 550.54",
        "GPU 0: NVIDIA H100 (UUID: GPU-1)",
        "the DCGM_FI_DEV_XID_ERRORS metric is odd",
        "Health Monitor Report of the mail server: Overall Health is good",
        "| Node | Result |\n| All | Pass |\n| GPU 0 | Pass |\n",
        "dcgm-exporter: the scrape took 3 s\nkernel: unable to find a free block\n",
    ],
)
def test_prose_and_other_tools_are_not_claimed(text: str) -> None:
    assert not any(reader.recognises(text) for reader in (dcgm_health, dcgm_text, dcgm_metrics))


def test_an_xid_with_its_meaning_in_a_label_is_not_counted() -> None:
    labels = ',err_code="43",err_msg="GPU stopped processing"'
    (found,) = metric_findings(read_dcgm_metrics(_metric("DCGM_FI_DEV_XID_ERRORS", "43", labels)))
    assert (found.code, "times" in found.text) == ("xid.43", False)


def test_a_violated_policy_is_a_finding() -> None:
    text = "Listening for violations.\nA double-bit ECC error has violated policy manager values.\nDBE error count: 1\n"
    assert dcgm_text.recognises(text)
    (found,) = dcgm_text.explain(text).findings
    assert (found.code, found.severity) == ("dcgm.volatile_dbe_detected", Severity.ERROR)
    assert found.evidence.endswith("DBE error count: 1")


@pytest.mark.parametrize(
    ("line", "code", "severity"),
    [
        (_metric("DCGM_EXP_GPU_HEALTH_STATUS", "10", ',health_watch="PCIE"'), "dcgm.warning", Severity.WARNING),
        (
            _metric("DCGM_EXP_GPU_HEALTH_STATUS", "20", ',health_error_code="DCGM_FR_VOLATILE_DBE_DETECTED"'),
            "dcgm.volatile_dbe_detected",
            Severity.ERROR,
        ),
        (_metric("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "4"), "fabric.failed", Severity.ERROR),
        (_metric("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "2"), "fabric.not_ready", Severity.WARNING),
    ],
)
def test_the_states_that_the_exporter_numbers_are_read(line: str, code: str, severity: Severity) -> None:
    (found,) = metric_findings(read_dcgm_metrics(line))
    assert (found.code, found.severity) == (code, severity)
