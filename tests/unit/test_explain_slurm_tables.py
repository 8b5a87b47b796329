"""Slurm's tables with blank lines, doubled line ends and words around them; and listings that contradict each other."""

from __future__ import annotations

import pytest

from fleet.explain import explain

SINFO = (
    "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\n"
    "train* up infinite 1 idle gpu-0001\n{}train* up infinite 1 down* gpu-0009\n"
)
SQUEUE = (
    "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n"
    " 1 train a ada R 1:00 1 gpu-1\n{} 2 train b ada R 1:00 1 gpu-2\n"
)
NODE = "NodeName=gpu-0001 Arch=x86_64\n   Gres=gpu:8\n   State={} ThreadsPerCore=1\n\n"


def _subjects(text: str) -> list[str]:
    return [subject.name for subject in explain(text).subjects if subject.name != "text"]


@pytest.mark.parametrize("between", ["", "\n", "\n\n"])
def test_the_rows_behind_a_blank_line_are_of_the_table(between: str) -> None:
    assert _subjects(SINFO.format(between)) == ["gpu-0001", "gpu-0009"]
    assert _subjects(SQUEUE.format(between)) == ["job 1", "job 2"]


def test_the_line_ends_of_a_console_end_no_table() -> None:
    assert _subjects(SINFO.format("").replace("\n", "\r\r\n")) == ["gpu-0001", "gpu-0009"]


def test_words_behind_a_table_are_no_node_and_are_named() -> None:
    found = explain(SINFO.format("") + "\nthis is what the desk sent us today\n")
    assert [subject.name for subject in found.subjects] == ["gpu-0001", "gpu-0009"]
    assert "a row of sinfo's table: this is what the desk sent us today" in found.unknown


def test_a_row_of_sinfo_that_is_cut_is_named_and_costs_the_others_nothing() -> None:
    found = explain(SINFO.format("train* up infinite 2 idle gpu-[0003-\ntrain* up inf\n"))
    assert [subject.name for subject in found.subjects] == ["gpu-0001", "gpu-0009"]
    assert [line for line in found.unknown if line.startswith("a row")] == [
        "a row of sinfo's table: train* up infinite 2 idle gpu-[0003-",
        "a row of sinfo's table: train* up inf",
    ]


def test_listings_that_contradict_each_other_make_the_fact_unknown() -> None:
    found = explain(SINFO.format("") + "\n" + NODE.format("DOWN"))
    facts = {subject.name: subject.facts for subject in found.subjects}["gpu-0001"]
    assert facts["state"] == "unknown: idle / down"
    assert facts["gpus"] == "8"


def test_a_host_that_comes_twice_in_blocks_keeps_both() -> None:
    def block(host: str, text: str) -> str:
        return f"----------------\n{host}\n----------------\n{text}"

    lost = "[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.\n"
    well = "[  200.000001] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"
    found = explain(block("gpu-1", lost) + block("gpu-2", well) + block("gpu-1", well))
    assert [(finding.subject, finding.code) for finding in found.findings] == [("gpu-1 gpu 0000:3b:00", "xid.79")]
