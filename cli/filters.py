"""Names that a person filters by: one that does not exist is an error, and never an empty table."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fleet.errors import PreconditionError
from fleet.inventory_rows import nearest

_SHOWN = 8


def check_known(what: str, given: Iterable[str | None], known: Collection[str]) -> None:
    """Raises PreconditionError for names that the fleet does not have, with the nearest right one; None is no name."""
    strangers = [name for name in dict.fromkeys(given) if name is not None and name not in known]
    if strangers:
        more = f" and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
        listed = ", ".join(repr(name) for name in strangers[:_SHOWN])
        raise PreconditionError(f"no {what} {listed}{more} in this fleet; {nearest(strangers[0], sorted(known))}")
