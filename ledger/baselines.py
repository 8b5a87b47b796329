"""What the nodes of a pool should run, and since when. Only a decision moves it: a node never does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.canonical import canonical_json
from fleet.errors import PreconditionError
from ledger.database import Database
from ledger.schema import TableRow, baselines, clean_text, pools

_newest_first = (
    sa.select(baselines)
    .where(baselines.c.pool == sa.bindparam("pool_name"), baselines.c.kind == sa.bindparam("kind_name"))
    .order_by(baselines.c.id.desc())
)
_newest = _newest_first.limit(1)
_pool = sa.select(pools.c.name).where(pools.c.name == sa.bindparam("pool_name"))


@dataclass(frozen=True, slots=True)
class Baseline:
    """One desired set. `kind` is e.g. "firmware"; `digest` names where the document comes from."""

    pool: str
    kind: str
    document: Mapping[str, object]
    digest: str
    actor: str
    at: datetime


class Baselines:
    """The baselines of every pool, old ones kept."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def set(self, pool: str, kind: str, document: Mapping[str, object], digest: str, actor: str) -> None:
        """Make `document` (JSON) the pool's baseline; what is the baseline already is not set again.

        Raises PreconditionError for a pool that the ledger never saw.
        """
        text = clean_text(canonical_json(document))
        where = {"pool_name": pool, "kind_name": kind}
        with self._db.write() as tx:
            _check_pool(tx.connection, pool)
            before = tx.connection.execute(_newest, where).one_or_none()
            if before is not None and (before.document, before.digest) == (text, digest):
                return
            row = {"pool": pool, "kind": kind, "document": text, "digest": digest, "actor": actor, "at": tx.now}
            tx.connection.execute(sa.insert(baselines), row)
            was = None if before is None else before.digest
            evidence = {"kind": kind, "from": was, "to": digest, "document": json.loads(text)}
            tx.record(actor, "baseline.set", pool, evidence)

    def current(self, pool: str, kind: str) -> Baseline | None:
        """The newest baseline, None where none was ever set. Raises PreconditionError for an unknown pool."""
        with self._db.read() as connection:
            _check_pool(connection, pool)
            row = connection.execute(_newest, {"pool_name": pool, "kind_name": kind}).one_or_none()
        return None if row is None else _baseline(row)

    def history(self, pool: str, kind: str) -> tuple[Baseline, ...]:
        """Every baseline, newest first. Raises PreconditionError for an unknown pool."""
        with self._db.read() as connection:
            _check_pool(connection, pool)
            rows = connection.execute(_newest_first, {"pool_name": pool, "kind_name": kind}).all()
        return tuple(_baseline(row) for row in rows)


def _check_pool(connection: Connection, pool: str) -> None:
    if connection.execute(_pool, {"pool_name": pool}).first() is None:
        raise PreconditionError(f"no pool {pool!r} in the ledger; add it to the fleet file")


def _baseline(row: TableRow) -> Baseline:
    return Baseline(row.pool, row.kind, json.loads(row.document), row.digest, row.actor, row.at)
