"""nvidia-smi's table, list, versions and errors."""

from __future__ import annotations

import pytest

from fleet.findings import Action, Severity
from fleet.gpu import SmiErrorKind
from fleet.gpu_report import _ERRORS
from fleet.readers.nvidia_smi_table import explain, read_nvidia_smi_table, recognises

NEW = """\
Wed Aug 12 21:53:45 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off |                    0 |
| N/A   34C    P0            112W /  700W |   71003MiB /  81559MiB |     98%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:43:00.0 Off |                   On |
| N/A   31C    P0             71W /  700W |       0MiB /  81559MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   2  NVIDIA H100 80GB HBM3          Off |   00000000:52:00.0 Off |                    3 |
| N/A   31C    P0             71W /  700W |       0MiB /  81559MiB |      0%   E. Process |
|                                         |                        |            Disabled* |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  1    2   0   0  |              26MiB / 40448MiB    | 60      0 |  3   0    3    0    3 |
|                  |                 0MiB / 24739MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+
|  1    3   0   1  |              17MiB / 20096MiB    | 32      1 |  2   0    2    0    2 |
|                  |                 0MiB / 12369MiB  |           |                       |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A          812345      C   python3 train.py                     70990MiB  |
|    1     2    0          812399      C   /usr/bin/serve                          18MiB  |
+-----------------------------------------------------------------------------------------+
"""
OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 390.30                 Driver Version: 390.30                    |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:00:1E.0 Off |                  Off |
| N/A   36C    P0    23W / 300W |      0MiB / 16160MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
|   1  Tesla V100-SXM2...  On   | 00000000:00:1F.0 Off |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 16160MiB |    ERR!      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0      4556      C   python                                      1005MiB |
+-----------------------------------------------------------------------------+
"""


def _codes(text: str) -> list[tuple[str, str]]:
    return [(finding.subject, finding.code) for finding in explain(text).findings]


def test_the_table_gives_modes_memory_and_processes_of_each_gpu() -> None:
    report = read_nvidia_smi_table(NEW)
    first, second, third = report.gpus
    assert (report.driver_version, report.cuda_version, report.tool_version) == ("580.95.05", "13.0", "580.95.05")
    assert (first.index, first.product_name, first.pci_address) == (0, "NVIDIA H100 80GB HBM3", "0000:1b:00.0")
    assert (first.memory_used_mib, first.memory_total_mib, first.utilization_gpu_percent) == (71003, 81559, 98)
    assert (first.power_draw_watts, first.performance_state, first.ecc_mode_current) == (112.0, "P0", True)
    assert [process.pid for process in first.processes or ()] == [812345]
    assert (third.compute_mode, third.mig_mode_current, third.mig_mode_pending) == ("E. Process", False, True)
    assert (second.processes or ())[0].gpu_instance_id == 2


def test_the_table_hides_the_error_count_of_a_gpu_in_mig_mode() -> None:
    gpu = read_nvidia_smi_table(NEW).gpus[1]
    assert (gpu.ecc_volatile_uncorrectable, gpu.ecc_mode_current, gpu.utilization_gpu_percent) == (None, True, None)
    assert [(mig.gpu_instance_id, mig.memory_total_mib) for mig in gpu.mig_instances or ()] == [(2, 40448), (3, 20096)]


def test_errors_of_a_gpu_and_of_a_mig_device_are_found_in_the_table() -> None:
    assert _codes(NEW) == [
        ("gpu 0000:43:00.0", "ecc.uncorrectable_volatile"),
        ("gpu 0000:52:00.0", "ecc.uncorrectable_volatile"),
        ("gpu 0000:52:00.0", "mode.mig_pending"),
        ("gpu 0000:52:00.0", "mode.persistence_off"),
    ]


def test_the_narrow_table_of_driver_390_is_read() -> None:
    report = read_nvidia_smi_table(OLD)
    gpu = report.gpus[0]
    assert (report.driver_version, report.cuda_version) == ("390.30", None)
    assert (gpu.ecc_mode_current, gpu.ecc_volatile_uncorrectable, gpu.mig_mode_current) == (False, None, None)
    assert [process.pid for process in gpu.processes or ()] == [4556]


def test_a_gpu_with_errors_in_every_cell_is_unreadable() -> None:
    assert _codes(OLD) == [("gpu 0000:00:1f.0", "gpu.unreadable")]


def test_mig_mode_without_instances_is_found() -> None:
    head, _, rest = NEW.partition("|  1    2   0   0")
    text = f"{head}|  No MIG devices found  |\n{rest.partition('| Processes:')[1]}"
    assert ("gpu 0000:43:00.0", "mig.no_instances") in _codes(text)


def test_a_gpu_that_is_lost_is_found_in_the_table() -> None:
    lost = OLD.replace("|ERR!  ERR! ERR!    ERR! / ERR! |", "| GPU is lost ERR! ERR! ERR! / ERR! |")
    assert ("gpu 0000:00:1f.0", "gpu.lost") in _codes(lost)


def test_the_header_of_driver_610_names_kernel_and_user_mode_driver() -> None:
    text = "| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |\n"
    report = read_nvidia_smi_table(text)
    assert (report.driver_version, report.cuda_version) == ("610.57.04", "13.3")


def test_a_kernel_module_of_another_version_than_the_tool_is_found() -> None:
    text = "| NVIDIA-SMI 580.95.05   Driver Version: 570.148.08   CUDA Version: 13.0 |\n"
    assert _codes(text) == [("node", "driver.two_versions")]


def test_a_version_of_two_parts_agrees_with_one_of_three() -> None:
    text = "NVIDIA-SMI version  : 535.183.01\nNVML version        : 535.183\nDRIVER version      : 535.183.01\n"
    assert recognises(text)
    assert explain(text).findings == ()
    assert read_nvidia_smi_table(text.replace("535.183.01\nNVML", "535.183.06\nNVML")).tool_version == "535.183.06"
    assert _codes(text.replace("535.183.01\nNVML", "535.183.06\nNVML")) == [("node", "driver.two_versions")]


def test_the_list_keeps_mig_devices_below_their_gpu() -> None:
    text = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
        "  MIG 1g.5gb Device 0: (UUID: MIG-GPU-11111111-2222-3333-4444-555555555555/7/0)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-2222-3333-4444-666666666666)\n"
    )
    first, second = read_nvidia_smi_table(text).gpus
    assert (len(first.mig_instances or ()), second.mig_instances) == (1, ())


def test_the_links_of_nvlink_are_left_to_their_own_reader() -> None:
    assert not recognises(
        "GPU 0: NVIDIA H100 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n\t Link 0: 26.562 GB/s\n"
    )


HANDLE = "Unable to determine the device handle for "


@pytest.mark.parametrize(
    ("line", "subject", "code"),
    [
        (HANDLE + "GPU 0000:0B:00.0: Unknown Error", "gpu 0000:0b:00.0", "gpu.unreachable"),
        (HANDLE + "GPU0000:CB:00.0: Unknown Error", "gpu 0000:cb:00.0", "gpu.unreachable"),
        (HANDLE + "GPU1: 0000:34:00.0: Unknown Error", "gpu 0000:34:00.0", "gpu.unreachable"),
        (HANDLE + "GPU 3: Unknown Error", "gpu 3", "gpu.unreachable"),
        (HANDLE + "GPU1: Unknown Error", "gpu 1", "gpu.unreachable"),
        (HANDLE.upper() + "GPU 0001:0B:00.0: GPU IS LOST.  Reboot to recover it", "gpu 0001:0b:00.0", "gpu.lost"),
        (HANDLE + "gpu 0000:82:00.0: GPU requires reset", "gpu 0000:82:00.0", "recovery.gpu_reset"),
        (HANDLE + "GPU 0000:05:00.0: Insufficient External Power", "gpu 0000:05:00.0", "gpu.insufficient_power"),
        ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0", "gpu 0000:3b:00.0", "inforom.corrupted"),
        ("Failed to initialize NVML: Driver/library version mismatch", "node", "driver.library_mismatch"),
        ("Failed to initialize NVML: Unknown Error", "node", "driver.nvml_failed"),
        ("Failed to initialize NVML: Driver Not Loaded", "node", "driver.not_running"),
        ("NVIDIA-SMI has failed because it couldn’t communicate with the NVIDIA driver.", "node", "driver.not_running"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "node", "driver.library_missing"),
        ("bash: nvidia-smi: command not found", "node", "driver.not_installed"),
        ("No devices were found", "node", "gpu.none_found"),
        ("nvidia-smi: exit status 15", "node", "gpu.lost"),
        ("nvidia-smi -q exited with code 18", "node", "driver.library_mismatch"),
    ],
)
def test_an_error_line_names_its_subject_and_cause(line: str, subject: str, code: str) -> None:
    assert recognises(line)
    (finding,) = explain(line).findings
    assert (finding.subject, finding.code) == (subject, code)
    assert finding.severity in (Severity.ERROR, Severity.FATAL)
    assert finding.evidence in line


def test_an_exit_that_repeats_its_message_and_one_that_is_well_add_nothing() -> None:
    assert _codes("No devices were found\nnvidia-smi: exit status 6\n") == [("node", "gpu.none_found")]
    assert not recognises("nvidia-smi: exit status 0\n")


def test_a_mismatch_asks_for_a_reboot_and_has_the_library_in_its_evidence() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n"
    (finding,) = explain(text).findings
    assert (finding.action, "580.178" in finding.evidence) == (Action.REBOOT_NODE, True)


def test_no_devices_after_the_one_gpu_is_gone_is_one_finding() -> None:
    text = "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\nNo devices were found\n"
    assert _codes(text) == [("gpu 0000:01:00.0", "gpu.unreachable")]


def test_an_error_beside_a_table_is_found_with_the_table() -> None:
    text = f"Unable to determine the device handle for GPU3: 0000:62:00.0: Unknown Error\n{NEW}"
    assert ("gpu 0000:62:00.0", "gpu.unreachable") in _codes(text)
    assert len(read_nvidia_smi_table(text).gpus) == 3


def test_an_error_beside_rows_is_left_to_the_reader_of_the_rows() -> None:
    assert not recognises("Unable to determine the device handle for GPU1: Unknown Error\nindex, pstate\n0, P0\n")


def test_a_long_log_with_one_such_line_is_not_claimed() -> None:
    assert not recognises("kernel: something else\n" * 100 + "No devices were found\n")


def test_the_kinds_of_errors_are_all_explained() -> None:
    assert set(_ERRORS) == set(SmiErrorKind)
