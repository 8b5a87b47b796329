"""One row for many nodes: `gpu[001-016]` with addresses as hostlists or templates, taken apart.

In every other cell of such a row a hostlist in brackets is walked in step with the names, and a template takes
`{name}`, `{n}` (the name's last number), `{n+100}`, `{n-1}`, `{number}` (the same as written, with its zeros).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleet.errors import ConfigurationError
from fleet.hostlist import expand
from fleet.inventory_rows import Fault, Row, nearest

_LIST = re.compile(r"\[[0-9]+(?:[-,][0-9]+)*\]")  # not an IPv6 address in brackets, which has colons
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_WORDS = ("name", "number", "n")


def expand_row(row: Row) -> tuple[tuple[Row, ...], tuple[Fault, ...]]:
    """The rows of the single nodes, or what is wrong; a row with one plain name comes back as it is."""
    given = row.values.get("name", "")
    try:
        names = expand(given) if given else ()
    except ConfigurationError as error:
        return (), (Fault(row.origin, f"name: {error.message.splitlines()[0]} ({given[:80]!r})"),)
    if given and not names:
        return (), (Fault(row.origin, f"name: {given!r} names no node"),)
    if len(names) <= 1 and not _TEMPLATE.search("".join(row.values.values())) and "[" not in given:
        return (row,), ()
    columns: dict[str, tuple[str, ...]] = {}
    faults: list[Fault] = []
    for field, value in row.values.items():
        try:
            columns[field] = names if field == "name" else _column(value, names)
        except ValueError as error:
            faults.append(Fault(row.origin, f"{field}: {error}"))
    if faults:
        return (), tuple(faults)
    return tuple(Row(row.origin, {field: cells[i] for field, cells in columns.items()}) for i in range(len(names))), ()


def _column(value: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The cell's text for every name. Raises ValueError where the counts differ or a template is wrong."""
    cells = (value,) * len(names)
    if _LIST.search(value):
        try:
            cells = expand(value)
        except ConfigurationError as error:
            raise ValueError(error.message.splitlines()[0].removeprefix("hostlist: ")) from error
        if len(cells) != len(names):
            raise ValueError(f"{value!r} gives {len(cells)} values for {len(names)} nodes")
    return tuple(_filled(cell, name) for cell, name in zip(cells, names, strict=True))


def _filled(template: str, name: str) -> str:
    numbers = re.findall(r"[0-9]+", name)
    words = {"name": name} | ({"number": numbers[-1], "n": str(int(numbers[-1]))} if numbers else {})
    return _TEMPLATE.sub(lambda match: _word(match[1].strip(), words, name), template)


def _word(wanted: str, words: Mapping[str, str], name: str) -> str:
    if wanted in words:
        return words[wanted]
    shifted = re.fullmatch(r"n\s*([+-])\s*([0-9]{1,9})", wanted)
    if "n" not in words and (shifted or wanted in _WORDS):
        raise ValueError(f"{{{wanted}}} needs a number in the name, and {name!r} has none")
    if shifted is None:
        raise ValueError(f"{{{wanted}}} means nothing here; {nearest(wanted, _WORDS)}")
    number = int(words["n"]) + int(shifted[1] + shifted[2])
    if number < 0:
        raise ValueError(f"{{{wanted}}} is below zero for {name}")
    return str(number)
