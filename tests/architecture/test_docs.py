"""The documentation speaks of what is there: links, commands, keys, defaults and exit codes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, cast

import pytest
import typer.main
from pydantic import BaseModel

from cli.exit_codes import ExitCode
from cli.main import app
from fleet import bundle, config

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`(gpufleet [^`]+)`")


class Parameter(Protocol):
    """What Typer knows of an option or an argument."""

    opts: list[str]
    secondary_opts: list[str]
    required: bool
    is_flag: bool
    param_type_name: str


class Command(Protocol):
    """A command; a group has `commands` too."""

    params: list[Parameter]


COMMAND = cast(Command, typer.main.get_command(app))


def _named(paths: list[Path]) -> list[object]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in paths]


def slugs(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = (line.lstrip("#").strip().lower() for line in text.splitlines() if re.match(r"#+ ", line))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page whose file or heading is not there."""
    broken = []
    for link in _LINK.findall(page.read_text()):
        name, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in slugs(target.read_text())):
            broken.append(link)
    return broken


def command_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Every `gpufleet …` of a page, and whether it is meant to be typed as it stands (a line of code)."""
    for span in _SPAN.findall(re.sub(r"\n(?=\S)", " ", text)):
        for part in span.removeprefix("gpufleet ").split(" | "):
            yield part, False
    for line in text.splitlines():
        if line.startswith("    gpufleet "):
            for command in re.split(r"\sgpufleet ", line.split(" # ")[0])[1:]:
                for part in command.split(" | "):
                    yield part.strip(), True


def faults_of(line: str, whole: bool) -> list[str]:
    """What of `gpufleet <line>` the command does not know; with `whole`, also what it lacks."""
    words = shlex.split(line)
    command = COMMAND
    while words and hasattr(command, "commands"):
        known = cast("dict[str, Command]", command.commands)
        if words[0] not in known:
            return [f"no command {words[0]!r}"]
        command = known[words.pop(0)]
    if hasattr(command, "commands"):
        return ["no subcommand given"] if whole else []
    options = {name: p for p in command.params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    given, positional = set(), 0
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            positional += 1
        elif word != "--help":
            if word not in options:
                return [f"no option {word}"]
            given.add(options[word].opts[0])
            if not options[word].is_flag and words:
                words.pop(0)
    takes = float("inf") if any(p.nargs == -1 for p in arguments) else len(arguments)
    faults = [f"{positional} arguments, it takes {takes}"] if positional > takes else []
    if whole:
        faults += [f"needs {p.opts[0]}" for p in options.values() if p.required and p.opts[0] not in given]
        faults += ["an argument is missing"] if positional < sum(p.required for p in arguments) else []
    return faults


def models(module: object) -> list[type[BaseModel]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, BaseModel)]
    return [model for model in found if model.__module__ == getattr(module, "__name__", "") and model.model_fields]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row."""
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]


def row_of(text: str, key: str) -> list[str]:
    """The first row whose first cell names `key`, alone or behind dots; empty where none does."""
    pattern = re.compile(rf"`([a-z.A-Z]+\.)?{key}`")
    return next((row for row in rows(text) if pattern.search(row[0])), [])


def section(text: str, heading: str) -> str:
    assert f"\n{heading}\n" in text, heading
    return text.split(f"\n{heading}\n")[1].split("\n### ")[0].split("\n## ")[0]


SECTIONS = {
    config.FleetSpec: "### The file",
    config.BmcSettings: "### `bmc`",
    config.TlsSettings: "### `bmc`",
    config.SshSettings: "### `ssh`",
    config.SchedulerSettings: "### `scheduler`",
    config.SweepSettings: "### `sweep`",
    config.GatePolicy: "### `gate`, and `pools.POOL.gate`",
    config.Pool: "### `pools.POOL`",
    config.Breaker: "### `pools.POOL.breaker`",
    config.WaveSettings: "### `pools.POOL.waves`",
    config.Rack: "### `racks.RACK`",
    config.NodeEntry: "### `nodes`",
    config.SecretRef: "## Credentials",
}
FLEET_FILE = ROOT / "docs" / "fleet-file.md"
KEYS = [(model, key) for model in SECTIONS for key in model.model_fields]


@pytest.mark.parametrize("page", _named(PAGES))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", _named(PAGES))
def test_every_command_line_is_one_that_gpufleet_takes(page: Path) -> None:
    found = {line: faults_of(line, whole) for line, whole in command_lines(page.read_text())}
    assert {line: faults for line, faults in found.items() if faults} == {}


def test_every_model_of_the_fleet_file_has_its_section() -> None:
    assert set(models(config)) == {*SECTIONS, config.Signer}  # a signer's keys are in the gate's row
    assert {"principal", "roles"} == set(config.Signer.model_fields)


@pytest.mark.parametrize(("model", "key"), [pytest.param(m, k, id=f"{m.__name__}.{k}") for m, k in KEYS])
def test_every_key_of_the_fleet_file_is_explained_with_its_default(model: type[BaseModel], key: str) -> None:
    row = row_of(section(FLEET_FILE.read_text(), SECTIONS[model]), key)
    assert row, f"docs/fleet-file.md does not explain {key}"
    default = model.model_fields[key].default
    if isinstance(default, bool):
        assert row[1] == str(default).lower()
    elif isinstance(default, int | float):
        assert float(row[1]) == default
    if model.model_fields[key].is_required():
        assert row[1] == "required"


@pytest.mark.parametrize("key", sorted({key for model in models(bundle) for key in model.model_fields}))
def test_every_key_of_a_bundle_is_explained(key: str) -> None:
    assert row_of((ROOT / "docs" / "bundles.md").read_text(), key)


def test_the_examples_of_fleet_file_and_manifest_are_right() -> None:
    fleet, manifest = (
        (ROOT / "docs" / name).read_text().split("```yaml\n")[1].split("```")[0]
        for name in ("fleet-file.md", "bundles.md")
    )
    assert config.parse_fleet(fleet, "docs/fleet-file.md").nodes
    assert bundle.parse_bundle(manifest, "docs/bundles.md").entries


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_documented(code: ExitCode) -> None:
    text = section((ROOT / "docs" / "operations.md").read_text(), "## Exit codes")
    assert [str(int(code)), code.name] in [row[:2] for row in rows(text)]


@pytest.mark.parametrize(
    ("line", "whole", "fault"),
    [
        ("upp", True, "no command 'upp'"),
        ("status OP --jsn", False, "no option --jsn"),
        ("why NODE OTHER", True, "2 arguments, it takes 1"),
        ("approve OP --wave 1", True, "needs --key"),
        ("approve --wave 1 --key KEY", True, "an argument is missing"),
        ("plan", True, "no subcommand given"),
    ],
)
def test_a_wrong_command_line_is_seen(line: str, whole: bool, fault: str) -> None:
    assert faults_of(line, whole) == [fault]


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One two\n[a](page.md#one-two) [b](page.md#three) [c](gone.md) [d](https://example.org)\n")
    assert broken_links(page) == ["page.md#three", "gone.md"]


def test_commands_are_found_in_text_and_in_code() -> None:
    text = "Run `gpufleet status\nOP` now.\n\n    gpufleet halt OP | resume OP   # stops\n"
    assert list(command_lines(text)) == [("status OP", False), ("halt OP", True), ("resume OP", True)]
