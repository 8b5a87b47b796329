"""NetBox's devices are read whole or not at all, and its token is seen by nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from unit.netbox_fake import TOKEN, Json, NetBoxFake, device, netbox

from adapters.netbox import NetBox
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, NodeUnreachable, TransientError
from fleet.netbox_devices import NetBoxFields, read_devices


class Sleeper:
    """A clock that only remembers for how long somebody slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def read(server: NetBoxFake, clock: Sleeper | None = None, *filters: tuple[str, str], token: str = TOKEN) -> list[str]:
    client = NetBox(server.url, token, clock or Sleeper(), timeout_seconds=5.0)
    try:
        return [str(found["name"]) for found in client.read_devices(filters)]
    finally:
        client.close()


def error_of(server: NetBoxFake, token: str = TOKEN) -> FleetError:
    with pytest.raises(FleetError) as caught:
        read(server, token=token)
    assert token.strip() not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    return caught.value


def test_every_page_is_read_and_the_filter_goes_with_each() -> None:
    switch = device(9, role={"name": "Switch", "slug": "switch"})
    with netbox([*(device(n) for n in range(1, 6)), switch]) as server:
        assert read(server, None, ("role", "gpu-node")) == [f"gpu-000{n}" for n in range(1, 6)]
    assert len(server.asked) == 3
    assert all("role=gpu-node" in path for path in server.asked)


def test_a_next_page_on_another_host_does_not_carry_the_token_there() -> None:
    with netbox([device(n) for n in range(1, 4)]) as server:
        server.next_host = "elsewhere.example"
        assert len(read(server)) == 3


@pytest.mark.parametrize(
    ("status", "retry_after", "slept"),
    [
        (429, "7", 7.0),
        (503, "0", 0.0),
        (502, None, 1.0),
        (429, "Mon, 30 Nov 2026 12:00:09 GMT", 9.0),
        (429, "Mon, 30 Nov 2020 12:00:00 GMT", 0.0),
        (500, "soon", 1.0),
    ],
)
def test_a_server_that_asks_for_patience_gets_as_much_as_it_asks_for(
    status: int, retry_after: str | None, slept: float
) -> None:
    clock = Sleeper()
    with netbox([device(1)]) as server:
        server.first = [(status, {} if retry_after is None else {"Retry-After": retry_after}, "")]
        assert read(server, clock) == ["gpu-0001"]
    assert clock.slept == [slept]


def test_a_server_that_never_recovers_is_given_up_within_a_bound() -> None:
    clock = Sleeper()
    with netbox([device(1)]) as server:
        server.first = [(503, {}, "")] * 50
        with pytest.raises(TransientError, match="HTTP 503"):
            read(server, clock)
    assert len(server.asked) == 6
    assert sum(clock.slept) <= 300


def test_a_wait_longer_than_our_patience_is_not_begun() -> None:
    clock = Sleeper()
    with netbox([device(1)]) as server:
        server.first = [(429, {"Retry-After": "3600"}, "")]
        with pytest.raises(TransientError, match="3600 s"):
            read(server, clock)
    assert clock.slept == []


def test_a_list_that_changes_while_it_is_read_is_not_taken_for_the_whole() -> None:
    with netbox([device(n) for n in range(1, 6)]) as server:
        server.count_grows_at = 2
        assert "changed while it was read" in str(error_of(server))
        assert isinstance(error_of(server), TransientError)


def test_a_list_shorter_than_its_count_is_not_taken_for_the_whole() -> None:
    with netbox([device(1), device(1)]) as server:
        assert "1 of 2 devices" in str(error_of(server))


def test_a_refused_token_is_said_and_not_shown() -> None:
    with netbox([device(1)]) as server:
        error = error_of(server, token="f" * 40)
    assert isinstance(error, CredentialsRejected)
    assert "Invalid token" in str(error)
    assert len(server.asked) == 1


@pytest.mark.parametrize("token", ["", "  ", "two words and more", "abc\ndefghij", "Zeichen-mit-ö-darin"])
def test_a_token_that_no_header_can_hold_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        NetBox("https://netbox.lab", token, Sleeper())
    assert not token.strip() or token not in str(caught.value)


def test_a_token_of_version_two_is_sent_as_a_bearer() -> None:
    token = "nbt_4F9DAouzURLb.zjebxBPzICiPbWz0Wtx0fTL7bCKXKGTYhNzkgC2S"
    with netbox([device(1)]) as server:
        server.authorization = f"Bearer {token}"
        assert read(server, token=f" {token}\n") == ["gpu-0001"]


@pytest.mark.parametrize(
    ("status", "headers", "body", "said"),
    [
        (404, {}, "", "no NetBox at"),
        (400, {}, '{"rolle": ["Unknown filter"]}', "Unknown filter"),
        (301, {"Location": "https://other.example/api/?x=1"}, "", "points to https://other.example/api/;"),
        (200, {}, "<html>log in</html>", "no JSON object"),
        (200, {}, '{"hello": "world"}', "not as NetBox does"),
        (200, {}, '{"count": 1, "results": "x", "next": null}', "not as NetBox does"),
        (200, {}, '{"count": 1, "resul', "no JSON object"),
    ],
)
def test_what_is_no_list_of_devices_is_an_error_that_says_what_it_is(
    status: int, headers: dict[str, str], body: str, said: str
) -> None:
    with netbox([device(1)]) as server:
        server.first = [(status, headers, body)]
        assert said in str(error_of(server))


