"""The Kubernetes adapter on an emulated API server: what it changes, what it leaves, and what it makes of refusals."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import aiohttp.web
import kmock
import pytest

from adapters.kubernetes import REQUESTED, REQUESTED_SIGNAL, KubernetesScheduler
from adapters.kubernetes_api import KubernetesApi
from fleet.errors import ConfigurationError, JobRefused, OutcomeUnknown, SchedulerUnreachable, TransientError
from fleet.json_values import object_at, text_at, value_at
from fleet.kubernetes import FENCE
from fleet.kubernetes_pods import read_pods
from fleet.model import SchedulerState
from tests.contract.kubernetes_emulated import NODES, PODS, ApiServer, EmulatedCluster
from tests.unit.kubernetes_objects import Json, node, owned_by, pod
from tests.unit.ledger_tools import FakeClock

TRAIN = "team-a:job:train"
EVERYTHING: list[Json] = [{"operator": "Exists"}]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmulatedCluster]:
    with EmulatedCluster() as running:
        yield running


@pytest.fixture
def server(cluster: EmulatedCluster) -> ApiServer:
    """Four open nodes, no pods."""
    cluster.server.reset()
    for number in range(1, 5):
        cluster.server.store(NODES, node(f"gpu0{number}"))
    return cluster.server


@pytest.fixture
def api(cluster: EmulatedCluster, server: ApiServer) -> KubernetesApi:
    return KubernetesApi.at(cluster.url)


@pytest.fixture
def kubernetes(api: KubernetesApi) -> KubernetesScheduler:
    return KubernetesScheduler(api, FakeClock())


def _train(server: ApiServer, count: int = 2, env: list[Json] | None = None) -> None:
    for number in range(1, count + 1):
        server.store(PODS, pod(f"train-{number}", f"gpu0{number}", owner=owned_by("Job", "train"), env=env))


def _node(server: ApiServer, name: str) -> Json:
    return next(tree for tree in server.trees(NODES) if text_at(tree, "metadata", "name") == name)


def _pods(server: ApiServer) -> list[str | None]:
    return [text_at(tree, "metadata", "name") for tree in server.trees(PODS)]


def test_all_pages_of_a_list_are_read(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    for number in range(1100):
        server.store(PODS, pod(f"p{number}", "gpu01", owner=owned_by("Job", f"j{number}")))
    assert len(kubernetes.read_jobs()) == 1100
    assert len([path for path in server.asked if "limit=500" in path]) == 3


def test_a_look_is_three_lists_however_many_nodes_there_are(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    _train(server)
    kubernetes.read_nodes()
    kubernetes.read_jobs()
    assert [path.split("?")[0] for path in server.asked] == [
        "GET /api/v1/nodes",
        "GET /api/v1/pods",
        "GET /api/v1/pods",
    ]
    assert "status.phase!=Failed,status.phase!=Succeeded,spec.nodeName!=" in unquote(server.asked[-1])


def test_nodes_with_pods_are_busy(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    _train(server)
    seen = kubernetes.read_nodes()
    assert {name for name, found in seen.items() if found.state is SchedulerState.BUSY} == {"gpu01", "gpu02"}


def test_a_cluster_without_nodes_is_no_fleet_of_none(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.reset()
    with pytest.raises(SchedulerUnreachable, match="named no node"):
        kubernetes.read_nodes()


def test_a_cordon_is_one_patch(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    kubernetes.cordon(("gpu01",), "gpufleet[op-1]")
    assert [path for path in server.asked if path.startswith("PATCH")] == ["PATCH /api/v1/nodes/gpu01"]
    seen = kubernetes.read_nodes()["gpu01"]
    assert (seen.reason_by, seen.reason_at) == ("gpufleet", "2026-11-30T12:00:00Z")


def test_a_change_by_others_at_the_same_moment_is_kept(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    others: Json = {"key": "bad-dimm", "effect": "NoSchedule"}

    def once(name: str) -> None:
        server.before_patch = lambda _: None
        server.store(NODES, node(name, taints=[others]))

    server.before_patch = once
    kubernetes.cordon(("gpu01",), "x")
    taints = value_at(_node(server, "gpu01"), "spec", "taints")
    assert taints == [others, {"key": "gpufleet.io/cordon", "effect": "NoSchedule"}]


def test_a_node_that_never_holds_still_is_given_up(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.before_patch = lambda name: server.store(NODES, node(name))
    with pytest.raises(SchedulerUnreachable, match="gpu01: others change this node"):
        kubernetes.cordon(("gpu01",), "x")


def test_nothing_is_changed_where_a_node_is_unknown(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    for names in (("gpu01", "gpu8"), ("gpu01", "gpu8", "../pods"), tuple(f"gpu0{n}" for n in range(1, 5)) * 5 + ("x",)):
        with pytest.raises(ConfigurationError, match="does not know"):
            kubernetes.cordon(names, "x")
    assert not any(seen.cordoned for seen in kubernetes.read_nodes().values())
    assert not any(path.startswith("PATCH") or "pods" in path.split("?")[0] for path in server.asked[:-2])


def test_a_persons_cordon_outlives_ours(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.store(NODES, node("gpu01", unschedulable=True, annotations={"ticket": "1234"}))
    kubernetes.cordon(("gpu01", "gpu02"), "ours")
    kubernetes.uncordon(("gpu01", "gpu02"))
    seen = kubernetes.read_nodes()
    assert (seen["gpu01"].cordoned, seen["gpu01"].reason, seen["gpu02"].cordoned) == (True, None, False)
    assert object_at(_node(server, "gpu01"), "metadata", "annotations") == {"ticket": "1234"}


def test_an_open_node_is_not_touched_by_an_uncordon(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.store(NODES, node("gpu01", unschedulable=True))
    kubernetes.uncordon(("gpu01", "gpu02"))
    assert not any(path.startswith("PATCH") for path in server.asked)


def test_a_cordon_needs_a_reason(kubernetes: KubernetesScheduler) -> None:
    with pytest.raises(ConfigurationError, match="without a reason"):
        kubernetes.cordon(("gpu01",), " ")


def test_a_requeue_evicts_every_pod_of_the_job_and_no_other(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    _train(server)
    server.store(PODS, pod("other", "gpu03", owner=owned_by("Job", "other")))
    kubernetes.requeue(TRAIN)
    assert _pods(server) == ["other"]


def test_a_budget_that_allows_none_refuses_before_anything_is_evicted(
    server: ApiServer, kubernetes: KubernetesScheduler
) -> None:
    _train(server)
    server.budgets["train-pdb"] = 0
    with pytest.raises(JobRefused, match="disruption budget train-pdb"):
        kubernetes.requeue(TRAIN)
    assert len(_pods(server)) == 2


def test_a_budget_that_is_used_up_on_the_way_is_said_and_asked_again(
    server: ApiServer, kubernetes: KubernetesScheduler
) -> None:
    _train(server)
    server.budgets["train-pdb"] = 1
    with pytest.raises(TransientError, match=r"after 1 of 2: .*train-pdb"):
        kubernetes.requeue(TRAIN)
    server.budgets["train-pdb"] = 1
    kubernetes.requeue(TRAIN)
    assert _pods(server) == []


def test_a_pod_under_two_budgets_is_refused_in_the_servers_words(
    server: ApiServer, kubernetes: KubernetesScheduler
) -> None:
    _train(server)
    said = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

    def broken(request: kmock.Request) -> aiohttp.web.Response | None:
        return aiohttp.web.json_response({"message": said}, status=500) if request.subresource == "eviction" else None

    server.broken = broken
    with pytest.raises(JobRefused, match="more than one"):
        kubernetes.requeue(TRAIN)


def test_an_eviction_without_an_answer_has_an_unknown_outcome(
    server: ApiServer, kubernetes: KubernetesScheduler
) -> None:
    _train(server)

    def broken(request: kmock.Request) -> aiohttp.web.Response | None:
        real = request.subresource == "eviction" and not request.params.get("dryRun")
        return aiohttp.web.Response(status=504) if real else None

    server.broken = broken
    with pytest.raises(OutcomeUnknown, match="train-1"):
        kubernetes.requeue(TRAIN)


def test_a_pod_that_would_not_come_back_is_not_evicted(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.store(PODS, pod("alone", "gpu01"))
    with pytest.raises(JobRefused, match="alone of team-a:pod:alone would not come back"):
        kubernetes.requeue("team-a:pod:alone")
    assert _pods(server) == ["alone"]


def test_a_new_pod_of_the_same_name_is_not_evicted(server: ApiServer, api: KubernetesApi) -> None:
    _train(server, 1)
    (old,) = read_pods(api.pods())
    new = pod("train-1", "gpu01", owner=owned_by("Job", "train"))
    object_at(new, "metadata")["uid"] = "another"  # type: ignore[index]
    server.store(PODS, new)
    assert api.evict(old, dry=False) is None
    assert not api.annotate(old, {"x": "y"})
    assert _pods(server) == ["train-1"]


def test_a_job_that_ends_already_is_not_evicted_again(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.store(PODS, pod("train-1", "gpu01", owner=owned_by("Job", "train"), deleted=True))
    kubernetes.requeue(TRAIN)
    assert _pods(server) == ["train-1"]


@pytest.mark.parametrize("job", ["7777", "", "--all", "team-a:job:gone", "../nodes:a:b", "a b:c:d", ":x:y"])
def test_a_job_that_is_not_there_is_refused(server: ApiServer, kubernetes: KubernetesScheduler, job: str) -> None:
    _train(server)
    for ask in (kubernetes.requeue, kubernetes.cancel, lambda name: kubernetes.signal(name, "USR1")):
        with pytest.raises(JobRefused):
            ask(job)
    assert kubernetes.read_environment(job) is None
    assert len(_pods(server)) == 2


def test_a_checkpoint_is_asked_for_on_every_pod(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    _train(server)
    kubernetes.signal(TRAIN, "SIGUSR1")
    marks = [object_at(tree, "metadata", "annotations") for tree in server.trees(PODS)]
    assert marks == [{REQUESTED: "2026-11-30T12:00:00Z", REQUESTED_SIGNAL: "USR1"}] * 2


def test_a_job_that_is_ending_cannot_be_asked(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.store(PODS, pod("train-1", "gpu01", owner=owned_by("Job", "train"), deleted=True))
    with pytest.raises(JobRefused, match="no pod is left"):
        kubernetes.signal(TRAIN, "USR1")


def test_the_environment_is_what_the_jobs_pods_agree_on(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.store(PODS, pod("other", "gpu02", env=[{"name": "GPUFLEET_CKPT", "value": "/elsewhere"}]))
    _train(server, env=[{"name": "GPUFLEET_CKPT", "value": "/data/x"}])
    assert kubernetes.read_environment(TRAIN) == {"GPUFLEET_CKPT": "/data/x"}


def test_a_job_is_never_ended_for_good(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    _train(server)
    with pytest.raises(JobRefused, match="its owner"):
        kubernetes.cancel(TRAIN)
    assert len(_pods(server)) == 2


def test_a_fence_holds_exactly_its_nodes_and_goes_without_any(
    server: ApiServer, kubernetes: KubernetesScheduler
) -> None:
    assert kubernetes.read_fences() == {}
    assert kubernetes.ensure_fence("new", ("gpu02", "gpu01"))
    assert not kubernetes.ensure_fence("new", ("gpu01", "gpu02"))
    assert kubernetes.ensure_fence("new", ("gpu02", "gpu03"))
    assert kubernetes.ensure_fence("other", ("gpu04",))
    assert kubernetes.read_fences() == {"new": ("gpu02", "gpu03"), "other": ("gpu04",)}
    assert object_at(_node(server, "gpu03"), "metadata", "labels")[FENCE] == "new"
    assert kubernetes.ensure_fence("new", ())
    assert not kubernetes.ensure_fence("new", ())
    assert kubernetes.read_fences() == {"other": ("gpu04",)}
    assert not any(seen.cordoned for seen in kubernetes.read_nodes().values())


def test_a_fence_that_would_not_hold_is_not_put_up(server: ApiServer, kubernetes: KubernetesScheduler) -> None:
    server.store(PODS, pod("anywhere", None, phase="Pending", spec={"tolerations": EVERYTHING}))
    with pytest.raises(ConfigurationError, match="would not hold: pod team-a/anywhere tolerates"):
        kubernetes.ensure_fence("new", ("gpu01",))
    assert kubernetes.read_fences() == {}
    assert not kubernetes.ensure_fence("new", ())


def test_a_fence_of_unknown_nodes_is_not_put_up(kubernetes: KubernetesScheduler) -> None:
    with pytest.raises(ConfigurationError, match="does not know gpu9;"):
        kubernetes.ensure_fence("new", ("gpu01", "gpu9"))
    assert kubernetes.read_fences() == {}
