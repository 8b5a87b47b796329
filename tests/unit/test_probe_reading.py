"""The probe's document becomes a typed reading, and the reading becomes facts; what is not known stays so."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import ConfigurationError
from fleet.gpu import RecoveryAction
from fleet.node_reading import NodeReading, read_node

GPU = {
    "index": 0,
    "known": {
        "uuid": "GPU-1",
        "serial": "1650123456780",
        "pci_address": "0008:01:00.0",
        "product_name": "NVIDIA GB200",
        "ecc_mode_current": True,
        "mig_mode_current": False,
        "ecc_aggregate_uncorrectable": 0,
        "power_limit_requested_watts": 1200.0,
        "recovery_action": "gpu_reset",
        "processes": [{"pid": 4711, "kind": "C", "used_memory_mib": 1024, "gpu_instance_id": None}],
        "nvlinks": [
            {"link": 0, "active": True, "remote": "00000000:07:00.0", "speed_mbps": 50000, "counters": {"replay": 2}},
            {"link": 1, "active": False},
            {"link": 2, "active": None},
        ],
    },
    "unknown": {
        "NVML 3: Not Supported": ["fan_speed_percent", "temperature_max_celsius"],
        "NVML 999: Unknown Error": ["vbios_version"],
        "NVML 14: Corrupted infoROM": ["inforom_image"],
    },
}
GPUS = {"nvml": None, "source": "nvml", "system": {"driver_version": "580.105.08"}, "count": 1, "devices": [GPU]}


def document(**sections: object) -> str:
    return json.dumps({"version": 1, "at": 1796040000.5, "sections": sections, "probe": {"wall_seconds": 0.2}})


def reading(**sections: object) -> NodeReading:
    return read_node(document(**sections))


def test_a_gpu_of_another_pci_domain_is_read_with_what_it_does_not_tell() -> None:
    seen = reading(gpus=GPUS)
    assert seen.gpus is not None
    (gpu,) = seen.gpus
    assert (gpu.pci_address, gpu.driver_version, gpu.index) == ("0008:01:00.0", "580.105.08", 0)
    assert (gpu.ecc_mode_current, gpu.mig_mode_current, gpu.ecc_aggregate_uncorrectable) == (True, False, 0)
    assert gpu.recovery_action is RecoveryAction.GPU_RESET
    assert gpu.processes is not None
    assert (gpu.processes[0].pid, gpu.processes[0].used_memory_mib) == (4711, 1024)
    assert (gpu.fan_speed_percent, gpu.vbios_version, gpu.inforom_image, gpu.lost) == (None, None, None, None)
    assert set(gpu.unreadable) == {"vbios_version", "inforom_image"}
    assert seen.at == datetime(2026, 11, 30, 12, 0, 0, 500000, tzinfo=UTC)


def test_nvlinks_are_up_down_or_unknown() -> None:
    (part,) = reading(gpus=GPUS).nvlinks
    assert [link.state.value for link in part.links] == ["up", "down", "unknown"]
    assert (part.name, part.links[0].speed_gb_s, part.links[0].counters) == ("gpu 0008:01:00.0", 50.0, {"replay": 2.0})


@pytest.mark.parametrize(
    "device",
    [
        {"index": 3, "error": {"code": 15, "words": "GPU is lost"}},
        {"index": 3, "known": {}, "unknown": {"NVML 15: GPU is lost": ["uuid", "serial"]}},
    ],
)
def test_a_lost_gpu_is_lost_and_its_values_are_unknown(device: object) -> None:
    seen = reading(gpus={**GPUS, "devices": [device]})
    assert seen.gpus is not None
    assert (seen.gpus[0].lost, seen.gpus[0].serial, seen.gpus[0].index) == (True, None, 3)


def test_a_gpu_at_which_the_driver_hung_is_named_with_where() -> None:
    device = {"index": 3, "known": {"uuid": "GPU-3"}, "unknown": {}, "unfinished": "no answer within 8 s, in clocks"}
    assert reading(gpus={**GPUS, "devices": [device]}).unknown["gpus.3"] == "no answer within 8 s, in clocks"


def test_what_was_not_asked_for_is_unknown_and_not_absent() -> None:
    seen = reading()
    assert seen.gpus is seen.packages is seen.services is seen.pci is seen.kernel_log is seen.gpu_count is None
    assert seen.driver.modules is seen.driver.dkms is seen.driver.secure_boot is seen.driver.tpm is None
    assert seen.unattended_upgrades is seen.egress is None
    assert seen.unknown == {}


def test_reasons_are_found_by_their_path() -> None:
    seen = reading(
        driver={"loaded": {"unknown": "the nvidia module is not loaded"}, "tpm": False, "unfinished": "no answer"},
        packages={"unknown": "no answer within 19 s"},
    )
    assert seen.unknown == {
        "driver.loaded": "the nvidia module is not loaded",
        "driver": "no answer",
        "packages": "no answer within 19 s",
    }
    assert (seen.driver.tpm, seen.driver.loaded, seen.unattended_upgrades) == (False, None, None)


def test_nvidia_smis_answer_is_unpacked_and_a_damaged_one_is_unknown() -> None:
    xml = (
        '<?xml version="1.0" ?><nvidia_smi_log><driver_version>570.1</driver_version><attached_gpus>1</attached_gpus>'
        '<gpu id="00000000:3B:00.0"><serial>77</serial></gpu></nvidia_smi_log>'
    )
    packed = base64.b64encode(gzip.compress(xml.encode())).decode()
    section = {"nvml": {"code": 18, "words": "mismatch"}, "source": "nvidia-smi", "exit_status": 0, "xml": packed}
    seen = reading(gpus=section)
    assert seen.gpus is not None
    assert (seen.gpus[0].serial, seen.gpus[0].pci_address, seen.gpu_count) == ("77", "0000:3b:00.0", 1)
    assert seen.nvml_error == 18
    broken = reading(gpus={**section, "xml": packed[:40]})
    assert (broken.gpus, broken.smi) == (None, None) or broken.smi is not None
    damaged = reading(gpus={**section, "xml": "not base64!"})
    assert damaged.gpus is None
    assert damaged.unknown["gpus.xml"] == "the answer of nvidia-smi arrived damaged"


def test_a_bomb_in_place_of_nvidia_smis_answer_is_cut_off() -> None:
    bomb = base64.b64encode(gzip.compress(b"<" * (32 << 20))).decode()
    seen = reading(gpus={"source": "nvidia-smi", "xml": bomb})
    assert seen.gpus in (None, ())


def test_driver_packages_and_settings_are_typed() -> None:
    seen = reading(
        system={"kernel": "6.8.0-45-generic", "os": {"id": "ubuntu", "version": "24.04", "name": "Ubuntu 24.04.3 LTS"}},
        driver={
            "loaded": {"version": "580.105.08", "open": True},
            "user_space": {"version": "580.105.08", "folders": {"/usr/lib": ["580.105.08"], "/usr/lib64": ["570.1"]}},
            "library_owner": False,
            "installers": {"runfile": True},
            "secure_boot": True,
            "tpm": {"major": 2, "description": None},
            "kernels": [{"version": "6.8.0-49", "nvidia_module": None}, {"version": "6.8.0-45", "nvidia_module": "x"}],
            "dkms": [{"module": "nvidia", "version": "580.105.08", "built_for": ["6.8.0-45"]}],
            "modules": {"nvidia": {}, "nouveau": {}},
        },
        packages={
            "manager": "dpkg",
            "listed": ["*nvidia*", "cuda-drivers*"],
            "packages": [{"name": "nvidia-driver-580", "version": "580.105.08-1", "hold": True}],
            "services": {"nvidia-persistenced": {"state": "active"}, "packagekit": {"state": "not-found"}},
            "updates": {"apt_periodic": {"Unattended-Upgrade": "1"}},
            "egress": {"motd_news": "0", "proxies": {}, "default_route": ["eth0"]},
        },
        pci={"devices": [{"address": "0000:1b:00.0", "vendor": "0x10de", "class": "0x030200"}, {"vendor": "0x15b3"}]},
    )
    driver = seen.driver
    assert (driver.loaded, driver.open_module, driver.origin) == ("580.105.08", True, "runfile")
    assert (driver.library_versions, driver.tpm, driver.secure_boot) == (("570.1", "580.105.08"), True, True)
    assert (driver.kernels_without_module, driver.dkms) == (("6.8.0-49",), {"nvidia/580.105.08": ("6.8.0-45",)})
    assert driver.modules == {"nvidia", "nouveau"}
    assert seen.packages is not None
    assert (seen.packages[0].name, seen.packages[0].hold) == ("nvidia-driver-580", True)
    assert seen.services == {"nvidia-persistenced": "active", "packagekit": "not-found"}
    assert (seen.os_release, seen.unattended_upgrades, seen.gpus_on_bus) == ("Ubuntu 24.04.3 LTS", True, 1)
    assert seen.egress == {"motd_news": "0", "proxy": "off", "default_route": "eth0"}
    assert seen.packages_listed == ("*nvidia*", "cuda-drivers*")


@pytest.mark.parametrize(
    ("services", "answer"),
    [({"dnf-automatic.timer": {"state": "active"}}, True), ({"dnf-automatic.timer": {"state": "not-found"}}, False)],
)
def test_updates_by_dnfs_timer_are_seen(services: object, answer: bool) -> None:
    assert reading(packages={"manager": "rpm", "services": services}).unattended_upgrades is answer
    assert reading(packages={"manager": "rpm", "services": {"unknown": "no systemd"}}).unattended_upgrades is None


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.5, [1]])
def test_a_document_of_another_version_is_refused(version: object) -> None:
    with pytest.raises(ConfigurationError, match="this gpufleet reads 1"):
        read_node(json.dumps({"version": version, "at": 1.0, "sections": {}}))


@pytest.mark.parametrize("text", ["", "not json", "[]", "{}", "1", "null", '{"version":1}', '{"version":1,"at":1e300}'])
def test_a_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_node(text)


def test_nothing_that_a_terminal_would_obey_comes_through() -> None:
    assert reading(system={"hostname": "gpu\x1b[31m1\u202e"}).hostname == "gpu\ufffd[31m1\ufffd"


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=6,
)
KEYS = ("gpus", "driver", "packages", "system", "pci", "network", "kernel_log", "memory")
INNER = st.sampled_from(
    [
        *("source", "devices", "known", "unknown", "index", "error", "count", "system", "nvml", "xml", "loaded"),
        *("user_space", "folders", "modules", "kernels", "tpm", "services", "packages", "egress", "updates", "lines"),
    ]
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), ANY_JSON | st.dictionaries(INNER, ANY_JSON, max_size=5), max_size=5))
def test_any_sections_give_a_reading(sections: dict[str, object]) -> None:
    assert reading(**sections).at.year == 2026


@settings(deadline=None)
@given(st.recursive(st.just("nvml"), lambda inner: st.dictionaries(INNER, inner, max_size=3), max_leaves=8))
def test_any_shape_of_the_gpus_gives_a_reading(device: object) -> None:
    seen = reading(gpus={**GPUS, "devices": [device, GPU]})
    assert seen.gpus is not None
    assert seen.gpus[-1].serial == "1650123456780"


def _without(text: str, end: int) -> Callable[[], NodeReading]:
    return lambda: read_node(text[:end])


@settings(deadline=None)
@given(st.integers(0, len(document(gpus=GPUS)) - 1))
def test_a_document_that_was_cut_off_is_refused(end: int) -> None:
    with pytest.raises(ConfigurationError):
        _without(document(gpus=GPUS), end)()


def test_a_document_that_is_nested_without_end_is_refused() -> None:
    text = '{"version":1,"at":1,"sections":{"x":' + "[" * 700 + '"\\u0001"' + "]" * 700 + "}}"
    with pytest.raises(ConfigurationError):
        read_node(text)


def test_a_version_without_end_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_node(json.dumps({"version": "9" * 1_000_000, "at": 1.0}))
    assert len(str(caught.value)) < 200
