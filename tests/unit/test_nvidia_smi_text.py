"""nvidia-smi -q and its sections."""

from __future__ import annotations

import pytest

from fleet.readers.nvidia_smi_text import explain, read_nvidia_smi_text, recognises

HEAD = """\

==============NVSMI LOG==============

Timestamp                                 : Thu Mar 14 20:46:07 2024
Driver Version                            : 535.86.10
CUDA Version                              : 12.2

Attached GPUs                             : {attached}
"""
AMPERE = """\
GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Disabled
        Pending                           : {mig}
    GPU Reset Status
        Reset Required                    : {reset}
        Drain and Reset Recommended       : No
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
            DRAM Correctable              : 4
            DRAM Uncorrectable            : {uncorrectable}
        Aggregate
            SRAM Uncorrectable            : 0
            DRAM Uncorrectable            : 12
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 12
        Pending                           : {pending}
        Remapping Failure Occurred        : {failure}
        Bank Remap Availability Histogram
            Max                           : 639 bank(s)
            High                          : 1 bank(s)
            Partial                       : 0 bank(s)
            Low                           : 0 bank(s)
            None                          : 0 bank(s)
    Power Readings
        Power Draw                        : 62.11 W
        Power Limit                       : 400.00 W
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 1720
            Type                          : C
            Name                          : python : main
            Used GPU Memory               : 1005 MiB
"""
OLD_ECC = """\
GPU 00000000:1A:00.0
    Ecc Errors
        Volatile
            Single Bit
                Device Memory       : 0
                Total               : 0
            Double Bit
                Device Memory       : 3
                L2 Cache            : 0
                Total               : 3
        Aggregate
            Double Bit
                Total               : N/A
    Clocks Throttle Reasons
        Idle                        : Not Active
        HW Slowdown                 : Active
            HW Thermal Slowdown     : Not Active
            HW Power Brake Slowdown : Active
"""


def ampere(bus: str, **changes: str) -> str:
    values = {"mig": "Disabled", "reset": "No", "uncorrectable": "0", "pending": "No", "failure": "No"} | changes
    return AMPERE.format(bus=bus, **values)


def text_of(*gpus: str, attached: int) -> str:
    return HEAD.format(attached=attached) + "".join(gpus)


def _codes(text: str) -> list[tuple[str, str]]:
    return [(finding.subject, finding.code) for finding in explain(text).findings]


def test_sections_of_one_name_are_kept_apart() -> None:
    (gpu,) = read_nvidia_smi_text(text_of(ampere("1A"), attached=1)).gpus
    assert (gpu.ecc_volatile_dram_correctable, gpu.ecc_aggregate_dram_uncorrectable) == (4, 12)
    assert (gpu.remapped_rows_uncorrectable, gpu.remap_banks_max, gpu.remap_banks_high) == (12, 639, 1)
    assert (gpu.ecc_mode_pending, gpu.mig_mode_pending) == (True, False)
    assert (gpu.power_draw_watts, gpu.power_limit_watts) == (62.11, 400.0)


def test_a_value_may_hold_the_separator() -> None:
    (gpu,) = read_nvidia_smi_text(text_of(ampere("1A"), attached=1)).gpus
    (process,) = gpu.processes or ()
    assert (process.pid, process.name, process.kind, process.used_memory_mib) == (1720, "python : main", "C", 1005)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"pending": "Yes"}, "ecc.row_remap_pending"),
        ({"failure": "Yes"}, "ecc.row_remap_failed"),
        ({"uncorrectable": "1"}, "ecc.uncorrectable_volatile"),
        ({"reset": "Yes"}, "recovery.gpu_reset"),
        ({"mig": "Enabled"}, "mode.mig_pending"),
    ],
)
def test_a_fault_of_one_gpu_is_found_at_that_gpu(changes: dict[str, str], code: str) -> None:
    text = text_of(ampere("1A"), ampere("2A", **changes), attached=2)
    told = ("gpu 0000:1a:00.0", "ecc.uncorrectable_aggregate"), ("gpu 0000:2a:00.0", "ecc.uncorrectable_aggregate")
    assert [found for found in _codes(text) if found not in told] == [("gpu 0000:2a:00.0", code)]


