"""What nvidia-smi prints for people: the table, -L, --version, and its errors when it has nothing else."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from fleet.findings import Explanation
from fleet.gpu import GpuProcess, GpuReading, MigInstance, SmiReport
from fleet.gpu_report import explain_report
from fleet.gpu_values import RawValue, is_unknown, number, read_gpu
from fleet.readers import nvidia_smi_csv, nvidia_smi_text, nvidia_smi_xml
from fleet.readers.nvidia_smi_errors import read_errors
from fleet.readers.nvidia_smi_shared import cuda_in, library_version_in, version_in
from fleet.readers.plain_text import clean

KIND_TABLE = "nvidia-smi.table"
KIND_LIST = "nvidia-smi.list"
KIND_VERSIONS = "nvidia-smi.version"
KIND_ERROR = "nvidia-smi.error"

_SHORT = 40  # lines; in a longer text one such line is a part of something else

_VERSIONS = re.compile(r"NVIDIA-SMI\s+(?P<tool>\S+)\s+(?:Driver|KMD) Version:\s*(?P<driver>.*?)\s*(?:\||CUDA|$)")
_CUDA = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)", re.IGNORECASE)
_TOOL = re.compile(r"^[^\S\n]*NVIDIA-SMI version\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_DRIVER = re.compile(r"^[^\S\n]*(?:DRIVER|KMD) version\s*:\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_LINE_CELLS = re.compile(r"\|(.*)\|")
_WORD = r"(?:On|Off|N/A|ERR!|LOST)"
_FIRST = re.compile(rf"^\s*(?P<index>\d{{1,3}})\s+(?P<name>\S.*?)\s+(?P<persistence>{_WORD})\s*$")
_BUS = re.compile(
    rf"^\s*(?P<address>[0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}}\.[0-7])\s+(?P<display>{_WORD})\s*$"
)
_SECOND = re.compile(
    r"^\s*(?P<fan>\S+)\s+(?P<temperature>\S+)\s+(?P<state>\S+)\s+(?P<draw>\S+)\s*/\s*(?P<limit>\S+)\s*$"
)
_OLD_SECOND = re.compile(
    r"^\s*(?P<fan>ERR!|N/A|\d+%)\s*(?P<temperature>\S+)\s+(?P<state>\S+)\s+(?P<draw>\S+)\s*/\s*(?P<limit>\S+)\s*$"
)
_LISTED = re.compile(r"\bGPU (?P<index>\d{1,3}): (?P<name>.*?) \(UUID: (?P<uuid>[^)]*)\)?", re.IGNORECASE)
_MIG_LISTED = re.compile(r"\bMIG (?P<profile>\S+)\s+Device\s+(?P<index>\d+): \(UUID: (?P<uuid>[^)]*)\)?", re.IGNORECASE)
_LINKS = re.compile(r"link", re.IGNORECASE)
_PROCESS = re.compile(
    r"^\s*(?P<gpu>\d{1,3})\s+(?:(?P<gi>N/A|\d+)\s+(?P<ci>N/A|\d+)\s+)?(?P<pid>\d+)\s+(?P<kind>[CGM+]{1,3})\s+(?P<name>.*?)"
    r"\s+(?P<memory>\d+\s?MiB|N/A)?\s*$"
)


def recognises(text: str) -> bool:
    """Whether the text holds a table of nvidia-smi's, its list, its versions, or short text with one of its errors."""
    cleaned = clean(text[:50_000])
    if _VERSIONS.search(cleaned) or _TOOL.search(cleaned) or any(True for _ in _gpu_rows(cleaned)):
        return True
    lines = cleaned.splitlines()
    if any(_LISTED.search(line) for line in lines):
        # `nvidia-smi nvlink` heads its links with the same lines.
        return not any(_LINKS.search(line) for line in lines if not _LISTED.search(line))
    others = (nvidia_smi_xml, nvidia_smi_text, nvidia_smi_csv)
    return len(lines) <= _SHORT and bool(read_errors(cleaned)) and not any(o.recognises(text) for o in others)


