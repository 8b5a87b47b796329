"""Kubernetes as the scheduler: nodes are cordoned and tainted, jobs are the workloads that hold their pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from datetime import UTC

from adapters.kubernetes_api import KubernetesApi
from fleet.errors import ConfigurationError, JobRefused, OutcomeUnknown, SchedulerUnreachable, TransientError
from fleet.hostlist import compress
from fleet.job_consent import read_signal
from fleet.json_values import JsonObject, text_at
from fleet.kubernetes import cordon_patch, fence_of, fence_patch, is_name, node_name, read_nodes, uncordon_patch
from fleet.kubernetes_jobs import namespace_of, pods_of, read_jobs
from fleet.kubernetes_pods import Pod, held_nodes, literal_environment, read_pods, why_not_fenced
from fleet.model import Job, SchedulerNode
from fleet.ports import Clock

REQUESTED = "gpufleet.io/checkpoint-requested"
"""Annotation on a job's pods: when a checkpoint was asked for, RFC 3339 in UTC."""

REQUESTED_SIGNAL = "gpufleet.io/checkpoint-signal"
"""Annotation beside it: the signal that the job said it answers to."""

_BY = "gpufleet"
_TRIES = 5  # of one change, where others change the node at the same time
_ASKED_SINGLY = 16  # nodes; for more of them one list is cheaper
_SHOWN = 5


