"""The probe as one file: what it prints, in which time, and on which Python."""

from __future__ import annotations

import ast
import base64
import gzip
import os
import signal
import time
from pathlib import Path

import pytest

from node.build import build_probe
from node.probe.commands import Done, claim, run, run_all
from node.probe.files import Root
from node.probe.workers import collect
from tests.unit.probe_node import FakeNode

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "node" / "probe").glob("*.py"))
XML = '<?xml version="1.0" ?><nvidia_smi_log><driver_version>580.105.08</driver_version></nvidia_smi_log>'


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNode(tmp_path)


def test_a_node_without_gpus_says_why_in_one_framed_line(node: FakeNode) -> None:
    document = node.document()
    assert document["version"] == 1
    sections = document["sections"]
    assert set(sections) == {
        *("gpus", "driver", "packages", "system", "memory", "disks", "pci", "network", "kernel_log"),
    }
    assert sections["gpus"]["source"] == {"unknown": "nvidia-smi is not installed"}
    assert sections["kernel_log"]["lines"] == {
        "unknown": "/dev/kmsg: No such file or directory; journalctl is not installed; dmesg is not installed"
    }


def test_only_the_sections_that_are_asked_for_are_read(node: FakeNode) -> None:
    assert list(node.document("--sections=memory,gpus")["sections"]) == ["memory", "gpus"]
    refused = node.run("--sections=gpu")
    assert refused.returncode == 2
    assert refused.stderr.startswith("no section gpu; there are gpus, driver")


def test_nvidia_smi_is_asked_where_nvml_cannot_be_loaded(node: FakeNode) -> None:
    node.command("nvidia-smi", f"test \"$*\" = '-q -x' && echo '{XML}'")
    gpus = node.document("--sections=gpus")["sections"]["gpus"]
    assert (gpus["source"], gpus["exit_status"], gpus["stderr"]) == ("nvidia-smi", 0, "")
    assert gzip.decompress(base64.b64decode(str(gpus["xml"]))).decode().strip() == XML
    nvml = gpus["nvml"]
    assert isinstance(nvml, dict)
    assert "no-libnvidia-ml" in nvml["words"]


