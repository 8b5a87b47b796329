"""A small simulated fleet, reached as the product would reach it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh
import pytest

from fleet.config import parse_fleet
from fleet.errors import ConfigurationError
from simulator.addresses import claim, has_own_addresses
from simulator.verdict import judge
from simulator.world import World, WorldOptions

Body = Callable[[World], Awaitable[None]]


def in_world(folder: Path, body: Body, *, own_addresses: bool | None = None, jobs: bool = False) -> None:
    async def go() -> None:
        world = World(
            WorldOptions(
                folder, nodes=4, racks=2, gpus_per_node=4, time_scale=600.0, jobs=jobs, own_addresses=own_addresses
            )
        )
        await world.start()
        try:
            await body(world)
        finally:
            await world.stop()

    asyncio.run(go())


async def ssh(folder: Path, address: str, *commands: str, key: str = "ssh_key") -> list[tuple[int, str]]:
    host, _, port = address.partition(":")
    options = {"known_hosts": str(folder / "known_hosts"), "client_keys": [str(folder / key)], "config": None}
    async with asyncssh.connect(host, int(port), username="root", **options) as connection:
        done = [await connection.run(command) for command in commands]
    return [(result.exit_status or 0, str(result.stdout)) for result in done]


async def _until(path: Path, text: str) -> None:
    """The server sees the end of the connection in the same event loop."""
    while text not in path.read_text():
        await asyncio.sleep(0)


def nodes_of(folder: Path) -> dict[str, str]:
    spec = parse_fleet((folder / "fleet.yaml").read_text(), "fleet.yaml")
    return {node.name: node.ssh for node in spec.inventory()}


@pytest.mark.parametrize("own", [True, False])
def test_every_host_answers_under_its_pinned_key(tmp_path: Path, own: bool) -> None:
    if own and not has_own_addresses():
        pytest.skip("this system has no 127.0.0.2")

    async def body(world: World) -> None:
        for name, address in nodes_of(tmp_path).items():
            [(code, out)] = await ssh(tmp_path, address, "hostname")
            assert (code, out) == (0, f"{name}\n")

    in_world(tmp_path, body, own_addresses=own)


def test_a_key_that_is_not_the_fleets_is_refused_and_the_truth_log_says_so(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        address = nodes_of(tmp_path)["gpu-0001"]
        with pytest.raises(asyncssh.PermissionDenied):
            await ssh(tmp_path, address, "hostname", key="approver_ed25519")
        await asyncio.wait_for(_until(tmp_path / "truth.jsonl", '"login_refused","node":"gpu-0001"'), 10)

    in_world(tmp_path, body)


def test_a_host_without_power_refuses_and_comes_back_with_a_new_boot_id(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        machine, address = world.machines["gpu-0001"], nodes_of(tmp_path)["gpu-0001"]
        boot_id = "cat /proc/sys/kernel/random/boot_id"
        [(_, before)] = await ssh(tmp_path, address, boot_id)
        up = asyncio.Event()
        machine.power_off()
        with pytest.raises(OSError):
            await ssh(tmp_path, address, boot_id)
        machine.listeners.append(lambda _: up.set())
        machine.power_on()
        await asyncio.wait_for(up.wait(), 10)
        while True:
            try:
                [(_, after)] = await asyncio.wait_for(ssh(tmp_path, address, boot_id), 10)
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0)  # it opens its port in the same event loop
        assert before != after

    in_world(tmp_path, body)


def test_nvidia_smi_shows_the_active_firmware_of_the_bmc(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        firmware = world.bmcs["gpu-0002"].firmware
        firmware.active["HGX_FW_GPU_SXM_2"] = "96.00.FF.00.01"
        query = "nvidia-smi --query-gpu=index,vbios_version --format=csv,noheader"
        [(_, out)] = await ssh(tmp_path, nodes_of(tmp_path)["gpu-0002"], query)
        assert out.splitlines()[1] == "1, 96.00.FF.00.01"

    in_world(tmp_path, body)


def test_an_unknown_command_ends_with_127(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        [(code, _)] = await ssh(tmp_path, nodes_of(tmp_path)["gpu-0001"], "frobnicate --now")
        assert code == 127

    in_world(tmp_path, body)


def test_the_controller_takes_a_script_on_its_standard_input(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        spec = parse_fleet((tmp_path / "fleet.yaml").read_text(), "fleet.yaml")
        host, _, port = str(spec.scheduler.controller).partition(":")
        keys = {"known_hosts": str(tmp_path / "known_hosts"), "client_keys": [str(tmp_path / "ssh_key")]}
        async with asyncssh.connect(host, int(port), username="root", config=None, **keys) as connection:
            done = await connection.run("sbatch --parsable -N1", input="#!/bin/sh\n#SBATCH -J mine\nsleep 5\n")
        assert str(done.stdout).strip() in map(str, world.controller.jobs)

    in_world(tmp_path, body)


def test_the_truth_log_begins_with_the_fleet_and_can_be_judged(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        behind = {name: bmc.firmware.active for name, bmc in world.bmcs.items()}
        first = json.loads((tmp_path / "truth.jsonl").read_text().splitlines()[0])
        assert set(first["components_behind"]) <= set(behind)
        assert sorted(node for nodes in first["racks"].values() for node in nodes) == sorted(behind)

    in_world(tmp_path, body)
    assert judge(tmp_path / "truth.jsonl").wrong() == ()


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        for name in ("bmc_password", "ssh_key", "approver_ed25519"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0
        password = (tmp_path / "bmc_password").read_text().strip()
        assert password not in (tmp_path / "fleet.yaml").read_text()

    in_world(tmp_path, body)


def test_two_simulators_do_not_take_each_others_addresses() -> None:
    first = claim(8, own_addresses=False)
    second = claim(8, own_addresses=False)
    ports = [{port for end in each.nodes for port in (end.bmc_port, end.ssh_port)} for each in (first, second)]
    assert not ports[0] & ports[1]
    first.lock.close()
    second.lock.close()


def test_a_faults_file_with_an_unknown_node_is_refused_before_anything_listens(tmp_path: Path) -> None:
    faults = "faults:\n  - {nodes: gpu-9999, kind: bmc_503}\n"
    with pytest.raises(ConfigurationError, match="gpu-9999"):
        World(WorldOptions(tmp_path, nodes=2, racks=1, faults=faults))


def test_a_folder_in_which_a_simulator_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "simulator.json").write_text('{"pid": 1}')
    with pytest.raises(ConfigurationError, match=r"pid 1.*another --dir"):
        World(WorldOptions(tmp_path, nodes=2, racks=1))


def test_the_command_says_when_it_is_ready_and_stops_cleanly(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "cli", "simulate", "--dir", str(tmp_path), "--nodes", "2", "--racks", "1"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready: 2 nodes, 16 GPUs, 1 racks;")
        record = json.loads((tmp_path / "simulator.json").read_text())
        assert record["pid"] == process.pid
    finally:
        process.terminate()
    rest, _ = process.communicate(timeout=20)
    assert (process.returncode, rest) == (0, "")
    assert not (tmp_path / "simulator.json").exists()
