"""Operations under way: plan, state, runner and what people asked of them."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import LeaseLost, PreconditionError
from fleet.reasons import ReasonKind
from ledger.database import Database, Transaction
from ledger.fencing import check_token, unknown_operation
from ledger.gates import void_other_plans
from ledger.operation import CLOSED, Control, ControlVerb, Operation, OperationState, Runner
from ledger.progress import Progress
from ledger.schema import TableRow, operations

_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # no 0/o, 1/l/i: ids are read aloud
_PREFIXES = {
    "firmware_rollout": "fw",
    "driver_canary": "dr",
    "driver_rollback": "db",
    "measurement": "ms",
    "burn_in": "bi",
    "intake": "in",
    "decommission": "dc",
    "drain": "dn",
    "sweep": "sw",
}


class Operations(Progress):
    """Operations and, from Progress, their rows per node."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._db = database

    def create(self, kind: str, plan_json: str, digest: str, actor: str) -> Operation:
        """Keep a new plan; its id names kind and day, like fw-20261130-7k3q."""
        with self._db.write() as tx:
            id = _free_id(tx, kind)
            row = {
                "id": id,
                "kind": kind,
                "plan": plan_json,
                "digest": digest,
                "actor": actor,
                "created": tx.now,
                "state": OperationState.PLANNED,
                "reason_kind": ReasonKind.NONE,
                "reason": "",
                "since": tx.now,
                "token": 0,
                "fruitless": 0,
            }
            tx.connection.execute(sa.insert(operations), row)
            tx.record(actor, "operation.create", id, {"kind": kind, "plan": digest})
            return _operation(_row(tx.connection, id))

    def get(self, id: str) -> Operation:
        """Raises PreconditionError for an unknown id."""
        with self._db.read() as connection:
            return _operation(_row(connection, id))

    def list(self, open_only: bool = False) -> tuple[Operation, ...]:
        """Oldest first."""
        query = sa.select(operations).order_by(operations.c.created, operations.c.id)
        if open_only:
            query = query.where(operations.c.state.not_in(CLOSED))
        with self._db.read() as connection:
            return tuple(_operation(row) for row in connection.execute(query))

    def set_state(
        self, id: str, state: OperationState, reason_kind: ReasonKind, reason: str, token: int | None = None
    ) -> None:
        """Say where the operation stands. A closed one has no runner and never opens again.

        Raises LeaseLost for an old `token`, PreconditionError for a closed operation.
        """
        with self._db.write() as tx:
            if token is not None:
                check_token(tx.connection, id, token)
            row = _head(tx.connection, id)
            if (row.state, row.reason_kind, row.reason) == (state, reason_kind, reason):
                return
            _check_open(row)
            values: dict[str, object] = {"state": state, "reason_kind": reason_kind, "reason": reason}
            if row.state != state:
                values["since"] = tx.now
            if state in CLOSED:
                values |= _NOBODY
            _update(tx, id, values)
            evidence = {"from": row.state, "to": state, "reason_kind": reason_kind, "reason": reason}
            tx.record(_who(id, token), "operation.state", id, {**evidence, "plan": row.digest})

    def replace_plan(self, id: str, plan_json: str, digest: str, actor: str | None = None) -> None:
        """Another plan for the same operation; every approval of the former one is void."""
        with self._db.write() as tx:
            row = _row(tx.connection, id)
            _check_open(row)
            if row.digest == digest and row.plan == plan_json:
                return
            _update(tx, id, {"plan": plan_json, "digest": digest})
            tx.record(actor or id, "operation.plan", id, {"from": row.digest, "to": digest})
            void_other_plans(tx, id, digest)

    def request(self, id: str, verb: ControlVerb, actor: str, reason: str, wave: int | None = None) -> None:
        """Ask an operation to halt, resume or abort; an abort stays. Raises PreconditionError when closed."""
        with self._db.write() as tx:
            row = _head(tx.connection, id)
            _check_open(row)
            if row.control == ControlVerb.ABORT:
                if verb is ControlVerb.ABORT:
                    return
                raise PreconditionError(f"{id} is being aborted; plan a new operation", operation=id)
            values: dict[str, object] = {
                "control": verb,
                "control_actor": actor,
                "control_reason": reason,
                "control_wave": wave,
                "control_at": tx.now,
            }
            if verb is not ControlVerb.HALT:
                values["fruitless"] = 0
            _update(tx, id, values)
            evidence = {"verb": verb, "reason": reason, "wave": wave, "plan": row.digest}
            tx.record(actor, "operation.request", id, evidence)

    def control(self, id: str) -> Control | None:
        """The newest request, None where nobody asked for anything."""
        with self._db.read() as connection:
            row = _head(connection, id)
        if row.control is None:
            return None
        return Control(
            ControlVerb(row.control), row.control_actor, row.control_reason, row.control_wave, row.control_at
        )

    def claim(self, id: str, runner: Runner, takeover: bool = False) -> int:
        """Become the runner; the token returned is greater than every one before and ends theirs.

        `takeover` says that the caller made sure the present runner is dead. Raises LeaseLost where
        another runner is there and `takeover` is not given, PreconditionError for a closed operation.
        """
        with self._db.write() as tx:
            row = _head(tx.connection, id)
            _check_open(row)
            present = _runner(row)
            if present is not None and present != runner and not takeover:
                text = (
                    f"{id} is run by process {present.pid} on {present.host} (seen {row.heartbeat:%F %T}); "
                    "take over only when that process is dead"
                )
                raise LeaseLost(text, operation=id)
            token = int(row.token) + 1
            values: dict[str, object] = {
                "token": token,
                "fruitless": int(row.fruitless) + 1,
                "runner_host": runner.host,
                "runner_pid": runner.pid,
                "runner_started": runner.pid_started,
                "runner_flow_run": runner.flow_run_id,
                "heartbeat": tx.now,
            }
            _update(tx, id, values)
            evidence = {
                "token": token,
                "host": runner.host,
                "pid": runner.pid,
                "flow_run": runner.flow_run_id,
            }
            was = None if present is None else f"{present.host}:{present.pid}"
            tx.record(id, "operation.claim", id, {**evidence, "from": was, "plan": row.digest})
            return token

    def leave(self, id: str, token: int) -> None:
        """Stop running it in good order (suspended, done): the next runner need not take over."""
        with self._db.write() as tx:
            check_token(tx.connection, id, token)
            _update(tx, id, dict(_NOBODY))
            tx.record(_who(id, token), "operation.leave", id, {"token": token})

    def bind_flow_run(self, id: str, flow_run_id: str) -> None:
        """Remember which flow run carries the operation out."""
        with self._db.write() as tx:
            row = _head(tx.connection, id)
            if row.flow_run != flow_run_id:
                _update(tx, id, {"flow_run": flow_run_id})
                tx.record(id, "operation.flow_run", id, {"from": row.flow_run, "to": flow_run_id})

    def of_flow_run(self, flow_run_id: str) -> str | None:
        """The operation that this flow run carries out, None where it has none yet."""
        query = sa.select(operations.c.id).where(operations.c.flow_run == flow_run_id)
        with self._db.read() as connection:
            return connection.execute(query).scalar()

    def heartbeat(self, id: str, token: int) -> None:
        """A sign of life. Raises LeaseLost when another runner took over."""
        with self._db.write() as tx:
            check_token(tx.connection, id, token)
            _update(tx, id, {"heartbeat": tx.now})

    def check(self, id: str, token: int) -> None:
        """Raises LeaseLost when another runner took over."""
        with self._db.read() as connection:
            check_token(connection, id, token)


