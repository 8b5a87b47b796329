"""What is wrong with a part, as a value: the one shape in which every reader says what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding takes away. What is not known is no severity: it stands in `Explanation.unknown`."""

    INFO = "info"  # worth knowing, nothing to do
    WARNING = "warning"  # works, and will need somebody
    ERROR = "error"  # does not work as it must; new work should not come here
    FATAL = "fatal"  # the part or the node is lost until somebody acts


class Action(StrEnum):
    """What to do next, the least that can help. Its order is no ranking."""

    NONE = "none"
    WATCH = "watch"
    WAIT = "wait"  # passes by itself: a BMC that starts, a job that completes
    RESTART_APPLICATION = "restart_application"
    RESTART_SERVICE = "restart_service"
    RESET_GPU = "reset_gpu"
    RESET_FABRIC = "reset_fabric"
    REBOOT_NODE = "reboot_node"
    POWER_CYCLE_NODE = "power_cycle_node"
    CHECK_LINK = "check_link"
    CHECK_POWER = "check_power"
    CHECK_COOLING = "check_cooling"
    RUN_DIAGNOSTICS = "run_diagnostics"
    FIX_CONFIGURATION = "fix_configuration"
    UPDATE_SOFTWARE = "update_software"
    UPDATE_FIRMWARE = "update_firmware"
    CONTACT_VENDOR = "contact_vendor"
    REPLACE_PART = "replace_part"
    INVESTIGATE = "investigate"  # a person must look: no rule decides


DRAINS: frozenset[Action] = frozenset(
    {
        Action.RESET_GPU,
        Action.RESET_FABRIC,
        Action.REBOOT_NODE,
        Action.POWER_CYCLE_NODE,
        Action.CHECK_POWER,
        Action.RUN_DIAGNOSTICS,
        Action.CONTACT_VENDOR,
        Action.REPLACE_PART,
    }
)
"""Actions before which the node's work must have left."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    `subject` names the part as its source does ("gpu 0000:3b:00", "switch 0000:06:00.0", "node", "link mlx5_0/1");
    `code` is a stable word for machines ("xid.79", "gpu.lost", "ecc.remap_failed"); `evidence` the very line or
    field it rests on; `text` says it to a person, with what is known of the cause.
    """

    subject: str
    code: str
    severity: Severity
    action: Action
    evidence: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """A part that the text tells of, with what it says of it ("driver": "580.105.08")."""

    name: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one text is and says. `unknown` names what cannot be told from it, and why, a text each."""

    kind: str
    subjects: tuple[Subject, ...] = ()
    findings: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()
