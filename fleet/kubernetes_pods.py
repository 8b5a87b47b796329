"""Kubernetes' pod objects as plain JSON: which of them hold a node, what they belong to, and what they say.

Sources: the API reference of Kubernetes 1.22 to 1.34 (core/v1 Pod), `kubectl drain` (what a drain does not wait for:
pods of a DaemonSet and static pods), the labels that the makers of workloads document (Kubeflow's training operator,
JobSet, LeaderWorkerSet, KubeRay, Volcano, Kueue).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from fleet.errors import SchedulerUnreachable
from fleet.json_values import JsonObject, number_at, object_at, objects_at, text_at, value_at
from fleet.kubernetes import FENCE, GPU, count, is_slice

SAID = "gpufleet.io/"
"""Prefix of the annotations in which a pod says what its job says in Slurm's comment."""

SAID_KEYS = {
    "checkpoint": "ckpt",
    "kind": "kind",
    "signal": "signal",
    "notice": "notice",
    "consent": "consent",
    "interval": "interval",
    "requeue": "requeue",
}
"""Annotation `gpufleet.io/KEY` → the key that `fleet.job_consent` reads."""

_GROUP_LABELS = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset"),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset"),
    ("training.kubeflow.org/job-name", "trainingjob"),
    ("ray.io/cluster", "raycluster"),
    ("volcano.sh/job-name", "volcanojob"),
    ("kueue.x-k8s.io/pod-group-name", "podgroup"),
)
_JOB_LABELS = ("batch.kubernetes.io/job-name", "job-name")
_KEPT = (
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
)
_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that holds its node. `job` is the id of what it belongs to, `job_name` that one's name.

    `state`: RUNNING, CONFIGURING (bound, not yet running), COMPLETING (being deleted), UNKNOWN. `gpus` None: not told.
    `movable`: a controller puts another pod in its place, and nobody forbids that. `said`: annotations, in order.
    """

    namespace: str
    name: str
    uid: str
    node: str
    state: str
    job: str
    job_name: str
    gpus: int | None
    started: datetime | None
    limit_seconds: float | None
    user: str
    queue: str
    movable: bool
    said: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Owner:
    kind: str  # lower case; "pod" for a pod that nobody controls
    name: str
    controlled: bool


def read_pods(trees: Iterable[JsonObject]) -> tuple[Pod, ...]:
    """The pods that hold a node, in order: bound to it, not finished, of no DaemonSet, and not static.

    A pod that is being deleted holds its node until it is gone; one whose phase is not known holds it. Raises
    SchedulerUnreachable where an object has no name, namespace or legible node: it must not be taken for no pod.
    """
    pods = [_read_pod(tree) for tree in trees if _holds(tree)]
    by_name = {f"{pod.namespace}:pod:{pod.name}": pod for pod in pods}
    # a driver pod may control its workers, and belong to something itself
    tops = ((pod, by_name.get(pod.job, pod)) for pod in pods)
    return tuple(pod if top is pod else replace(pod, job=top.job, job_name=top.job_name) for pod, top in tops)


def held_nodes(trees: Iterable[JsonObject]) -> frozenset[str]:
    """The nodes that pods hold; for less work than reading the pods. Raises as `read_pods`."""
    return frozenset(_place(tree) for tree in trees if _holds(tree))


def _place(tree: JsonObject) -> str:
    node = text_at(tree, "spec", "nodeName")
    if node is None:
        raise SchedulerUnreachable("the API server lists a pod whose node has no legible name; ask again")
    return node


def _holds(tree: JsonObject) -> bool:
    node = value_at(tree, "spec", "nodeName")
    if node is None or node == "":
        return False
    if value_at(tree, "status", "phase") in _FINISHED:
        return False
    return not _stays(tree)


def _stays(tree: JsonObject) -> bool:
    """Whether a drain leaves the pod where it is: it belongs to the node, as a DaemonSet's or a static one."""
    controller = _controller(tree)
    kind = text_at(controller, "kind")
    return kind in ("DaemonSet", "Node") or "kubernetes.io/config.mirror" in object_at(tree, "metadata", "annotations")


def _controller(tree: JsonObject) -> JsonObject:
    owners = objects_at(tree, "metadata", "ownerReferences")
    return next((owner for owner in owners if owner.get("controller") is True), {})


def _read_pod(tree: JsonObject) -> Pod:
    node, name, namespace = _place(tree), text_at(tree, "metadata", "name"), text_at(tree, "metadata", "namespace")
    if name is None or namespace is None:
        raise SchedulerUnreachable("the API server lists a pod without its name or namespace; ask again")
    owner = _owner(tree, name)
    annotations = object_at(tree, "metadata", "annotations")
    # the pods of a Deployment do not need each other: a drain moves only those that are in its way
    place = f"@{node}" if owner.kind in ("deployment", "replicaset") else ""
    return Pod(
        namespace=namespace,
        name=name,
        uid=text_at(tree, "metadata", "uid") or "",
        node=node,
        state=_state(tree),
        job=f"{namespace}:{owner.kind}:{owner.name}{place}",
        job_name=owner.name,
        gpus=_gpus(tree),
        started=read_time(text_at(tree, "status", "startTime")),
        limit_seconds=number_at(tree, "spec", "activeDeadlineSeconds"),
        user=text_at(annotations, SAID + "user") or namespace,
        queue=text_at(tree, "metadata", "labels", "kueue.x-k8s.io/queue-name") or namespace,
        movable=owner.controlled and not any(annotations.get(key) == value for key, value in _KEPT),
        said=_said(annotations),
    )


