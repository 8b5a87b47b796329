"""What is new is announced once; what is known, moved or doubtful is not taken for new."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefect.client.orchestration import SyncPrefectClient

from adapters.announced import add_announced, read_announced
from adapters.events import emit_arrivals, event_of
from fleet.arrival import Arrival, ArrivalSource, Comparison, compare, payload_of, read_payload
from fleet.errors import ConfigurationError, TransientError
from fleet.hardware import Hardware, Where, hardware_of_row, mac_of, uuid_of
from fleet.inventory_rows import Row

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
UUID = "4c4c4544-0042-3510-8052-b4c04f4b4d32"
OTHER = "5d5d5544-0042-3510-8052-b4c04f4b4d32"


def seen(n: int, serial: str | None = None, uuid: str | None = None, mac: str | None = None) -> Hardware:
    return Hardware(
        bmc=f"https://10.0.0.{n}", serials={"system": serial} if serial else None, uuid=uuid, macs=(mac,) if mac else ()
    )


def node(name: str, n: int, serial: str | None = None, uuid: str | None = None) -> Hardware:
    known = seen(n, serial, uuid)
    return Hardware(node=name, bmc=known.bmc, serials=known.serials, uuid=uuid)


def compared(looked: list[Hardware], *known: Hardware) -> Comparison:
    return compare(looked, known, ArrivalSource.DISCOVERY, NOW)


def test_a_bmc_at_an_unknown_address_arrives_and_a_known_one_does_not() -> None:
    found = compared([seen(1), seen(2)], node("gpu-0001", 1))
    assert [arrival.hardware.bmc for arrival in found.arrivals] == ["https://10.0.0.2"]
    assert found.recognised == 1


@pytest.mark.parametrize("same", ["https://10.0.0.1/", "HTTPS://10.0.0.1:443", "https://10.0.0.1:443/"])
def test_another_spelling_of_a_known_address_is_the_known_one(same: str) -> None:
    assert compared([Hardware(bmc=same)], node("gpu-0001", 1)).arrivals == ()


def test_known_hardware_at_another_address_has_moved_and_does_not_arrive() -> None:
    found = compared([seen(9, serial="abc-1")], node("gpu-0001", 1, serial="ABC-1"))
    assert found.arrivals == ()
    assert [moved.known.node for moved in found.moved] == ["gpu-0001"]


def test_a_bmc_that_answers_at_two_addresses_of_one_node_has_not_moved() -> None:
    known = [node("gpu-0001", 1, serial="S-1"), node("gpu-0001", 2, serial="S-1")]
    found = compared([seen(1, serial="S-1"), seen(2, serial="S-1")], *known)
    assert (found.recognised, found.moved) == (2, ())


def test_announced_hardware_that_the_fleet_file_names_at_its_new_address_has_not_moved() -> None:
    found = compared([seen(2, serial="S-1")], seen(1, serial="S-1"), node("gpu-0001", 2))
    assert (found.recognised, found.moved) == (1, ())


def test_a_known_machine_at_the_address_of_another_node_has_moved() -> None:
    found = compared([seen(2, serial="S-1")], node("gpu-0001", 1, serial="S-1"), node("gpu-0002", 2))
    assert [(moved.known.node, found.arrivals) for moved in found.moved] == [("gpu-0001", ())]


def test_a_moved_machine_is_called_by_its_node_even_if_it_was_announced_before() -> None:
    found = compared([seen(9, serial="S-1")], seen(1, serial="S-1"), node("gpu-0001", 1, serial="S-1"))
    assert [moved.known.label for moved in found.moved] == ["gpu-0001"]


def test_another_serial_at_a_known_address_arrives_in_the_place_of_the_node() -> None:
    (arrival,) = compared([seen(1, serial="NEW-1")], node("gpu-0001", 1, serial="OLD-1")).arrivals
    assert arrival.replaces == "gpu-0001"


def test_another_uuid_at_a_known_address_is_a_doubt_and_starts_no_intake() -> None:
    found = compared([seen(1, uuid=OTHER)], node("gpu-0001", 1, uuid=UUID))
    assert (found.arrivals, len(found.doubts)) == ((), 1)
    assert "gpu-0001" in found.doubts[0].text


def test_a_mac_that_stays_answers_for_a_uuid_that_changed() -> None:
    known = seen(1, uuid=UUID, mac="B0-7B-25-D6-51-82")
    found = compared([seen(1, uuid=OTHER, mac="b0:7b:25:d6:51:82")], known)
    assert (found.recognised, found.doubts) == (1, ())


def test_one_uuid_from_many_bmcs_names_none_of_them() -> None:
    looked = [seen(n, uuid=UUID) for n in range(1, 5)]
    assert len(compared(looked).arrivals) == 4
    assert len(compared(looked, node("gpu-0001", 1, uuid=UUID)).arrivals) == 3


@pytest.mark.parametrize(
    "uuid", ["", "00000000-0000-0000-0000-000000000000", "03000200-0400-0500-0006-000700080009", "F" * 32, "none"]
)
def test_a_placeholder_for_a_uuid_makes_nobody_the_same(uuid: str) -> None:
    assert uuid_of(uuid) is None
    assert len(compared([seen(2, uuid=uuid)], seen(1, uuid=uuid)).arrivals) == 1


def test_a_placeholder_for_a_serial_makes_nobody_the_same() -> None:
    assert (
        len(compared([seen(2, serial="To be filled by O.E.M.")], seen(1, serial="To be filled by O.E.M.")).arrivals)
        == 1
    )


def test_machines_with_one_uuid_and_two_serials_are_two() -> None:
    assert len(compared([seen(2, serial="B-2", uuid=UUID)], seen(1, serial="A-1", uuid=UUID)).arrivals) == 1


def test_one_machine_on_two_addresses_of_a_range_arrives_once() -> None:
    found = compared([seen(1, serial="ABC-1"), seen(2, serial="ABC-1")])
    assert (len(found.arrivals), found.moved) == (1, ())


def test_what_was_announced_does_not_arrive_again_even_when_more_is_known_of_it() -> None:
    (first,) = compared([seen(1)]).arrivals
    assert compared([seen(1)], first.hardware).arrivals == ()
    assert compared([seen(1, serial="ABC-1", uuid=UUID)], first.hardware).arrivals == ()


def test_a_device_of_another_inventory_is_known_by_its_name_alone() -> None:
    row = hardware_of_row(Row("x", {"name": "GPU-0001", "serial": "N/A", "unit": "7", "bmc": "no address!"}))
    assert (row.bmc, row.where.unit, row.serial) == (None, 7, None)
    assert compared([row], node("gpu-0001", 1)).arrivals == ()
    assert len(compared([row], node("gpu-0002", 1)).arrivals) == 1


def test_hardware_that_tells_nothing_at_all_is_passed_over() -> None:
    assert compared([Hardware()]) == Comparison()


def test_macs_are_compared_however_they_are_written() -> None:
    assert {mac_of("B0:7B:25:D6:51:82"), mac_of("b07b.25d6.5182"), mac_of("b0-7b-25-d6-51-82")} == {"b0:7b:25:d6:51:82"}
    assert (mac_of("00:00:00:00:00:00"), mac_of("b0:7b"), mac_of("")) == (None, None, None)


FULL = Arrival(
    Hardware(
        node="gpu-0017",
        bmc="https://10.0.0.17",
        serials={"system": "ABC-17", "chassis": "C-3"},
        uuid=UUID,
        macs=("b0:7b:25:d6:51:82",),
        vendor="NVIDIA",
        model="HGX H100",
        where=Where("Hall 2", "r02", 17),
        certificate_sha256="a" * 64,
    ),
    ArrivalSource.NETBOX,
    NOW,
    "gpu-0003",
)


@pytest.mark.parametrize("arrival", [FULL, Arrival(seen(1), ArrivalSource.DISCOVERY, NOW)])
def test_a_payload_goes_through_json_and_back(arrival: Arrival) -> None:
    read = read_payload(json.loads(json.dumps(payload_of(arrival))))
    assert payload_of(read) == payload_of(arrival)
    assert payload_of(arrival)["version"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"seen_at": "yesterday"},
        {"seen_at": "2026-11-30T12:00:00"},
        {"source": "a bird"},
        {"seen_at": None},
    ],
)
def test_a_payload_that_is_not_ours_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        read_payload({**payload_of(FULL), **wrong})
    with pytest.raises(ConfigurationError):
        read_payload({})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(payload_of(FULL))), _JSON))
@settings(max_examples=100, deadline=None)
def test_any_payload_is_an_arrival_or_refused(part: dict[str, object]) -> None:
    try:
        arrival = read_payload({**payload_of(FULL), **part})
    except ConfigurationError:
        return
    assert arrival.hardware.named
    assert json.dumps(payload_of(arrival))


def test_the_key_names_the_hardware_and_not_the_sighting() -> None:
    one = Arrival(seen(1, serial="ABC-1"), ArrivalSource.DISCOVERY, NOW)
    moved = Arrival(seen(2, serial="abc-1", uuid=UUID), ArrivalSource.SWEEP, NOW.replace(hour=13))
    assert one.key == moved.key
    assert one.key != Arrival(seen(1, serial="ABC-2"), ArrivalSource.DISCOVERY, NOW).key


def test_what_was_announced_is_read_back_and_a_torn_last_line_is_written_over(tmp_path: Path) -> None:
    record = tmp_path / "run" / "arrivals.jsonl"
    assert read_announced(record) == ()
    add_announced(record, [FULL])
    with record.open("a") as file:
        file.write('{"version": 1, "har')
    assert [arrival.key for arrival in read_announced(record)] == [FULL.key]
    add_announced(record, [Arrival(seen(1), ArrivalSource.DISCOVERY, NOW)])
    assert len(read_announced(record)) == 2


def test_a_damaged_record_names_its_line(tmp_path: Path) -> None:
    record = tmp_path / "arrivals.jsonl"
    add_announced(record, [FULL])
    record.write_text(record.read_text() + "[1]\n")
    with pytest.raises(ConfigurationError, match=r"arrivals\.jsonl:2: "):
        read_announced(record)


def test_the_event_carries_the_payload_and_names_the_hardware_and_its_fleet() -> None:
    event = event_of(FULL, "lab")
    assert event.event == "gpufleet.hardware.arrived"
    assert event.resource.id == f"gpufleet.hardware.{FULL.key}"
    assert event.related[0].id == "gpufleet.fleet.lab"
    assert read_payload(event.payload) == FULL


def _server(answer: Callable[[httpx.Request], httpx.Response]) -> None:
    def without_csrf(request: httpx.Request) -> httpx.Response:
        return httpx.Response(404) if request.url.path.endswith("/csrf-token") else answer(request)

    transport = httpx.MockTransport(without_csrf)
    emit_arrivals(
        [FULL], "lab", SyncPrefectClient("http://prefect.example/api", httpx_settings={"transport": transport})
    )


def test_events_are_sent_in_one_request_that_is_answered() -> None:
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/events"):
            bodies.append(request.content)
            return httpx.Response(204)
        return httpx.Response(200, json="3.9.1")

    _server(answer)
    (body,) = bodies
    assert [event["event"] for event in json.loads(body)] == ["gpufleet.hardware.arrived"]


def test_a_server_that_refuses_or_is_away_is_an_error_so_that_nothing_counts_as_announced() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(TransientError):
        _server(away)
    with pytest.raises(ConfigurationError, match="HTTP 422"):
        _server(lambda request: httpx.Response(422 if request.method == "POST" else 200, json="3.9.1"))
