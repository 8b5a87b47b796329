"""Flow runs that a worker took up and died before it started them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cli.runtime import api


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


def test_a_pending_run_without_a_process_is_stillborn(prefect: FakePrefect) -> None:
    assert api.stillborn_runs(prefect.server_port, "u:p", {"run-2"}) == ["run-1"]
    assert prefect.asked_for == [["PENDING"]]


def test_a_server_that_does_not_answer_is_not_taken_for_one_without_such_runs(prefect: FakePrefect) -> None:
    prefect.away = True
    assert api.stillborn_runs(prefect.server_port, "u:p", set()) is None


def test_a_stillborn_run_is_set_to_crashed(prefect: FakePrefect) -> None:
    assert api.crash_run(prefect.server_port, "u:p", "run-1", "died")
    assert prefect.crashed == ["run-1"]


def test_a_run_that_the_server_does_not_let_go_is_not_counted(prefect: FakePrefect) -> None:
    assert not api.crash_run(prefect.server_port, "u:p", "gone", "died")
