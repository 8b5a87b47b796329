"""The simulated Slurm: states, reasons, jobs and what happens to them when a node goes away."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.model import SchedulerState
from fleet.slurm import read_scontrol_jobs, read_scontrol_nodes
from simulator.jobs import JobPrograms, JobStream
from simulator.machine import Machine, Timing
from simulator.slurm import Controller, JobRequest, JobState, Shell
from simulator.slurm.controller import Settings
from simulator.timers import VirtualClock, VirtualTimers
from simulator.truth import TruthLog


class Cluster:
    """Four training nodes and one for development, on a clock that the test moves."""

    def __init__(self, folder: Path, settings: Settings | None = None, train: int = 4) -> None:
        clock = VirtualClock()
        self.folder = folder
        self.timers = VirtualTimers(clock)
        self.truth = TruthLog(folder / "truth.jsonl", clock)
        pools = ["train"] * train + ["dev"]
        self.machines = [
            Machine(f"gpu-{n:04d}", "r01", pool, "HGX-H100-8", 8, clock, self.truth, Timing())
            for n, pool in enumerate(pools, 1)
        ]
        self.controller = Controller(self.machines, ("train", "dev"), self.timers, self.truth, settings)
        JobPrograms(self.controller, self.timers, self.truth, folder / "storage")
        self.shell = Shell(self.controller, folder)

    def run(self, *words: str, stdin: str = "") -> str:
        reply = self.shell.run(list(words), "root", stdin)
        assert reply.code == 0, reply
        return reply.stdout

    def refused(self, *words: str) -> tuple[int, str]:
        reply = self.shell.run(list(words))
        return reply.code, reply.stderr or reply.stdout

    def state(self, name: str = "gpu-0001") -> str:
        line = self.run("scontrol", "show", "node", "-o", name)
        return line.split(" State=")[1].split()[0]

    def wait(self, seconds: float) -> None:
        self.timers.advance(seconds)

    def lose(self, index: int) -> None:
        self.machines[index].power_off()

    def bring_back(self, index: int) -> None:
        machine = self.machines[index]
        machine.up = True
        for listener in machine.listeners:
            listener(machine)

    def events(self, kind: str) -> list[dict[str, object]]:
        lines = (self.folder / "truth.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def training(cluster: Cluster, nodes: int = 2, work: int = 1000, *, requeue: bool = True) -> int:
    comment = f"ckpt={cluster.folder}/storage/a;kind=megatron;interval=200;signal=USR1"
    request = JobRequest(
        "a", "train", nodes, 8, comment=comment, exclusive=True, script=f"sleep {work}", requeue=requeue
    )
    job = cluster.controller.submit(request)
    cluster.wait(3)
    assert job.state is JobState.RUNNING
    return job.id


def test_a_node_drained_while_it_works_stays_allocated_until_the_job_has_left(cluster: Cluster) -> None:
    training(cluster)
    cluster.run("scontrol", "update", "NodeName=gpu-0001", "State=DRAIN", "Reason=x")
    assert cluster.state() == "ALLOCATED+DRAIN"
    cluster.wait(1000)
    assert cluster.state() == "IDLE+COMPLETING+DRAIN"
    cluster.wait(6)
    assert cluster.state() == "IDLE+DRAIN"


def test_no_job_starts_on_a_drained_node(cluster: Cluster) -> None:
    cluster.run("scontrol", "update", "NodeName=gpu-[0001-0003]", "State=DRAIN", "Reason=x")
    job = cluster.controller.submit(JobRequest("a", "train", 2, 8))
    cluster.wait(60)
    assert job.state is JobState.PENDING
    assert job.reason.startswith("Nodes required for job are DOWN, DRAINED")
    cluster.run("scontrol", "update", "NodeName=gpu-0002", "State=RESUME")
    cluster.wait(60)
    assert job.nodes == ("gpu-0002", "gpu-0004")


def test_a_reason_survives_letter_by_letter(cluster: Cluster) -> None:
    odd = 'bad dimm, ticket=#1234; "quoted" & 100%'
    cluster.run("scontrol", "update", "NodeName=gpu-0001", "State=DRAIN", f'Reason="{odd}"')
    node = read_scontrol_nodes(cluster.run("scontrol", "show", "node", "-o"))["gpu-0001"]
    assert (node.reason, node.reason_by, node.cordoned) == (odd, "root", True)


def test_a_drain_without_a_reason_is_refused(cluster: Cluster) -> None:
    code, text = cluster.refused("scontrol", "update", "NodeName=gpu-0001", "State=DRAIN")
    assert (code, text) == (
        1,
        "You must specify a reason when DOWNING or DRAINING a node. Request denied\n",
    )
    assert cluster.state() == "IDLE"


def test_an_unknown_name_in_a_list_is_refused_after_the_known_ones_were_drained(cluster: Cluster) -> None:
    refused = cluster.refused("scontrol", "update", "NodeName=gpu-0001,nope", "State=DRAIN", "Reason=x")
    assert refused == (1, "slurm_update error: Invalid node name specified\n")
    assert cluster.state() == "IDLE+DRAIN"


def test_a_silent_node_is_first_not_responding_and_then_down(cluster: Cluster) -> None:
    cluster.lose(0)
    cluster.wait(50)
    assert cluster.state() == "IDLE"
    cluster.wait(60)
    assert cluster.state() == "IDLE+NOT_RESPONDING"
    cluster.wait(200)
    assert cluster.state() == "DOWN+NOT_RESPONDING"
    node = read_scontrol_nodes(cluster.run("scontrol", "show", "node"))["gpu-0001"]
    assert (node.state, node.reason) == (SchedulerState.DOWN, "Not responding")
    assert cluster.run("sinfo", "-h", "-N", "-n", "gpu-0001", "-o", "%t %T") == "down* down*\n"


@pytest.mark.parametrize(("mode", "state"), [(1, "DOWN+DRAIN"), (2, "IDLE+DRAIN")])
def test_a_drained_node_that_was_rebooted_keeps_its_drain_and_reason(tmp_path: Path, mode: int, state: str) -> None:
    cluster = Cluster(tmp_path, Settings(return_to_service=mode))
    cluster.run("scontrol", "update", "NodeName=gpu-0001", "State=DRAIN", "Reason=firmware")
    cluster.lose(0)
    cluster.wait(400)
    assert cluster.state() == "DOWN+DRAIN+NOT_RESPONDING"
    cluster.bring_back(0)
    assert cluster.state() == state
    assert "Reason=firmware [root@" in cluster.run("scontrol", "show", "node", "gpu-0001")
    cluster.run("scontrol", "update", "NodeName=gpu-0001", "State=RESUME")
    cluster.wait(2)
    assert cluster.state() == "IDLE"


def test_a_job_is_lost_at_the_moment_its_node_goes_away_and_starts_again_at_its_checkpoint(cluster: Cluster) -> None:
    job = training(cluster, nodes=2, work=1000)
    cluster.wait(500)  # checkpoints at 200 and 408 of work
    cluster.lose(1)
    [killed] = cluster.events("job_killed")
    assert (killed["job"], killed["nodes"], killed["gpus"]) == (job, ["gpu-0001", "gpu-0002"], 16)
    assert 80 < float(str(killed["lost_seconds"])) < 100
    cluster.wait(450)  # slurmctld notices, and the requeue waits two minutes
    started = cluster.events("job_start")
    assert [event["restarts"] for event in started] == [0, 1]
    assert "gpu-0002" not in str(started[1]["nodes"])
    cluster.wait(1000)
    assert [event["job"] for event in cluster.events("job_end")] == [job]
    assert len(cluster.events("job_killed")) == 1


def test_a_signal_makes_a_checkpoint_now(cluster: Cluster) -> None:
    job = training(cluster)
    cluster.wait(50)
    cluster.run("scancel", "--signal=USR1", "--batch", str(job))
    cluster.wait(10)
    [checkpoint] = cluster.events("checkpoint")
    folder = cluster.folder / "storage" / "a"
    step = (folder / "latest_checkpointed_iteration.txt").read_text()
    assert step == str(checkpoint["step"])
    assert (folder / f"iter_{int(step):07d}").is_dir()


def test_a_step_is_reached_by_a_signal_and_the_shell_that_started_it_is_not(cluster: Cluster) -> None:
    comment = f"ckpt={cluster.folder}/storage/a;kind=megatron;interval=200;signal=USR1"
    script = "#!/bin/sh\n#SBATCH -N1 --gres=gpu:8\nsrun train # sleep 900\n"
    job = cluster.run("sbatch", "--parsable", f"--comment={comment}", stdin=script).strip()
    cluster.wait(50)
    assert cluster.run("squeue", "-h", "-s", "-j", job, "-o", "%i") == f"{job}.0\n{job}.batch\n"
    cluster.run("scancel", "--signal=USR1", "--batch", job)
    cluster.wait(10)
    assert cluster.events("checkpoint") == []
    cluster.run("scancel", "--signal=USR1", job)
    cluster.wait(10)
    assert len(cluster.events("checkpoint")) == 1


def test_the_accounting_tells_how_a_job_was_submitted(cluster: Cluster) -> None:
    job = cluster.run("sbatch", "--parsable", "--signal=B:USR1@60", stdin="#!/bin/sh\nsleep 9\n").strip()
    line = cluster.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "SubmitLine")
    assert "--signal=B:USR1@60" in line
    assert cluster.run("sacct", "-j", job, "--env-vars").endswith("-----\nNONE\n\n")


def test_another_signal_makes_none(cluster: Cluster) -> None:
    job = training(cluster)
    cluster.run("scancel", "--signal=USR2", "--batch", str(job))
    cluster.wait(20)
    assert cluster.events("checkpoint") == []


def test_a_requeue_right_after_a_checkpoint_loses_next_to_nothing(cluster: Cluster) -> None:
    job = training(cluster)
    cluster.run("scancel", "--signal=USR1", "--batch", str(job))
    cluster.wait(9)
    cluster.run("scontrol", "requeue", str(job))
    [killed] = cluster.events("job_killed")
    assert killed["cause"] == "requeued"
    assert float(str(killed["lost_seconds"])) < 10


def test_a_job_that_may_not_be_requeued_says_so_and_goes_on(cluster: Cluster) -> None:
    job = training(cluster, requeue=False)
    refused = cluster.refused("scontrol", "requeue", str(job))
    assert refused == (1, f"Requested operation is presently disabled for job {job}\n")
    assert cluster.controller.jobs[job].state is JobState.RUNNING


def test_a_cancelled_job_holds_its_nodes_while_it_completes(cluster: Cluster) -> None:
    job = training(cluster)
    cluster.run("scancel", str(job))
    [shown] = read_scontrol_jobs(cluster.run("scontrol", "show", "job", str(job)))
    assert (shown.state, shown.nodes) == ("COMPLETING", ("gpu-0001", "gpu-0002"))
    cluster.wait(6)
    assert cluster.controller.jobs[job].state is JobState.CANCELLED


def test_a_job_cancelled_while_it_is_being_requeued_does_not_come_back(cluster: Cluster) -> None:
    job = training(cluster)
    cluster.run("scontrol", "requeue", str(job))
    cluster.run("scancel", str(job))
    cluster.wait(200)
    assert cluster.controller.jobs[job].state is JobState.CANCELLED
    assert len(cluster.events("job_start")) == 1


def test_a_job_past_its_limit_is_killed_for_it(cluster: Cluster) -> None:
    script = "#!/bin/sh\n#SBATCH -t 1\n#SBATCH --gres=gpu:8\nsleep 900\n"
    cluster.run("sbatch", "-J", "long", stdin=script)
    cluster.wait(70)
    assert [event["cause"] for event in cluster.events("job_killed")] == ["time limit"]
    assert "TO" in cluster.run("squeue", "-h", "-t", "all", "-o", "%t")


def test_a_small_job_passes_a_large_one_only_where_it_does_not_delay_it(cluster: Cluster) -> None:
    blocker = JobRequest("blocker", "train", 2, 8, exclusive=True, limit_seconds=1000, script="sleep 900")
    cluster.controller.submit(blocker)
    cluster.wait(3)
    wide = cluster.controller.submit(replace(blocker, name="wide", nodes=4))
    long = cluster.controller.submit(replace(blocker, name="long", nodes=1, limit_seconds=5000))
    short = cluster.controller.submit(replace(blocker, name="short", nodes=1, limit_seconds=500))
    cluster.wait(3)
    assert (wide.state, long.state, short.state) == (JobState.PENDING, JobState.PENDING, JobState.RUNNING)
    assert (wide.reason, long.reason) == ("Resources", "Priority")


def test_a_dead_controller_never_answers_with_an_empty_list(cluster: Cluster) -> None:
    cluster.controller.reachable = False
    for words in (["sinfo"], ["squeue"], ["scontrol", "show", "node"], ["scontrol", "show", "job"]):
        code, text = cluster.refused(*words)
        assert code == 1
        assert "Unable to contact slurm controller (connect failure)" in text
    code, _ = cluster.refused("scontrol", "update", "NodeName=gpu-0001", "State=DRAIN", "Reason=x")
    assert code == 1
    assert cluster.events("cordon") == []


def test_the_truth_log_knows_who_cordoned_and_with_which_reason(cluster: Cluster) -> None:
    cluster.shell.run(["scontrol", "update", "NodeName=gpu-0001", "State=DRAIN", "Reason=mine"], user="alice")
    cluster.shell.run(["scontrol", "update", "NodeName=gpu-0001", "State=RESUME"], user="bob")
    [cordon], [uncordon] = cluster.events("cordon"), cluster.events("uncordon")
    assert (cordon["node"], cordon["by"], cordon["reason"]) == ("gpu-0001", "alice", "mine")
    assert (uncordon["by"], uncordon["reason"]) == ("bob", "mine")


def test_a_script_outside_the_storage_cannot_be_read(cluster: Cluster) -> None:
    assert cluster.refused("sbatch", "/../../etc/hostname")[1].startswith("sbatch: error: Unable to open file")


def test_the_stream_loads_seven_tenths_of_the_usable_nodes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, train=40)
    stream = JobStream(cluster.controller, cluster.timers, 7, {"train": 0.1}, tmp_path / "storage")
    cluster.run("scontrol", "update", "NodeName=gpu-[0001-0010]", "State=DRAIN", "Reason=x")
    stream.start()
    cluster.wait(600)
    busy = [node.name for node in cluster.controller.nodes_of("train") if node.running]
    assert 0.55 * 30 <= len(busy) <= 0.85 * 30
    assert not set(busy) & {f"gpu-{n:04d}" for n in range(1, 11)}


def test_the_same_seed_gives_the_same_jobs(tmp_path: Path) -> None:
    logs = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        cluster = Cluster(folder, train=16)
        JobStream(cluster.controller, cluster.timers, 7, {"train": 0.2}, None).start()
        cluster.wait(5000)
        logs.append((folder / "truth.jsonl").read_text())
    assert logs[0] == logs[1]
    assert '"job_end"' in logs[0]
