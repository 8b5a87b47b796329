"""A kernel log as a whole: which fault explains which, what a reset ends, and that any text has an answer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.findings import Action, Explanation, Finding, Severity
from fleet.readers import fabric_manager, kernel_log
from fleet.readers.kernel_log import explain, read_kernel_log, recognises

UUID = "GPU-b5369b98-492a-3bf0-19ce-d8239598b4e8"


def _codes(text: str) -> list[str]:
    return [finding.code for finding in explain(text).findings]


def _xid(code: int, text: str = "x", bus: str = "0f") -> str:
    return f"NVRM: Xid (PCI:0000:{bus}:00): {code}, pid=7, name=trainer, {text}\n"


def _of(explained: Explanation, code: str) -> Finding:
    return next(finding for finding in explained.findings if finding.code == code)


def test_a_double_bit_error_comes_before_what_follows_from_it() -> None:
    text = _xid(45) + _xid(63) + _xid(94, "Contained: SM") + _xid(48)
    assert _codes(text) == ["xid.48", "xid.45", "xid.63", "xid.94"]
    assert all("Follows from xid.48" in finding.text for finding in explain(text).findings[1:])


def test_a_failed_remap_keeps_its_own_action_behind_its_cause() -> None:
    failed = _xid(64, "Row Remapper Error: All reserved rows for bank are remapped")
    assert _of(explain(_xid(48) + failed), "xid.64").action is Action.REPLACE_PART


def test_a_removed_channel_asks_for_nothing_where_another_xid_explains_it() -> None:
    followed = _of(explain(_xid(13) + _xid(45)), "xid.45")
    alone = _of(explain(_xid(45)), "xid.45")
    other_gpu = _of(explain(_xid(13, bus="1b") + _xid(45)), "xid.45")
    assert (followed.severity, followed.action) == (Severity.INFO, Action.NONE)
    assert alone.action is Action.RESTART_SERVICE
    assert other_gpu.action is Action.RESTART_SERVICE


def test_after_a_lost_gpu_its_other_errors_follow_from_the_loss() -> None:
    text = (
        _xid(79, "GPU has fallen off the bus.")
        + _xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
        + "NVRM: GPU 0000:0f:00.0: RmInitAdapter failed! (0x26:0xffff:1266)\n"
        "NVRM: GPU 0000:0f:00.0: rm_init_adapter failed, device minor number 0\n"
    )
    first, *rest = explain(text).findings
    assert first.code == "xid.79"
    assert [finding.code for finding in rest] == ["xid.154", "gpu.init_failed"]
    assert all("Follows from xid.79" in finding.text for finding in rest)


def test_an_error_before_the_loss_is_not_explained_by_it() -> None:
    assert "Follows" not in _of(explain(_xid(119) + _xid(79)), "xid.119").text


def test_the_gravest_incident_comes_first() -> None:
    assert _codes(_xid(43) + _xid(31, bus="1b") + _xid(79, bus="2c")) == ["xid.79", "xid.31", "xid.43"]


def test_nvlink_faults_of_many_gpus_are_one_of_the_fabric() -> None:
    fault = "RLW_REMAP Nonfatal XC1 i0 Link 00 (0x00000082 0x00000040 0x0)"
    text = "".join(f"[{n}.5] {_xid(145, fault, bus)}" for n, bus in enumerate(("1b", "2c", "3d", "4e")))
    fabric, *gpus = explain(text).findings
    assert (fabric.subject, fabric.code, fabric.action) == ("fabric", "nvlink.fabric_wide", Action.INVESTIGATE)
    assert [finding.action for finding in gpus] == [Action.INVESTIGATE] * 4
    assert "nvlink.fabric_wide" not in _codes(text.replace("4e", "3d"))


def test_nvlink_faults_hours_apart_are_each_their_own() -> None:
    text = "".join(f"[{n * 9000}.5] {_xid(74, 'NVLink', bus)}" for n, bus in enumerate(("1b", "2c", "3d", "4e")))
    assert "nvlink.fabric_wide" not in _codes(text)


def test_errors_of_one_gpu_hours_apart_have_no_common_cause() -> None:
    text = f"[10.5] {_xid(13)}[90000.5] {_xid(45)}"
    assert _of(explain(text), "xid.45").action is Action.RESTART_SERVICE
    again = f"{text}[90000.4] {_xid(13)}"
    assert _of(explain(again), "xid.45").action is Action.NONE


def test_a_reset_ends_the_faults_of_that_gpu_only() -> None:
    tied = f"NVRM: GPU at PCI:0000:9b:00: {UUID}\n"
    explained = explain(tied + _xid(119, bus="9b") + _xid(119, bus="3b") + f"GPU reset occurred: {UUID}\n")
    found = {finding.subject: finding for finding in explained.findings if finding.code == "xid.119"}
    assert (found["gpu 0000:9b:00"].severity, found["gpu 0000:9b:00"].action) == (Severity.WARNING, Action.WATCH)
    assert found["gpu 0000:3b:00"].action is Action.RESET_GPU
    assert _of(explained, "gpu.reset").subject == "gpu 0000:9b:00"


def test_a_fault_after_the_reset_is_open_again() -> None:
    tied = f"NVRM: GPU at PCI:0000:9b:00: {UUID}\n"
    log = read_kernel_log(tied + _xid(119, bus="9b") + f"GPU reset occurred: {UUID}\n" + _xid(119, bus="9b"))
    assert [event.cleared_by for event in log.xids] == ["a reset of the GPU", None]


def test_a_reset_of_a_gpu_that_cannot_be_placed_ends_nothing() -> None:
    explained = explain(_xid(119) + f"GPU reset occurred: {UUID}\n")
    assert _of(explained, "xid.119").action is Action.RESET_GPU
    assert any("which GPU was reset" in said for said in explained.unknown)


def test_a_reboot_ends_faults_but_not_a_worn_out_memory() -> None:
    failed = _xid(64, "Row Remapper Error: All reserved rows for bank are remapped")
    explained = explain(_xid(119) + failed + "[    0.000000] Linux version 6.8.0-45-generic\n")
    assert _of(explained, "xid.119").action is Action.WATCH
    assert _of(explained, "xid.64").action is Action.REPLACE_PART


def test_faults_of_several_hosts_in_one_text_stay_apart() -> None:
    line = "Nov 15 14:15:47 {} kernel: [ 12.5] " + _xid(48)
    explained = explain(line.format("node1") + line.format("node2"))
    assert [finding.subject for finding in explained.findings] == ["node1 gpu 0000:0f:00", "node2 gpu 0000:0f:00"]


def test_the_loaded_driver_is_told_with_its_kind() -> None:
    line = "[ 5.1] NVRM: loading NVIDIA UNIX {}Kernel Module{}  560.35.03  Release Build\n"
    opened = read_kernel_log(line.format("Open ", " for x86_64"))
    closed = read_kernel_log(line.format("x86_64 ", ""))
    assert (opened.driver, opened.open_module) == ("560.35.03", True)
    assert (closed.driver, closed.open_module) == ("560.35.03", False)
    assert (read_kernel_log("").driver, read_kernel_log("").open_module) == (None, None)


def test_a_log_without_a_fault_does_not_say_that_the_hardware_is_well() -> None:
    explained = explain("[    5.123456] pci 0000:3b:00.0: [10de:2330] type 00 class 0x030200\n")
    assert explained.findings == ()
    assert any("whether the hardware is well" in said for said in explained.unknown)


def test_messages_that_the_kernel_suppressed_are_unknown() -> None:
    assert any(
        "31 callbacks suppressed" in said for said in explain("[1.5] net_ratelimit: 31 callbacks suppressed\n").unknown
    )


def test_evidence_is_the_line_cut_to_what_a_finding_carries() -> None:
    (finding,) = explain("[12.5] " + _xid(13, "y" * 900)).findings
    assert finding.evidence.startswith("[12.5] NVRM: Xid (PCI:0000:0f:00): 13")
    assert len(finding.evidence) == 300


def test_nothing_that_a_terminal_obeys_comes_out_of_a_log() -> None:
    (finding,) = explain("NVRM: Xid (PCI:0000:0f:00): 13, pid=7, name=\x1b[2Ja\u202eb, x\n").findings
    assert "\x1b" not in finding.text + finding.evidence
    assert "\u202e" not in finding.text + finding.evidence


def test_other_texts_are_not_taken_for_a_kernel_log() -> None:
    texts = (
        "",
        "kernel: 6.8.0-45\ndriver: 580.95.05\n",
        "driver: mlx5_core\nversion: 24.10\n",
        "Kernel driver in use: pcieport\n",
        "NodeName=node1 Reason=NVRM: Xid (PCI:0000:3b:00): 79, x\n",
        "[1,0]<stdout>: # Avg bus bandwidth : 482.26\n",
        '{"Name": "Xid", "Value": [12.345]}',
    )
    assert [text for text in texts if recognises(text)] == []


_WORDS = st.sampled_from(
    [
        *(
            "NVRM: Xid (PCI:0000:3b:00): 79, ",
            "NVRM: Xid (",
            "SXid (PCI:0000:06:00.0): 20034, Fatal, Link 4 x",
            "SXid (",
        ),
        *(
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "fallen off the bus",
            "NVRM: API mismatch: version ",
            "GPU reset occurred: GPU-",
        ),
        *(
            "[  1.5] ",
            "Nov 15 14:15:47 node kernel: ",
            "6,12,3456,-;",
            '{"MESSAGE":"NVRM: Xid (PCI:',
            '{"dmesg":[{"msg":"',
        ),
        *(
            "pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Fatal)",
            "AER: Corrected error received: id=",
            "{1}",
        ),
        *(
            "[Hardware Error]: event severity: ",
            "EDAC MC0: 1 CE ",
            "Machine Check: 0 Bank 7: ",
            "mlx5_core ",
            " DEVICE=+pci:",
        ),
        *(
            "145, RLW_REMAP Fatal XC0 i0 Link -1 (0x00000082 0x",
            "154, GPU recovery action changed from 0x",
            "#012",
            "\\x0a",
        ),
        *(
            "nv-fabricmanager[1]: detected NVSwitch fatal error 1 pci bus id 0000:06:00.0 port 9",
            "\r\n",
            "\n",
            "\x00",
            "\ufeff",
        ),
        *("Linux version 6", "_HOSTNAME", "99999999999999999999", "0x", "(((", ")))", "', name=", "pid='<unknown>'"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_WORDS | st.text(max_size=8), max_size=30).map("".join))
def test_any_text_has_an_answer(text: str) -> None:
    for reader in (kernel_log, fabric_manager):
        reader.recognises(text)
        explained = reader.explain(text)
        assert all(len(finding.evidence) <= 300 and finding.code for finding in explained.findings)


@settings(max_examples=200, deadline=None)
@given(st.integers(min_value=0, max_value=600))
def test_a_log_cut_anywhere_never_gives_a_code_that_was_not_in_it(end: int) -> None:
    whole = (
        "[1.5] " + _xid(119, "Timeout") + "[2.5] nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 4 x\n"
    )
    assert set(_codes((whole * 3)[:end])) <= {"xid.119", "sxid.20034"}
