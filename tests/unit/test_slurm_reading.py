from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.model import SchedulerState
from fleet.slurm import (
    duration_seconds,
    gpus_in,
    read_scontrol_jobs,
    read_scontrol_nodes,
    read_sinfo,
    read_squeue,
    squeue_format,
)
from fleet.slurm_details import JobDetail, read_job_details, squeue_detail_format
from fleet.slurm_json import read_json_jobs, read_json_nodes
from fleet.slurm_state import read_state

# printed by Slurm 22.05.8 for a reason of three lines, the second of which looks like fields
ONE_LINE = (
    "NodeName=gpu0003 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPULoad=0.39 AvailableFeatures=(null) "
    "Gres=gpu:h100:8 NodeAddr=127.0.0.1 NodeHostName=gpu0003 Port=23664 Version=22.05.8 "
    "OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=1000 Sockets=8 Boards=1 State=IDLE+DRAIN "
    "ThreadsPerCore=1 Partitions=train  CfgTRES=cpu=8,mem=1000M,billing=8 AllocTRES= ExtSensorsTemp=n/s "
    "Reason=first line [root@2026-11-30T09:44:42]        second NodeName=zz State=IDLE        third\n"
)


@pytest.fixture
def slurm(shared: Path) -> Path:
    return shared / "corpus/slurm"


@pytest.mark.corpus
def test_every_state_of_the_corpus_is_read_with_its_flags_and_verdicts(slurm: Path) -> None:
    verdicts = {"yes": True, "no": False, "only": False, "unknown": None}
    for line in (slurm / "state_strings_text_public.tsv").read_text().splitlines():
        text, _, accepts, quiet = line.split("\t")
        seen = read_state(text)
        assert (text, seen.accepts_work) == (text, verdicts[accepts.split()[0].strip(";")])
        assert (text, seen.quiet) == (text, verdicts[quiet.split()[0].strip(";")])


@pytest.mark.corpus
def test_a_node_drained_only_by_a_flag_is_cordoned(slurm: Path) -> None:
    for file, name, reason in (
        ("nodes_22.05.9_drain_in_flags.json", "naboo145", "Kill task failed"),
        ("node_24.11_idle_drain.json", "cn1", "ECC memory error"),
    ):
        node = read_json_nodes((slurm / file).read_text())[name]
        assert (node.state, node.cordoned, node.reason, node.reason_by) == (SchedulerState.IDLE, True, reason, "root")


@pytest.mark.corpus
def test_gpus_are_counted_over_models_and_mps_is_none(slurm: Path) -> None:
    old = read_json_nodes((slurm / "nodes_21.08.5_v0.0.37.json").read_text())
    assert [node.gpus for node in old.values()] == [8, 6, None]
    assert [node.state for node in old.values()] == [SchedulerState.BUSY, SchedulerState.IDLE, SchedulerState.DOWN]
    assert read_json_nodes((slurm / "node_24.11_multi_gpu_types.json").read_text())["ia1"].gpus == 6


@pytest.mark.corpus
def test_a_completing_node_is_busy_though_its_state_says_idle(slurm: Path) -> None:
    node = read_json_nodes((slurm / "node_25.05_idle_completing_planned.json").read_text())["gpu1"]
    assert node.state is SchedulerState.BUSY
    assert node.flags == {"IDLE", "COMPLETING", "PLANNED"}


@pytest.mark.corpus
def test_jobs_of_four_json_versions_are_read(slurm: Path) -> None:
    (job,) = read_json_jobs((slurm / "job_24.11_gpus_multi_nodes.json").read_text())
    assert (job.id, job.nodes, job.gpus, job.user, job.limit_seconds) == ("6371", ("ia1", "ia2"), 12, "jthomas", 60)
    (job,) = read_json_jobs((slurm / "jobs_23.11.1_v0.0.40.json").read_text())
    assert (job.state, job.nodes, job.limit_seconds) == ("RUNNING", ("cma2-02",), 11520 * 60)
    pending, ended = read_json_jobs((slurm / "squeue_23.02.4_v0.0.39.json").read_text())
    assert (pending.state, pending.nodes, pending.limit_seconds) == ("PENDING", (), 7200)
    assert (ended.state, ended.nodes) == ("COMPLETED", ())
    assert read_json_jobs((slurm / "job_25.11_unfound.json").read_text()) == ()


