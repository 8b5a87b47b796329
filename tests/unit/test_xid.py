"""Xid lines in the shapes of drivers 390 to 610, what they mean, and which of them are one fault."""

from __future__ import annotations

import pytest

from fleet.findings import Action, Finding, Severity
from fleet.readers.kernel_log import explain, read_kernel_log
from fleet.readers.xid import XidEvent

GPU = "NVRM: Xid (PCI:0000:3b:00): "


def _event(line: str) -> XidEvent:
    (event,) = read_kernel_log(line).xids
    return event


def _finding(text: str) -> Finding:
    (finding,) = explain(text).findings
    return finding


@pytest.mark.parametrize(
    "where",
    [
        "PCI:0000:3b:00",
        "PCI:0000:3B:00.0",
        "PCI:00000000:3b:00",
        "0000:3b:00",
        "PCI:3b:00",
        "003b:00",
        "PCI:0000:3b:00 GPU-I:05",
    ],
)
def test_a_gpu_has_one_address_however_it_is_written(where: str) -> None:
    event = _event(f"NVRM: Xid ({where}): 48, pid=7, name=trainer, DBE")
    assert (event.code, event.device) == (48, "0000:3b:00")


def test_a_pci_domain_is_kept() -> None:
    assert _event("NVRM: Xid (PCI:0018:01:00): 13, x").device == "0018:01:00"
    assert _event("NVRM: Xid (PCI:00010000:01:00.0): 13, x").device == "10000:01:00"


@pytest.mark.parametrize(
    ("rest", "pid", "process", "text"),
    [
        ("pid=2503421, name=python3, Ch 00000008", 2503421, "python3", "Ch 00000008"),
        ("pid='<unknown>', name=<unknown>, Ch 00000008", None, None, "Ch 00000008"),
        ("pid=12345, Ch 00000008", 12345, None, "Ch 00000008"),
        ("pid=9, name=nvc:[driver], Ch 00000008", 9, "nvc:[driver]", "Ch 00000008"),
        ("pid=9, name=ray::IDLE Spill, Ch 00000008", 9, "ray::IDLE Spill", "Ch 00000008"),
        ("Ch 00000010, engmask 00000101, intr 10000000", None, None, "Ch 00000010, engmask 00000101, intr 10000000"),
        ("pid=9, name=cut-off-her", 9, "cut-off-her", ""),
    ],
)
def test_the_process_is_read_where_the_driver_knows_it(
    rest: str, pid: int | None, process: str | None, text: str
) -> None:
    event = _event(f"{GPU}31, {rest}\n")
    assert (event.pid, event.process, event.text) == (pid, process, text)


def test_a_mig_instance_is_told_and_the_gpu_stays_the_subject() -> None:
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
    assert _event(line).mig_instance == "05"
    assert "MIG GPU instance 5" in _finding(line).text


@pytest.mark.parametrize("text", [f"{GPU}7", f"{GPU[:20]}", f"{GPU}abc, x", "NVRM: Xid (PCI:zz): 79, x"])
def test_a_line_that_is_cut_or_broken_is_unknown(text: str) -> None:
    explained = explain(text)
    assert explained.findings == ()
    assert any("Xid" in said for said in explained.unknown)


def test_numbers_in_a_text_are_no_codes() -> None:
    log = read_kernel_log(f"{GPU}119, pid=1, name=a, Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8), 103, 10\n")
    assert [x.code for x in log.xids] == [119]


def test_a_gpu_that_is_lost_is_found_without_an_xid_and_counted_once_with_it() -> None:
    told = "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n"
    xid = f"{GPU}79, pid=1, name=a, GPU has fallen off the bus.\n"
    assert _event(told).implied
    for text in (told + xid, xid + told, told + xid + told):
        event = _event(text)
        assert (event.code, event.implied, event.count) == (79, False, 1)


