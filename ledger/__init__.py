"""The fleet database: what is there, who owns it, what was tried, who allowed it.

    ledger = Ledger.open("sqlite:////srv/fleet/ledger.db", clock)
    ledger.inventory    nodes, racks, pools, firmware as last read
    ledger.baselines    what the nodes of a pool should run
    ledger.operations   plans under way: state, runner, control requests, progress per node
    ledger.leases       one owner per node, granted together with the disruption budget
    ledger.journal      what was about to be done to a node, and how it ended
    ledger.gates        approvals
    ledger.waves        how far an operation got with each wave
    ledger.audit        the hash chain over every change

Every change and its audit record are one transaction, and there is one writer at a time (SQLite: BEGIN
IMMEDIATE; PostgreSQL: an advisory lock), so a decision never rests on a stale read. A call that raises
TransientError may be repeated as it is. Not audited: heartbeats, waiting texts and external slots, which
change nothing on a node.

SQLite runs in WAL mode with synchronous=NORMAL: a killed process loses nothing; a power cut of the
controller may lose the last commits, after which the hardware is read back. The file must be on a local
disk; use PostgreSQL where several machines write.
"""

from __future__ import annotations

from ledger.baselines import Baseline
from ledger.gates import Gate
from ledger.inventory import NodeRecord
from ledger.journal import Entry, Outcome
from ledger.ledger import Ledger
from ledger.operations import Control, ControlVerb, Operation, OperationState, Runner
from ledger.progress import NodeRow, NodeStatus

__all__ = [
    "Baseline",
    "Control",
    "ControlVerb",
    "Entry",
    "Gate",
    "Ledger",
    "NodeRecord",
    "NodeRow",
    "NodeStatus",
    "Operation",
    "OperationState",
    "Outcome",
    "Runner",
]
