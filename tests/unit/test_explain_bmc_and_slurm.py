"""What BMCs and Slurm print, through `explain`: the public corpus has its right reading, by its traps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.main import app
from fleet.drain_reasons import DrainOwner, read_drain_reason
from fleet.explain import explain
from fleet.findings import Action, Explanation, Severity


@pytest.fixture
def corpus(shared: Path) -> Path:
    return shared / "corpus"


def _codes(found: Explanation) -> set[tuple[str, str]]:
    return {(finding.subject, finding.code) for finding in found.findings}


def _facts(found: Explanation, subject: str) -> dict[str, str]:
    return dict(next(s.facts for s in found.subjects if s.name == subject))


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "subject", "code", "severity", "action"),
    [
        ("dell_error_400_sup029_noop", "bmc", "bmc.already_current", Severity.INFO, Action.NONE),
        ("dell_error_job_running", "bmc", "bmc.busy", Severity.WARNING, Action.WAIT),
        ("dell_error_missing_uri", "bmc", "bmc.missing", Severity.ERROR, Action.FIX_CONFIGURATION),
        ("error_multi_extinfo", "bmc", "bmc.bad_request", Severity.ERROR, Action.FIX_CONFIGURATION),
        (
            "error_transferprotocol_required",
            "bmc",
            "bmc.transfer_protocol_required",
            Severity.ERROR,
            Action.FIX_CONFIGURATION,
        ),
        ("dell_task_completed_critical", "task JID_562933713216", "task.failed", Severity.ERROR, Action.INVESTIGATE),
        (
            "dell_task_scheduled",
            "task JID_257309938313",
            "task.waiting_for_reset",
            Severity.WARNING,
            Action.REBOOT_NODE,
        ),
        ("dgxh100_task_completed_ok", "task 1", "task.succeeded", Severity.INFO, Action.NONE),
        ("gb200_sensor_absent_critical", "IO_Board_0_CX7_0_Port_0_Temp", "sensor.absent", Severity.INFO, Action.NONE),
        ("gb200_hgx_eventlog_errors", "GPU_1", "bmc_log.recovery_needed", Severity.ERROR, Action.UPDATE_FIRMWARE),
        ("gb200_hgx_eventlog_errors", "CPU_0", "bmc_log.fault", Severity.ERROR, Action.INVESTIGATE),
        ("gb200_fw_inventory", "HGX_FW_GPU_1", "firmware.not_usable", Severity.ERROR, Action.INVESTIGATE),
        ("gb200_fw_inventory", "HGX_FW_GPU_*", "firmware.mixed", Severity.WARNING, Action.UPDATE_FIRMWARE),
        ("hpe_iml_entry", "node", "bmc_log.info", Severity.INFO, Action.NONE),
        ("dell_sel_entry_oem", "node", "bmc_log.info", Severity.INFO, Action.NONE),
    ],
)
def test_a_redfish_answer_says_this(
    corpus: Path, name: str, subject: str, code: str, severity: Severity, action: Action
) -> None:
    found = explain((corpus / "redfish" / f"{name}.json").read_text())
    finding = next(f for f in found.findings if (f.subject, f.code) == (subject, code))
    assert (finding.severity, finding.action) == (severity, action)
    assert finding.evidence


@pytest.mark.corpus
def test_inventories_show_what_runs_and_what_waits_and_raise_no_false_alarm(corpus: Path) -> None:
    dell = explain((corpus / "redfish/dell_fw_inventory.json").read_text())
    roles = {s.facts["role"] for s in dell.subjects if s.name.startswith("Previous")}
    assert (roles, dell.findings) == ({"backup"}, ())
    lenovo = explain((corpus / "redfish/lenovo_fw_inventory.json").read_text())
    assert not {code for _, code in _codes(lenovo)} & {"firmware.staged", "firmware.unhealthy"}
    driver = explain((corpus / "redfish/gh200_sw_inventory_driver_disabled.json").read_text())
    assert driver.unknown == ("HGX_Driver_GPU_0: its running version",)


@pytest.mark.corpus
def test_update_services_say_how_they_take_an_image(corpus: Path) -> None:
    ami = _facts(explain((corpus / "redfish/dgxh100_updateservice_ami.json").read_text()), "update service")
    assert ami["multipart push"] == "/redfish/v1/UpdateService/upload"
    assert ami["simple update"] == "/redfish/v1/UpdateService/Actions/SimpleUpdate"
    assert (ami["http push"], ami["largest image"], ami["busy with"]) == ("not offered", "419627008 bytes", "nothing")
    smc = _facts(explain((corpus / "redfish/smc_updateservice.json").read_text()), "update service")
    assert (smc["two steps"], smc["http push"]) == ("yes", "not offered")


@pytest.mark.corpus
def test_the_vendors_table_is_read_with_its_hexadecimal_and_case(corpus: Path) -> None:
    found = explain((corpus / "redfish/nvfwupd_show_version_gb200_24.08.txt").read_text())
    assert _facts(found, "HGX_FW_FPGA_0")["running"].startswith("1.0A ")
    assert ("HGX_FW_GPU_0", "firmware.outdated") in _codes(found)
    assert not {code for subject, code in _codes(found) if subject in ("FW_BMC_0", "HGX_FW_FPGA_0")}
    assert "may be wrong" in _facts(found, "system")["model"]


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "node", "facts", "code", "action"),
    [
        (
            "nodes_22.05.9_drain_in_flags.json",
            "naboo145",
            {"cordoned": "yes", "accepts work": "no", "drain is of": "scheduler"},
            "slurm.drained",
            Action.REBOOT_NODE,
        ),
        ("node_24.11_idle_drain.json", "cn1", {"cordoned": "yes", "free of work": "yes"}, "slurm.drained", Action.NONE),
        (
            "node_25.05_idle_completing_planned.json",
            "gpu1",
            {"free of work": "no", "gpus": "4"},
            "slurm.completing",
            Action.WAIT,
        ),
        (
            "scontrol_node_downstar_drain_oneliner_16.05.txt",
            "datamover2",
            {"cordoned": "yes", "free of work": "unknown"},
            "slurm.down",
            Action.INVESTIGATE,
        ),
    ],
)
def test_a_node_of_slurm_says_this(
    corpus: Path, name: str, node: str, facts: dict[str, str], code: str, action: Action
) -> None:
    found = explain((corpus / "slurm" / name).read_text())
    assert facts.items() <= _facts(found, node).items()
    assert next(f.action for f in found.findings if (f.subject, f.code) == (node, code)) is action


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "subject", "facts"),
    [
        ("node_24.11_multi_gpu_types.json", "ia1", {"gpus": "6", "gpus in use": "6"}),
        ("nodes_21.08.5_v0.0.37.json", "cs2.example.company.com", {"gpus": "8", "gpus in use": "3", "state": "busy"}),
        ("nodes_21.08.5_v0.0.37.json", "cs3.example.company.com", {"gpus": "6"}),
        ("scontrol_node_mixed_gpu8_22.05.txt", "dj-2080ti-0.grasp.maas", {"gpus": "8", "cordoned": "no"}),
        ("squeue_23.02.4_v0.0.39.json", "job 52173767", {"state": "COMPLETED", "holds its nodes": "no"}),
        ("jobs_23.11.1_v0.0.40.json", "job 6080221", {"state": "RUNNING", "nodes": "cma2-02 (1)"}),
        ("job_24.11_gpus_multi_nodes.json", "job 6371", {"nodes": "ia[1-2] (2)", "gpus": "12"}),
        ("scontrol_job_multi_node_24.txt", "job 8401413", {"gpus": "64"}),
    ],
)
def test_a_listing_of_slurm_says_this(corpus: Path, name: str, subject: str, facts: dict[str, str]) -> None:
    assert facts.items() <= _facts(explain((corpus / "slurm" / name).read_text()), subject).items()


@pytest.mark.corpus
def test_a_forgotten_job_is_no_proof_of_its_end(corpus: Path) -> None:
    found = explain((corpus / "slurm/job_25.11_unfound.json").read_text())
    assert found.findings == ()
    assert "sacct" in found.unknown[0]


@pytest.mark.corpus
def test_only_our_own_drain_may_be_lifted(corpus: Path) -> None:
    rows = [line.split("\t") for line in (corpus / "slurm/drain_reasons_public.tsv").read_text().splitlines()]
    owners = {row[0]: read_drain_reason(row[0]).owner for row in rows}
    assert DrainOwner.GPUFLEET not in owners.values()  # "gpu-fleet[run=42]" is not how ours is written
    assert owners["Kill task failed"] is DrainOwner.SCHEDULER
    assert owners["[HC] GPU ECC"] is DrainOwner.HEALTH_CHECK
    assert owners["gres/gpu count reported lower than configured (7 < 8)"] is DrainOwner.SCHEDULER
    assert owners['bad dimm, ticket=#1234; "quoted" & 100%'] is DrainOwner.PERSON
    ours = read_drain_reason("gpufleet[fw-20261130-7k3q] quarantined: x", "fw-20261130-7k3q")
    assert (ours.owner, ours.operation) == (DrainOwner.GPUFLEET, "fw-20261130-7k3q")
    assert read_drain_reason("slurm-operator: pod evicted").owner is DrainOwner.KUBERNETES
    assert read_drain_reason(None).owner is DrainOwner.UNKNOWN


def test_headers_before_a_body_and_lists_of_resources_are_read() -> None:
    task = {"@odata.id": "/redfish/v1/TaskService/Tasks/9", "@odata.type": "#Task.v1_4_2.Task", "Id": "9"}
    task |= {"TaskState": "Exception", "TaskStatus": "Critical"}
    headers = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    assert ("task 9", "task.failed") in _codes(explain(headers + json.dumps(task)))
    assert ("task 9", "task.failed") in _codes(explain(json.dumps([task, task])))
    assert ("task 9", "task.failed") in _codes(explain(json.dumps({"/redfish/v1/TaskService/Tasks/9": task})))


def test_a_task_state_that_nobody_knows_is_unknown() -> None:
    found = explain(json.dumps({"@odata.type": "#Task.v1_4_2.Task", "Id": "9", "TaskState": "Pondering"}))
    assert (found.findings, found.unknown) == ((), ("task 9: what Pondering means",))


def test_the_answers_of_several_hosts_are_kept_apart() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    text = "".join(f"{host}: [ {n}.000000] {line}\n" for host in ("gpu-0001", "gpu-0002") for n in (5, 6))
    subjects = {finding.subject for finding in explain(text).findings}
    assert subjects == {"gpu-0001 gpu 0000:3b:00", "gpu-0002 gpu 0000:3b:00"}


def test_a_text_of_no_known_kind_is_said_to_be_so() -> None:
    for text in ("", "hello", "{}", "[]", '{"nodes": 3}'):
        assert explain(text).kind == "unknown"


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    assert explain(text).kind


@settings(max_examples=50)  # each with six keys
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda s: st.lists(s, max_size=4) | st.dictionaries(st.text(max_size=20), s, max_size=4),
        max_leaves=12,
    )
)
def test_any_json_has_an_answer(value: object) -> None:
    for key in ("@odata.id", "error", "Members", "TaskState", "nodes", "jobs"):
        assert explain(json.dumps({key: value, "@odata.type": "#Sensor.v1.Sensor", "meta": {}})).kind


def test_the_command_prints_one_object_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    known, unknown = tmp_path / "task.json", tmp_path / "other.txt"
    known.write_text(json.dumps({"@odata.type": "#Task.v1.Task", "Id": "9", "TaskState": "Exception"}))
    unknown.write_bytes(b"\xff\xfeh\x00i\x00")
    shown = CliRunner().invoke(app, ["explain", str(known), "--json"])
    document = json.loads(shown.stdout)
    assert (shown.exit_code, document["kind"], document["findings"][0]["code"]) == (0, "redfish-task", "task.failed")
    assert CliRunner().invoke(app, ["explain", str(unknown)]).exit_code == 3
    assert CliRunner().invoke(app, ["explain", str(tmp_path / "none")]).exit_code == 6
    piped = CliRunner().invoke(app, ["explain", "--json"], input=known.read_bytes())
    assert json.loads(piped.stdout)["kind"] == "redfish-task"


def test_no_word_of_the_answer_acts_on_a_terminal() -> None:
    reason = "a\x9b31m\x07 \u202eb [root@2026-01-01T00:00:00]"
    found = explain(f"NodeName=gpu-1\x1b[2J Arch=x\n   State=DOWN+DRAIN Reason={reason}\n")
    words = [found.findings[0].evidence, *(s.name for s in found.subjects), *found.subjects[0].facts.values()]
    assert found.findings
    assert not any(character in word for word in words for character in "\x1b\x9b\x07\u202e")


def test_a_lone_surrogate_can_be_printed() -> None:
    body = '{"error": {"code": "Base.1.0.GeneralError", "message": "\\ud800", "@Message.ExtendedInfo": []}}'
    assert "\ud800" not in repr(explain(body).findings[0].evidence.encode("utf-8"))


def test_slurms_texts_that_nobody_prints_are_no_fault_of_ours() -> None:
    assert explain("NodeName=a " + " ".join(f"K{n}=V" for n in range(20))).unknown
    huge = json.dumps({"nodes": [{"name": "a", "state": ["DOWN"], "gres": "gpu:x:" + "9" * 5000}], "meta": {}})
    assert explain(huge).kind == "slurm-nodes"


def test_empty_lines_without_end_are_read_in_passing() -> None:
    """Each of these expressions once looked at every empty line again from each empty line before it."""
    assert explain("\n" * 100_000).kind == "unknown"
