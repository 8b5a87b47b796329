"""Bring a ledger's tables to this code's schema, once, whoever comes first."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fleet.errors import ConfigurationError
from ledger.database import Database
from ledger.schema import HEAD


def migrate(database: Database) -> None:
    """Upgrade to HEAD in one transaction; a ledger that is there already costs one query.

    Raises ConfigurationError where a newer version of this code has written the ledger.
    """
    with database.read() as connection:
        version = schema_version(connection)
    if version == HEAD:
        return
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


def schema_version(connection: Connection) -> str | None:
    """The migration that the ledger stands at; None for an empty database."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
