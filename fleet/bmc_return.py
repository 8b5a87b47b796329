"""Is the BMC back? It answers in fits and starts after a restart, so one good answer proves nothing.

Sources: OpenStack Ironic (several good answers in a row after an update), openbmc issue 1924, xcat-core 3310.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Look:
    """One request to a restarting BMC: seconds since its restart began, what was read, and what came back.

    `status` is an HTTP status, or None where nothing came (refused, timed out, TLS error, cut).
    """

    at_seconds: float
    resource: str
    status: int | None


class Return(StrEnum):
    """RESTARTING until enough good reads in a row, OVERDUE after the deadline."""

    RESTARTING = "restarting"
    BACK = "back"
    OVERDUE = "overdue"


@dataclass(frozen=True, slots=True)
class ReturnVerdict:
    """`at_seconds`: when it was back, else the last look. `good_in_a_row`: reads of the needed resource."""

    state: Return
    at_seconds: float
    good_in_a_row: int
    login_needed: bool


def judge_return(looks: Iterable[Look], needed: str, deadline_seconds: float, reads: int = 3) -> ReturnVerdict:
    """Back after `reads` good answers in a row of the resource `needed`, not of any other.

    503, 404 and 401 (the session died with the restart) are part of a restart; only the deadline ends it.
    """
    good, at, login_needed = 0, 0.0, False
    for look in looks:
        at = look.at_seconds
        if at > deadline_seconds:
            return ReturnVerdict(Return.OVERDUE, at, good, login_needed)
        succeeded = look.status is not None and 200 <= look.status < 300
        login_needed = (login_needed or look.status == 401) and not (succeeded and "Sessions" in look.resource)
        if not succeeded:
            good = 0
        elif _same(look.resource, needed):
            good += 1
        if good >= reads:
            return ReturnVerdict(Return.BACK, at, good, login_needed=False)
    return ReturnVerdict(Return.RESTARTING, at, good, login_needed)


def read_looks(text: str) -> tuple[Look, ...]:
    """A recorded sequence: tab-separated `t_seconds`, `request` ("GET Systems/System_0") and `status`.

    A status that is no number (conn-refused, timeout, tls-error …) is no answer. Raises ValueError for a
    line that is not of this form.
    """
    looks: list[Look] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split("\t")
        if not line.strip() or line.startswith("#") or fields[0] == "t_seconds":
            continue
        if len(fields) < 3:
            raise ValueError(f"line {number}: wants t_seconds, request and status, separated by tabs")
        resource = fields[1].partition(" ")[2] or fields[1]
        status = fields[2].strip()
        looks.append(Look(float(fields[0]), resource.strip(), int(status) if status.isdigit() else None))
    return tuple(looks)


def _same(read: str, needed: str) -> bool:
    return read.strip("/").removeprefix("redfish/v1/") == needed.strip("/").removeprefix("redfish/v1/")
