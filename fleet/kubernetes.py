"""Kubernetes' node objects, read and changed as plain JSON: who is ready, closed, why, and by whom.

Sources: the API reference of Kubernetes 1.22 to 1.34 (core/v1 Node), the labels of NVIDIA's GPU feature discovery
(nvidia.com/gpu.count), RFC 7396 (JSON merge patch).

A node is closed by us with the taint `gpufleet.io/cordon`, `spec.unschedulable` and the reason as an annotation. The
taint is what makes the cordon ours: without it, an annotation that was left behind says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from functools import lru_cache

from fleet.driver_operator_labels import refusal
from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.json_values import JsonObject, object_at, objects_at, text_at, value_at
from fleet.model import SchedulerNode, SchedulerState

CORDON = "gpufleet.io/cordon"
"""Key of the taint that closes a node for us."""

FENCE = "gpufleet.io/fence"
"""Key of the taint and of the label that put a node into a fence; the value is the fence's name."""

REASON = "gpufleet.io/reason"
REASON_BY = "gpufleet.io/reason-by"
REASON_AT = "gpufleet.io/reason-at"
FOUND_CORDONED = "gpufleet.io/found-cordoned"
"""Annotation: somebody else had closed the node before we did; it stays closed when we let go."""

GPU = "nvidia.com/gpu"
_READY = {"True": "READY", "False": "NOT_READY", "Unknown": "NOT_RESPONDING"}
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_PLAIN_COUNT = re.compile(r"[0-9]{1,6}")


def read_nodes(trees: Iterable[JsonObject], busy: Set[str]) -> dict[str, SchedulerNode]:
    """Every node by name; `busy` names those that pods hold.

    Raises SchedulerUnreachable where an object has no name: an answer that makes no sense is no fleet.
    """
    return {name: read_node(name, tree, name in busy) for tree in trees for name in (node_name(tree),)}


def node_name(tree: JsonObject) -> str:
    """Raises SchedulerUnreachable where there is none."""
    name = text_at(tree, "metadata", "name")
    if name is None:
        raise SchedulerUnreachable("the API server lists a node without a name; ask again")
    return name


def read_node(name: str, tree: JsonObject, busy: bool) -> SchedulerNode:
    """One node. Only a node whose kubelet says that it is ready is ever IDLE or, with `busy`, BUSY for sure.

    `reason` is the annotation `gpufleet.io/reason`, letter by letter, where the cordon is ours; a cordon that somebody
    else set has none. `gpus` are the physical ones where GPU feature discovery counts them, else the node's capacity.
    `driver_refusal` is by the labels of NVIDIA's GPU Operator.
    """
    ready = _ready(tree)
    closed = value_at(tree, "spec", "unschedulable")
    odd = closed is not None and not isinstance(closed, bool)
    ours = is_ours(tree)
    return SchedulerNode(
        name=name,
        state=_state(ready, busy, odd),
        flags=_flags(tree, ready, closed is True, ours),
        cordoned=closed is True or ours,
        reason=_annotation(tree, REASON) if ours else None,
        reason_by=_annotation(tree, REASON_BY) if ours else None,
        reason_at=_annotation(tree, REASON_AT) if ours else None,
        gpus=_gpus(tree),
        registered=text_at(tree, "status", "nodeInfo", "bootID"),
        driver_refusal=refusal(_texts(tree, "labels"), _texts(tree, "annotations")),
    )


def is_name(text: str) -> bool:
    """Whether `text` can name a node or a namespace, and so stand in a URL."""
    return _NAME.fullmatch(text) is not None


def is_ours(tree: JsonObject) -> bool:
    """Whether our taint closes the node."""
    return any(taint.get("key") == CORDON for taint in _taints(tree))


def fence_of(tree: JsonObject) -> str | None:
    """The fence that the node is in, by its taint; "" for a taint that names none."""
    return next((text_at(taint, "value") or "" for taint in _taints(tree) if taint.get("key") == FENCE), None)


