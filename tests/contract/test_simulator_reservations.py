"""Reservations, features, holds and signals: the simulated Slurm's words and rules against a real one's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from simulator.slurm import Reply
from tests.contract.slurm_bench import eventually
from tests.contract.test_simulator_slurm import Slurm, start, state
from tests.contract.test_simulator_slurm import cluster as cluster

OPEN = ("StartTime=now", "Duration=UNLIMITED")


@pytest.fixture
def slurm(cluster: Slurm) -> Iterator[Slurm]:
    """The module's Slurm, without jobs and reservations before and after each test."""
    yield cluster
    cluster.run("scancel", "--user=root")
    eventually(lambda: cluster.run("squeue", "-h").stdout == "")
    for name in re.findall(r"ReservationName=(\S+)", cluster.run("scontrol", "show", "reservation", "-o").stdout):
        cluster.run("scontrol", "delete", f"ReservationName={name}")
    cluster.run("scontrol", "update", "NodeName=gpu[0001-0008]", "State=IDLE")
    # Slurm takes a reservation's marks off its nodes every 30 s
    eventually(lambda: cluster.run("sinfo", "-h", "-o", "%T").stdout == "idle\n", 60)


def create(slurm: Slurm, name: str, *words: str) -> Reply:
    return slurm.run("scontrol", "create", f"ReservationName={name}", *OPEN, *words)


def fence(slurm: Slurm, nodes: str = "gpu[0001-0004]") -> None:
    flags = "Flags=MAGNETIC,IGNORE_JOBS,NO_HOLD_JOBS_AFTER"
    assert create(slurm, "f", f"Nodes={nodes}", "Users=-nobody", flags) == Reply(0, "Reservation created: f\n", "")


NOT_CREATED = "No reservation created.\n"
# Each: a command, its exit code, its output, its error output; the same on slurm-wlm 22.05.8.
ANSWERS = [
    ("scontrol show reservation", 0, "No reservations in the system\n", ""),
    ("scontrol show reservation nope", 1, "Reservation nope not found\n", ""),
    (
        "scontrol delete ReservationName=nope",
        1,
        "",
        "delete_reservation ReservationName=nope: Requested reservation is invalid\n",
    ),
    ("scontrol delete foo=x", 1, "", "Invalid deletion entity: foo=x\n"),
    ("scontrol delete", 1, "", "too few arguments for delete keyword\n"),
    ("scontrol create", 1, "", "too few arguments for create keyword\n"),
    ("scontrol create foo=1", 1, "", "scontrol: error: Invalid creation entity: foo=1\n"),
    (
        "scontrol update ReservationName=nope Nodes=gpu0001",
        1,
        "",
        "Error updating the reservation: Requested reservation is invalid\n"
        "slurm_update error: Requested reservation is invalid\n",
    ),
    (
        "scontrol create ReservationName=g Nodes=gpu0008 Users=root",
        1,
        "",
        f"scontrol: error: A start time must be given.  {NOT_CREATED}",
    ),
    (
        "scontrol create ReservationName=g StartTime=now Nodes=gpu0008 Users=root",
        1,
        "",
        f"scontrol: error: An end time or duration must be given.  {NOT_CREATED}",
    ),
    (
        "scontrol create ReservationName=g StartTime=now Duration=5 Nodes=gpu0008",
        1,
        "",
        f"scontrol: error: Either Users/Groups and/or Accounts must be specified.  {NOT_CREATED}",
    ),
    (
        "scontrol create ReservationName=g StartTime=now Duration=5 Users=root",
        1,
        "",
        "scontrol: error: CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.  " + NOT_CREATED,
    ),
    (
        "scontrol create ReservationName=g StartTime=now Duration=5 Nodes=nope Users=root",
        1,
        "",
        "Error creating the reservation: Invalid node name specified\n",
    ),
    (
        "scontrol create ReservationName=g StartTime=now Duration=5 Nodes=gpu0008 Users=root Flags=FOO",
        1,
        "",
        f"scontrol: error: Error parsing flags FOO.  {NOT_CREATED}",
    ),
    (
        "scontrol create ReservationName=g StartTime=now Duration=5 Nodes=gpu0008 Foo=bar",
        1,
        "",
        f"scontrol: error: Unknown parameter Foo=bar.  {NOT_CREATED}",
    ),
    (
        "scontrol create ReservationName=g StartTime=foo Duration=5 Nodes=gpu0008 Users=root",
        1,
        "",
        f"Invalid time specification (pos=0): foo\nscontrol: error: Invalid start time StartTime=foo.  {NOT_CREATED}",
    ),
    ("scontrol update jobid=7777 ReservationName=", 1, "", "Invalid job id specified for job 7777\n"),
    (
        "sbatch --reservation=nope --wrap=true",
        1,
        "",
        "sbatch: error: Batch job submission failed: Requested reservation is invalid\n",
    ),
    ("scontrol requeue incomplete 7777", 1, "", "Invalid job id specified for job 7777\n"),
    ("scontrol write batch_script 7777 -", 0, "", "job script retrieval failed: Invalid job id specified\n"),
    ("scancel --signal=USR1 7777", 1, "", "scancel: error: Kill job error on job id 7777: Invalid job id specified\n"),
    ("squeue -s", 0, "         STEPID     NAME PARTITION     USER      TIME NODELIST\n", ""),
    ("sacct -X -n -P -j 7777 -o SubmitLine", 1, "", "Slurm accounting storage is disabled\n"),
    ("sacct -j 7777 --env-vars", 1, "", "Slurm accounting storage is disabled\n"),
]


