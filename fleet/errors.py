"""Every error answers one question: what does the flow do now?

FleetError(message, node, component, operation, evidence)
  TransientError        retry                     BmcBusy, NodeUnreachable, SchedulerUnreachable
  PreconditionError     skip the node, say why    NotDrained, Released, JobRefused, WindowClosed,
                                                  NotQualified, DriverBlocked, LeaseLost
  OutcomeUnknown        read back, never retry    FlashInterrupted
  HardwareFault         quarantine                BurnInFailed, FirmwareMismatch, UpdateFailed, ResetIgnored,
                                                  DriverMismatch, DriverInstallFailed, HostLost
  RolloutHalted         stop the waves            GateRejected, GateTimedOut, FailureBudgetSpent, PlanChanged
  ConfigurationError    tell a person             CredentialsRejected, HostKeyChanged, UnknownSku, BundleRejected
"""

from __future__ import annotations


class FleetError(Exception):
    """A failure that says where it happened and what shows it.

    `evidence` holds short texts (a status line, a message of a BMC); secrets never go into it.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        component: str | None = None,
        operation: str | None = None,
        evidence: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.component = component
        self.operation = operation
        self.evidence = evidence

    def __str__(self) -> str:
        where = " ".join(part for part in (self.node, self.component) if part)
        return f"{where}: {self.message}" if where else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.node, self.component, self.operation, self.evidence))


def _rebuild(
    kind: type[FleetError],
    message: str,
    node: str | None,
    component: str | None,
    operation: str | None,
    evidence: tuple[str, ...],
) -> FleetError:
    return kind(message, node=node, component=component, operation=operation, evidence=evidence)


class TransientError(FleetError):
    """May pass by itself: try again, within a bound."""


class BmcBusy(TransientError):
    """The BMC is up and asks for patience (503, another update or job runs).

    `retry_after_seconds` is what the BMC asked for, None where it did not say.
    """

    retry_after_seconds: float | None = None


class NodeUnreachable(TransientError):
    """Nothing answered: connection refused, timed out or cut."""


class SchedulerUnreachable(TransientError):
    """The scheduler did not answer. Never to be read as "no jobs"."""


class PreconditionError(FleetError):
    """The node is not touched; the reason is shown."""


class NotDrained(PreconditionError):
    """Work is still on the node after the time it was given."""


class Released(PreconditionError):
    """The operation stops, and nothing was done to the node but its cordon: it goes back, to be visited later."""


class JobRefused(PreconditionError):
    """The scheduler does not do this to the job: it is gone, may not be requeued, or takes no signal."""


class WindowClosed(PreconditionError):
    """Outside the maintenance window."""


class NotQualified(PreconditionError):
    """The bundle does not fit this node, or may not be applied from its versions."""


class DriverBlocked(PreconditionError):
    """Somebody who may not be stopped holds the GPUs or the package manager; the former driver runs as before."""


class LeaseLost(PreconditionError):
    """The operation no longer owns the node (a person took it back, or another runner took over)."""


class OutcomeUnknown(FleetError):
    """A disruptive step may or may not have happened: read back, never repeat blindly."""


class FlashInterrupted(OutcomeUnknown):
    """The BMC lost the update task, and the inventory shows no new version."""


class HardwareFault(FleetError):
    """The node goes to quarantine with its evidence."""


class BurnInFailed(HardwareFault):
    """Acceptance failed."""


class FirmwareMismatch(HardwareFault):
    """After update and activation the active version is not the desired one."""


class UpdateFailed(HardwareFault):
    """The BMC said that the update failed, as often as the policy allows it to be tried."""


class ResetIgnored(HardwareFault):
    """The reset was accepted, and nothing was reset."""


class DriverMismatch(HardwareFault):
    """The driver is not the one that was installed, does not load, or lost a setting that cannot be put back."""


class DriverInstallFailed(HardwareFault):
    """The package manager failed at the driver, as often as the policy allows it to be tried."""


class HostLost(HardwareFault):
    """The host was rebooted and did not come back in its time."""


class RolloutHalted(FleetError):
    """No further node is touched until a person resumes the operation."""


class GateRejected(RolloutHalted):
    """An approver said no."""


class GateTimedOut(RolloutHalted):
    """Nobody answered before the gate's deadline."""


class FailureBudgetSpent(RolloutHalted):
    """More nodes failed than the policy allows."""


class PlanChanged(RolloutHalted):
    """What was approved is no longer what would be done."""


class ConfigurationError(FleetError):
    """A person must mend something before this can go on."""


class CredentialsRejected(ConfigurationError):
    """The system answered and refused the credentials: trying again may lock the account."""


class HostKeyChanged(ConfigurationError):
    """The SSH host key is not the pinned one."""


class UnknownSku(ConfigurationError):
    """A model that the catalogue does not know."""


class BundleRejected(ConfigurationError):
    """The bundle's manifest, digest or signature is not right."""
