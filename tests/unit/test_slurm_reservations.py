"""Reservations, features and environments as Slurm prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import SchedulerUnreachable
from fleet.slurm import read_scontrol_jobs, read_scontrol_nodes
from fleet.slurm_details import JobDetail, read_job_details
from fleet.slurm_environment import read_job_environment
from fleet.slurm_reservations import read_reservations

# the fields and their order are those of Slurm 22.05.8
ONE = (
    "ReservationName={name} StartTime=2026-11-30T16:00:00 EndTime=2027-11-30T16:00:00 Duration=365-00:00:00 "
    "Nodes={nodes} NodeCnt=2 CoreCnt=16 Features=(null) PartitionName=(null) "
    "Flags=IGNORE_JOBS,SPEC_NODES,NO_HOLD_JOBS_AFTER_END,MAGNETIC TRES=cpu=16 "
    "Users=-nobody Groups=(null) Accounts=(null) Licenses=(null) State={state} BurstBuffer=(null) Watts=n/a "
    "MaxStartDelay=(null) \n"
)


def _one(name: str = "gpufleet.a", nodes: str = "gpu[1-2]", state: str = "ACTIVE") -> str:
    return ONE.format(name=name, nodes=nodes, state=state)


@pytest.mark.parametrize("shape", [lambda text: text, lambda text: text.replace(" Nodes=", "\n   Nodes=") + "\n"])
def test_reservations_are_read_in_both_shapes(shape: object) -> None:
    assert callable(shape)
    found = read_reservations(shape(_one()) + shape(_one("maint", "gpu3", "INACTIVE")))
    assert list(found) == ["gpufleet.a", "maint"]
    first = found["gpufleet.a"]
    assert (first.nodes, first.active, first.users, first.accounts) == (("gpu1", "gpu2"), True, "-nobody", "")
    assert first.flags == {"IGNORE_JOBS", "SPEC_NODES", "NO_HOLD_JOBS_AFTER_END", "MAGNETIC"}
    assert first.end == "2027-11-30T16:00:00"
    assert not found["maint"].active


def test_a_comment_of_a_later_version_is_no_field() -> None:
    text = _one().rstrip("\n") + "Comment=x Nodes=gpu9 State=INACTIVE Flags=MAINT\n"
    found = read_reservations(text)["gpufleet.a"]
    assert (found.nodes, found.active, found.yields) == (("gpu1", "gpu2"), True, False)


def test_slurms_word_for_no_reservation_is_none_and_silence_is_not() -> None:
    assert read_reservations("No reservations in the system\n") == {}
    for text in ("", "slurm_load_reservations error", _one()[:60]):
        with pytest.raises(SchedulerUnreachable):
            read_reservations(text)


def test_a_reservation_of_licenses_alone_has_no_nodes() -> None:
    assert read_reservations(_one(nodes="(null)"))["gpufleet.a"].nodes == ()


def test_a_nodes_features_are_read_from_those_that_are_active() -> None:
    text = "NodeName=gpu1 AvailableFeatures=h100,fw=1,old ActiveFeatures=h100,fw=1 Gres=gpu:8 State=IDLE Partitions=t\n"
    assert read_scontrol_nodes(text)["gpu1"].features == {"h100", "fw=1"}
    assert (
        read_scontrol_nodes(text.replace("h100,fw=1,old", "(null)").replace("h100,fw=1", "(null)"))["gpu1"].features
        == frozenset()
    )


@pytest.mark.parametrize(("word", "requeue"), [("Requeue=1 ", True), ("Requeue=0 ", False), ("", None)])
def test_a_jobs_requeue_mark_is_read_and_never_guessed(word: str, requeue: bool | None) -> None:
    (job,) = read_scontrol_jobs(f"JobId=7 JobName=a UserId=ann(1) JobState=RUNNING {word}NodeList=gpu1\n")
    assert job.requeue is requeue


def test_a_line_of_details_that_is_cut_off_tells_less() -> None:
    assert read_job_details("JOBID\n7" + " " * 23 + "2\n") == {"7": JobDetail(None, None)}
    assert read_job_details("") == {}


TITLE = f"Environment used for 12 (must be batch to display)\n{'-' * 80}\n"


def test_a_jobs_environment_is_read_with_values_of_several_lines() -> None:
    text = TITLE + "CKPT_DIR=/ckpt/a b\nEMPTY=\nBASH_FUNC_ml%%=() {  echo a\n}\nPATH=/bin\nPATH=/other\nX=1\n\n"
    assert read_job_environment(text) == {
        "CKPT_DIR": "/ckpt/a b",
        "EMPTY": "",
        "BASH_FUNC_ml%%": "() {  echo a\n}",
        "PATH": "/bin",
        "X": "1",
    }
    assert read_job_environment(text.replace("\n", "\r\n")) == read_job_environment(text)


@pytest.mark.parametrize("text", ["", TITLE, TITLE + "NONE\n\n", "Slurm accounting storage is disabled\n"])
def test_an_environment_that_is_not_kept_is_not_an_empty_one(text: str) -> None:
    assert read_job_environment(text) is None


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    for whole in (text, TITLE + text):
        read_job_environment(whole)
    for whole in (text, f"ReservationName=a {text}", _one() + text):
        try:
            found = read_reservations(whole)
        except SchedulerUnreachable:
            continue
        assert all(name and name == one.name for name, one in found.items())
    read_job_details(f"JOBID\n{text}")
