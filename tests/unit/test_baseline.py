"""A baseline that is wrong says where, and what would be right."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from unit.drift_facts import BASELINE, SPEC, baseline, fleet

from fleet import baseline as module
from fleet.baseline import SAME_AS_DRIVER, BaselineSpec, PoolBaseline, disagreements, matches_version, parse_baseline
from fleet.baseline_names import FACTS, FAMILIES
from fleet.config import parse_fleet
from fleet.errors import ConfigurationError

DOCS = Path(__file__).resolve().parents[2] / "docs"
ACCEPT = "    accept:\n      - {nodes: gpu-0001, fact: ecc_mode, until: 2026-12-24, why: on trial}\n"


def faults(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_baseline(text, "site/baseline.yaml", fleet())
    return str(caught.value)


def train(text: str = BASELINE) -> PoolBaseline:
    return baseline(text).pools["train"]


def test_a_right_file_is_read_whole() -> None:
    pool = train(BASELINE + ACCEPT)
    assert (pool.driver, pool.gpu.ecc, pool.gpu.mig, pool.gpu_count("HGX-H100-8")) == ("580.105.08", True, False, 2)
    assert pool.accept[0].until == date(2026, 12, 24)
    assert pool.firmware["vbios"].match == ("HGX_FW_GPU_SXM_*",)


def test_the_fabric_manager_follows_the_driver_unless_another_is_wanted() -> None:
    assert train().fabric_manager_wanted == SAME_AS_DRIVER
    assert train(BASELINE + "    fabric_manager: none\n").fabric_manager_wanted is None
    assert train(BASELINE + "    fabric_manager: 580.95.05\n").fabric_manager_wanted == "580.95.05"
    assert train(BASELINE.replace("    driver: 580.105.08\n", "")).fabric_manager_wanted is None


def test_a_models_settings_replace_the_pools_key_by_key() -> None:
    pool = train(BASELINE.replace("{gpu_count: 2}", "{gpu: {power_limit_watts: 400, mig: enabled}}"))
    own = pool.gpu_for("HGX-H100-8")
    assert (own.power_limit_watts, own.mig, own.ecc) == (400, True, True)
    assert pool.gpu_for("HGX-A100-8") == pool.gpu


def test_every_fault_is_reported_at_once_with_its_line_and_the_nearest_right_name() -> None:
    text = BASELINE.replace("driver: 580", "drivr: 580").replace("train:", "trian:").replace("ecc: on", "ecc: maybe")
    said = faults(text + "  dev:\n    models: {HGX-H10-8: {gpu_count: 8}}\n    services: {slurmd: running}\n")
    assert said.startswith("site/baseline.yaml:3: ")
    for line, what in (
        (3, "pools.trian: the fleet file has no pool 'trian'; did you mean 'train'?"),
        (4, "pools.trian.drivr: unknown key; did you mean 'driver'?"),
        (12, "pools.trian.gpu.ecc"),
        (17, "pools.dev.models.HGX-H10-8: no node of this pool is a 'HGX-H10-8'; did you mean 'HGX-H100-8'?"),
        (18, "'active' or 'inactive'"),
    ):
        assert any(f"baseline.yaml:{line}: " in row and what in row for row in said.splitlines()), (line, what, said)


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("gpu-0001", "gpu-0003", "this pool has no node 'gpu-0003'; did you mean 'gpu-000"),
        ("gpu-0001", "'gpu-[0003-0009]'", "and 4 more that this pool does not have"),
        ("gpu-0001", "'gpu-[0001'", "'[' is not closed"),
        ("gpu-0001", "none", "names no node"),
        ("ecc_mode", "ecc_mod", "no baseline judges 'ecc_mod'; did you mean 'ecc_mode'?"),
        ("2026-12-24", "soon", "until"),
        ("why: on trial", "why: x", "why"),
        (", why: on trial", "", "Field required"),
    ],
)
def test_an_exception_that_can_never_apply_is_a_fault(right: str, wrong: str, what: str) -> None:
    said = faults(BASELINE + ACCEPT.replace(right, wrong))
    assert what in said
    assert "baseline.yaml:17: pools.train.accept[0]" in said


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("driver: 580.105.08", "driver: 580", "write it in quotes"),
        ("driver: 580.105.08", "driver: '580'", "a full version such as 580.105.08"),
        ("driver: 580.105.08", "driver: 580.10", "write it in quotes"),
        ("container_toolkit: 1.18.1", "container_toolkit: 2024-09-01", "write it in quotes"),
        ("version: 96.00.A5.00.03", "version: N/A", "stands for no version"),
        ("power_limit_watts: 700", "power_limit_watts: .inf", "power_limit_watts"),
        ("power_limit_watts: 700", "power_limit_watts: -1", "power_limit_watts"),
        ("compute_mode: default", "compute_mode: shared", "compute_mode"),
        ("[HGX_FW_GPU_SXM_*]", "[]", "pools.train.firmware.vbios.match"),
        ("gpu_count: 2", "gpu_count: many", "gpu_count"),
        ("version: 1\n", "version: 2\n", "version"),
        ("    kernel:", "    driver: 580.65.06\n    kernel:", "pools.train.driver: given 2 times"),
    ],
)
def test_a_value_that_nothing_can_have_is_a_fault(right: str, wrong: str, what: str) -> None:
    assert what in faults(BASELINE.replace(right, wrong))


def test_two_versions_for_one_component_are_a_fault_unless_they_are_for_other_models() -> None:
    second = "      gpu1: {match: [HGX_FW_GPU_SXM_1], version: 96.00.89.00.01%s}\n    bios:"
    said = faults(BASELINE.replace("    bios:", second % ""))
    assert "pools.train.firmware.gpu1.match: 'HGX_FW_GPU_SXM_1' is also matched by vbios" in said
    mixed = parse_fleet(
        "\n".join(
            [
                "version: 1\nfleet: lab\nbmc: {user: a, password: {env: X}}\nssh: {user: root, key: {file: k}}",
                "gate: {required: 0}\npools: {train: {}}\nracks: {r01: {}}\nnodes:",
                '  - {name: a, rack: r01, pool: train, model: H100, bmc: "https://10.0.0.1", ssh: 10.1.0.1}',
                '  - {name: b, rack: r01, pool: train, model: A100, bmc: "https://10.0.0.2", ssh: 10.1.0.2}',
            ]
        ),
        "fleet.yaml",
    )
    apart = """\
