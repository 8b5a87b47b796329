"""nvidia-smi's CSV: --query-gpu, -compute-apps, -retired-pages and -remapped-rows, with any format options.

Without a header only columns whose values say what they are can be read; the others stand in `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleet.findings import Explanation
from fleet.gpu import GpuProcess, GpuReading, RetiredPage, SmiReport
from fleet.gpu_report import explain_report
from fleet.gpu_values import RawValue, clock_events, is_unknown, number, plain, read_gpu, recovery_action
from fleet.readers.nvidia_smi_errors import read_errors
from fleet.readers.nvidia_smi_names import attribute_of, fold
from fleet.readers.nvidia_smi_shared import Readings, version_in, without_prefix
from fleet.readers.pci_address import pci_address
from fleet.readers.plain_text import clean

KIND = "nvidia-smi.csv"

_NAMED = 10

_UUID = re.compile(r"^(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}$", re.IGNORECASE)
_HEADER_TAIL = re.compile(
    r"^\S[^,\n]{0,100}?[:\]] ([a-z_]\S*(?: \[[^\]\n]*\])?(?:, [a-z_]\S*(?: \[[^\]\n]*\])?)*)\s*$", re.MULTILINE
)
_INDEX_ROW = re.compile(r"^[^,]{1,100}?[:\]]\s+(?=\d{1,3}, )")
_UNIT = re.compile(r"\s*\[[^\]]*\]\s*$")
_COLUMNS = frozenset(
    {
        "timestamp", "count", "pid", "processname", "usedgpumemory", "usedmemory", "clockseventreasonsactive",
        "clocksthrottlereasonsactive", "retiredpagesaddress", "retiredpagescause", "retiredpagestimestamp",
        "clockseventreasonssupported", "clocksthrottlereasonssupported", "hostname", "pcidomain", "pcibus", "pcidevice",
    }
)  # fmt: skip
_COMMON = frozenset(
    {"index", "name", "serial", "uuid", "timestamp", "count", "pid", "hostname", "boardid", "displayactive"}
)
_SHAPES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("uuid", lambda cell: bool(_UUID.match(cell))),
    ("pci.bus_id", lambda cell: pci_address(cell) is not None),
    ("vbios_version", lambda cell: bool(re.fullmatch(r"[0-9A-F]{2}(\.[0-9A-F]{2}){4}", cell, re.IGNORECASE))),
    ("driver_version", lambda cell: bool(re.fullmatch(r"\d{3}\.\d{2,3}\.\d{2}", cell))),
    ("pstate", lambda cell: bool(re.fullmatch(r"P\d{1,2}", cell))),
    ("name", lambda cell: bool(re.match(r"(NVIDIA|Tesla|GeForce|Quadro|GRID) ", cell))),
    ("timestamp", lambda cell: bool(re.match(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d", cell))),
)
_ERROR_CELLS = frozenset({"gpu is lost", "gpu requires reset", "unknown error"})


def recognises(text: str) -> bool:
    """Whether a line is a header of nvidia-smi's, or rows without one show what only it prints."""
    rows = _rows(clean(text[:20_000]))
    header = _header(rows)
    return header is not None or bool(_guessed(rows))


def explain(text: str) -> Explanation:
    """What the rows say of their GPUs, and which columns cannot be told."""
    return explain_report(KIND, read_nvidia_smi_csv(text))


@dataclass(frozen=True, slots=True)
class _Table:
    """A header's names, "" for a column without one, and the rows below it."""

    names: list[str]
    rows: list[list[str]]


def read_nvidia_smi_csv(text: str) -> SmiReport:
    """The report in the rows, each read by the header above it; of several rows of one GPU the last. Never raises."""
    tables = _tables(_rows(clean(text)))
    gpus = Readings()
    loose: list[GpuProcess] = []
    torn: list[str] = []
    for table in tables:
        for row in table.rows:
            cells = _fitted(row, table.names)
            if cells is None:
                torn.append(f"a row of {len(row)} cells under {len(table.names)} names: {', '.join(row)[:120]}")
            else:
                _take(table.names, cells, gpus, loose)
    unknown = [text for table in tables for text in _unread_columns(table)]
    unknown += [*torn[:_NAMED], *([f"{len(torn) - _NAMED} more such rows"] if len(torn) > _NAMED else [])]
    return _report(text, tables, gpus.all(), loose, unknown)


