"""The body of a NetBox webhook is taken strictly, and what is no device's arrival says why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.netbox_fake import device

from fleet.errors import ConfigurationError
from fleet.netbox_devices import NetBoxFields
from fleet.netbox_webhook import DeviceChange, read_webhook

FIELDS = NetBoxFields()


def body(event: str = "created", data: object = None, **more: object) -> dict[str, object]:
    """A body as NetBox 4 sends it by default, cut to what matters and a little of what does not."""
    return {
        "event": event,
        "timestamp": "2026-11-30T12:00:00.000000+00:00",
        "model": "device",
        "username": "racks",
        "request_id": "fdbca812-3142-4783-b364-2e2bd5c16c6a",
        "data": device(7) if data is None else data,
        "snapshots": {"prechange": None, "postchange": {"name": "gpu-0007", "status": "active"}},
        **more,
    }


def read(document: object) -> DeviceChange:
    return read_webhook(json.dumps(document).encode(), FIELDS)


def test_a_created_device_is_a_row_of_the_inventory() -> None:
    change = read(body())
    assert (change.event, change.why_not) == ("created", "")
    values = change.row.values
    assert (values["name"], values["bmc"], values["serial"]) == ("gpu-0007", "10.0.0.7", "SN-7")


@pytest.mark.parametrize(
    "more", [{"object_type": "dcim.device"}, {"event": "object_updated"}, {"event": "updated", "new_key": 1}]
)
def test_the_bodies_of_several_versions_are_read(more: dict[str, object]) -> None:
    assert read(body(**more)).why_not == ""  # type: ignore[arg-type]


def test_a_body_with_a_byte_order_mark_is_read() -> None:
    assert read_webhook(b"\xef\xbb\xbf" + json.dumps(body()).encode(), FIELDS).row.values["name"] == "gpu-0007"


@pytest.mark.parametrize("status", ["planned", "inventory", "offline", "failed", "decommissioning"])
def test_a_device_that_is_not_there_or_not_running_is_no_arrival(status: str) -> None:
    change = read(body(data=device(7, status={"value": status, "label": status.title()})))
    assert change.why_not == f"its status is {status}"


@pytest.mark.parametrize("status", [{"value": "staged"}, "active", {"value": "rack-and-stack"}])
def test_a_device_that_is_there_may_be_one(status: object) -> None:
    assert read(body(data=device(7, status=status))).why_not == ""


def test_a_deleted_device_is_no_arrival() -> None:
    assert read(body("deleted")).why_not == "it was deleted"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "no JSON object"),
        ({}, "event is 'None'"),
        (body("job_started"), "event is 'job_started'"),
        (body(model="interface"), "model is 'interface'"),
        (body(object_type="dcim.rack"), "object_type is 'dcim.rack'"),
        ({k: v for k, v in body().items() if k != "model"}, "neither model nor object_type"),
        (body(data="gpu-0007"), "data.id"),
        (body(data=device(7, id="7")), "data.id"),
        (body(data=device(7, id=True)), "data.id"),
        (body(data=device(7, name=None)), "no name"),
        (body(data=device(7, name="gpu-[1-9]")), "no node's name"),
        (body(data=device(7, status=None)), "data.status"),
    ],
)
def test_every_other_body_is_refused_and_says_what_is_wrong(document: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match="no body of a NetBox webhook") as caught:
        read(document)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe{}", b'{"event": "created", "event": "deleted"}', b"[" * 100_000, b" " * (4 * 2**20 + 1)],
)
def test_what_is_no_json_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigurationError, match="no body of a NetBox webhook"):
        read_webhook(content, FIELDS)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(("event", "model", "object_type", "data")), _JSON), _JSON)
def test_any_body_is_read_or_refused(document: dict[str, object], data: object) -> None:
    for tried in (document, body(data=data), body(data={**device(7), "name": data})):
        told = ""
        try:
            told = read(tried).row.values["name"]
        except ConfigurationError as error:
            told = error.message
        assert told.strip()
