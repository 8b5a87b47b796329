"""BIOS attributes from the simulated BMC: a setting that waits is in force only after the host has started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from unit.bmc_bench import HOST_RESET, Bench, Play

from adapters.redfish import BmcLogin, RedfishBmc
from fleet.bios import BiosReading

pytest_plugins = ("unit.bmc_bench",)

SETTINGS = "/redfish/v1/Systems/System_0/Bios/Settings"


async def read(bench: Bench, names: Iterable[str]) -> BiosReading:
    def ask() -> BiosReading:
        bmc = RedfishBmc(bench.farm.url(bench.bmc), BmcLogin("admin", "secret-1"))
        try:
            return bmc.read_bios(names)
        finally:
            bmc.close()

    return await asyncio.to_thread(ask)


def test_a_pending_setting_is_in_force_after_the_next_start(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        reply = await bench.client.patch(SETTINGS, json={"Attributes": {"Sriov": "Disabled"}})
        assert reply.status_code < 300, reply.text
        waiting = await read(bench, ["Sriov", "TurboBoost"])
        assert waiting == BiosReading({"Sriov": "Enabled", "TurboBoost": "Enabled"}, {"Sriov": "Disabled"})
        reset = await bench.client.post(HOST_RESET, json={"ResetType": "ForceRestart"})
        assert reset.status_code < 300, reset.text
        await bench.clock.advance(400)
        assert await read(bench, ["Sriov"]) == BiosReading({"Sriov": "Disabled"})

    play(scenario)


def test_switches_numbers_and_what_the_bios_does_not_have(play: Play) -> None:
    async def scenario(bench: Bench) -> None:
        told = await read(bench, ["PcieRelaxedOrdering", "PcieMaxReadRequest", "NoSuchThing"])
        assert told.attributes == {"PcieRelaxedOrdering": "true", "PcieMaxReadRequest": "4096"}
        assert set(told.unknown) == {"NoSuchThing"}

    play(scenario)
