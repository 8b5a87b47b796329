"""The catalogue is whole: every fact has its source, and facts that belong together agree."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from fleet.catalog_data import BranchKind, GpuModel, load_catalog, read_table
from fleet.drivers import at_least, parse_cuda, parse_driver
from fleet.errors import ConfigurationError
from fleet.gpu_names import identify
from fleet.operator_catalog import (
    ArchitectureEntry,
    BasesEntry,
    BranchEntry,
    GpuEntry,
    OperatorCatalog,
    ToolkitEntry,
    extend,
)

CATALOG = load_catalog()
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text()


def test_every_fact_has_a_source() -> None:
    facts = [*CATALOG.branches.values(), *CATALOG.architectures, *CATALOG.toolkits, *CATALOG.models]
    assert all(fact.origin.source for fact in [*facts, *CATALOG.rules.values()])
    assert all(re.fullmatch(r"20\d\d-\d\d", f.origin.as_of) for f in facts if f.origin.as_of is not None)


def test_a_branch_ends_after_its_release() -> None:
    for branch in CATALOG.branches.values():
        assert branch.released is not None
        assert branch.ends is None or branch.ends > branch.released


def test_only_new_feature_branches_lack_an_end() -> None:
    assert {b.kind for b in CATALOG.branches.values() if b.ends is None} == {BranchKind.NEW_FEATURE}


def test_later_branches_are_made_for_no_older_cuda() -> None:
    majors = [branch.max_cuda_major or 0 for _, branch in sorted(CATALOG.branches.items())]
    assert majors == sorted(majors)


def test_every_toolkit_runs_on_the_driver_that_it_carries() -> None:
    for kit in CATALOG.toolkits:
        assert at_least(kit.packaged_driver.parts, kit.minimum_driver.parts), kit.cuda.text


def test_the_minimum_of_a_major_version_is_that_of_its_toolkits() -> None:
    for kit in CATALOG.toolkits:
        major = CATALOG.minimum_by_major.get(kit.cuda.major)
        if major is not None and kit.cuda.parts[:2] != (11, 0):
            assert kit.minimum_driver.parts == major.parts


def test_every_capability_belongs_to_one_architecture_and_every_model_to_a_capability() -> None:
    capabilities = [capability for row in CATALOG.architectures for capability in row.capabilities]
    assert len(capabilities) == len(set(capabilities))
    assert {model.capability for model in CATALOG.models} <= set(capabilities)


@pytest.mark.parametrize("model", CATALOG.models, ids=lambda model: model.name)
def test_every_model_is_found_by_its_name(model: GpuModel) -> None:
    found = identify(f"NVIDIA {model.name}", CATALOG)
    assert found is not None
    assert (found.gpu_class, found.coherent) == (model.gpu_class, model.coherent)
    assert model.capability in found.rows[0].capabilities


def test_rules_by_generation_name_architectures_of_the_catalogue() -> None:
    names = {row.name for row in CATALOG.architectures}
    assert CATALOG.closed_modules_only | CATALOG.open_modules_only <= names


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a,b\n1,x\n", "t.csv:2: invalid literal"),
        ("a,c\n1,2\n", "t.csv:1: columns are a, b"),
        ("a,b\n1,2\n1\n", "t.csv:3: a row has 2 cells"),
        ("a,b\n1,2,3\n", "t.csv:2: a row has 2 cells"),
        ("", "t.csv:1: columns are a, b"),
    ],
)
def test_a_damaged_table_says_where(text: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(fault)):
        read_table("t.csv", text, ("a", "b"), lambda row: int(row["a"]) + int(row["b"]))


def test_every_rule_is_explained() -> None:
    assert [name for name in CATALOG.rules if f"`{name}`" not in PAGE] == []


def test_the_example_of_an_operators_file_is_right() -> None:
    example = PAGE.split("```yaml\n")[1].split("```")[0]
    assert extend(CATALOG, example, "docs/compatibility.md").branches.keys() > CATALOG.branches.keys()


@pytest.mark.parametrize("model", [OperatorCatalog, BranchEntry, ArchitectureEntry, GpuEntry, ToolkitEntry, BasesEntry])
def test_every_key_of_an_operators_file_is_explained(model: type[BaseModel]) -> None:
    assert [key for key in model.model_fields if f"`{key}`" not in PAGE] == []


def _facts(shared: Path, name: str) -> list[dict[str, str]]:
    with (shared / "facts" / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.corpus
def test_branches_are_those_of_the_facts(shared: Path) -> None:
    rows = _facts(shared, "A_driver_branches.csv")
    assert len(rows) == len(CATALOG.branches)
    for row in rows:
        branch = CATALOG.branches[int(row["branch"][1:])]
        ends = "" if branch.ends is None else f"{branch.ends:%Y-%m}"
        assert row["type"].startswith(branch.kind)
        assert (ends, f"{branch.released:%Y-%m}") == (row["eol_month"], row["release_month"])
        assert branch.max_cuda_major == int(row["max_cuda_major_without_compat"])


@pytest.mark.corpus
def test_toolkits_are_those_of_the_facts(shared: Path) -> None:
    kits = {kit.cuda.text: kit for kit in CATALOG.toolkits}
    rows = _facts(shared, "B_cuda_min_driver.csv")
    assert {row["cuda"] for row in rows} == set(kits)
    for row in rows:
        kit, minimum = kits[row["cuda"]], parse_driver(row["min_driver_minor_version_compat"])
        assert minimum is not None
        assert kit.packaged_driver.text == row["packaged_driver_linux_x86_64"]
        assert kit.minimum_driver.parts[: len(minimum.parts)] == minimum.parts


@pytest.mark.corpus
def test_architectures_are_those_of_the_facts(shared: Path) -> None:
    rows = _facts(shared, "A_arch_support.csv")
    assert len(rows) == len(CATALOG.architectures)
    for row, ours in zip(rows, CATALOG.architectures, strict=True):
        first = parse_cuda(row["first_cuda"].split(" ")[0])
        assert (ours.name, first) == (row["arch"], ours.first_cuda)
        assert ours.capabilities == tuple(re.findall(r"\d+\.\d", row["compute_capability"]))
        assert str(ours.last_driver or "") == row["last_driver_major"]
        assert (ours.last_cuda.text if ours.last_cuda else "ongoing") in row["last_cuda"]
