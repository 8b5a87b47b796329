"""The probe on a fake libnvidia-ml that a state file drives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fleet.gpu import GpuReading, RecoveryAction
from fleet.node_reading import NodeReading
from tests.real.nvml import State, fake_library, gb200, healthy_h100, missing_compiler, set_gpu
from tests.unit.probe_node import FakeNode

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=missing_compiler() or "")


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)


def read(node: FakeNode, state: State, *arguments: str, old: bool = False) -> NodeReading:
    library = fake_library(node.root, state, old=old)
    return node.reading("--sections=gpus", *arguments, nvml=library)


def gpus(seen: NodeReading) -> tuple[GpuReading, ...]:
    assert seen.gpus is not None
    return seen.gpus


def known(gpu: GpuReading) -> set[str]:
    return {name for name in GpuReading.__slots__ if getattr(gpu, name) not in (None, ())}


def test_a_healthy_hgx_node_tells_more_than_a_hundred_attributes_of_each_gpu(node: FakeNode) -> None:
    seen = read(node, healthy_h100())
    assert (seen.gpu_source, seen.gpu_count, len(gpus(seen)), seen.unknown) == ("nvml", 8, 8, {})
    assert min(len(known(gpu)) for gpu in gpus(seen)) > 110
    first, last = gpus(seen)[0], gpus(seen)[7]
    assert (first.product_name, first.architecture, first.compute_capability) == (
        "NVIDIA H100 80GB HBM3",
        "Hopper",
        "9.0",
    )
    assert (first.serial, last.serial) == ("1650123456780", "1650123456787")
    assert (first.pci_address, last.pci_address) == ("0000:1b:00.0", "0000:8b:00.0")
    assert (first.pci_device_id, first.board_id) == ("233010DE", "0x1b00")
    assert (first.vbios_version, first.inforom_image, first.gsp_firmware_version) == (
        "96.00.99.00.01",
        "G520.0200.00.05",
        "580.105.08",
    )
    assert (first.memory_total_mib, first.memory_reserved_mib, first.memory_used_mib) == (81559, 480, 0)
    assert (first.power_draw_watts, first.power_limit_watts, first.power_limit_min_watts) == (71.25, 700.0, 200.0)
    assert (first.temperature_gpu_celsius, first.temperature_memory_celsius) == (31, 38)
    assert (first.remap_banks_max, first.remapped_rows_pending) == (2560, False)
    assert (first.event_gpu_idle, first.event_hw_slowdown, first.counter_sw_power_cap_us) == (True, False, 7015)
    assert (first.recovery_action, first.fabric_state, first.lost) == (RecoveryAction.NONE, "Completed", None)
    assert [link.state.value for link in seen.nvlinks[0].links] == ["up"] * 18
    assert seen.nvlinks[0].links[0].counters == {"replay": 0, "recovery": 0, "crc": 0}


def test_an_old_driver_without_new_functions_still_tells_fifty_attributes(node: FakeNode) -> None:
    state = {**healthy_h100(), "driver": "450.248.02", "nvml": "11.450.248.02", "cuda": "11000"}
    seen = read(node, state, old=True)
    gpu = gpus(seen)[0]
    assert len(known(gpu)) > 60
    assert (gpu.driver_version, gpu.memory_total_mib, gpu.event_gpu_idle) == ("450.248.02", 81559, True)
    assert gpu.remapped_rows_pending is gpu.recovery_action is gpu.mig_mode_current is gpu.fabric_state is None
    assert gpu.unreadable == ()


def test_a_lost_gpu_leaves_the_other_seven_readable(node: FakeNode) -> None:
    seen = read(node, {**healthy_h100(), "gpu3.*": "!15"})
    assert [gpu.lost for gpu in gpus(seen)] == [None] * 3 + [True] + [None] * 4
    assert gpus(seen)[3].serial is None
    assert len(known(gpus(seen)[4])) > 110


def test_a_gpu_whose_handle_is_refused_is_lost_too(node: FakeNode) -> None:
    seen = read(node, {**healthy_h100(), "gpu3.HandleByIndex": "!15"})
    assert (gpus(seen)[3].lost, gpus(seen)[3].index, len(gpus(seen))) == (True, 3, 8)
    assert seen.unknown == {"gpus.3": "GPU is lost"}


def test_a_gpu_that_needs_a_reset_says_so(node: FakeNode) -> None:
    seen = read(node, set_gpu(healthy_h100(), 2, ClockInfo__1="!16", Field__230__0="1"))
    gpu = gpus(seen)[2]
    assert (gpu.reset_required, gpu.recovery_action, gpu.clock_sm_mhz) == (True, RecoveryAction.GPU_RESET, None)


def test_what_the_login_may_not_read_is_unknown(node: FakeNode) -> None:
    seen = read(node, set_gpu(healthy_h100(), 0, ComputeProcess="!4", Serial="!4"))
    gpu = gpus(seen)[0]
    assert (gpu.processes, gpu.serial, gpu.uuid is None) == (None, None, False)


def test_a_corrupted_inforom_is_no_version(node: FakeNode) -> None:
    gpu = gpus(read(node, set_gpu(healthy_h100(), 0, InforomImageVersion="!14")))[0]
    assert (gpu.inforom_image, gpu.unreadable) == (None, ("inforom_image",))


def test_a_name_that_is_no_text_harms_nothing_else(node: FakeNode) -> None:
    library = fake_library(node.root, healthy_h100(1))
    state = library.with_name(f"{library.name}.state")
    state.write_bytes(state.read_bytes() + b"gpu0.Serial 16\xff\xfe\n")
    state.write_bytes(state.read_bytes().replace(b"gpu0.Serial 1650123456780\n", b""))
    gpu = gpus(node.reading("--sections=gpus", nvml=library))[0]
    assert (gpu.serial, gpu.unreadable, gpu.product_name) == (None, ("serial",), "NVIDIA H100 80GB HBM3")


def test_mig_devices_are_read_with_their_instances(node: FakeNode) -> None:
    state = {
        **healthy_h100(1),
        "gpu0.MigMode": "1 1",
        "gpu0.MaxMigDeviceCount": "7",
        "gpu0.MigDevices": "2",
        "gpu0.ComputeProcess": f"4711 {1 << 30} 1 0",
        "mig.Name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "mig.Multiprocessors": "60",
        "mig.MemoryInfo": f"{40320 << 20} 0 0",
        **{f"gpu0.mig{n}.UUID": f"MIG-{n}" for n in range(2)},
        **{f"gpu0.mig{n}.GpuInstanceId": str(n + 1) for n in range(2)},
        "mig.ComputeInstanceId": "0",
    }
    gpu = gpus(read(node, state))[0]
    assert (gpu.mig_mode_current, gpu.mig_mode_pending) == (True, True)
    assert gpu.mig_instances is not None
    assert [(m.uuid, m.profile, m.gpu_instance_id, m.memory_total_mib) for m in gpu.mig_instances] == [
        ("MIG-0", "3g.40gb", 1, 40320),
        ("MIG-1", "3g.40gb", 2, 40320),
    ]
    assert gpu.processes is not None
    assert (gpu.processes[0].pid, gpu.processes[0].used_memory_mib, gpu.processes[0].gpu_instance_id) == (4711, 1024, 1)


def test_gb200_has_pci_domains_margins_and_its_place_in_the_tray(node: FakeNode) -> None:
    seen = read(node, gb200())
    first, second = gpus(seen)
    assert (first.pci_address, second.pci_address) == ("0008:01:00.0", "0019:01:00.0")
    assert (first.temperature_margin_celsius, first.temperature_slowdown_margin_celsius) == (54, -2)
    assert first.temperature_shutdown_celsius is first.temperature_slowdown_celsius is None
    assert (first.addressing_mode, first.c2c_mode, first.architecture) == ("ATS", True, "Blackwell")
    assert (first.chassis_serial, first.slot_number, first.tray_index, first.peer_type) == (
        "1820000000001",
        10,
        5,
        "Switch Connected",
    )
    assert (first.fabric_clique_id, first.fabric_cluster_uuid) == (2, "a2a2a2a2-a2a2-a2a2-a2a2-a2a2a2a2a2a2")
    assert (first.fabric_bandwidth, first.fabric_route_unhealthy) == ("Full", False)


@pytest.mark.parametrize(
    ("mask", "bandwidth", "recovering"), [(0b01, "Degraded", None), (0b0110, "Full", True), (0b1010, "Full", False)]
)
def test_fabric_health_is_read_bit_by_bit(node: FakeNode, mask: int, bandwidth: str, recovering: bool | None) -> None:
    gpu = gpus(read(node, {**healthy_h100(1), "gpu.GpuFabricInfo": f"3 0 1 {mask} 2 1"}))[0]
    assert (gpu.fabric_bandwidth, gpu.fabric_route_recovery) == (bandwidth, recovering)
    assert gpu.fabric_health_summary == "Unhealthy"


def test_a_fabric_that_has_not_registered_is_no_success(node: FakeNode) -> None:
    gpu = gpus(read(node, {**healthy_h100(1), "gpu.GpuFabricInfo": "2 999 0 0 0 0"}))[0]
    assert (gpu.fabric_state, gpu.fabric_cluster_uuid) == ("In Progress", None)
    assert gpu.fabric_status != "Success"


def test_an_nvlink_that_is_down_is_seen(node: FakeNode) -> None:
    state = {key: value for key, value in healthy_h100(1).items() if key != "gpu.NvLinkState.4"}
    states = read(node, {**state, "gpu.NvLinkState.4": "0", "gpu.NvLinkState.5": "!999"}).nvlinks[0].links
    assert [link.state.value for link in states[3:7]] == ["up", "down", "unknown", "up"]


@pytest.mark.parametrize("call", ["ClockInfo.1", "HandleByIndex", "FieldValues", "NvLinkState.9"])
def test_a_call_that_never_returns_costs_one_gpu_and_bounded_time(node: FakeNode, call: str) -> None:
    started = time.monotonic()
    seen = read(node, {**healthy_h100(), f"gpu3.{call}": "hang"}, "--deadline=7")
    assert time.monotonic() - started < 9
    assert set(seen.unknown) == {"gpus.3"}
    assert "no answer within 3 s, in " in seen.unknown["gpus.3"]
    assert [gpu.index for gpu in gpus(seen)] == list(range(8))
    assert all(len(known(gpu)) > 110 for gpu in gpus(seen) if gpu.index != 3)


def test_a_second_hang_leaves_the_rest_unknown_with_the_reason(node: FakeNode) -> None:
    seen = read(node, {**healthy_h100(4), "gpu1.ClockInfo.1": "hang", "gpu2.UUID": "hang"}, "--deadline=7")
    assert set(seen.unknown) == {"gpus.1", "gpus.2", "gpus.3"}
    assert gpus(seen)[0].uuid is not None


def test_a_library_that_hangs_at_once_is_not_waited_for(node: FakeNode) -> None:
    started = time.monotonic()
    seen = read(node, {"init": "hang"}, "--deadline=5")
    assert time.monotonic() - started < 7
    assert (seen.gpus, seen.unknown["gpus.source"]) == (None, "no answer within 3 s, in nvmlInit")


def test_a_library_that_crashes_takes_one_gpu_with_it(node: FakeNode) -> None:
    seen = read(node, {**healthy_h100(), "gpu3.ClockInfo.1": "crash"})
    assert seen.unknown == {"gpus.3": "ended by signal 6, in clocks"}
    assert len(gpus(seen)) == 8


def test_a_driver_of_another_version_than_the_library_is_asked_by_nvidia_smi(node: FakeNode) -> None:
    node.command("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    seen = read(node, {"init": "!18"})
    assert (seen.nvml_error, seen.gpu_source, seen.gpus) == (18, "nvidia-smi", None)
    assert seen.smi is not None
    assert seen.smi.errors


def test_a_node_whose_driver_is_not_loaded_says_so(node: FakeNode) -> None:
    seen = read(node, {"init": "!9"})
    assert (seen.nvml_error, seen.gpus) == (9, None)
    assert seen.unknown["gpus.source"] == "nvidia-smi is not installed"


def test_no_gpus_at_all_is_zero_and_not_unknown(node: FakeNode) -> None:
    seen = read(node, healthy_h100(0))
    assert (seen.gpus, seen.gpu_count) == ((), 0)