def test_a_next_page_that_is_this_page_ends() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"count": 9, "next": str(request.url), "results": [device(1)]})

    client = NetBox("https://netbox.lab", TOKEN, Sleeper(), transport=httpx.MockTransport(answer))
    with pytest.raises(TransientError):
        client.read_devices()


def test_silence_is_tried_again_and_then_said() -> None:
    clock = Sleeper()
    with netbox([]) as server:
        url = server.url
    client = NetBox(url, TOKEN, clock, timeout_seconds=2.0)
    with pytest.raises(NodeUnreachable, match="no answer"):
        client.read_devices()
    assert len(clock.slept) == 5


@pytest.mark.parametrize(
    "url", ["netbox.lab", "ftp://netbox.lab", "https://u:secret@netbox.lab", "https://", "http://[x"]
)
def test_a_wrong_url_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        NetBox(url, TOKEN, Sleeper())
    assert "secret" not in str(caught.value)


def values(**more: object) -> dict[str, str]:
    (row,) = read_devices([device(3, **more)], NetBoxFields(), "https://netbox.lab").rows
    assert row.origin == "https://netbox.lab/dcim/devices/3/"
    return dict(row.values)


def test_a_device_becomes_a_row_with_netboxs_own_fields() -> None:
    assert values() == {
        "name": "gpu-0003",
        "rack": "r02",
        "pool": "train",
        "model": "HGX-H100-8",
        "bmc": "10.0.0.3",
        "ssh": "10.1.0.3",
        "unit": "3",
        "serial": "SN-3",
        "site": "Hall 2",
        "role": "GPU node",
        "tags": "pool:train loud",
    }


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ({"custom_fields": {"bmc_address": "https://b3.lab:8443"}}, "bmc", "https://b3.lab:8443"),
        ({"custom_fields": {"bmc_address": {"id": 1, "address": "10.9.9.3/22"}}}, "bmc", "10.9.9.3"),
        ({"custom_fields": {"pool": {"value": "dev", "label": "Dev"}}}, "pool", "dev"),
        ({"custom_fields": {"pool": "dev"}}, "pool", "dev"),
        ({"custom_fields": {"fleet_model": "HGX-B200-8"}}, "model", "HGX-B200-8"),
        ({"tags": [{"name": "pool:a"}, {"name": "pool:b"}]}, "pool", None),
        ({"tags": ["pool:dev"]}, "pool", "dev"),
        ({"position": "12.0"}, "unit", "12.0"),
        ({"position": None}, "unit", None),
        ({"serial": ""}, "serial", None),
        ({"oob_ip": None}, "bmc", None),
        ({"primary_ip4": None, "primary_ip": {"address": "10.1.9.9/24"}}, "ssh", "10.1.9.9"),
        ({"role": None, "device_role": {"name": "old style"}}, "role", "old style"),
        ({"rack": None, "custom_fields": None, "device_type": "x"}, "rack", None),
    ],
)
def test_fields_of_every_kind_and_version_are_read(more: Json, field: str, value: str | None) -> None:
    assert values(**more).get(field) == value


@pytest.mark.parametrize(
    ("name", "said"),
    [(None, "no name"), ("gpu[1-3]", "no node's name"), ("a b", "no node's name"), ("none", "no node")],
)
def test_a_device_without_a_usable_name_is_a_fault_with_its_url(name: str | None, said: str) -> None:
    (fault,) = read_devices([device(3, name=name)], NetBoxFields(), "https://netbox.lab").faults
    assert str(fault).startswith("https://netbox.lab/dcim/devices/3/: ")
    assert said in fault.text


def test_a_device_that_is_hardly_one_still_has_an_origin() -> None:
    (fault,) = read_devices([{"id": 5}], NetBoxFields(), "https://netbox.lab").faults
    assert fault.origin == "https://netbox.lab device 5"


class Trickle(httpx.SyncByteStream):
    """A byte each ten seconds, without end."""

    def __init__(self, clock: Sleeper) -> None:
        self.clock = clock

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.clock.sleep(10.0)
            yield b" "


def test_a_page_that_trickles_without_end_is_given_up() -> None:
    clock = Sleeper()
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Trickle(clock)))
    client = NetBox("https://netbox.test", TOKEN, clock, timeout_seconds=5.0, transport=transport)
    with pytest.raises(NodeUnreachable, match="trickles"):
        client.read_devices()
    assert clock.monotonic() < 600.0


def test_a_page_that_repeats_the_token_does_not_bring_it_into_the_message() -> None:
    with netbox([]) as server:
        server.first = [(400, {}, json.dumps({"detail": f"you sent {server.authorization}"}))]
        with pytest.raises(FleetError) as caught:
            read(server)
    assert TOKEN not in str(caught.value)
    assert "(the token)" in str(caught.value)


def test_an_id_that_is_no_number_is_an_id() -> None:
    with netbox([device(1, id=[1]), device(2, id={"a": 1})]) as server:
        assert read(server) == ["gpu-0001", "gpu-0002"]
