"""The serial that a machine tells of itself, against the one in the fleet file: is it the machine it should be?"""

from __future__ import annotations

from collections.abc import Mapping

from fleet.findings import Action, Finding, Severity
from fleet.inventory_rows import serial_of

SAME = "same as in the fleet file"
CODE = "inventory.serial_differs"
_CHECKS = {"system.serial": "BMC", "host.serial": "host"}


def check_serial(read: str | None, written: str) -> str | None:
    """The fact `FACT_check`; None where either is no serial (a placeholder is none)."""
    ours, theirs = serial_of(written), serial_of(read)
    if ours is None or theirs is None:
        return None
    return SAME if ours.casefold() == theirs.casefold() else f"differs: the fleet file says {ours}"


def serial_findings(facts: Mapping[str, str], owners: Mapping[str, str]) -> tuple[Finding, ...]:
    """A finding for each source that tells another serial; `owners` are nodes by written serial, in lower case."""
    found = []
    for fact, who in _CHECKS.items():
        check = facts.get(f"{fact}_check", SAME)
        if check != SAME:
            owner = owners.get(facts[fact].casefold())
            of = f", which the fleet file gives to {owner}" if owner else ""
            evidence = f"{fact}={facts[fact]}; {check}"[:300]
            text = f"the {who} tells serial {facts[fact]}{of}; {check}"
            found.append(Finding("node", CODE, Severity.ERROR, Action.INVESTIGATE, evidence, text))
    return tuple(found)
