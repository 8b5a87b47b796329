"""Pushing an image, its task, and resets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from redfish_fake import INVENTORY, MANAGER, ROOT, SYSTEM, TASKS, UPDATE, FakeBmc, collection, link, problem

from fleet.errors import BmcBusy, ConfigurationError, NodeUnreachable, OutcomeUnknown
from fleet.model import PowerState, ResetKind, TaskOutcome

PUSH = f"{UPDATE}/update-multipart"
TARGETS = (f"{INVENTORY}/HGX_FW_GPU_SXM_1",)
TASK = f"{TASKS}/7"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.fwpkg"
    path.write_bytes(b"\x00firmware\xff" * 1000)
    return path


def _task(state: str = "Running", status: str = "OK") -> dict[str, object]:
    return {**link(TASK), "Id": "7", "TaskState": state, "TaskStatus": status}


def _part(body: bytes, name: str) -> tuple[str, bytes]:
    found = re.search(rb'name="' + name.encode() + rb'".*?\r\n(.*?)\r\n\r\n(.*?)\r\n--', body, re.DOTALL)
    assert found, f"no part {name}"
    return found[1].decode(), found[2]


def test_a_push_names_its_targets_and_carries_the_whole_file(image: Path) -> None:
    fake = FakeBmc()
    fake.once["POST", PUSH] = [httpx.Response(202, json=_task("New"), headers={"Location": f"{TASK}/Monitor"})]
    task = fake.bmc().push_image(image, TARGETS)
    kind, parameters = _part(fake.bodies[PUSH], "UpdateParameters")
    assert "application/json" in kind
    assert json.loads(parameters) == {"Targets": list(TARGETS), "ForceUpdate": False}
    kind, content = _part(fake.bodies[PUSH], "UpdateFile")
    assert "application/octet-stream" in kind
    assert content == image.read_bytes()
    assert (task.uri, task.outcome) == (TASK, TaskOutcome.RUNNING)


def test_an_apply_time_is_sent_only_where_the_push_supports_it(image: Path) -> None:
    fake = FakeBmc()
    support = {"SupportedValues": ["Immediate", "OnReset"]}
    fake.resources[UPDATE]["MultipartHttpPushUri@Redfish.OperationApplyTimeSupport"] = support
    del fake.resources[UPDATE]["HttpPushUriOptions"]
    fake.once["POST", PUSH] = [httpx.Response(202, json=_task())]
    fake.bmc().push_image(image, TARGETS)
    parameters = json.loads(_part(fake.bodies[PUSH], "UpdateParameters")[1])
    assert parameters == {"Targets": list(TARGETS), "@Redfish.OperationApplyTime": "Immediate"}


def test_a_two_step_bmc_gets_the_image_and_then_the_start_at_its_own_target(image: Path) -> None:
    fake = FakeBmc()
    start = f"{UPDATE}/Actions/Odd/StartUpdate"
    fake.resources[UPDATE]["Actions"] = {"#UpdateService.StartUpdate": {"target": start}}
    text = f"The task {TASK} was created."
    body = {"@Message.ExtendedInfo": [{"MessageId": "Base.1.4.Success", "Message": text}]}
    fake.once["POST", PUSH] = [httpx.Response(202, json=body)]
    fake.once["POST", start] = [httpx.Response(202, json=body)]
    fake.put(_task())
    task = fake.bmc().push_image(image, TARGETS)
    assert fake.requests.index(("POST", PUSH)) < fake.requests.index(("POST", start))
    assert (task.uri, task.outcome) == (TASK, TaskOutcome.RUNNING)


def test_a_push_that_is_cut_has_an_unknown_outcome_and_is_not_sent_again(image: Path) -> None:
    fake = FakeBmc()
    fake.once["POST", PUSH] = [httpx.ReadError("connection reset")]
    with pytest.raises(OutcomeUnknown, match="read back"):
        fake.bmc().push_image(image, TARGETS)
    assert fake.count("POST", PUSH) == 1


def test_a_push_that_never_left_is_only_unreachable(image: Path) -> None:
    fake = FakeBmc()
    fake.once["POST", PUSH] = [httpx.ConnectError("connection refused")]
    with pytest.raises(NodeUnreachable):
        fake.bmc().push_image(image, TARGETS)


def test_a_push_that_makes_the_bmc_fail_has_an_unknown_outcome(image: Path) -> None:
    fake = FakeBmc()
    fake.once["POST", PUSH] = [problem(500, "Base.1.18.InternalError", "An internal error.")]
    with pytest.raises(OutcomeUnknown):
        fake.bmc().push_image(image, TARGETS)


@pytest.mark.parametrize("status", [400, 503])
def test_another_update_under_way_is_busy_whatever_the_status(image: Path, status: int) -> None:
    fake = FakeBmc()
    fake.once["POST", PUSH] = [problem(status, "IDRAC.2.8.RAC0679", "A job operation is already running.", "Warning")]
    with pytest.raises(BmcBusy):
        fake.bmc().push_image(image, TARGETS)
    assert fake.count("POST", PUSH) == 1


def test_a_refusal_that_means_up_to_date_is_a_result(image: Path) -> None:
    fake = FakeBmc()
    text = "Firmware versions on server match catalog, applicable updates are not present in the repository."
    fake.once["POST", PUSH] = [problem(400, "IDRAC.2.1.SUP029", text, "Warning")]
    task = fake.bmc().push_image(image, TARGETS)
    assert (task.outcome, task.uri) == (TaskOutcome.ALREADY_CURRENT, "")
    assert "SUP029" in task.messages[0]


def test_a_rejected_image_is_for_a_person_and_shows_the_bmcs_words(image: Path) -> None:
    fake = FakeBmc()
    text = "Verification of image 'gpu.fwpkg' at 'HGX_0' failed."
    fake.once["POST", PUSH] = [problem(400, "Update.1.0.VerificationFailed", text)]
    with pytest.raises(ConfigurationError, match="Verification of image"):
        fake.bmc().push_image(image, TARGETS)


def test_a_session_that_died_is_renewed_before_the_image_is_sent(image: Path) -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    bmc.read_reset_marks()
    fake.tokens.clear()
    fake.once["POST", PUSH] = [httpx.Response(202, json=_task())]
    assert bmc.push_image(image, TARGETS).uri == TASK
    assert fake.logins == 2


def test_a_push_is_not_begun_while_the_bmc_says_that_it_updates(image: Path) -> None:
    fake = FakeBmc()
    fake.resources[UPDATE]["Oem"] = {"Ami": {"UpdateStatus": "Flashing"}}
    with pytest.raises(BmcBusy, match="Flashing"):
        fake.bmc().push_image(image, TARGETS)
    assert fake.count("POST", PUSH) == 0


def test_what_cannot_work_is_said_before_anything_is_sent(image: Path, tmp_path: Path) -> None:
    fake = FakeBmc()
    with pytest.raises(ConfigurationError, match="check the bundle"):
        fake.bmc().push_image(tmp_path / "none.fwpkg", TARGETS)
    fake.resources[UPDATE]["MaxImageSizeBytes"] = 10
    with pytest.raises(ConfigurationError, match="10000 bytes"):
        fake.bmc().push_image(image, TARGETS)
    del fake.resources[UPDATE]["MultipartHttpPushUri"]
    with pytest.raises(ConfigurationError, match="SimpleUpdate"):
        fake.bmc().push_image(image, TARGETS)
    assert fake.count("POST", PUSH) == 0


def test_a_taken_push_whose_task_cannot_be_read_yet_keeps_its_address(image: Path) -> None:
    fake = FakeBmc()
    fake.once["POST", PUSH] = [httpx.Response(202, headers={"Location": TASK})]
    fake.once["GET", TASK] = [httpx.Response(503)]
    task = fake.bmc().push_image(image, TARGETS)
    assert (task.uri, task.outcome) == (TASK, TaskOutcome.RUNNING)


def test_simple_update_reads_its_target_and_names_the_protocol() -> None:
    fake = FakeBmc()
    target = f"{UPDATE}/Actions/SimpleUpdate"
    fake.once["POST", target] = [httpx.Response(202, json=_task())]
    fake.bmc().simple_update("https://images.example/a.fwpkg", TARGETS, "HTTPS")
    sent = json.loads(fake.bodies[target])
    assert sent == {
        "ImageURI": "https://images.example/a.fwpkg",
        "TransferProtocol": "HTTPS",
        "Targets": list(TARGETS),
    }


def test_a_task_that_the_bmc_no_longer_lists_is_gone() -> None:
    assert FakeBmc().bmc().read_task(TASK) is None


def test_a_task_is_not_gone_while_the_bmc_cannot_list_its_tasks() -> None:
    fake = FakeBmc()
    fake.once["GET", TASKS] = [httpx.Response(503)]
    with pytest.raises(BmcBusy):
        fake.bmc().read_task(TASK)


def test_a_task_that_is_listed_but_not_found_is_not_gone() -> None:
    fake = FakeBmc()
    fake.put(_task())
    fake.put(collection(TASKS, TASK))
    fake.once["GET", TASK] = [httpx.Response(404)]
    with pytest.raises(BmcBusy):
        fake.bmc().read_task(TASK)


def test_a_task_monitor_runs_until_it_gives_the_operations_answer() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    monitor = f"{ROOT}/TaskService/TaskMonitors/7"
    fake.once["GET", monitor] = [httpx.Response(202), httpx.Response(202, json=_task()), httpx.Response(204)]
    seen = [bmc.read_task(monitor) for _ in range(3)]
    outcomes = [task.outcome for task in seen if task]
    assert outcomes == [TaskOutcome.RUNNING, TaskOutcome.RUNNING, TaskOutcome.SUCCEEDED]


def test_all_tasks_are_read() -> None:
    fake = FakeBmc()
    fake.put(_task("Completed", "Critical"))
    fake.put(collection(TASKS, TASK))
    assert [(t.id, t.outcome) for t in fake.bmc().read_tasks()] == [("7", TaskOutcome.FAILED)]


def _reset_body(fake: FakeBmc, target: str) -> dict[str, str]:
    assert fake.count("POST", target) == 1
    return dict(json.loads(fake.bodies[target]))


def test_a_host_is_restarted_with_a_type_that_it_offers() -> None:
    fake = FakeBmc()
    target = f"{SYSTEM}/Actions/ComputerSystem.Reset"
    fake.once["POST", target] = [httpx.Response(204)]
    fake.bmc().reset(ResetKind.HOST_REBOOT)
    assert _reset_body(fake, target) == {"ResetType": "ForceRestart"}


def test_a_host_that_is_off_is_switched_on() -> None:
    fake = FakeBmc()
    fake.resources[SYSTEM]["PowerState"] = "Off"
    target = f"{SYSTEM}/Actions/ComputerSystem.Reset"
    fake.once["POST", target] = [httpx.Response(204)]
    fake.bmc().reset(ResetKind.HOST_REBOOT)
    assert _reset_body(fake, target) == {"ResetType": "On"}


def test_a_bmc_is_restarted_as_its_action_info_says() -> None:
    fake = FakeBmc()
    target = f"{MANAGER}/Actions/Manager.Reset"
    info = f"{MANAGER}/ResetActionInfo"
    fake.resources[MANAGER]["Actions"] = {"#Manager.Reset": {"target": target, "@Redfish.ActionInfo": info}}
    fake.put({**link(info), "Parameters": [{"Name": "ResetType", "AllowableValues": ["ForceRestart"]}]})
    fake.once["POST", target] = [httpx.Response(204)]
    fake.bmc().reset(ResetKind.BMC_RESET)
    assert _reset_body(fake, target) == {"ResetType": "ForceRestart"}


def test_a_reset_that_is_cut_has_an_unknown_outcome() -> None:
    fake = FakeBmc()
    target = f"{MANAGER}/Actions/Manager.Reset"
    fake.once["POST", target] = [httpx.RemoteProtocolError("Server disconnected without sending a response.")]
    with pytest.raises(OutcomeUnknown):
        fake.bmc().reset(ResetKind.BMC_RESET)
    assert fake.count("POST", target) == 1


def test_nvidias_auxiliary_cycle_is_found_at_any_depth_with_its_own_type() -> None:
    fake = FakeBmc()
    chassis = f"{ROOT}/Chassis/BMC_0"
    target = f"{chassis}/Actions/Oem/NvidiaChassis.AuxPowerReset"
    info = f"{chassis}/Oem/Nvidia/AuxPowerResetActionInfo"
    action = {"target": target, "@Redfish.ActionInfo": info}
    fake.resources[chassis]["Actions"] = {"Oem": {"Nvidia": {"#NvidiaChassis.AuxPowerReset": action}}}
    fake.put({**link(info), "Parameters": [{"Name": "ResetType", "AllowableValues": ["AuxPowerCycle"]}]})
    fake.once["POST", target] = [httpx.Response(202)]
    fake.bmc().reset(ResetKind.AC_CYCLE)
    assert _reset_body(fake, target) == {"ResetType": "AuxPowerCycle"}


def test_dells_extended_reset_comes_before_a_full_power_cycle() -> None:
    fake = FakeBmc()
    chassis = f"{ROOT}/Chassis/BMC_0"
    target = f"{chassis}/Actions/Oem/DellOemChassis.ExtendedReset"
    full = {"target": f"{chassis}/x", "ResetType@Redfish.AllowableValues": ["FullPowerCycle"]}
    own = {"target": target, "ResetType@Redfish.AllowableValues": ["PowerCycle"]}
    fake.resources[chassis]["Actions"] = {
        "#Chassis.Reset": full,
        "Oem": {"#DellOemChassis.ExtendedReset": own},
    }
    fake.once["POST", target] = [httpx.Response(204)]
    fake.bmc().reset(ResetKind.AC_CYCLE)
    assert _reset_body(fake, target) == {"ResetType": "PowerCycle", "FinalPowerState": "On"}


def test_a_bmc_that_cannot_cut_standby_power_says_which_resets_it_has() -> None:
    with pytest.raises(ConfigurationError, match=r"ComputerSystem\.Reset \(On, ForceOff, ForceRestart\)"):
        FakeBmc().bmc().reset(ResetKind.AC_CYCLE)


def test_no_reset_sends_nothing() -> None:
    fake = FakeBmc()
    fake.bmc().reset(ResetKind.NONE)
    assert fake.requests == []


def test_reset_marks_keep_the_bmcs_own_words() -> None:
    marks = FakeBmc().bmc().read_reset_marks()
    assert marks.power is PowerState.ON
    assert (marks.host_last_reset, marks.bmc_last_reset) == ("2026-01-01T00:00:00Z", "1970-01-01T00:01:00Z")
