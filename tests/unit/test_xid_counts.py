"""Xids are counted by GPU and line; a log that was not read has no count."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fleet.node_facts import facts_of_probe
from fleet.node_reading import NodeReading, read_node
from fleet.xid_counts import XidCounts, count_xids
from tasks.sweeping_counts import Counted, CountedXids

NOW = datetime(2026, 11, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


XID = "[ 100.000000] NVRM: Xid (PCI:0000:3a:00): 94, pid=1, name=python, Contained: SM (0x1)."


def reading(*lines: str, log: bool = True, **told: object) -> NodeReading:
    devices = [
        {"index": n, "known": {"serial": f"S{n}", "pci_address": f"00000000:{bus}:00.0"}}
        for n, bus in enumerate(("3A", "5D"))
    ]
    sections: dict[str, object] = {"gpus": {"source": "nvml", "count": 2, "devices": devices}}
    if log:
        sections["kernel_log"] = {"lines": list(lines), "cursor": "kmsg:1:9", **told}
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


def test_a_log_with_lines_that_are_left_out_has_no_count() -> None:
    assert count_xids(reading(XID, missed=5000)) is None
    assert count_xids(reading(XID, omitted=1)) is None


def test_a_log_that_another_source_told_from_the_boot_on_is_not_counted_again() -> None:
    assert count_xids(reading(XID, cursor="journal:b:9", continued=False), since="kmsg:b:7") is None
    assert count_xids(reading(XID, cursor="journal:b:9", continued=True), since="journal:b:7") == counted(1)
    after_reboot = reading(XID, cursor="kmsg:c:3", continued=False)
    assert count_xids(after_reboot, since="kmsg:b:7") == counted(1)


def counted(number: int) -> XidCounts:
    return XidCounts(number, {"0000:3a:00": number})


def test_a_run_after_one_that_died_before_it_kept_its_cursors_counts_what_came_since(tmp_path: Path) -> None:
    path, cursors = tmp_path / "run" / "xids_counted.json", {"n1": "kmsg:b:7"}
    CountedXids(path, cursors, {}).note({"n1": Counted("kmsg:b:7", NOW, counted(2))})
    again = CountedXids(path, cursors, {"n1": NOW})
    assert again.left("n1", "kmsg:b:7", True, counted(3)) == counted(1)
    again.note({"n1": Counted("kmsg:b:7", NOW + MINUTE, counted(3))})
    third = CountedXids(path, cursors, {"n1": NOW + MINUTE})
    assert third.left("n1", "kmsg:b:7", True, counted(3)) == counted(0)


def test_what_never_came_into_the_ledger_and_what_the_cursors_cover_is_not_taken_off(tmp_path: Path) -> None:
    path, cursors = tmp_path / "run" / "xids_counted.json", {"n1": "kmsg:b:7"}
    CountedXids(path, cursors, {}).note({"n1": Counted("kmsg:b:7", NOW, counted(2))})
    for now, seen in ((cursors, NOW - MINUTE), ({"n1": "kmsg:b:9"}, NOW)):
        again = CountedXids(path, now, {"n1": seen})
        assert again.left("n1", now["n1"], True, counted(3)) == counted(3)
    rebooted = CountedXids(path, cursors, {"n1": NOW})
    assert rebooted.left("n1", "kmsg:b:7", False, counted(3)) == counted(3)


def test_nothing_is_left_behind_once_the_cursors_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run" / "xids_counted.json"
    run = CountedXids(path, {}, {})
    run.note({"n1": Counted("kmsg:b:7", NOW, counted(0))})
    assert not path.exists()
    run.note({"n1": Counted("kmsg:b:7", NOW, counted(2))})
    run.clear()
    assert not path.exists()
    path.write_text('{"n1": {"since": "kmsg:b:7", "at": "yesterday", "total": "many"}, "n2": 3}')
    assert CountedXids(path, {"n1": "kmsg:b:7"}, {"n1": NOW}).left("n1", "kmsg:b:7", True, counted(3)) == counted(3)
