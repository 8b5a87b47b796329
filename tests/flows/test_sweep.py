"""The sweep on a real Prefect server: three settings changed on three nodes are three events and three rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from blocks.clients import Clients
from tests.flows.operated_site import ROOT, Site, free_port

pytestmark = pytest.mark.prefect

BASELINE = """\
version: 1
pools:
  {pool}:
    driver: "550.54.15"
    services: {{nvidia-persistenced: active, nvidia-fabricmanager: active}}
    gpu: {{ecc: on, persistence: on, power_limit_watts: 700}}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A fleet of six nodes under `up`, whose nodes were read once before."""
    folder = tmp_path_factory.mktemp("swept") / "fleet"
    command = [
        sys.executable,
        "-m",
        "cli",
        "simulate",
        "--nodes",
        "6",
        "--racks",
        "2",
        "--no-jobs",
        "--dir",
        str(folder),
    ]
    simulator = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    site = Site(folder, free_port())
    try:
        site.wait("the simulator", lambda: (folder / "simulator.json").is_file(), 60.0)
        (folder / "baseline.yaml").write_text(_baseline(site))
        site.done("up", "--port", str(site.port))
        deployment = site.api.get("/deployments/name/sweep/sweep").json()["id"]
        site.api.post(f"/deployments/{deployment}/pause_deployment").raise_for_status()  # only the runs asked for here
        site.done("sweep", "--json")
        yield site
    finally:
        site.gpufleet("down")
        simulator.terminate()
        simulator.wait(timeout=20)


def _baseline(site: Site) -> str:
    pools = {entry.pool for entry in Clients(site.file).spec.nodes}
    first, *others = [BASELINE.format(pool=pool) for pool in sorted(pools)]
    return first + "".join(text.partition("pools:\n")[2] for text in others)


def _command(site: Site, node: str, *arguments: str) -> None:
    clients = Clients(site.file)
    place = next(entry for entry in clients.spec.inventory() if entry.name == node)
    assert clients.host(place).run(arguments).code == 0


def _run(site: Site) -> None:
    """Have the worker carry out one round, and wait until its run has ended well."""
    found = site.api.get("/deployments/name/sweep/sweep")
    found.raise_for_status()
    run = site.post(f"/deployments/{found.json()['id']}/create_flow_run", {"parameters": {"minutes": 0}})["id"]

    def ended() -> str | None:
        state = site.api.get(f"/flow_runs/{run}").json()["state"]
        return state["type"] if state["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

    assert site.wait("the sweep", ended, 120.0) == "COMPLETED"


def _drifts(site: Site) -> list[dict[str, object]]:
    """The payloads of every drift event so far; events arrive a little after their run."""
    answer = site.api.post(
        "/events/filter", json={"filter": {"event": {"name": ["gpufleet.drift.found"]}}, "limit": 50}
    )
    answer.raise_for_status()
    return [event["payload"] for event in answer.json()["events"]]


def test_what_changed_on_three_nodes_is_three_events_and_three_rows(site: Site) -> None:
    assert site.gpufleet("drift").returncode == 0
    _run(site)
    assert _drifts(site) == []
    _command(site, "gpu-0001", "nvidia-smi", "-i", "3", "-pl", "500")
    _command(site, "gpu-0002", "systemctl", "stop", "nvidia-persistenced")
    _command(site, "gpu-0005", "nvidia-smi", "-i", "0", "-pm", "0")
    _run(site)
    expected = {
        ("gpu-0001", "power_limit_watts", "500"),
        ("gpu-0002", "service.nvidia-persistenced", "inactive"),
        ("gpu-0005", "persistence", "disabled"),
    }
    payloads = site.wait("three events", lambda: found if len(found := _drifts(site)) >= 3 else None, 30.0)
    assert {(str(p["node"]), str(p["fact"]), str(p["found"])) for p in payloads} == expected
    assert len(payloads) == 3
    artifacts = site.api.post("/artifacts/latest/filter", json={}).json()
    table = next(a for a in artifacts if str(a["key"]).startswith("drift-"))
    rows = json.loads(table["data"]) if isinstance(table["data"], str) else table["data"]
    assert {(row["node"], row["what"], row["found"]) for row in rows} == expected
    assert site.gpufleet("drift").returncode == 1
    _run(site)  # what drifted before is no news
    assert len(_drifts(site)) == 3
