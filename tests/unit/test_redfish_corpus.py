"""Every real Redfish answer of the public corpus has its right value."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from redfish_fake import INVENTORY, TASKS, FakeBmc, component

from adapters.redfish.answers import RequestRefused, ResourceMissing, error_for, read_answer
from fleet.activation import Progress, progress
from fleet.bmc_logs import LogKind, LogReading, read_log, read_log_entry
from fleet.bmc_messages import Meaning, Severity, meaning_of, read_messages, worst
from fleet.bmc_return import Look, Return, judge_return, read_looks
from fleet.bmc_sensors import SensorVerdict, read_sensor
from fleet.bmc_tasks import read_task
from fleet.errors import BmcBusy
from fleet.firmware import read_component, read_inventory
from fleet.json_values import JsonObject, objects_at
from fleet.model import FirmwareComponent, FirmwareRole, TaskOutcome
from fleet.nvfwupd import read_nvfwupd_table
from fleet.plan import Change
from fleet.update_service import read_update_service, update_parameters

pytestmark = pytest.mark.corpus


@pytest.fixture
def corpus(shared: Path) -> Path:
    return shared / "corpus" / "redfish"


def _given(status: int, body: JsonObject) -> tuple[httpx.Response, bytes]:
    response = httpx.Response(status, json=body)
    return response, response.content


def _place(desired: str, component: FirmwareComponent) -> Progress:
    """What the flows read of an update from the inventory."""
    change = Change(component=component.id, current="", desired=desired, entry="any")
    return progress(change, (component,))


def _load(corpus: Path, name: str) -> JsonObject:
    body = json.loads((corpus / name).read_text())
    assert isinstance(body, dict)
    return body


def _inventory(corpus: Path, name: str) -> dict[str, FirmwareComponent]:
    return {c.id: c for c in read_inventory(objects_at(_load(corpus, name), "Members"))}


def _ids(inventory: dict[str, FirmwareComponent], role: FirmwareRole) -> set[str]:
    return {ident for ident, c in inventory.items() if c.role is role}


def test_a_task_without_a_percentage_is_done_when_it_says_so(corpus: Path) -> None:
    task = read_task(_load(corpus, "dgxh100_task_completed_ok.json"))
    assert (task.outcome, task.percent, task.started) == (
        TaskOutcome.SUCCEEDED,
        None,
        "2024-02-26T22:38:48+00:00",
    )


def test_a_completed_task_with_critical_status_has_failed(corpus: Path) -> None:
    task = read_task(_load(corpus, "dell_task_completed_critical.json"))
    assert (task.outcome, task.percent) == (TaskOutcome.FAILED, 100)
    assert "made no progress" in task.messages[0]


def test_a_scheduled_dell_job_waits_for_a_reset_and_has_no_dates(corpus: Path) -> None:
    task = read_task(_load(corpus, "dell_task_scheduled.json"))
    assert (task.outcome, task.started) == (TaskOutcome.WAITING_FOR_RESET, None)


def test_the_ami_update_service_is_pushed_to_where_it_says(corpus: Path) -> None:
    service = read_update_service(_load(corpus, "dgxh100_updateservice_ami.json"))
    assert service.multipart_uri == "/redfish/v1/UpdateService/upload"
    assert service.http_push_uri is None
    assert service.simple_update == "/redfish/v1/UpdateService/Actions/SimpleUpdate"
    assert (service.max_image_bytes, service.busy_with, service.two_step) == (419627008, None, False)


def test_the_supermicro_update_service_takes_two_steps(corpus: Path) -> None:
    service = read_update_service(_load(corpus, "smc_updateservice.json"))
    assert (service.multipart_uri, service.http_push_uri) == ("/redfish/v1/UpdateService/upload", None)
    assert service.start_update == "/redfish/v1/UpdateService/Actions/UpdateService.StartUpdate"
    assert service.two_step
    assert update_parameters(service, ("/x",)) == {"Targets": ["/x"]}


def test_gb200_gpus_that_are_absent_are_never_current(corpus: Path) -> None:
    inventory = _inventory(corpus, "gb200_fw_inventory.json")
    gpus = {f"HGX_FW_GPU_{number}" for number in range(4)}
    assert _ids(inventory, FirmwareRole.ABSENT) == gpus
    assert _ids(inventory, FirmwareRole.ACTIVE) == set(inventory) - gpus
    assert inventory["HGX_FW_GPU_0"].health == "Critical"
    assert {inventory[gpu].version for gpu in gpus} == {"97.00.6C.00.03", "97.00.72.00.00"}
    assert _place("97.00.6C.00.03", inventory["HGX_FW_GPU_0"]) is Progress.UNKNOWN
    bmc = inventory["HGX_FW_BMC_0"]
    assert (bmc.version, bmc.staged) == ("GB200Nvl-24.12-8", None)
    assert inventory["FW_CPLD_0"].version == "0x00 0x0b 0x03 0x04"


def test_lenovo_entries_with_placeholders_wait_for_nothing(corpus: Path) -> None:
    inventory = _inventory(corpus, "lenovo_fw_inventory.json")
    assert _ids(inventory, FirmwareRole.BACKUP) == {"BMC-Backup"}
    assert _ids(inventory, FirmwareRole.STAGED) == set()
    assert _ids(inventory, FirmwareRole.ABSENT) == {"BMC-Primary-Pending", "UEFI-Pending"}
    assert all(c.staged is None for c in inventory.values())
    assert inventory["BMC-Primary"].version == "42S-2.83"
    assert inventory["BMC-Primary-Pending"].version is None


def test_lenovos_pending_entry_with_a_version_is_staged_of_its_primary(corpus: Path) -> None:
    members = [dict(m) for m in objects_at(_load(corpus, "lenovo_fw_inventory.json"), "Members")]
    pending = next(m for m in members if m["Id"] == "BMC-Primary-Pending")
    pending["Version"] = "42S-3.00"
    inventory = {c.id: c for c in read_inventory(members)}
    assert inventory["BMC-Primary"].staged == "42S-3.00"
    assert inventory["BMC-Primary-Pending"].role is FirmwareRole.STAGED
    assert inventory["UEFI"].staged is None


def test_dells_previous_images_never_run(corpus: Path) -> None:
    inventory = _inventory(corpus, "dell_fw_inventory.json")
    backups = {ident for ident in inventory if ident.startswith("Previous-")}
    assert len(inventory) == 8
    assert _ids(inventory, FirmwareRole.BACKUP) == backups
    assert len(backups) == 2
    assert _ids(inventory, FirmwareRole.ACTIVE) == set(inventory) - backups


def test_a_driver_that_the_board_shows_as_disabled_is_not_running(corpus: Path) -> None:
    driver = read_component(_load(corpus, "gh200_sw_inventory_driver_disabled.json"))
    assert (driver.role, driver.version, driver.state) == (FirmwareRole.ABSENT, "550.80", "Disabled")


def _log(corpus: Path) -> dict[str, LogReading]:
    return {entry.id: entry for entry in read_log(_load(corpus, "gb200_hgx_eventlog_errors.json"))}


def test_gb200_log_entries_are_faults_noise_or_expected(corpus: Path) -> None:
    log = _log(corpus)
    assert {ident: entry.kind for ident, entry in log.items()} == {
        "153": LogKind.FAULT,
        "187": LogKind.FAULT,
        "200": LogKind.RECOVERY_NEEDED,
        "2": LogKind.EXPECTED,
        "3": LogKind.NOISE,
        "37": LogKind.NOISE,
        "43924": LogKind.FAULT,
    }
    assert (log["153"].device, log["187"].device, log["200"].device) == ("CPU_0", "CPU_1", "GPU_1")
    assert log["43924"].device == "CPU_0"
    assert log["43924"].severity is Severity.WARNING  # CPER "Recoverable", though the entry says OK
    assert log["3"].message_id is None


def test_a_device_is_also_found_in_the_arguments_alone(corpus: Path) -> None:
    entry = dict(objects_at(_load(corpus, "gb200_hgx_eventlog_errors.json"), "Members")[0])
    del entry["Oem"], entry["Links"]
    assert read_log_entry(entry).device == "CPU_0"


def test_dells_sel_entry_is_harmless_and_in_utc(corpus: Path) -> None:
    entry = read_log_entry(_load(corpus, "dell_sel_entry_oem.json"))
    assert entry.at == datetime(2024, 6, 11, 5, 13, tzinfo=UTC)
    assert (entry.kind, entry.message_id) == (LogKind.INFO, None)


def test_hpes_cleared_log_is_administration(corpus: Path) -> None:
    entry = read_log_entry(_load(corpus, "hpe_iml_entry.json"))
    assert (entry.kind, entry.severity) == (LogKind.INFO, Severity.OK)


def test_a_clock_that_was_never_set_gives_no_time(corpus: Path) -> None:
    entry = {**_load(corpus, "hpe_iml_entry.json"), "Created": "1970-01-01T00:00:09Z"}
    assert read_log_entry(entry).at is None
    assert read_log_entry({**entry, "Created": "2024-06-11T00:13:00"}).at is None


def test_a_sensor_of_an_absent_part_raises_no_alarm(corpus: Path) -> None:
    body = _load(corpus, "gb200_sensor_absent_critical.json")
    sensor = read_sensor(body)
    assert (sensor.verdict, sensor.value, sensor.health) == (SensorVerdict.ABSENT, None, "Critical")
    present = {**body, "Status": {"State": "Enabled", "Health": "OK"}}
    assert read_sensor(present).verdict is SensorVerdict.UNKNOWN
    assert read_sensor({**present, "Reading": 0}).verdict is SensorVerdict.OK
    assert read_sensor({**present, "Reading": 71.0}).verdict is SensorVerdict.WARNING
    assert read_sensor({**present, "Reading": 75.0}).verdict is SensorVerdict.ALARM


def test_dells_missing_uri_is_permanent_and_both_messages_are_kept(corpus: Path) -> None:
    body = _load(corpus, "dell_error_missing_uri.json")
    messages = read_messages(body)
    assert [m.key for m in messages] == ["SYS403", "ResourceMissingAtURI"]
    assert meaning_of(messages) is Meaning.MISSING
    answer = read_answer(*_given(404, body))
    assert isinstance(error_for(answer, "port", changes=False), ResourceMissing)


@pytest.mark.parametrize("status", [400, 503])
def test_dells_running_job_is_busy_though_its_arguments_are_a_text(corpus: Path, status: int) -> None:
    body = _load(corpus, "dell_error_job_running.json")
    assert meaning_of(read_messages(body)) is Meaning.BUSY
    assert isinstance(error_for(read_answer(*_given(status, body)), "push", changes=True), BmcBusy)


def test_a_required_transfer_protocol_is_understood(corpus: Path) -> None:
    messages = read_messages(_load(corpus, "error_transferprotocol_required.json"))
    assert meaning_of(messages) is Meaning.TRANSFER_PROTOCOL_REQUIRED


def test_of_several_messages_the_worst_decides(corpus: Path) -> None:
    body = _load(corpus, "error_multi_extinfo.json")
    messages = read_messages(body)
    assert len(messages) == 3
    assert (worst(messages), meaning_of(messages)) == (Severity.CRITICAL, Meaning.BAD_REQUEST)
    error = error_for(read_answer(*_given(400, body)), "push", changes=True)
    assert isinstance(error, RequestRefused)
    assert len(error.evidence) == 3


def test_dells_http_error_that_means_up_to_date_is_no_error(corpus: Path) -> None:
    body = _load(corpus, "dell_error_400_sup029_noop.json")
    error = error_for(read_answer(*_given(400, body)), "push", changes=True)
    assert isinstance(error, RequestRefused)
    assert error.meaning is Meaning.ALREADY_CURRENT


def test_a_bmc_is_back_after_three_good_reads_of_what_is_needed(corpus: Path) -> None:
    looks = read_looks((corpus / "bmc_restart_sequence.tsv").read_text())
    verdict = judge_return(looks, "/redfish/v1/Systems/System_0", deadline_seconds=900)
    assert (verdict.state, verdict.at_seconds) == (Return.BACK, 332)
    assert judge_return(looks[:-1], "Systems/System_0", 900).state is Return.RESTARTING
    assert judge_return(looks, "Systems/System_0", 300).state is Return.OVERDUE


def test_nvfwupds_table_is_read_with_the_tools_own_view_apart(corpus: Path) -> None:
    table = read_nvfwupd_table((corpus / "nvfwupd_show_version_gb200_24.08.txt").read_text())
    rows = {row.name: row for row in table.rows}
    assert (len(rows), table.model, table.connected, len(table.packages)) == (27, "NVIDIA HGX H100", True, 2)
    assert rows["HGX_FW_FPGA_0"].equal is True  # 312e3041 is 1.0A
    assert rows["HGX_FW_BMC_0"].equal is True  # case
    assert (rows["HGX_FW_CPLD_0"].equal, rows["HGX_FW_CPLD_0"].tool_says_current) == (False, True)
    assert (rows["HGX_FW_GPU_0"].equal, rows["HGX_FW_GPU_0"].tool_says_current) == (False, False)
    assert (rows["NIC_0"].equal, rows["NIC_0"].package) == (None, None)


def test_bug_11_a_task_that_vanishes_in_a_restart_is_unknown_until_the_inventory_is_read(
    shared: Path,
) -> None:
    assert "404 = outcome unknown" in (shared / "corpus/bugs/11_task_monitor_404.md").read_text()
    fake = FakeBmc()
    bmc = fake.bmc()
    uri = f"{TASKS}/JID_1234"
    running = httpx.Response(200, json={"@odata.id": uri, "TaskState": "Running", "PercentComplete": 40})
    fake.once["GET", uri] = [running, *(httpx.Response(503) for _ in range(12))]
    task = bmc.read_task(uri)
    assert task is not None
    assert task.outcome is TaskOutcome.RUNNING
    for _ in range(12):
        with pytest.raises(BmcBusy):
            bmc.read_task(uri)
    assert bmc.read_task(uri) is None
    assert _place("2.0", read_component(component("BIOS", "2.0"))) is Progress.ACTIVE
    assert _place("2.0", read_component(component("BIOS", "1.0"))) is Progress.OLD


def test_bug_13_a_job_completed_with_errors_has_failed_and_the_version_decides(shared: Path) -> None:
    text = (shared / "corpus/bugs/13_completed_with_warning_no_version_change.md").read_text()
    job = json.loads(text.split("job: ")[1].splitlines()[0])
    assert read_task(job).outcome is TaskOutcome.FAILED
    assert _place("22.00.6.39", read_component(component("NIC", "21.80.9.23"))) is Progress.OLD


def test_bug_15_a_root_that_answers_is_not_a_bmc_that_is_back(shared: Path) -> None:
    assert "Root 200 is not ready" in (shared / "corpus/bugs/15_bmc_503_while_restarting.md").read_text()
    needed = "/redfish/v1/UpdateService"
    looks = [
        Look(0, needed, 503),
        Look(30, needed, None),
        Look(60, needed, 401),
        *(Look(70 + i, "/redfish/v1/", 200) for i in range(5)),
        *(Look(90 + i, needed, 503) for i in range(3)),
        Look(180, needed, 200),
        Look(181, needed, 200),
    ]
    verdict = judge_return(looks, needed, 900)
    assert (verdict.state, verdict.good_in_a_row, verdict.login_needed) == (Return.RESTARTING, 2, True)
    assert judge_return([*looks, Look(182, needed, 200)], needed, 900).state is Return.BACK
    relapse = [*looks, Look(182, needed, 503), Look(183, needed, 200)]
    assert judge_return(relapse, needed, 900).good_in_a_row == 1


def test_bug_17_a_new_task_is_not_done_and_silence_without_a_new_version_is_a_failure(shared: Path) -> None:
    assert "non-terminal" in (shared / "corpus/bugs/17_reboot_between_updates.md").read_text()
    assert {read_task({"TaskState": word}).outcome for word in ("New", "Starting", "Running")} == {TaskOutcome.RUNNING}
    fake = FakeBmc()
    fake.components(component("NIC", "1.0"))
    bmc = fake.bmc()
    assert bmc.read_task(f"{TASKS}/JID_9") is None
    assert _place("2.0", bmc.read_firmware()[0]) is Progress.OLD
    assert fake.count("GET", INVENTORY) == 1
