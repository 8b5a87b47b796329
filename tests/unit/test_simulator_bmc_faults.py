"""The simulated BMC with faults: what each of them does, and that it is on the record."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from unit.bmc_bench import HOST_RESET, INVENTORY, VBIOS, Bench, Play, messages

from simulator.bmc import Phase
from simulator.faults import Fault, FaultKind, make_fault

pytest_plugins = ("unit.bmc_bench",)


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
        assert "TransferFailed" in messages(failed)
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
        assert "already installed" in messages(task)

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
