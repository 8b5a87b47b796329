"""A flow has a deployment, a page for operators and a scenario that shows it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from deployments.manifest import read_manifest
from simulator.scenario import read_scenario

ROOT = Path(__file__).resolve().parents[2]


def _has_flow(path: Path, name: str) -> bool:
    """Is there a function `name` decorated with @flow?"""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return any(ast.unparse(decorator).split("(")[0] == "flow" for decorator in node.decorator_list)
    return False


FILES = sorted(path for path in (ROOT / "flows").glob("*.py") if path.stem != "__init__")
FLOWS = [path.stem for path in FILES if _has_flow(path, path.stem)]


def test_there_are_flows() -> None:
    assert "firmware_rollout" in FLOWS


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in FILES if p.stem not in FLOWS])
def test_a_file_without_a_flow_of_its_name_is_used_by_one(path: Path) -> None:
    users = [other.stem for other in FILES if f"flows.{path.stem}" in other.read_text() and other != path]
    assert users, f"flows/{path.name}: file and flow have one name, or other flows import it"


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_has_exactly_one_deployment(flow: str) -> None:
    names = [entry.flow for entry in read_manifest(ROOT / "prefect.yaml").deployments]
    assert names.count(flow) == 1, f"add a stanza for {flow} to prefect.yaml"


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_has_a_page_that_begins_with_its_name(flow: str) -> None:
    page = ROOT / "docs" / "flows" / f"{flow}.md"
    assert page.is_file(), f"write {page.relative_to(ROOT)}: what it does, how to start it, when it stops"
    assert page.read_text().startswith(f"# {flow.replace('_', ' ').capitalize()}\n")


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_has_a_scenario(flow: str) -> None:
    assert read_scenario(flow).fleet.nodes > 0


def test_no_page_and_no_scenario_is_left_of_a_flow_that_is_gone() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "flows").glob("*.md")}
    scenarios = {path.stem for path in (ROOT / "simulator" / "scenarios").glob("*.yaml")}
    assert pages <= set(FLOWS)
    assert scenarios <= set(FLOWS)
