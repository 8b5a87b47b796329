"""Independent Redfish clients on the simulated BMC: DMTF's validator, and sushy."""

from __future__ import annotations

import asyncio
import http.server
import os
import random
import re
import subprocess
import sysconfig
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import sushy
from sushy.resources.updateservice.constants import UpdateTransferProtocolType

from simulator.bmc import Bmc, BmcFarm
from simulator.clock import SimClock
from simulator.firmware import FirmwareImage, demo_bundle_entries, hgx_h100_firmware
from simulator.machine import Machine, Timing
from simulator.truth import TruthLog

SHARED = Path(os.environ.get("GPUFLEET_SHARED", Path(__file__).parents[2] / ".." / "shared"))
CAPTURES = SHARED / "captures"
USER, PASSWORD = "admin", "Secret-0001"
VBIOS = next(entry for entry in demo_bundle_entries(2) if entry.image.family == "HGX_FW_GPU_SXM")


@dataclass(frozen=True)
class Running:
    """A BMC that runs in a thread; `call` runs something in its loop."""

    url: str
    bmc: Bmc
    call: Callable[[Callable[[], None]], None]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """One two-GPU node, a simulated minute in a real 0.1 seconds."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    clock = SimClock(600)
    truth = TruthLog(tmp_path / "truth.jsonl", clock)
    machine = Machine("gpu-0001", "r1", "h100", "HGX-H100", 2, clock, truth, Timing())
    farm = BmcFarm(clock, truth)
    firmware = hgx_h100_firmware(random.Random(1), "2023-11", gpus=2)
    bmc = farm.add(machine, "127.0.0.1", 0, firmware, [], USER, PASSWORD)
    asyncio.run_coroutine_threadsafe(farm.start(), loop).result(10)

    def call(work: Callable[[], None]) -> None:
        async def inside() -> None:
            work()

        asyncio.run_coroutine_threadsafe(inside(), loop).result(10)

    yield Running(farm.url(bmc), bmc, call)
    asyncio.run_coroutine_threadsafe(farm.stop(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@contextmanager
def _image_server(folder: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def _wait_for(what: str, holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


@pytest.fixture
def client(running: Running) -> Iterator[sushy.Sushy]:
    """sushy with a session, which ends before the BMC does."""
    auth = sushy.auth.SessionAuth(USER, PASSWORD)
    yield sushy.Sushy(running.url, auth=auth)
    auth.close()


def test_sushy_turns_a_host_off_and_on_again(running: Running, client: sushy.Sushy) -> None:
    host = client.get_system("/redfish/v1/Systems/System_0")
    assert host.power_state == sushy.PowerState.ON
    host.reset_system(sushy.ResetType.FORCE_OFF)
    _wait_for("power off", lambda: not running.bmc.machine.up)
    host.refresh(force=True)
    assert host.power_state == sushy.PowerState.OFF
    host.reset_system(sushy.ResetType.ON)
    _wait_for("host up", lambda: running.bmc.machine.up)
    host.refresh(force=True)
    assert host.power_state == sushy.PowerState.ON


def test_sushy_sets_a_one_time_network_boot(running: Running, client: sushy.Sushy) -> None:
    host = client.get_system("/redfish/v1/Systems/System_0")
    host.set_system_boot_options(sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    host.refresh(force=True)
    assert host.boot["target"] == sushy.BootSource.PXE
    assert running.bmc.settings.boot["Enabled"] == "Once"


def test_sushy_updates_firmware_by_simple_update_and_its_task_monitor(
    running: Running, client: sushy.Sushy, tmp_path: Path
) -> None:
    (tmp_path / "vbios.bin").write_bytes(VBIOS.content)
    service = client.get_update_service()
    targets = [f"/redfish/v1/UpdateService/FirmwareInventory/{id_}" for id_ in VBIOS.components]
    with _image_server(tmp_path) as server:
        started = service.simple_update(
            f"{server}/vbios.bin", targets=targets, transfer_protocol=UpdateTransferProtocolType.HTTP
        )
        monitor = client.get_task_monitor(started.response.headers["Location"])
        assert monitor.is_processing
        _wait_for("end of the task", lambda: not monitor.check_is_processing)
    task = monitor.get_task()
    assert task.task_state == sushy.TaskState.COMPLETED
    assert running.bmc.firmware.staged == dict.fromkeys(VBIOS.components, VBIOS.image.version)
    before = {item.version for item in service.firmware_inventory.get_members()}
    assert VBIOS.image.version not in before
    host = client.get_system("/redfish/v1/Systems/System_0")
    host.reset_system(sushy.ResetType.FORCE_RESTART)
    _wait_for("activation", lambda: not running.bmc.firmware.staged)
    found = client.get_update_service().firmware_inventory.get_members()
    assert {item.version for item in found if item.identity in VBIOS.components} == {VBIOS.image.version}


def test_sushy_sees_a_failed_download_as_a_failed_task(running: Running, client: sushy.Sushy, tmp_path: Path) -> None:
    service = client.get_update_service()
    with _image_server(tmp_path) as server:
        started = service.simple_update(f"{server}/missing.bin", transfer_protocol=UpdateTransferProtocolType.HTTP)
        monitor = client.get_task_monitor(started.response.headers["Location"])
        _wait_for("end of the task", lambda: not monitor.check_is_processing)
    assert monitor.get_task().task_state == sushy.TaskState.EXCEPTION


def test_sushy_changes_a_bios_attribute_that_a_host_start_applies(running: Running, client: sushy.Sushy) -> None:
    host = client.get_system("/redfish/v1/Systems/System_0")
    host.bios.set_attribute("TurboBoost", "Disabled")
    assert host.bios.attributes["TurboBoost"] == "Enabled"
    host.reset_system(sushy.ResetType.FORCE_RESTART)
    _wait_for("host start", lambda: running.bmc.settings.bios["TurboBoost"] == "Disabled")


def _extract_schemas(folder: Path) -> None:
    """Lay the captured schema files out as the validator's schema directory.

    SecureBoot_v1.xml is missing from the first capture, though the board has the resource.
    """
    for archive, wanted in (
        ("gh200.tar.gz", re.compile(r"redfish/v1/schema/([^/]+\.xml)/index\.xml")),
        ("dell_poweredge_r750.tar.gz", re.compile(r"redfish/v1/Schemas/(SecureBoot_v1\.xml)/index\.xml")),
    ):
        with tarfile.open(CAPTURES / archive) as tar:
            for member in tar:
                name = wanted.fullmatch(member.name.removeprefix("./"))
                content = tar.extractfile(member) if name else None
                if name and content:
                    (folder / name.group(1)).write_bytes(content.read())


@pytest.mark.corpus
def test_the_dmtf_validator_finds_no_failure(running: Running, tmp_path: Path) -> None:
    if not CAPTURES.is_dir():
        pytest.skip(f"no captures under {SHARED}; set GPUFLEET_SHARED to the shared folder")
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    _extract_schemas(schemas)
    _make_busy(running)
    program = Path(sysconfig.get_path("scripts")) / "rf_service_validator"
    command = [str(program), "-r", running.url, "-u", USER, "-p", PASSWORD, "--skipschema"]
    command += ["--schema_directory", str(schemas), "--logdir", str(tmp_path / "logs")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
    log = next((tmp_path / "logs").glob("*/*Debug*.log")).read_text()
    assert re.findall(r"FAIL - .*", log) == []
    counts = re.search(r"\|\s+(\d+)\s+\|\s+\d+\s+\|\s+(\d+)\s+\|", re.sub(r"\x1b\[\d+m", "", result.stdout))
    assert counts is not None, result.stdout
    assert int(counts.group(1)) > 1000
    assert (int(counts.group(2)), result.returncode) == (0, 0)


def _make_busy(running: Running) -> None:
    """Leave a finished task, a staged image and log entries for the validator to look at."""

    def begin() -> None:
        async def load() -> FirmwareImage:
            return VBIOS.image

        running.bmc.updates.begin(load, ("HGX_FW_GPU_SXM_1",), False)
        running.bmc.reset_host("ForceRestart")

    running.call(begin)
    _wait_for("a staged image", lambda: bool(running.bmc.firmware.staged))
    _wait_for("host up", lambda: running.bmc.machine.up)
