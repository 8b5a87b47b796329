"""A measurement of a simulated node: drained, its tools run over real SSH, validated, given back as it was."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocks.fleet import Fleet
from fleet.canary_settings import CanarySettings
from fleet.measurement_results import measured_rows
from fleet.measures import Phase
from ledger import NodeStatus, Runner
from simulator.world import World, WorldOptions
from tasks.measured import evidence_store, measured_samples
from tasks.measurement import Measuring, keep_measurement, make_measurement_plan, measure_visit
from tasks.operations import OperationRun
from tasks.scheduler import wait_until_empty
from tasks.standing import before_now
from tasks.visit import Visit

NODE = "gpu-0001"
QUICK = CanarySettings.model_validate({"cool_poll_seconds": 0.5})


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A running fleet of one node with eight GPUs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    world = World(WorldOptions(tmp_path, nodes=1, racks=1, gpus_per_node=8, time_scale=600.0, jobs=False))
    asyncio.run_coroutine_threadsafe(world.start(), loop).result(60)
    yield Fleet(fleet_file=str(tmp_path / "fleet.yaml"))
    asyncio.run_coroutine_threadsafe(world.stop(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def test_every_benchmark_gives_a_value_for_every_gpu_and_the_node_goes_back(fleet: Fleet) -> None:
    plan = make_measurement_plan(fleet, [NODE], Phase.BEFORE, 1, "slow since Monday")
    ledger, operation = fleet.ledger(), keep_measurement(fleet, plan, "ann").id
    token = ledger.operations.claim(operation, Runner("lab", 1, 1.0, None))
    before = before_now(OperationRun(fleet, operation, token, plan), (NODE,))
    ledger.leases.acquire(operation, token, (NODE,), before)
    node = fleet.spec().inventory()[0]
    visit = Visit(fleet, operation, token, node, plan.nodes[NODE], before[NODE], (NODE,), 3600.0, {})
    result = measure_visit(visit, Measuring(Phase.BEFORE, 1, QUICK), wait_until_empty.fn)
    assert (result.status, result.reason) == (NodeStatus.UNCHANGED, "measured: 25 values")

    rows = {row.measure: row for row in measured_rows(measured_samples(ledger, operation))}
    assert {name: row.values for name, row in rows.items()} == {
        "hbm_bandwidth": 8,
        "host_to_device": 8,
        "all_reduce": 1,
        "gemm": 8,
    }
    assert all(row.median is not None and row.median > 0 for row in rows.values())
    entry = ledger.journal.last(operation, NODE, "measure:before")
    assert entry is not None
    raw = entry.result["raw"]
    assert isinstance(raw, list)
    assert all(evidence_store(fleet).read(one["digest"]) for one in raw)
    seen = fleet.scheduler().look(newer_than=fleet.clock.monotonic()).nodes[NODE]
    assert (seen.cordoned, ledger.inventory.node(NODE).state) == (False, before[NODE].state)
