"""One simulated fleet with one Prefect server for the tests of drivers and measurements."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.flows.operated_site import ROOT, Site, edit_fleet, free_port, lay_out_pools, make_keys

POOLS = {"driven": 10, "measured": 2}
_FAULTS = """\
faults: []
drivers:
  "580.65.06": {all_reduce: -0.15}
  settings: {power_limit_watts: 650, application_clocks_mhz: [2619, 1755]}
"""


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A fleet under `up` whose waves nobody has to approve; each pool belongs to one test."""
    folder = tmp_path_factory.mktemp("drivers") / "fleet"
    folder.mkdir()
    faults = folder.parent / "faults.yaml"
    faults.write_text(_FAULTS)
    options = ("--nodes", str(sum(POOLS.values())), "--racks", "2", "--time-scale", "600", "--no-jobs", "--uniform")
    with (folder.parent / "simulator.log").open("wb") as log:
        command = [sys.executable, "-m", "cli", "simulate", *options, "--dir", str(folder), "--faults", str(faults)]
        simulator = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    site = Site(folder, free_port())
    try:
        deadline = time.monotonic() + 60
        while not (folder / "simulator.json").is_file():
            assert simulator.poll() is None, (folder.parent / "simulator.log").read_text()
            assert time.monotonic() < deadline, "the simulator did not start"
            time.sleep(0.1)
        site.keys.update(make_keys(folder))
        edit_fleet(site.file, _lay_out)
        site.done("up", "--port", str(site.port))
        yield site
    finally:
        site.gpufleet("down")
        simulator.terminate()
        simulator.wait(timeout=20)


def _lay_out(tree: dict[str, dict[str, dict[str, object]]]) -> None:
    lay_out_pools(tree, POOLS, tuple(POOLS))
    tree["canary"] |= {"loss": 0.1, "runs": 2}  # fewer nodes find a large loss
