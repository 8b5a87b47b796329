"""Kubernetes' workloads as jobs: the pods that belong together, on all their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from fleet.kubernetes import is_name
from fleet.kubernetes_pods import Pod
from fleet.model import Job

_PLAIN = re.compile(r"[\w./:@%+-]+")
_STATES = ("RUNNING", "UNKNOWN", "CONFIGURING", "COMPLETING")


def read_jobs(pods: Iterable[Pod], now: datetime) -> tuple[Job, ...]:
    """One job for each workload whose pods hold nodes, in the order of their first pods.

    `id` is `namespace:kind:name`, with `@node` after it for a Deployment, whose pods leave one by one. `user` is the
    annotation `gpufleet.io/user`, else the namespace; `account` the namespace; `partition` Kueue's queue, else the
    namespace. `comment` holds what the annotations say, as `fleet.job_consent` reads it. `requeue` is False where a
    pod would not come back, or is marked as not to be moved.
    """
    by_job: dict[str, list[Pod]] = {}
    for pod in pods:
        by_job.setdefault(pod.job, []).append(pod)
    return tuple(_job(job, found, now) for job, found in by_job.items())


def pods_of(pods: Iterable[Pod], job: str) -> tuple[Pod, ...]:
    """The pods of one job, by its id."""
    return tuple(pod for pod in pods if pod.job == job)


def namespace_of(job: str) -> str | None:
    """The namespace in a job's id; None for a text that is no such id."""
    namespace, mark, _ = job.partition(":")
    return namespace if mark and is_name(namespace) else None


def _job(job: str, pods: list[Pod], now: datetime) -> Job:
    first = pods[0]
    gpus = [pod.gpus for pod in pods if pod.gpus is not None]
    starts = [pod.started for pod in pods if pod.started is not None]
    limits = [pod.limit_seconds for pod in pods if pod.limit_seconds is not None]
    states = {pod.state for pod in pods}
    return Job(
        id=job,
        name=first.job_name,
        user=first.user,
        state=next(state for state in _STATES if state in states),
        nodes=tuple(sorted({pod.node for pod in pods})),
        gpus=sum(gpus) if len(gpus) == len(pods) else None,
        elapsed_seconds=max(0.0, (now - min(starts)).total_seconds()) if starts else None,
        limit_seconds=min(limits) if limits else None,
        comment=_comment(pods),
        account=first.namespace,
        partition=first.queue,
        requeue=all(pod.movable for pod in pods),
    )


def _comment(pods: list[Pod]) -> str:
    """Each thing that is said, once; pods that say different things are both heard, and then neither is believed."""
    said = dict.fromkeys(pair for pod in pods for pair in pod.said)
    return ";".join(value if not key else f"{key}={_quoted(value)}" for key, value in said)


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