class KubernetesScheduler:
    """The ports Scheduler and Fences over the API server; tested on an emulated one only."""

    def __init__(self, api: KubernetesApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock

    def read_nodes(self) -> dict[str, SchedulerNode]:
        """Every node, by two lists: a node object does not say whether pods are on it.

        Raises SchedulerUnreachable, CredentialsRejected, ConfigurationError.
        """
        trees = self._api.nodes()
        if not trees:
            raise SchedulerUnreachable("the API server answered, but named no node; ask again")
        return read_nodes(trees, held_nodes(self._api.pods()))

    def read_jobs(self) -> tuple[Job, ...]:
        """Every workload whose pods hold nodes, by one list. Raises as `read_nodes`."""
        return read_jobs(read_pods(self._api.pods()), self._clock.now())

    def cordon(self, nodes: tuple[str, ...], reason: str) -> None:
        """Close the nodes: taint, `unschedulable` and reason in one patch each.

        A node that somebody else has closed stays closed after our `uncordon`, and keeps its own annotations. Nothing
        is changed where a name is unknown. Raises as `read_nodes`.
        """
        if not reason.strip():
            raise ConfigurationError("a cordon without a reason says nothing to anybody; give one")
        text = reason.encode(errors="replace").decode()
        at = self._time()
        for name, tree in self._known(nodes).items():
            self._change(name, tree, lambda seen: cordon_patch(seen, text, _BY, at))

    def uncordon(self, nodes: tuple[str, ...]) -> None:
        """Take away what `cordon` set, and nothing else: a node that a person has closed stays closed. Raises as
        `read_nodes`."""
        for name, tree in self._known(nodes).items():
            self._change(name, tree, uncordon_patch)

    def requeue(self, job: str) -> None:
        """Evict all pods of the job, so that disruption budgets are kept; its controller makes new ones.

        First every eviction is tried dry. Raises JobRefused where that meets a budget that allows none, or the job is
        gone or would not come back: nothing is changed then. Raises TransientError where a budget was used up on the
        way, OutcomeUnknown where the connection broke after the first eviction was sent, else as `read_nodes`.
        """
        pods = self._pods_of(job)
        if fixed := [pod.name for pod in pods if not pod.movable]:
            raise JobRefused(f"{_some(fixed)} of {job} would not come back, or may not be moved (docs/kubernetes.md)")
        leaving = [pod for pod in pods if pod.state != "COMPLETING"]
        for pod in leaving:
            if said := self._api.evict(pod, dry=True):
                raise JobRefused(f"{pod.name} of {job} may not be evicted now: {said}", evidence=(said,))
        for number, pod in enumerate(leaving):
            if said := self._evict(pod):
                message = f"{pod.name} of {job} may not be evicted yet, after {number} of {len(leaving)}: {said}"
                raise TransientError(message, evidence=(said,))

    def _evict(self, pod: Pod) -> str | None:
        try:
            return self._api.evict(pod, dry=False)
        except SchedulerUnreachable as error:
            raise OutcomeUnknown(f"whether {pod.name} was evicted cannot be told: {error.message}") from error

    def cancel(self, job: str) -> None:
        """Never done here: what ends a job for good is its owner object, of a kind that we need not know."""
        raise JobRefused(f"{job} is ended by deleting its owner object; ask its owner, or use kubectl")

    def signal(self, job: str, signal: str) -> None:
        """Ask by annotations on the job's pods, which the trainer or a sidecar watches: nothing else can send a
        signal into a pod without a shell in it. Raises JobRefused where the job is gone, ConfigurationError where
        `signal` is none, else as `read_nodes`."""
        name = read_signal(signal)
        if name is None:
            raise ConfigurationError(f"{signal!r} is no signal to ask for a checkpoint with; write USR1")
        marks = {REQUESTED: self._time(), REQUESTED_SIGNAL: name}
        asked = [pod for pod in self._pods_of(job) if pod.state != "COMPLETING" and self._api.annotate(pod, marks)]
        if not asked:
            raise JobRefused(f"{job} is ending: no pod is left to ask")

    def read_environment(self, job: str) -> dict[str, str] | None:
        """The plain values that the job's pods agree on; None where the job is gone. Raises as `read_nodes`."""
        trees = self._pods_beside(job)
        names = {pod.name for pod in pods_of(read_pods(trees), job)}
        if not names:
            return None
        return literal_environment(tree for tree in trees if text_at(tree, "metadata", "name") in names)

    def read_fences(self) -> dict[str, tuple[str, ...]]:
        """The nodes of every fence, by the taint `gpufleet.io/fence`. Raises as `read_nodes`."""
        found: dict[str, list[str]] = {}
        for tree in self._api.nodes():
            if name := fence_of(tree):
                found.setdefault(name, []).append(node_name(tree))
        return {name: tuple(sorted(nodes)) for name, nodes in found.items()}

    def ensure_fence(self, name: str, nodes: tuple[str, ...]) -> bool:
        """Taint and label exactly these nodes; a node leaves the fence that it was in.

        Raises ConfigurationError where pods with GPUs tolerate the taint and nothing keeps them inside (the fence
        would not hold), where a node is unknown, or for a name that no label takes; else as `read_nodes`.
        """
        trees = {node_name(tree): tree for tree in self._api.nodes()}
        _check_known(nodes, trees.keys())
        wanted: dict[str, str | None] = {place: None for place, tree in trees.items() if fence_of(tree) == name}
        wanted |= dict.fromkeys(nodes, name)
        if nodes:
            faults = [why for tree in self._api.pods(bound=False) if (why := why_not_fenced(tree, name))]
            if faults:
                raise ConfigurationError(
                    f"the fence {name} would not hold: {_some(faults)}", evidence=tuple(faults[:9])
                )
        changes = [self._change(place, trees[place], _into(fence)) for place, fence in wanted.items()]
        return any(changes)

    def _pods_of(self, job: str) -> tuple[Pod, ...]:
        pods = pods_of(read_pods(self._pods_beside(job)), job)
        if not pods:
            raise JobRefused(f"{job} holds no node any more")
        return pods

    def _pods_beside(self, job: str) -> tuple[JsonObject, ...]:
        namespace = namespace_of(job)
        return () if namespace is None else self._api.pods(namespace)

    def _known(self, names: tuple[str, ...]) -> dict[str, JsonObject]:
        if len(names) > _ASKED_SINGLY:
            trees = {node_name(tree): tree for tree in self._api.nodes()}
        else:
            asked = ((name, self._api.node(name)) for name in names if is_name(name))
            trees = {name: tree for name, tree in asked if tree is not None}
        _check_known(names, trees.keys())
        return {name: trees[name] for name in names}

    def _change(self, name: str, tree: JsonObject, patch_of: Callable[[JsonObject], JsonObject | None]) -> bool:
        """Change what was read; where others were faster, read again. True where there was something to change."""
        for _ in range(_TRIES):
            patch = patch_of(tree)
            if patch is None:
                return False
            if self._api.patch_node(name, patch):
                return True
            tree = self._known((name,))[name]
        raise SchedulerUnreachable("others change this node all the time; ask again", node=name)

    def _time(self) -> str:
        return self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _into(fence: str | None) -> Callable[[JsonObject], JsonObject | None]:
    return lambda tree: fence_patch(tree, fence)


def _check_known(names: tuple[str, ...], known: Set[str]) -> None:
    if unknown := set(names) - known:
        raise ConfigurationError(
            f"Kubernetes does not know {compress(unknown)}; compare the fleet file with `kubectl get nodes`"
        )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
