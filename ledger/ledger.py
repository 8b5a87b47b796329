"""The whole ledger behind one name."""

from __future__ import annotations

import getpass
import socket

from fleet.ports import Clock
from ledger.audit import Audit
from ledger.baselines import Baselines
from ledger.database import Database
from ledger.facts import Facts
from ledger.gates import Gates
from ledger.inventory import Inventory
from ledger.jobs import Jobs
from ledger.journal import Journal
from ledger.leases import Leases
from ledger.migrate import migrate
from ledger.operations import Operations
from ledger.parts import Parts
from ledger.retention import Retention
from ledger.sample_rows import Layouts
from ledger.samples import Samples
from ledger.verdicts import Verdicts
from ledger.waves import Waves


class Ledger:
    """One fleet's ledger; safe to use from any thread, and from several processes at once."""

    def __init__(self, database: Database, actor: str) -> None:
        self._database = database
        self.inventory = Inventory(database, actor)
        self.baselines = Baselines(database)
        self.operations = Operations(database)
        self.leases = Leases(database)
        self.journal = Journal(database)
        self.gates = Gates(database)
        self.waves = Waves(database)
        self.jobs = Jobs(database)
        self.verdicts = Verdicts(database)
        self.audit = Audit(database)
        layouts = Layouts()
        self.facts = Facts(database, actor, layouts)
        self.parts = Parts(database)
        self.samples = Samples(database, layouts)
        self.retention = Retention(database, layouts)

    @classmethod
    def open(cls, url: str, clock: Clock, actor: str | None = None) -> Ledger:
        """Open the ledger at an SQLAlchemy URL and bring its schema up to date.

        `actor` (default user@host) is written to the audit where a call names nobody. Raises
        ConfigurationError for a URL that cannot be used or a ledger written by a newer gpufleet,
        CredentialsRejected, and TransientError where the database does not answer.
        """
        database = Database(url, clock)
        migrate(database)
        return cls(database, actor or f"{getpass.getuser()}@{socket.gethostname()}")

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
