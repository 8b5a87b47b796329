"""Outputs of several hosts or runs in one text: none hides the fault of another."""

from __future__ import annotations

import json

import pytest

from fleet.explain import explain
from fleet.findings import Explanation, Severity

BOOT = "[    0.000000] Linux version 5.15.0-91-generic (gcc) #101\n"
LOST = "[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
PROMPT = "root@gpu-0001:~# dcgmi diag -r 3 -j\n"


def _diag(status: str) -> str:
    result = {"entity_group": "GPU", "entity_id": 0, "status": status}
    document = {
        "DCGM Diagnostic": {
            "metadata": {"GPU Device Serials": {"0": "1650924012345"}},
            "test_categories": [{"category": "Stress", "tests": [{"name": "memory", "results": [result]}]}],
        },
        "serial_num": "1650924012345",
    }
    return json.dumps(document, indent=1) + "\n"


def _severities(found: Explanation, code: str) -> set[Severity]:
    return {finding.severity for finding in found.findings if finding.code == code}


@pytest.mark.parametrize("heading", ["", PROMPT, "==== run ====\n", "Successfully ran diagnostic for group.\n"])
@pytest.mark.parametrize("fails_first", [True, False])
def test_two_diagnostics_of_one_gpu_tell_of_the_failure_whatever_stands_above_them(
    heading: str, fails_first: bool
) -> None:
    runs = [_diag("Fail"), _diag("Pass")] if fails_first else [_diag("Pass"), _diag("Fail")]
    found = explain("".join(heading + run for run in runs))
    assert [finding.code for finding in found.findings] == ["dcgm.test_failed"]


def test_a_chassis_that_two_nodes_share_makes_them_no_single_host() -> None:
    def node(uuid: str, failed: str) -> str:
        return (
            "==============NVSMI LOG==============\n\nAttached GPUs                             : 1\n"
            f"GPU 00000008:01:00.0\n    GPU UUID                              : {uuid}\n"
            "    Platform Info\n        Chassis Serial Number             : 1821325191344\n"
            f"    Remapped Rows\n        Remapping Failure Occurred        : {failed}\n"
        )

    sick, well = (f"GPU-{digit * 8}-1111-1111-1111-111111111111" for digit in "12")
    for text in (node(sick, "Yes") + node(well, "No"), node(well, "No") + node(sick, "Yes")):
        assert _severities(explain(text), "ecc.row_remap_failed") == {Severity.ERROR}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("root@gpu-0001:~# dmesg\n", "root@gpu-0002:~# dmesg\n"),
        ("==== gpu-0001 ====\n", "==== gpu-0002 ====\n"),
        ("==== dmesg gpu-0001 ====\n", "==== dmesg gpu-0002 ====\n"),
        ("==> logs/a.txt <==\n", "==> logs/b.txt <==\n"),
    ],
)
def test_a_boot_of_another_host_ends_no_fault(first: str, second: str) -> None:
    found = explain(first + BOOT + LOST + second + BOOT)
    assert _severities(found, "xid.79") == {Severity.FATAL}


def test_a_boot_of_the_same_host_ends_its_fault_whatever_command_printed_it() -> None:
    found = explain("root@gpu-0001:~# journalctl -k\n" + BOOT + LOST + "root@gpu-0001:~# dmesg\n" + BOOT)
    assert _severities(found, "xid.79") == {Severity.WARNING}


def test_the_same_address_at_the_prompts_of_two_hosts_is_two_gpus() -> None:
    found = explain("root@gpu-0001:~# dmesg\n" + LOST + "root@gpu-0002:~# dmesg\n" + LOST)
    assert {finding.subject for finding in found.findings} == {"gpu-0001 gpu 0000:3b:00", "gpu-0002 gpu 0000:3b:00"}


def test_a_second_boot_in_a_log_without_a_host_name_is_not_surely_of_the_same_host() -> None:
    found = explain(BOOT + LOST + BOOT)
    assert any(line.startswith("line 3: whether the same host starts here") for line in found.unknown)


def test_many_hosts_logs_are_told_apart() -> None:
    text = "".join(f"root@gpu-{n:04}:~# dmesg\n{BOOT}{LOST}{BOOT}" for n in range(100))
    found = explain(text)
    assert len(found.findings) == 100
    assert any(line.startswith("gpu-0099: line 4 of its log: whether the same host") for line in found.unknown)


NVLINK = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaaaaaa-1111-2222-3333-444444444444)\n\t Link 0: 26.562 GB/s\n"
SLURM = "NodeName=gpu-0001 Arch=x86_64\n   Gres=gpu:8\n   State=IDLE ThreadsPerCore=1\n\n"
NVSMI = (
    "==============NVSMI LOG==============\n\nAttached GPUs                             : 1\n"
    "GPU 00000000:1B:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
)
BARE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("before", [NVLINK, SLURM])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure it is running.\n",
            "driver.not_running",
        ),
        ("Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost. Reboot it.\n", "gpu.lost"),
    ],
)
def test_what_nvidia_smi_says_instead_of_data_is_read_behind_another_output(before: str, line: str, code: str) -> None:
    alone = {finding.code for finding in explain(line).findings}
    assert alone
    assert alone <= {finding.code for finding in explain(before + line).findings}


@pytest.mark.parametrize("before", [NVLINK, SLURM, NVSMI])
def test_an_xid_without_a_stamp_is_read_behind_another_output(before: str) -> None:
    assert "xid.79" in {finding.code for finding in explain(before + BARE).findings}


@pytest.mark.parametrize("before", [NVLINK, SLURM, NVSMI])
def test_rows_without_a_header_are_an_output_of_their_own(before: str) -> None:
    rows = "0, None\n1, Reset\n2, None\n3, None\n"
    alone = {(finding.subject, finding.code) for finding in explain(rows).findings}
    assert alone
    assert alone <= {(finding.subject, finding.code) for finding in explain(before + rows).findings}
