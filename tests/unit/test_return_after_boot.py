"""A node that was booted goes back when its scheduler has heard of the boot, not before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.site_fakes import Site

from fleet.kubernetes import read_node
from fleet.model import NodeState
from fleet.slurm import read_scontrol_nodes
from fleet.slurm_json import read_json_nodes
from ledger import NodeStatus

BEFORE, AFTER = "2026-11-30T09:00:00", "2026-11-30T09:31:00"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.fake_scheduler.registered = BEFORE
    return site


def register_after(site: Site, seconds: float) -> None:
    """Long after the host itself is up, its daemon tells the scheduler of the boot."""

    def register() -> None:
        site.fake_scheduler.registered = AFTER

    site.clock.after(seconds, register)


def test_a_booted_node_stays_cordoned_until_its_daemon_has_registered(site: Site) -> None:
    register_after(site, 1200)
    begun = site.clock.monotonic()
    assert site.visit().status is NodeStatus.UPDATED
    assert site.clock.monotonic() - begun >= 1200
    assert (site.fake_scheduler.uncordons, site.fake_scheduler.cordoned) == (1, False)


def test_one_that_never_registers_is_kept_out_with_the_reason(site: Site) -> None:
    found = site.visit()
    assert found.status is NodeStatus.FAILED
    assert "not registered with its scheduler" in found.reason
    assert (site.state(), site.fake_scheduler.uncordons) == (NodeState.QUARANTINED, 0)


def test_a_runner_that_dies_while_it_waits_leaves_the_wait_to_the_next(site: Site) -> None:
    site.fake_bmc.dies_at = "after reset"
    with pytest.raises(KeyboardInterrupt):
        site.visit()
    register_after(site, 1200)
    begun = site.clock.monotonic()
    assert site.visit().status is NodeStatus.UPDATED
    assert site.clock.monotonic() - begun >= 1200


def test_a_scheduler_that_does_not_tell_is_not_waited_for(site: Site) -> None:
    site.fake_scheduler.registered = None
    assert site.visit().status is NodeStatus.UPDATED


def test_a_node_that_was_not_booted_is_not_waited_for(site: Site) -> None:
    site.fake_bmc.away_until = site.clock.monotonic() + 1e9
    assert site.visit().status is NodeStatus.SKIPPED


def test_each_scheduler_tells_its_own_mark() -> None:
    line = f"NodeName=n1 Gres=gpu:8 State=IDLE Partitions=train BootTime={BEFORE} SlurmdStartTime=%s\n"
    assert read_scontrol_nodes(line % AFTER)["n1"].registered == AFTER
    for nothing in ("None", "Unknown"):
        assert read_scontrol_nodes(line % nothing)["n1"].registered is None
    for told, mark in ((1796030000, "1796030000"), ({"set": True, "infinite": False, "number": 5}, "5"), (0, None)):
        document = {"nodes": [{"name": "n1", "state": ["IDLE"], "slurmd_start_time": told}]}
        assert read_json_nodes(json.dumps(document))["n1"].registered == mark
    assert read_node("n1", {"status": {"nodeInfo": {"bootID": "5f0c"}}}, busy=False).registered == "5f0c"
    assert read_node("n1", {}, busy=False).registered is None