def test_a_driver_mismatch_that_nvidia_smi_tells_is_kept_word_for_word(node: FakeNode) -> None:
    node.command("nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    reading = node.reading("--sections=gpus")
    assert reading.gpu_source == "nvidia-smi"
    assert reading.smi is not None
    assert [error.kind.value for error in reading.smi.errors] == ["library_mismatch"]


def test_a_driver_that_is_not_loaded_is_not_loaded_by_looking_at_it(node: FakeNode) -> None:
    node.command("nvidia-smi", f"touch {node.root}/asked")
    gpus = node.document("--sections=gpus", "--nvml=")["sections"]["gpus"]
    assert gpus["source"] == {"unknown": "the nvidia module is not loaded, and NVML would load it"}
    assert not (node.root / "asked").exists()


def test_a_hung_command_costs_its_own_answer_and_nothing_else(node: FakeNode) -> None:
    node.file("/sys/module/nvidia/version", "580.105.08\n")
    node.command("nvidia-smi", "exec sleep 60")
    node.command("modinfo", "sleep 60 & sleep 60")
    started = time.monotonic()
    sections = node.document("--deadline=4")["sections"]
    assert time.monotonic() - started < 7
    source, on_disk = sections["gpus"]["source"], sections["driver"]["on_disk"]
    assert isinstance(source, dict)
    assert isinstance(on_disk, dict)
    assert source["unknown"].startswith("nvidia-smi did not end within")
    assert on_disk["unknown"] == "modinfo did not end within 1.5 s"
    loaded = sections["driver"]["loaded"]
    assert isinstance(loaded, dict)
    assert loaded["version"] == "580.105.08"
    assert sections["system"]["hostname"] == "gpu-0001"


def test_a_call_that_an_earlier_probe_left_hanging_is_not_made_once_more(node: FakeNode) -> None:
    library = node.root / "libnvidia-ml.so.1"
    held = claim("nvml", str(library), 0)
    assert held is not None
    with held:
        gpus = node.document("--sections=gpus", nvml=library)["sections"]["gpus"]
    assert gpus["source"] == {"unknown": "an NVML call of another probe has not returned"}
    gpus = node.document("--sections=gpus", nvml=library)["sections"]["gpus"]
    assert gpus["source"] == {"unknown": "nvidia-smi is not installed"}


def test_an_nvidia_smi_that_an_earlier_probe_left_hanging_is_not_started_once_more(node: FakeNode) -> None:
    node.command("nvidia-smi", f"echo '{XML}'")
    held = claim("nvidia-smi", str(node.root), 0)
    assert held is not None
    with held:
        gpus = node.document("--sections=gpus")["sections"]["gpus"]
    assert gpus["source"] == {"unknown": "nvidia-smi of another probe has not returned"}


def test_a_file_that_never_answers_holds_its_section_only_until_the_deadline(node: FakeNode) -> None:
    os.mkfifo(node.root / "proc/meminfo")
    started = time.monotonic()
    sections = node.document("--deadline=2", "--sections=memory,system")["sections"]
    assert time.monotonic() - started < 5
    assert sections["memory"] == {"unknown": "no answer within 1.5 s"}
    assert sections["system"]["hostname"] == "gpu-0001"


def test_what_a_reader_said_before_it_hung_or_died_is_kept() -> None:
    def hangs():  # type: ignore[no-untyped-def]
        yield "before", 1
        signal.pause()

    def dies():  # type: ignore[no-untyped-def]
        yield "before", 2
        os.kill(os.getpid(), signal.SIGKILL)
        yield "after", 2

    def fails():  # type: ignore[no-untyped-def]
        yield "before", 3
        raise RuntimeError("odd")

    found = collect({"hangs": hangs, "dies": dies, "fails": fails, "ends": lambda: iter([("all", 4)])}, 0.5)
    assert found["hangs"] == ([("before", 1)], "no answer within 0.5 s")
    assert found["dies"] == ([("before", 2)], "ended by signal 9")
    assert found["fails"] == ([("before", 3)], "the reader failed: RuntimeError: odd")
    assert found["ends"] == ([("all", 4)], None)


def test_a_reader_that_outlives_its_kill_would_not_hold_the_login_open() -> None:
    names = [f"/proc/self/fd/{number}" for number in (0, 1, 2)]
    found = collect({"fds": lambda: ((name, str(Path(name).readlink())) for name in names)}, 10)
    assert found["fds"].pairs == [(name, "/dev/null") for name in names]


def test_a_command_and_all_its_children_end_with_the_deadline(node: FakeNode) -> None:
    node.command("spawns", f"sleep 300 & echo $! > {node.root}/child; sleep 300")
    assert run(Root(str(node.root)), ("spawns",), 0.5) == "spawns did not end within 0.5 s"
    child = int((node.root / "child").read_text())
    end = time.monotonic() + 5
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_text():
        assert time.monotonic() < end, "the child still runs"
        time.sleep(0.01)


def test_commands_run_side_by_side_and_a_missing_one_is_said(node: FakeNode) -> None:
    for name in ("one", "two", "three"):
        node.command(name, f"sleep 1; echo {name}; echo odd >&2; exit 3")
    started = time.monotonic()
    found = run_all(Root(str(node.root)), {n: (n,) for n in ("one", "two", "three", "four")}, 10)
    assert time.monotonic() - started < 2.8
    assert found == {
        **{name: Done(3, f"{name}\n", "odd\n") for name in ("one", "two", "three")},
        "four": "four is not installed",
    }


def test_output_that_fills_every_pipe_is_taken_in(node: FakeNode) -> None:
    node.command("loud", "head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero")
    done = run(Root(str(node.root)), ("loud",), 20)
    assert isinstance(done, Done)
    assert (len(done.out), len(done.err)) == (3_000_000, 3_000_000)


def test_modules_are_unpacked_once_where_nobody_else_can_write(node: FakeNode) -> None:
    unpacked = node.app.with_name(f"{node.app.name}.d")
    node.document("--sections=memory")
    assert list((unpacked / "probe" / "__pycache__").iterdir())
    (unpacked / "probe" / "main.py").write_text("raise SystemExit('changed by another')")
    unpacked.chmod(0o777)
    assert node.document("--sections=memory")["version"] == 1


def test_nothing_is_unpacked_where_anybody_can_write(node: FakeNode) -> None:
    node.app.parent.chmod(0o777)
    assert node.document("--sections=memory")["version"] == 1
    assert not node.app.with_name(f"{node.app.name}.d").exists()


def test_the_same_sources_give_the_same_file() -> None:
    assert build_probe() == build_probe()
    assert build_probe().startswith(b"#!/usr/bin/env python3\n")


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in SOURCES])
def test_the_probe_is_written_in_python_3_8(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    merged = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.BitOr)]
    later = {"removeprefix", "removesuffix", "is_relative_to", "pairwise", "cache"}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert used & later == set()
    if path.name != "nvml.py":
        assert all(_is_annotation(tree, line) or _of_numbers(path, line) for line in merged)


def _is_annotation(tree: ast.AST, line: int) -> bool:
    """Is everything with `|` on that line part of an annotation, which Python 3.8 does not evaluate?"""
    notes: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            notes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            notes += [node.returns, *(argument.annotation for argument in [*node.args.args, *node.args.kwonlyargs])]
    return any(note is not None and note.lineno <= line <= (note.end_lineno or line) for note in notes)


def _of_numbers(path: Path, line: int) -> bool:
    return "os.O_" in path.read_text().splitlines()[line - 1]


def test_the_entry_is_readable_by_any_python() -> None:
    ast.parse((ROOT / "node/probe/__main__.py").read_text(), feature_version=(3, 4))


def test_the_probe_imports_nothing_of_ours() -> None:
    ours = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    for path in [*SOURCES, ROOT / "node/build.py"]:
        for statement in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
            if isinstance(statement, ast.ImportFrom) and not statement.level:
                names.append(statement.module or "")
            assert not {name.split(".")[0] for name in names} & ours