def test_old_errors_of_the_whole_life_are_only_worth_knowing() -> None:
    (finding,) = explain(text_of(ampere("1A"), attached=1)).findings
    assert (finding.code, finding.severity) == ("ecc.uncorrectable_aggregate", "info")


def test_a_gpu_that_the_driver_counts_and_the_text_lacks_is_found() -> None:
    assert ("node", "gpu.count_mismatch") in _codes(text_of(ampere("1A"), attached=8))


def test_text_that_ends_inside_a_gpu_is_cut_and_says_nothing_of_the_count() -> None:
    text = text_of(ampere("1A"), ampere("2A").partition("    Remapped Rows")[0], attached=8)
    assert read_nvidia_smi_text(text).complete is False
    assert "gpu.count_mismatch" not in [code for _, code in _codes(text)]


def test_the_counters_and_the_power_brake_of_old_drivers_are_read() -> None:
    text = text_of(OLD_ECC, attached=1)
    (gpu,) = read_nvidia_smi_text(text).gpus
    assert (gpu.ecc_volatile_dram_uncorrectable, gpu.ecc_volatile_l2_uncorrectable) == (3, 0)
    assert gpu.ecc_aggregate_uncorrectable is None
    assert [code for _, code in _codes(text)] == ["ecc.uncorrectable_volatile", "clocks.hw_power_brake"]


def test_a_section_without_head_or_address_is_still_read() -> None:
    piece = ampere("1A").partition("    Remapped Rows")[2].partition("    Power Readings")[0]
    text = f"    Remapped Rows{piece}".replace("Pending                           : No", "Pending : Yes")
    assert recognises(text)
    assert _codes(text) == [("gpu ?", "ecc.row_remap_pending")]


def test_text_that_lost_its_indentation_keeps_its_meaning() -> None:
    text = "\n".join(
        line.strip() for line in text_of(ampere("1A", pending="Yes", mig="Enabled"), attached=1).splitlines()
    )
    assert _codes(text) == _codes(text_of(ampere("1A", pending="Yes", mig="Enabled"), attached=1))


def test_every_kind_of_no_value_is_unknown_and_no_fault() -> None:
    for nothing in (
        "N/A",
        "[N/A]",
        "Unknown Error",
        "Not Supported",
        "Requested functionality has been deprecated",
        "",
    ):
        text = text_of(ampere("1A", pending=nothing, failure=nothing), attached=1)
        (gpu,) = read_nvidia_smi_text(text).gpus
        assert (gpu.remapped_rows_pending, gpu.remapped_rows_failure) == (None, None)
        assert not {"ecc.row_remap_pending", "ecc.row_remap_failed"} & {code for _, code in _codes(text)}
        assert any("memory waits for a repair" in unknown for unknown in explain(text).unknown)


def test_a_gpu_whose_section_says_only_that_it_is_lost_is_found() -> None:
    text = text_of(
        ampere("1A"), "GPU 00000000:2A:00.0\n    GPU is lost.  Reboot the system to recover this GPU\n", attached=2
    )
    assert ("gpu 0000:2a:00.0", "gpu.lost") in _codes(text)


def test_a_value_of_unknown_shape_is_named_and_not_guessed() -> None:
    text = text_of(ampere("1A", pending="Perhaps"), attached=1)
    assert read_nvidia_smi_text(text).gpus[0].remapped_rows_pending is None
    assert any("remapped_rows_pending=Perhaps" in unknown for unknown in explain(text).unknown)


@pytest.mark.parametrize("text", ["", "Serial Number : 1\nName: x\n", "GPU 0 is fine\n", "Current Temp : 3\n"])
def test_other_text_is_not_claimed(text: str) -> None:
    assert not recognises(text)
