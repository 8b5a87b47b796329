"""The judge of driver changes, over truth logs that were written by hand and by a simulated host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.sim_host_bench import HostBench

from fleet.errors import ConfigurationError
from simulator.driver_verdict import DriverExpectations, DriverVerdict, judge_drivers

NEW, FORMER = "580.95.05", "550.54.15"
FLEET: dict[str, object] = {
    "t": 0.0,
    "event": "fleet",
    "racks": {"r1": ["a", "b"]},
    "drivers": FORMER,
    "settings": [{"power_limit_watts": 650.0, "ecc": True}, {"power_limit_watts": 650.0, "ecc": True}],
}
Event = tuple[float, str, str, dict[str, object]]


def verdict(folder: Path, *events: Event, expected: DriverExpectations | None = None) -> DriverVerdict:
    lines = [FLEET, *({"t": t, "event": kind, "node": node, "rack": "r1"} | more for t, kind, node, more in events)]
    path = folder / "truth.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return judge_drivers(path, expected or DriverExpectations(FORMER))


def state(t: float, node: str, *parts: str | None) -> Event:
    return t, "driver_state", node, dict(zip(("module", "on_disk", "user_space", "fabric_manager"), parts, strict=True))


def install(t: float, node: str, ok: bool = True) -> Event:
    return t, "driver_install", node, {"version": NEW, "from": FORMER, "ok": ok}


def setting(t: float, node: str, value: float) -> Event:
    return t, "setting", node, {"gpu": 1, "name": "power_limit_watts", "value": value, "by": "driver"}


def test_a_fleet_that_nobody_touched_is_as_it_was(tmp_path: Path) -> None:
    told = verdict(tmp_path)
    assert told.wrong() == ()
    assert (told.on, told.changed) == ({FORMER: 2}, ())


def test_a_node_that_is_wholly_on_the_new_driver_with_its_settings_is_right(tmp_path: Path) -> None:
    told = verdict(
        tmp_path,
        install(1, "a"),
        setting(2, "a", 700.0),
        state(3, "a", NEW, NEW, NEW, NEW),
        setting(4, "a", 650.0),
        expected=DriverExpectations(NEW, others={"b": FORMER}),
    )
    assert told.wrong() == ()
    assert told.on == {NEW: 1, FORMER: 1}
    assert told.changed == ("a",)


def test_what_is_not_whole_not_the_version_or_without_its_settings_is_named(tmp_path: Path) -> None:
    told = verdict(
        tmp_path,
        state(3, "a", FORMER, NEW, NEW, FORMER),
        setting(4, "b", 700.0),
        expected=DriverExpectations(NEW, others={"b": FORMER}),
    )
    assert told.wrong() == (
        "a: runs 550.54.15, not 580.95.05",
        "a: is not whole: module 550.54.15, on disk 580.95.05, user space 580.95.05, fabric manager 550.54.15",
        "b: settings are not as they were: gpu 1 power_limit_watts: 650.0, now 700.0",
    )
    without = DriverExpectations(FORMER, left_out=frozenset({"a"}), ignore_settings=frozenset({"power_limit_watts"}))
    assert judge_drivers(tmp_path / "truth.jsonl", without).wrong() == ()


def test_an_install_while_a_job_holds_the_node_is_named(tmp_path: Path) -> None:
    job = {"job": 4, "nodes": ["a", "b"], "gpus": 16}
    told = verdict(tmp_path, (1, "job_start", "", job), install(2, "a"), (3, "job_end", "", job), install(4, "b"))
    assert [line for line in told.wrong() if "while job" in line] == [
        "a: driver_install at 2 s while job 4 held the node"
    ]


def test_a_killed_job_is_named(tmp_path: Path) -> None:
    lost = {"job": 4, "nodes": ["a"], "gpus": 8, "lost_seconds": 60.0, "cause": "node lost"}
    assert verdict(tmp_path, (7, "job_killed", "", lost)).wrong() == ("job 4 was killed at 7 s on 1 nodes: node lost",)


def test_a_node_that_must_not_change_is_named_where_it_did(tmp_path: Path) -> None:
    told = verdict(tmp_path, install(1, "a"), expected=DriverExpectations(FORMER, must_not_change=frozenset({"a"})))
    assert told.wrong() == ("a: was changed though it must not be: 580.95.05",)


def test_a_last_line_that_was_cut_off_is_left_out_and_another_file_refused(tmp_path: Path) -> None:
    verdict(tmp_path, install(1, "a"))
    with (tmp_path / "truth.jsonl").open("a") as file:
        file.write('{"t": 2, "event": "driver_st')
    assert judge_drivers(tmp_path / "truth.jsonl", DriverExpectations(FORMER)).changed == ("a",)
    (tmp_path / "other.jsonl").write_text('{"event": "flash"}\n')
    with pytest.raises(ConfigurationError, match="not a truth log of a fleet with drivers"):
        judge_drivers(tmp_path / "other.jsonl", DriverExpectations(FORMER))
    with pytest.raises(ConfigurationError, match="cannot read"):
        judge_drivers(tmp_path / "missing.jsonl", DriverExpectations(FORMER))


def test_a_change_and_the_way_back_on_a_simulated_host_are_judged_by_its_own_log(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, gpus=2)
    first = {
        "t": 0.0,
        "event": "fleet",
        "racks": {"r1": ["gpu-0001"]},
        "drivers": FORMER,
        "settings": [gpu.values() for gpu in bench.host.state.settings.gpus],
    }

    def wrong(release: str) -> tuple[str, ...]:
        path = tmp_path / "whole.jsonl"
        path.write_text(f"{json.dumps(first)}\n{(tmp_path / 'truth.jsonl').read_text()}")
        return judge_drivers(path, DriverExpectations(release)).wrong()

    bench.stop_holders()
    bench.install(NEW)
    assert len(wrong(NEW)) == 2
    bench.reload()
    assert "persistence" in wrong(NEW)[0]
    bench.start_holders()
    assert wrong(NEW) == ()
    bench.stop_holders()
    bench.install(FORMER, "back")
    bench.reload()
    bench.start_holders()
    assert wrong(FORMER) == ()
    bench.close()
