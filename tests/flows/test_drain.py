"""A drain on a real Prefect server: jobs that write checkpoints are let go when they have one."""

from __future__ import annotations

import json
import time

import pytest

from fleet.model import NodeState
from ledger import NodeStatus, OperationState
from tests.flows.operated_site import Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]


def test_nodes_of_one_job_drain_at_one_checkpoint_and_come_back_by_undrain(site: Site) -> None:
    nodes = site.nodes("drained")
    folder = site.folder / "storage" / "drained-job"
    job = site.submit(nodes, f"--comment=ckpt={folder};kind=megatron;interval=3000")

    planned = json.loads(site.done("drain", ",".join(nodes), "--until-checkpoint", "--plan", "--json"))
    assert [found["id"] for found in planned["jobs"]] == [job]
    assert site.ledger.jobs.disturbances() == ()

    begun = json.loads(site.done("drain", ",".join(nodes), "--reason", "new fans", "--yes", "--json"))
    operation = begun["operation"]
    site.wait_until(operation, OperationState.DONE)
    assert site.with_status(operation, NodeStatus.DRAINED) == nodes
    (stopped,) = site.ledger.jobs.disturbances(operation)
    assert (stopped.job, stopped.how, stopped.gpus) == (job, "requeued", 16)
    assert stopped.lost_gpu_hours is not None
    assert stopped.lost_gpu_hours * 3600 / 16 < 60, "more was lost than since the checkpoint that was waited for"

    for node in nodes:
        assert site.ledger.inventory.node(node).state is NodeState.DRAINED
        seen = site.scheduler.look(newer_than=time.monotonic()).nodes[node]
        assert (seen.cordoned, seen.reason) == (True, f"gpufleet[{operation}]")
    again = site.gpufleet("drain", nodes[0], "--yes")
    assert again.returncode == 6
    assert "drained" in again.stderr

    site.done("undrain", ",".join(nodes), "--yes")
    site.wait("the nodes open again", lambda: all(site.ledger.leases.lease(node) is None for node in nodes))
    opened = site.scheduler.look(newer_than=time.monotonic()).nodes
    assert not any(opened[node].cordoned for node in nodes)
