"""The simulated Slurm against a real one: the same commands, the same words, the same exit codes."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from adapters.slurm import SlurmScheduler
from simulator.slurm import Reply
from tests.contract.slurm_bench import SlurmBench, eventually
from tests.contract.slurm_simulated import NODES, SimulatedBench, SimulatedHost, SimulatedSlurm
from tests.contract.test_slurm_contract import TestSlurm as AdapterSuite
from tests.real.slurm import RealSlurm, missing_parts


class Slurm(Protocol):
    """Something that runs Slurm's commands; nodes are gpu0001 to gpu0008."""

    def run(self, *words: str, stdin: str = "") -> Reply: ...

    def lose(self, node: str) -> None:
        """Its slurmd is gone."""
        ...


class TestAdapterOnTheSimulator(AdapterSuite):
    """What tasks rely on holds on the simulator too."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> SlurmBench:
        slurm = SimulatedSlurm(tmp_path)
        host = SimulatedHost(slurm)
        return SimulatedBench(slurm, SlurmScheduler(host), host)


class _RealShell:
    def __init__(self, slurm: RealSlurm) -> None:
        self._slurm = slurm

    def run(self, *words: str, stdin: str = "") -> Reply:
        done = subprocess.run(
            words, env=self._slurm.environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        return Reply(done.returncode, done.stdout, done.stderr)

    def lose(self, node: str) -> None:
        self._slurm.stop_daemon(node)


@contextmanager
def _simulated() -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory() as folder:
        yield SimulatedSlurm(Path(folder))


@contextmanager
def _real() -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as folder, RealSlurm(Path(folder), NODES) as slurm:
        yield _RealShell(slurm)


_SKIP = pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or "")


@pytest.fixture(
    scope="module",
    params=[pytest.param(_simulated, id="simulated"), pytest.param(_real, id="real", marks=[pytest.mark.slurm, _SKIP])],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    start: Callable[[], AbstractContextManager[Slurm]] = request.param
    with start() as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm) -> Iterator[Slurm]:
    """The module's Slurm, open and empty before and after each test."""
    yield cluster
    cluster.run("scancel", "--user=root")
    eventually(lambda: cluster.run("squeue", "-h").stdout == "")
    cluster.run("scontrol", "update", "NodeName=gpu[0001-0007]", "State=IDLE")
    eventually(lambda: cluster.run("sinfo", "-h", "-n", "gpu[0001-0007]", "-o", "%T").stdout == "idle\n")


def state(slurm: Slurm, node: str = "gpu0001") -> str:
    return slurm.run("scontrol", "show", "node", "-o", node).stdout.split(" State=")[1].split()[0]


