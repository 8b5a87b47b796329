"""The nouns of the fleet, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NodeState(StrEnum):
    """Where a node stands in its life; `fleet.lifecycle` says which moves are legal."""

    ARRIVED = "arrived"
    PROVISIONING = "provisioning"
    BURN_IN = "burn_in"
    IN_SERVICE = "in_service"
    DRAINING = "draining"
    DRAINED = "drained"
    MAINTENANCE = "maintenance"
    VALIDATING = "validating"
    QUARANTINED = "quarantined"
    RMA = "rma"
    DECOMMISSIONING = "decommissioning"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class Node:
    """One GPU host as the inventory knows it. `bmc` is a URL, `ssh` is `host:port`."""

    name: str
    pool: str
    rack: str
    model: str
    bmc: str
    ssh: str
    unit: int | None = None
    nvlink_domain: str | None = None
    power_domain: str | None = None


class FirmwareRole(StrEnum):
    """What an entry of a BMC's firmware inventory stands for."""

    ACTIVE = "active"
    STAGED = "staged"  # installed, waits for its reset
    BACKUP = "backup"  # a rollback, golden or recovery image: never the running version
    ABSENT = "absent"  # the part is not there, or not usable: its version says nothing
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FirmwareComponent:
    """One entry of the firmware inventory.

    `version` is the running version for role ACTIVE, None where the BMC gave a placeholder;
    `staged` is the version that becomes active at the next right reset, None where nothing waits.
    `uri` is what an update names as its target.
    """

    id: str
    version: str | None
    staged: str | None
    role: FirmwareRole
    state: str  # Redfish Status.State, "Unknown" where missing
    health: str | None
    updateable: bool | None
    uri: str
    name: str


class TaskOutcome(StrEnum):
    """What a BMC's task says of itself. SUCCEEDED still has to be read back."""

    RUNNING = "running"
    WAITING_FOR_RESET = "waiting_for_reset"
    SUCCEEDED = "succeeded"
    SUCCEEDED_WITH_WARNINGS = "succeeded_with_warnings"
    ALREADY_CURRENT = "already_current"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RedfishTask:
    """A task of a BMC. `percent` is None where the BMC does not give it."""

    id: str
    uri: str
    state: str
    status: str | None
    percent: int | None
    outcome: TaskOutcome
    messages: tuple[str, ...]
    started: str | None = None


class PowerState(StrEnum):
    ON = "on"
    OFF = "off"
    POWERING_ON = "powering_on"
    POWERING_OFF = "powering_off"
    UNKNOWN = "unknown"


class ResetKind(StrEnum):
    """What makes a staged version active. Order is strength: a later one implies the earlier ones."""

    NONE = "none"
    HOST_REBOOT = "host_reboot"
    BMC_RESET = "bmc_reset"
    AC_CYCLE = "ac_cycle"


@dataclass(frozen=True, slots=True)
class ResetMarks:
    """What changes when a reset has happened, so that an interrupted reset can be read back.

    The times are the BMC's own texts (Redfish LastResetTime), compared for equality only: its clock
    may be wrong. None where the BMC does not tell.
    """

    power: PowerState
    host_last_reset: str | None
    bmc_last_reset: str | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as the BMC sees it."""

    id: str
    model: str | None
    serial: str | None
    uuid: str | None
    state: str
    health: str | None


@dataclass(frozen=True, slots=True)
class SystemReading:
    """Who this BMC says it is. Anything it does not tell is None, never a guess."""

    vendor: str | None
    model: str | None
    serial: str | None
    bios_version: str | None
    power: PowerState
    gpus: tuple[GpuReading, ...]
    problems: tuple[str, ...]


class SchedulerState(StrEnum):
    """Is work on the node? BUSY covers COMPLETING: such a node is not empty."""

    IDLE = "idle"
    BUSY = "busy"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SchedulerNode:
    """A node as the scheduler sees it.

    `cordoned` is Slurm's DRAIN flag. `reason` is kept letter by letter, as is who set it and when
    (the scheduler's text). `flags` holds every state word, upper case. `features` are the words that jobs can ask for.
    `registered` is what changes when the node's daemon starts and tells the scheduler of itself (Slurm's
    SlurmdStartTime, Kubernetes' boot id), compared for equality only; None where it is not told.
    `driver_refusal` is why its GPU driver is not ours to change; None where nothing says so.
    """

    name: str
    state: SchedulerState
    flags: frozenset[str]
    cordoned: bool
    reason: str | None
    reason_by: str | None
    reason_at: str | None
    gpus: int | None
    features: frozenset[str] = frozenset()
    registered: str | None = None
    driver_refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the scheduler. Times are seconds; None is "not told".

    `requeue`: whether it may be put back into the queue. `signal`: what it asked to be warned with before its time
    limit, as the scheduler prints it (Slurm's `USR1@300`, `B:USR1@60`).
    """

    id: str
    name: str
    user: str
    state: str  # upper case, e.g. RUNNING, COMPLETING
    nodes: tuple[str, ...]
    gpus: int | None
    elapsed_seconds: float | None
    limit_seconds: float | None
    comment: str
    account: str
    partition: str
    requeue: bool | None = None
    signal: str | None = None
