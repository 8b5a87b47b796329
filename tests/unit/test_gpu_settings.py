"""GPU settings that an install may lose: what counts as lost, and the commands that set it again."""

from __future__ import annotations

import pytest

from fleet.gpu import GpuReading, MigInstance
from fleet.gpu_settings import (
    GpuSettings,
    NodeGpuSettings,
    cannot_be_put_back,
    commands_for,
    lost,
    read_compute_mode,
    settings_of,
    unknown_since,
)

WAS = GpuSettings(
    index=0,
    uuid="GPU-a",
    persistence=True,
    ecc=True,
    ecc_pending=True,
    compute_mode=3,
    power_limit_watts=600.0,
    clocks_mhz=(1410, 2619),
    mig_mode=False,
    mig_pending=False,
    mig=(),
)


def node(*gpus: GpuSettings) -> NodeGpuSettings:
    return NodeGpuSettings(gpus=gpus)


def now(**changes: object) -> NodeGpuSettings:
    return node(WAS.model_copy(update=changes))


def test_nothing_is_lost_where_all_is_as_it_was() -> None:
    assert lost(node(WAS), now()) == ()
    assert commands_for(node(WAS), now()) == ()


@pytest.mark.parametrize(
    ("changes", "setting", "command"),
    [
        ({"persistence": False}, "persistence", "nvidia-smi -i 0 -pm 1"),
        ({"ecc": False, "ecc_pending": False}, "ecc", "nvidia-smi -i 0 -e 1"),
        ({"compute_mode": 0}, "compute_mode", "nvidia-smi -i 0 -c 3"),
        ({"power_limit_watts": 700.0}, "power_limit_watts", "nvidia-smi -i 0 -pl 600"),
        ({"clocks_mhz": (1980, 2619)}, "clocks_mhz", "nvidia-smi -i 0 -ac 2619,1410"),
        ({"mig_mode": True, "mig_pending": True}, "mig_mode", "nvidia-smi -i 0 -mig 0"),
    ],
)
def test_each_setting_is_found_and_has_its_command(changes: dict[str, object], setting: str, command: str) -> None:
    [found] = lost(node(WAS), now(**changes))
    assert found.setting == setting
    assert [" ".join(words) for words in commands_for(node(WAS), now(**changes))] == [command]


def test_a_mode_that_waits_for_a_reset_is_lost_and_not_set_again() -> None:
    [found] = lost(node(WAS), now(ecc=False, ecc_pending=True))
    assert found.waits
    assert commands_for(node(WAS), now(ecc=False, ecc_pending=True)) == ()


def test_what_is_not_known_is_not_lost_and_is_told_apart() -> None:
    blank = GpuSettings(index=0, uuid="GPU-a")
    assert lost(node(WAS), node(blank)) == ()
    assert "gpu 0: power_limit_watts" in unknown_since(node(WAS), node(blank))
    assert lost(node(blank), node(WAS)) == ()
    assert unknown_since(node(blank), node(WAS)) == ()


def test_a_gpu_that_is_not_seen_is_lost_and_no_command_brings_it_back() -> None:
    [found] = lost(node(WAS), node())
    assert (found.setting, found.before) == ("gpu", "GPU-a")
    assert commands_for(node(WAS), node()) == ()


def test_a_gpu_is_known_by_its_uuid_also_in_another_slot() -> None:
    other = WAS.model_copy(update={"index": 5, "persistence": False})
    assert commands_for(node(WAS), node(other)) == (("nvidia-smi", "-i", "5", "-pm", "1"),)


def test_only_the_missing_mig_devices_are_made_and_the_biggest_first() -> None:
    was = WAS.model_copy(update={"mig_mode": True, "mig": ("3g.40gb", "1g.10gb", "1g.10gb")})
    seen = WAS.model_copy(update={"mig_mode": True, "mig": ("1g.10gb",)})
    assert commands_for(node(was), node(seen)) == (("nvidia-smi", "mig", "-i", "0", "-cgi", "3g.40gb,1g.10gb", "-C"),)


def test_mig_devices_beyond_those_that_were_there_are_named_and_not_destroyed() -> None:
    was = WAS.model_copy(update={"mig_mode": True, "mig": ("1g.10gb",)})
    seen = WAS.model_copy(update={"mig_mode": True, "mig": ("1g.10gb", "2g.20gb")})
    assert len(lost(node(was), node(seen))) == 1
    assert commands_for(node(was), node(seen)) == ()


def test_mode_alone_does_not_pass_for_a_layout_that_is_gone() -> None:
    was = WAS.model_copy(update={"mig_mode": True, "mig": ("1g.5gb",) * 7})
    seen = was.model_copy(update={"mig": ()})
    [found] = lost(node(was), node(seen))
    assert (found.setting, found.now) == ("mig", "no MIG devices")


def test_compute_instances_that_share_a_gpu_instance_cannot_be_put_back() -> None:
    was = WAS.model_copy(update={"mig_mode": True, "mig": ("1c.3g.40gb", "1g.10gb+me")})
    assert cannot_be_put_back(node(was)) == ("gpu 0: MIG device 1c.3g.40gb is no whole GPU instance",)


def test_settings_are_read_from_what_the_probe_told() -> None:
    reading = GpuReading(
        index=1,
        uuid="GPU-b",
        persistence_mode=True,
        compute_mode="Exclusive_Process",
        power_limit_watts=650.0,
        power_limit_requested_watts=600.0,
        mig_mode_current=True,
        mig_instances=(MigInstance(profile="1g.10gb"), MigInstance(profile="3g.40gb")),
    )
    [found] = settings_of([reading, GpuReading()]).gpus
    assert (found.power_limit_watts, found.compute_mode, found.mig) == (600.0, 3, ("3g.40gb", "1g.10gb"))
    assert (found.ecc, found.clocks_mhz) == (None, None)
    assert settings_of(None) == NodeGpuSettings()


def test_a_mig_layout_with_a_device_that_is_not_known_is_not_known() -> None:
    reading = GpuReading(index=0, mig_mode_current=True, mig_instances=(MigInstance(),))
    assert settings_of([reading]).gpus[0].mig is None
    assert settings_of([GpuReading(index=0, mig_mode_current=True)]).gpus[0].mig is None


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("Default", 0),
        ("E. Process", 3),
        ("exclusive process", 3),
        ("3", 3),
        ("Prohibited", 2),
        ("9", None),
        (None, None),
    ],
)
def test_compute_modes_are_read_however_they_are_spelled(text: str | None, mode: int | None) -> None:
    assert read_compute_mode(text) == mode


def test_settings_keep_their_values_through_json() -> None:
    kept = NodeGpuSettings.model_validate(node(WAS).model_dump(mode="json"))
    assert kept == node(WAS)
