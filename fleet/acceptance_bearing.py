"""What a finding means for acceptance: a fault of the hardware, a thing to mend first, a condition, or a doubt.

One finding of a hardware fault decides against the part, whatever else is mere configuration. A configuration finding
is mended and the test repeated: it says nothing about the hardware. A finding of heat or power says under which
conditions something was measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from fleet.acceptance_rules import CauseKind
from fleet.findings import Action, Finding, Severity
from fleet.readers.dcgm_errors import error_named


class Bearing(StrEnum):
    """In the order in which they decide."""

    HARDWARE = "hardware"
    CONFIGURATION = "configuration"
    CONDITION = "condition"
    DOUBT = "doubt"  # to be looked at, or to be read again: neither a pass nor a fail
    NOTE = "note"


_MEND = frozenset(
    {
        Action.FIX_CONFIGURATION,
        Action.UPDATE_SOFTWARE,
        Action.UPDATE_FIRMWARE,
        Action.RESTART_SERVICE,
    }
)
_LOOK_AGAIN = frozenset({Action.WAIT, Action.INVESTIGATE, Action.RESTART_APPLICATION})
_HARDWARE = frozenset(
    {
        Action.REPLACE_PART,
        Action.CONTACT_VENDOR,
        Action.RUN_DIAGNOSTICS,
        Action.RESET_GPU,
        Action.RESET_FABRIC,
        Action.REBOOT_NODE,
        Action.POWER_CYCLE_NODE,
        Action.CHECK_LINK,
        Action.CHECK_POWER,
        Action.CHECK_COOLING,
    }
)
# What stands in software and settings, whatever would mend it (a driver mismatch is mended by a reboot).
_SOFTWARE = re.compile(r"(?:driver|mode|mig|mixed|setting|package|service|bios|image)\.|fabric\.misconfigured$")
_CONDITIONS = re.compile(r"(?:clocks|temperature)\.|cpu\.thermal$|dcgm\.(?:clocks_event|thermal|temp)_")

_MEMORY_XIDS = frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})
_LINK_XIDS = frozenset({74, *range(144, 151)})
_ABOUT: tuple[tuple[re.Pattern[str], CauseKind], ...] = (
    (re.compile(r"temperature\.|cpu\.thermal$|clocks\.(?:hw|sw)_thermal|.*\.temperature$"), CauseKind.COOLING),
    (re.compile(r"clocks\.hw_power_brake|power\.|psu\.|nic\.power$|gpu\.insufficient_power$"), CauseKind.POWER),
    (re.compile(r"clocks\."), CauseKind.POWER),
    (re.compile(r"(?:pcie|nvlink|fabric|ib|link|ethernet|nic)\."), CauseKind.LINK),
    (re.compile(r"(?:ecc|memory|dimm)\."), CauseKind.MEMORY),
)
_OF_CATEGORY: Mapping[str, CauseKind] = {
    "HARDWARE_THERMAL": CauseKind.COOLING,
    "HARDWARE_POWER": CauseKind.POWER,
    "HARDWARE_PCIE": CauseKind.LINK,
    "HARDWARE_NVLINK": CauseKind.LINK,
    "HARDWARE_NVSWITCH": CauseKind.LINK,
    "HARDWARE_MEMORY": CauseKind.MEMORY,
}


def bearing_of(finding: Finding) -> Bearing:
    """What the finding decides."""
    if finding.severity is Severity.INFO:
        return Bearing.NOTE
    if _CONDITIONS.match(finding.code):
        return Bearing.CONDITION
    if finding.code.startswith(("xid.", "sxid.")) and finding.action in _MEND:
        return Bearing.DOUBT  # an error that a GPU or switch reported, though a service must be restarted for it
    if finding.action in _MEND or _SOFTWARE.match(finding.code):
        return Bearing.CONFIGURATION
    if finding.action in _LOOK_AGAIN:
        return Bearing.DOUBT
    if finding.action in _HARDWARE:
        return Bearing.DOUBT if finding.severity is Severity.WARNING else Bearing.HARDWARE
    return Bearing.NOTE if finding.severity is Severity.WARNING else Bearing.DOUBT


def cause_of(finding: Finding) -> CauseKind | None:
    """What kind of cause the finding speaks of; None where it speaks of none of them."""
    if bearing_of(finding) is Bearing.CONFIGURATION:
        return CauseKind.CONFIGURATION
    xid = re.fullmatch(r"xid\.([0-9]{1,4})", finding.code)
    if xid:
        number = int(xid[1])
        return CauseKind.MEMORY if number in _MEMORY_XIDS else CauseKind.LINK if number in _LINK_XIDS else None
    if finding.code.startswith("dcgm."):
        error = error_named(f"DCGM_FR_{finding.code.removeprefix('dcgm.').upper()}")
        return _OF_CATEGORY.get(error.category) if error else None
    return next((kind for words, kind in _ABOUT if words.match(finding.code)), None)