@pytest.mark.corpus
def test_scontrols_text_is_read_in_both_shapes(slurm: Path) -> None:
    down = read_scontrol_nodes((slurm / "scontrol_node_downstar_drain_oneliner_16.05.txt").read_text())["datamover2"]
    assert (down.state, down.cordoned, down.reason) == (SchedulerState.DOWN, True, "Not responding")
    assert (down.reason_by, down.reason_at, down.gpus) == ("root", "2017-06-29T08:00:07", None)
    assert "NOT_RESPONDING" in down.flags
    (mixed,) = read_scontrol_nodes((slurm / "scontrol_node_mixed_gpu8_22.05.txt").read_text()).values()
    assert (mixed.state, mixed.cordoned, mixed.gpus, mixed.reason) == (SchedulerState.BUSY, False, 8, None)
    (job,) = read_scontrol_jobs((slurm / "scontrol_job_multi_node_24.txt").read_text())
    assert (len(job.nodes), job.gpus, job.user, job.state) == (8, 64, "test_username", "RUNNING")
    assert job.elapsed_seconds == ((2 * 24 + 5) * 60 + 32) * 60 + 24


@pytest.mark.parametrize("text", [ONE_LINE, ONE_LINE.replace("        ", "\n          ")])
def test_a_reason_that_looks_like_fields_stays_a_reason(text: str) -> None:
    nodes = read_scontrol_nodes(text)
    assert list(nodes) == ["gpu0003"]
    node = nodes["gpu0003"]
    assert (node.state, node.cordoned, node.reason_by) == (SchedulerState.IDLE, True, "root")
    assert node.reason == "first line\nsecond NodeName=zz State=IDLE\nthird"


def test_a_stamp_inside_a_reason_is_not_the_stamp() -> None:
    text = (
        ONE_LINE[: ONE_LINE.index("Reason=")] + "Reason=was [bob@2020-01-01T00:00:00] before [root@2026-11-30T09:44:42]"
    )
    node = read_scontrol_nodes(text)["gpu0003"]
    assert (node.reason, node.reason_by) == ("was [bob@2020-01-01T00:00:00] before", "root")


def test_fields_after_the_reason_are_no_part_of_it() -> None:
    node = read_scontrol_nodes(ONE_LINE.split("        second")[0] + " Comment=rack 7 Extra=x")["gpu0003"]
    assert (node.reason, node.reason_by) == ("first line", "root")


def test_a_record_cut_off_before_its_state_is_no_node() -> None:
    with pytest.raises(SchedulerUnreachable, match="cut off"):
        read_scontrol_nodes(ONE_LINE[:200])


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("IDLE*", SchedulerState.UNKNOWN),
        ("idle+drain", SchedulerState.IDLE),
        ("IDLE+COMPLETING+DRAIN", SchedulerState.BUSY),
        ("drng", SchedulerState.BUSY),
        ("drain", SchedulerState.IDLE),
        ("DOWN+DRAIN+COMPLETING", SchedulerState.BUSY),
        ("IDLE+SOMETHING_NEW", SchedulerState.UNKNOWN),
        ("ALLOCATED+SOMETHING_NEW", SchedulerState.BUSY),
        ("UNKNOWN", SchedulerState.UNKNOWN),
        ("", SchedulerState.UNKNOWN),
    ],
)
def test_a_state_is_idle_only_where_that_is_sure(words: str, state: SchedulerState) -> None:
    assert read_state(words).state is state


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:8", 8),
        ("gpu:4090:8(S:0-1)", 8),
        ("gpu:1g.10gb:7", 7),
        ("gres:gpu:8", 8),
        ("gres/gpu:h100:2", 2),
        ("cpu=1,gres/gpu=64,gres/gpu:h100=64", 64),
        ("gpu:0", 0),
        ("mps:20", None),
        ("(null)", None),
        ("", None),
    ],
)
def test_gpus_are_counted_and_never_guessed(text: str, gpus: int | None) -> None:
    assert gpus_in(text) == gpus


