"""The traps of a drain, each by its name: what looks empty and is not, and whose cordon may be lifted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from adapters.local import Finished
from adapters.slurm import SlurmScheduler
from fleet.drain import is_down_for_a_reboot, judge_drain
from fleet.drain_reasons import DrainOwner, read_drain_reason
from fleet.errors import NodeUnreachable, SchedulerUnreachable
from fleet.findings import Action
from fleet.model import Job, SchedulerNode, SchedulerState
from fleet.slurm import read_scontrol_nodes, squeue_format
from fleet.slurm_json import read_json_jobs, read_json_nodes

JOB = Job("4711", "pretrain", "ann", "RUNNING", ("gpu1", "gpu2"), 16, 600.0, 3600.0, "", "llm", "train")


class Answers:
    """A controller host whose every command gives one answer."""

    def __init__(self, answer: Finished | None) -> None:
        self.answer = answer

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        if self.answer is None:
            raise NodeUnreachable("timed out", node="ctl")
        return self.answer

    def close(self) -> None: ...


def _empty(state: str, *jobs: Job, reason: str = "gpufleet[fw-1]: firmware") -> bool:
    record = f"NodeName=gpu1 Gres=gpu:8 State={state} Partitions=train Reason={reason} [root@2026-11-30T09:44:42]\n"
    return judge_drain("gpu1", read_scontrol_nodes(record)["gpu1"], jobs).empty


def test_a_drained_node_without_work_is_empty() -> None:
    assert _empty("IDLE+DRAIN")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Finished(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"),
        Finished(0, "", ""),
        Finished(0, squeue_format("<x>")[:9], ""),
        Finished(-9, "", ""),
    ],
    ids=["no host", "no controller", "no text", "cut off", "killed"],
)
def test_a_scheduler_that_did_not_answer_is_never_an_empty_node(answer: Finished | None) -> None:
    scheduler = SlurmScheduler(Answers(answer))
    with pytest.raises(SchedulerUnreachable):
        scheduler.read_jobs()
    with pytest.raises(SchedulerUnreachable):
        scheduler.read_nodes()


def test_a_node_that_the_scheduler_does_not_know_is_not_empty() -> None:
    assert not judge_drain("gpu1", None, ()).empty


@pytest.mark.parametrize("state", ["IDLE+COMPLETING+DRAIN", "ALLOCATED+DRAIN", "MIXED+DRAIN", "DOWN+COMPLETING+DRAIN"])
def test_a_node_that_completes_or_works_is_not_empty_though_no_job_is_listed(state: str) -> None:
    assert not _empty(state)


def test_a_job_that_completes_holds_its_node_though_the_node_reads_idle() -> None:
    assert not _empty("IDLE+DRAIN", replace(JOB, state="COMPLETING"))


@pytest.mark.parametrize("state", ["DOWN*+DRAIN", "DOWN+DRAIN", "IDLE+DRAIN+NOT_RESPONDING", "IDLE*+DRAIN"])
def test_a_node_that_cannot_be_asked_is_not_empty(state: str) -> None:
    assert not _empty(state)


@pytest.mark.parametrize("state", ["UNKNOWN+DRAIN", "IDLE+DRAIN+SOMETHING_NEW", "FUTURE+DRAIN"])
def test_a_state_that_is_not_known_is_not_empty(state: str) -> None:
    assert not _empty(state)


def test_draining_is_not_drained() -> None:
    for words in ("draining", "drng", "ALLOCATED+DRAIN"):
        assert not _empty(words)
    for words in ("drained", "drain", "IDLE+DRAIN"):
        assert _empty(words)


def test_a_drain_that_cannot_finish_names_the_job_its_owner_and_its_time() -> None:
    record = "NodeName=gpu1 Gres=gpu:8 State=ALLOCATED+DRAIN Partitions=train Reason=x [root@2026-11-30T09:44:42]\n"
    text = judge_drain("gpu1", read_scontrol_nodes(record)["gpu1"], (JOB,)).text
    assert all(part in text for part in ("4711", "ann", "RUNNING", "2 nodes", "50 min left"))


def test_of_two_jobs_both_are_named_so_that_neither_hides_the_others_deadline() -> None:
    record = "NodeName=gpu1 Gres=gpu:8 State=MIXED+DRAIN Partitions=train Reason=x [root@2026-11-30T09:44:42]\n"
    other = replace(JOB, id="4712", user="bob", limit_seconds=None)
    text = judge_drain("gpu1", read_scontrol_nodes(record)["gpu1"], (JOB, other)).text
    assert "job 4711 of ann" in text
    assert "job 4712 of bob" in text
    assert "no time limit told" in text


def test_a_job_over_64_nodes_is_one_job_whichever_node_asks() -> None:
    header = ["JOBID", *(["x"] * 11)]
    row = ["7", "RUNNING", "gpu[01-64]", "64", "0:03", "10:00", "gres:gpu:8", "llm", "train", "ann", "a", "ckpt=/x"]

    class Squeue(Answers):
        def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
            if "-O" in arguments:
                return Finished(0, "JOBID\n", "")
            mark = arguments[-1].split("%")[0]
            return Finished(0, "".join(mark + mark.join(cells) + mark + "\n" for cells in (header, row)), "")

    (job,) = SlurmScheduler(Squeue(None)).read_jobs()
    assert (len(job.nodes), job.gpus) == (64, 512)
    assert (
        judge_drain("gpu64", _cordoned("gpu64"), (job,)).text == judge_drain("gpu01", _cordoned("gpu01"), (job,)).text
    )


def _cordoned(name: str) -> SchedulerNode:
    return read_scontrol_nodes(f"NodeName={name} Gres=gpu:8 State=ALLOCATED+DRAIN Partitions=train\n")[name]


def test_a_node_that_a_person_undrained_is_theirs_again() -> None:
    node = read_scontrol_nodes("NodeName=gpu1 Gres=gpu:8 State=IDLE Partitions=train\n")["gpu1"]
    judged = judge_drain("gpu1", node, ())
    assert (judged.empty, judged.taken_back) == (False, True)


def test_a_kill_that_failed_is_slurms_own_reason_and_asks_for_a_reboot() -> None:
    why = read_drain_reason("Kill task failed", "fw-1")
    assert (why.owner, why.action) == (DrainOwner.SCHEDULER, Action.REBOOT_NODE)


def test_slurms_reason_behind_ours_is_not_overlooked() -> None:
    why = read_drain_reason("gpufleet[fw-1]: firmware; Kill task failed", "fw-1")
    assert (why.owner, why.operation, why.action) == (DrainOwner.GPUFLEET, "fw-1", Action.REBOOT_NODE)
    assert read_drain_reason("gpufleet[fw-1]: firmware; wave 2", "fw-1").action is Action.NONE


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("bad DIMM, ticket 123", DrainOwner.PERSON),
        ("gpufleet is broken here, do not touch", DrainOwner.PERSON),
        ("see gpufleet[fw-1]", DrainOwner.PERSON),
        ("gpufleet[fw-1]: firmware", DrainOwner.GPUFLEET),
        ("gpufleet[fw-2]: firmware", DrainOwner.GPUFLEET),
        ("NHC: check_hw_mem", DrainOwner.HEALTH_CHECK),
        ("slurm-operator: cordoned", DrainOwner.KUBERNETES),
        ("", DrainOwner.UNKNOWN),
    ],
)
def test_a_foreign_cordon_is_told_from_ours(text: str, owner: DrainOwner) -> None:
    assert read_drain_reason(text, "fw-1").owner is owner


def test_another_operations_cordon_is_not_this_ones() -> None:
    assert read_drain_reason("gpufleet[fw-2]: firmware", "fw-1").operation == "fw-2"
    assert "this operation" not in read_drain_reason("gpufleet[fw-2]: firmware", "fw-1").meaning


def test_a_job_that_slurm_forgot_is_no_proof_that_it_ended_well() -> None:
    gone = {"jobs": [], "errors": [{"error_number": 2017, "error": "Invalid job id specified"}]}
    assert read_json_jobs(json.dumps(gone)) == ()
    with pytest.raises(SchedulerUnreachable):
        read_json_jobs(
            json.dumps({"jobs": [], "errors": [{"error_number": 1, "error": "Zero Bytes were transmitted"}]})
        )


def test_a_drain_that_stands_only_in_the_flags_is_a_drain() -> None:
    document = {"nodes": [{"name": "gpu1", "state": "idle", "state_flags": ["DRAIN"], "reason": "Kill task failed"}]}
    node = read_json_nodes(json.dumps(document))["gpu1"]
    assert (node.cordoned, node.reason) == (True, "Kill task failed")


def test_a_node_that_slurm_closed_for_our_reboot_is_told_from_one_that_is_down_or_drained() -> None:
    def seen(state: SchedulerState, reason: str | None, cordoned: bool = False) -> SchedulerNode:
        return SchedulerNode("gpu-1", state, frozenset(), cordoned, reason, "root", None, 8)

    assert is_down_for_a_reboot(seen(SchedulerState.DOWN, "Node unexpectedly rebooted"))
    assert not is_down_for_a_reboot(seen(SchedulerState.DOWN, "Not responding"))
    assert not is_down_for_a_reboot(seen(SchedulerState.DOWN, "Node unexpectedly rebooted", cordoned=True))
    assert not is_down_for_a_reboot(seen(SchedulerState.IDLE, "Node unexpectedly rebooted"))
    assert not is_down_for_a_reboot(None)
