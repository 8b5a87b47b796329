"""Every text of the public corpus is known for what it is, by one reader alone."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fleet.explain import _READERS, explain

pytestmark = pytest.mark.corpus

# Tables for other tests (states, hostlists, reasons, version pairs), and a description: no output of any tool.
_NO_OUTPUT = (".tsv", "traps.md")
_KINDS = {
    "nvidia-smi": ("nvidia-smi.",),
    "dmesg": ("kernel_log", "fabric_manager_log"),
    "dcgm": ("dcgm", "nvlink", "topology"),
    "redfish": ("redfish", "nvfwupd"),
    "slurm": ("slurm-",),
}


def test_each_text_has_the_kind_that_it_is_of_and_one_reader(shared: Path) -> None:
    with (shared / "corpus/MANIFEST.tsv").open() as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if not row["file"].endswith(_NO_OUTPUT)]
    wrong = []
    for row in rows:
        if row["kind"] == "bug-report":
            continue  # a description of a failure, with pieces of output at most
        text = (shared / "corpus" / row["file"]).read_text(errors="replace")
        readers = [name for name, reader in _READERS if reader.recognises(text)]
        kind = explain(text).kind
        expected = _KINDS.get(row["kind"], ("",))
        if len(readers) != 1 or kind == "unknown" or not kind.startswith(expected):
            wrong.append((row["file"], row["kind"], kind, readers))
    assert wrong == []
    assert len(rows) > 100
