"""Nodes whose BMCs misbehave: each ends updated or quarantined, and the truth log agrees with the claim."""

from __future__ import annotations

import pytest

from ledger import NodeStatus, OperationState
from simulator.verdict import Expectations, judge
from tests.flows.operated_site import Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]

UPDATED, FAILED = NodeStatus.UPDATED, NodeStatus.FAILED

# Fault of each node, what becomes of it, and a part of the reason that is true of this fault.
ENDS = {
    "gpu-0001": ("bmc_503", UPDATED, ""),
    "gpu-0002": ("refused", UPDATED, ""),
    "gpu-0003": ("task_vanishes", FAILED, "the BMC lost task"),
    "gpu-0004": ("completed_old_version", FAILED, "(old), not "),
    "gpu-0005": ("completed_with_warnings", UPDATED, ""),
    "gpu-0006": ("exception_with_extended_info", FAILED, "BMC task ended failed"),
    "gpu-0007": ("already_current", FAILED, "(old), not "),
    "gpu-0008": ("slow_answers", UPDATED, ""),
    "gpu-0009": ("session_expires", UPDATED, ""),
    "gpu-0010": ("truncated_body", UPDATED, ""),
    "gpu-0011": ("stuck_task", FAILED, "did not end in"),
    "gpu-0012": ("stale_inventory", UPDATED, ""),
    "gpu-0013": ("wrong_reset_ignored", FAILED, "its marks did not change"),
    "gpu-0014": ("clock_1970", UPDATED, ""),
    "gpu-0015": ("update_fails_first_n", UPDATED, ""),
}
QUARANTINED = frozenset(name for name, (_, end, _) in ENDS.items() if end is FAILED)


@pytest.fixture(scope="module")
def operation(site: Site) -> str:
    """The rollout over the nodes with faults, when it is done."""
    site.wait_until(site.begun["faulty"], OperationState.DONE, seconds=180)
    return site.begun["faulty"]


def test_every_node_with_a_fault_ends_updated_or_quarantined_for_its_true_reason(site: Site, operation: str) -> None:
    rows = {row.node: row for row in site.rows(operation)}
    assert {name: row.status for name, row in rows.items()} == {name: end for name, (_, end, _) in ENDS.items()}
    for name, (kind, _, reason) in ENDS.items():
        assert reason in rows[name].reason, name
        assert kind in site.truth().nodes[name].faults, f"{name}: its fault never showed"


def test_no_node_with_a_fault_is_said_to_be_updated_that_is_not(site: Site, operation: str) -> None:
    updated = frozenset(site.with_status(operation, UPDATED))
    verdict = judge(site.folder / "truth.jsonl", Expectations(updated, QUARANTINED))
    wrong = [line for line in verdict.wrong() if line.startswith(tuple(ENDS))]
    assert wrong == []
    assert updated == frozenset(ENDS) - QUARANTINED


def test_a_quarantined_node_stays_cordoned_with_its_reason_and_holds_no_lease(site: Site, operation: str) -> None:
    rows = {row.node: row for row in site.rows(operation)}
    cordoned = site.truth().cordoned_at_end
    assert frozenset(cordoned).intersection(ENDS) == QUARANTINED
    for name in QUARANTINED:
        assert rows[name].reason in cordoned[name]
        assert site.ledger.leases.lease(name) is None
    said = " ".join(site.done("why", "gpu-0013").split())
    assert "quarantined" in said
    assert "its marks did not change" in said
