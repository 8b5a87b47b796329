"""What the Slurm adapter makes of the commands' words; the words are those of Slurm 22.05 and its sources."""

from __future__ import annotations

import pytest

from adapters.local import Finished, LocalHost
from adapters.slurm import SlurmScheduler
from fleet.errors import (
    ConfigurationError,
    CredentialsRejected,
    FleetError,
    JobRefused,
    NodeUnreachable,
    SchedulerUnreachable,
)
from fleet.hostlist import expand

NODE = "NodeName={} Gres=gpu:8 State={} Partitions=train\n"


class ScriptedHost:
    """Answers by the first words of a command."""

    def __init__(self, **answers: Finished) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        self.asked.append(arguments)
        return self.answers["update" if "update" in arguments else arguments[0]]

    def close(self) -> None: ...


class SilentHost(ScriptedHost):
    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        raise NodeUnreachable("connection refused", node="ctl")


def _failed(words: str, code: int = 1) -> Finished:
    return Finished(code, "", words)


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", 1, SchedulerUnreachable),
        ("slurm_load_node error: Socket timed out on send/recv operation", 1, SchedulerUnreachable),
        ("slurm_load_node error: something never seen", 1, SchedulerUnreachable),
        ("slurm_load_node error: Protocol authentication error", 1, CredentialsRejected),
        ("bash: line 1: scontrol: command not found", 127, ConfigurationError),
        ("scontrol: fatal: Could not establish a configuration source", 1, ConfigurationError),
    ],
)
def test_a_query_that_failed_is_never_an_empty_fleet(words: str, code: int, kind: type[FleetError]) -> None:
    scheduler = SlurmScheduler(ScriptedHost(scontrol=_failed(words, code), squeue=_failed(words, code)))
    with pytest.raises(kind):
        scheduler.read_nodes()
    with pytest.raises(kind):
        scheduler.read_jobs()


@pytest.mark.parametrize("text", ["", "No nodes in the system\n"])
def test_an_answer_without_nodes_is_no_fleet_of_none(text: str) -> None:
    with pytest.raises(SchedulerUnreachable, match="named no node"):
        SlurmScheduler(ScriptedHost(scontrol=Finished(0, text, ""))).read_nodes()


def test_a_controller_host_that_is_away_is_an_unreachable_scheduler() -> None:
    with pytest.raises(SchedulerUnreachable, match="ctl: connection refused"):
        SlurmScheduler(SilentHost()).read_jobs()


def test_an_unknown_node_is_named() -> None:
    host = ScriptedHost(
        update=_failed("slurm_update error: Invalid node name specified"),
        scontrol=Finished(0, NODE.format("gpu1", "IDLE"), ""),
    )
    with pytest.raises(ConfigurationError, match=r"does not know gpu\[2-3\]"):
        SlurmScheduler(host).cordon(("gpu1", "gpu2", "gpu3"), "x")


def test_a_user_without_rights_is_told_which_it_needs() -> None:
    host = ScriptedHost(update=_failed("slurm_update error: Invalid user id"))
    with pytest.raises(CredentialsRejected, match="operator rights"):
        SlurmScheduler(host).cordon(("gpu1",), "x")


def test_all_nodes_are_cordoned_by_one_command_with_the_reason_in_quotes() -> None:
    host = ScriptedHost(update=Finished(0, "", ""))
    SlurmScheduler(host).cordon(tuple(f"gpu{index:04}" for index in range(1, 1251)), '"a" b')
    assert host.asked == [("scontrol", "update", "NodeName=gpu[0001-1250]", "State=DRAIN", 'Reason=""a" b"')]


def test_no_command_is_sent_for_no_node() -> None:
    host = ScriptedHost()
    SlurmScheduler(host).cordon((), "x")
    assert host.asked == []


def test_a_list_too_long_for_a_command_line_is_sent_in_parts() -> None:
    host = ScriptedHost(update=Finished(0, "", ""))
    names = tuple(f"{index:012b}".translate({48: "a", 49: "b"}) * 5 for index in range(3000))
    SlurmScheduler(host).uncordon(names)
    assert {name for command in host.asked for name in expand(command[2].removeprefix("NodeName="))} == set(names)
    assert len(host.asked) > 1
    assert max(len(command[2]) for command in host.asked) < 128 * 1024


@pytest.mark.parametrize(("state", "settled"), [("IDLE", True), ("IDLE+DRAIN", False), ("DOWN", False)])
def test_a_refused_resume_is_fine_only_where_the_node_is_open(state: str, settled: bool) -> None:
    host = ScriptedHost(
        update=_failed("slurm_update error: Invalid node state specified"),
        scontrol=Finished(0, NODE.format("gpu1", state), ""),
    )
    if settled:
        SlurmScheduler(host).uncordon(("gpu1",))
    else:
        with pytest.raises(ConfigurationError, match="refuses this change"):
            SlurmScheduler(host).uncordon(("gpu1",))


class JobHost(ScriptedHost):
    """One running batch job; `script` is its batch script, `steps` what `squeue -s` lists."""

    def __init__(self, script: str, steps: str = "", line: str | None = None, waiting: str = "") -> None:
        super().__init__()
        self.script, self.steps, self.line, self.waiting = script, steps, line, waiting

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        self.asked.append(arguments)
        match arguments:
            case ("squeue", "-h", "-s", *_):
                return Finished(0, self.steps, "")
            case ("squeue", "-h", "--states=PENDING", *_):
                return Finished(0, self.waiting, "")
            case ("squeue", *_):
                return Finished(0, "5_3 RUNNING\n7 RUNNING\n", "")
            case ("scontrol", "write", *_):
                return Finished(0, self.script, "")
            case ("sacct", *_):
                return Finished(0, self.line, "") if self.line is not None else _failed("accounting is disabled")
            case _:
                return Finished(0, "", "")


