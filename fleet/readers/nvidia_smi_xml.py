"""nvidia-smi -q -x: XML of schema v9 to v13, drivers 390 to 610, whole or cut off."""

from __future__ import annotations

import re
from xml.parsers import expat

from fleet.findings import Explanation
from fleet.gpu import SmiReport
from fleet.gpu_report import explain_report
from fleet.gpu_values import number
from fleet.readers.nvidia_smi_errors import read_errors
from fleet.readers.nvidia_smi_names import fold
from fleet.readers.nvidia_smi_shared import Readings, cuda_in, numbered, version_in, without_prefix
from fleet.readers.nvidia_smi_tree import Element, gpu_reading
from fleet.readers.plain_text import clean

KIND = "nvidia-smi.xml"

_ROOT = "<nvidia_smi_log"
_SCHEMA = re.compile(r"nvsmi_device_(v\d+)\.dtd")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
_CLOCKS, _CLOCKS_END = "<supported_clocks>", "</supported_clocks>"
_END = "</nvidia_smi_log>"


def recognises(text: str) -> bool:
    """Whether the text holds nvidia-smi's XML, or a piece of it that begins with a GPU."""
    return _ROOT in text or bool(re.search(r"<gpu id=\"[0-9A-Fa-f:.]+\">", text))


def explain(text: str) -> Explanation:
    """What the XML says of its GPUs, and what it does not say."""
    return explain_report(KIND, read_nvidia_smi_xml(text))


def read_nvidia_smi_xml(text: str) -> SmiReport:
    """The report in the text; of several (nvidia-smi -l) the last reading of each GPU. Never raises.

    No document type is read, so no entity can be declared: an unknown one stands as it is written. What follows a
    fault or a cut is missing, `complete` is then False, and the GPU it hit has what was read until there. A report
    without driver and count is not whole either.
    """
    text = clean(text)
    mark = _ROOT if _ROOT in text else "<gpu "
    whole = without_prefix(text, mark)
    roots = [_parse(part) for part in _documents(whole, mark)]
    gpus = Readings()
    for root, _ in roots:
        for element in root.children:
            if element.name == "gpu":
                gpus.put(gpu_reading(element, element.text))
    last, complete = roots[-1] if roots else (Element(""), False)
    schema = _SCHEMA.search(text)
    attached = number(last.value("attachedgpus") or "")
    return SmiReport(
        driver_version=version_in(last.value("kmdversion", "driverversion")),
        cuda_version=cuda_in(last.value("cudaumdversion", "cudaversion")),
        attached_gpus=attached,
        gpus=numbered(gpus.all(), attached),
        timestamp=last.value("timestamp"),
        schema=schema[1] if schema else None,
        complete=complete and last.first("driverversion", "kmdversion", "attachedgpus") is not None,
        full=True,
        errors=read_errors(text),
    )


def _documents(text: str, mark: str) -> list[str]:
    starts = [match.start() for match in re.finditer(re.escape(mark), text)]
    if mark != _ROOT:
        return [f"{_ROOT}>{text[starts[0] :]}"] if starts else []
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


class _Builder:
    """Builds the tree while expat reads; what was built stays when expat stops."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._skipped = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self._skipped or name == "supported_clocks":
            self._skipped += 1
            return
        element = Element(fold(name))
        if name == "gpu":
            element.text = attributes.get("id", "")
        if self.root is None:
            self.root = element
        elif self._open:
            self._open[-1].children.append(element)
        self._open.append(element)

    def end(self, _name: str) -> None:
        if self._skipped:
            self._skipped -= 1
        elif self._open:
            element = self._open.pop()
            element.text = element.text.strip()

    def text(self, data: str) -> None:
        if not self._skipped and self._open and self._open[-1].name != "gpu":
            self._open[-1].text += data

    def drop_open_value(self) -> None:
        """Forgets the value at which the text was cut: "580.1" may have been "580.105.08"."""
        if self._open and self._open[-1].text.strip() and not self._open[-1].children:
            self._open[-1].text = "" if self._open[-1].name != "gpu" else self._open[-1].text


def _without_clock_lists(document: str) -> str:
    """The document without the lists of clocks that it supports: most of its length, and read by nobody."""
    head, *parts = document.split(_CLOCKS)
    kept = [part.partition(_CLOCKS_END) for part in parts]
    return head + "".join(after if end else _CLOCKS + before for before, end, after in kept)


def _parse(document: str) -> tuple[Element, bool]:
    """The tree of one document, and whether it is whole."""
    end = document.find(_END)
    whole = end >= 0
    builder = _Builder()
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    body = _without_clock_lists(document[: end + len(_END)] if whole else document)
    try:
        parser.Parse(_BARE_AMPERSAND.sub("&amp;", body).encode(), True)
    except expat.ExpatError:
        builder.drop_open_value()
        return builder.root or Element(""), False
    return builder.root or Element(""), whole
