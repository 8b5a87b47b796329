"""Bring a ledger's tables to this code's schema, once, whoever comes first."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import ConfigurationError
from ledger.database import Database, LedgerUnusable
from ledger.schema import HEAD

# What flows that use the ledger leave in the run folder beside it.
_TRACES = ("kernel_log_cursors.json", "drift_told.json")


def migrate(database: Database) -> None:
    """Upgrade to HEAD in one transaction; a ledger that is there already costs one query.

    Raises ConfigurationError where a newer version of this code has written the ledger, LedgerUnusable where it has
    been emptied.
    """
    with database.read() as connection:
        version = schema_version(connection)
    if version == HEAD:
        return
    if version is None:
        _check_not_emptied(database)
    # Alembic takes 0.2 s to load: only here.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "ledger:migrations")
    config.set_main_option("path_separator", "os")
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    with database.write() as transaction:
        version = schema_version(transaction.connection)
        if version is not None and version not in known:
            raise ConfigurationError(
                f"the ledger {database.name} has schema {version}, this gpufleet knows up to {HEAD}: "
                "install the newer gpufleet, or restore the ledger's copy from before the upgrade"
            )
        if version != HEAD:
            config.attributes["connection"] = transaction.connection
            command.upgrade(config, "head")


def _check_not_emptied(database: Database) -> None:
    """A copy of a ledger without its journal looks like a new one, and everything would begin anew without a word."""
    if database.file is None or database.made_now:
        return
    traces = [trace for name in _TRACES if (trace := database.file.parent / "run" / name).exists()]
    if traces:
        raise LedgerUnusable(
            f"the ledger {database.file} is empty, and {traces[0]} shows that there was one: was it copied without "
            f"{database.file.name}-wal? Restore it from a backup; to begin a new one, remove the file"
        )


def schema_version(connection: Connection) -> str | None:
    """The migration that the ledger stands at; None for an empty database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