@pytest.mark.parametrize(("line", "code", "out", "error"), ANSWERS, ids=[answer[0] for answer in ANSWERS])
def test_the_answer_is_slurms_own(slurm: Slurm, line: str, code: int, out: str, error: str) -> None:
    assert slurm.run(*line.split()) == Reply(code, out, error)


def test_a_reservation_is_shown_letter_by_letter(slurm: Slurm) -> None:
    fence(slurm)
    text = slurm.run("scontrol", "show", "reservation", "f").stdout
    lasting = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", "TIME", re.sub(r"(CoreCnt|cpu)=\d+", r"\1=N", text))
    assert lasting == (
        "ReservationName=f StartTime=TIME EndTime=TIME Duration=365-00:00:00\n"
        "   Nodes=gpu[0001-0004] NodeCnt=4 CoreCnt=N Features=(null) PartitionName=(null) "
        "Flags=IGNORE_JOBS,SPEC_NODES,NO_HOLD_JOBS_AFTER_END,MAGNETIC\n"
        "   TRES=cpu=N\n"
        "   Users=-nobody Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a\n"
        "   MaxStartDelay=(null)\n\n"
    )
    line = slurm.run("scontrol", "show", "reservation", "-o").stdout
    assert line == " ".join(part.strip() for part in text.strip().splitlines()) + "\n"


def test_a_reservation_is_changed_by_whole_lists_of_nodes_and_flags_one_by_one(slurm: Slurm) -> None:
    fence(slurm)
    reply = slurm.run("scontrol", "update", "ReservationName=f", "Nodes=gpu[0002-0005]", "Flags-=MAGNETIC")
    assert reply == Reply(0, "Reservation updated.\n", "")
    line = slurm.run("scontrol", "show", "reservation", "-o").stdout
    assert " Nodes=gpu[0002-0005] NodeCnt=4 " in line
    assert " Flags=IGNORE_JOBS,SPEC_NODES,NO_HOLD_JOBS_AFTER_END " in line
    assert slurm.run("scontrol", "update", "ReservationName=f", "Nodes+=gpu0006") == Reply(
        1,
        "",
        "scontrol: error: The +=/-= notation is not supported when updating Nodes.  No reservation update.\n"
        "slurm_update error: No error\n",
    )
    words = "Invalid node name specified\n"
    assert slurm.run("scontrol", "update", "ReservationName=f", "Nodes=gpu0001,nope") == Reply(
        1, "", f"Error updating the reservation: {words}slurm_update error: {words}"
    )
    assert slurm.run("scontrol", "update", "ReservationName=f", "Flags+=MAGNETIC").code == 0
    assert "Nodes=gpu[0002-0005]" in slurm.run("scontrol", "show", "reservation", "-o").stdout


def test_two_reservations_share_no_node_and_no_name(slurm: Slurm) -> None:
    fence(slurm)
    start = "Error creating the reservation: "
    assert create(slurm, "g", "Nodes=gpu0004", "Users=root").stderr == (
        f"{start}Requested reservation overlaps with another reservation\n"
    )
    assert create(slurm, "f", "Nodes=gpu0008", "Users=root").stderr == f"{start}Duplicate reservation name\n"
    assert create(slurm, "m", "Nodes=gpu0004", "Users=root", "Flags=MAINT").code == 0
    assert create(slurm, "o", "Nodes=gpu0004", "Users=root", "Flags=OVERLAP").code == 0


def test_a_reservation_over_a_running_job_needs_leave_to_ignore_it(slurm: Slurm) -> None:
    start(slurm, "-N1", "--gres=gpu:8", "-w", "gpu0008")
    note = (
        "Note, unless nodes are directly requested a reservation must exist in a single partition.\n"
        "If no partition is requested the default partition is assumed.\n"
    )
    reply = create(slurm, "g", "Nodes=gpu0008", "Users=root")
    assert reply == Reply(1, note, "Error creating the reservation: Requested nodes are busy\n")
    assert create(slurm, "g", "Nodes=gpu0008", "Users=root", "Flags=IGNORE_JOBS").code == 0