def explain(text: str) -> Explanation:
    """What the text says of GPUs and driver, and what it does not say."""
    cleaned = clean(text)
    report = read_nvidia_smi_table(text)
    listed = any(_LISTED.search(line) for line in cleaned.splitlines())
    if report.gpus and listed and not any(True for _ in _gpu_rows(cleaned)):
        return explain_report(KIND_LIST, report)
    if report.gpus or _VERSIONS.search(cleaned):
        return explain_report(KIND_TABLE, report)
    return explain_report(KIND_ERROR if report.errors else KIND_VERSIONS, report)


def read_nvidia_smi_table(text: str) -> SmiReport:
    """The report in a table, a list (-L), versions (--version), or errors alone. Never raises.

    A MIG device is never a GPU, and its memory is not added to its GPU's. In the table a name cut with "..." stays
    cut, and "ERR!" in a cell is `unreadable`, not a value.
    """
    cleaned = clean(text)
    gpus = [*(_table_gpu(rows) for rows in _gpu_rows(cleaned)), *_listed(cleaned)]
    versions = _VERSIONS.search(cleaned)
    tool, driver = _TOOL.search(cleaned), _DRIVER.search(cleaned)
    cuda = _CUDA.search(cleaned)
    migs, processes = _mig_devices(cleaned), _processes(cleaned)
    has_processes = "Processes:" in cleaned
    gpus = [
        replace(
            gpu,
            mig_instances=gpu.mig_instances or _migs_of(gpu, migs, cleaned),
            processes=tuple(processes[gpu.index]) if has_processes and gpu.index is not None else None,
        )
        for gpu in gpus
    ]
    return SmiReport(
        driver_version=version_in(versions["driver"] if versions else driver[1] if driver else None),
        cuda_version=cuda_in(cuda[1]) if cuda else None,
        gpus=tuple(gpus),
        tool_version=version_in(versions["tool"] if versions else tool[1] if tool else None),
        library_version=library_version_in(cleaned),
        errors=read_errors(cleaned),
    )


def _cells(line: str) -> list[str] | None:
    match = _LINE_CELLS.search(line)
    if match is None:
        return None
    return match[1].replace("Unknown Error", "ERR!").replace("GPU is lost", "LOST").split("|")


