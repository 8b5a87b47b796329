"""The fabric manager's log, its journal lines and its service's status."""

from __future__ import annotations

import pytest

from fleet.findings import Action, Severity
from fleet.readers.fabric_manager import explain, read_fabric_manager_log, recognises
from fleet.readers.kernel_log import explain as explain_kernel_log

STAMP = "[Nov 18 2025 10:11:12] "
GOOD = (
    f"{STAMP}[INFO] [tid 12] Fabric Manager version 535.104.05 is running with the following options\n"
    f"{STAMP}[INFO] [tid 12] successfully configured all the available GPUs and NVSwitches to route NVLink traffic.\n"
)
NOTHING = (
    "Nov 15 14:15:47 node nv-fabricmanager[417]: request to query NVSwitch device information failed with error:"
    "WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n"
    "Nov 15 14:15:47 node systemd[1]: nvidia-fabricmanager.service: Control process exited, code=exited, status=1\n"
)


def test_a_fabric_that_was_set_up_has_no_findings() -> None:
    assert recognises(GOOD)
    log = read_fabric_manager_log(GOOD)
    assert (log.version, log.configured, log.events) == ("535.104.05", True, ())
    assert explain(GOOD).findings == ()
    assert explain(GOOD).unknown == ()


def test_a_log_that_does_not_say_so_leaves_the_fabric_unknown() -> None:
    log = read_fabric_manager_log(GOOD.splitlines()[0])
    assert log.configured is None
    assert any("fabric" in said for said in explain(GOOD.splitlines()[0]).unknown)


@pytest.mark.parametrize(
    "apostrophe", ["'", "\N{RIGHT SINGLE QUOTATION MARK}", "\N{MODIFIER LETTER APOSTROPHE}", "&#39;"]
)
def test_a_version_that_differs_is_found_whatever_the_apostrophe(apostrophe: str) -> None:
    text = (
        "nv-fabricmanager[32]: fabric manager NVIDIA GPU driver interface version 530.30.02 "
        f"don{apostrophe}t match with driver version 530.41.03. Please update with matching NVIDIA driver package."
    )
    (finding,) = explain(text).findings
    assert (finding.code, finding.action) == ("fabric_manager.version_mismatch", Action.UPDATE_SOFTWARE)
    assert "530.30.02" in finding.text
    assert "530.41.03" in finding.text


def test_nothing_to_do_is_no_fault_and_leaves_open_whether_switches_should_be_there() -> None:
    assert recognises(NOTHING)
    explained = explain(NOTHING)
    assert explained.findings == ()
    assert any("NVSwitches" in said for said in explained.unknown)


def test_a_service_that_failed_for_another_reason_is_a_finding() -> None:
    (finding,) = explain(NOTHING.splitlines()[1]).findings
    assert (finding.code, finding.severity) == ("fabric_manager.service_failed", Severity.ERROR)


def test_the_status_of_the_service_is_read() -> None:
    status = "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Active: {}\n"
    (failed,) = explain(status.format("failed (Result: exit-code)")).findings
    (stopped,) = explain(status.format("inactive (dead)")).findings
    assert failed.code == "fabric_manager.service_failed"
    assert (stopped.code, stopped.severity) == ("fabric_manager.not_running", Severity.WARNING)
    assert explain(status.format("active (running)")).findings == ()


def test_faults_of_switches_are_the_sxids_that_the_kernel_reports() -> None:
    text = (
        f"{STAMP}[ERROR] [tid 12] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:06:00.0 "
        "physical id 8 port 48\n"
        f"{STAMP}[ERROR] [tid 12] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id "
        "00000000:86:00.0 physical id 9 port 61\n"
    )
    fatal, other = explain(text).findings
    assert (fatal.subject, fatal.code, fatal.severity) == ("switch 0000:06:00.0", "sxid.20034", Severity.FATAL)
    assert (other.subject, other.code, other.severity) == ("switch 0000:86:00.0", "sxid.12028", Severity.WARNING)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (
            "detected number of NVSwitches don't match with any supported system topology",
            "fabric_manager.topology_mismatch",
        ),
        ("NVLink training failed between GPU 3 and NVSwitch 1", "fabric_manager.link_training_failed"),
        ("the fabric is degraded: one NVSwitch is left out", "fabric_manager.degraded"),
        ("failed to open NVSwitch driver with error NV_ERR_OPERATING_SYSTEM", "fabric_manager.failed"),
        ("words that no rule knows", "fabric_manager.error"),
    ],
)
def test_errors_of_the_log_are_findings(said: str, code: str) -> None:
    (finding,) = explain(f"{STAMP}[ERROR] [tid 12] {said}\n").findings
    assert finding.code == code


def test_its_lines_inside_a_kernel_log_are_read_there() -> None:
    text = "Nov 15 14:15:46 node kernel: [ 1.5] NVRM: Xid (PCI:0000:3b:00): 13, x\n" + NOTHING
    assert not recognises(text)
    explained = explain_kernel_log(text)
    assert [finding.code for finding in explained.findings] == ["xid.13"]
    assert any("NVSwitches" in said for said in explained.unknown)


@pytest.mark.parametrize(
    "text", ["", "The fabric manager must run on HGX.", "fabric_manager: 535.104.05\n", "Fabric\n  State: Completed"]
)
def test_a_text_that_only_speaks_of_it_is_not_taken(text: str) -> None:
    assert not recognises(text)