def start(slurm: Slurm, *options: str, script: str = "sleep 300") -> str:
    words = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options)
    reply = slurm.run(*words, stdin=f"#!/bin/sh\n{script}\n")
    assert reply.code == 0, reply
    job = reply.stdout.strip()
    eventually(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING")
    return job


# Each: a command, its exit code, its output, its error output; the same on slurm-wlm 22.05.8.
ANSWERS = [
    ("scontrol --version", 0, "slurm-wlm 22.05.8\n", ""),
    ("sinfo --version", 0, "slurm-wlm 22.05.8\n", ""),
    ("scontrol show node nope", 1, "Node nope not found\n", ""),
    ("scontrol show job", 0, "No jobs in the system\n", ""),
    ("scontrol show job 7777", 1, "", "slurm_load_jobs error: Invalid job id specified\n"),
    ("scontrol requeue 7777", 1, "", "Invalid job id specified for job 7777\n"),
    ("scontrol update jobid=7777 comment=x", 1, "", "Invalid job id specified for job 7777\n"),
    ("scontrol update NodeName=gpu0001", 1, "", "No changes specified\n"),
    ("scontrol update", 1, "", "too few arguments for update keyword\n"),
    ("scontrol foo", 1, "", "invalid keyword: foo\n"),
    ("scontrol show hostnames gpu[0001-0003,0007]", 0, "gpu0001\ngpu0002\ngpu0003\ngpu0007\n", ""),
    ("scontrol show hostlist gpu0001,gpu0002,gpu0004", 0, "gpu[0001-0002,0004]\n", ""),
    (
        "scontrol update NodeName=gpu0001 State=DRAIN",
        1,
        "",
        "You must specify a reason when DOWNING or DRAINING a node. Request denied\n",
    ),
    (
        "scontrol update NodeName=nope State=DRAIN Reason=x",
        1,
        "",
        "slurm_update error: Invalid node name specified\n",
    ),
    ("scontrol update NodeName=gpu0001 State=RESUME", 1, "", "slurm_update error: Invalid node state specified\n"),
    ("scontrol update NodeName=gpu0001 State=UNDRAIN", 0, "", ""),
    (
        "scontrol update NodeName=gpu0001 State=FOO Reason=x",
        1,
        "",
        "Invalid input: State=FOO\nRequest aborted\n"
        "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n"
        "Not all states are valid given a node's prior state\n",
    ),
    ("squeue -j 7777", 1, "", "slurm_load_jobs error: Invalid job id specified\n"),
    ("squeue -w nope", 1, "", "squeue: error: Invalid node name nope\n"),
    ("squeue -h", 0, "", ""),
    ("squeue", 0, "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n", ""),
    ("scancel 7777", 0, "", ""),
    ("scancel", 1, "", "scancel: error: No job identification provided\n"),
    ("scancel --signal=FOO 7777", 1, "", "Unknown job signal: FOO\n"),
    ("sinfo -R", 0, "REASON               USER      TIMESTAMP           NODELIST\n", ""),
    ("sinfo -p nope", 0, "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n", ""),
    ("sbatch nofile.sh", 1, "", "sbatch: error: Unable to open file nofile.sh\n"),
    (
        "sbatch --gres=gpu:9 --wrap=true",
        1,
        "",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
    ),
    (
        "sbatch -p nope --wrap=true",
        1,
        "",
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
    ),
    (
        "sbatch --wat --wrap=true",
        255,
        "",
        "sbatch: unrecognized option '--wat'\nTry \"sbatch --help\" for more information\n",
    ),
]


@pytest.mark.parametrize(("line", "code", "out", "error"), ANSWERS, ids=[answer[0] for answer in ANSWERS])
def test_the_answer_is_slurms_own(slurm: Slurm, line: str, code: int, out: str, error: str) -> None:
    assert slurm.run(*line.split()) == Reply(code, out, error)


def test_a_node_record_has_the_same_fields_in_the_same_order(slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=DRAIN", "Reason=x")
    line = slurm.run("scontrol", "show", "node", "-o", "gpu0001").stdout
    fields = [name for name in re.findall(r"(?<=\s)([A-Za-z_]+)=", " " + line) if name != "Port"]
    assert " ".join(fields) == (
        "NodeName Arch CoresPerSocket CPUAlloc CPUEfctv CPUTot CPULoad AvailableFeatures ActiveFeatures Gres NodeAddr "
        "NodeHostName Version OS RealMemory AllocMem FreeMem Sockets Boards State ThreadsPerCore TmpDisk Weight Owner "
        "MCS_label Partitions BootTime SlurmdStartTime LastBusyTime CfgTRES AllocTRES CapWatts CurrentWatts AveWatts "
        "ExtSensorsJoules ExtSensorsWatts ExtSensorsTemp Reason"
    )
    assert re.search(r" Reason=x \[root@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\]\n$", line)


def test_a_job_record_has_the_same_fields_in_the_same_order(slurm: Slurm) -> None:
    job = start(slurm, "-N2", "--gres=gpu:8", "--exclusive", "--comment=ckpt=/x;kind=megatron", "-t", "10", "-A", "p")
    text = slurm.run("scontrol", "show", "job", job).stdout
    lines = [" ".join(re.findall(r"(?:^|\s)([A-Za-z/:_]+)=", line)) for line in text.splitlines()]
    assert lines == [
        "JobId JobName",
        "UserId GroupId MCS_label",
        "Priority Nice Account QOS",
        "JobState Reason Dependency",
        "Requeue Restarts BatchFlag Reboot ExitCode",
        "RunTime TimeLimit TimeMin",
        "SubmitTime EligibleTime",
        "AccrueTime",
        "StartTime EndTime Deadline",
        "SuspendTime SecsPreSuspend LastSchedEval Scheduler",
        "Partition AllocNode:Sid",
        "ReqNodeList ExcNodeList",
        "NodeList",
        "BatchHost",
        "NumNodes NumCPUs NumTasks CPUs/Task ReqB:S:C:T",
        "TRES",
        "Socks/Node NtasksPerN:B:S:C CoreSpec",
        "MinCPUsNode MinMemoryNode MinTmpDiskNode",
        "Features DelayBoot",
        "OverSubscribe Contiguous Licenses Network",
        "Command",
        "WorkDir",
        "Comment",
        "StdErr",
        "StdIn",
        "StdOut",
        "Power",
        "TresPerNode",
        "",
        "",
    ]
    for expected in ("   NodeList=gpu[0001-0002]\n", "TimeLimit=00:10:00 ", "   Comment=ckpt=/x;kind=megatron \n"):
        assert expected in text


def test_the_states_of_a_drained_node_under_a_job(slurm: Slurm) -> None:
    job = start(slurm, "-N1", "--exclusive", "--gres=gpu:8")
    assert state(slurm) == "ALLOCATED"
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=DRAIN", "Reason=x")
    assert state(slurm) == "ALLOCATED+DRAIN"
    assert slurm.run("sinfo", "-h", "-n", "gpu0001", "-o", "%T %t %E").stdout == "draining drng x\n"
    slurm.run("scancel", job)
    eventually(lambda: state(slurm) == "IDLE+DRAIN")
    assert slurm.run("sinfo", "-h", "-n", "gpu0001", "-o", "%T %t").stdout == "drained drain\n"


def test_undrain_leaves_a_down_node_down_and_resume_opens_it(slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=DOWN", "Reason=dead")
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=DRAIN", "Reason=also")
    assert state(slurm) == "DOWN+DRAIN"
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=UNDRAIN")
    assert state(slurm).startswith("DOWN")
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=RESUME")
    eventually(lambda: state(slurm) == "IDLE")


def test_resume_opens_the_others_of_a_list_and_still_refuses(slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=gpu0002", "State=DRAIN", "Reason=x")
    reply = slurm.run("scontrol", "update", "NodeName=gpu[0001-0003]", "State=RESUME")
    assert reply == Reply(1, "", "slurm_update error: Invalid node state specified\n")
    assert "DRAIN" not in state(slurm, "gpu0002")


def test_a_reason_alone_is_not_kept_on_an_open_node(slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=gpu0001", "Reason=plain")
    assert "Reason=" not in slurm.run("scontrol", "show", "node", "gpu0001").stdout


def test_a_requeued_job_waits_for_its_begin_time(slurm: Slurm) -> None:
    job = start(slurm, "-N1", "--gres=gpu:8", "--requeue")
    assert slurm.run("scontrol", "requeue", job).code == 0
    eventually(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T %R").stdout == "PENDING (BeginTime)\n")
    # the node that it left would refuse its new credential, and Slurm then kills the job
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=DRAIN", "Reason=x")

    def runs_again() -> bool:
        # asked more than once: a controller that ends the old run after it showed PENDING sets the begin time anew
        slurm.run("scontrol", "update", f"job={job}", "starttime=now")
        return slurm.run("squeue", "-h", "-j", job, "-o", "%T").stdout == "RUNNING\n"

    eventually(runs_again)
    assert " Restarts=1 " in slurm.run("scontrol", "show", "job", job).stdout


def test_squeue_prints_the_same_columns(slurm: Slurm) -> None:
    job = start(slurm, "-N2", "--exclusive", "--gres=gpu:8", "-J", "a-long-name", "-t", "1-00:00:00", "-A", "proj")
    text = slurm.run("squeue", "-j", job, "-o", "%.10i|%8j|%u|%t|%N|%b|%l|%k|%a|%P|%D|%B").stdout
    assert text == (
        "     JOBID|NAME    |USER|ST|NODELIST|TRES_PER_NODE|TIME_LIMIT|COMMENT|ACCOUNT|PARTITION|NODES|EXEC_HOST\n"
        f"{job:>10}|a-long-n|root|R|gpu[0001-0002]|gres:gpu:8|1-00:00:00|(null)|proj|train|2|gpu0001\n"
    )
    wide = slurm.run("squeue", "-h", "-j", job, "-O", "JobID:8,NumNodes:4,tres-per-node:.14,TimeLimit").stdout
    assert wide == f"{job:<8}2   {'gres:gpu:8':>14}{'1-00:00:00':<20}\n"


def test_sinfo_prints_the_same_columns(slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=gpu0002", "State=DRAIN", "Reason=x")
    assert slurm.run("sinfo", "-n", "gpu[0001-0004]").stdout == (
        "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "train*       up   infinite      1  drain gpu0002\n"
        "train*       up   infinite      3   idle gpu[0001,0003-0004]\n"
    )
    assert slurm.run("sinfo", "-N", "-n", "gpu[0001-0002]").stdout == (
        "NODELIST   NODES PARTITION STATE \ngpu0001        1    train* idle  \ngpu0002        1    train* drain \n"
    )
    fields = slurm.run("sinfo", "-h", "-N", "-n", "gpu0001", "-o", "%N|%T|%t|%E|%H|%u|%G|%P").stdout
    assert fields == "gpu0001|idle|idle|none|Unknown|Unknown|gpu:h100:8|train*\n"


def test_a_job_over_a_lost_node_is_requeued_and_the_node_is_down(slurm: Slurm) -> None:
    """The last test of the file: the node stays lost."""
    job = start(slurm, "-N1", "--gres=gpu:8", "-w", "gpu0008", "--requeue")
    slurm.lose("gpu0008")
    eventually(lambda: state(slurm, "gpu0008") == "DOWN+NOT_RESPONDING", 90)
    assert "Reason=Not responding [root@" in slurm.run("scontrol", "show", "node", "gpu0008").stdout
    assert slurm.run("sinfo", "-h", "-n", "gpu0008", "-o", "%t").stdout == "down*\n"
    eventually(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T").stdout == "PENDING\n")
