"""`gpufleet compat` and `gpufleet lifecycle` as an operator types them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from unit.cli_site import SPEC

from cli.compat import compat, lifecycle
from fleet.catalog_data import load_catalog
from fleet.compat_arguments import cuda_argument, driver_argument
from fleet.errors import ConfigurationError

APP = typer.Typer()
APP.command()(compat)
APP.command()(lifecycle)
COMMAND = typer.main.get_command(APP)  # built once: it takes longer than most commands do


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.compat.console", Console(width=200))


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(COMMAND, arguments)


@pytest.mark.parametrize(
    ("arguments", "verdict", "code"),
    [
        (("--gpu", "V100", "--driver", "580.95.05", "--cuda", "12.9"), "ok", 0),
        (("--gpu", "H100", "--driver", "535.104.05", "--cuda", "13.0"), "ok only with cuda-compat", 0),
        (("--gpu", "V100", "--driver", "590", "--cuda", "13.0"), "refused", 1),
        (("--gpu", "V100", "--driver", "590"), "refused", 1),
        (("--gpu", "H100", "--cuda", "13"), "ok", 0),
        (("--gpu", "Voodoo 2", "--driver", "580"), "unknown", 3),
        (("--gpu", "V100"), "unknown", 3),
    ],
)
def test_the_exit_status_is_the_verdicts(arguments: tuple[str, ...], verdict: str, code: int) -> None:
    machine = _run("compat", *arguments, "--json")
    person = _run("compat", *arguments)
    assert (json.loads(machine.stdout)["verdict"], machine.exit_code) == (verdict, code)
    assert (person.stdout.startswith(verdict), person.exit_code) == (True, code)


def test_json_has_rules_with_sources_and_the_package() -> None:
    shown = json.loads(_run("compat", "--gpu", "H100", "--driver", "535", "--cuda", "13.0", "--json").stdout)
    assert shown["package"] == "cuda-compat-13-0"
    assert {"name", "effect", "text", "source", "as_of"} == set(shown["rules"][0])
    assert shown["rules"][0]["name"] == "cuda.forward"
    assert [note["name"] for note in shown["notes"]] == ["cuda.forward_bases", "driver.bundled"]


def test_a_person_reads_the_deciding_rule_its_source_and_no_more_than_helps() -> None:
    shown = _run("compat", "--gpu", "V100", "--driver", "590").stdout
    assert "last branch R580" in shown
    assert "rule architecture.last_driver, docs.nvidia.com/" in shown
    assert "is of the architecture" not in shown


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--kubernetes",), 0),
        (("--kubernetes", "--memory-mode", "numa"), 1),
        (("--kernel-modules", "closed"), 1),
        (("--fabric-manager", "580.82.07"), 1),
        (("--fabric-manager", "580.95.05-1"), 0),
        (("--memory-mode", "other"), 2),
    ],
)
def test_the_platform_counts(options: tuple[str, ...], code: int) -> None:
    assert _run("compat", "--gpu", "GB200", "--driver", "580.95.05", *options).exit_code == code


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--cuda", "12,2", "did you mean '12.2'?"),
        ("--cuda", "12..2", "did you mean '12.2'?"),
        ("--cuda", "12.2.", "did you mean '12.2'?"),
        ("--cuda", "12 2", "did you mean '12.2'?"),
        ("--cuda", "12.2.140.5", "did you mean '12.2.140'?"),
        ("--cuda", "0", "it takes a version as 13, 12.2 or 12.2.140"),
        ("--cuda", "12.x", "did you mean '12'?"),
        ("--cuda", "122", "did you mean '12.2'?"),
        ("--cuda", "", "--cuda is empty"),
        ("--driver", "535,104,05", "did you mean '535.104.05'?"),
        ("--driver", "5355", "did you mean '535'?"),
        ("--driver", "31.0.15.3758", "it takes a version as 580, R580 or 535.104.05"),
        ("--driver", "580.", "did you mean '580'?"),
        ("--fabric-manager", "580;95;05", "did you mean '580.95.05'?"),
        ("--gpu", " ", "--gpu is empty"),
    ],
)
def test_a_version_that_is_none_is_refused_with_the_nearest_right_one(option: str, text: str, said: str) -> None:
    others = {"--gpu": "H100", "--driver": "580.95.05"} | {option: text}
    shown = _run("compat", *(word for pair in others.items() for word in pair))
    assert (shown.exit_code, said in " ".join(shown.stderr.split())) == (2, True), shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--driver", "535,,470"), ("--driver", "53,5"), ("--gpu", "V100,"), ("--on", "20261130"), ("--on", "2026-02-30")],
)
def test_lifecycle_refuses_what_is_no_list_of_versions_and_no_day(arguments: tuple[str, ...]) -> None:
    assert _run("lifecycle", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--cuda", "13"),
        ("--cuda", "V12.2.140"),
        ("--cuda", "CUDA 12.2"),
        ("--cuda", "cuda-toolkit-12-2"),
        ("--cuda", " 12.2 "),
        ("--driver", "R580"),
        ("--driver", "r580"),
        ("--driver", "580.95.05-0ubuntu1"),
        ("--driver", "nvidia-driver-580-server"),
        ("--fabric-manager", "1:580.95.05-1"),
    ],
)
def test_every_right_spelling_of_a_version_has_a_verdict(option: str, text: str) -> None:
    others = {"--gpu": "H100", "--driver": "580.95.05"} | {option: text}
    assert _run("compat", *(word for pair in others.items() for word in pair)).exit_code == 0


def _code(command: Callable[[], None]) -> int:
    """The exit code of a command that is called without a command line to parse."""
    try:
        command()
    except typer.Exit as ended:
        return ended.exit_code
    except typer.BadParameter as refused:
        return refused.exit_code
    return 0


@settings(max_examples=100)
@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_any_arguments_end_with_a_documented_code(gpu: str, driver: str, cuda: str, manager: str) -> None:
    assert _code(lambda: compat(gpu, driver, cuda, fabric_manager=manager, as_json=True)) in (0, 1, 2, 3)
    assert _code(lambda: lifecycle(driver=driver, gpu=gpu, as_json=True)) in (0, 2, 3)
    assert _code(lambda: lifecycle(on=cuda, driver="535", as_json=True)) in (0, 2)


@given(st.text("0123456789.,;:/_ rRvV-", min_size=1, max_size=14))
def test_what_is_suggested_would_be_taken(text: str) -> None:
    facts = load_catalog()
    for check in (driver_argument, cuda_argument):
        try:
            check("--x", text, facts)
        except ConfigurationError as error:
            hint = re.search(r"did you mean '(.+)'\?", error.message)
            assert hint is None or check("--x", hint[1], facts) == hint[1]


def test_without_a_fleet_the_catalogues_ends_are_shown() -> None:
    shown = _run("lifecycle", "--on", "2026-11-30")
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in ("R418", "R620", "2029-09-30", "Volta", "not announced"))


def test_named_branches_and_gpus_alone() -> None:
    shown = _run("lifecycle", "--driver", "470, 535", "--gpu", "V100", "--on", "2026-11-30", "--json")
    answer = json.loads(shown.stdout)
    assert [(end["branch"], end["support"]) for end in answer["branches"]] == [("R470", "eol"), ("R535", "eol")]
    assert [end["last_branch"] for end in answer["architectures"]] == ["R580"]
    assert (answer["on"], shown.exit_code) == ("2026-11-30", 0)


@pytest.mark.parametrize("arguments", [("--driver", "999"), ("--gpu", "Voodoo"), ("--driver", "535,what")])
def test_a_name_that_the_catalogue_lacks_is_a_problem(arguments: tuple[str, ...]) -> None:
    assert _run("lifecycle", *arguments).exit_code == 3


def test_a_branch_without_a_known_end_is_no_problem_of_the_command() -> None:
    shown = _run("lifecycle", "--driver", "590", "--gpu", "M2090", "--on", "2026-11-30")
    assert (shown.exit_code, shown.stdout.count("unknown")) == (0, 4)


def test_a_fleets_nodes_have_unknown_drivers_until_they_are_read(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(SPEC.replace('model: HGX-H100-8, bmc: "https://10.0.0.3"', 'model: V100, bmc: "https://10.0.0.3"'))
    rows = json.loads(_run("lifecycle", "--fleet", str(file), "--on", "2026-11-30", "--json").stdout)["rows"]
    assert {(row["item"], tuple(row["nodes"])) for row in rows} == {
        ("GPU Volta", ("gpu-0003",)),
        ("driver unknown", ("gpu-0003",)),
        ("driver unknown", ("gpu-0001", "gpu-0002")),
    }
    shown = _run("lifecycle", "--fleet", str(file))
    assert "gpu-[0001-0002]" in shown.stdout
    assert shown.exit_code == 0


def test_an_operators_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("version: 1\nbranches:\n  R590: {ends: 2026-10, source: our contract}\n")
    shown = _run("lifecycle", "--driver", "590", "--on", "2026-11-30", "--catalog", str(file), "--json")
    assert json.loads(shown.stdout)["branches"][0]["support"] == "eol"
    file.write_text("version: 1\nbranches:\n  R590: {end: 2026-10, source: our contract}\n")
    faulty = _run("compat", "--gpu", "H100", "--driver", "590", "--catalog", str(file))
    assert faulty.exit_code == 2
    assert "ours.yaml:3: branches.R590.end: unknown key; did you mean 'ends'?" in faulty.stderr


def test_wrong_command_lines_and_missing_files_have_their_codes(tmp_path: Path) -> None:
    assert _run("lifecycle", "--on", "tomorrow").exit_code == 2
    assert _run("lifecycle", "--fleet", "f.yaml", "--gpu", "V100").exit_code == 2
    assert _run("lifecycle", "--fleet", str(tmp_path / "none.yaml")).exit_code == 2
    assert _run("lifecycle", "--catalog", str(tmp_path / "none.yaml")).exit_code == 6
    (tmp_path / "latin").write_bytes(b"version: 1 # \xe9\n")
    assert _run("lifecycle", "--catalog", str(tmp_path / "latin")).exit_code == 2
