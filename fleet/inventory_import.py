"""What an inventory from elsewhere would change in the fleet file, or every reason why it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from fleet.config import FleetSpec, NodeEntry
from fleet.inventory_addresses import address_key, bmc_url, rack_unit, ssh_address
from fleet.inventory_rows import WRITTEN, Fault, Row, Rows, nearest, serial_of

_NEEDED = ("rack", "pool", "model", "bmc", "ssh")
_MAX_HEIGHT = 60


@dataclass(frozen=True, slots=True)
class Known:
    """What the fleet has already, beside its file's values.

    `places` says where each node stands in the fleet file (`fleet.yaml:14`), `serials` which node has which system
    serial as last read, `new_models` the models that may come although no node has them yet.
    """

    places: Mapping[str, str] = field(default_factory=dict)
    serials: Mapping[str, str] = field(default_factory=dict)
    new_models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of a node that is in the fleet file already; `old` is None where it was not given."""

    field: str
    old: str | int | None
    new: str | int


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import would do. `absent` are nodes of the fleet file that the source does not name: they stay."""

    added: tuple[NodeEntry, ...]
    changed: Mapping[str, tuple[FieldChange, ...]]
    unchanged: tuple[str, ...]
    absent: tuple[str, ...]
    origins: Mapping[str, str]

    @property
    def empty(self) -> bool:
        return not self.added and not self.changed


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A node as it would be: `values` holds what is right of it, so that one fault hides no other."""

    name: str
    origin: str
    values: Mapping[str, str | int]
    height: int = 1
    from_row: bool = True


def plan_import(source: Rows, spec: FleetSpec, known: Known) -> tuple[ImportPlan | None, tuple[Fault, ...]]:
    """The plan, or None and every fault in the order of the source.

    A field that a row does not give stays as the fleet file has it.
    """
    current = {entry.name: entry for entry in spec.nodes}
    faults = list(source.faults)
    if not source.rows and not faults:
        faults.append(Fault("the inventory", "names no node"))
    candidates: list[_Candidate] = []
    names = _known_names(spec, known)
    for row in source.rows:
        candidate, wrong = _candidate(row, current.get(row.values.get("name", "")), names)
        faults += wrong
        if candidate is not None:
            candidates.append(candidate)
    faults += _collisions(_all_together(candidates, spec, known), spec, known)
    if faults:
        order = {row.origin: index for index, row in enumerate(source.rows)}
        return None, tuple(sorted(dict.fromkeys(faults), key=lambda fault: order.get(fault.origin, -1)))
    return _plan(candidates, current), ()


def _known_names(spec: FleetSpec, known: Known) -> Mapping[str, Mapping[str, None]]:
    """Racks, pools and models by their field. A fleet without nodes knows no model, so any may come."""
    names = {"rack": dict.fromkeys(spec.racks), "pool": dict.fromkeys(spec.pools)}
    if spec.nodes:
        models = [*(entry.model for entry in spec.nodes), *sorted(known.new_models)]
        names["model"] = dict.fromkeys(models)
    return names


def _candidate(
    row: Row, now: NodeEntry | None, names: Mapping[str, Mapping[str, None]]
) -> tuple[_Candidate | None, tuple[Fault, ...]]:
    name = row.values.get("name")
    if name is None:
        return None, (Fault(row.origin, "name: is missing"),)
    faults: list[str] = []
    values = _values(row, faults)
    if now is None:
        faults += [f"{key}: is missing" for key in _NEEDED if key not in row.values]
    faults += _unknown_names(values, now, names)
    kept: dict[str, str | int] = {} if now is None else now.model_dump(exclude_none=True)
    # A serial that is a placeholder (`N/A`) takes none away.
    merged = {key: value for key, value in kept.items() if key not in row.values or key == "serial"} | values
    if not faults:
        faults += _refused(merged)
    height = values.pop("height", 1)
    merged.pop("height", None)
    candidate = _Candidate(name, row.origin, merged, int(height))
    return candidate, tuple(Fault(row.origin, f"{name}: {text}") for text in faults)


def _values(row: Row, faults: list[str]) -> dict[str, str | int]:
    """The row's fields in the fleet file's form; what cannot be brought into it becomes a fault."""
    values: dict[str, str | int] = {}
    for key in (*WRITTEN, "height"):
        given = row.values.get(key)
        if given is None:
            continue
        if key == "serial" and serial_of(given) is None:
            continue  # what stands where there is none
        read = _READERS.get(key)
        try:
            values[key] = given if read is None else read(given)
        except ValueError as error:
            faults.append(f"{key}: {error}")
    return values


def _height(given: str) -> int:
    height = rack_unit(given)
    if height > _MAX_HEIGHT:
        raise ValueError(f"{given!r} is no height in units")
    return height


_READERS: Mapping[str, Callable[[str], str | int]] = {
    "bmc": bmc_url,
    "ssh": ssh_address,
    "unit": rack_unit,
    "serial": str.strip,
    "height": _height,
}


