"""The section `drivers` of a faults file."""

from __future__ import annotations

import pytest

from fleet.errors import ConfigurationError
from simulator.faults import parse_faults
from simulator.host.faults import DriverFaults, parse_driver_faults

NODES = [f"gpu-{n:04d}" for n in range(1, 41)]
TEXT = """
faults:
  - {nodes: gpu-0001, kind: bmc_503}
drivers:
  "580.65.06": {all_reduce: -0.05, xid_per_hour: 0.5, does_not_load: "gpu-[0001-0002]", settings_lost: [ecc]}
  stray_holder: [gpu-0003, "gpu-[0005-0006]"]
  hold_kernel: 0.25
  no_boot: gpu-0009
  settings: {power_limit_watts: 650}
"""


def parse(text: str, seed: int = 7) -> DriverFaults:
    return parse_driver_faults(text, "faults.yaml", NODES, seed)


def test_releases_and_nodes_are_read_beside_the_faults_of_bmcs() -> None:
    found = parse(TEXT)
    flaw = found.flaw("580.65.06")
    assert (flaw.effects, flaw.xid_per_hour, flaw.settings_lost) == ({"all_reduce": -0.05}, 0.5, ("ecc",))
    assert found.stray_holder == {"gpu-0003", "gpu-0005", "gpu-0006"}
    assert len(found.hold_kernel) == 10
    assert found.settings.power_limit_watts == 650
    assert found.refuses_to_load("gpu-0001", "580.65.06")
    assert not found.refuses_to_load("gpu-0001", "580.95.05")
    assert found.hangs_in_boot("gpu-0009", "570.172.08")
    assert not found.hangs_in_boot("gpu-0009", "550.54.15")
    assert list(parse_faults(TEXT, "faults.yaml", NODES, 7)) == ["gpu-0001"]


def test_a_share_is_drawn_by_the_seed() -> None:
    assert parse(TEXT).hold_kernel == parse(TEXT).hold_kernel
    assert parse(TEXT).hold_kernel != parse(TEXT, 8).hold_kernel


def test_a_file_without_drivers_has_no_driver_faults() -> None:
    assert parse("faults: []\n") == DriverFaults()
    assert parse_faults("drivers: {}\n", "faults.yaml", NODES, 7) == {}


@pytest.mark.parametrize(
    ("drivers", "says"),
    [
        ('{"580.65.07": {}}', r"no release '580.65.07' \(nearest: 580.65.06\)"),
        ('{"580.65.06": {all_reduse: -0.1}}', r"no key 'all_reduse' \(nearest: all_reduce\)"),
        ('{"580.65.06": {all_reduce: -3}}', "drivers.580.65.06.all_reduce: .*greater than -1"),
        ('{"580.65.06": {settings_lost: [fan]}}', "settings_lost"),
        ("{stray_holders: gpu-0001}", r"no key 'stray_holders' \(nearest: stray_holder\)"),
        ("{stray_holder: gpu-0099}", "no node 'gpu-0099'"),
        ("{stray_holder: 'gpu-[0003-0001]'}", "runs backwards"),
        ("{installed: 500.1}", "installed"),
        ("[1]", "must be a mapping"),
    ],
)
def test_a_wrong_section_is_refused_with_what_is_right(drivers: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse(f"drivers: {drivers}\n")


def test_every_fault_of_a_section_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse('drivers: {"580.65.06": {hbmm: 0.1}, stray_holder: gpu-0099, dnff: 0.1}\n')
    assert str(raised.value).count("faults.yaml: ") >= 2


def test_a_file_with_another_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="`faults`, a list of faults, and `drivers`"):
        parse("driver: {}\n")
