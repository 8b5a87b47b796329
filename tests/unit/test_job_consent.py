"""What jobs say of their checkpoints and of being disturbed, in every spelling that people use."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.checkpoint_tools import job

from fleet.checkpoint_readers.values import CheckpointKind
from fleet.job_consent import JobConsent, read_duration, read_environment, read_job_consent, read_job_text, read_signal

WHOLE = JobConsent(
    path="/lustre/run 7",
    kind=CheckpointKind.MEGATRON,
    signal="USR1",
    signals=True,
    notice=timedelta(minutes=30),
    consent=True,
    source="comment",
)


@pytest.mark.parametrize(
    "text",
    [
        "ckpt=/lustre/run 7;kind=megatron;signal=USR1;notice=30m;consent=yes",
        "ckpt='/lustre/run 7';kind=\"Megatron-LM\";signal=SIGUSR1;notice=1800;consent=YES;",
        '"ckpt=/lustre/run 7;kind=megatron;signal=10;notice=00:30:00;consent=true"',
        "my best run, ckpt=/lustre/run 7/, kind=mcore signal=B:USR1@120, notice=0.5h consent=now",
        " CKPT = /lustre/run 7 ;\r\nKind=megatron;;signal=usr1\nnotice= 30 min;consent=y ",
        "see https://wiki/x?ckpt=/no;checkpoint=/lustre/run 7;framework=verl;signal=USR1;notice=30m;consent=1",
    ],
)
def test_one_thing_is_said_in_many_ways(text: str) -> None:
    assert read_job_text(text) == WHOLE


@pytest.mark.parametrize(
    "text", ["", "(null)", "weekly run of team A", "a;b;c", "=", "100% = all", "ckpt", "ckpt=;kind="]
)
def test_a_comment_that_says_nothing_of_it_says_nothing(text: str) -> None:
    assert read_job_text(text) == JobConsent()


def test_a_semicolon_in_quotes_belongs_to_the_path() -> None:
    assert read_job_text("ckpt='/data/a;b=c';kind=dcp").path == "/data/a;b=c"


def test_an_unknown_key_is_named_with_the_nearest_one() -> None:
    found = read_job_text("cktp=/data/x;kind=dcp;prio=9")
    assert (found.path, found.kind) == (None, CheckpointKind.DCP)
    assert found.unknown == ("comment: unknown key 'cktp'; did you mean 'ckpt'?", "comment: unknown key 'prio'")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ckpt=runs/7", "is no absolute path"),
        ("ckpt=/data/../etc", "goes upwards (..)"),
        ("ckpt=s3://bucket/run", "is no path on a file system that can be listed"),
        ("ckpt=/a\x1b[2Jb", "is no absolute path"),
        ("ckpt=/", ""),
        ("kind=tensorflow", "is no framework"),
        ("signal=KILL", "is no signal"),
        ("signal=STOP", "is no signal"),
        ("signal=9", "is no signal"),
        ("notice=soon", "is no length of time"),
        ("notice=999999d", "is no length of time"),
        ("interval=0", "is no length of time"),
        ("consent=maybe", "is neither yes nor no"),
        ("requeue=2", "is neither yes nor no"),
        ("consent=no;consent=yes", "is said twice"),
    ],
)
def test_what_cannot_be_meant_is_named_and_not_taken(text: str, told: str) -> None:
    found = read_job_text(text)
    assert all(told in one for one in found.unknown)
    assert len(found.unknown) == bool(told)
    assert found in (JobConsent(unknown=found.unknown), JobConsent(unknown=found.unknown, source="comment"))


def test_a_job_may_forbid_signals() -> None:
    assert read_job_text("signal=none;ckpt=/d") == JobConsent(path="/d", signals=False, source="comment")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1h30m", 5400), ("2d", 172800), ("1-02:00:00", 93600), ("10:00", 600), ("0", 0), ("1.5h", 5400)],
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert read_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "-5m", "5 weeks", "m", "1h30", "30m!", "１０m", "nan", "1e9"])
def test_what_is_no_length_of_time(text: str) -> None:
    assert read_duration(text) is None


def test_the_forms_of_a_signal() -> None:
    assert [read_signal(text) for text in ("R:TERM@60", "BR:12@5", "sigint", "CHLD", "")] == [
        "TERM",
        "USR2",
        "INT",
        None,
        None,
    ]


def test_the_comment_goes_before_the_environment_and_that_before_the_rule() -> None:
    environment = {"GPUFLEET_JOB": "ckpt=/env;kind=dcp;notice=5m", "GPUFLEET_NOTICE": "10m", "PATH": "/bin"}
    rule = "ckpt=/rule/%u/%j;kind=orbax;signal=USR2;requeue=no"
    said = read_job_consent(job(comment="signal=USR1"), environment, rule)
    assert (said.path, said.kind, said.source) == ("/env", CheckpointKind.DCP, "environment")
    assert (said.signal, said.notice, said.requeue) == ("USR1", timedelta(minutes=10), False)
    assert read_job_consent(job(), None, rule).path == "/rule/mlee/812"
    assert read_job_consent(job(comment="ckpt=/mine"), environment, rule).kind is None


def test_a_folder_that_the_job_names_badly_is_not_taken_from_the_rule() -> None:
    said = read_job_consent(job(comment="ckpt=relative"), None, "ckpt=/rule")
    assert said.path is None


def test_a_user_name_cannot_lead_out_of_the_rules_folder() -> None:
    said = read_job_consent(job(user="../../etc"), None, "ckpt=/rule/%u")
    assert said.path is None
    assert "cannot be filled in" in said.unknown[0]


def test_a_job_that_forbids_signals_is_not_signalled_for_its_environments_sake() -> None:
    said = read_job_consent(job(comment="signal=no"), {"GPUFLEET_SIGNAL": "USR1"})
    assert (said.signals, said.signal) == (False, None)


def test_the_environment_names_its_faults() -> None:
    assert read_environment({"GPUFLEET_KIND": "what"}).unknown[0].startswith("environment: kind='what'")


@pytest.mark.parametrize("text", ["ckpt=/a" + " " * 8000 + "b", "kind=a" + " ," * 4000, "ckpt='" * 1300, "a= " * 2700])
def test_a_comment_of_blanks_quotes_and_commas_is_read_in_no_time(text: str) -> None:
    begun = time.process_time()
    read_job_text(text)
    assert time.process_time() - begun < 5


@settings(max_examples=400, deadline=None)
@given(
    st.text()
    | st.lists(st.sampled_from(["ckpt=", "kind=", "/a", ";", "'", '"', "\\", " ", "signal=", "x"])).map("".join)
)
def test_any_comment_gives_an_answer(text: str) -> None:
    found = read_job_consent(job(comment=text), {"GPUFLEET_JOB": text}, text)
    assert found.path is None or (found.path.startswith("/") and ".." not in found.path.split("/"))


def test_a_folder_by_job_number_cannot_be_told_for_a_task_of_an_array() -> None:
    said = read_job_consent(job("5_3", comment="ckpt=/ckpt/%j;kind=beacon"))
    assert said.path is None
    assert "cannot be filled in for a task of an array" in said.unknown[0]