version: 1
pools:
  train:
    firmware:
      h100: {match: [GPU_*], version: 96.00.A5.00.03, models: [H100]}
      a100: {match: [GPU_*], version: 92.00.45.00.03, models: [A100]}
"""
    assert len(parse_baseline(apart, "baseline.yaml", mixed).pools["train"].firmware) == 2


@pytest.mark.parametrize("text", ["", "[]", "just words", "version: 1\npools: {}\n", "version: 1\npools: [train]\n"])
def test_a_file_without_pools_is_refused(text: str) -> None:
    assert "baseline.yaml:" in faults(text)


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200), st.integers(0, len(BASELINE)))
def test_any_text_is_a_baseline_or_one_clear_error(junk: str, at: int) -> None:
    for text in (junk, BASELINE[:at] + junk, BASELINE[:at] + junk + BASELINE[at:]):
        assert isinstance(_read(text), BaselineSpec) or "baseline.yaml:" in str(_read(text))


def _read(text: str) -> BaselineSpec | ConfigurationError:
    try:
        return parse_baseline(text, "baseline.yaml", fleet())
    except ConfigurationError as error:
        return error


@pytest.mark.parametrize(
    ("wanted", "found", "answer"),
    [
        ("580.65.06", "580.65.6", True),
        ("580.105.08", "580.105.08-0ubuntu1", True),
        ("580.105.08", "580.95.05", False),
        ("580.*", "580.95.05", True),
        ("580.*", "590.44.01", False),
        ("96.00.A5.00.03", "96.00.a5.00.03", True),
        ("580.*", "N/A", None),
        ("580.105.08", "N/A", None),
    ],
)
def test_versions_are_compared_as_versions(wanted: str, found: str, answer: bool | None) -> None:
    assert matches_version(wanted, found) is answer


def test_a_rollout_that_left_other_firmware_than_the_baseline_wants_is_named() -> None:
    pool = train()
    assert disagreements("train", pool, {"vbios": "96.00.a5.00.03", "nvswitch": "1.0"}) == ()
    found = disagreements("train", pool, {"vbios": "96.00.C2.00.01"})
    assert [(f.subject, f.code) for f in found] == [("pool train firmware vbios", "baseline.disagrees")]
    assert "96.00.A5.00.03" in found[0].evidence
    assert "96.00.C2.00.01" in found[0].evidence


def _models() -> list[type[BaseModel]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, BaseModel)]
    return [model for model in found if model.__module__ == module.__name__ and model.model_fields]


@pytest.mark.parametrize("key", sorted({key for model in _models() for key in model.model_fields}))
def test_every_key_of_a_baseline_is_explained(key: str) -> None:
    cells = [line.split(" | ")[0] for line in (DOCS / "baseline.md").read_text().splitlines() if line.startswith("| ")]
    assert any(f"`{key}`" in cell for cell in cells)


@pytest.mark.parametrize("name", [*FACTS, *FAMILIES])
def test_every_fact_that_a_baseline_judges_is_explained(name: str) -> None:
    assert f"`{name}" in (DOCS / "baseline.md").read_text()


def test_the_example_of_the_documentation_is_right() -> None:
    example = (DOCS / "baseline.md").read_text().split("```yaml\n")[1].split("```")[0]
    site = parse_fleet(SPEC.replace("pool: dev", "pool: train"), "fleet.yaml")
    assert parse_baseline(example, "docs/baseline.md", site).pools["train"].accept
