"""The judge over truth logs that were written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.errors import ConfigurationError
from simulator.verdict import Expectations, Verdict, judge

FLEET: dict[str, object] = {
    "t": 0.0,
    "event": "fleet",
    "node": None,
    "rack": None,
    "racks": {"r1": ["a", "b", "c"], "r2": ["d"]},
    "pools": {"train": ["a", "b", "c", "d"]},
    "limits": {"r1": 2, "r2": 1},
    "capacity_floor": {"train": 0.5},
    "components_behind": {"a": ["EROT_0", "GPU_1"]},
    "order": ["EROT", "GPU"],
}
Event = tuple[float, str, str, dict[str, object]]


def verdict(folder: Path, *events: Event, expected: Expectations | None = None) -> Verdict:
    lines = [FLEET, *({"t": t, "event": kind, "node": node, "rack": "r1"} | more for t, kind, node, more in events)]
    path = folder / "truth.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return judge(path, expected)


def flash(t: float, node: str, component: str, to: str = "2") -> Event:
    return t, "flash", node, {"component": component, "from": "1", "to": to, "task": "7"}


def cordon(t: float, node: str) -> Event:
    return t, "cordon", node, {"by": "root", "reason": f"work on {node}"}


def uncordon(t: float, node: str) -> Event:
    return t, "uncordon", node, {"by": "root", "reason": ""}


def test_a_node_flashed_in_order_and_returned_has_nothing_wrong(tmp_path: Path) -> None:
    told = verdict(
        tmp_path,
        cordon(1, "a"),
        flash(2, "a", "EROT_0"),
        flash(3, "a", "GPU_1"),
        (4, "reset", "a", {"kind": "ac_cycle"}),
        (5, "activate", "a", {"component": "EROT_0", "version": "2"}),
        (5, "activate", "a", {"component": "GPU_1", "version": "2"}),
        uncordon(6, "a"),
        expected=Expectations(updated=frozenset({"a", "b"})),
    )
    assert told.wrong() == ()
    assert told.flashed == ("a",)
    assert told.nodes["a"].flash_order == ("EROT_0", "GPU_1")
    assert told.nodes["a"].resets == ["ac_cycle"]


def test_a_component_flashed_twice_is_named(tmp_path: Path) -> None:
    told = verdict(tmp_path, flash(1, "a", "GPU_1"), flash(2, "a", "GPU_1"))
    assert told.wrong() == ("a: flashed twice: GPU_1",)


def test_a_component_that_was_not_behind_is_named(tmp_path: Path) -> None:
    assert verdict(tmp_path, flash(1, "b", "GPU_1")).wrong() == ("b: flashed though not behind: GPU_1",)


def test_a_wrong_order_is_named(tmp_path: Path) -> None:
    told = verdict(tmp_path, flash(1, "a", "GPU_1"), flash(2, "a", "EROT_0"))
    assert told.wrong() == ("a: flashed out of order: GPU_1, EROT_0",)


def test_the_peak_of_a_rack_counts_cordoned_and_down_nodes_at_one_instant(tmp_path: Path) -> None:
    told = verdict(
        tmp_path, cordon(1, "a"), (2, "host", "b", {"state": "down"}), uncordon(3, "a"), cordon(4, "c"), cordon(5, "a")
    )
    assert (told.racks["r1"].nodes, told.racks["r1"].at, told.racks["r1"].limit) == (3, 5.0, 2)
    assert "rack r1: 3 nodes out at 5 s, at most 2 may be: a, b, c" in told.wrong()


def test_a_node_that_is_cordoned_and_down_counts_once(tmp_path: Path) -> None:
    told = verdict(
        tmp_path,
        cordon(1, "a"),
        (2, "host", "a", {"state": "down"}),
        (3, "host", "a", {"state": "up"}),
        uncordon(4, "a"),
        cordon(5, "b"),
    )
    assert (told.total.nodes, told.racks["r1"].nodes, told.pools["train"].nodes) == (1, 1, 1)


def test_a_pool_below_its_floor_is_named(tmp_path: Path) -> None:
    told = verdict(tmp_path, cordon(1, "a"), cordon(2, "b"), cordon(3, "d"))
    assert "pool train: 3 nodes out at 3 s, at most 2 may be: a, b, d" in told.wrong()


def test_a_killed_job_is_named_and_its_loss_is_in_gpu_hours(tmp_path: Path) -> None:
    lost = {"job": 4, "nodes": ["a", "b"], "gpus": 16, "lost_seconds": 900.0, "cause": "node lost"}
    told = verdict(tmp_path, (7, "job_killed", "", lost))
    assert told.wrong() == ("job 4 was killed at 7 s on 2 nodes: node lost",)
    assert told.lost_gpu_hours == pytest.approx(4.0)


def test_a_node_said_to_be_updated_that_is_still_behind_is_named(tmp_path: Path) -> None:
    told = verdict(
        tmp_path,
        (5, "activate", "a", {"component": "EROT_0", "version": "2"}),
        expected=Expectations(updated=frozenset({"a"})),
    )
    assert told.wrong() == ("a: said to be updated, but still behind: GPU_1",)


def test_a_node_left_cordoned_is_named_unless_it_was_left_out_on_purpose(tmp_path: Path) -> None:
    claims = Expectations(updated=frozenset({"b"}), left_out=frozenset({"c"}))
    told = verdict(tmp_path, cordon(1, "c"), cordon(2, "d"), expected=claims)
    assert told.cordoned_at_end == {"c": "work on c", "d": "work on d"}
    assert told.wrong() == ("d: still cordoned at the end (work on d)",)


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    verdict(tmp_path, cordon(1, "a"))
    with (tmp_path / "truth.jsonl").open("a") as file:
        file.write('{"t": 2, "event": "cord')
    assert judge(tmp_path / "truth.jsonl").cordoned_at_end == {"a": "work on a"}


def test_a_file_that_is_no_truth_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"event": "flash"}\n')
    with pytest.raises(ConfigurationError, match="first line must be the event fleet"):
        judge(path)
    with pytest.raises(ConfigurationError, match="cannot read"):
        judge(tmp_path / "missing.jsonl")
