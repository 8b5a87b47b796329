"""Inventories as spreadsheets save them: CSV with commas, semicolons or tabs, read into rows and written."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping

from fleet.config import NodeEntry
from fleet.inventory_hostlists import expand_row
from fleet.inventory_rows import FIELDS, WRITTEN, Fault, Row, Rows, nearest
from fleet.json_values import printable

# Header spellings, without case, blanks and marks, to fields.
_SPELLINGS: Mapping[str, str] = {
    **dict.fromkeys(("name", "node", "nodename", "host", "hostname", "server", "device", "nodes", "hostlist"), "name"),
    **dict.fromkeys(("rack", "rackname", "rackid", "cabinet"), "rack"),
    **dict.fromkeys(("pool", "partition", "nodepool"), "pool"),
    **dict.fromkeys(("model", "devicetype", "type", "sku", "product", "systemmodel"), "model"),
    **dict.fromkeys(
        ("bmc", "bmcaddress", "bmcurl", "bmcip", "oob", "oobip", "oobaddress", "ipmi", "ipmiaddress"), "bmc"
    ),
    **dict.fromkeys(("ipmiip", "idrac", "ilo", "xcc", "redfish", "redfishurl", "mgmtip", "managementip"), "bmc"),
    **dict.fromkeys(("ssh", "sshaddress", "sship", "hostaddress", "address", "ip", "ipaddress", "hostip"), "ssh"),
    **dict.fromkeys(("primaryip", "primaryip4", "primaryipv4"), "ssh"),
    **dict.fromkeys(("unit", "rackunit", "position", "rackposition", "u", "ru", "uposition", "slot"), "unit"),
    **dict.fromkeys(("nvlinkdomain", "nvldomain", "nvlink", "domain"), "nvlink_domain"),
    **dict.fromkeys(("serial", "serialnumber", "sn", "systemserial", "servicetag", "serialno"), "serial"),
    **dict.fromkeys(("height", "uheight", "size", "heightu", "units"), "height"),
    **dict.fromkeys(("site", "location", "datacenter", "datacentre"), "site"),
    **dict.fromkeys(("role", "devicerole"), "role"),
    **dict.fromkeys(("tags", "tag"), "tags"),
    **dict.fromkeys(("note", "notes", "comment", "comments", "description", "remarks"), "note"),
}
_SECRETS = re.compile(r"passw|secret|token|credential|privatekey")
_DELIMITERS = ",;\t|"


def decode_csv(content: bytes) -> str:
    """The text of a file: UTF-8 or UTF-16 with or without its mark, else Windows' western code page."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def read_csv(text: str, filename: str) -> Rows:
    """Every row, hostlists taken apart, and every fault with its line. Never raises for what a file can hold."""
    text = str(printable(text.removeprefix("\ufeff")))
    rows: list[Row] = []
    faults: list[Fault] = []
    header: list[str | None] | None = None
    for line, cells in _records(text, filename, faults):
        origin = f"{filename}:{line}"
        if header is None:
            header, unknown = _header(cells, origin)
            faults += unknown
            continue
        if len(cells) > len(header) and any(cell.strip() for cell in cells[len(header) :]):
            faults.append(Fault(origin, f"{len(cells)} cells, and the header has {len(header)}"))
        named = zip(header, cells, strict=False)
        values = {field: cell.strip() for field, cell in named if field is not None and cell.strip()}
        found, wrong = expand_row(Row(origin, values))
        rows += found
        faults += wrong
    if header is None and not faults:
        faults.append(Fault(f"{filename}:1", "nothing here; the first line names the columns: name,rack,pool,model …"))
    return Rows(tuple(rows), tuple(faults))


def write_csv(entries: Iterable[NodeEntry]) -> str:
    """The nodes of a fleet file as CSV that `read_csv` reads back; lines end in a newline."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(WRITTEN)
    for entry in entries:
        values = entry.model_dump()
        writer.writerow(["" if values[field] is None else values[field] for field in WRITTEN])
    return out.getvalue()


def _records(text: str, filename: str, faults: list[Fault]) -> Iterator[tuple[int, list[str]]]:
    """Records with the line where each begins; blank ones and # lines are passed over."""
    delimiter, skip = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            faults.append(Fault(f"{filename}:{line}", f"a quoted cell that begins here is not right ({error})"))
            return
        if line > skip and any(cell.strip() for cell in cells) and not cells[0].lstrip().startswith("#"):
            yield line, cells


def _delimiter(text: str) -> tuple[str, int]:
    """The delimiter, and how many lines at the top (a spreadsheet's `sep=;`) are no records."""
    said = re.match(r"\s*\"?sep=([,;|\t])\"?[ \t]*(?:\r\n|\r|\n)", text, re.IGNORECASE)
    if said is not None:
        return said[1], len(re.findall(r"\r\n|\r|\n", said[0]))
    lines = (
        line for line in re.split(r"[\r\n]+", text[:100_000]) if line.strip() and not line.lstrip().startswith("#")
    )
    header = re.sub(r'"[^"]*"', "", next(lines, ""))
    return max(_DELIMITERS, key=header.count), 0


def _header(cells: list[str], origin: str) -> tuple[list[str | None], list[Fault]]:
    """The field of every column, None for one without a name, and what is wrong with the header."""
    fields: list[str | None] = []
    faults: list[Fault] = []
    for cell in cells:
        plain = re.sub(r"[\W_]", "", cell.casefold())
        field = _SPELLINGS.get(plain)
        if _SECRETS.search(plain):
            faults.append(Fault(origin, f"column {cell.strip()!r}: a secret does not belong in an inventory"))
        elif plain and field is None:
            faults.append(Fault(origin, f"unknown column {cell.strip()[:80]!r}; {_nearest_column(plain)}"))
        elif field is not None and field in fields:
            faults.append(Fault(origin, f"column {cell.strip()!r}: a second column for {field}"))
            field = None
        fields.append(field)
    if "name" not in fields:
        faults.append(Fault(origin, "no column for the node's name; call it name"))
    return fields, faults


def _nearest_column(plain: str) -> str:
    hint = nearest(plain, _SPELLINGS)
    if hint.startswith("known"):
        return f"known: {', '.join(FIELDS)}"
    return f"did you mean {_SPELLINGS[hint.split(chr(39))[1]]!r}?"
