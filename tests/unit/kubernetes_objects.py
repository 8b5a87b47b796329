"""Node and pod objects for the tests, as an API server gives them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

Json = dict[str, object]
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


def node(
    name: str = "gpu01",
    *,
    ready: str | None = "True",
    unschedulable: object = None,
    taints: list[Json] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    gpus: str = "8",
    version: str = "7",
) -> Json:
    """A node with eight GPUs; `ready` None leaves the condition out."""
    conditions: list[Json] = [{"type": "MemoryPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    spec: Json = {"podCIDR": "10.0.0.0/24"}
    if unschedulable is not None:
        spec["unschedulable"] = unschedulable
    if taints is not None:
        spec["taints"] = taints
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "resourceVersion": version,
            "annotations": dict(annotations or {}),
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
        },
        "spec": spec,
        "status": {
            "conditions": conditions,
            "capacity": {"cpu": "224", "memory": "2113566384Ki", "nvidia.com/gpu": gpus},
            "allocatable": {"cpu": "223", "memory": "2100000000Ki", "nvidia.com/gpu": gpus},
        },
    }


def owned_by(kind: str, name: str) -> Json:
    """A reference to a controller."""
    return {"apiVersion": "any/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


def pod(
    name: str = "llama-0",
    node: str | None = "gpu01",
    *,
    namespace: str = "team-a",
    phase: str = "Running",
    gpus: int | str = 8,
    owner: Json | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    env: list[Json] | None = None,
    deleted: bool = False,
    spec: Mapping[str, object] | None = None,
) -> Json:
    """A running pod with one container of eight GPUs; `spec` adds to its spec."""
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    if deleted:
        metadata["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    container: Json = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}, "env": env or []}
    placed = {} if node is None else {"nodeName": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **placed, **(spec or {})},
        "status": {"phase": phase, "startTime": "2026-11-30T09:00:00Z"},
    }
