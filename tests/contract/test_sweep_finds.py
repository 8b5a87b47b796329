"""A sweep of a simulated fleet that reads BIOS attributes, and serials that are not the written ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import yaml

from adapters.baseline_file import read_baseline_file
from blocks.fleet import Fleet
from fleet.drift import DriftVerdict, judge_drift
from ledger.present import present_facts
from simulator.world import World, WorldOptions
from tasks.sweeping import Sweeper, Swept
from tasks.sweeping_wishes import BiosWishes


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A running fleet of two nodes with two GPUs each."""
    place = tmp_path_factory.mktemp("finds")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    world = World(WorldOptions(place, nodes=2, racks=1, gpus_per_node=2, time_scale=60.0, jobs=False))
    asyncio.run_coroutine_threadsafe(world.start(), loop).result(30)
    fleet = Fleet(fleet_file=str(place / "fleet.yaml"))
    fleet.sync_inventory()
    yield fleet
    asyncio.run_coroutine_threadsafe(world.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def swept(fleet: Fleet) -> tuple[Sweeper, Swept]:
    sweeper = Sweeper(fleet, fleet.spec().inventory())
    return sweeper, sweeper.round()


def fact(fleet: Fleet, node: str, name: str) -> str | None:
    (known,) = fleet.ledger().facts.current([node], kinds=())
    return known.known.facts.get(name)


def wishes(fleet: Fleet, text: str) -> None:
    pools = "".join(f"  {pool}: {{bios: {text}}}\n" for pool in fleet.spec().pools)
    (fleet.folder() / "baseline.yaml").write_text(f"version: 1\npools:\n{pools}")


def test_without_a_baseline_no_attribute_is_read(fleet: Fleet) -> None:
    swept(fleet)
    (known, _) = fleet.ledger().facts.current(kinds=())
    assert not [name for name in known.known.facts if name.startswith("bios.") and name != "bios.version"]


def test_the_attributes_that_the_baseline_names_are_read_and_judged(fleet: Fleet) -> None:
    wishes(fleet, "{Sriov: on, TurboBoost: off, NoSuchThing: x}")
    swept(fleet)
    assert fact(fleet, "gpu-0001", "bios.Sriov") == "Enabled"
    assert fact(fleet, "gpu-0001", "bios.IommuMode") is None
    spec = fleet.spec()
    facts, since = present_facts(fleet.ledger().facts.current(kinds=("gpu",)))
    baseline = read_baseline_file(fleet.folder() / "baseline.yaml", spec)
    report = judge_drift(baseline, spec.inventory(), facts, fleet.clock.now().date(), since)
    verdicts = {row.fact: row.verdict for row in report.rows if row.node == "gpu-0001"}
    assert verdicts == {
        "bios.Sriov": DriftVerdict.OK,
        "bios.TurboBoost": DriftVerdict.DRIFTED,
        "bios.NoSuchThing": DriftVerdict.UNKNOWN,
    }


def test_a_baseline_that_is_broken_leaves_the_last_good_one_in_force(fleet: Fleet) -> None:
    wishes(fleet, "{Sriov: on}")
    sought, pool = BiosWishes(fleet), next(iter(fleet.spec().pools))
    assert sought.of(pool) == ("Sriov",)
    (fleet.folder() / "baseline.yaml").write_text("version: 1\npools: {nosuch: {bios: {A: b}}}\n")
    assert sought.of(pool) == ("Sriov",)
    wishes(fleet, "{TurboBoost: on}")
    assert sought.of(pool) == ("TurboBoost",)
    (fleet.folder() / "baseline.yaml").unlink()
    assert sought.of(pool) == ()


def test_a_serial_that_is_not_the_written_one_is_a_finding_once_and_a_conflict_each_time(fleet: Fleet) -> None:
    swept(fleet)
    serials = {node: str(fact(fleet, node, "system.serial")) for node in ("gpu-0001", "gpu-0002")}
    other = _with_serials(fleet, "other.yaml", {"gpu-0001": serials["gpu-0002"], "gpu-0002": "SN-OTHER"})
    sweeper, first = swept(other)
    assert {(node, finding.code) for node, finding in first.findings} == {
        ("gpu-0001", "inventory.serial_differs"),
        ("gpu-0002", "inventory.serial_differs"),
    }
    texts = {text.partition(":")[0]: text for text in first.conflicts}
    assert "the fleet file says SN-OTHER" in texts["gpu-0002"]
    assert "which the fleet file gives to gpu-0001" in texts["gpu-0002"]
    assert fact(other, "gpu-0002", "system.serial_check") == "differs: the fleet file says SN-OTHER"
    again = sweeper.round()
    assert (again.findings, len(again.conflicts)) == ([], 2)


def test_the_written_serial_in_other_letters_is_the_same(fleet: Fleet) -> None:
    swept(fleet)
    serials = {node: str(fact(fleet, node, "system.serial")).lower() for node in ("gpu-0001", "gpu-0002")}
    right = _with_serials(fleet, "right.yaml", serials)
    _, found = swept(right)
    assert (found.findings, found.conflicts) == ([], [])
    assert fact(right, "gpu-0001", "system.serial_check") == "same as in the fleet file"


def _with_serials(fleet: Fleet, name: str, serials: dict[str, str]) -> Fleet:
    """The same fleet with serials in its file, under another name, and swept without a pause."""
    tree = yaml.safe_load((fleet.folder() / "fleet.yaml").read_text())
    tree["nodes"] = [entry | {"serial": serials[entry["name"]]} for entry in tree["nodes"]]
    tree["sweep"] = {"every_seconds": 0.001, "bmc_every_seconds": 0.001}
    path = fleet.folder() / name
    path.write_text(yaml.safe_dump(tree))
    return Fleet(fleet_file=str(path))