def count(value: object) -> int | None:
    """A whole number of devices, as JSON or as Kubernetes' text; None for anything else (`500m`, `1k`, -1)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value < 10**6 else None
    return int(value) if isinstance(value, str) and _PLAIN_COUNT.fullmatch(value) and value.isascii() else None


def is_slice(resource: str) -> bool:
    """Whether the resource is a part of a GPU (`nvidia.com/mig-1g.10gb`, `nvidia.com/gpu.shared`)."""
    return resource.startswith(("nvidia.com/mig-", "nvidia.com/gpu."))


def _ready(tree: JsonObject) -> str:
    said = {text_at(part, "status") for part in objects_at(tree, "status", "conditions") if part.get("type") == "Ready"}
    return _READY.get(said.pop() or "", "UNKNOWN") if len(said) == 1 else "UNKNOWN"


def _state(ready: str, busy: bool, odd: bool) -> SchedulerState:
    if ready in ("NOT_READY", "NOT_RESPONDING"):
        return SchedulerState.DOWN
    if busy:
        return SchedulerState.BUSY
    return SchedulerState.IDLE if ready == "READY" and not odd else SchedulerState.UNKNOWN


def _flags(tree: JsonObject, ready: str, closed: bool, ours: bool) -> frozenset[str]:
    """READY or what is said instead, and each further condition that holds (`MEMORY_PRESSURE` …)."""
    words = {
        _word(kind)
        for part in objects_at(tree, "status", "conditions")
        if part.get("status") == "True" and (kind := text_at(part, "type")) not in (None, "Ready")
    }
    words.add(ready)
    if closed:
        words.add("SCHEDULING_DISABLED")
    if ours:
        words.add("GPUFLEET_CORDON")
    if value_at(tree, "metadata", "deletionTimestamp") is not None:
        words.add("DELETING")
    return frozenset(words)


@lru_cache(maxsize=256)
def _word(name: str) -> str:
    parts = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", name)
    return parts.strip("_").upper()[:60] or "UNKNOWN"


def _annotation(tree: JsonObject, key: str) -> str | None:
    value = value_at(tree, "metadata", "annotations", key)
    return value if isinstance(value, str) and value else None


def _taints(tree: JsonObject) -> tuple[JsonObject, ...]:
    return objects_at(tree, "spec", "taints")


def _texts(tree: JsonObject, part: str) -> dict[str, str]:
    """Labels or annotations; a value that is no text is kept as its words, so that it is not taken for absent."""
    return {str(key): str(value) for key, value in object_at(tree, "metadata", part).items()}


def _gpus(tree: JsonObject) -> int | None:
    physical = count(value_at(tree, "metadata", "labels", "nvidia.com/gpu.count"))
    if physical is not None:
        return physical
    for part in ("capacity", "allocatable"):
        told = object_at(tree, "status", part)
        if any(is_slice(key) and count(value) != 0 for key, value in told.items()):
            return None  # slices, not GPUs
        if (number := count(told.get(GPU))) is not None:
            return number
    return None


def cordon_patch(tree: JsonObject, reason: str, by: str, at: str) -> JsonObject:
    """What closes the node, in one merge patch. Annotations of others stay; a reason of ours is replaced."""
    found = value_at(tree, "metadata", "annotations", FOUND_CORDONED) == "true"
    if not is_ours(tree):
        found = value_at(tree, "spec", "unschedulable") is True
    marks = {REASON: reason, REASON_BY: by, REASON_AT: at, FOUND_CORDONED: "true" if found else None}
    spec = {"unschedulable": True, "taints": [*_others(tree, CORDON), _taint(CORDON, None)]}
    return _patch(tree, {"annotations": marks}, spec)


def uncordon_patch(tree: JsonObject) -> JsonObject | None:
    """What takes our cordon away, and nothing else; None where there is none of ours."""
    if not is_ours(tree):
        return None
    marks = dict.fromkeys((REASON, REASON_BY, REASON_AT, FOUND_CORDONED))
    spec: dict[str, object] = {"taints": _others(tree, CORDON)}
    if value_at(tree, "metadata", "annotations", FOUND_CORDONED) != "true":
        spec["unschedulable"] = None
    return _patch(tree, {"annotations": marks}, spec)


def fence_patch(tree: JsonObject, name: str | None) -> JsonObject | None:
    """What puts the node into fence `name`, or out of any; None where it is so already.

    Raises ConfigurationError for a name that Kubernetes takes for no label's value.
    """
    if name is not None and not _LABEL_VALUE.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot name a fence in Kubernetes: at most 63 letters, digits, '-', '_', '.'"
        )
    if fence_of(tree) == name and text_at(tree, "metadata", "labels", FENCE) == name:
        return None
    taints = [*_others(tree, FENCE), *([] if name is None else [_taint(FENCE, name)])]
    return _patch(tree, {"labels": {FENCE: name}}, {"taints": taints})


def _taint(key: str, value: str | None) -> JsonObject:
    return {"key": key, "effect": "NoSchedule"} | ({} if value is None else {"value": value})


def _others(tree: JsonObject, key: str) -> list[JsonObject]:
    return [taint for taint in _taints(tree) if taint.get("key") != key]


def _patch(tree: JsonObject, metadata: JsonObject, spec: JsonObject) -> JsonObject:
    """With the version that was read: a patch replaces the list of taints, and must not undo somebody's."""
    version = text_at(tree, "metadata", "resourceVersion")
    known = {} if version is None else {"resourceVersion": version}
    return {"metadata": {**metadata, **known}, "spec": spec}
