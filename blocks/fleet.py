"""A fleet as a Prefect block: a reference to its fleet file. Secrets stay where the file points to."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

from prefect.blocks.core import Block
from pydantic import Field

from blocks.clients import Clients, clients_of
from blocks.jobs import SharedJobs
from blocks.scheduler import SharedScheduler
from fleet.config import FleetSpec
from fleet.errors import ConfigurationError
from fleet.model import Node
from fleet.ports import Bmc, Clock, Fences, FileHost, Host
from ledger import Ledger


class Fleet(Block):
    """One fleet. Flows take its name and load it, so that a fleet file may move without a new deployment."""

    _block_type_name = "Fleet"
    _block_type_slug = "gpufleet-fleet"
    _description = "A GPU fleet, by its fleet file."

    fleet_file: str = Field(description="Absolute path of the fleet file, the same on every worker.")

    def clients(self) -> Clients:
        """This process's clients of the fleet. Raises ConfigurationError that lists every fault of the file."""
        return clients_of(self.fleet_file)

    def spec(self) -> FleetSpec:
        """What the fleet file says."""
        return self.clients().spec

    def folder(self) -> Path:
        """What relative paths in the fleet file start from."""
        return Path(self.fleet_file).parent

    @property
    def clock(self) -> Clock:
        return self.clients().clock

    def ledger(self) -> Ledger:
        return self.clients().ledger()

    def bmc(self, node: Node) -> closing[Bmc]:
        """A client of the node's BMC, closed at the end of the `with` block."""
        return closing(self.clients().bmc(node))

    def host(self, node: Node) -> Host:
        return self.clients().host(node)

    def file_host(self, node: Node) -> FileHost:
        """As `host`, for one that also takes files."""
        return self.clients().file_host(node)

    def scheduler(self) -> SharedScheduler:
        return self.clients().scheduler()

    def jobs(self) -> SharedJobs:
        """What jobs say and what their storage shows."""
        return self.clients().jobs()

    def fences(self) -> Fences | None:
        """What keeps new work from running on nodes of two kinds; None without a workload manager."""
        return self.clients().fences()

    def sync_inventory(self) -> None:
        self.clients().sync_inventory()


def block_name(fleet: str) -> str:
    """The name of a fleet's block: Prefect allows lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", fleet.lower()).strip("-") or "fleet"


def load_fleet(fleet: str) -> Fleet:
    """The fleet that a flow was given: the name of a saved block, or the path of a fleet file.

    Raises ConfigurationError where there is neither.
    """
    if "/" in fleet or fleet.endswith((".yaml", ".yml")):
        return Fleet(fleet_file=str(Path(fleet).absolute()))
    try:
        block = Fleet.load(fleet)
    except ValueError as error:
        raise ConfigurationError(f"no saved Fleet block {fleet!r}: `gpufleet up` saves it") from error
    assert isinstance(block, Fleet)
    return block
