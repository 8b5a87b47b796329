"""What the kernel says of the rest of the node: PCIe, memory, processors, network adapters, drivers, processes."""

from __future__ import annotations

import pytest

from fleet.findings import Action, Finding, Severity
from fleet.readers.kernel_log import explain, read_kernel_log


def _findings(text: str) -> list[Finding]:
    return list(explain(text).findings)


@pytest.mark.parametrize(
    ("line", "subject", "code", "severity"),
    [
        (
            "pcieport 0000:00:1c.0: AER: Corrected error received: id=00e0",
            "port 0000:00:1c.0",
            "pcie.aer_corrected",
            "info",
        ),
        (
            "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:03:00.0",
            "pci 0000:03:00.0",
            "pcie.aer_corrected",
            "info",
        ),
        (
            "pcieport 0000:00:1c.0: AER: Correctable error message received from 0000:00:1c.0",
            "port 0000:00:1c.0",
            "pcie.aer_corrected",
            "info",
        ),
        (
            "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (X)",
            "gpu 0000:3b:00",
            "pcie.aer_nonfatal",
            "error",
        ),
        (
            "mlx5_core 0000:5e:00.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (X)",
            "nic 0000:5e:00.1",
            "pcie.aer_fatal",
            "fatal",
        ),
        (
            "pcieport 0000:60:01.1: DPC: containment event, status:0x1f01",
            "port 0000:60:01.1",
            "pcie.contained",
            "fatal",
        ),
        ("pcieport 0000:60:01.1: pciehp: Slot(7): Link Down", "port 0000:60:01.1", "pcie.slot_lost", "fatal"),
        (
            "nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "gpu 0000:3b:00",
            "gpu.inaccessible",
            "fatal",
        ),
    ],
)
def test_a_pcie_error_names_device_and_severity(line: str, subject: str, code: str, severity: str) -> None:
    (finding,) = _findings(f"[  12.345678] {line}\n")
    assert (finding.subject, finding.code, finding.severity.value) == (subject, code, severity)


def test_the_lines_of_one_pcie_error_are_one_finding() -> None:
    (finding,) = _findings(
        "[1.500000] pcieport 0000:00:1c.0: AER: Multiple Corrected error received: 0000:03:00.0\n"
        "[1.500001] nvidia 0000:03:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
        "[1.500002] nvidia 0000:03:00.0:   device [10de:2330] error status/mask=00000001/00002000\n"
        "[1.500003] nvidia 0000:03:00.0:    [ 0] RxErr                  (First)\n"
    )
    assert finding.subject == "gpu 0000:03:00"
    assert "RxErr" in finding.text


def test_a_pcie_fault_elsewhere_does_not_explain_a_lost_gpu() -> None:
    fault = "[1.5] mlx5_core 0000:5e:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer\n"
    lost = "[{}] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n"
    port = fault.replace("mlx5_core 0000:5e:00.0", "pcieport 0000:00:02.0")
    assert any("Follows" in finding.text for finding in _findings(port + lost.format("2.5")))
    assert not any("Follows" in finding.text for finding in _findings(port + lost.format("900.5")))


