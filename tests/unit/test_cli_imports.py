"""Prefect reads its settings when it is imported: the fleet's server must be known before."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("prefect", "tasks", "flows", "blocks", "cli.approving", "cli.progress", "cli.watch")


def late_imports(function: ast.FunctionDef) -> list[int]:
    """Lines in a function that import something which imports Prefect."""
    return [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HEAVY)
    ]


def opens(function: ast.FunctionDef) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open_fleet"
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "cli").glob("*.py")), ids=lambda path: path.name)
def test_a_command_opens_its_fleet_before_it_imports_prefect(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and opens(node) and late_imports(node):
            assert min(opens(node)) < min(late_imports(node)), f"{path.name}: {node.name}"
