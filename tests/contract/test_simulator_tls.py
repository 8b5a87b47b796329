"""`gpufleet simulate --tls` and the product's client: trusted with the fleet's CA, refused without it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocks.clients import Clients
from fleet.errors import ConfigurationError
from simulator.world import World, WorldOptions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a running one-node fleet whose BMC speaks https."""
    place = tmp_path_factory.mktemp("tls")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    world = World(WorldOptions(place, nodes=1, racks=1, gpus_per_node=2, time_scale=600.0, jobs=False, tls=True))
    asyncio.run_coroutine_threadsafe(world.start(), loop).result(30)
    yield place
    asyncio.run_coroutine_threadsafe(world.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def _read(fleet_file: Path) -> int:
    clients = Clients(fleet_file)
    bmc = clients.bmc(clients.spec.inventory()[0])
    try:
        return len(bmc.read_firmware())
    finally:
        bmc.close()


def test_a_bmc_is_read_over_tls_with_the_fleets_ca(folder: Path) -> None:
    clients = Clients(folder / "fleet.yaml")
    assert clients.spec.bmc.tls.verify
    assert clients.spec.inventory()[0].bmc.startswith("https://")
    assert _read(folder / "fleet.yaml") >= 10


def test_a_certificate_that_the_systems_cas_did_not_sign_is_refused(folder: Path) -> None:
    text = (folder / "fleet.yaml").read_text()
    without = folder / "without_ca.yaml"
    without.write_text(text.replace("ca: ca.pem", "verify: true"))
    assert "ca.pem" not in without.read_text()
    with pytest.raises(ConfigurationError, match=r"(?i)certificate"):
        _read(without)


def test_a_certificate_of_another_fleet_is_refused(folder: Path, tmp_path: Path) -> None:
    from simulator.keys import make_tls

    make_tls(tmp_path, ("127.0.0.1",))
    other = folder / "other_ca.yaml"
    other.write_text((folder / "fleet.yaml").read_text().replace("ca: ca.pem", f"ca: {tmp_path / 'ca.pem'}"))
    with pytest.raises(ConfigurationError, match=r"(?i)certificate"):
        _read(other)
