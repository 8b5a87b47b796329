"""Nodes whose BMCs misbehave: each ends updated or quarantined, and the truth log agrees with the claim."""

from __future__ import annotations

import pytest

from ledger import NodeStatus, OperationState
from simulator.verdict import Expectations, judge
from tests.flows.operated_site import Site

pytestmark = [pytest.mark.prefect, pytest.mark.timeout(600)]

UPDATED, FAILED = NodeStatus.UPDATED, NodeStatus.FAILED

# What becomes of each node, and a part of the reason that is true of its fault.
ENDS = {
    "gpu-0017": (UPDATED, ""),  # its update task vanished, the image was written
    "gpu-0018": (FAILED, "the BMC lost task"),
    "gpu-0019": (FAILED, "(old), not "),  # said Completed, and wrote nothing
    "gpu-0020": (UPDATED, ""),  # the second try of the update worked
    "gpu-0021": (FAILED, "BMC task ended failed"),
    "gpu-0022": (FAILED, "its marks did not change"),
    "gpu-0023": (UPDATED, ""),  # completed with warnings
    "gpu-0024": (UPDATED, ""),  # the inventory lagged
    "gpu-0025": (FAILED, "did not end in"),  # its task was stuck
}


def test_every_node_with_a_fault_ends_updated_or_quarantined_for_its_true_reason(site: Site) -> None:
    operation = site.begun["faulty"]
    site.wait_until(operation, OperationState.DONE, seconds=180)
    rows = {row.node: row for row in site.rows(operation)}
    assert {name: row.status for name, row in rows.items()} == {name: end for name, (end, _) in ENDS.items()}
    for name, (_, reason) in ENDS.items():
        assert reason in rows[name].reason
    updated = frozenset(name for name, (end, _) in ENDS.items() if end is UPDATED)
    verdict = judge(site.folder / "truth.jsonl", Expectations(updated, frozenset(ENDS) - updated))
    assert [line for line in verdict.wrong() if line.startswith("gpu-") and line[:8] in ENDS] == []
    for name in ENDS:
        assert verdict.nodes[name].faults, f"{name}: its fault never showed"
        assert verdict.nodes[name].cordoned == (name not in updated)
    assert all(rows[name].reason in verdict.cordoned_at_end[name] for name in frozenset(ENDS) - updated)


def test_a_quarantined_node_says_why_and_holds_no_lease(site: Site) -> None:
    said = site.done("why", "gpu-0022")
    assert "quarantined" in said
    assert "its marks did not change" in " ".join(said.split())
    assert site.ledger.leases.lease("gpu-0022") is None
