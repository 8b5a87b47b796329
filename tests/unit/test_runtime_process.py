"""A background process is found again by pid and start time, and only so."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from adapters.kept_json import write_private
from cli.runtime.files import RunFolder, find_fleet_file
from cli.runtime.lifecycle import runtime_status
from cli.runtime.process import ProcessRecord, flow_processes, read_record, start_detached, stop
from fleet.errors import ConfigurationError

SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal as s, time; s.signal(s.SIGTERM, s.SIG_IGN); print(1, flush=True); time.sleep(60)",
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "fleet.yaml")
    folder.create()
    return folder


@pytest.fixture
def sleeper(folder: RunFolder) -> Iterator[ProcessRecord]:
    record = start_detached(SLEEPER, {}, folder.path, folder.logs / "x.log", folder.record("server"), 4321)
    yield record
    process = record.process()
    if process is not None:
        stop([process], 5)


def test_a_started_process_is_found_again_from_its_record(folder: RunFolder, sleeper: ProcessRecord) -> None:
    assert read_record(folder.record("server")) == sleeper
    process = sleeper.process()
    assert process is not None
    assert process.pid == sleeper.pid


def test_a_process_with_the_same_pid_and_another_start_time_is_not_ours(sleeper: ProcessRecord) -> None:
    assert ProcessRecord(sleeper.pid, sleeper.started - 100).process() is None


def test_a_stopped_process_is_gone(sleeper: ProcessRecord) -> None:
    process = sleeper.process()
    assert process is not None
    assert stop([process], 5) == []
    assert sleeper.process() is None


def test_a_process_that_ignores_sigterm_is_killed(folder: RunFolder) -> None:
    log = folder.logs / "stubborn.log"
    record = start_detached(STUBBORN, {}, folder.path, log, folder.record("worker"))
    process = record.process()
    assert process is not None
    while not log.read_text():  # until it ignores SIGTERM; the test's timeout is the bound
        assert record.process() is not None
    assert [killed.pid for killed in stop([process], 0.2)] == [record.pid]
    assert record.process() is None


def test_a_flow_run_is_found_though_its_worker_has_died(folder: RunFolder) -> None:
    environment = {"GPUFLEET_RUN": str(folder.path), "PREFECT__FLOW_RUN_ID": "b0a5"}
    record = start_detached(SLEEPER, environment, folder.path, folder.logs / "x.log", folder.record("x"))
    try:
        assert [process.pid for process in flow_processes(folder.path)] == [record.pid]
        assert flow_processes(folder.path / "other") == []
    finally:
        stop([psutil.Process(record.pid)], 5)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "4"}', '{"pid": 4}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.json"
    path.write_text(text)
    assert read_record(path) is None


def test_a_record_without_its_process_is_shown_as_gone_with_the_way_on(folder: RunFolder) -> None:
    write_private(folder.record("worker"), '{"pid": 1, "started": 5.0, "port": 0}')
    status = runtime_status(folder)
    assert status.worker.state == "gone"
    assert status.server.state == "stopped"
    assert not status.ready
    assert status.problems == ("worker: its process is gone; `gpufleet up` starts it again",)


def test_a_server_that_does_not_answer_is_not_called_running(folder: RunFolder, sleeper: ProcessRecord) -> None:
    assert psutil.pid_exists(sleeper.pid)
    assert runtime_status(folder).server.state == "starting"


def test_the_auth_string_is_its_owners_alone_and_stays_the_same(folder: RunFolder) -> None:
    first = folder.auth()
    folder.create()
    assert folder.auth() == first
    assert stat.S_IMODE(folder.auth_file.stat().st_mode) == 0o600
    assert len(first) > 30


def test_a_missing_fleet_file_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUFLEET_FLEET", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="give --fleet FILE"):
        find_fleet_file(None)


def test_the_fleet_file_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.yaml").touch()
    monkeypatch.setenv("GPUFLEET_FLEET", str(tmp_path / "other.yaml"))
    assert find_fleet_file(None) == tmp_path / "other.yaml"


@pytest.mark.parametrize(
    "text",
    ['{"pid": -1, "started": 1}', '{"pid": 1, "started": NaN}', '{"pid": 99999999999999, "started": 1}', "[", "null"],
)
def test_a_record_that_names_no_process_is_no_record(folder: RunFolder, text: str) -> None:
    folder.record("server").write_text(text)
    assert read_record(folder.record("server")) is None
    assert runtime_status(folder).server.state != "running"


def test_a_folder_where_a_record_should_be_is_no_record(folder: RunFolder) -> None:
    folder.record("server").mkdir()
    assert read_record(folder.record("server")) is None


def test_a_file_that_cannot_be_replaced_leaves_no_half_copy(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_private(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