@pytest.mark.parametrize(
    ("line", "code", "severity"),
    [
        (
            "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)",
            "memory.uncorrected",
            "error",
        ),
        ('EDAC MC0: CE page 0x1, offset 0x0, row 3, channel 1, label "DIMM_B2": i7core', "memory.corrected", "info"),
        ("mce: [Hardware Error]: CPU 4: Machine Check: 0 Bank 7: cc00000000010090", "cpu.mce_corrected", "info"),
        (
            "mce: [Hardware Error]: CPU 1: Machine Check Exception: 5 Bank 4: b200000000070005",
            "cpu.mce_uncorrected",
            "error",
        ),
        ("mce: [Hardware Error]: Machine check events logged", "cpu.mce", "warning"),
        ("mce: CPU12: Core temperature above threshold, cpu clock throttled", "cpu.thermal", "warning"),
        ("mce: CMCI storm detected: switching to poll mode", "memory.corrected_storm", "warning"),
        ("Memory failure: 0x12345: recovery action for dirty LRU page: Recovered", "memory.uncorrected", "error"),
        ("INFO: task nvidia-smi:4321 blocked for more than 120 seconds.", "kernel.hung_task", "error"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [nvidia-smi:123]", "kernel.lockup", "error"),
        ("Kernel panic - not syncing: Fatal exception", "kernel.crash", "fatal"),
        ("Memory cgroup out of memory: Killed process 1234 (python3) total-vm:1kB", "kernel.oom", "warning"),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,pid=1234,uid=0", "kernel.oom", "warning"),
        (
            "pt_main_thread[253]: segfault at 7f79 ip 00007f sp 00007e error 4 in libnccl.so.2[7f7c+d3]",
            "application.crash",
            "warning",
        ),
        ("mlx5_core 0000:5e:00.0: poll_health:803:(pid 0): device's health compromised", "nic.firmware_error", "error"),
        ("mlx5_core 0000:5e:00.0: Detected insufficient power on the PCIe slot (27W).", "nic.power", "error"),
        (
            "mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            "nic.temperature",
            "error",
        ),
        ("mlx5_core 0000:5e:00.0 ens1f0np0: Link down", "nic.link_down", "warning"),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff", "disk.error", "error"),
        ("nouveau 0000:41:00.0: NVIDIA GH100 (180000a1)", "driver.conflict", "error"),
        ("NVRM: GPU 0000:41:00.0 is already bound to vfio-pci.", "driver.conflict", "error"),
        ("NVRM: The NVIDIA probe routine was not called for 8 device(s).", "driver.conflict", "error"),
        ("nvidia: module verification failed: signature and/or required key missing", "driver.kernel_tainted", "info"),
        ("Loading of module with unavailable key is rejected", "driver.module_rejected", "error"),
        ("nvidia: disagrees about version of symbol module_layout", "driver.module_mismatch", "error"),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0", "driver.module_missing", "error"),
        (
            "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot",
            "driver.uvm_fatal",
            "fatal",
        ),
        ("NVRM: GPU at PCI:0000:3b:00: RmInitAdapter: Cannot initialize GSP firmware RM", "gpu.gsp_failed", "error"),
        (
            "nvidia 0000:41:00.0: Direct firmware load for nvidia/535.54/gsp.bin failed",
            "driver.gsp_firmware_missing",
            "error",
        ),
        (
            "nvidia 0000:18:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link",
            "pcie.link_limited",
            "warning",
        ),
    ],
)
def test_a_line_that_means_one_thing_gives_it(line: str, code: str, severity: str) -> None:
    (finding,) = _findings(f"[  12.345678] {line}\n")
    assert (finding.code, finding.severity.value) == (code, severity)


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:5e:00.0: firmware version: 28.39.1002",
        "mlx5_core 0000:5e:00.0: poll_health: synd 0x0: no error",
        "nvidia-nvswitch0: using MSI",
        "nvidia 0000:3b:00.0: enabling device (0000 -> 0002)",
        "EDAC sbridge: Seeking for: PCI ID 8086:2fa0",
        "EDAC MC0: Giving out device to module skx_edac controller Skylake",
        "CPU: 17 PID: 2024380 Comm: nvidia-smi Tainted: P           OE     5.15.0-112-generic",
        "zfs: module license 'CDDL' taints kernel.",
        "oom_reaper: reaped process 1234 (python3), now anon-rss:0kB",
        "NVRM: Persistence mode is deprecated and will be removed in a future release.",
    ],
)
def test_a_line_without_a_fault_gives_none(line: str) -> None:
    assert _findings(f"[  12.345678] {line}\n") == []


def test_the_two_lines_of_one_process_that_memory_ran_out_for_count_once() -> None:
    text = (
        "[1.5] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=python3,pid=1234,uid=0\n"
        "[1.6] Out of memory: Killed process 1234 (python3) total-vm:1kB\n"
    )
    (event,) = read_kernel_log(text).events
    assert event.count == 1


def test_versions_of_library_and_module_that_differ_are_both_named() -> None:
    text = (
        "[1.5] NVRM: API mismatch: the client has the version 535.104.05, but\n"
        "[1.5] NVRM: this kernel module has the version 580.178.  Please\n"
        "[1.5] NVRM: make sure that this kernel module and all driver components have the same version.\n"
    )
    (finding,) = _findings(text)
    assert (finding.code, finding.action) == ("driver.library_mismatch", Action.REBOOT_NODE)
    assert "535.104.05" in finding.text
    assert "580.178" in finding.text


def test_a_firmware_record_is_one_finding_of_the_device_and_not_of_its_ids() -> None:
    lines = [
        "Hardware error from APEI Generic Hardware Error Source: 4",
        "event severity: corrected",
        "  section_type: PCIe error",
        "  device_id: 0000:3b:00.0",
        "  vendor_id: 0x10de, device_id: 0x2330",
        "  class_code: 030200",
    ]
    (finding,) = _findings("".join(f"[1.5] {{2}}[Hardware Error]: {line}\n" for line in lines))
    assert (finding.subject, finding.code) == ("gpu 0000:3b:00", "pcie.firmware_corrected")
    assert finding.severity is Severity.INFO


def test_the_error_that_a_dead_machine_left_behind_names_its_memory_module() -> None:
    (finding,) = _findings(
        "[1.5] BERT: Error records from previous boot:\n[1.5] [Hardware Error]: event severity: fatal\n"
        "[1.5] [Hardware Error]:   section_type: memory error\n[1.5] [Hardware Error]:   DIMM location: CPU1_DIMM_A2\n"
    )
    assert (finding.subject, finding.code) == ("dimm CPU1_DIMM_A2", "memory.firmware_fatal")


def test_a_gpu_that_another_driver_holds_explains_that_none_was_found() -> None:
    conflict, none = _findings(
        "[1.5] NVRM: GPU 0000:01:00.0 is already bound to NovaCore.\n[1.6] NVRM: No NVIDIA devices probed.\n"
    )
    assert (conflict.code, none.code) == ("driver.conflict", "driver.no_device")
    assert "Follows from driver.conflict" in none.text
