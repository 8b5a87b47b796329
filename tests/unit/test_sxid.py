"""SXid lines of the NVSwitch driver: severity by the line, else by the code; lines that continue are not counted."""

from __future__ import annotations

import pytest

from fleet.findings import Action, Severity
from fleet.readers.kernel_log import explain, read_kernel_log
from fleet.readers.sxid import SxidEvent

SWITCH = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): "


def _event(text: str) -> SxidEvent:
    (event,) = read_kernel_log(text).sxids
    return event


@pytest.mark.parametrize(
    ("rest", "severity", "action"),
    [
        ("20034, Fatal, Link 48 LTSSM Fault Up", Severity.FATAL, Action.RESET_FABRIC),
        (
            "12028, Non-fatal, Link 61 egress non-posted PRIV error (First)",
            Severity.WARNING,
            Action.RESTART_APPLICATION,
        ),
        ("11012, Non-fatal, Link 3 Single bit ECC errors", Severity.INFO, Action.WATCH),
        ("11013, Non-fatal, Link 3 ingress header DBE", Severity.WARNING, Action.WATCH),
        ("26006, SOE HALTED", Severity.ERROR, Action.RESET_FABRIC),
        ("10004, Host_thermal_event_start", Severity.ERROR, Action.CHECK_COOLING),
        ("10004, Fatal, Host_thermal_event_start", Severity.FATAL, Action.CHECK_COOLING),
        ("99999, Link 2 something new", Severity.WARNING, Action.INVESTIGATE),
        ("99999, Fatal, Link 2 something new", Severity.ERROR, Action.INVESTIGATE),
    ],
)
def test_the_lines_word_goes_before_the_catalogues(rest: str, severity: Severity, action: Action) -> None:
    (finding,) = explain(SWITCH + rest + "\n").findings
    assert (finding.subject, finding.severity, finding.action) == ("switch 0000:06:00.0", severity, action)


def test_lines_that_continue_a_fault_are_not_counted() -> None:
    event = _event(
        f"{SWITCH}20034, Fatal, Link 48 LTSSM Fault Up\n"
        f"{SWITCH}20034, Severity 1 Engine instance 48 Sub-engine instance 00\n"
        f"{SWITCH}20034, Data {{0x10000000, 0x10000000}}\n"
    )
    assert (event.count, event.fatal, event.links, event.data_only) == (1, True, (48,), False)


def test_a_data_line_before_its_fault_takes_nothing_away() -> None:
    event = _event(f"{SWITCH}20034, Data {{0x1}}\n{SWITCH}20034, Fatal, Link 48 LTSSM Fault Up\n")
    assert (event.count, event.fatal, event.data_only, event.line) == (1, True, False, 1)


def test_faults_of_several_links_are_one_of_the_switch() -> None:
    event = _event(
        f"{SWITCH}22013, Non-fatal, Link 5 x\n{SWITCH}22013, Non-fatal, Link 7 x\n{SWITCH}22013, Non-fatal, Link 5 x\n"
    )
    assert (event.count, event.links) == (3, (5, 7))


def test_one_fatal_line_makes_the_fault_fatal() -> None:
    assert _event(f"{SWITCH}20012, Non-fatal, Link 5 x\n{SWITCH}20012, Fatal, Link 5 x\n").fatal is True


@pytest.mark.parametrize("rest", ["xyz, Fatal error", "", "-1, Fatal"])
def test_an_sxid_without_a_number_is_unknown(rest: str) -> None:
    explained = explain(SWITCH + rest + "\n")
    assert explained.findings == ()
    assert any("SXid" in said for said in explained.unknown)


def test_a_code_at_the_cut_end_of_a_text_is_unknown() -> None:
    assert explain(f"{SWITCH}200").findings == ()


def test_a_lost_gpu_explains_the_fault_of_a_link_beside_it() -> None:
    gpu, switch = explain(
        f"{SWITCH}20034, Fatal, Link 48 LTSSM Fault Up\nNVRM: Xid (PCI:0000:c6:00): 79, GPU has fallen off the bus.\n"
    ).findings
    assert (gpu.code, switch.code) == ("xid.79", "sxid.20034")
    assert "Follows from xid.79" in switch.text


def test_a_gpu_lost_hours_later_does_not_explain_the_fault_of_a_link() -> None:
    text = (
        f"[10.5] {SWITCH}20034, Fatal, Link 48 LTSSM Fault Up\n"
        "[9000.5] NVRM: Xid (PCI:0000:c6:00): 79, GPU has fallen off the bus.\n"
    )
    assert not any("Follows" in finding.text for finding in explain(text).findings)


def test_a_fault_inside_the_switch_explains_the_nvlink_faults_of_gpus() -> None:
    switch, link, channel = explain(
        "NVRM: Xid (PCI:0000:c6:00): 74, NVLink: fatal error detected on link 4(0x10000, 0x0)\n"
        "NVRM: Xid (PCI:0000:c7:00): 45, pid=1, name=a, Ch 1\n"
        f"{SWITCH}11013, Fatal, Link 61 ingress header DBE\n"
    ).findings
    assert (switch.code, link.code, channel.code) == ("sxid.11013", "xid.74", "xid.45")
    assert channel.action is Action.NONE
