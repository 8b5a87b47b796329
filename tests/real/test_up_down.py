"""`gpufleet up` and `down` with a real Prefect server and worker."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from cli.runtime.files import RunFolder
from cli.runtime.lifecycle import runtime_status
from cli.runtime.port import port_free
from cli.runtime.process import read_record
from cli.runtime.server import Patience, wait_until_healthy

pytestmark = pytest.mark.prefect

FLEET = """\
version: 1
fleet: up-down
bmc: {user: admin, password: {file: bmc_password}}
ssh: {user: root, key: {file: id_ed25519}}
gate: {unsigned: true}
pools: {train: {}}
racks: {r1: {}, r2: {limit: 3}}
nodes:
  - {name: n1, rack: r1, pool: train, model: m, bmc: "https://127.0.0.2:8001", ssh: "127.0.0.2:22"}
  - {name: n2, rack: r2, pool: train, model: m, bmc: "https://127.0.0.3:8001", ssh: "127.0.0.3:22"}
"""


@dataclass
class Fleet:
    """A fleet file in a folder of its own, and the command as a person runs it."""

    file: Path
    port: int

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.file)

    def gpufleet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-c", "from cli.main import main; main()", *arguments)
        environment = {**os.environ, "GPUFLEET_FLEET": str(self.file)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)

    def up(self) -> dict[str, object]:
        done = self.gpufleet("up", "--json", "--port", str(self.port))
        assert done.returncode == 0, done.stderr
        return {**json.loads(done.stdout), "said": done.stderr}

    def pid(self, component: str) -> int:
        return int(json.loads(self.folder.record(component).read_text())["pid"])

    def api(self) -> httpx.Client:
        user, _, password = self.folder.auth().partition(":")
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}/api", auth=(user, password), timeout=30)

    def limits(self) -> dict[str, int]:
        with self.api() as api:
            answer = api.post("/v2/concurrency_limits/filter", json={}).json()
        return {limit["name"]: limit["limit"] for limit in answer if limit["name"].startswith("rack-")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write(file: Path) -> None:
    """The fleet file and what it points to."""
    file.write_text(FLEET)
    file.with_name("bmc_password").write_text("not used here\n")
    file.with_name("known_hosts").write_text("")
    key = file.with_name("id_ed25519")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    file = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
    _write(file)
    fleet = Fleet(file, _free_port())
    try:
        fleet.up()
        yield fleet
    finally:
        fleet.gpufleet("down")


def test_everything_is_there_after_up(fleet: Fleet) -> None:
    assert runtime_status(fleet.folder).ready
    assert fleet.limits() == {"rack-r1": 2, "rack-r2": 3}
    with fleet.api() as api:
        names = {deployment["name"] for deployment in api.post("/deployments/filter", json={}).json()}
        assert {"firmware-rollout", "reconcile"} <= names
        automations = api.post("/automations/filter", json={}).json()
        assert [a["enabled"] for a in automations if a["name"].startswith("gpufleet:")] == [True]
        block = api.get("/block_types/slug/gpufleet-fleet/block_documents/name/up-down").json()
        assert block["data"] == {"fleet_file": str(fleet.file)}


def test_the_api_refuses_who_does_not_know_the_auth_string(fleet: Fleet) -> None:
    assert httpx.post(f"http://127.0.0.1:{fleet.port}/api/deployments/filter", json={}).status_code == 401


def test_the_auth_string_is_in_no_argument_and_no_log(fleet: Fleet) -> None:
    secret = fleet.folder.auth().partition(":")[2]
    arguments = [" ".join(psutil.Process(fleet.pid(name)).cmdline()) for name in ("server", "worker")]
    logs = [log.read_text() for log in fleet.folder.logs.iterdir()]
    assert len(logs) == 2
    assert not [text for text in arguments + logs if secret in text]


def test_a_second_up_changes_nothing_and_is_quick(fleet: Fleet) -> None:
    pids = fleet.pid("server"), fleet.pid("worker")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    said = str(fleet.up()["said"])
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 4  # of CPU; with all deployments it is more
    assert (fleet.pid("server"), fleet.pid("worker")) == pids
    assert said.count("runs already") == 2


def created(api: httpx.Client, path: str, body: dict[str, object]) -> dict[str, str]:
    """As Prefect's own client: a server that is busy (503) is asked again."""
    for _ in range(5):
        answer = api.post(path, json=body)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            break
        time.sleep(1)
    assert answer.is_success, f"{answer.status_code} {answer.text}"
    found: dict[str, str] = answer.json()
    return found