_NOBODY: dict[str, object] = {
    "runner_host": None,
    "runner_pid": None,
    "runner_started": None,
    "runner_flow_run": None,
    "heartbeat": None,
}
_one = sa.select(operations).where(operations.c.id == sa.bindparam("operation_id"))
# A plan of 1,250 nodes is 5 MB of text: what only looks at an operation's standing leaves it where it is.
_standing = sa.select(*(column for column in operations.c if column.name != "plan")).where(
    operations.c.id == sa.bindparam("operation_id")
)


def _row(connection: Connection, id: str) -> TableRow:
    return _found(connection.execute(_one, {"operation_id": id}).one_or_none(), id)


def _head(connection: Connection, id: str) -> TableRow:
    """Everything of an operation but its plan."""
    return _found(connection.execute(_standing, {"operation_id": id}).one_or_none(), id)


def _found(row: TableRow | None, id: str) -> TableRow:
    if row is None:
        raise unknown_operation(id)
    return row


def _update(tx: Transaction, id: str, values: dict[str, object]) -> None:
    tx.connection.execute(sa.update(operations).where(operations.c.id == id).values(values))


def _check_open(row: TableRow) -> None:
    if row.state in CLOSED:
        raise PreconditionError(f"{row.id} is {row.state}; plan a new operation", operation=row.id)


def _who(id: str, token: int | None) -> str:
    return id if token is None else f"{id}#{token}"


def _free_id(tx: Transaction, kind: str) -> str:
    prefix = _PREFIXES.get(kind, kind[:2])
    while True:
        tail = "".join(secrets.choice(_ALPHABET) for _ in range(4))
        id = f"{prefix}-{tx.now:%Y%m%d}-{tail}"
        if tx.connection.execute(_standing, {"operation_id": id}).first() is None:
            return id


def _runner(row: TableRow) -> Runner | None:
    if row.runner_host is None:
        return None
    return Runner(row.runner_host, row.runner_pid, row.runner_started, row.runner_flow_run)


def _operation(row: TableRow) -> Operation:
    return Operation(
        id=row.id,
        kind=row.kind,
        plan_json=row.plan,
        digest=row.digest,
        actor=row.actor,
        created=row.created,
        state=OperationState(row.state),
        reason_kind=ReasonKind(row.reason_kind),
        reason=row.reason,
        since=row.since,
        token=row.token,
        runner=_runner(row),
        heartbeat=row.heartbeat,
        flow_run_id=row.flow_run,
        fruitless=row.fruitless,
    )
