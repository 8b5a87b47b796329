"""One simulated BMC on a bench whose time only a test moves; a pytest plugin of the simulator's BMC tests."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from simulator.bmc import BmcFarm
from simulator.clock import SimClock
from simulator.faults import Fault
from simulator.firmware import BundleEntry, demo_bundle_entries, hgx_h100_firmware
from simulator.machine import Machine, Timing
from simulator.truth import TruthLog

EROT, BMC_FW, VBIOS, NVSWITCH = demo_bundle_entries()
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
PUSH = "/redfish/v1/UpdateService/update-multipart"
HOST_RESET = "/redfish/v1/Systems/System_0/Actions/ComputerSystem.Reset"


class StepClock(SimClock):
    """Time that passes only by `advance`."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self._now = 0.0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self._now + seconds, id(woken), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while True:
            for _ in range(20):
                await asyncio.sleep(0)
            if not self._waiting or self._waiting[0][0] > end:
                break
            self._now, _, woken = heapq.heappop(self._waiting)
            if not woken.done():
                woken.set_result(None)
        self._now = end


class Bench:
    """One BMC on loopback with a client, and its truth log."""

    def __init__(self, folder: Path, faults: list[Fault]) -> None:
        self.clock = StepClock()
        self._truth_path = folder / "truth.jsonl"
        truth = TruthLog(self._truth_path, self.clock)
        self.machine = Machine("gpu-0001", "r1", "h100", "HGX-H100", 8, self.clock, truth, Timing(jitter=0.0))
        firmware = hgx_h100_firmware(random.Random(3), "2023-11")
        self.farm = BmcFarm(self.clock, truth)
        self.bmc = self.farm.add(self.machine, "127.0.0.1", 0, firmware, faults, "admin", "secret-1")
        self.client = httpx.AsyncClient()

    async def start(self) -> None:
        await self.farm.start()
        self.client = httpx.AsyncClient(base_url=self.farm.url(self.bmc), auth=("admin", "secret-1"), timeout=5)

    async def stop(self) -> None:
        await self.client.aclose()
        await self.farm.stop()

    async def get(self, path: str) -> dict[str, object]:
        reply = await self.client.get(path)
        assert reply.status_code == 200, reply.text
        body = reply.json()
        assert isinstance(body, dict)
        return body

    async def push(self, entry: BundleEntry, targets: list[str] | None = None) -> httpx.Response:
        uris = [f"{INVENTORY}/{id_}" for id_ in (targets or entry.components)]
        parameters = json.dumps({"Targets": uris, "ForceUpdate": False})
        return await self.client.post(
            PUSH,
            files={
                "UpdateParameters": (None, parameters, "application/json"),
                "UpdateFile": ("image.bin", entry.content, "application/octet-stream"),
            },
        )

    async def flash(self, entry: BundleEntry, targets: list[str] | None = None) -> dict[str, object]:
        """Push and wait the time of a task; the task as it is then."""
        reply = await self.push(entry, targets)
        assert reply.status_code == 202, reply.text
        await self.clock.advance(60)
        return await self.get(reply.json()["@odata.id"])

    def truth(self, event: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self._truth_path.read_text().splitlines()]
        return [line for line in lines if line["event"] == event]


Scenario = Callable[[Bench], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs a scenario on a fresh bench with the given faults."""

    def run(scenario: Scenario, *faults: Fault) -> None:
        async def whole() -> None:
            bench = Bench(tmp_path, list(faults))
            await bench.start()
            try:
                await scenario(bench)
            finally:
                await bench.stop()

        asyncio.run(whole())

    return run


def messages(task: dict[str, object]) -> str:
    return json.dumps(task["Messages"])
