"""The simulated BMC without faults: what activates what, and what the truth log says of it."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import httpx
import pytest
from unit.bmc_bench import BMC_FW, HOST_RESET, INVENTORY, NVSWITCH, VBIOS, Bench, Play, StepClock, messages

from fleet.model import ResetKind
from simulator.bmc import Bmc, BmcFarm, Phase
from simulator.firmware import VINTAGES, BundleEntry, hgx_h100_firmware
from simulator.machine import Machine, Power, Timing
from simulator.truth import TruthLog

pytest_plugins = ("unit.bmc_bench",)


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
        assert "skipped" in messages(task)
        assert not bench.truth("flash")

    play(scenario)


def test_an_image_for_another_component_fails_its_task_and_says_so(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        task = await bench.flash(VBIOS, ["HGX_FW_NVSwitch_0"])
        assert task["TaskState"] == "Exception"
        assert "does not fit the component HGX_FW_NVSwitch_0" in messages(task)
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
