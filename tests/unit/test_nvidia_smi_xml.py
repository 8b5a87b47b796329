"""nvidia-smi -q -x."""

from __future__ import annotations

import pytest

from fleet.readers.nvidia_smi_xml import explain, read_nvidia_smi_xml, recognises


def gpu(address: str, inside: str) -> str:
    return f'\t<gpu id="{address}">\n{inside}\n\t</gpu>\n'


def log(*gpus: str, attached: int = 1, head: str = "") -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"\t<driver_version>570.148.08</driver_version>\n{head}\t<attached_gpus>{attached}</attached_gpus>\n"
        f"{''.join(gpus)}</nvidia_smi_log>\n"
    )


V9 = """
<product_name>Tesla V100-SXM2-32GB</product_name><serial>0320000000000</serial>
<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
<ecc_errors>
  <volatile>
    <single_bit><device_memory>2</device_memory><register_file>0</register_file><total>2</total></single_bit>
    <double_bit><device_memory>0</device_memory><register_file>1</register_file><total>1</total></double_bit>
  </volatile>
  <aggregate>
    <single_bit><device_memory>2</device_memory><total>2</total></single_bit>
    <double_bit><device_memory>0</device_memory><total>N/A</total></double_bit>
  </aggregate>
</ecc_errors>
<retired_pages>
  <multiple_single_bit_retirement><retired_count>1</retired_count></multiple_single_bit_retirement>
  <double_bit_retirement><retired_count>0</retired_count></double_bit_retirement>
  <pending_retirement>No</pending_retirement>
</retired_pages>
<clocks_throttle_reasons>
  <clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
  <clocks_throttle_reason_hw_slowdown>Not Active</clocks_throttle_reason_hw_slowdown>
</clocks_throttle_reasons>
<power_readings><power_draw>299.10 W</power_draw><enforced_power_limit>300.00 W</enforced_power_limit></power_readings>
"""


def _codes(text: str) -> list[tuple[str, str]]:
    return [(finding.subject, finding.code) for finding in explain(text).findings]


def test_the_ecc_counters_of_volta_are_read_by_bit_and_place() -> None:
    (reading,) = read_nvidia_smi_xml(log(gpu("00000000:1A:00.0", V9))).gpus
    assert (reading.ecc_volatile_dram_correctable, reading.ecc_volatile_dram_uncorrectable) == (2, 0)
    assert (reading.ecc_volatile_register_file_uncorrectable, reading.ecc_volatile_uncorrectable) == (1, 1)
    assert reading.ecc_aggregate_uncorrectable is None
    assert (reading.power_draw_watts, reading.power_limit_watts) == (299.10, 300.0)


def test_a_power_cap_is_no_throttling_by_hardware() -> None:
    assert _codes(log(gpu("00000000:1A:00.0", V9))) == [("gpu 0000:1a:00.0", "ecc.uncorrectable_volatile")]


def test_the_domain_of_an_address_is_kept() -> None:
    (reading,) = read_nvidia_smi_xml(log(gpu("0008:06:00.0", ""))).gpus
    (wide,) = read_nvidia_smi_xml(log(gpu("00010000:06:00.0", ""))).gpus
    assert (reading.pci_address, wide.pci_address) == ("0008:06:00.0", "10000:06:00.0")


def test_the_place_is_the_index_only_where_every_gpu_is_shown() -> None:
    gpus = (gpu("00000000:1A:00.0", ""), gpu("00000000:2A:00.0", ""))
    assert [reading.index for reading in read_nvidia_smi_xml(log(*gpus, attached=2)).gpus] == [0, 1]
    assert [reading.index for reading in read_nvidia_smi_xml(log(*gpus, attached=8)).gpus] == [None, None]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_xml_that_is_cut_off_gives_what_stood_before_the_cut_and_no_count_mismatch(share: float) -> None:
    whole = log(*(gpu(f"00000000:{bus}A:00.0", V9) for bus in range(1, 9)), attached=8)
    text = whole[: int(len(whole) * share)]
    report = read_nvidia_smi_xml(text)
    assert report.complete is False
    assert [code for _, code in _codes(text) if code == "gpu.count_mismatch"] == []
    assert any("not whole" in unknown for unknown in explain(text).unknown)
    assert all(reading.serial in (None, "0320000000000") for reading in report.gpus)


