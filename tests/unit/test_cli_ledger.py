"""How a command ends whose ledger cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner
from unit.cli_site import SPEC

from cli.main import app


def nodes(folder: Path, url: str) -> Result:
    """`gpufleet nodes` with a ledger at this URL."""
    file = folder / "fleet.yaml"
    file.write_text(f"ledger: {url}\n{SPEC}")
    return CliRunner().invoke(app, ["nodes", "--fleet", str(file)])


def said(shown: Result) -> str:
    return " ".join(shown.stderr.split())


def test_a_ledger_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    shown = nodes(tmp_path, "sqlite:///ledger.db")
    assert (shown.exit_code, "no nodes yet" in shown.stdout) == (0, True)


def test_a_damaged_ledger_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("no database at all " * 100)
    shown = nodes(tmp_path, "sqlite:///ledger.db")
    assert (shown.exit_code, "not a database" in said(shown)) == (1, True)


def test_an_emptied_ledger_ends_with_1_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "drift_told.json").write_text("{}")
    for _ in range(2):
        shown = nodes(tmp_path, "sqlite:///ledger.db")
        assert (shown.exit_code, "drift_told.json shows that there was one" in said(shown)) == (1, True)


@pytest.mark.parametrize(
    ("url", "code", "text"),
    [
        ("sqlite:////nowhere/ledger.db", 2, "create it first"),
        ("mysql://host/x", 2, "use sqlite or postgresql"),
        ("postgresql://127.0.0.1:99999/x", 2, "port 99999"),
        ("postgresql://127.0.0.1:1/x", 4, "did not answer"),
    ],
)
def test_a_wrong_url_ends_with_2_and_one_where_nobody_answers_with_4(
    tmp_path: Path, url: str, code: int, text: str
) -> None:
    if code == 4:
        pytest.importorskip("psycopg")
    shown = nodes(tmp_path, url)
    assert (shown.exit_code, text in said(shown)) == (code, True)
