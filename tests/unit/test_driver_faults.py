"""Why a driver does not load: each cause in the words that kernels and tools have for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fleet.driver_faults import LoadFault, load_cause, nvidia_lines


@pytest.mark.parametrize(
    ("text", "fault", "reboot"),
    [
        ("modprobe: FATAL: Module nvidia is in use.", "in_use", True),
        ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "key_rejected", False),
        ("Loading of unsigned module is rejected", "key_rejected", False),
        ("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", "key_rejected", False),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0-60-generic", "not_built", False),
        ("modprobe: ERROR: could not insert 'nvidia': Exec format error", "wrong_kernel", True),
        ("nvidia: version magic '6.8.0-45' should be '6.8.0-60'", "wrong_kernel", True),
        ("NVRM: GPU 0000:01:00.0 is already bound to nouveau.", "other_driver_bound", False),
        ("NVRM: GPU 0000:01:00.0 is already bound to NovaCore.", "other_driver_bound", False),
        (
            "nvidia 0000:18:00.0: Direct firmware load for nvidia/580.95.05/gsp_ga10x.bin failed with error -2",
            "firmware_missing",
            False,
        ),
        (
            "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:2901) requires use of the NVIDIA open kernel modules.",
            "wrong_flavour",
            False,
        ),
        (
            "NVRM: API mismatch: the client has the version 580.178, but this kernel module has 580.173.02",
            "mismatch",
            True,
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "mismatch", True),
        ("modprobe: ERROR: could not insert 'nvidia': No such device", "unsupported_gpu", False),
        ("nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client", "symbols", True),
        ("modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument", "symbols", True),
        ("fabric manager version 570.133.20 doesn't match driver version 580.95.05", "fabric_manager_mismatch", False),
        (
            "request to query NVSwitch devices failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
            "no_nvswitch",
            False,
        ),
        ("something else", "unknown", True),
        ("", "unknown", True),
    ],
)
def test_each_cause_is_told_apart(text: str, fault: str, reboot: bool) -> None:
    cause = load_cause([text])
    assert (cause.fault, cause.reboot_helps) == (LoadFault(fault), reboot)
    assert cause.advice


def test_the_deeper_cause_in_the_kernels_log_goes_before_what_modprobe_says() -> None:
    said = "modprobe: ERROR: could not insert 'nvidia': No such device"
    log = ["usb 1-1: new device", "NVRM: GPU 0000:01:00.0 is already bound to nouveau.\r"]
    cause = load_cause([said, *nvidia_lines(log)])
    assert cause.fault is LoadFault.OTHER_DRIVER_BOUND
    assert "blacklist" in str(cause)


def test_no_text_makes_it_fail() -> None:
    rng = random.Random(3)
    for _ in range(300):
        load_cause(["".join(chr(rng.randrange(1, 0x3000)) for _ in range(rng.randrange(80)))])


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("dmesg/nova_bound.txt", "other_driver_bound"),
        ("dmesg/fm_version_mismatch.txt", "fabric_manager_mismatch"),
        ("bugs/03_nvml_mismatch_patch.md", "mismatch"),
        ("bugs/07_fm_nothing_to_do_benign.md", "no_nvswitch"),
        ("bugs/01_driver_in_use_stuck.md", "in_use"),
    ],
)
def test_reports_of_others_have_their_cause(shared: Path, file: str, fault: str) -> None:
    assert load_cause([(shared / "corpus" / file).read_text(errors="replace")]).fault is LoadFault(fault)
