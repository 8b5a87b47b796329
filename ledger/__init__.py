"""The fleet database: what is there, who owns it, what was tried, who allowed it.

    ledger = Ledger.open("sqlite:////srv/fleet/ledger.db", clock)
    ledger.inventory    nodes, racks, pools, firmware as last read
    ledger.baselines    what the nodes of a pool should run
    ledger.operations   plans under way: state, runner, control requests, progress per node
    ledger.leases       one owner per node, granted together with the disruption budget
    ledger.journal      what was about to be done to a node, and how it ended
    ledger.gates        approvals
    ledger.waves        how far an operation got with each wave
    ledger.jobs         what operations said and did to jobs, and what their owners answered
    ledger.verdicts     what was found at each look at a change
    ledger.audit        the hash chain over every change
    ledger.facts        what was read of nodes and parts: now, at a date, one fact over time
    ledger.parts        where each part sat, and which two nodes claim the same one
    ledger.samples      numbers over time, across the tiers that retention makes
    ledger.retention    raw samples thinned out to hours and days

Every change and its audit record are one transaction, and there is one writer at a time (SQLite: BEGIN
IMMEDIATE; PostgreSQL: an advisory lock), so a decision never rests on a stale read. A call that raises
TransientError may be repeated as it is. Not audited: heartbeats, waiting texts and external slots, which
change nothing on a node; nor are samples, and of readings only what they change.

SQLite runs in WAL mode with synchronous=NORMAL: a killed process loses nothing; a power cut of the
controller may lose the last commits, after which the hardware is read back. The file must be on a local
disk; use PostgreSQL where several machines write.
"""

from __future__ import annotations

from ledger.baselines import Baseline
from ledger.fact_rows import FactChange
from ledger.facts import NodeNow, NodeThen, PartNow, PartThen
from ledger.gates import Gate
from ledger.inventory import NodeRecord
from ledger.jobs import ConsentGiven, Disturbance, JobAsk
from ledger.journal import Entry, Outcome
from ledger.known import Known
from ledger.ledger import Ledger
from ledger.operation import Control, ControlVerb, Operation, OperationState, Runner
from ledger.parts import Conflict, Part, Placement
from ledger.past import Fact
from ledger.progress import NodeRow, NodeStatus
from ledger.recording import Recorded
from ledger.retention import Thinned, Tiers
from ledger.samples import Point, Rate, rates
from ledger.verdicts import VerdictRecord

__all__ = [
    "Baseline",
    "Conflict",
    "ConsentGiven",
    "Control",
    "ControlVerb",
    "Disturbance",
    "Entry",
    "Fact",
    "FactChange",
    "Gate",
    "JobAsk",
    "Known",
    "Ledger",
    "NodeNow",
    "NodeRecord",
    "NodeRow",
    "NodeStatus",
    "NodeThen",
    "Operation",
    "OperationState",
    "Outcome",
    "Part",
    "PartNow",
    "PartThen",
    "Placement",
    "Point",
    "Rate",
    "Recorded",
    "Runner",
    "Thinned",
    "Tiers",
    "VerdictRecord",
    "rates",
]
