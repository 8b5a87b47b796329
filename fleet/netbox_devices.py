"""NetBox's devices as rows of an inventory.

Source of the shape: NetBox's REST API, /api/dcim/devices/, 3.x and 4.x (`device_role` became `role` in 4.0,
`oob_ip` came with 3.6, `display_url` with 4.0; an empty serial is ""). `position` is the lowest unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.hostlist import expand
from fleet.inventory_rows import Fault, Row, Rows
from fleet.json_values import JsonObject, number_at, object_at, objects_at, text_at, texts_at, value_at

_NO_HOSTLIST = frozenset("[], \t\r\n")


@dataclass(frozen=True, slots=True)
class NetBoxFields:
    """The custom fields to read. Each has a fallback where NetBox has a field of its own for it."""

    bmc: str = "bmc_address"  # else oob_ip
    ssh: str = "ssh_address"  # else primary_ip
    pool: str = "pool"  # else a tag pool:NAME
    model: str = "fleet_model"  # else device_type.model
    nvlink_domain: str = "nvlink_domain"
    serial: str = "system_serial"  # else serial


def read_devices(devices: Iterable[JsonObject], fields: NetBoxFields, server: str) -> Rows:
    """A row for every device; one without a name is a fault. `server` is the URL that stands in for a missing one."""
    rows: list[Row] = []
    faults: list[Fault] = []
    for device in devices:
        row = read_device(device, fields, server)
        name = row.values.get("name")
        if name is None:
            faults.append(Fault(row.origin, "the device has no name"))
        elif _NO_HOSTLIST & set(name) or len(expand(name)) != 1:
            faults.append(Fault(row.origin, f"name: {name!r} is no node's name; letters, digits, _, . and -"))
        else:
            rows.append(row)
    return Rows(tuple(rows), tuple(faults))


def read_device(device: JsonObject, fields: NetBoxFields, server: str) -> Row:
    """What one device says; what it does not say is not in the row."""
    ident = value_at(device, "id")
    origin = text_at(device, "display_url") or text_at(device, "url") or f"{server} device {ident}"
    custom = object_at(device, "custom_fields")
    tags = tuple(name for tag in _tags(device) if (name := tag.strip()))
    values = {
        "name": text_at(device, "name"),
        "rack": text_at(device, "rack", "name"),
        "pool": _plain(custom.get(fields.pool)) or _tagged(tags, "pool"),
        "model": _plain(custom.get(fields.model)) or text_at(device, "device_type", "model"),
        "bmc": _plain(custom.get(fields.bmc)) or _ip(device, "oob_ip"),
        "ssh": _plain(custom.get(fields.ssh)) or _ip(device, "primary_ip4") or _ip(device, "primary_ip"),
        "unit": _position(device),
        "nvlink_domain": _plain(custom.get(fields.nvlink_domain)),
        "serial": _plain(custom.get(fields.serial)) or text_at(device, "serial"),
        "height": _number(value_at(device, "device_type", "u_height")),
        "site": text_at(device, "site", "name"),
        "role": text_at(device, "role", "name") or text_at(device, "device_role", "name"),
        "tags": " ".join(tags) or None,
    }
    return Row(origin, {field: value for field, value in values.items() if value is not None})


def _plain(value: object) -> str | None:
    """A custom field's value as text: itself, a choice's value, or the name or address of the object it points to."""
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _number(value)
    for key in ("address", "value", "name", "display"):
        text = text_at(value, key)
        if text is not None:
            return text.partition("/")[0] if key == "address" else text
    return None


def _ip(device: JsonObject, key: str) -> str | None:
    """The address without its prefix length."""
    address = text_at(device, key, "address")
    return None if address is None else address.partition("/")[0]


def _position(device: JsonObject) -> str | None:
    return _number(value_at(device, "position"))


def _number(value: object) -> str | None:
    """`12`, `12.0` and `"12.0"` are 12; NetBox has used all three."""
    if isinstance(value, str):
        return value.strip() or None
    number = number_at({"value": value}, "value")
    return None if number is None else f"{number:g}"


def _tags(device: JsonObject) -> tuple[str, ...]:
    named = tuple(text_at(tag, "name") or "" for tag in objects_at(device, "tags"))
    return named or texts_at(device, "tags")


def _tagged(tags: tuple[str, ...], key: str) -> str | None:
    """The value of the only tag `key:VALUE`; None where there are several."""
    found = [tag.partition(":")[2].strip() for tag in tags if tag.casefold().startswith(f"{key}:")]
    return found[0] or None if len(found) == 1 else None