def _gpu_rows(text: str) -> Iterator[list[list[str]]]:
    """The cells of each GPU's lines: from the one with its bus address to the next rule."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        cells = _cells(line)
        if cells is not None and len(cells) == 3 and _BUS.match(cells[1]) and _FIRST.match(cells[0]):
            if rows:
                yield rows
            rows = [cells]
        elif cells is not None and rows and len(cells) == 3 and len(rows) < 4:
            rows.append(cells)
        elif rows:
            yield rows
            rows = []
    if rows:
        yield rows


def _table_gpu(rows: list[list[str]]) -> GpuReading:
    first, bus = _FIRST.match(rows[0][0]), _BUS.match(rows[0][1])
    values: dict[str, RawValue] = {}
    if first is not None and bus is not None:
        values |= {
            "index": first["index"],
            "product_name": first["name"],
            "persistence_mode": first["persistence"],
            "pci_address": bus["address"],
            "display_active": bus["display"],
        }
    values |= _ecc(rows[0][2].strip())
    if len(rows) > 1:
        values |= _second_line(rows[1])
    if len(rows) > 2 and (mode := rows[2][2].strip()):
        values["mig_mode_current"] = mode.rstrip("*")
        changes = {"Enabled*": "Disabled", "Disabled*": "Enabled"}
        values["mig_mode_pending"] = changes.get(mode, mode)
    return read_gpu({name: "GPU is lost" if value == "LOST" else value for name, value in values.items()})


def _ecc(cell: str) -> dict[str, RawValue]:
    """The third cell: a count of uncorrectable errors, or whether ECC is on; under MIG the count is not shown."""
    if cell.rstrip("*") in ("Off", "On"):
        return {"ecc_mode_current": cell.rstrip("*")}
    return {"ecc_volatile_uncorrectable": cell, **({"ecc_mode_current": "On"} if cell.isdigit() else {})}


def _second_line(cells: list[str]) -> dict[str, RawValue]:
    values: dict[str, RawValue] = {}
    match = _SECOND.match(cells[0]) or _OLD_SECOND.match(cells[0])
    if match is not None:
        values |= {
            "fan_speed_percent": match["fan"],
            "temperature_gpu_celsius": match["temperature"],
            "performance_state": match["state"],
            "power_draw_watts": match["draw"],
            "power_limit_watts": match["limit"],
        }
    used, _, total = cells[1].partition("/")
    values |= {"memory_used_mib": used.strip(), "memory_total_mib": total.strip()}
    utilization, _, mode = cells[2].strip().partition(" ")
    return values | {"utilization_gpu_percent": utilization, "compute_mode": mode.strip()}


def _listed(text: str) -> list[GpuReading]:
    """The GPUs of -L, each with the MIG devices listed below it."""
    found: list[tuple[GpuReading, list[MigInstance]]] = []
    for line in text.splitlines():
        if (gpu := _LISTED.search(line)) is not None:
            values = {"index": gpu["index"], "product_name": gpu["name"], "uuid": gpu["uuid"]}
            found.append((read_gpu(values), []))
        elif (mig := _MIG_LISTED.search(line)) is not None and found:
            found[-1][1].append(MigInstance(index=number(mig["index"]), uuid=mig["uuid"], profile=mig["profile"]))
    return [replace(gpu, mig_instances=tuple(migs)) for gpu, migs in found]


def _mig_devices(text: str) -> dict[int, list[MigInstance]]:
    """The MIG devices of the table's second part, by their GPU's index."""
    found: dict[int, list[MigInstance]] = defaultdict(list)
    part = text.partition("MIG devices:")[2].partition("Processes:")[0]
    for line in part.splitlines():
        cells = _cells(line)
        numbers = cells[0].split() if cells else []
        if cells is None or len(cells) < 3 or len(numbers) != 4 or not all(word.isdigit() for word in numbers):
            continue
        gpu, instance, compute, device = (int(word[:9]) for word in numbers)
        used, _, total = cells[1].partition("/")
        counts = cells[2].split()
        found[gpu].append(
            MigInstance(
                index=device,
                gpu_instance_id=instance,
                compute_instance_id=compute,
                multiprocessors=number(counts[0]) if counts else None,
                memory_total_mib=number(total),
                memory_used_mib=number(used),
                ecc_sram_uncorrectable=number(counts[1]) if len(counts) > 1 else None,
            )
        )
    return found


def _migs_of(gpu: GpuReading, migs: dict[int, list[MigInstance]], text: str) -> tuple[MigInstance, ...] | None:
    if gpu.index in migs:
        return tuple(migs[gpu.index])
    shown = "MIG devices:" in text or gpu.mig_instances is not None
    return () if shown or gpu.mig_mode_current is False else None


def _processes(text: str) -> dict[int, list[GpuProcess]]:
    found: dict[int, list[GpuProcess]] = defaultdict(list)
    for line in text.partition("Processes:")[2].splitlines():
        cells = _cells(line)
        match = _PROCESS.match(cells[0]) if cells else None
        if match is not None:
            name = match["name"].strip()
            found[int(match["gpu"])].append(
                GpuProcess(
                    pid=number(match["pid"]),
                    name=None if is_unknown(name) else name,
                    kind=match["kind"],
                    used_memory_mib=number(match["memory"] or ""),
                    gpu_instance_id=number(match["gi"] or ""),
                    compute_instance_id=number(match["ci"] or ""),
                )
            )
    return found