def test_a_lost_gpu_told_over_three_records_is_one_event() -> None:
    lines = (
        "[12.1] NVRM: The NVIDIA GPU 0000:b3:00.0\n[12.1] NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "[12.1] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    event = _event(lines)
    assert (event.code, event.device, event.line) == (79, "0000:b3:00", 1)


def test_the_gpu_named_in_the_line_before_is_not_the_lost_one() -> None:
    event = _event(
        "NVRM: GPU at PCI:0000:9b:00: GPU-b5369b98-492a-3bf0-19ce-d8239598b4e8\n"
        "NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.\n"
    )
    assert (event.device, event.line) == ("0000:29:00", 2)


def test_two_lost_gpus_are_two_events() -> None:
    lines = [
        f"NVRM: The NVIDIA GPU 0000:{bus}:00.0\nNVRM: fallen off the bus and is not responding." for bus in ("1b", "2c")
    ]
    assert [x.device for x in read_kernel_log("\n".join(lines)).xids] == ["0000:1b:00", "0000:2c:00"]


@pytest.mark.parametrize(
    ("rest", "severity", "action", "said"),
    [
        (
            "63, pid=1, Row Remapper: New row marked for remapping, reset gpu to activate.",
            "warning",
            "reset_gpu",
            "row",
        ),
        (
            "63, Dynamic Page Retirement: New page retired, reboot to activate (0x2a2f43).",
            "warning",
            "reset_gpu",
            "page",
        ),
        (
            "64, Row Remapper Error: (0x2eebc4100) - All reserved rows for bank are remapped",
            "error",
            "replace_part",
            "row",
        ),
        ("64, something else went wrong", "error", "reset_gpu", "return"),
        ("94, pid=1, Contained: SM (0x1). RST: Yes, D-RST: No", "error", "reset_gpu", "reset"),
        ("95, pid=1, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No", "error", "reset_gpu", "Uncontained"),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "info", "none", "nothing"),
        (
            "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            "error",
            "reboot_node",
            "reboot",
        ),
        ("154, GPU recovery action changed from 0x0 (None) to 0x63 (New)", "warning", "investigate", "0x63"),
        ("172, x", "error", "investigate", "SRAM"),
        ("4711, x", "warning", "investigate", "not in the catalogue"),
    ],
)
def test_the_text_of_a_line_decides_with_its_code(rest: str, severity: str, action: str, said: str) -> None:
    finding = _finding(GPU + rest + "\n")
    assert (finding.severity.value, finding.action.value) == (severity, action)
    assert said in finding.text


@pytest.mark.parametrize(
    ("rest", "severity", "action"),
    [
        ("144, SAW_MVB Fatal XC0 i0 Link 00 (0x00000021 0x00000002 0x0 0x0 0x0 0x0)", Severity.ERROR, Action.RESET_GPU),
        ("144, SAW_MVB Nonfatal XC0 i0 Link 00 (0x00000021 0x00000004 0x0 0x0)", Severity.INFO, Action.NONE),
        ("145, RLW_REMAP Nonfatal XC1 i0 Link 3 (0x00000082 0x00000004 0x0)", Severity.WARNING, Action.INVESTIGATE),
        ("147, TREX Nonfatal XC1 i0 Link 3 (0x00000184 0x80000000 0x0)", Severity.INFO, Action.WATCH),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 1 (0x028001c6 0x00000000 0x0)", Severity.ERROR, Action.INVESTIGATE),
        ("150, MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000 0x0 0x0)", Severity.ERROR, Action.RESET_GPU),
        ("145, RLW_NEW Fatal XC0 i0 Link 3 (0x03ffffff 0x00000008 0x0)", Severity.ERROR, Action.RESET_GPU),
        ("145, RLW_NEW Nonfatal XC0 i0 Link 3 (0x03ffffff 0x00000008 0x0)", Severity.WARNING, Action.INVESTIGATE),
        ("148, words of a driver to come", Severity.WARNING, Action.INVESTIGATE),
    ],
)
def test_nvlink_faults_are_judged_by_their_registers(rest: str, severity: Severity, action: Action) -> None:
    finding = _finding(GPU + rest + "\n")
    assert (finding.severity, finding.action) == (severity, action)


def test_an_nvlink_line_gives_unit_link_and_registers() -> None:
    fault = _event(
        f"{GPU}149, pid=3, name=a::b, NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 (0x021425c6 0x00000000 0x00"
    ).nvlink
    assert fault is not None
    assert (fault.unit, fault.fatal, fault.link) == ("NETIR_LINK_EVT", True, None)
    assert fault.registers == (0x021425C6, 0)


def test_a_burst_is_one_event_with_its_count() -> None:
    line = f"{GPU}13, pid='<unknown>', name=<unknown>, Graphics SM Global Exception on (GPC 8, TPC 5, SM 1)\n"
    assert _event(line * 40).count == 40
    assert "Seen 40 times" in _finding(line * 40).text


def test_the_same_place_under_two_processes_makes_the_hardware_suspect() -> None:
    line = GPU + "13, pid={pid}, name=x, Graphics SM Warp Exception on (GPC 8, TPC 5, SM 1): Out Of Range Address\n"
    assert _finding(line.format(pid=1) * 2).action is Action.RESTART_APPLICATION
    assert _finding(line.format(pid=1) + line.format(pid=2)).action is Action.RUN_DIAGNOSTICS
