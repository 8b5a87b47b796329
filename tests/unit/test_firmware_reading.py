"""Inventory entries, tasks and messages, by their meaning."""

from __future__ import annotations

import pytest

from fleet.activation import Progress, progress
from fleet.bmc_messages import Meaning, Severity, meaning_of, read_messages, worst
from fleet.bmc_tasks import read_task
from fleet.firmware import read_component, read_inventory, real_version
from fleet.model import FirmwareComponent, FirmwareRole, TaskOutcome
from fleet.plan import Change

Json = dict[str, object]


def _entry(ident: str, version: str | None, state: str | None = "Enabled", **more: object) -> Json:
    status = {"Status": {"State": state}} if state else {}
    return {"@odata.id": f"/redfish/v1/x/{ident}", "Id": ident, "Version": version, **status, **more}


def _place(desired: str, component: FirmwareComponent) -> Progress:
    """What the flows read of an update from the inventory."""
    change = Change(component=component.id, current="", desired=desired, entry="any")
    return progress(change, (component,))


def _slots(state: str, version: str) -> Json:
    active = {"FirmwareState": "Activated", "Version": "1.0"}
    return {
        "Nvidia": {
            "ActiveFirmwareSlot": active,
            "InactiveFirmwareSlot": {"FirmwareState": state, "Version": version},
        }
    }


@pytest.mark.parametrize(
    "text", ["NA", "N/A", "-*", "", "  ", "0", "Unknown", "null", "--", "*", "Not Available", None, 7]
)
def test_a_placeholder_is_no_version(text: object) -> None:
    assert real_version(text) is None


@pytest.mark.parametrize(
    "text", ["0.00", "0.1C", "0x00 0x0b 0x03 0x04", "42S-2.83", "buildbrain-gcid-38635631", "01300524"]
)
def test_an_odd_version_is_still_a_version(text: str) -> None:
    assert real_version(f"{text}  ") == text


@pytest.mark.parametrize(
    ("entry", "role"),
    [
        (_entry("HGX_FW_BMC_0", "24.12-8"), FirmwareRole.ACTIVE),
        (_entry("HGX_FW_BMC_0", "24.12-8", state=None), FirmwareRole.ACTIVE),
        (_entry("HGX_FW_BMC_0", "24.12-8", state="Updating"), FirmwareRole.ACTIVE),
        (_entry("HGX_FW_BMC_0", "NA"), FirmwareRole.UNKNOWN),
        (_entry("HGX_FW_GPU_0", "97.00", state="Absent"), FirmwareRole.ABSENT),
        (_entry("HGX_Driver_GPU_0", "550.80", state="Disabled"), FirmwareRole.ABSENT),
        (_entry("X", "1", state="UnavailableOffline"), FirmwareRole.ABSENT),
        (_entry("BMC-Backup", "42S", state="StandbySpare"), FirmwareRole.BACKUP),
        (_entry("bios_other", "1.2", state="StandbySpare"), FirmwareRole.BACKUP),
        (_entry("Backup_BIOS", "1.2"), FirmwareRole.BACKUP),
        (_entry("Golden_BMC", "1.2"), FirmwareRole.BACKUP),
        (_entry("Backup_BMC", "1.2", state="Absent"), FirmwareRole.ABSENT),
        (_entry("BMC-Pending", "1.2", state="Absent"), FirmwareRole.ABSENT),
        (_entry("12", "2.0", Name="Redundant System ROM"), FirmwareRole.BACKUP),
        (_entry("13", "2.0", Name="Smart Storage Energy Pack (backup)"), FirmwareRole.ACTIVE),
        (_entry("Staging_BMC", "1.3"), FirmwareRole.STAGED),
        (_entry("UEFI-Pending", "22J-1.60"), FirmwareRole.STAGED),
        (_entry("UEFI-Pending", "-*", state="Disabled"), FirmwareRole.ABSENT),
        (_entry("Installed-159-1.8__BIOS.Setup.1-1", "1.8"), FirmwareRole.ACTIVE),
        (_entry("Current-159-1.8__BIOS.Setup.1-1", "1.8"), FirmwareRole.ACTIVE),
        (_entry("Previous-159-1.2__BIOS.Setup.1-1", "1.2"), FirmwareRole.BACKUP),
        (_entry("Available-159-1.9__BIOS.Setup.1-1", "1.9"), FirmwareRole.BACKUP),
        (_entry("slot2", "2.0", Active=False), FirmwareRole.BACKUP),
        (_entry("slot2", "2.0", Active=False, Staged=True), FirmwareRole.STAGED),
    ],
)
def test_an_entry_has_the_role_that_its_state_and_its_name_say(entry: Json, role: FirmwareRole) -> None:
    assert read_component(entry).role is role