def test_a_deployment_runs_on_the_worker(fleet: Fleet) -> None:
    with fleet.api() as api:
        deployment = api.get("/deployments/name/reconcile/reconcile").json()
        run = created(api, f"/deployments/{deployment['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}})
        deadline = time.monotonic() + 60
        state = "SCHEDULED"
        while state in ("SCHEDULED", "PENDING", "RUNNING") and time.monotonic() < deadline:
            time.sleep(0.3)
            state = api.get(f"/flow_runs/{run['id']}").json()["state_type"]
    # CANCELLED: its schedule was running it at that moment, and it runs one at a time.
    assert state in ("COMPLETED", "CANCELLED"), (fleet.folder.logs / "worker.log").read_text()[-2000:]


def test_a_killed_worker_is_replaced_and_the_server_stays(fleet: Fleet) -> None:
    server, worker = fleet.pid("server"), fleet.pid("worker")
    os.kill(worker, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(worker)] if psutil.pid_exists(worker) else [], timeout=5)
    said = str(fleet.up()["said"])
    assert f"worker: pid {worker} is not running any more" in said
    assert fleet.pid("server") == server
    assert runtime_status(fleet.folder).ready


def test_after_everything_was_killed_up_brings_it_back(fleet: Fleet) -> None:
    before = fleet.pid("server"), fleet.pid("worker")
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid) for pid in before if psutil.pid_exists(pid)], timeout=5)
    assert runtime_status(fleet.folder).server.state == "gone"
    said = str(fleet.up()["said"])
    assert runtime_status(fleet.folder).ready
    assert fleet.pid("server") not in before
    assert "reconcile: started" in said


def test_a_server_that_hangs_is_replaced(fleet: Fleet) -> None:
    server = fleet.pid("server")
    record = read_record(fleet.folder.record("server"))
    assert record is not None
    os.kill(server, signal.SIGSTOP)
    said: list[str] = []
    patience = Patience(start_seconds=30, silence_seconds=1, grace_seconds=1)
    replaced = wait_until_healthy(fleet.folder, record, said.append, patience)
    assert replaced.pid != server
    assert not psutil.pid_exists(server) or psutil.Process(server).status() == psutil.STATUS_ZOMBIE
    assert said == [f"server: pid {server} does not answer on port {fleet.port}; replacing it"]


def test_a_changed_fleet_file_changes_the_rack_limits_but_not_a_persons(fleet: Fleet) -> None:
    with fleet.api() as api:
        answer = None
        deadline = time.monotonic() + 30
        while (answer is None or answer.status_code == 503) and time.monotonic() < deadline:
            # SQLite is locked for a moment at times: Prefect's own clients try again too.
            with contextlib.suppress(httpx.TransportError):
                answer = api.patch("/v2/concurrency_limits/rack-r2", json={"limit": 1})
    assert answer is not None
    assert answer.status_code == 204
    fleet.file.write_text(FLEET.replace("r1: {}", "r1: {limit: 4}, r3: {}"))
    said = str(fleet.up()["said"])
    assert fleet.limits() == {"rack-r1": 4, "rack-r2": 1, "rack-r3": 1}
    assert "rack-r2 was changed by a person and stays" in said
    fleet.file.write_text(FLEET)
    fleet.up()
    assert fleet.limits() == {"rack-r1": 2, "rack-r2": 1}


def test_a_port_in_use_is_named_with_its_owner_and_a_way_on(tmp_path: Path) -> None:
    other = Fleet(tmp_path / "fleet.yaml", 0)
    _write(other.file)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = other.gpufleet("up", "--port", str(port))
    assert done.returncode == 2
    assert f"pid {os.getpid()}" in done.stderr
    assert "--port" in done.stderr
    assert not other.folder.record("server").exists()


def test_what_the_fleet_file_points_to_is_looked_at_before_anything_starts(tmp_path: Path) -> None:
    other = Fleet(tmp_path / "fleet.yaml", 0)
    other.file.write_text(FLEET)
    done = other.gpufleet("up")
    assert done.returncode == 2
    assert all(part in done.stderr for part in ("bmc.password", "the SSH key", "the known host keys"))
    assert not other.folder.path.exists()


def test_down_leaves_nothing_and_may_be_repeated(fleet: Fleet) -> None:
    pids = fleet.pid("server"), fleet.pid("worker")
    assert fleet.gpufleet("down").returncode == 0
    assert not [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
    assert port_free(fleet.port)
    again = fleet.gpufleet("down")
    assert (again.returncode, again.stdout) == (0, "nothing ran\n")
