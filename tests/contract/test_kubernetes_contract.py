"""What a real and a simulated Slurm pass, on an emulated Kubernetes: the very same tests, less those of Slurm's own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from adapters.clock import SystemClock
from adapters.kubernetes import KubernetesScheduler
from adapters.kubernetes_api import KubernetesApi
from fleet.kubernetes import read_node
from fleet.ports import Scheduler
from tests.contract import test_slurm_contract as suite
from tests.contract.kubernetes_emulated import NODES, PODS, ApiServer, EmulatedCluster
from tests.unit.kubernetes_objects import node, owned_by, pod

NAMES = tuple(f"gpu{number:02d}" for number in range(1, 9))


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("-N", type=int, default=1)
    parser.add_argument("-J", default="")
    parser.add_argument("-t", type=int)
    parser.add_argument("--gres", default="gpu:0")
    parser.add_argument("--comment", default="")
    parser.add_argument("--requeue", action="store_true")
    parser.add_argument("--no-requeue", action="store_true")
    return parser


@dataclass
class _Bench:
    """Takes the suite's `sbatch` options, and puts a Job's pods onto open nodes, as a scheduler and a kubelet would."""

    server: ApiServer
    scheduler: Scheduler
    pods: dict[str, list[str]] = field(default_factory=dict)

    @property
    def node_names(self) -> tuple[str, ...]:
        return NAMES

    def submit(self, script: str, *options: str) -> str:
        asked = _options().parse_args(options)
        name = asked.J or f"job-{len(self.pods)}"
        job = f"team-a:job:{name}"
        annotations = {"gpufleet.io/user": os.environ.get("USER") or "root"}
        if asked.comment:
            annotations["gpufleet.io/job"] = asked.comment
        if asked.no_requeue:
            annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false"
        places: list[str | None] = [*self._open()]
        spec: dict[str, object] = {} if asked.t is None else {"activeDeadlineSeconds": asked.t * 60}
        names = self.pods[job] = [f"p{len(self.pods)}-{number}" for number in range(asked.N)]
        for number, pod_name in enumerate(names):
            place = places[number] if len(places) >= asked.N else None
            tree = pod(
                pod_name,
                place,
                phase="Pending" if place is None else "Running",
                gpus=asked.gres.removeprefix("gpu:"),
                owner=owned_by("Job", name),
                labels={"kueue.x-k8s.io/queue-name": "train"},
                annotations=annotations,
                spec=spec,
            )
            self.server.store(PODS, tree)
        return job

    def _open(self) -> list[str]:
        seen = {name: read_node(name, tree, False) for name, tree in zip(NAMES, self.server.trees(NODES), strict=True)}
        return [name for name, reading in seen.items() if not reading.cordoned]

    def cancel(self, job: str) -> None:
        for name in self.pods.pop(job, []):
            self.server.objects[PODS, "team-a", name].delete()


@pytest.fixture(scope="module")
def shared_bench() -> Iterator[_Bench]:
    with EmulatedCluster() as cluster:
        for name in NAMES:
            cluster.server.store(NODES, node(name))
        yield _Bench(cluster.server, KubernetesScheduler(KubernetesApi.at(cluster.url), SystemClock()))


def _same(*names: str) -> dict[str, object]:
    return {name: getattr(suite.TestSlurm, name) for name in names}


TestKubernetes = type(
    "TestKubernetes",
    (),
    _same(
        "test_every_node_is_read_open_and_with_its_gpus",
        "test_an_empty_fleet_has_no_jobs",
        "test_a_job_over_several_nodes_is_one_job_with_all_its_nodes_and_gpus",
        "test_a_pending_job_holds_no_node_and_is_not_listed",
        "test_a_cordoned_node_keeps_its_job_and_is_empty_only_after_it",
        "test_a_cordon_closes_these_nodes_and_no_other",
        "test_a_reason_is_kept_letter_by_letter_with_who_set_it",
        "test_no_job_starts_on_a_cordoned_node",
        "test_an_uncordoned_node_loses_its_reason_and_becomes_idle",
        "test_a_node_that_is_open_already_may_be_uncordoned",
        "test_a_cordon_over_a_cordon_replaces_the_reason",
        "test_an_unknown_node_is_named",
        "test_a_job_says_whether_it_may_be_requeued",
        "test_a_job_that_has_ended_is_not_run_a_second_time",
        "test_a_signal_that_is_none_is_an_error_of_the_configuration",
    ),
)
bench = suite.bench