def test_the_value_at_which_the_text_was_cut_is_not_believed() -> None:
    text = log(gpu("00000000:1A:00.0", V9)).partition("148.08")[0] + "148.0"
    assert read_nvidia_smi_xml(text).driver_version is None


def test_declared_entities_are_never_expanded() -> None:
    text = log(gpu("00000000:1A:00.0", "<serial>&bomb;</serial>")).replace(
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY bomb "&a;&a;&a;&a;">]>',
    )
    assert read_nvidia_smi_xml(text).gpus[0].serial == "&bomb;"


def test_a_bare_ampersand_in_a_process_name_breaks_nothing() -> None:
    inside = (
        "<processes><process_info><pid>7</pid><process_name>a & b &lt;c&gt;</process_name></process_info></processes>"
    )
    (reading,) = read_nvidia_smi_xml(log(gpu("00000000:1A:00.0", inside))).gpus
    assert (reading.processes or ())[0].name == "a & b <c>"


def test_no_document_type_and_no_root_are_needed() -> None:
    piece = gpu("00000000:1A:00.0", V9)
    assert recognises(piece)
    assert read_nvidia_smi_xml(piece).gpus[0].serial == "0320000000000"
    assert read_nvidia_smi_xml(f"<nvidia_smi_log>{piece}</nvidia_smi_log>").gpus[0].serial == "0320000000000"


def test_of_several_answers_each_gpu_keeps_its_last_reading() -> None:
    cold, hot = (
        "<temperature><gpu_temp>40 C</gpu_temp></temperature>",
        "<temperature><gpu_temp>71 C</gpu_temp></temperature>",
    )
    text = log(gpu("00000000:1A:00.0", cold)) + log(gpu("00000000:1A:00.0", hot))
    assert [reading.temperature_gpu_celsius for reading in read_nvidia_smi_xml(text).gpus] == [71]


def test_the_reset_status_of_driver_535_is_a_recovery_action() -> None:
    inside = "<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>"
    assert _codes(log(gpu("00000000:1A:00.0", inside))) == [("gpu 0000:1a:00.0", "recovery.gpu_reset")]


def test_a_lost_gpu_inside_the_xml_is_found() -> None:
    inside = "<product_name>GPU is lost</product_name><serial>GPU is lost</serial><uuid>GPU is lost</uuid>"
    assert _codes(log(gpu("00000000:1A:00.0", inside))) == [("gpu 0000:1a:00.0", "gpu.lost")]


def test_an_error_beside_the_xml_is_found_with_it() -> None:
    text = "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n" + log(
        gpu("00000000:1A:00.0", ""), attached=2
    )
    assert _codes(text) == [("gpu 0000:3b:00.0", "gpu.unreachable"), ("node", "gpu.count_mismatch")]


def test_gsp_firmware_of_another_driver_is_found() -> None:
    inside = "<gsp_firmware_version>570.86.15</gsp_firmware_version>"
    assert _codes(log(gpu("00000000:1A:00.0", inside))) == [("gpu 0000:1a:00.0", "driver.gsp_mismatch")]


def test_no_process_and_not_told_are_two_answers() -> None:
    for inside, processes in (("<processes />", ()), ("<processes>N/A</processes>", None), ("", None)):
        assert read_nvidia_smi_xml(log(gpu("00000000:1A:00.0", inside))).gpus[0].processes == processes


def test_other_xml_is_not_claimed() -> None:
    assert not recognises('<?xml version="1.0"?><log><gpu>1</gpu></log>')
