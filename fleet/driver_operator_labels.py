"""Whether NVIDIA's GPU Operator manages a Kubernetes node's driver, and how far its own upgrade got there.

Two controllers on one driver undo each other: such a node is left to the operator. Sources: the upgrade states of
github.com/NVIDIA/k8s-operator-libs, pkg/upgrade/consts.go; the labels of NVIDIA's GPU Operator documentation,
"GPU Driver Upgrades"; `nvidia.com/gpu.deploy.driver` is "pre-installed" where the host brings the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

STATE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
SKIP_LABEL = "nvidia.com/gpu-driver-upgrade.skip"
DEPLOY_LABEL = "nvidia.com/gpu.deploy.driver"
REQUESTED_ANNOTATION = "nvidia.com/gpu-driver-upgrade-requested"
ENABLED_ANNOTATION = "nvidia.com/gpu-driver-upgrade-enabled"
SAFE_LOAD_ANNOTATION = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load"
UNSCHEDULABLE_BEFORE_ANNOTATION = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"


class UpgradeState(StrEnum):
    """The operator's own words for a node, in the order in which it goes through them."""

    NONE = ""
    UPGRADE_REQUIRED = "upgrade-required"
    NODE_MAINTENANCE_REQUIRED = "node-maintenance-required"
    CORDON_REQUIRED = "cordon-required"
    WAIT_FOR_JOBS_REQUIRED = "wait-for-jobs-required"
    POD_DELETION_REQUIRED = "pod-deletion-required"
    DRAIN_REQUIRED = "drain-required"
    POST_MAINTENANCE_REQUIRED = "post-maintenance-required"
    POD_RESTART_REQUIRED = "pod-restart-required"
    VALIDATION_REQUIRED = "validation-required"
    UNCORDON_REQUIRED = "uncordon-required"
    DONE = "upgrade-done"
    FAILED = "upgrade-failed"


_AT_REST = (UpgradeState.NONE, UpgradeState.DONE, UpgradeState.FAILED)


@dataclass(frozen=True, slots=True)
class OperatorDriver:
    """What the labels say. `managed` None: nothing tells. `state` None: a word that is not known, in `said`."""

    managed: bool | None
    state: UpgradeState | None
    said: str = ""
    skipped: bool = False

    @property
    def under_way(self) -> bool | None:
        """Is the operator changing the driver now? None where its state is a word that is not known."""
        return None if self.state is None else self.state not in _AT_REST


def read_operator_driver(labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> OperatorDriver:
    """Read a Node's labels and annotations. Never raises."""
    notes = annotations or {}
    said = labels.get(STATE_LABEL, "").strip()
    try:
        state: UpgradeState | None = UpgradeState(said)
    except ValueError:
        state = None
    deploy = labels.get(DEPLOY_LABEL, "").strip().lower()
    managed: bool | None = None
    if deploy in ("pre-installed", "false"):
        managed = False
    elif deploy or said or notes.get(ENABLED_ANNOTATION, "").lower() == "true":
        managed = True  # "true", and "paused-for-driver-upgrade" while its pods are taken down
    return OperatorDriver(managed, state, said[:60], labels.get(SKIP_LABEL, "").strip().lower() == "true")


def refusal(labels: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> str | None:
    """Why the driver of this node is not ours to change; None where the operator has nothing to do with it."""
    driver = read_operator_driver(labels, annotations)
    if driver.state is None:
        return f"{STATE_LABEL} says {driver.said!r}, which is not known: leave it to the GPU Operator"
    if driver.under_way:
        return f"the GPU Operator is changing its driver ({driver.state.value}): wait for it"
    if driver.managed:
        at = f", last state {driver.state.value}" if driver.state.value else ""
        skip = f"; {SKIP_LABEL} keeps it as it is" if driver.skipped else ""
        return f"the GPU Operator manages its driver{at}{skip}: set the version in its ClusterPolicy or NVIDIADriver"
    return None
