"""nvbandwidth 0.1 to 0.10, as JSON (since 0.5) or as text: the bandwidth of copies, in GB/s of 10^9 bytes.

It ends with 0 where a test is unknown, waived or failed. In JSON a test that failed stands there twice, first as
"Running"; a failed assertion prints the document as far as it came. `device_local_copy` exists since 0.7.
Source: NVIDIA/nvbandwidth json_output.cpp, output.cpp, inline_common.h and nvbandwidth.cpp of the tags v0.1 to v0.8;
of 0.9 and 0.10, what it printed in public reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.json_values import JsonObject, object_at, objects_at, text_at, texts_at, value_at
from fleet.measure_readers.values import ToolReading, completed, measured, short_lines
from fleet.readers.json_in_text import find_json
from fleet.readers.pci_address import gpu_address
from fleet.readers.plain_text import evidence, number

_TITLE = "nvbandwidth"
_SINCE = {"device_local_copy": (0, 7)}
_DEVICE = re.compile(r"^(?:Device )?(\d{1,3}): .*\(((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})\)")
_RANK = re.compile(r"^(?:\[[\w.@-]+,\d+\]\s*(?:<std(?:out|err)>)?:?\s?|\d{1,4}: (?=\S))")
_RUNNING = re.compile(r"^(Running|Waiving) ([a-z]\w{2,80})\.?$")
_HEADING = re.compile(r"^\s*\d{1,3}(?:\s+\d{1,3})*$")
_ROW = re.compile(r"^\s*(\d{1,3})\s+((?:N/A|[-+.\dea-z]+)(?:\s+(?:N/A|[-+.\dea-z]+))*)$", re.IGNORECASE)
_ERROR = re.compile(
    r"^(?:ERROR: .*|Error: .*|\[CUDA_ERROR\w*\] .*|\[cudaError\w*\] .*|NVML_ERROR.*|ASSERT in .*|CUDA error.*)"
)
_WAIVED = re.compile(r"^Waived:")


class CaseStatus(StrEnum):
    """A test's own word; a test that has values but no word, or none that we know, is UNKNOWN."""

    PASSED = "passed"
    RUNNING = "running"
    WAIVED = "waived"
    NOT_FOUND = "not found"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BandwidthCase:
    """One test. `matrix` has the values of its rows and columns as printed, None for N/A and for what is no number.

    `description` says what rows and columns are: "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)".
    """

    name: str
    status: CaseStatus
    matrix: tuple[tuple[float | None, ...], ...] = ()
    error: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class BandwidthRun:
    """One run. `complete` is False where its end is missing; `addresses` are the GPUs' PCI addresses, where told."""

    cases: tuple[BandwidthCase, ...] = ()
    version: str | None = None
    driver_version: str | None = None
    addresses: Mapping[int, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    complete: bool = True

    def case(self, name: str) -> BandwidthCase | None:
        """The test's last word: an error outweighs what stood there before it."""
        own = [case for case in self.cases if case.name == name]
        failed = [case for case in own if case.status in (CaseStatus.ERROR, CaseStatus.NOT_FOUND)]
        return (failed or own)[-1] if own else None


def read_nvbandwidth(text: str) -> BandwidthRun:
    """The run in a text of any version, JSON or not. Never raises; a text without a run has no cases."""
    found = find_json(text, lambda value: bool(object_at(value, _TITLE)))
    if found is not None:
        return _of_json(object_at(found.value, _TITLE), found.complete)
    return _of_text([_RANK.sub("", line) for line in short_lines(text)])


def nvbandwidth_values(text: str, test: str, gpus: int | None = None) -> ToolReading:
    """The test's bandwidth of each GPU in GB/s.

    A test between GPUs gives each GPU the lowest value of its row: its slowest link. `gpus` is how many there must be.
    """
    run = read_nvbandwidth(text)
    tool = f"nvbandwidth {run.version.removeprefix('v')}" if run.version else "nvbandwidth"
    case = run.case(test)
    why = _why_not(run, case, test)
    if why is not None or case is None:
        return ToolReading(completed((), gpus, why or ""), tool, run.addresses)
    left_out = f"nvbandwidth printed no value of {test} for it"
    values = tuple(measured(index, value, left_out) for index, value in enumerate(_per_gpu(case)))
    return ToolReading(completed(values, gpus, left_out), tool, run.addresses)


def _why_not(run: BandwidthRun, case: BandwidthCase | None, test: str) -> str | None:
    said = (case.error if case else "") or "; ".join(run.errors)
    if case is None:
        return evidence(f"nvbandwidth printed no result of {test}" + (f": {said}" if said else ""))
    never_began = not said and all(own.status is CaseStatus.ERROR for own in run.cases if own.name == test)
    if case.status is CaseStatus.NOT_FOUND or never_began:
        return f"this nvbandwidth has no test {test}{_since(run, test)}"
    if case.status is CaseStatus.WAIVED:
        return f"nvbandwidth waived {test}: this node cannot run it"
    if case.status is CaseStatus.ERROR or (said and case.status is not CaseStatus.PASSED):
        return evidence(f"nvbandwidth failed at {test}: {said or 'it does not say why'}")
    if not case.matrix:
        return f"nvbandwidth printed no values of {test}" + ("" if run.complete else "; its output is cut")
    return None


def _since(run: BandwidthRun, test: str) -> str:
    since, own = _SINCE.get(test), [int(part) for part in re.findall(r"\d{1,4}", run.version or "")[:2]]
    return f"; it came with {since[0]}.{since[1]}" if since and (not own or tuple(own) < since) else ""


def _per_gpu(case: BandwidthCase) -> Iterator[float | None]:
    """One value a GPU: of one row its column; of rows for CPUs the nearest one's; of GPUs' rows the slowest link."""
    matrix = case.matrix
    width = max((len(row) for row in matrix), default=0)
    padded = [(*row, *[None] * (width - len(row))) for row in matrix]
    if len(padded) == 1:
        yield from padded[0]
    elif re.search(r"\bCPU\(row\)", case.description):
        for column in zip(*padded, strict=True):
            yield max((value for value in column if value is not None), default=None)
    else:
        yield from (_slowest_link(row, at) for at, row in enumerate(padded))


def _slowest_link(row: Sequence[float | None], own: int) -> float | None:
    """The lowest of a GPU's row without its own place, where all are known; its own place where that alone is."""
    others = [value for column, value in enumerate(row) if column != own]
    known = [value for value in others if value is not None]
    if not known and own < len(row):
        return row[own]
    return min(known) if len(known) == len(others) else None


def _of_json(root: JsonObject, complete: bool) -> BandwidthRun:
    devices = texts_at(root, "GPU Device list")
    error = text_at(root, "error")
    return BandwidthRun(
        cases=tuple(_json_case(body) for body in objects_at(root, "testcases")),
        version=text_at(root, "version"),
        driver_version=text_at(root, "Driver Version"),
        addresses=_addresses(devices),
        errors=(error,) if error else (),
        complete=complete,
    )


def _json_case(body: JsonObject) -> BandwidthCase:
    word = (text_at(body, "status") or "").lower()
    status = next((known for known in CaseStatus if known.value == word), CaseStatus.UNKNOWN)
    rows = value_at(body, "bandwidth_matrix")
    matrix = tuple(_row(row) for row in rows if isinstance(row, list)) if isinstance(rows, list) else ()
    said, description = text_at(body, "error") or "", text_at(body, "bandwidth_description") or ""
    return BandwidthCase(text_at(body, "name") or "", status, matrix, said, description)


def _row(cells: Sequence[object]) -> tuple[float | None, ...]:
    return tuple(number(str(cell)) if not isinstance(cell, bool) else None for cell in cells)


def _addresses(lines: Sequence[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for line in lines:
        device = _DEVICE.match(line.strip())
        address = gpu_address(device[2]) if device else None
        if device and address:
            found[int(device[1])] = address
    return found


@dataclass(slots=True)
class _Reading:
    """A test while its lines are read."""

    name: str
    status: CaseStatus
    rows: list[tuple[float | None, ...]] = field(default_factory=list)
    width: int = 0
    ended: bool = False
    error: str = ""
    description: str = ""


def _of_text(lines: Sequence[str]) -> BandwidthRun:
    cases: list[_Reading] = []
    errors: list[str] = []
    for line in lines:
        begun = _RUNNING.match(line.strip())
        if begun:
            status = CaseStatus.RUNNING if begun[1] == "Running" else CaseStatus.WAIVED
            cases.append(_Reading(begun[2], status))
        elif _ERROR.match(line.strip()):
            _note_error(line.strip(), cases, errors)
        elif cases:
            _take(line, cases[-1])
    return BandwidthRun(
        cases=tuple(_finished(case) for case in cases),
        version=_after(lines, "nvbandwidth Version:"),
        driver_version=_after(lines, "Driver Version:"),
        addresses=_addresses(lines),
        errors=tuple(errors),
        complete=all(case.ended or case.status is CaseStatus.WAIVED for case in cases),
    )


def _take(line: str, case: _Reading) -> None:
    """One line below a test's name: the heading of its matrix, a row, or its sum, which ends it."""
    if _WAIVED.match(line):
        case.status = CaseStatus.WAIVED
    elif line.startswith(("SUM ", "&&&& PERF ")):
        case.ended = True
    elif not case.width and "(column)" in line:
        case.description = line.strip()
    elif not case.width and _HEADING.match(line):
        case.width = len(line.split())
    elif case.width and not case.ended and (row := _ROW.match(line)):
        cells = row[2].split()
        if int(row[1]) == len(case.rows) and len(cells) <= case.width:
            padded = [number(cell) for cell in cells] + [None] * (case.width - len(cells))
            case.rows.append(tuple(padded))


def _note_error(line: str, cases: list[_Reading], errors: list[str]) -> None:
    unknown = re.match(r"ERROR: Testcase (\S+) not found", line)
    if unknown:
        cases.append(_Reading(unknown[1], CaseStatus.NOT_FOUND, error=line))
    elif cases and not cases[-1].ended:
        cases[-1].status, cases[-1].error = CaseStatus.ERROR, line
    else:
        errors.append(line)


def _finished(case: _Reading) -> BandwidthCase:
    """Text has no word for a test that passed. A matrix without its sum may be cut in the middle of a number."""
    status = case.status
    if status is CaseStatus.RUNNING and case.ended:
        status = CaseStatus.PASSED
    rows = case.rows
    if rows and not case.ended:
        rows = [*rows[:-1], (*rows[-1][:-1], None)]
    return BandwidthCase(case.name, status, tuple(rows), case.error, case.description)


def _after(lines: Sequence[str], label: str) -> str | None:
    """The last such line's value: "Driver Version:" must not be read from "CUDA Driver Version:"."""
    return next((line.removeprefix(label).strip() or None for line in lines if line.startswith(label)), None)
