"""Flow runs that a worker took up and died before it started them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cli.runtime import api, lifecycle
from cli.runtime.files import RunFolder


class FakePrefect(HTTPServer):
    """Knows two pending runs; `crashed` has those that were set to Crashed. `away`: answers 503."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.crashed: list[str] = []
        self.asked_for: list[object] = []
        self.away = False


class _Handler(BaseHTTPRequestHandler):
    server: FakePrefect

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/flow_runs/filter":
            self.server.asked_for.append(body["flow_runs"]["state"]["type"]["any_"])
            self._answer([{"id": "run-1"}, {"id": "run-2"}])
        else:
            accepted = body["state"]["type"] == "CRASHED" and self.path != "/api/flow_runs/gone/set_state"
            self.server.crashed += [self.path.split("/")[3]] if accepted else []
            self._answer({"status": "ACCEPT" if accepted else "ABORT"})

    def _answer(self, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(503 if self.server.away else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def prefect() -> Iterator[FakePrefect]:
    server = FakePrefect()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_a_worker_took_up_and_did_not_begin_is_pending(prefect: FakePrefect) -> None:
    assert api.pending_runs(prefect.server_port, "u:p") == ["run-1", "run-2"]
    assert prefect.asked_for == [["PENDING"]]


def test_a_run_whose_process_dies_after_its_worker_is_ended_at_the_second_look(
    prefect: FakePrefect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / "fleet.yaml")
    folder.create()
    said: list[str] = []
    monkeypatch.setattr(lifecycle, "flow_runs_with_process", lambda _: {"run-2"})
    doubtful = lifecycle._end_stillborn_runs(folder, prefect.server_port, said.append)
    assert (doubtful, prefect.crashed) == ({"run-2"}, ["run-1"])
    monkeypatch.setattr(lifecycle, "flow_runs_with_process", lambda _: set())
    assert lifecycle._end_stillborn_runs(folder, prefect.server_port, said.append, doubtful) == set()
    assert prefect.crashed == ["run-1", "run-2"]


def test_a_server_that_does_not_answer_is_not_taken_for_one_without_such_runs(prefect: FakePrefect) -> None:
    prefect.away = True
    assert api.pending_runs(prefect.server_port, "u:p") is None


def test_a_stillborn_run_is_set_to_crashed(prefect: FakePrefect) -> None:
    assert api.crash_run(prefect.server_port, "u:p", "run-1", "died")
    assert prefect.crashed == ["run-1"]


def test_a_run_that_the_server_does_not_let_go_is_not_counted(prefect: FakePrefect) -> None:
    assert not api.crash_run(prefect.server_port, "u:p", "gone", "died")
