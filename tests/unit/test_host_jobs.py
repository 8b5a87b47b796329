"""Jobs that outlive us, run by real shells: started once, read back at any time, lost where their process is gone."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapters.host_jobs import HostJobs
from adapters.local import Finished, LocalHost
from fleet.driver_jobs import HostJob, JobState, job_id, read_job
from fleet.errors import ConfigurationError, TransientError


@pytest.fixture
def jobs(tmp_path: Path) -> HostJobs:
    return HostJobs(LocalHost(), "gpu-0001", str(tmp_path / "jobs"))


def ended(jobs: HostJobs, name: str) -> HostJob:
    end = time.monotonic() + 20
    while (job := jobs.read(name)).state is JobState.RUNNING:
        assert time.monotonic() < end
        time.sleep(0.02)
    return job


def test_a_job_that_was_never_started_is_absent(jobs: HostJobs) -> None:
    assert jobs.read("none").state is JobState.ABSENT


def test_a_job_ends_with_its_code_and_the_end_of_its_output(jobs: HostJobs) -> None:
    jobs.start("a-1", ("sh", "-c", "printf 'E: \"no\"\\t\\\\ way\\r\\n\\033[1mbold\\n'; echo oops >&2; exit 100"))
    assert ended(jobs, "a-1") == HostJob(JobState.ENDED, 100, 'E: "no" \\ way\n\n[1mbold\noops\n')


def test_a_second_start_of_a_name_runs_nothing(jobs: HostJobs, tmp_path: Path) -> None:
    for _ in range(3):
        jobs.start("a", ("sh", "-c", f"echo x >>{tmp_path}/ran; sleep 0.2"))
    ended(jobs, "a")
    jobs.start("a", ("sh", "-c", f"echo x >>{tmp_path}/ran"))
    assert (tmp_path / "ran").read_text() == "x\n"


def test_starts_at_the_same_moment_run_it_once(tmp_path: Path) -> None:
    jobs = HostJobs(LocalHost(), "gpu-0001", str(tmp_path / "jobs"))
    command = ("sh", "-c", f"echo x >>{tmp_path}/ran; sleep 0.3")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: jobs.start("a", command), range(4)))
    ended(jobs, "a")
    assert (tmp_path / "ran").read_text() == "x\n"


def test_arguments_arrive_as_they_are(jobs: HostJobs) -> None:
    words = ("a b", "c'd", '"$HOME"', "*", "", "-n")
    jobs.start("a", ("printf", "[%s]", *words))
    assert ended(jobs, "a").tail == "".join(f"[{word}]" for word in words) + "\n"


def test_only_the_last_4000_characters_are_told(jobs: HostJobs) -> None:
    jobs.start("a", ("sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"))
    tail = ended(jobs, "a").tail
    assert len(tail) <= 4001
    assert tail.endswith("line 1999\n")


def test_a_job_whose_processes_are_gone_is_lost(jobs: HostJobs, tmp_path: Path) -> None:
    jobs.start("a", ("sleep", "60"))
    assert jobs.read("a").state is JobState.RUNNING
    pid = int((tmp_path / "jobs" / "a" / "process").read_text().split()[0])
    os.killpg(pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while jobs.read("a").state is JobState.RUNNING:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert jobs.read("a").state is JobState.LOST


def test_a_job_whose_runner_was_ended_runs_as_long_as_its_command_does(jobs: HostJobs, tmp_path: Path) -> None:
    jobs.start("a", ("sleep", "60"))
    pid = int((tmp_path / "jobs" / "a" / "process").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    assert jobs.read("a").state is JobState.RUNNING
    os.killpg(pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while jobs.read("a").state is not JobState.LOST:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_after_a_boot_a_job_without_an_end_is_lost(jobs: HostJobs, tmp_path: Path) -> None:
    jobs.start("a", ("sleep", "60"))
    mark = tmp_path / "jobs" / "a" / "process"
    pid, started, _ = mark.read_text().split()
    mark.write_text(f"{pid} {started} 00000000-0000-0000-0000-000000000000\n")
    assert jobs.read("a").state is JobState.LOST
    os.killpg(int(pid), signal.SIGKILL)


def test_a_start_that_was_cut_before_the_job_had_its_name_may_be_repeated(jobs: HostJobs, tmp_path: Path) -> None:
    (tmp_path / "jobs" / ".new.AbCdEf").mkdir(parents=True)
    jobs.start("a", ("true",))
    assert ended(jobs, "a").succeeded


@pytest.mark.parametrize("name", ["../x", "a b", "", ".", "a/b", "a;b"])
def test_a_name_that_is_no_name_is_refused(jobs: HostJobs, name: str) -> None:
    with pytest.raises(ConfigurationError, match="no name of a job"):
        jobs.start(name, ("true",))


class Says:
    """A host that answers one text."""

    def __init__(self, code: int, text: str) -> None:
        self.answer = Finished(code, text, "")

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        return self.answer

    def close(self) -> None:
        """Nothing is kept open."""


def test_an_answer_of_another_shape_is_asked_for_again_and_never_read_as_absent() -> None:
    with pytest.raises(TransientError, match="does not tell"):
        HostJobs(Says(0, "Last login: today\n"), "n").read("a")
    with pytest.raises(ConfigurationError, match="cannot keep jobs"):
        HostJobs(Says(73, "mkdir: read-only"), "n").start("a", ("true",))
    with pytest.raises(TransientError, match="did not begin"):
        HostJobs(Says(74, ""), "n").start("a", ("true",))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "odd"}', '{"state": 3}', '{"code": 0}', "{" * 3000])
def test_no_text_is_read_as_a_job_that_is_none(text: str) -> None:
    assert read_job(text) is None


def test_a_banner_around_the_answer_does_no_harm() -> None:
    text = 'Welcome\n{"state": "ended", "code": 0, "tail": "x"}\nbye\n'
    assert read_job(text) == HostJob(JobState.ENDED, 0, "x")
    assert read_job('{"state": "ended", "code": null}') == HostJob(JobState.ENDED, None, "")


def test_a_jobs_name_is_made_of_what_is_allowed() -> None:
    assert job_id("op-1", "gpu 1/a", "driver") == "op-1-gpu_1_a-driver"