def _unknown_names(
    values: Mapping[str, str | int], now: NodeEntry | None, names: Mapping[str, Mapping[str, None]]
) -> Iterator[str]:
    for key, known in names.items():
        value = values.get(key)
        if isinstance(value, str) and value not in known and (now is None or getattr(now, key) != value):
            yield f"{key}: no {key} {value!r} in this fleet; {nearest(value, known)}"


def _refused(merged: Mapping[str, str | int]) -> list[str]:
    """What the fleet file's own rules say against the entry."""
    try:
        NodeEntry.model_validate({key: value for key, value in merged.items() if key in WRITTEN})
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
    return []


def _all_together(candidates: Sequence[_Candidate], spec: FleetSpec, known: Known) -> list[_Candidate]:
    """The fleet as it would be after the import: what stays first, so that a collision is the row's fault."""
    replaced = {candidate.name for candidate in candidates}
    staying = [
        _Candidate(
            entry.name,
            known.places.get(entry.name, "the fleet file"),
            entry.model_dump(exclude_none=True),
            from_row=False,
        )
        for entry in spec.nodes
        if entry.name not in replaced
    ]
    return [*staying, *candidates]


def _collisions(nodes: Sequence[_Candidate], spec: FleetSpec, known: Known) -> Iterator[Fault]:
    """Names, addresses, serials and places that two nodes would have.

    A serial was read at a BMC's address: it is another node's where another node has that address.
    """
    yield from _given_twice(nodes)
    read_at = {entry.name: address_key("bmc", entry.bmc) for entry in spec.nodes}
    owners = {serial.casefold(): node for serial, node in known.serials.items()}
    at_address = {address_key("bmc", str(node.values["bmc"])): node.name for node in nodes if "bmc" in node.values}
    for node in nodes:
        serial = str(node.values.get("serial", ""))
        owner = owners.get(serial.casefold(), "")
        if node.from_row and at_address.get(read_at.get(owner, ""), node.name) != node.name:
            yield Fault(node.origin, f"{node.name}: serial: {serial} was read on {owner}")
    yield from _two_in_a_place(nodes)


def _given_twice(nodes: Sequence[_Candidate]) -> Iterator[Fault]:
    first: dict[tuple[str, str], _Candidate] = {}
    for node in nodes:
        keys = {"name": node.name.casefold(), "serial": str(node.values.get("serial", "")).casefold()}
        keys |= {kind: address_key(kind, str(node.values[kind])) for kind in ("bmc", "ssh") if kind in node.values}
        for kind, key in keys.items():
            other = first.setdefault((kind, key), node) if key else node
            if other is node or not node.from_row or (kind != "name" and other.name == node.name):
                continue
            shown = other.name if kind == "name" else node.values[kind]
            yield Fault(node.origin, f"{node.name}: {kind}: {shown} belongs to {other.name} ({other.origin})")


def _two_in_a_place(nodes: Sequence[_Candidate]) -> Iterator[Fault]:
    holders: dict[tuple[str, int], _Candidate] = {}
    for node in nodes:
        rack, unit = node.values.get("rack"), node.values.get("unit")
        if not isinstance(rack, str) or not isinstance(unit, int):
            continue
        for taken in range(unit, unit + node.height):
            other = holders.setdefault((rack, taken), node)
            if other is not node and other.name != node.name and node.from_row:
                yield Fault(node.origin, f"{node.name}: unit: {rack} U{taken} holds {other.name} ({other.origin})")
                break


def _plan(candidates: Sequence[_Candidate], current: Mapping[str, NodeEntry]) -> ImportPlan:
    added: list[NodeEntry] = []
    changed: dict[str, tuple[FieldChange, ...]] = {}
    for candidate in candidates:
        entry = NodeEntry.model_validate(dict(candidate.values))
        now = current.get(candidate.name)
        if now is None:
            added.append(entry)
        elif changes := _changes(now, entry):
            changed[candidate.name] = changes
    named = {candidate.name for candidate in candidates}
    new = {entry.name for entry in added}
    return ImportPlan(
        added=tuple(added),
        changed=changed,
        unchanged=tuple(sorted(named - new - set(changed))),
        absent=tuple(name for name in current if name not in named),
        origins={candidate.name: candidate.origin for candidate in candidates},
    )


def _changes(now: NodeEntry, then: NodeEntry) -> tuple[FieldChange, ...]:
    return tuple(
        FieldChange(key, getattr(now, key), getattr(then, key))
        for key in WRITTEN
        if getattr(now, key) != getattr(then, key) and not _same_text(key, getattr(now, key), getattr(then, key))
    )


def _same_text(key: str, now: object, then: object) -> bool:
    """Two spellings of one address or serial are no change; from http to https is one."""
    if not isinstance(now, str) or not isinstance(then, str):
        return False
    if key == "serial":
        return now.casefold() == then.casefold()
    if key not in ("bmc", "ssh"):
        return False
    secure = [text.startswith("https://") for text in (now, then)]
    return address_key(key, now) == address_key(key, then) and secure[0] == secure[1]
