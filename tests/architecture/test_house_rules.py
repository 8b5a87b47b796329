"""The rules of the house that a program can check."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parents[2]

PRODUCT = (
    "flows",
    "tasks",
    "blocks",
    "fleet",
    "ledger",
    "adapters",
    "simulator",
    "cli",
    "deployments",
    "node",
)
MAX_LINES = 350
# Reading the wall clock, waiting, and files: a decision gets these as parameters.
FORBIDDEN_IN_FLEET = {
    "datetime.now",
    "datetime.utcnow",
    "date.today",
    "time.time",
    "time.sleep",
    "time.monotonic",
    "open",
}


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in paths]


def _calls(tree: ast.AST) -> set[str]:
    """Called names with at most one part before the last: `datetime.now`, `open`."""
    found: set[str] = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            parts = ast.unparse(call.func).split(".")
            found.add(".".join(parts[-2:]))
    return found


def _broad_handlers(tree: ast.AST) -> list[int]:
    """Lines of `except:`, and of `except Exception` or `BaseException` that swallow what they catch."""
    lines: list[int] = []
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler):
            continue
        caught = ast.unparse(handler.type) if handler.type is not None else ""
        broad = not caught or any(
            name in caught.replace("(", " ").replace(")", " ").replace(",", " ").split()
            for name in ("Exception", "BaseException")
        )
        reraises = any(isinstance(part, ast.Raise) and part.exc is None for part in ast.walk(handler))
        if broad and not reraises:
            lines.append(handler.lineno)
    return lines


def test_every_import_contract_holds(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize("path", _named(_sources("fleet")))
def test_a_decision_reads_no_clock_and_opens_no_file(path: Path) -> None:
    assert not _calls(ast.parse(path.read_text())) & FORBIDDEN_IN_FLEET


@pytest.mark.parametrize("path", _named(_sources(*PRODUCT)))
def test_no_handler_swallows_every_exception(path: Path) -> None:
    assert _broad_handlers(ast.parse(path.read_text())) == []


def test_no_file_is_too_long_to_read() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in _sources(*PRODUCT, "tests", "benchmarks")}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > MAX_LINES} == {}


@pytest.mark.parametrize("source", ["try:\n  f()\nexcept:\n  pass", "try:\n  f()\nexcept (OSError, Exception):\n  g()"])
def test_the_rule_sees_a_swallowing_handler(source: str) -> None:
    assert _broad_handlers(ast.parse(source)) == [3]


def test_the_rule_allows_a_handler_that_raises_again() -> None:
    assert _broad_handlers(ast.parse("try:\n  f()\nexcept BaseException:\n  g()\n  raise")) == []


def test_the_rule_sees_a_clock() -> None:
    assert "datetime.now" in _calls(ast.parse("import datetime\nx = datetime.datetime.now(UTC)"))
