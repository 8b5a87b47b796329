"""Ranges are what people write, and what answers in them is a BMC, something unclear, or silent."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import socket
import ssl
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.bmc_discovery import Discovery, discover_bmcs, is_service_root, read_service_root, resolve_bmcs
from fleet.address_ranges import addresses_in
from fleet.errors import ConfigurationError
from fleet.hardware import uuid_of
from simulator.addresses import has_own_addresses
from simulator.bmc import BmcFarm
from simulator.clock import SimClock
from simulator.firmware import hgx_h100_firmware
from simulator.keys import make_tls
from simulator.machine import Machine, Timing
from simulator.truth import TruthLog


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("10.0.0.0/30", ("10.0.0.1", "10.0.0.2")),
        ("10.0.0.7/32", ("10.0.0.7",)),
        ("10.0.0.254-10.0.1.1", ("10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1")),
        ("10.0.0.1-2, 10.0.0.2", ("10.0.0.1", "10.0.0.2")),
        ("bmc[01,03].lab 10.0.0.[1-2]", ("bmc01.lab", "bmc03.lab", "10.0.0.1", "10.0.0.2")),
        ("rack-7-bmc", ("rack-7-bmc",)),
        ("fd00::1-fd00::2", ("fd00::1", "fd00::2")),
    ],
)
def test_a_range_is_what_people_write(text: str, hosts: tuple[str, ...]) -> None:
    assert addresses_in(text) == hosts


@pytest.mark.parametrize(
    "text", ["", " , ", "10.0.0.0/8", "10.0.0.9-1", "10.0.0.1-300", "10.0.0.300", "::/64", "bmc[1-", "0.0.0.0", "a b!"]
)
def test_what_is_no_range_or_far_too_large_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        addresses_in(text)


@given(st.text(alphabet="0123456789./-,[]:abc ", max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_range_is_read_or_refused(text: str) -> None:
    try:
        hosts = addresses_in(text)
    except ConfigurationError:
        return
    assert 0 < len(set(hosts)) == len(hosts)


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _not_a_bmc(address: str, port: int, status: int, body: bytes, tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """Something that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer((address, port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


async def _discover_simulated(folder: Path, count: int, concurrency: int, port: int, hosts: str) -> Discovery:
    clock = SimClock(1.0)
    truth = TruthLog(folder / "truth.jsonl", clock)
    farm = BmcFarm(clock, truth)
    for n in range(1, count + 1):
        machine = Machine(f"gpu-{n:04d}", "r1", "train", "HGX-H100", 8, clock, truth, Timing(jitter=0.0))
        farm.add(machine, f"127.0.0.{10 + n}", port, hgx_h100_firmware(random.Random(n), "2023-11"), (), "admin", "x")
    await farm.start()
    try:
        return await asyncio.to_thread(discover_bmcs, addresses_in(hosts), port, "http", concurrency, 5.0)
    finally:
        await farm.stop()


@pytest.mark.skipif(not has_own_addresses(), reason="needs addresses of 127/8 of its own, as Linux has them")
@pytest.mark.parametrize("concurrency", [1, 8])
def test_simulated_bmcs_are_found_without_a_login_and_other_listeners_are_unclear(
    tmp_path: Path, concurrency: int
) -> None:
    port = _free_port()
    with (
        _not_a_bmc("127.0.0.21", port, 200, b"<html>a printer</html>"),
        _not_a_bmc("127.0.0.22", port, 503, b"{}"),
        _not_a_bmc("127.0.0.23", port, 401, b""),
        _not_a_bmc("127.0.0.24", port, 200, b'{"version": 3}'),
    ):
        found = asyncio.run(_discover_simulated(tmp_path, 4, concurrency, port, "127.0.0.[11-25]"))
    assert [hardware.bmc for hardware in found.found] == [f"http://127.0.0.{n}:{port}" for n in range(11, 15)]
    assert len({uuid_of(hardware.uuid) for hardware in found.found}) == 4
    assert [what.split(" (")[0] for _, what in found.unclear] == [
        "no Redfish service",
        "asks to wait",
        "wants a login before it tells anything",
        "JSON, and no Redfish service root",
    ]
    assert found.silent == 7


def test_plain_http_where_tls_is_spoken_to_is_unclear_and_not_silent() -> None:
    port = _free_port()
    with _not_a_bmc("127.0.0.1", port, 200, b"{}"):
        found = discover_bmcs(["127.0.0.1"], port, "https", timeout_seconds=5.0)
    assert found.silent == 0
    assert "no TLS" in found.unclear[0][1]


def test_a_bmc_with_a_certificate_that_nobody_signed_is_found_with_its_digest(tmp_path: Path) -> None:
    port, root = _free_port(), json.dumps({"@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot"}).encode()
    with _not_a_bmc("127.0.0.1", port, 200, root, make_tls(tmp_path, ["127.0.0.1"])):
        (found,) = discover_bmcs(["127.0.0.1"], port, "https", timeout_seconds=5.0).found
    der = ssl.PEM_cert_to_DER_cert((tmp_path / "ca.pem").read_text())
    assert found.certificate_sha256 == hashlib.sha256(der).hexdigest()


def test_an_answer_without_end_is_not_read_for_ever() -> None:
    port = _free_port()
    with _not_a_bmc("127.0.0.1", port, 200, b"x" * (2**20 + 1)):
        found = discover_bmcs(["127.0.0.1"], port, "http", timeout_seconds=5.0)
    assert found.unclear == ((f"http://127.0.0.1:{port}", "an answer of more than 1 MiB"),)


def test_a_name_that_nobody_knows_is_unclear_and_not_silent() -> None:
    found = discover_bmcs(["no-such-bmc.invalid"], 443, "https", timeout_seconds=5.0)
    assert (found.silent, found.found) == (0, ())
    assert resolve_bmcs(["https://no-such-bmc.invalid", "https://127.0.0.9:8443"]) == {
        "https://no-such-bmc.invalid": (),
        "https://127.0.0.9:8443": ("https://127.0.0.9:8443",),
    }


def test_a_dell_service_root_tells_serial_and_mac() -> None:
    root = {
        "@odata.type": "#ServiceRoot.v1_11_0.ServiceRoot",
        "Product": "Integrated Dell Remote Access Controller",
        "Oem": {"Dell": {"ServiceTag": "9ZX8Y7W", "ManagerMACAddress": "b0:7b:25:d6:00:01"}},
    }
    found = read_service_root(root, "https://10.0.0.1")
    assert (found.serial, found.macs, found.vendor) == ("9ZX8Y7W", ("b0:7b:25:d6:00:01",), "Dell")


@pytest.mark.parametrize("capture", ["gh200", "dell_poweredge_r750"])
def test_captured_service_roots_are_recognised(shared: Path, capture: str) -> None:
    with tarfile.open(shared / "captures" / f"{capture}.tar.gz") as archive:
        file = archive.extractfile(next(m for m in archive if m.name.endswith("redfish/v1/index.json")))
        assert file is not None
        root = json.load(file)
    assert is_service_root(root)
    assert read_service_root(root, "https://10.0.0.1").named


@pytest.mark.parametrize(
    "body", [{}, {"@odata.type": "#Chassis.v1_0_0.Chassis"}, {"RedfishVersion": "1.0"}, {"Oem": 3}]
)
def test_other_json_is_no_service_root(body: dict[str, object]) -> None:
    assert not is_service_root(body)
    assert read_service_root(body, "https://10.0.0.1").bmc


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_address_that_takes_the_connection_and_then_says_nothing_is_unclear_and_not_silent(scheme: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        found = discover_bmcs(["127.0.0.1"], server.getsockname()[1], scheme, timeout_seconds=0.5)
    assert (found.silent, [what for _, what in found.unclear]) == (
        0,
        ["takes the connection, and says nothing for 0.5 s"],
    )