@pytest.mark.parametrize("state", ["PendingActivation", "Staged"])
def test_a_version_waiting_in_the_other_slot_is_staged(state: str) -> None:
    component = read_component(_entry("HGX_FW_BMC_0", "1.0", Oem=_slots(state, "2.0")))
    assert (component.version, component.staged, component.role) == ("1.0", "2.0", FirmwareRole.ACTIVE)


@pytest.mark.parametrize(
    ("state", "version"),
    [("Inactive", "2.0"), ("Unknown", "2.0"), ("ImageCopyPending", "2.0"), ("PendingActivation", "NA")],
)
def test_an_inactive_slot_that_waits_for_nothing_is_not_staged(state: str, version: str) -> None:
    assert read_component(_entry("HGX_FW_BMC_0", "1.0", Oem=_slots(state, version))).staged is None


def test_a_missing_version_is_taken_from_the_activated_slot() -> None:
    assert read_component(_entry("HGX_FW_BMC_0", "NA", Oem=_slots("Inactive", "2.0"))).version == "1.0"


def test_a_pending_entry_of_its_own_is_what_its_primary_waits_for() -> None:
    inventory = read_inventory([_entry("UEFI", "1.5"), _entry("UEFI-Pending", "1.6"), _entry("BMC-Primary", "2.8")])
    assert [(c.id, c.staged) for c in inventory] == [
        ("UEFI", "1.6"),
        ("UEFI-Pending", None),
        ("BMC-Primary", None),
    ]


def test_a_staging_image_that_runs_already_waits_for_nothing() -> None:
    inventory = read_inventory([_entry("BIOS", "1.6"), _entry("Staging_BIOS", "1.6")])
    assert inventory[0].staged is None


def test_dells_current_entry_that_differs_from_the_installed_one_is_unknown() -> None:
    inventory = read_inventory(
        [_entry("Current-1-1.0__BIOS.Setup.1-1", "1.0"), _entry("Installed-1-2.0__BIOS.Setup.1-1", "2.0")]
    )
    assert [c.role for c in inventory] == [FirmwareRole.UNKNOWN, FirmwareRole.ACTIVE]


def test_an_entry_without_an_id_is_named_by_its_address() -> None:
    assert read_component({"@odata.id": "/redfish/v1/F/FW_1/", "Version": "1"}).id == "FW_1"


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"TaskState": "New"}, TaskOutcome.RUNNING),
        ({"TaskState": "Starting"}, TaskOutcome.RUNNING),
        ({"TaskState": "Running", "PercentComplete": 100}, TaskOutcome.RUNNING),
        ({"TaskState": "Pending"}, TaskOutcome.RUNNING),
        ({"TaskState": "Completed", "TaskStatus": "OK"}, TaskOutcome.SUCCEEDED),
        ({"TaskState": "Completed"}, TaskOutcome.SUCCEEDED),
        ({"TaskState": "Completed", "TaskStatus": "Warning"}, TaskOutcome.SUCCEEDED_WITH_WARNINGS),
        ({"TaskState": "Completed", "TaskStatus": "Critical"}, TaskOutcome.FAILED),
        ({"TaskState": "Exception", "TaskStatus": "Critical"}, TaskOutcome.FAILED),
        ({"TaskState": "Cancelled"}, TaskOutcome.FAILED),
        ({"TaskState": "Killed"}, TaskOutcome.FAILED),
        ({"JobState": "CompletedWithErrors", "PercentComplete": 100}, TaskOutcome.FAILED),
        ({"JobState": "Scheduled"}, TaskOutcome.WAITING_FOR_RESET),
        (
            {"TaskState": "Pending", "Oem": {"Dell": {"JobState": "RebootPending"}}},
            TaskOutcome.WAITING_FOR_RESET,
        ),
        (
            {"TaskState": "Completed", "Oem": {"Dell": {"JobState": "CompletedWithErrors"}}},
            TaskOutcome.FAILED,
        ),
        ({"TaskState": "Completed", "TaskStatus": "Purple"}, TaskOutcome.UNKNOWN),
        ({"TaskState": "Dreaming"}, TaskOutcome.UNKNOWN),
        ({}, TaskOutcome.UNKNOWN),
    ],
)
def test_a_tasks_outcome_follows_state_and_status(body: Json, outcome: TaskOutcome) -> None:
    assert read_task(body).outcome is outcome


