"""Pod objects → the jobs that hold nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.checkpoint_readers.values import CheckpointKind
from fleet.errors import SchedulerUnreachable
from fleet.job_consent import read_job_consent, read_job_text
from fleet.kubernetes_jobs import read_jobs
from fleet.kubernetes_pods import held_nodes, literal_environment, read_pods, why_not_fenced
from fleet.model import Job
from tests.unit.kubernetes_objects import ANY_JSON, Json, owned_by, pod

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


def _jobs(*trees: Json) -> dict[str, Job]:
    return {job.id: job for job in read_jobs(read_pods(trees), NOW)}


def _job(*trees: Json) -> Job:
    (job,) = _jobs(*trees).values()
    return job


def test_the_pods_of_a_training_job_are_one_job_on_all_their_nodes() -> None:
    owner, labels = owned_by("PyTorchJob", "llama"), {"training.kubeflow.org/job-name": "llama"}
    job = _job(*(pod(f"llama-worker-{i}", f"gpu0{i}", owner=owner, labels=labels) for i in (2, 1, 3)))
    assert (job.id, job.name, job.nodes, job.gpus) == (
        "team-a:trainingjob:llama",
        "llama",
        ("gpu01", "gpu02", "gpu03"),
        24,
    )
    assert (job.user, job.account, job.partition, job.state) == ("team-a", "team-a", "team-a", "RUNNING")
    assert (job.elapsed_seconds, job.limit_seconds, job.requeue) == (3600.0, None, True)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing(phase: str) -> None:
    assert _jobs(pod(phase=phase)) == {}


def test_a_pod_that_waits_for_a_node_holds_nothing() -> None:
    assert _jobs(pod(node=None, phase="Pending")) == {}


def test_a_pod_that_has_its_node_and_still_pulls_its_image_holds_it() -> None:
    assert _job(pod(phase="Pending")).state == "CONFIGURING"


def test_a_pod_that_is_being_deleted_holds_its_node() -> None:
    assert _job(pod(deleted=True)).state == "COMPLETING"


@pytest.mark.parametrize("phase", ["Unknown", "", "Paused"])
def test_a_pod_whose_phase_says_nothing_holds_its_node(phase: str) -> None:
    assert _job(pod(phase=phase)).state == "UNKNOWN"


@pytest.mark.parametrize(
    "stays",
    [
        pod(owner=owned_by("DaemonSet", "dcgm-exporter")),
        pod(owner=owned_by("Node", "gpu01")),
        pod(annotations={"kubernetes.io/config.mirror": "abc"}),
    ],
)
def test_what_belongs_to_the_node_is_not_waited_for(stays: Json) -> None:
    assert _jobs(stays) == {}


def test_a_pod_without_gpus_is_waited_for_all_the_same() -> None:
    assert _job(pod(gpus=0)).gpus == 0


@pytest.mark.parametrize(
    ("labels", "owner", "id"),
    [
        ({}, owned_by("Job", "train"), "team-a:job:train"),
        ({"job-name": "train"}, None, "team-a:job:train"),
        ({"batch.kubernetes.io/job-name": "train"}, None, "team-a:job:train"),
        ({"job-name": "else"}, owned_by("StatefulSet", "db"), "team-a:statefulset:db"),
        ({}, owned_by("MPIJob", "nccl"), "team-a:mpijob:nccl"),
        ({"training.kubeflow.org/job-name": "nccl"}, owned_by("Job", "nccl-launcher"), "team-a:trainingjob:nccl"),
        ({"ray.io/cluster": "tune"}, owned_by("RayCluster", "tune"), "team-a:raycluster:tune"),
        ({"jobset.sigs.k8s.io/jobset-name": "big"}, owned_by("Job", "big-workers-0"), "team-a:jobset:big"),
        ({"volcano.sh/job-name": "v"}, owned_by("Job", "v"), "team-a:volcanojob:v"),
        ({"kueue.x-k8s.io/pod-group-name": "g"}, None, "team-a:podgroup:g"),
        (
            {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "3"},
            owned_by("StatefulSet", "serve-3"),
            "team-a:leaderworkerset:serve.3",
        ),
        ({"pod-template-hash": "7d9c"}, owned_by("ReplicaSet", "api-7d9c"), "team-a:deployment:api@gpu01"),
        ({}, owned_by("ReplicaSet", "api-7d9c"), "team-a:replicaset:api-7d9c@gpu01"),
        ({}, None, "team-a:pod:llama-0"),
        ({"job-name": ""}, {"kind": "Job", "name": "not-controlling"}, "team-a:pod:llama-0"),
    ],
)
def test_pods_belong_to_what_stands_on_top(labels: dict[str, str], owner: Json | None, id: str) -> None:
    assert _job(pod(labels=labels, owner=owner)).id == id


def test_workers_that_a_driver_pod_controls_are_one_job_with_it() -> None:
    driver = pod("etl-driver", "gpu01", owner=owned_by("SparkApplication", "etl"))
    worker = pod("etl-exec-1", "gpu02", owner=owned_by("Pod", "etl-driver"))
    assert _job(worker, driver).id == "team-a:sparkapplication:etl"


def test_pods_of_a_deployment_leave_node_by_node() -> None:
    labels, owner = {"pod-template-hash": "x"}, owned_by("ReplicaSet", "api-x")
    jobs = _jobs(*(pod(f"api-{i}", f"gpu0{i}", labels=labels, owner=owner) for i in (1, 2)))
    assert [job.nodes for job in jobs.values()] == [("gpu01",), ("gpu02",)]


def test_the_same_name_in_two_namespaces_is_two_jobs() -> None:
    owner = owned_by("Job", "train")
    assert len(_jobs(pod(owner=owner), pod(owner=owner, namespace="team-b"))) == 2


@pytest.mark.parametrize(
    ("tree", "requeue"),
    [
        (pod(owner=owned_by("Job", "a")), True),
        (pod(), False),
        (pod(owner=owned_by("Job", "a"), annotations={"karpenter.sh/do-not-disrupt": "true"}), False),
        (
            pod(owner=owned_by("Job", "a"), annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
            False,
        ),
    ],
)
def test_only_what_comes_back_and_may_be_moved_can_be_requeued(tree: Json, requeue: bool) -> None:
    assert _job(tree).requeue is requeue


def test_annotations_say_what_a_comment_says_in_slurm() -> None:
    annotations = {
        "gpufleet.io/checkpoint": '/data/a b;c/"x"',
        "gpufleet.io/kind": "megatron",
        "gpufleet.io/signal": "USR1",
        "gpufleet.io/notice": "30m",
        "gpufleet.io/consent": "yes",
        "gpufleet.io/user": "ada",
    }
    job = _job(pod(annotations=annotations))
    said = read_job_consent(job)
    assert (said.path, said.kind, said.signal) == ('/data/a b;c/"x"', CheckpointKind.MEGATRON, "USR1")
    assert (said.notice, said.consent, said.unknown) == (timedelta(minutes=30), True, ())
    assert job.user == "ada"


def test_a_plain_comment_is_readable() -> None:
    annotations = {"gpufleet.io/checkpoint": "/data/llama", "gpufleet.io/kind": "dcp", "gpufleet.io/signal": "USR1"}
    assert _job(pod(annotations=annotations)).comment == "ckpt=/data/llama;kind=dcp;signal=USR1"


def test_one_annotation_may_hold_it_all() -> None:
    said = read_job_consent(_job(pod(annotations={"gpufleet.io/job": "ckpt=/data/x;kind=beacon"})))
    assert (said.path, said.unknown) == ("/data/x", ())


def test_pods_of_one_job_that_say_different_things_are_not_believed() -> None:
    owner = owned_by("Job", "a")
    job = _job(
        pod("a", owner=owner, annotations={"gpufleet.io/checkpoint": "/x"}),
        pod("b", owner=owner, annotations={"gpufleet.io/checkpoint": "/y"}),
    )
    said = read_job_consent(job)
    assert said.path is None
    assert "said twice" in said.unknown[0]


@given(st.text(min_size=1).filter(lambda text: text.strip() and text.strip().isprintable()))
def test_any_folder_comes_through_the_comment(text: str) -> None:
    path = "/" + text.strip().replace("..", "_").rstrip("/\\").strip()
    job = _job(pod(annotations={"gpufleet.io/checkpoint": path, "gpufleet.io/signal": "USR1"}))
    assert read_job_text(job.comment).path == (path.rstrip("/") or None)


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}] * 2}, 8),
        ({"containers": [{}], "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}, 2),
        (
            {
                "containers": [{"resources": {"requests": {"nvidia.com/gpu": 1}}}],
                "initContainers": [{"restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            2,
        ),
        ({"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]}, None),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "all"}}}]}, None),
        ({"containers": [{}], "resourceClaims": [{"name": "gpu"}]}, None),
        ({"containers": []}, None),
    ],
)
def test_a_pods_gpus_are_counted_or_not_told(spec: Json, gpus: int | None) -> None:
    tree = pod()
    tree["spec"] = {"nodeName": "gpu01", **spec}
    assert _job(tree).gpus == gpus


def test_a_time_that_is_none_is_not_told() -> None:
    tree = pod()
    tree["status"] = {"phase": "Running", "startTime": "yesterday"}
    assert _job(tree).elapsed_seconds is None


def test_a_time_limit_is_the_pods() -> None:
    assert _job(pod(spec={"activeDeadlineSeconds": 7200})).limit_seconds == 7200.0


@pytest.mark.parametrize(
    "broken",
    [{"spec": {"nodeName": "gpu01"}}, {"metadata": {"name": "a", "namespace": "b"}, "spec": {"nodeName": ["gpu01"]}}],
)
def test_a_pod_that_cannot_be_placed_is_no_answer(broken: Json) -> None:
    with pytest.raises(SchedulerUnreachable):
        read_pods([broken])


def test_a_node_that_is_written_oddly_is_not_left_out() -> None:
    assert held_nodes([pod(), pod(node=None), pod("a", "gpu02", phase="Failed"), pod("b", "gpu03", deleted=True)]) == {
        "gpu01",
        "gpu03",
    }
    with pytest.raises(SchedulerUnreachable):
        held_nodes([pod(), pod(spec={"nodeName": 7})])


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), ANY_JSON))
def test_any_object_is_read_or_refused(tree: Json) -> None:
    try:
        pods = read_pods([tree])
    except SchedulerUnreachable:
        return
    assert read_jobs(pods, NOW) == ()


@given(st.sampled_from(["containers", "initContainers", "tolerations", "affinity", "activeDeadlineSeconds"]), ANY_JSON)
def test_any_part_of_a_pod_is_read(part: str, value: object) -> None:
    tree = pod(spec={part: value})
    assert _job(tree).nodes == ("gpu01",)
    assert literal_environment([tree]) == {}
    why_not_fenced(tree, "new")


def test_only_plain_values_of_the_environment_are_told() -> None:
    env: list[Json] = [
        {"name": "GPUFLEET_CKPT", "value": "/data/x"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "OUT", "value": "$(HOME)/x"},
        {"name": "EMPTY"},
    ]
    assert literal_environment([pod(env=env)]) == {"GPUFLEET_CKPT": "/data/x", "EMPTY": ""}


def test_a_value_that_differs_between_pods_is_not_told() -> None:
    trees = [pod(env=[{"name": "RANK", "value": str(i)}, {"name": "WORLD", "value": "2"}]) for i in range(2)]
    assert literal_environment(trees) == {"WORLD": "2"}


OURS = {"key": "gpufleet.io/fence", "operator": "Equal", "value": "new", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tree", "holds"),
    [
        (pod(), True),
        (pod(spec={"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}), True),
        (pod(spec={"tolerations": [{**OURS, "value": "old"}]}), True),
        (pod(spec={"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}), True),
        (pod(spec={"tolerations": [{"operator": "Exists"}]}), False),
        (pod(spec={"tolerations": [OURS]}), False),
        (pod(spec={"tolerations": [OURS], "nodeSelector": {"gpufleet.io/fence": "new"}}), True),
        (pod(spec={"tolerations": [{"operator": "Exists"}]}, gpus=0), True),
        (pod(spec={"tolerations": [{"operator": "Exists"}]}, owner=owned_by("DaemonSet", "dcgm")), True),
        (pod(spec={"tolerations": [{"operator": "Exists"}]}, phase="Succeeded"), True),
        (pod(spec={"tolerations": [{"operator": "Exists"}]}, phase="Pending", node=None), False),
    ],
)
def test_a_fence_holds_for_pods_that_stay_outside_or_must_stay_inside(tree: Json, holds: bool) -> None:
    assert (why_not_fenced(tree, "new") is None) is holds


def test_a_required_affinity_keeps_a_pod_inside() -> None:
    def bound(*terms: list[Json]) -> Json:
        required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return pod(spec={"tolerations": [OURS], "affinity": affinity})

    inside: Json = {"key": "gpufleet.io/fence", "operator": "In", "values": ["new"]}
    zone: Json = {"key": "zone", "operator": "In", "values": ["a"]}
    assert why_not_fenced(bound([inside, zone]), "new") is None
    assert why_not_fenced(bound([inside], [zone]), "new") is not None
    assert why_not_fenced(bound(), "new") is not None
