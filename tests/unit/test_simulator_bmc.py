"""The simulated BMC: what activates what, what each fault does, and what the truth log says of it."""

from __future__ import annotations

import asyncio
import heapq
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from fleet.errors import ConfigurationError
from fleet.model import ResetKind
from simulator.bmc import Bmc, BmcFarm, Phase
from simulator.clock import SimClock
from simulator.faults import Fault, FaultKind, expand_nodes, make_fault, parse_faults
from simulator.firmware import (
    VINTAGES,
    BundleEntry,
    FirmwareImage,
    build_image,
    demo_bundle_entries,
    hgx_h100_components,
    hgx_h100_firmware,
    read_image,
)
from simulator.machine import Machine, Power, Timing
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


def _messages(task: dict[str, object]) -> str:
    return json.dumps(task["Messages"])


def test_a_pushed_image_is_staged_and_does_not_run_before_its_reset(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        task = await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1"])
        entry = await bench.get(f"{INVENTORY}/HGX_FW_GPU_SXM_1")
        slots = entry["Oem"]["Nvidia"]  # type: ignore[index]
        assert (task["TaskState"], task["PercentComplete"]) == ("Completed", 100)
        assert entry["Version"] == slots["ActiveFirmwareSlot"]["Version"] != VBIOS.image.version
        assert slots["InactiveFirmwareSlot"]["FirmwareState"] == "PendingActivation"
        assert slots["InactiveFirmwareSlot"]["Version"] == VBIOS.image.version

    play(scenario)


def test_the_truth_log_has_a_flash_per_target_with_old_and_new_version_and_the_task(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        old = bench.bmc.firmware.active["HGX_FW_GPU_SXM_2"]
        await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1", "HGX_FW_GPU_SXM_2"])
        lines = [(f["component"], f["from"], f["to"], f["task"]) for f in bench.truth("flash")]
        assert ("HGX_FW_GPU_SXM_2", old, VBIOS.image.version, "1") in lines
        assert len(lines) == 2

    play(scenario)


@pytest.mark.parametrize(
    ("entry", "weaker", "right"),
    [
        (VBIOS, None, ResetKind.HOST_REBOOT),
        (BMC_FW, ResetKind.HOST_REBOOT, ResetKind.BMC_RESET),
        (NVSWITCH, ResetKind.BMC_RESET, ResetKind.AC_CYCLE),
    ],
)
def test_a_staged_image_runs_after_its_own_reset_and_not_after_a_weaker_one(
    play: Play, entry: BundleEntry, weaker: ResetKind | None, right: ResetKind
) -> None:
    id_ = entry.components[0]

    async def reset(bench: Bench, kind: ResetKind) -> None:
        if kind is ResetKind.HOST_REBOOT:
            bench.bmc.reset_host("ForceRestart")
        elif kind is ResetKind.BMC_RESET:
            bench.bmc.reset_bmc()
        else:
            bench.bmc.cycle_ac()
        await bench.clock.advance(600)

    async def scenario(bench: Bench) -> None:
        await bench.flash(entry, [id_])
        if weaker is not None:
            await reset(bench, weaker)
            assert bench.bmc.firmware.active[id_] != entry.image.version
        await reset(bench, right)
        assert bench.bmc.firmware.active[id_] == entry.image.version
        assert [a["component"] for a in bench.truth("activate")] == [id_]
        assert [r["kind"] for r in bench.truth("reset")][-1] == right.value

    play(scenario)


def test_a_host_reset_takes_the_host_down_and_brings_it_up_after_its_boot_time(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        before = (await bench.get("/redfish/v1/Systems/System_0"))["LastResetTime"]
        assert (await bench.client.post(HOST_RESET, json={"ResetType": "ForceRestart"})).status_code == 204
        await bench.clock.advance(100)
        assert (bench.machine.power, bench.machine.up) == (Power.ON, False)
        await bench.clock.advance(100)
        assert bench.machine.up
        assert (await bench.get("/redfish/v1/Systems/System_0"))["LastResetTime"] != before
        assert [p["state"] for p in bench.truth("power")] == ["off", "on"]

    play(scenario)


def test_an_ac_cycle_is_reached_through_the_action_that_the_chassis_names(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        chassis = await bench.get("/redfish/v1/Chassis/BMC_0")
        action = chassis["Actions"]["Oem"]["#NvidiaChassis.AuxPowerReset"]  # type: ignore[index]
        info = await bench.get(action["@Redfish.ActionInfo"])
        value = info["Parameters"][0]["AllowableValues"][0]  # type: ignore[index]
        reply = await bench.client.post(action["target"], json={"ResetType": value})
        await bench.clock.advance(600)
        assert reply.status_code == 204
        assert [r["kind"] for r in bench.truth("reset")] == ["ac_cycle"]
        assert bench.machine.up

    play(scenario)


def test_a_bmc_that_restarts_refuses_connections_then_answers_503_and_forgets_sessions_and_tasks(
    play: Play,
) -> None:
    async def scenario(bench: Bench) -> None:
        login = {"UserName": "admin", "Password": "secret-1"}
        session = await bench.client.post("/redfish/v1/SessionService/Sessions", json=login)
        token = {"X-Auth-Token": session.headers["X-Auth-Token"]}
        await bench.flash(VBIOS)
        bench.bmc.reset_bmc()
        await bench.clock.advance(50)
        with pytest.raises(httpx.TransportError):
            await bench.client.get("/redfish/v1")
        await bench.clock.advance(50)
        assert bench.bmc.phase is Phase.STARTING
        assert (await bench.client.get("/redfish/v1")).status_code == 200
        starting = await bench.client.get("/redfish/v1/Managers/BMC_0")
        assert (starting.status_code, "Retry-After" in starting.headers) == (503, True)
        await bench.clock.advance(50)
        stale = await httpx.AsyncClient().get(bench.farm.url(bench.bmc) + "/redfish/v1/Systems", headers=token)
        assert stale.status_code == 401
        assert (await bench.client.get("/redfish/v1/TaskService/Tasks/1")).status_code == 404
        assert bench.machine.up
        assert not bench.truth("power")

    play(scenario)


def test_a_second_push_waits_for_the_first(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.push(VBIOS)
        second = await bench.push(NVSWITCH)
        assert (second.status_code, second.headers["Retry-After"]) == (503, "30")

    play(scenario)


def test_flashing_a_staged_image_again_is_accepted_and_the_truth_log_shows_it_twice(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1"])
        await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1"])
        assert len(bench.truth("flash")) == 2

    play(scenario)


def test_an_image_that_runs_already_is_skipped_and_not_flashed(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.bmc.firmware.active["HGX_FW_GPU_SXM_1"] = VBIOS.image.version
        task = await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1"])
        assert task["TaskState"] == "Completed"
        assert "skipped" in _messages(task)
        assert not bench.truth("flash")

    play(scenario)


def test_an_image_for_another_component_fails_its_task_and_says_so(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        task = await bench.flash(VBIOS, ["HGX_FW_NVSwitch_0"])
        assert task["TaskState"] == "Exception"
        assert "does not fit the component HGX_FW_NVSwitch_0" in _messages(task)
        assert not bench.truth("flash")

    play(scenario)


def test_a_push_that_names_an_unknown_target_is_refused(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        reply = await bench.push(VBIOS, ["HGX_FW_GPU_SXM_99"])
        assert reply.status_code == 400
        assert "HGX_FW_GPU_SXM_99" in reply.text

    play(scenario)


def test_a_wrong_password_is_refused_logged_and_locks_the_account_after_five(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        for _ in range(5):
            reply = await bench.client.get("/redfish/v1/Systems", auth=("admin", "wrong"))
            assert reply.status_code == 401
        assert (await bench.client.get("/redfish/v1/Systems")).status_code == 401
        assert len(bench.truth("login_refused")) == 6
        await bench.clock.advance(301)
        assert (await bench.client.get("/redfish/v1/Systems")).status_code == 200

    play(scenario)


def test_an_unused_session_expires(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        login = {"UserName": "admin", "Password": "secret-1"}
        reply = await bench.client.post("/redfish/v1/SessionService/Sessions", json=login)
        token = {"X-Auth-Token": reply.headers["X-Auth-Token"]}
        assert (await bench.client.get("/redfish/v1/Systems", headers=token)).status_code == 200
        await bench.clock.advance(1801)
        assert (await bench.client.get("/redfish/v1/Systems", headers=token)).status_code == 401

    play(scenario)


def test_bios_attributes_wait_for_the_next_host_start(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bios = "/redfish/v1/Systems/System_0/Bios"
        change = {"Attributes": {"TurboBoost": "Disabled"}}
        assert (await bench.client.patch(f"{bios}/Settings", json=change)).status_code == 204
        assert (await bench.get(bios))["Attributes"]["TurboBoost"] == "Enabled"  # type: ignore[index]
        bench.bmc.reset_host("PowerCycle")
        await bench.clock.advance(300)
        assert (await bench.get(bios))["Attributes"]["TurboBoost"] == "Disabled"  # type: ignore[index]
        assert (await bench.get(f"{bios}/Settings"))["Attributes"] == {}

    play(scenario)


def test_an_unknown_bios_attribute_is_refused_by_name(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        reply = await bench.client.patch(
            "/redfish/v1/Systems/System_0/Bios/Settings", json={"Attributes": {"TurboBost": "Disabled"}}
        )
        assert reply.status_code == 400
        assert "TurboBost" in reply.text

    play(scenario)


def test_a_one_time_boot_override_is_used_up_by_a_start(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        boot = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}
        await bench.client.patch("/redfish/v1/Systems/System_0", json={"Boot": boot})
        bench.bmc.reset_host("ForceRestart")
        await bench.clock.advance(300)
        host = await bench.get("/redfish/v1/Systems/System_0")
        assert bench.bmc.settings.last_boot_target == "Pxe"
        assert host["Boot"]["BootSourceOverrideEnabled"] == "Disabled"  # type: ignore[index]

    play(scenario)


def test_a_change_with_an_old_etag_is_refused(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        path = "/redfish/v1/Systems/System_0/SecureBoot"
        reply = await bench.client.patch(path, json={"SecureBootEnable": False}, headers={"If-Match": 'W/"0"'})
        assert reply.status_code == 412
        assert bench.bmc.settings.secure_boot_enable

    play(scenario)


def test_a_warm_reboot_of_the_operating_system_activates_what_a_host_reboot_does(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1"])
        bench.machine.reboot()
        await bench.clock.advance(300)
        assert bench.bmc.firmware.active["HGX_FW_GPU_SXM_1"] == VBIOS.image.version

    play(scenario)


def test_expanding_the_inventory_gives_every_component_with_its_version(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        whole = await bench.get(f"{INVENTORY}?$expand=.($levels=1)")
        members = whole["Members"]
        assert isinstance(members, list)
        assert {m["Id"]: m["Version"] for m in members} == bench.bmc.firmware.active
        assert len(members) >= 25

    play(scenario)


def test_an_expanded_inventory_follows_a_flash(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.get(f"{INVENTORY}?$expand=.")
        await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1"])
        assert "PendingActivation" in json.dumps(await bench.get(f"{INVENTORY}?$expand=."))

    play(scenario)


def _fault(kind: FaultKind, times: int | None = None, **settings: float | str | bool) -> Fault:
    return make_fault(kind, times, settings)


def test_a_busy_bmc_answers_503_the_given_number_of_times(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        codes = [(await bench.client.get("/redfish/v1/Systems")).status_code for _ in range(3)]
        assert codes == [503, 503, 200]
        assert [f["kind"] for f in bench.truth("fault")] == ["bmc_503", "bmc_503"]

    play(scenario, _fault(FaultKind.BMC_503, 2))


def test_a_bmc_that_is_busy_for_pushes_still_shows_its_inventory(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        assert (await bench.client.get(INVENTORY)).status_code == 200
        assert (await bench.push(VBIOS)).status_code == 503
        assert (await bench.push(VBIOS)).status_code == 202

    play(scenario, _fault(FaultKind.BMC_503, 1, requests="push"))


@pytest.mark.parametrize("staged", [True, False])
def test_a_vanished_task_leaves_its_image_staged_or_not(play: Play, staged: bool) -> None:
    async def scenario(bench: Bench) -> None:
        reply = await bench.push(VBIOS, ["HGX_FW_GPU_SXM_1"])
        await bench.clock.advance(60)
        assert (await bench.client.get(reply.json()["@odata.id"])).status_code == 404
        assert (await bench.client.get(reply.headers["Location"])).status_code == 404
        assert ("HGX_FW_GPU_SXM_1" in bench.bmc.firmware.staged) is staged
        assert bool(bench.truth("flash")) is staged

    play(scenario, _fault(FaultKind.TASK_VANISHES, staged=staged))


def test_a_task_may_say_completed_with_the_old_version_in_place(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        task = await bench.flash(VBIOS)
        assert (task["TaskState"], task["TaskStatus"]) == ("Completed", "OK")
        assert not bench.bmc.firmware.staged

    play(scenario, _fault(FaultKind.COMPLETED_OLD_VERSION))


def test_a_task_with_warnings_has_written_its_image(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        task = await bench.flash(VBIOS)
        assert (task["TaskState"], task["TaskStatus"]) == ("Completed", "Warning")
        assert set(bench.bmc.firmware.staged) == set(VBIOS.components)

    play(scenario, _fault(FaultKind.COMPLETED_WITH_WARNINGS))


@pytest.mark.parametrize("kind", [FaultKind.EXCEPTION_WITH_EXTENDED_INFO, FaultKind.UPDATE_FAILS_FIRST_N])
def test_a_failing_update_ends_in_exception_and_the_next_one_works(play: Play, kind: FaultKind) -> None:
    async def scenario(bench: Bench) -> None:
        failed = await bench.flash(VBIOS)
        assert (failed["TaskState"], failed["TaskStatus"]) == ("Exception", "Critical")
        assert "TransferFailed" in _messages(failed)
        assert not bench.bmc.firmware.staged
        assert (await bench.flash(VBIOS))["TaskState"] == "Completed"

    play(scenario, _fault(kind))


def test_a_bmc_may_claim_that_the_image_is_there_by_refusing_the_push(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        reply = await bench.push(VBIOS)
        assert reply.status_code == 400
        assert "SUP029" in reply.text
        assert not bench.bmc.firmware.staged

    play(scenario, _fault(FaultKind.ALREADY_CURRENT))


def test_a_bmc_may_claim_that_the_image_is_there_in_its_task(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        task = await bench.flash(VBIOS)
        assert task["TaskState"] == "Exception"
        assert "already installed" in _messages(task)

    play(scenario, _fault(FaultKind.ALREADY_CURRENT, answer="exception"))


def test_a_stuck_task_runs_until_the_bmc_restarts(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.push(VBIOS)
        await bench.clock.advance(7200)
        task = await bench.get("/redfish/v1/TaskService/Tasks/1")
        assert (task["TaskState"], task["PercentComplete"]) == ("Running", 40)
        bench.bmc.reset_bmc()
        await bench.clock.advance(300)
        assert (await bench.push(VBIOS)).status_code == 202

    play(scenario, _fault(FaultKind.STUCK_TASK))


def test_a_session_may_end_before_its_time(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        login = {"UserName": "admin", "Password": "secret-1"}
        reply = await bench.client.post("/redfish/v1/SessionService/Sessions", json=login)
        token = {"X-Auth-Token": reply.headers["X-Auth-Token"]}
        assert (await bench.client.get("/redfish/v1/Systems", headers=token)).status_code == 401
        assert [f["kind"] for f in bench.truth("fault")] == ["session_expires"]

    play(scenario, _fault(FaultKind.SESSION_EXPIRES, 1))


def test_a_truncated_answer_breaks_off_and_the_next_one_is_whole(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await bench.client.get(INVENTORY)
        assert (await bench.client.get(INVENTORY)).json()["Members"]

    play(scenario, _fault(FaultKind.TRUNCATED_BODY, 1))


def test_a_slow_bmc_answers_after_its_delay(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        request = asyncio.create_task(bench.client.get("/redfish/v1/Systems"))
        while not bench.truth("fault"):
            await asyncio.sleep(0)
        await bench.clock.advance(19)
        assert not request.done()
        await bench.clock.advance(2)
        assert (await request).status_code == 200

    play(scenario, _fault(FaultKind.SLOW_ANSWERS, 1))


def test_a_lagging_inventory_shows_the_old_version_for_a_while(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        old = bench.bmc.firmware.active["HGX_FW_GPU_SXM_1"]
        await bench.flash(VBIOS, ["HGX_FW_GPU_SXM_1"])
        bench.bmc.reset_host("ForceRestart")
        await bench.clock.advance(20)
        assert (await bench.get(f"{INVENTORY}/HGX_FW_GPU_SXM_1"))["Version"] == old
        assert VBIOS.image.version not in json.dumps(await bench.get(f"{INVENTORY}?$expand=."))
        await bench.clock.advance(120)
        assert (await bench.get(f"{INVENTORY}/HGX_FW_GPU_SXM_1"))["Version"] == VBIOS.image.version
        assert VBIOS.image.version in json.dumps(await bench.get(f"{INVENTORY}?$expand=."))

    play(scenario, _fault(FaultKind.STALE_INVENTORY))


def test_an_ignored_reset_is_accepted_and_changes_nothing(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        reply = await bench.client.post(HOST_RESET, json={"ResetType": "ForceRestart"})
        await bench.clock.advance(300)
        assert reply.status_code == 204
        assert not bench.truth("reset")
        bench.bmc.reset_host("ForceRestart")
        await bench.clock.advance(300)
        assert [r["kind"] for r in bench.truth("reset")] == ["host_reboot"]

    play(scenario, _fault(FaultKind.WRONG_RESET_IGNORED, reset="host_reboot"))


def test_a_bmc_without_a_battery_wakes_up_in_1970(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.bmc.reset_bmc()
        await bench.clock.advance(300)
        assert str((await bench.get("/redfish/v1/Managers/BMC_0"))["LastResetTime"]).startswith("1970-01-01T")

    play(scenario, _fault(FaultKind.CLOCK_1970))


def test_a_slow_restart_refuses_connections_for_longer(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        bench.bmc.reset_bmc()
        phases = []
        for _ in range(2):
            await bench.clock.advance(300)
            phases.append(bench.bmc.phase)
        assert phases == [Phase.AWAY, Phase.UP]

    play(scenario, _fault(FaultKind.REFUSED))


def test_a_reset_in_the_middle_of_a_flash_writes_nothing_and_is_on_the_record(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.push(VBIOS)
        await bench.clock.advance(10)
        bench.bmc.reset_bmc()
        await bench.clock.advance(300)
        assert not bench.truth("flash")
        assert [f["kind"] for f in bench.truth("fault")] == ["reset_during_flash"]

    play(scenario)


def test_one_loop_holds_many_boards_and_each_answers_for_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = StepClock()
        truth = TruthLog(tmp_path / "truth.jsonl", clock)
        farm = BmcFarm(clock, truth)
        boards: list[Bmc] = []
        for n in range(50):
            machine = Machine(f"gpu-{n:04d}", "r1", "p", "HGX-H100", 8, clock, truth, Timing())
            firmware = hgx_h100_firmware(random.Random(n), VINTAGES[0])
            boards.append(farm.add(machine, "127.0.0.1", 0, firmware, [], "admin", "pw"))
        await farm.start()
        async with httpx.AsyncClient(auth=("admin", "pw")) as client:
            for board in boards:
                reply = await client.get(farm.url(board) + "/redfish/v1/Systems/System_0")
                assert reply.json()["HostName"] == board.machine.name
        await farm.stop()

    asyncio.run(scenario())


def test_a_node_has_firmware_of_its_vintage_and_only_the_newest_is_up_to_date() -> None:
    images = [entry.image for entry in demo_bundle_entries()]
    assert len(hgx_h100_components(8)) >= 25
    assert not hgx_h100_firmware(random.Random(1), VINTAGES[-1]).behind(images)
    assert len(hgx_h100_firmware(random.Random(1), VINTAGES[0]).behind(images)) > 8


def test_an_image_says_what_it_is_and_a_damaged_one_is_refused() -> None:
    image = FirmwareImage("HGX_FW_GPU_SXM", ("HGX_FW_GPU_SXM_*",), "96.00.A5.00.03")
    content = build_image(image, random.Random(1))
    assert read_image(content) == image
    assert len(content) > 64 * 1024
    with pytest.raises(ValueError, match="no readable header"):
        read_image(content[5:])


def test_a_faults_file_gives_named_nodes_and_a_drawn_share_their_faults() -> None:
    nodes = [f"gpu-{n:04d}" for n in range(1, 101)]
    text = """
faults:
  - {nodes: "gpu-[0001-0003]", kind: bmc_503, retry_after_seconds: 5, times: 4}
  - {share: 0.1, kind: task_vanishes, staged: false}
"""
    faults = parse_faults(text, "faults.yaml", nodes, seed=7)
    drawn = [node for node, own in faults.items() if own[0].kind is FaultKind.TASK_VANISHES]
    assert faults["gpu-0002"][0].times == 4
    assert faults["gpu-0002"][0].seconds("retry_after_seconds") == 5
    assert len(drawn) == 10
    assert faults == parse_faults(text, "faults.yaml", nodes, seed=7)
    assert faults != parse_faults(text, "faults.yaml", nodes, seed=8)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{share: 0.1, kind: bmc_50}", "nearest: bmc_503"),
        ("{share: 0.1, kind: refused, second: 3}", "nearest: seconds"),
        ("{share: 1.5, kind: refused}", "from 0 to 1"),
        ("{nodes: gpu-0009, kind: refused}", "nearest: gpu-000"),
        ("{kind: refused}", "exactly one of nodes and share"),
        ("{share: 0.1, kind: refused, times: -1}", "whole number"),
        ("{share: 0.1, kind: bmc_503, requests: pusch}", "nearest: push"),
        ("{share: 0.1, kind: task_vanishes, staged: 3}", "true or false"),
    ],
)
def test_a_wrong_faults_file_is_refused_with_what_is_right(entry: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse_faults(f"faults:\n  - {entry}\n", "faults.yaml", ["gpu-0001", "gpu-0002"], seed=1)


def test_node_patterns_keep_their_zeros_and_take_several_ranges() -> None:
    assert expand_nodes("gpu-[0009-0010,12],login") == ["gpu-0009", "gpu-0010", "gpu-12", "login"]
