"""Sweeps over a simulated fleet: the probe over real SSH, BMCs over real HTTP, into a real ledger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.kept_json import keep
from blocks.fleet import Fleet
from simulator.world import World, WorldOptions
from tasks.sweeping import Sweeper, Swept, begin_sweep


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A running fleet of four nodes with eight GPUs each."""
    place = tmp_path_factory.mktemp("sweep")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    world = World(WorldOptions(place, nodes=4, racks=2, gpus_per_node=8, time_scale=60.0, jobs=False))
    asyncio.run_coroutine_threadsafe(world.start(), loop).result(30)
    fleet = Fleet(fleet_file=str(place / "fleet.yaml"))
    fleet.sync_inventory()
    yield fleet
    asyncio.run_coroutine_threadsafe(world.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def _swept(fleet: Fleet) -> Swept:
    """One round in which every host and BMC is due."""
    return Sweeper(fleet, fleet.spec().inventory()).round()


def _command(fleet: Fleet, node: str, *arguments: str) -> None:
    place = next(entry for entry in fleet.spec().inventory() if entry.name == node)
    done = fleet.host(place).run(arguments)
    assert done.code == 0, done.stderr


def test_a_sweep_reads_every_node_and_a_second_one_finds_nothing_new(fleet: Fleet) -> None:
    first = _swept(fleet)
    assert (first.failed, sorted(first.arrived)) == ({}, ["gpu-0001", "gpu-0002", "gpu-0003", "gpu-0004"])
    known = fleet.ledger().facts.current()
    assert [len(node.parts) for node in known] == [8, 8, 8, 8]
    assert len({part.serial for node in known for part in node.parts}) == 32
    assert known[0].known.facts["driver.loaded"] == known[0].known.facts["fabric_manager.version"]
    assert known[0].known.facts["firmware.HGX_FW_GPU_SXM_1"] == known[0].parts[0].known.facts["vbios"]
    again = _swept(fleet)
    assert (again.arrived, again.changes) == ([], [])


def test_what_was_changed_on_three_nodes_is_what_the_next_sweep_finds(fleet: Fleet) -> None:
    _swept(fleet)
    _command(fleet, "gpu-0001", "nvidia-smi", "-i", "3", "-pl", "500")
    _command(fleet, "gpu-0002", "systemctl", "stop", "nvidia-persistenced")
    _command(fleet, "gpu-0004", "nvidia-smi", "-i", "0", "-pm", "0")
    found = {(c.node, c.part is None, c.name, c.old, c.new) for c in _swept(fleet).changes}
    assert found == {
        ("gpu-0001", False, "power_limit_watts", "700", "500"),
        ("gpu-0002", True, "service.nvidia-persistenced", "active", "inactive"),
        ("gpu-0004", False, "persistence", "enabled", "disabled"),
    }


def test_a_host_with_another_key_is_left_alone_and_the_others_are_read(fleet: Fleet) -> None:
    known = fleet.folder() / "known_hosts"
    text = known.read_text()
    lines = text.splitlines()
    first, second = (lines[n].split(" ", 1) for n in (0, 1))
    known.write_text("\n".join([f"{first[0]} {second[1]}", *lines[1:]]) + "\n")
    other = Fleet(fleet_file=str(_copy(fleet.folder())))
    try:
        failed = _swept(other).failed
    finally:
        known.write_text(text)
    assert len(failed) == 1
    node, why = next(iter(failed.items()))
    assert "host key" in why
    state = next(n for n in other.ledger().facts.current([node])).known.facts["probe.state"]
    assert state == "host key changed"


def _copy(folder: Path) -> Path:
    """The same fleet under another name, so that its clients are made anew."""
    copy = folder / "fleet-copy.yaml"
    copy.write_text((folder / "fleet.yaml").read_text())
    return copy


def test_what_the_kernel_says_between_two_sweeps_is_a_finding_once(fleet: Fleet) -> None:
    nodes = fleet.spec().inventory()
    first = Sweeper(fleet, nodes)
    assert first.round().findings == []
    _command(fleet, "gpu-0003", "logger", "--", "NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.")
    second = Sweeper(fleet, nodes, first.cursors)
    found = [(node, finding.subject, finding.code) for node, finding in second.round().findings]
    assert found == [("gpu-0003", "gpu 0000:3a:00", "xid.79")]
    assert Sweeper(fleet, nodes, second.cursors).round().findings == []
    assert Sweeper(fleet, nodes).round().findings == []  # a log that was never read before is history


def test_an_xid_is_counted_once_where_a_run_dies_before_it_kept_how_far_it_had_read(fleet: Fleet) -> None:
    started = begin_sweep(fleet)
    started.round()
    keep(fleet.folder() / "run" / "kernel_log_cursors.json", dict(started.cursors))
    started.cursors_kept()
    line = "NVRM: Xid (PCI:0000:3a:00): {}, pid=1, name=python, Contained: SM (0x1)."
    _command(fleet, "gpu-0002", "logger", "--", line.format(94))
    begin_sweep(fleet).round()
    _command(fleet, "gpu-0002", "logger", "--", line.format(13))
    begin_sweep(fleet).round()
    now = fleet.clock.now()
    points = fleet.ledger().samples.series("gpu-0002", "xid_count", now - timedelta(days=1), now + timedelta(days=1))
    assert sum(point.last for point in points) == 2


def test_the_health_of_nodes_and_gpus_is_a_fact(fleet: Fleet) -> None:
    _swept(fleet)
    known = fleet.ledger().facts.current()
    assert {node.known.facts["health"] for node in known} == {"ok"}
    assert {part.known.facts["health"] for node in known for part in node.parts} == {"ok"}
