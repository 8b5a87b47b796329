"""Run by Alembic inside the ledger's own write transaction; see `ledger.migrate`."""

from __future__ import annotations

from alembic import context
from sqlalchemy.engine import Connection

from ledger.schema import metadata

_connection = context.config.attributes["connection"]
assert isinstance(_connection, Connection)
context.configure(connection=_connection, target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
