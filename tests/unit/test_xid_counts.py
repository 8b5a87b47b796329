"""Xids are counted by GPU and line; a log that was not read has no count."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from fleet.node_facts import facts_of_probe
from fleet.node_reading import NodeReading, read_node
from fleet.xid_counts import XidCounts, count_xids

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def reading(*lines: str, log: bool = True) -> NodeReading:
    devices = [
        {"index": n, "known": {"serial": f"S{n}", "pci_address": f"00000000:{bus}:00.0"}}
        for n, bus in enumerate(("3A", "5D"))
    ]
    sections: dict[str, object] = {"gpus": {"source": "nvml", "count": 2, "devices": devices}}
    if log:
        sections["kernel_log"] = {"lines": list(lines), "cursor": "kmsg:1:9"}
    return read_node(json.dumps({"version": 1, "at": NOW.timestamp(), "sections": sections}))


def test_each_line_of_a_gpu_counts() -> None:
    line = "[ 100.000001] NVRM: Xid (PCI:0000:3a:00): 94, pid=1, name=python, Contained: SM (0x1)."
    counts = count_xids(reading(line, line.replace("100.0", "101.0"), line.replace("3a", "ff")))
    assert counts == XidCounts(3, {"0000:3a:00": 2, "0000:ff:00": 1})


def test_a_log_without_xids_counts_none_and_one_that_was_not_read_counts_nothing() -> None:
    assert count_xids(reading()) == XidCounts()
    assert count_xids(reading(log=False)) is None


def test_the_counts_are_numbers_of_the_node_and_its_gpus() -> None:
    told = facts_of_probe("n1", NOW, reading(), XidCounts(3, {"0000:3a:00": 2}))
    assert told.numbers["xid_count"] == 3
    assert [part.numbers["xid_count"] for part in told.parts] == [2, 0]
    never = facts_of_probe("n1", NOW, reading())
    assert [never.numbers["xid_count"], *(part.numbers["xid_count"] for part in never.parts)] == [None] * 3
