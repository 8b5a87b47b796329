"""Jobs that wait, and what a fence has to do with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import SchedulerUnreachable
from fleet.slurm_waiting import WaitingJob, read_waiting, waiting_format, why_fenced

MARK = "<4f>"
HEADER = ["JOBID", "NODES", "PARTITION", "USER", "ACCOUNT", "REASON", "RESERVATION", "NAME"]
JOB = WaitingJob("7", "llm", "ann", "ml", "train", 5, "Resources", "")
NODES = tuple(f"gpu{number}" for number in range(1, 9))


def _printed(*rows: tuple[str, ...]) -> str:
    return "".join(MARK + MARK.join(row) + MARK + "\n" for row in (HEADER, *rows))


def test_waiting_jobs_are_read_with_names_of_any_content() -> None:
    row = ("7", "5-8", "train", "ann", "(null)", "Nodes required for job are DOWN, DRAINED", "(null)", "a|b\nc")
    (job,) = read_waiting(_printed(row), MARK)
    assert job == WaitingJob("7", "a|b\nc", "ann", "", "train", 5, "Nodes required for job are DOWN, DRAINED", "")
    assert read_waiting(_printed(), MARK) == ()
    assert waiting_format(MARK).startswith("<4f>%A<4f>%D<4f>")


@pytest.mark.parametrize("text", ["", "JOBID", _printed()[:12], _printed() + MARK])
def test_an_answer_that_is_cut_off_is_not_nobody_waits(text: str) -> None:
    with pytest.raises(SchedulerUnreachable):
        read_waiting(text, MARK)


def test_a_job_larger_than_either_side_waits_for_the_fence() -> None:
    text = why_fenced(JOB, NODES, {"train": NODES[:4]})
    assert text is not None
    assert "job 7 of ann asks for 5 nodes" in text
    assert "4 in fence train and 4 outside" in text


def test_a_job_that_fits_on_one_side_waits_for_something_else() -> None:
    assert why_fenced(replace(JOB, nodes=4), NODES, {"train": NODES[:4]}) is None
    assert why_fenced(JOB, NODES, {"train": NODES[:5]}) is None
    assert why_fenced(JOB, NODES, {}) is None
    assert why_fenced(JOB, NODES, {"other": ("x1", "x2")}) is None


def test_a_job_that_no_open_node_count_could_hold_does_not_wait_for_the_fence() -> None:
    assert why_fenced(replace(JOB, nodes=9), NODES, {"train": NODES[:4]}) is None
    assert why_fenced(JOB, NODES[:4], {"train": NODES[:2]}) is None
    assert why_fenced(replace(JOB, nodes=None), NODES, {"train": NODES[:4]}) is None


def test_a_job_with_a_reservation_of_its_own_is_not_drawn_in() -> None:
    assert why_fenced(replace(JOB, reservation="theirs"), NODES, {"train": NODES[:4]}) is None


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    try:
        read_waiting(_printed() + MARK + MARK.join([text] * 8) + MARK, MARK)
        read_waiting(text, MARK)
    except SchedulerUnreachable:
        return