def test_a_duration_without_a_number_is_not_told() -> None:
    assert [duration_seconds(text) for text in ("1-00:00:01", "10:00", "UNLIMITED", "INVALID")] == [
        86401,
        600,
        None,
        None,
    ]


def _squeue(mark: str, *rows: tuple[str, ...]) -> str:
    header = "JOBID STATE NODELIST NODES TIME TIME_LIMIT TRES_PER_NODE ACCOUNT PARTITION USER NAME COMMENT"
    return "".join(mark + mark.join(row) + mark + "\n" for row in (header.split(), *rows))


def test_a_comment_with_line_breaks_and_delimiters_stays_one_field() -> None:
    comment = 'a|b\n<1> RUNNING "x" %i'
    row = ("7", "RUNNING", "gpu[1-2]", "2", "0:03", "10:00", "gres:gpu:8", "(null)", "train", "ann", "na|me", comment)
    (job,) = read_squeue(_squeue("<4f>", row), "<4f>")
    assert (job.id, job.nodes, job.gpus, job.account, job.name, job.comment) == (
        "7",
        ("gpu1", "gpu2"),
        16,
        "",
        "na|me",
        comment,
    )
    assert squeue_format("<4f>").startswith("<4f>%i<4f>%T<4f>")


@pytest.mark.parametrize("text", ["", "\n", _squeue("<4f>")[:20], _squeue("<4f>") + "<4f>7<4f>RUNNING"])
def test_an_answer_of_squeue_that_is_cut_off_is_not_no_jobs(text: str) -> None:
    with pytest.raises(SchedulerUnreachable):
        read_squeue(text, "<4f>")


def test_a_header_alone_is_no_jobs() -> None:
    assert read_squeue(_squeue("<4f>"), "<4f>") == ()


def test_gpus_asked_for_per_job_or_task_are_found_and_whether_a_job_may_be_requeued() -> None:
    widths = (24, 12, 12, 8, 200, 120, 120, 120)

    def line(*cells: str) -> str:
        return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))

    text = "\n".join(
        [
            line("JOBID", "NODES", "TASKS", "REQUEUE", "TRES_ALLOC", "TRES_PER_NODE", "TRES_PER_JOB", "TRES_PER_TASK"),
            line("1", "1", "1", "1", "cpu=2", "N/A", "gres:gpu:3", "N/A"),
            line("2", "1", "4", "0", "cpu=2", "N/A", "N/A", "gres:gpu:2"),
            line("3", "2", "4", "YES", "cpu=2,gres/gpu=5", "N/A", "N/A", "gres:gpu:2"),
            line("4", "2", "4", "?", "cpu=2", "N/A", "N/A", "N/A"),
        ]
    )
    assert read_job_details(text) == {
        "1": JobDetail(3, True),
        "2": JobDetail(8, False),
        "3": JobDetail(5, True),
        "4": JobDetail(None, None),
    }
    assert squeue_detail_format().startswith("JobArrayID:24,NumNodes:12,NumTasks:12,Requeue:8,")


def test_errors_in_a_json_answer_are_not_an_empty_fleet() -> None:
    with pytest.raises(SchedulerUnreachable, match="Unable to contact"):
        read_json_nodes(json.dumps({"nodes": [], "errors": [{"error": "Unable to contact slurm controller"}]}))
    with pytest.raises(ConfigurationError, match="cut off"):
        read_json_nodes('{"nodes": [')


def test_a_table_of_sinfo_is_read_by_its_header() -> None:
    text = (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "train*       up   infinite      2  drain gpu[1-2]\n"
        "train*       up   infinite      1   idle gpu3\n"
        "debug        up   infinite      1   idle gpu3\n"
    )
    nodes = read_sinfo(text)
    assert [(node.name, node.cordoned) for node in nodes.values()] == [("gpu1", True), ("gpu2", True), ("gpu3", False)]


def test_1250_nodes_are_read_within_the_budget_of_cpu() -> None:
    text = "".join(ONE_LINE.replace("gpu0003", f"gpu{index:04}") for index in range(1250))
    start = time.process_time()
    assert len(read_scontrol_nodes(text)) == 1250
    assert time.process_time() - start < 0.12  # 30 ms here; four times that on a slow, busy machine