def _message(ident: str, text: str, severity: str | None) -> Json:
    return {"MessageId": ident, "Message": text, "Severity": severity}


SKIPPED = _message("NvidiaUpdate.1.0.ComponentUpdateSkipped", "Skipped because the image is identical.", "OK")
FAILED = _message("Update.1.0.ApplyFailed", "Installation of image failed.", "Critical")
ABORTED = _message("TaskEvent.1.0.TaskAborted", "The task has completed with errors.", "Critical")


def test_an_exception_that_only_skipped_current_components_is_already_current() -> None:
    body = {"TaskState": "Exception", "TaskStatus": "Critical", "Messages": [SKIPPED, ABORTED]}
    assert read_task(body).outcome is TaskOutcome.ALREADY_CURRENT


def test_an_exception_that_skipped_one_and_failed_another_has_failed() -> None:
    body = {"TaskState": "Exception", "TaskStatus": "Critical", "Messages": [SKIPPED, FAILED, ABORTED]}
    assert read_task(body).outcome is TaskOutcome.FAILED


def test_a_cancelled_task_is_not_success_whatever_was_current() -> None:
    assert read_task({"TaskState": "Cancelled", "Messages": [SKIPPED]}).outcome is TaskOutcome.FAILED


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("The firmware is already up to date.", Meaning.ALREADY_CURRENT),
        ("The component is already at version 1.0.", Meaning.ALREADY_CURRENT),
        ("The firmware is not up to date.", Meaning.OTHER),
        ("Another update is in progress.", Meaning.BUSY),
        ("A job operation is already running.", Meaning.BUSY),
        ("Signature verification failed.", Meaning.IMAGE_REJECTED),
        (
            "The action requires that the parameter TransferProtocol be present.",
            Meaning.TRANSFER_PROTOCOL_REQUIRED,
        ),
        (
            "'TransferProtocolType' property which is mandatory is missing.",
            Meaning.TRANSFER_PROTOCOL_REQUIRED,
        ),
        ("Something happened.", Meaning.OTHER),
    ],
)
def test_a_message_without_a_known_id_is_read_by_its_text(text: str, meaning: Meaning) -> None:
    assert meaning_of(read_messages({"error": {"message": text}})) is meaning


def test_the_worst_message_decides_and_all_are_kept() -> None:
    skipped = _message("Base.1.0.PropertyUnknown", "Unknown property.", "Warning")
    busy = _message("Base.1.0.ResourceInUse", "In use.", "Critical")
    messages = read_messages({"error": {"@Message.ExtendedInfo": [skipped, busy]}})
    assert len(messages) == 2
    assert (worst(messages), meaning_of(messages)) == (Severity.CRITICAL, Meaning.BUSY)


def test_a_general_error_does_not_hide_what_it_frames() -> None:
    frame = _message("Base.1.0.GeneralError", "A general error has occurred.", "Critical")
    current = _message("IDRAC.2.1.SUP029", "Versions match catalog.", "Warning")
    assert meaning_of(read_messages({"error": {"@Message.ExtendedInfo": [frame, current]}})) is Meaning.ALREADY_CURRENT


def test_an_unknown_critical_message_is_never_read_as_already_current() -> None:
    strange = _message("Vendor.1.0.FlashDied", "The flash chip died.", "Critical")
    current = _message("IDRAC.2.1.SUP029", "Versions match catalog.", "Warning")
    assert meaning_of(read_messages({"error": {"@Message.ExtendedInfo": [current, strange]}})) is Meaning.OTHER


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        (_entry("BIOS", "2.0"), Progress.ACTIVE),
        (_entry("BIOS", "1.0"), Progress.OLD),
        (_entry("BIOS", "1.0", Oem=_slots("Staged", "2.0")), Progress.STAGED),
        (_entry("BIOS", "NA"), Progress.UNKNOWN),
        (_entry("BIOS", "2.0", state="Absent"), Progress.UNKNOWN),
    ],
)
def test_the_inventory_has_the_last_word_on_an_update(entry: Json, place: Progress) -> None:
    assert _place("2.0", read_component(entry)) is place


def test_a_component_that_is_gone_leaves_the_update_unknown() -> None:
    change = Change(component="BIOS", current="1.0", desired="2.0", entry="bios")
    assert progress(change, ()) is Progress.UNKNOWN
