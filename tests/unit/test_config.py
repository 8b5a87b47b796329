"""A fleet file that is wrong says where, and what would be right."""

from __future__ import annotations

import pytest

from fleet.config import parse_fleet
from fleet.errors import ConfigurationError

GOOD = """\
version: 1
fleet: lab
bmc: {user: admin, password: {env: BMC_PASSWORD}}
ssh: {user: root, key: {file: id_ed25519}}
gate: {required: 1, allowed_signers: allowed_signers}
pools:
  train: {capacity_floor: 0.85, rack_limit: 2}
  dev: {production: false, rack_limit: 1}
racks:
  r01: {power_domain: p1}
  r02: {limit: 3}
nodes:
  - {name: gpu-0001, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1}
  - {name: gpu-0002, rack: r02, pool: dev, model: HGX-H100-8, bmc: "https://10.0.0.2/", ssh: "10.1.0.2:2222", unit: 3}
"""


def faults(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_fleet(text, "fleet.yaml")
    return str(caught.value)


def test_a_right_file_gives_the_inventory_with_ports_and_domains() -> None:
    first, second = parse_fleet(GOOD, "fleet.yaml").inventory()
    assert (first.ssh, first.power_domain, first.bmc) == ("10.1.0.1:22", "p1", "https://10.0.0.1")
    assert (second.ssh, second.power_domain, second.bmc) == ("10.1.0.2:2222", None, "https://10.0.0.2")


def test_a_rack_without_a_limit_takes_the_least_of_its_pools() -> None:
    spec = parse_fleet(GOOD, "fleet.yaml")
    assert (spec.rack_limit("r01"), spec.rack_limit("r02")) == (2, 3)


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_right_one() -> None:
    text = faults(GOOD.replace("capacity_floor: 0.85", "capacity_flor: 0.85"))
    assert "fleet.yaml:7:" in text
    assert "'capacity_floor'" in text


def test_a_node_in_a_rack_that_does_not_exist_names_the_nearest_rack() -> None:
    text = faults(GOOD.replace("rack: r02, pool: dev", "rack: r2, pool: dev"))
    assert "fleet.yaml:14: nodes[1].rack: no rack 'r2'; did you mean 'r02'?" in text


def test_every_fault_is_reported_at_once() -> None:
    text = faults(
        GOOD.replace("10.0.0.2/", "10.0.0.1").replace("10.1.0.2:2222", "10.1.0.1").replace("gpu-0002", "gpu-0001")
    )
    assert "already belongs to gpu-0001" in text
    assert {"nodes[1].name", "nodes[1].bmc"} <= {line.split(": ")[1].rstrip(":") for line in text.splitlines()}


def test_two_nodes_in_one_rack_unit_are_a_fault() -> None:
    text = faults(
        GOOD.replace("rack: r01, pool: train, model: HGX-H100-8", "rack: r02, unit: 3, pool: train, model: HGX-H100-8")
    )
    assert "r02 U3 holds gpu-0001 already" in text


def test_a_key_that_is_given_twice_is_a_fault() -> None:
    assert "bmc: given 2 times" in faults(GOOD + "bmc: {user: x, password: {env: Y}}\n")


def test_a_gate_without_signers_is_a_fault_unless_it_needs_nobody() -> None:
    assert "needs allowed_signers" in faults(GOOD.replace(", allowed_signers: allowed_signers", ""))
    free = GOOD.replace("required: 1, allowed_signers: allowed_signers", "required: 0")
    assert parse_fleet(free, "fleet.yaml").gate.required == 0


def test_a_secret_in_the_file_itself_is_refused() -> None:
    assert "bmc.password" in faults(GOOD.replace("password: {env: BMC_PASSWORD}", "password: hunter2"))


def test_credentials_in_a_bmc_url_are_refused() -> None:
    assert "nodes[0].bmc" in faults(GOOD.replace("https://10.0.0.1", "https://admin:x@10.0.0.1"))


def test_a_window_that_cannot_be_read_is_refused_with_an_example() -> None:
    text = faults(GOOD.replace("rack_limit: 2}", "rack_limit: 2, waves: {windows: [Saturday night]}}"))
    assert "Sat 02:00-06:00" in text


def test_text_that_is_not_yaml_names_the_line() -> None:
    assert faults("version: 1\nfleet: [a\nbmc: x\n").startswith("fleet.yaml:3")


@pytest.mark.parametrize("text", ["", "[]", "just words"])
def test_a_file_that_is_no_mapping_says_what_a_fleet_file_is(text: str) -> None:
    assert "fleet.yaml:1" in faults(text)


def test_a_secret_given_by_mistake_is_never_shown() -> None:
    text = faults(GOOD.replace("password: {env: BMC_PASSWORD}", "password: hunter2"))
    assert "hunter2" not in text
    assert "{env: VARIABLE}" in text
    assert "hunter2" not in faults(GOOD.replace("https://10.0.0.1", "https://admin:hunter2@10.0.0.1"))


def test_aliases_are_read_like_what_they_stand_for() -> None:
    aliased = GOOD.replace("pool: train, model: HGX-H100-8", "pool: train, model: &m HGX-H100-8")
    aliased = aliased.replace("pool: dev, model: HGX-H100-8", "pool: dev, model: *m")
    assert parse_fleet(aliased, "fleet.yaml").inventory() == parse_fleet(GOOD, "fleet.yaml").inventory()


def test_aliases_that_grow_without_bound_are_refused_at_once() -> None:
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "repeat more than" in faults("\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *rows]))
    assert "repeat more than" in faults("site: &a [*a]\n")


@pytest.mark.parametrize("text", ["site: 2024-13-45\n", "fleet: \x01\n", "[" * 3000])
def test_what_yaml_itself_stumbles_on_is_one_clear_error(text: str) -> None:
    assert "fleet.yaml:1" in faults(text)


def test_a_wrong_key_hides_no_wrong_name_elsewhere() -> None:
    text = faults(
        GOOD.replace("capacity_floor", "capacity_flor").replace("rack: r02, pool: dev", "rack: r2, pool: dev")
    )
    assert "'capacity_floor'" in text
    assert "did you mean 'r02'?" in text


@pytest.mark.parametrize(
    ("right", "wrong", "place"),
    [
        ("https://10.0.0.1", "https://10.0.0.1:65536", "port 65536 does not exist"),
        ("10.1.0.2:2222", "10.1.0.2:99999", "port 99999 does not exist"),
        ("10.1.0.2:2222", "-oProxyCommand=x", "nodes[1].ssh"),
        ("rack_limit: 2}", "rack_limit: 2, waves: {bake_seconds: .inf}}", "bake_seconds"),
        ("rack_limit: 2}", "rack_limit: 2, waves: {factor: .nan}}", "factor"),
    ],
)
def test_addresses_and_numbers_that_no_machine_can_use_are_faults(right: str, wrong: str, place: str) -> None:
    assert place in faults(GOOD.replace(right, wrong))


def test_a_serial_that_two_nodes_have_is_named_with_its_line() -> None:
    text = faults(GOOD.replace("10.1.0.1}", "10.1.0.1, serial: SN-1}").replace("unit: 3}", "unit: 3, serial: sn-1}"))
    assert "fleet.yaml:14: nodes[1].serial: sn-1 already belongs to gpu-0001" in text


def test_a_serial_that_yaml_takes_for_a_number_wants_quotes() -> None:
    assert "fleet.yaml:13:" in faults(GOOD.replace("10.1.0.1}", "10.1.0.1, serial: 0123}"))
    assert "write it in quotes" in faults(GOOD.replace("10.1.0.1}", "10.1.0.1, serial: 1654923000123}"))
    right = parse_fleet(GOOD.replace("10.1.0.1}", '10.1.0.1, serial: "0123"}'), "fleet.yaml")
    assert [entry.serial for entry in right.nodes] == ["0123", None]


@pytest.mark.parametrize("serial", ['"N/A"', '"To be filled by O.E.M."', '"0000"', '""', '"a\\tb"'])
def test_what_stands_for_no_serial_is_refused(serial: str) -> None:
    assert "nodes[0].serial" in faults(GOOD.replace("10.1.0.1}", f"10.1.0.1, serial: {serial}}}"))
