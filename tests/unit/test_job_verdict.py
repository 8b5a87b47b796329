"""The judge of jobs over truth logs that were written by hand."""

from __future__ import annotations

import json
from pathlib import Path

from simulator.verdict import Expectations, Verdict, judge

FLEET = {
    "t": 0.0,
    "event": "fleet",
    "racks": {"r1": ["a", "b"]},
    "limits": {"r1": 1},
    "slurm": "real",
    "time_scale": 10.0,
}
RUN = {"nodes": ["a", "b"], "gpus": 16}


def verdict(folder: Path, *events: dict[str, object], most_lost_seconds: float | None = None) -> Verdict:
    path = folder / "truth.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (FLEET, *events)))
    return judge(path, Expectations(most_lost_seconds=most_lost_seconds))


def start(t: float, step: int = 0, restarts: int = 0) -> dict[str, object]:
    return {"t": t, "event": "job_start", "job": 1, "step": step, "restarts": restarts, **RUN}


def checkpoint(t: float, step: int) -> dict[str, object]:
    return {"t": t, "event": "checkpoint", "job": 1, "step": step, **RUN}


def killed(t: float, lost: float) -> dict[str, object]:
    return {"t": t, "event": "job_killed", "job": 1, "lost_seconds": lost, "cause": "TERM", **RUN}


def ended(t: float) -> dict[str, object]:
    return {"t": t, "event": "job_end", "job": 1, **RUN}


def test_a_job_that_is_left_alone_loses_nothing(tmp_path: Path) -> None:
    told = verdict(tmp_path, start(10), checkpoint(50, 40), ended(90))
    assert (told.killed, told.lost_gpu_seconds, told.jobs_ended, told.wrong()) == ((), 0.0, (1,), ())


def test_a_requeued_job_that_resumes_and_ends_is_right_where_so_much_may_be_lost(tmp_path: Path) -> None:
    events = (start(10), checkpoint(50, 40), killed(60, 1.0), start(200, 40, 1), ended(300))
    told = verdict(tmp_path, *events, most_lost_seconds=2.0)
    assert (told.lost_gpu_seconds, told.jobs_resumed, told.jobs_ended) == (16.0, (1,), (1,))
    assert told.wrong() == ()
    assert verdict(tmp_path, *events).wrong() == ("job 1 was killed at 60 s on 2 nodes: TERM",)


def test_a_job_that_lost_more_than_may_be_is_named(tmp_path: Path) -> None:
    told = verdict(tmp_path, start(10), killed(600, 59.0), most_lost_seconds=2.0)
    assert told.wrong() == ("job 1 was killed at 600 s on 2 nodes: TERM, 59 s of its work lost",)
    assert told.jobs_unfinished == (1,)


def test_a_job_that_began_again_before_its_newest_checkpoint_is_named(tmp_path: Path) -> None:
    told = verdict(tmp_path, start(10), checkpoint(50, 40), killed(60, 1.0), start(90, 0, 1), most_lost_seconds=9)
    assert told.jobs_resumed == ()
    assert told.wrong() == ("job 1 began again at step 0, though its checkpoint of step 40 was complete",)


def test_a_job_that_lost_its_node_is_counted_by_the_log_in_the_jobs_own_seconds(tmp_path: Path) -> None:
    lost_node = {"t": 150.0, "event": "job_killed", "job": 1, "cause": "a lost its power"}
    told = verdict(tmp_path, start(10), checkpoint(50, 40), lost_node)
    [kill] = told.killed
    assert (kill.gpus, kill.lost_seconds, kill.nodes) == (16, 10.0, ("a", "b"))


def test_a_job_whose_end_nobody_wrote_lost_at_most_what_passed_until_its_next_start(tmp_path: Path) -> None:
    told = verdict(tmp_path, start(10), checkpoint(50, 40), start(250, 40, 1))
    [kill] = told.killed
    assert (kill.lost_seconds, kill.cause) == (20.0, "its end was not told")


def test_a_job_that_runs_at_the_end_of_the_log_is_neither_ended_nor_unfinished(tmp_path: Path) -> None:
    told = verdict(tmp_path, start(10))
    assert (told.jobs_ended, told.jobs_unfinished) == ((), ())
