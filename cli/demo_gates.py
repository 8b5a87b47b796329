"""The demo's approver: signs every gate that opens, with the key that the simulator made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocks.fleet import Fleet
    from fleet.plan import OperationPlan
    from ledger import Operation


def approve_open_gates(fleet: Fleet, folder: Path, operation: Operation, plan: OperationPlan) -> None:
    """Approve the wave that the operation waits for, where it waits for one."""
    from cli.approving import give_approval
    from fleet.gates import GateStatus
    from fleet.reasons import ReasonKind

    if operation.reason_kind is not ReasonKind.GATE:
        return
    for wave in plan.waves:
        gate = fleet.ledger().gates.current(operation.id, wave.number)
        if gate is not None and gate.status is GateStatus.OPEN:
            give_approval(fleet, operation.id, wave.number, folder / "approver_ed25519", False, "demo")
