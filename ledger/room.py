"""What the disruption budget has left, read once for several units that are asked for in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleet.budget import BudgetView, Granted, Refused, Standing, decide
from ledger import breakers
from ledger.database import Transaction
from ledger.standings import budget_view, read_nodes

_CORDONED = "cordoned"  # how the cause of an in-service node begins


class Room:
    """The budget's view of `names` and of all that is out around them, kept in step with what is granted.

    Nobody else can write meanwhile, so it is what reading anew for each unit would show. Raises PreconditionError
    for a node that is not in the fleet file.
    """

    def __init__(self, tx: Transaction, operation: str, names: Sequence[str]) -> None:
        self.operation = operation
        self._nodes = read_nodes(tx.connection, names)
        self._pools = {
            pool: breakers.trip_if_over(tx, pool) for pool in sorted({node.pool for node in self._nodes.values()})
        }
        view = budget_view(tx.connection, operation, self._nodes, self._pools)
        self._out = {node.name: node for node in view.out}
        self._limits = view.rack_limits

    def standing(self, name: str) -> Standing:
        return self._nodes[name]

    def ask(self, unit: Sequence[str]) -> Granted | Refused:
        """May the unit leave service, all or none of it?"""
        return decide(
            BudgetView(self.operation, self._nodes, tuple(self._out.values()), self._limits, self._pools), unit
        )

    def leave(self, name: str, was_cordoned: bool) -> None:
        """The operation has leased the node."""
        node = self._nodes[name]
        counts = node.member and node.out is None and not was_cordoned
        state = (node.out or _CORDONED).partition(":")[0]
        out = self.operation if state == _CORDONED else f"{self.operation}, {state}"
        self._nodes[name] = leased = replace(node, leased_by=self.operation, out=out)
        if node.member:
            self._out[name] = leased
        if counts:
            pool = self._pools[node.pool]
            self._pools[node.pool] = replace(pool, recent=tuple(sorted({*pool.recent, name})))
