"""nvidia-smi -q, whole or by section (-d), drivers 390 to 610: the indented text for people."""

from __future__ import annotations

import re

from fleet.findings import Explanation
from fleet.gpu import GpuReading, SmiReport
from fleet.gpu_report import explain_report
from fleet.gpu_values import number
from fleet.readers.nvidia_smi_errors import read_errors
from fleet.readers.nvidia_smi_names import fold, is_section, is_value
from fleet.readers.nvidia_smi_shared import Readings, cuda_in, numbered, version_in, without_prefix
from fleet.readers.nvidia_smi_tree import Element, gpu_reading
from fleet.readers.plain_text import clean

KIND = "nvidia-smi.text"

_HEAD = "NVSMI LOG"
_GPU = re.compile(r"^(?P<indent>\s*)GPU (?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_GPU_ANYWHERE = re.compile(r"GPU (?=[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\s*$)", re.MULTILINE)
_VALUE = re.compile(r"^(?P<key>[^:]{1,80}?)\s*:(?:\s+(?P<value>.*))?$")
_LONGEST = 400
_CSV_ONLY = frozenset({"index", "name", "uuid", "serial"})


def recognises(text: str) -> bool:
    """Whether the text is nvidia-smi -q's, or a piece of it."""
    if _HEAD in text:
        return True
    lines = clean(text[:20_000]).splitlines()
    known = _known_values(lines)
    return known >= 3 or (known >= 1 and bool(_GPU_ANYWHERE.search("\n".join(lines))))


def explain(text: str) -> Explanation:
    """What the text says of its GPUs, and what it does not say."""
    return explain_report(KIND, read_nvidia_smi_text(text))


def read_nvidia_smi_text(text: str) -> SmiReport:
    """The report in the text; of several (nvidia-smi -l) the last reading of each GPU. Never raises.

    A text without a GPU's head line is read as one GPU whose address is unknown.
    """
    cleaned = clean(text)
    head, sections = _split(_unprefixed(cleaned).splitlines())
    readings = Readings()
    for address, lines in sections:
        readings.put(gpu_reading(_tree(lines), address))
    gpus = readings.all()
    attached = number(head.get("attachedgpus", ""))
    return SmiReport(
        driver_version=version_in(head.get("kmdversion") or head.get("driverversion")),
        cuda_version=cuda_in(head.get("cudaumdversion") or head.get("cudaversion")),
        attached_gpus=attached,
        gpus=numbered(gpus, attached),
        timestamp=head.get("timestamp"),
        complete=False if _is_cut(gpus) else None,
        full=any(gpu.product_name is not None for gpu in gpus),
        errors=read_errors(cleaned),
    )


def _is_cut(gpus: list[GpuReading]) -> bool:
    """Whether the last GPU lacks the section that ends every other one: its processes."""
    return len(gpus) > 1 and gpus[-1].processes is None and all(gpu.processes is not None for gpu in gpus[:-1])


def _unprefixed(text: str) -> str:
    if _HEAD in text:
        line = next(row for row in text.splitlines() if _HEAD in row)
        return without_prefix(text, re.sub(r"^.*?(=*NVSMI LOG).*$", r"\1", line))
    match = _GPU_ANYWHERE.search(text)
    return without_prefix(text, text[match.start() :].splitlines()[0]) if match else text


def _split(lines: list[str]) -> tuple[dict[str, str], list[tuple[str, list[str]]]]:
    """The head's values by folded name, and each GPU's address and lines."""
    head: dict[str, str] = {}
    sections: list[tuple[str, list[str]]] = []
    for line in lines:
        gpu = _GPU.match(line)
        if gpu is not None:
            sections.append((gpu["address"], []))
        elif _HEAD in line:
            sections.append(("", []))
        elif sections and sections[-1][0]:
            sections[-1][1].append(line)
        elif (value := _VALUE.match(line.strip())) is not None and value["value"] is not None:
            head[fold(value["key"])] = value["value"].strip()
    sections = [section for section in sections if section[0]]
    if not sections and _known_values(lines):
        sections = [("", lines)]
    return head, sections


def _tree(lines: list[str]) -> Element:
    """One GPU's tree, by indentation; by the names known here where the indentation is lost."""
    rows = [(len(line) - len(line.lstrip()), line.strip()) for line in lines if line.strip() and len(line) <= _LONGEST]
    if len({indent for indent, _ in rows}) <= 1 and len(rows) > 2:
        return _flat_tree([row for _, row in rows])
    root = Element("")
    stack: list[tuple[int, Element]] = [(-1, root)]
    for indent, row in rows:
        element = _element(row)
        while stack[-1][0] >= indent:
            stack.pop()
        stack[-1][1].children.append(element)
        stack.append((indent, element))
    return root


def _flat_tree(rows: list[str]) -> Element:
    """A value belongs to the innermost open section in which its name is known, else to the innermost one."""
    root = Element("")
    chain: list[Element] = []
    for row in rows:
        element = _element(row)
        known = is_value if element.text else is_section
        names = [part.name for part in chain]
        depths = [
            depth
            for depth in range(len(chain), -1, -1)
            if known(fold("/".join([*names[:depth], element.name]))) and (depth or element.name not in _CSV_ONLY)
        ]
        if depths or not element.text:
            chain = chain[: depths[0]] if depths else []
        (chain[-1] if chain else root).children.append(element)
        if not element.text:
            chain.append(element)
    return root


def _element(row: str) -> Element:
    value = _VALUE.match(row)
    if value is None:
        return Element(fold(row).replace("/", ""))
    return Element(fold(value["key"]).replace("/", ""), (value["value"] or "").strip())


def _known_values(lines: list[str]) -> int:
    """How many lines give a value of a section that only nvidia-smi has."""
    found: set[str] = set()
    stack: list[tuple[int, str]] = []
    for line in lines:
        if not line.strip() or len(line) > _LONGEST:
            continue
        indent, element = len(line) - len(line.lstrip()), _element(line.strip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        path = fold("/".join([*(name for _, name in stack), element.name]))
        if element.text and "/" in path and is_value(path):
            found.add(path)
        stack.append((indent, element.name))
    return len(found)