def _tables(rows: list[list[str]]) -> list[_Table]:
    """One for each header: files of several hosts or queries may stand one after the other."""
    found = _header(rows)
    if found is None:
        names = _guessed(rows)
        return [_Table(names, [row for row in rows if len(row) == len(names)])]
    at, names = found
    tables = [_Table(names, [])]
    for row in rows[at + 1 :]:
        if row == rows[at] or _is_header(row):
            tables.append(_Table([_UNIT.sub("", cell) for cell in row], []))
        else:
            tables[-1].rows.append(row)
    return tables


def _unread_columns(table: _Table) -> list[str]:
    if not all(table.names):
        return [f"column {place + 1} without a header" for place, name in enumerate(table.names) if not name]
    return [f"column {name}" for name in table.names if attribute_of(name) is None and fold(name) not in _COLUMNS]


def _report(
    text: str, tables: Sequence[_Table], gpus: list[GpuReading], loose: list[GpuProcess], unknown: list[str]
) -> SmiReport:
    folded = {fold(name) for table in tables for name in table.names}
    versions = list(dict.fromkeys(gpu.driver_version for gpu in gpus if gpu.driver_version))
    if folded & {"retiredpagesaddress", "retiredpagescause"}:
        gpus = [replace(gpu, retired_pages=gpu.retired_pages or ()) for gpu in gpus]
    if "pid" in folded:
        gpus = [replace(gpu, processes=gpu.processes or ()) for gpu in gpus]
    return SmiReport(
        driver_version=version_in(versions[0]) if len(versions) == 1 else None,
        attached_gpus=_attached(tables, len(gpus)),
        gpus=tuple(gpus),
        processes=tuple(loose),
        errors=read_errors(text),
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _attached(tables: Sequence[_Table], shown: int) -> int | None:
    """The driver's own count; None where it is not told, or where the tables show more GPUs, so of several hosts."""
    counts: set[int | None] = set()
    for table in tables:
        place = next((at for at, name in enumerate(table.names) if fold(name) == "count"), None)
        if place is not None:
            counts |= {number(row[place]) for row in table.rows if len(row) == len(table.names)}
    count = next(iter(counts)) if len(counts) == 1 else None
    return None if count is not None and len(tables) > 1 and shown > count else count


def _rows(text: str) -> list[list[str]]:
    """The cells of each line: cut at ", " as nvidia-smi writes it, else at a comma, a semicolon or a tab."""
    lines = [line.strip().strip("|").strip() for line in _unprefixed(text).splitlines() if line.strip()]
    for separator in (", ", ",", ";", "\t"):
        cut = [[cell.strip().strip('"') for cell in line.split(separator)] for line in lines if len(line) < 8000]
        if _header(cut) is not None or (separator == ", " and any(len(row) > 1 for row in cut)):
            return cut
    return [[line] for line in lines]


def _unprefixed(text: str) -> str:
    """The text without a log's or a host's prefix, told by a header or by the index of every row."""
    for match in _HEADER_TAIL.finditer(text):
        names = [_UNIT.sub("", cell) for cell in match[1].split(", ")]
        if all(_is_name(name) for name in names):
            return without_prefix(text, match[1])
    lines = [line for line in text.splitlines() if line.strip()]
    prefixed = [_INDEX_ROW.match(line) for line in lines]
    if lines and all(prefixed):
        return "\n".join(line[match.end() :] for line, match in zip(lines, prefixed, strict=True) if match)
    return text


def _header(rows: list[list[str]]) -> tuple[int, list[str]] | None:
    """The place and the column names of the first header: most cells are known names, one of them no common word."""
    for at, row in enumerate(rows):
        if any(" " in cell and " [" not in cell for cell in row):
            continue
        names = [_UNIT.sub("", cell) for cell in row]
        known = [name for name in names if _is_name(name)]
        if 2 * len(known) < len(names) or any(" " in name for name in names):
            continue
        below = rows[at + 1 : at + 4]
        if (
            below
            and len(below[0]) == len(row)
            and all(_is_name(_UNIT.sub("", cell)) for cell in below[0])
            and below[0] != row
        ):
            return None  # a list of names, as --help-query-gpu prints
        own = any(fold(name) not in _COMMON for name in known)
        fits = any(_UUID.match(cell) or pci_address(cell) for cells in below for cell in cells)
        if own or (known and fits):
            return at, names
    return None


def is_header_line(line: str) -> bool:
    """Whether a line can only be nvidia-smi's header: mostly known names, one of them no common word."""
    cut = ([cell.strip().strip('"') for cell in line.split(separator)] for separator in (", ", ",", ";", "\t"))
    return any(len(row) > 1 and _is_header(row) for row in cut)


def _is_header(row: Sequence[str]) -> bool:
    names = [_UNIT.sub("", cell) for cell in row]
    known = [name for name in names if _is_name(name)]
    own = any(fold(name) not in _COMMON for name in known)
    if len(names) == 1:
        return own and ("." in names[0] or "_" in names[0])
    return own and 2 * len(known) >= len(names) and all(" " not in name for name in names)


def _is_name(cell: str) -> bool:
    return attribute_of(cell) is not None or fold(cell) in _COLUMNS


def _guessed(rows: list[list[str]]) -> list[str]:
    """A column name for each cell of headerless rows, "" where its values do not say; [] where none says enough."""
    widths = [len(row) for row in rows]
    width = max(set(widths), key=widths.count) if widths else 0
    body = [row for row in rows if len(row) == width]
    if width < 2 or 2 * len(body) < len(rows):
        return []
    names: list[str] = []
    for column in zip(*body, strict=True):
        shape = next((name for name, fits in _SHAPES if all(fits(cell) or is_unknown(cell) for cell in column)), "")
        told = shape and not all(is_unknown(cell) for cell in column)
        names.append(shape if told and shape not in names else "")
    strong = any(names) and names != ["", "timestamp"]
    for place, column in enumerate(zip(*body, strict=True)):
        actions = [recovery_action(cell) for cell in column if cell[:1].isalpha()]
        known = len(actions) == len(column) and None not in actions
        if not names[place] and known and any(plain(cell) != "none" for cell in column):
            names[place] = "gpu_recovery_action"
            strong = True
    first = [cell for cell, *_ in body]
    if not names[0] and all(re.fullmatch(r"\d{1,3}", cell) for cell in first) and len(set(first)) == len(first):
        names[0] = "index"
        strong = strong or all(len(row) == 2 and plain(row[1]) == "none" for row in body)
    lost = any(plain(cell) in _ERROR_CELLS for row in body for cell in row)
    return names if strong or (lost and names[0] == "index") else []


def _fitted(row: list[str], names: Sequence[str]) -> list[str] | None:
    """The cells for the names; a process name with commas in it is put together again."""
    spare = len(row) - len(names)
    if spare == 0:
        return row
    place = next((at for at, name in enumerate(names) if fold(name) == "processname"), None)
    if spare < 0 or place is None:
        return None
    return [*row[:place], ", ".join(row[place : place + spare + 1]), *row[place + spare + 1 :]]


def _take(names: Sequence[str], row: list[str], gpus: Readings, loose: list[GpuProcess]) -> None:
    """Adds one row to the readings, or to the processes of no known GPU."""
    values: dict[str, RawValue] = {}
    for name, cell in zip(names, row, strict=True):
        attribute = attribute_of(name) if name else None
        if attribute is not None and (attribute not in values or is_unknown(str(values[attribute]))):
            values[attribute] = cell
    cells = dict(zip((fold(name) for name in names), row, strict=True))
    mask = cells.get("clockseventreasonsactive") or cells.get("clocksthrottlereasonsactive") or ""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask):
        values.update(clock_events(int(mask, 16)))
    if any(plain(cell) == "gpu is lost" for cell in row):
        values["lost"] = True
    page, process = _page(cells), _process(cells)
    reading = read_gpu(values, retired_pages=(page,) if page else None, processes=(process,) if process else None)
    if process is not None and (reading.uuid, reading.pci_address, reading.index) == (None, None, None):
        loose.append(process)
    else:
        gpus.put(reading, _joined)


def _joined(old: GpuReading, new: GpuReading) -> GpuReading:
    """The new row's values; names that a lost GPU no longer gives, pages and processes are kept from the old one."""
    pages = (*(old.retired_pages or ()), *(new.retired_pages or ()))
    processes = (*(old.processes or ()), *(new.processes or ()))
    return replace(
        new,
        uuid=new.uuid or old.uuid,
        pci_address=new.pci_address or old.pci_address,
        index=old.index if new.index is None else new.index,
        retired_pages=pages or None,
        processes=processes or None,
    )


def _page(cells: dict[str, str]) -> RetiredPage | None:
    address = cells.get("retiredpagesaddress", "")
    if is_unknown(address):
        return None
    cause, when = cells.get("retiredpagescause"), cells.get("retiredpagestimestamp", "")
    return RetiredPage(address, cause, None if is_unknown(when) else when)


def _process(cells: dict[str, str]) -> GpuProcess | None:
    pid = number(cells.get("pid", ""))
    if pid is None:
        return None
    name = cells.get("processname", "")
    memory = cells.get("usedgpumemory", cells.get("usedmemory", ""))
    return GpuProcess(pid=pid, name=None if is_unknown(name) else name, used_memory_mib=number(memory))