@pytest.mark.parametrize(
    ("host", "command"),
    [
        (JobHost("#!/bin/sh\nsrun t\n", "7.batch\n7.extern\n7.0\n"), ("scancel", "--signal=USR1", "7")),
        (JobHost("#!/bin/sh\ntrap save USR1\n", "7.batch\n"), ("scancel", "--signal=USR1", "--batch", "7")),
        (
            JobHost("#!/bin/sh\nsrun t\n", "7.0\n", "sbatch --signal=B:USR1@60 t.sh\n"),
            ("scancel", "--signal=USR1", "--batch", "7"),
        ),
        (JobHost("#!/usr/bin/python3\n", "7.batch\n"), ("scancel", "--signal=USR1", "--batch", "7")),
    ],
)
def test_a_signal_goes_to_those_who_wait_for_it(host: JobHost, command: tuple[str, ...]) -> None:
    SlurmScheduler(host).signal("7", "USR1")
    assert host.asked[-1] == command


def test_a_signal_for_the_steps_of_an_arrays_task_names_them() -> None:
    host = JobHost("#!/bin/sh\nsrun t\n", "5_3.batch\n5_3.0\n5_3.1\n", waiting="5_[4-9]\n")
    SlurmScheduler(host).signal("5_3", "USR1")
    assert host.asked[-1] == ("scancel", "--signal=USR1", "5_3.0", "5_3.1")


def test_the_shell_of_an_arrays_task_gets_a_signal_only_once_no_task_waits() -> None:
    host = JobHost("#!/bin/sh\ntrap save USR1\n", "5_3.batch\n", waiting="5_[4-9]\n")
    with pytest.raises(JobRefused, match="other tasks of its array wait"):
        SlurmScheduler(host).signal("5_3", "USR1")
    assert all(command[0] != "scancel" for command in host.asked)
    host.waiting = ""
    SlurmScheduler(host).signal("5_3", "USR1")
    assert host.asked[-1] == ("scancel", "--signal=USR1", "--batch", "5_3")


def test_the_id_of_a_whole_array_is_refused() -> None:
    host = ScriptedHost(squeue=Finished(0, "5_3 RUNNING\n5_[4-9] PENDING\n", ""))
    for act in (SlurmScheduler(host).cancel, SlurmScheduler(host).requeue):
        with pytest.raises(JobRefused, match="several jobs"):
            act("5")
    assert {command[0] for command in host.asked} == {"squeue"}


def test_a_part_of_a_heterogeneous_job_is_not_requeued_alone() -> None:
    host = ScriptedHost(squeue=Finished(0, "7+0 RUNNING\n7+1 RUNNING\n", ""))
    with pytest.raises(JobRefused, match="only as a whole"):
        SlurmScheduler(host).requeue("7+1")


def test_a_job_without_anybody_for_the_signal_gets_none() -> None:
    host = JobHost("#!/bin/sh\npython t.py\n", "7.batch\n7.extern\n")
    with pytest.raises(JobRefused, match="no trap"):
        SlurmScheduler(host).signal("7", "USR1")
    assert all(command[0] != "scancel" for command in host.asked)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Invalid job id specified for job 7", JobRefused),
        ("Requested operation is presently disabled for job 7", JobRefused),
        ("Job is pending execution for job 7", JobRefused),
        ("Job/step already completing or completed for job 7", JobRefused),
        ("Only batch jobs are accepted or processed for job 7", JobRefused),
        ("Access/permission denied for job 7", CredentialsRejected),
        ("Unable to contact slurm controller (connect failure) for job 7", SchedulerUnreachable),
    ],
)
def test_a_requeue_that_is_refused_says_why_in_slurms_words(words: str, kind: type[FleetError]) -> None:
    host = ScriptedHost(scontrol=_failed(words), squeue=Finished(0, "7 RUNNING\n", ""))
    with pytest.raises(kind) as error:
        SlurmScheduler(host).requeue("7")
    assert words in error.value.evidence[0]


def test_no_text_that_is_no_job_reaches_a_command_line() -> None:
    host = ScriptedHost()
    for job in ("", "7 8", "--all", "7;reboot", "$(x)", "7\n"):
        with pytest.raises(JobRefused, match="is no job of Slurm"):
            SlurmScheduler(host).requeue(job)
    assert host.asked == []


def test_a_local_command_gets_no_variable_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BMC_PASSWORD", "hunter2")
    host = LocalHost({"SLURM_CONF": "/x"})
    printed = host.run(("env",)).stdout
    assert "hunter2" not in printed
    assert "SLURM_CONF=/x" in printed
    assert host.run(("sh", "-c", "exit 4")).code == 4


def test_a_local_command_that_hangs_or_is_missing_is_an_error() -> None:
    with pytest.raises(NodeUnreachable, match="did not end"):
        LocalHost().run(("sleep", "5"), timeout_seconds=0.05)
    with pytest.raises(ConfigurationError, match="cannot run no-such-command"):
        LocalHost().run(("no-such-command",))