def test_a_reserved_node_says_so_in_its_state(slurm: Slurm) -> None:
    fence(slurm)
    slurm.run("scontrol", "update", "ReservationName=f", "Nodes=gpu[0001-0003]")  # Slurm sets the flags at once here
    eventually(lambda: state(slurm) == "IDLE+RESERVED", 40)
    assert slurm.run("sinfo", "-h", "-N", "-n", "gpu0001", "-o", "%T|%t").stdout == "reserved|resv\n"
    job = start(slurm, "-N1", "--exclusive", "--gres=gpu:8", "-w", "gpu0001")
    assert state(slurm) == "ALLOCATED+RESERVED"
    assert slurm.run("sinfo", "-h", "-N", "-n", "gpu0001", "-o", "%T|%t").stdout == "allocated|alloc\n"
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=DRAIN", "Reason=x")
    assert state(slurm) == "ALLOCATED+DRAIN+RESERVED"
    slurm.run("scancel", job)
    eventually(lambda: state(slurm) == "IDLE+DRAIN+RESERVED")
    assert slurm.run("sinfo", "-h", "-N", "-n", "gpu0001", "-o", "%T|%t").stdout == "drained|drain\n"
    slurm.run("scontrol", "delete", "ReservationName=f")
    assert state(slurm) == "IDLE+DRAIN"


def test_a_job_that_was_drawn_in_names_its_reservation_and_keeps_it_from_going(slurm: Slurm) -> None:
    fence(slurm)
    job = start(slurm, "-N1", "--gres=gpu:8", "--exclusive")
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%v %N").stdout == "f gpu0001\n"
    assert slurm.run("squeue", "-h", "-R", "f", "-o", "%A").stdout == f"{job}\n"
    text = slurm.run("scontrol", "show", "job", job).stdout
    assert "   Features=(null) DelayBoot=00:00:00\n   Reservation=f\n   OverSubscribe=NO " in text
    words = "delete_reservation ReservationName=f: Requested reservation is in use\n"
    assert slurm.run("scontrol", "delete", "ReservationName=f") == Reply(1, "", words)
    assert slurm.run("scontrol", "update", f"JobId={job}", "ReservationName=") == Reply(0)
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%v %T").stdout == "(null) RUNNING\n"
    assert slurm.run("scontrol", "delete", "ReservationName=f") == Reply(0)


def test_a_job_that_waits_for_a_reservation_keeps_it_too_and_a_list_of_jobs_is_changed_one_by_one(slurm: Slurm) -> None:
    fence(slurm)
    ran = start(slurm, "-N4", "--gres=gpu:8", "--exclusive")
    words = (
        "sbatch",
        "--parsable",
        "--reservation=f",
        "-N4",
        "--gres=gpu:8",
        "--exclusive",
        "--output=/dev/null",
        "--wrap=sleep 9",
    )
    waits = slurm.run(*words).stdout.strip()
    slurm.run("scancel", ran)
    eventually(lambda: slurm.run("squeue", "-h", "-j", ran, "-t", "all", "-o", "%T").stdout == "CANCELLED\n")
    eventually(lambda: slurm.run("squeue", "-h", "-j", waits, "-o", "%v %T").stdout == "f RUNNING\n")
    later = slurm.run(*words).stdout.strip()
    slurm.run("scontrol", "update", f"JobId={waits}", "ReservationName=")
    assert slurm.run("scontrol", "delete", "ReservationName=f").code == 1
    assert slurm.run("scontrol", "update", f"JobId={ran},{later}", "ReservationName=") == Reply(
        1, "", f"Job has already finished for job {ran}\n"
    )
    assert slurm.run("scontrol", "delete", "ReservationName=f") == Reply(0)


def test_a_node_under_maintenance_says_so(slurm: Slurm) -> None:
    assert create(slurm, "m", "Nodes=gpu0001", "Users=root", "Flags=MAINT,IGNORE_JOBS").code == 0
    eventually(lambda: state(slurm) == "IDLE+MAINTENANCE+RESERVED", 40)
    assert slurm.run("sinfo", "-h", "-N", "-n", "gpu0001", "-o", "%T|%t").stdout == "maint|maint\n"
    slurm.run("scontrol", "update", "NodeName=gpu0001", "State=DRAIN", "Reason=x")
    assert state(slurm) == "IDLE+DRAIN+MAINTENANCE+RESERVED"
    assert slurm.run("sinfo", "-h", "-N", "-n", "gpu0001", "-o", "%T|%t").stdout == "drained$|drain$\n"


