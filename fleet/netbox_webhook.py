"""The body of NetBox's webhook for a device, read strictly: somebody else may be able to send one.

Source of the shape: NetBox's documentation, "Webhooks", default request body, and netbox/extras/webhooks.py: `event`,
`timestamp`, `data` (the device as the REST API gives it), `model` ("device"), from 4.4 on `object_type`
("dcim.device"). A body made by a template of one's own is another format and is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fleet.errors import ConfigurationError
from fleet.inventory_rows import Row
from fleet.json_values import JsonObject, object_at, printable, text_at, value_at
from fleet.netbox_devices import NetBoxFields, read_devices

LARGEST_BODY = 4 * 2**20
_EVENTS = {"created": True, "updated": True, "deleted": False}
_NOT_THERE = frozenset({"planned", "offline", "inventory", "failed", "decommissioning"})  # of NetBox's own statuses
_MODELS = {"model": "device", "object_type": "dcim.device"}


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """A device that NetBox tells of. `why_not` says why it is no arrival; empty where it may be one."""

    event: str
    row: Row
    why_not: str = ""


def read_webhook(content: bytes, fields: NetBoxFields) -> DeviceChange:
    """One body. Raises ConfigurationError that says what is wrong with it, in one line."""
    body = _object(content)
    event = _event(body)
    _check_model(body)
    data = object_at(body, "data")
    ident = value_at(data, "id")
    if not isinstance(ident, int) or isinstance(ident, bool) or ident < 1:
        raise _refused("data.id is no device's number")
    rows = read_devices((data,), fields, "NetBox")
    if rows.faults or not rows.rows:
        raise _refused("; ".join(str(fault) for fault in rows.faults) or "data is no device")
    row = rows.rows[0]
    if not _EVENTS[event]:
        return DeviceChange(event, row, "it was deleted")
    status = text_at(data, "status", "value") or text_at(data, "status")
    if status is None:
        raise _refused("data.status is missing")
    why_not = f"its status is {status}" if status in _NOT_THERE else ""
    return DeviceChange(event, row, why_not)


def _object(content: bytes) -> JsonObject:
    if len(content) > LARGEST_BODY:
        raise _refused(f"it is longer than {LARGEST_BODY >> 20} MiB")
    try:
        body = printable(json.loads(content.decode("utf-8-sig"), object_pairs_hook=_no_doubles))
    except (ValueError, RecursionError) as error:
        raise _refused(f"it is no JSON ({str(error)[:120]})") from error
    if not isinstance(body, dict):
        raise _refused("it is no JSON object")
    return body


def _no_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A key given twice means one thing to one reader and another to the next."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _event(body: JsonObject) -> str:
    """NetBox's word for it; its event rules call the same thing `object_created`."""
    event = (text_at(body, "event") or "").removeprefix("object_")
    if event not in _EVENTS:
        raise _refused(f"event is {str(value_at(body, 'event'))[:40]!r}; created, updated or deleted")
    return event


def _check_model(body: JsonObject) -> None:
    told = {key: text_at(body, key) for key in _MODELS if key in body}
    if not told:
        raise _refused("neither model nor object_type says what it is about")
    for key, value in told.items():
        if value != _MODELS[key]:
            raise _refused(f"{key} is {str(value)[:40]!r}; only {_MODELS[key]} is taken")


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(f"this is no body of a NetBox webhook for a device: {why}")