def _owner(tree: JsonObject, name: str) -> _Owner:
    """The workload on top, as far as the pod itself tells: a label of its maker, else what controls it."""
    labels = object_at(tree, "metadata", "labels")
    controller = _controller(tree)
    kind, above = text_at(controller, "kind"), text_at(controller, "name")
    controlled = kind is not None and above is not None
    for label, group in _GROUP_LABELS:
        if label in labels and (found := text_at(labels, label)) is not None:
            part = text_at(labels, "leaderworkerset.sigs.k8s.io/group-index") if group == "leaderworkerset" else None
            return _Owner(group, found if part is None else f"{found}.{part}", controlled)
    if kind is None or above is None:
        job = next((found for label in _JOB_LABELS if (found := text_at(labels, label)) is not None), None)
        return _Owner("pod", name, False) if job is None else _Owner("job", job, False)
    ending = f"-{text_at(labels, 'pod-template-hash')}"
    if kind == "ReplicaSet" and above.endswith(ending):
        return _Owner("deployment", above.removesuffix(ending), True)
    return _Owner(kind.casefold(), above, True)


def _state(tree: JsonObject) -> str:
    if value_at(tree, "metadata", "deletionTimestamp") is not None:
        return "COMPLETING"
    phase = text_at(tree, "status", "phase")
    return {"Running": "RUNNING", "Pending": "CONFIGURING"}.get(phase or "", "UNKNOWN")


def _gpus(tree: JsonObject) -> int | None:
    """GPUs that the scheduler set aside: those of all containers that run side by side, or more for one before them."""
    before = objects_at(tree, "spec", "initContainers")
    beside = [part for part in before if part.get("restartPolicy") == "Always"]
    main = [_container_gpus(part) for part in (*objects_at(tree, "spec", "containers"), *beside)]
    first = [_container_gpus(part) for part in before if part not in beside]
    known = [number for number in (*main, *first) if number is not None]
    if len(known) < len(main) + len(first) or not main:
        return None
    total = max(sum(known[: len(main)]), *known[len(main) :], 0)
    claimed = value_at(tree, "spec", "resourceClaims")  # devices that no count tells
    return None if claimed and not total else total


def _container_gpus(container: JsonObject) -> int | None:
    asked = {**object_at(container, "resources", "requests"), **object_at(container, "resources", "limits")}
    if any(is_slice(key) and count(value) != 0 for key, value in asked.items()):
        return None
    return count(asked.get(GPU, 0))


def _said(annotations: JsonObject) -> tuple[tuple[str, str], ...]:
    if not any(name.startswith(SAID) for name in annotations):
        return ()
    found = ((key, text_at(annotations, SAID + name)) for name, key in (("job", ""), *SAID_KEYS.items()))
    return tuple((key, value) for key, value in found if value is not None)


def read_time(text: str | None) -> datetime | None:
    """Kubernetes' RFC 3339 time; None where it is none, or names no zone."""
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def literal_environment(trees: Iterable[JsonObject]) -> dict[str, str]:
    """What the pods' containers are given as plain values; a name that has two different ones is left out.

    Values from a ConfigMap, a Secret or a field, and such with `$(NAME)` in them, are not told by the pod.
    """
    found: dict[str, str | None] = {}
    for tree in trees:
        for container in objects_at(tree, "spec", "containers"):
            for entry in objects_at(container, "env"):
                name, value = entry.get("name"), entry.get("value", "")
                if isinstance(name, str) and name:
                    literal = isinstance(value, str) and "valueFrom" not in entry and "$(" not in value
                    told = str(value) if literal else None
                    found[name] = told if found.setdefault(name, told) == told else None
    return {name: value for name, value in found.items() if value is not None}


def why_not_fenced(tree: JsonObject, name: str) -> str | None:
    """Why fence `name` does not hold for this pod, None where it does.

    It holds for a pod that does not tolerate the fence's taint, and for one that may run inside only. Finished pods,
    pods without GPUs and those that belong to their node are not asked.
    """
    if value_at(tree, "status", "phase") in _FINISHED or _stays(tree) or _gpus(tree) == 0:
        return None
    if not any(_tolerates(part, name) for part in objects_at(tree, "spec", "tolerations")):
        return None
    if text_at(tree, "spec", "nodeSelector", FENCE) == name or _bound_by_affinity(tree, name):
        return None
    who = f"{text_at(tree, 'metadata', 'namespace')}/{text_at(tree, 'metadata', 'name')}"
    return f"pod {who} tolerates the taint {FENCE}={name}, and nothing keeps it inside"


def _tolerates(toleration: JsonObject, name: str) -> bool:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if toleration.get("effect") not in (None, "", "NoSchedule") or key not in ("", FENCE):
        return False
    return operator == "Exists" or (key == FENCE and toleration.get("value") == name)


def _bound_by_affinity(tree: JsonObject, name: str) -> bool:
    wanted = object_at(tree, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    terms = objects_at(wanted, "nodeSelectorTerms")
    return bool(terms) and all(
        any(
            part.get("key") == FENCE and part.get("operator") == "In" and value_at(part, "values") == [name]
            for part in objects_at(term, "matchExpressions")
        )
        for term in terms
    )