def test_a_reservation_that_draws_nobody_in_is_for_those_who_ask(slurm: Slurm) -> None:
    assert create(slurm, "g", "Nodes=gpu[0001-0007]", "Users=root").code == 0
    job = start(slurm, "-N1", "--gres=gpu:8")
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%v %N").stdout == "(null) gpu0008\n"
    own = start(slurm, "-N2", "--gres=gpu:8", "--reservation=g")
    assert slurm.run("squeue", "-h", "-j", own, "-o", "%v %N").stdout == "g gpu[0001-0002]\n"


def test_a_requeue_of_the_incomplete_leaves_others_alone_without_a_word(slurm: Slurm) -> None:
    done = start(slurm, "-N1", "--gres=gpu:8", "--requeue")
    slurm.run("scancel", done)
    eventually(lambda: slurm.run("squeue", "-h", "-j", done, "-t", "all", "-o", "%T").stdout == "CANCELLED\n")
    assert slurm.run("scontrol", "requeue", "incomplete", done) == Reply(0)
    assert slurm.run("squeue", "-h", "-j", done, "-t", "all", "-o", "%T").stdout == "CANCELLED\n"
    held = slurm.run(
        "sbatch", "--parsable", "-H", "--gres=gpu:8", "--output=/dev/null", "--wrap=sleep 5"
    ).stdout.strip()
    assert slurm.run("scontrol", "requeue", "incomplete", held) == Reply(0)
    assert slurm.run("scontrol", "requeue", held) == Reply(1, "", f"Job is pending execution for job {held}\n")
    assert slurm.run("squeue", "-h", "-j", held, "-o", "%T %r").stdout == "PENDING JobHeldUser\n"
    assert slurm.run("scontrol", "release", held) == Reply(0)
    eventually(lambda: slurm.run("squeue", "-h", "-j", held, "-o", "%T").stdout == "RUNNING\n")


def test_a_job_may_begin_later(slurm: Slurm) -> None:
    job = slurm.run(
        "sbatch", "--parsable", "--begin=now+600", "--gres=gpu:8", "--output=/dev/null", "--wrap=sleep 5"
    ).stdout.strip()
    eventually(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T %r").stdout == "PENDING BeginTime\n")
    assert slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now") == Reply(0)
    eventually(lambda: slurm.run("squeue", "-h", "-j", job, "-o", "%T").stdout == "RUNNING\n")


def test_a_job_that_runs_shows_its_batch_shell_as_a_step_and_its_script(slurm: Slurm) -> None:
    job = start(slurm, "-N1", "--gres=gpu:8")
    eventually(lambda: slurm.run("squeue", "-h", "-s", "-j", job, "-o", "%i %j %N").stdout != "")
    assert slurm.run("squeue", "-h", "-s", "-j", job, "-o", "%i %j %N").stdout == f"{job}.batch batch gpu0001\n"
    assert slurm.run("scontrol", "write", "batch_script", job, "-") == Reply(0, "#!/bin/sh\nsleep 300\n")
    assert slurm.run("scancel", "--signal=USR1", job) == Reply(0)
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%T").stdout == "RUNNING\n"


def test_a_job_may_ask_for_features(slurm: Slurm) -> None:
    for nodes, feature in (("gpu[0001-0003]", "old"), ("gpu[0004-0008]", "new,fast")):
        words = (f"AvailableFeatures={feature}", f"ActiveFeatures={feature}")
        assert slurm.run("scontrol", "update", f"NodeName={nodes}", *words) == Reply(0)
    assert "   AvailableFeatures=new,fast\n   ActiveFeatures=new,fast\n" in (
        slurm.run("scontrol", "show", "node", "gpu0004").stdout
    )
    assert slurm.run("sinfo", "-h", "-N", "-n", "gpu0004", "-o", "%f|%b").stdout == "new,fast|new,fast\n"
    for asked, expected in (("new&fast", "gpu[0004-0005]"), ("[old|new]", "gpu[0001-0002]")):
        job = start(slurm, "-N2", "--gres=gpu:8", "-C", asked)
        assert slurm.run("squeue", "-h", "-j", job, "-o", "%N|%f").stdout == f"{expected}|{asked}\n"
    reply = slurm.run("sbatch", "-C", "nosuch", "--wrap=true")
    assert reply == Reply(1, "", "sbatch: error: Batch job submission failed: Invalid feature specification\n")
    slurm.run("scontrol", "update", "NodeName=gpu[0001-0008]", "AvailableFeatures=", "ActiveFeatures=")
