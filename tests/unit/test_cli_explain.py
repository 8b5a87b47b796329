"""What `gpufleet explain` takes: files, pipes, damaged archives."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

from typer.testing import CliRunner

from cli.main import app

LINE = "[   12.300000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"


def test_a_pipe_is_read_as_a_file_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(LINE,))
    writer.start()
    result = CliRunner().invoke(app, ["explain", str(pipe)])
    writer.join()
    assert (result.exit_code, "xid.79" in result.output) == (0, True)


def test_a_damaged_archive_is_said_to_be_one(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(os.urandom(200) + LINE.encode() * 200 + bytes(range(256)) * 40))
    content[300:310] = b"\xff" * 10
    file = tmp_path / "dmesg.gz"
    file.write_bytes(content)
    result = CliRunner().invoke(app, ["explain", str(file)])
    assert result.exit_code == 3
    assert "a damaged gzip file" in " ".join(result.output.split())


def test_a_file_that_is_not_there_is_named_as_it_was_given() -> None:
    result = CliRunner().invoke(app, ["explain", "gpu-[red]1.txt"])
    assert (result.exit_code, result.output) == (6, "error: no file gpu-[red]1.txt\n")


def test_a_sick_gpu_is_not_overwritten_by_another_hosts_where_one_host_could_not_be_asked(tmp_path: Path) -> None:
    header = "index, name, remapped_rows.failure"
    rows = [("gpu-1", header), ("gpu-1", "0, NVIDIA H100, Yes"), ("gpu-2", header), ("gpu-2", "0, NVIDIA H100, No")]
    lines = [f"{host}: {row}" for host, row in (*rows, ("gpu-3", "ssh: connect to host gpu-3: timed out"))]
    file = tmp_path / "pdsh.txt"
    file.write_text("\n".join(lines) + "\n")
    output = CliRunner().invoke(app, ["explain", str(file)]).output
    assert "gpu-1 gpu 0: ecc.row_remap_failed" in output
    assert "cannot be told: gpu-3: nothing of it is known" in output


def test_a_terminal_that_is_not_utf_8_loses_a_letter_and_not_the_answer() -> None:
    line = "[ 1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=M\u00fcller, GPU has fallen off the bus.\n"
    command = [sys.executable, "-m", "cli", "explain"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(command, input=line.encode(), capture_output=True, env=environment, check=False)
    assert (ended.returncode, b"xid.79" in ended.stdout) == (0, True), ended.stderr
