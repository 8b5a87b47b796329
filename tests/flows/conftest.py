"""One simulated fleet with one Prefect server for all tests of this folder."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.flows.operated_site import (
    BEGUN_TOGETHER,
    POOLS,
    ROOT,
    Site,
    edit_fleet,
    free_port,
    lay_out_pools,
    make_keys,
)

_FAULTS = """\
faults:
  - {nodes: gpu-0001, kind: bmc_503}
  - {nodes: gpu-0002, kind: refused}
  - {nodes: gpu-0003, kind: task_vanishes, staged: false}
  - {nodes: gpu-0004, kind: completed_old_version, times: 0}
  - {nodes: gpu-0005, kind: completed_with_warnings}
  - {nodes: gpu-0006, kind: exception_with_extended_info, times: 0}
  - {nodes: gpu-0007, kind: already_current, times: 0}
  - {nodes: gpu-0008, kind: slow_answers}
  - {nodes: gpu-0009, kind: session_expires}
  - {nodes: gpu-0010, kind: truncated_body}
  - {nodes: gpu-0011, kind: stuck_task, times: 0}
  - {nodes: gpu-0012, kind: stale_inventory}
  - {nodes: gpu-0013, kind: wrong_reset_ignored, times: 0}
  - {nodes: gpu-0014, kind: clock_1970}
  - {nodes: gpu-0015, kind: update_fails_first_n}
"""


def _simulate(folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir()
    faults = folder.parent / "faults.yaml"
    faults.write_text(_FAULTS)
    options = ("--nodes", str(sum(POOLS.values())), "--racks", "2", "--time-scale", "600", "--no-jobs", "--uniform")
    with (folder.parent / "simulator.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "cli", "simulate", *options, "--dir", str(folder), "--faults", str(faults)],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def _until_ready(folder: Path, simulator: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not (folder / "simulator.json").is_file():
        log = (folder.parent / "simulator.log").read_text()
        assert simulator.poll() is None, f"the simulator ended:\n{log}"
        assert time.monotonic() < deadline, f"the simulator did not start:\n{log}"
        time.sleep(0.1)


def _begin_together(site: Site) -> None:
    """What waits at a gate, or takes long, begins at once, so that the tests need not wait one after another."""
    bundles = dict.fromkeys(BEGUN_TOGETHER, site.folder / "bundle") | {"bundle": site.copy_bundle("changed-bundle")}
    with ThreadPoolExecutor(2) as executor:
        site.begun |= dict(zip(BEGUN_TOGETHER, executor.map(site.begin, BEGUN_TOGETHER, bundles.values()), strict=True))


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A fleet of old firmware under `up`; each pool belongs to one test, and `begun` has what runs already."""
    folder = tmp_path_factory.mktemp("site") / "fleet"
    simulator = _simulate(folder)
    site = Site(folder, free_port())
    try:
        _until_ready(folder, simulator)
        site.keys.update(make_keys(folder))
        edit_fleet(site.file, lay_out_pools)
        site.done("up", "--port", str(site.port))
        _begin_together(site)
        yield site
    finally:
        site.gpufleet("down")
        simulator.terminate()
        simulator.wait(timeout=20)
