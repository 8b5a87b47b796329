"""The outputs in one text: a bug report with several tools' words in it, or files of several hosts joined by `cat`.

An output begins where a line can only be its first: the heading of a tool, a shell's prompt with a command, a line such
as "==== gpu-0001 ====". It also begins where a list starts anew (a second "CA 'mlx5_0'"), and where the kernel's log
follows another tool's words. Where nothing is clear the text stays one: the readers find their own lines in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from fleet.readers.nvidia_smi_csv import is_header_line

MOST_PARTS = 2000
"""Outputs that are told apart in one text; what follows stays together as the last one."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """One output. `first` and `last` are its lines in the whole text, counted from 1.

    `title` is the command or heading above it, `host` the host that a prompt names; both empty where there is none.
    """

    text: str
    first: int
    last: int
    title: str = ""
    host: str = ""
    rest: bool = False  # the outputs behind the last one that was told apart


@dataclass(frozen=True, slots=True)
class _Head:
    """A first line. With a group `key` it begins an output only where the key comes again with another `value`, or
    another family's output stands before it; without one it always does. `word` is in every such line."""

    family: str
    word: str
    pattern: re.Pattern[str]


def _head(family: str, word: str, pattern: str) -> _Head:
    return _Head(family, word, re.compile(rf"\n(?P<begin>){pattern}"))


_COMMANDS = (
    "nvidia-smi|nvidia-bug-report|dmesg|journalctl|dcgmi|ibstat|ibstatus|ibv_devinfo|iblinkinfo|perfquery|mlxlink|lspci|"
    "ethtool|ip|rdma|scontrol|sinfo|squeue|sacct|nvfwupd|curl|cat|systemctl|uname|lsmod|free|uptime|hostname"
)
COMMAND = re.compile(_COMMANDS)
"""The name of a command that a title may be, for `fullmatch`."""

_RULE = r"\+[-+]{10,}\+\n\|\s*"
_TITLES = (
    _head(
        "title",
        "@",
        r"\[?[A-Za-z_][\w.-]{0,40}@(?P<host>[A-Za-z0-9][\w.-]{0,80})[^\n$#]{0,80}[$#][^\S\n]+"
        r"(?P<title>\S[^\n]{0,200})",
    ),
    _head(
        "title", " ", rf"(?:[$#+%])[^\S\n]+(?:sudo[^\S\n]+)?(?P<title>(?:/\S{{0,60}}/)?(?:{_COMMANDS})\b[^\n]{{0,200}})"
    ),
    _head("title", "==", r"={2,}[^\S\n]*(?!NVSMI)(?P<title>[\w./][^\n=]{0,80}?)[^\S\n]*={2,}[^\S\n]*(?=\n|\Z)"),
    _head("title", "--", r"-{2,}[^\S\n]+(?P<title>[\w./][^\n]{0,80}?)[^\S\n]+-{2,}[^\S\n]*(?=\n|\Z)"),
    _head("title", "##", r"#{2,}[^\S\n]*(?P<title>[\w./][^\n#]{0,80}?)[^\S\n]*#{2,}[^\S\n]*(?=\n|\Z)"),
    _head("title", "**", r"\*{3}[^\S\n]*(?P<title>[\w./][^\n*]{0,80}?)[^\S\n]*(?:\*{3})?[^\S\n]*(?=\n|\Z)"),
    _head("title", "==>", r"==> (?P<title>[^\n<]{1,200}) <==[^\S\n]*(?=\n|\Z)"),
    _head("title", "____", r"_{20,}[^\S\n]*\n\s{0,8}(?P<title>[^\n]{1,120})"),
    _head("title", "```", r"```\w{0,20}[^\S\n]*(?=\n|\Z)"),
)
_TOOLS = (
    _head(
        "xml",
        "<nvidia_smi_log",
        r"[^\S\n]*(?:<\?xml[^>\n]*>\s{0,4}(?:<!DOCTYPE[^>\n]*>\s{0,4})?)?<nvidia_smi_log\b",
    ),
    _head("text", "NVSMI LOG", r"[^\S\n]*={3,}NVSMI LOG={3,}"),
    _head(
        "table",
        "NVIDIA-SMI",
        r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [^\n]{8,30}\n)?\+-{10,}\+\n\|\s+NVIDIA-SMI\s",
    ),
    _head("gpus", "(UUID: GPU", r"GPU (?P<key>\d{1,3}): [^\n]{1,120}\(UUID: (?P<value>GPU-[0-9a-fA-F-]{8,40})"),
    _head("topology", "GPU0", r"[^\S\n]*GPU0[^\S\n]+(?!X\b)\S"),
    _head("diag", "Diagnostic", rf"(?:Successfully ran diag[^\n]*\n)?{_RULE}Diagnostic\s*\|\s*Result"),
    _head("discovery", " found.", r"\d+ GPUs? found\."),
    _head("health", "Health", rf"{_RULE}(?:Health Monitor Report|Overall Health)"),
    _head("dcgm links", "NvLink Link Status", rf"{_RULE}NvLink Link Status"),
    _head("json", "{", r"\{[^\S\n]*(?=\n)"),
    _head("mlxlink", "Operational Info", r"[^\S\n]*Operational Info\b"),
    _head("nccl", "nThread", r"#\s*nThread \d+ nGpus"),
    _head("nvfwupd", "System Model", r"[^\S\n]*(?P<key>System Model)\s*:"),
    _head("nvfwupd", "AP Name", r"[^\S\n]*(?P<key>AP Name)\b[^\n]*\bSys Version"),
    _head("infiniband", "CA", r"[^\S\n]*CA:?\s{1,8}'(?P<key>[^'\n]{1,40})'"),
    _head("infiniband", "hca_id:", r"[^\S\n]*hca_id:\s{0,8}(?P<key>\S{1,40})"),
    _head("infiniband", "Infiniband device", r"Infiniband device '(?P<key>[^'\n]{1,40}' port \d{1,3}) status"),
    _head("ethernet", "Settings for", r"Settings for (?P<key>[^\s:]{1,40}):"),
    _head("ethernet", ": <", r"\d{1,5}: (?P<key>[\w.@-]{1,40}): <[A-Z]"),
    _head("csv", "\n1, ", r"(?P<key>0), (?P<value>)[^\n]{1,300}\n1, \S"),
    _head("slurm", "NodeName=", r"[^\S\n]*NodeName=(?P<key>[^\s\[\],]{1,80})(?=\s)"),
    _head("slurm", "JobId=", r"[^\S\n]*JobId=(?P<key>\d{1,12})(?=\s)"),
    _head("slurm", "NODELIST", r"[^\S\n]*(?=[A-Z][^\n]*\bNODELIST)(?P<key>[A-Z][A-Z_:()]{2,20}[^\n]{0,200})"),
)
_NAME = r"[a-z_][\w.]*(?: \[[^\]\n]{0,40}\])?"
_CSV = re.compile(rf"\n(?P<begin>)(?P<key>{_NAME}(?:[,;\t] ?{_NAME})+)[^\S\n]*(?=\n)")
_KERNEL = re.compile(
    r"\n(?P<begin>)(?:"
    r"(?:<\d{1,3}>)?\[ *\d{1,9}\.\d{6}\](?:\[ *[TC]\d+\])? "
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,80} kernel: "
    r"|\d{4}-\d\d-\d\dT\S{8,24} \S{1,80} kernel: "
    r"|NVRM: (?:Xid|GPU|The NVIDIA GPU)\b"
    r"|Xid \((?:PCI:)?[0-9a-fA-F])"
)


@dataclass(frozen=True, slots=True)
class _Mark:
    at: int
    family: str
    key: tuple[str, str] | None
    value: str | None
    title: str
    host: str


def text_parts(text: str) -> tuple[TextPart, ...]:
    """The outputs of `text` in their order, which together are all of it; one where nothing tells several apart."""
    padded = f"\n{text}"
    begins = list(_with_kernel(padded, _begins(_marks(padded))))
    rest = len(begins) > MOST_PARTS
    begins = begins[:MOST_PARTS]
    if not begins or begins[0].at > 1:
        begins.insert(0, _Mark(1, "", None, None, "", ""))
    ends = [*(mark.at for mark in begins[1:]), len(padded)]
    parts: list[TextPart] = []
    line = 1
    for mark, end in zip(begins, ends, strict=True):
        own = padded[mark.at : end]
        lines = own.count("\n")
        last = line + lines - (own.endswith("\n") or not own)
        parts.append(TextPart(own, line, max(last, line), mark.title, mark.host))
        line += lines
    if rest:
        parts[-1] = replace(parts[-1], rest=True)
    return tuple(_joined(parts))


def _marks(padded: str) -> list[_Mark]:
    """Every line that may begin an output, in order."""
    found: dict[int, _Mark] = {}
    for number, head in enumerate((*_TOOLS, *_TITLES)):
        if head.word not in padded:
            continue
        for match in head.pattern.finditer(padded):
            groups = match.groupdict()
            key = (str(number), groups["key"]) if groups.get("key") else None
            title, host = (groups.get("title") or "").strip(), groups.get("host") or ""
            found.setdefault(
                match.start("begin"), _Mark(match.start("begin"), head.family, key, groups.get("value"), title, host)
            )
    for match in _CSV.finditer(padded) if "," in padded or ";" in padded or "\t" in padded else ():
        if is_header_line(match["key"]):
            found.setdefault(match.start("begin"), _Mark(match.start("begin"), "csv", None, None, "", ""))
    return [found[at] for at in sorted(found)]


def _begins(marks: Iterable[_Mark]) -> Iterator[_Mark]:
    """The marks that begin an output."""
    family = ""
    seen: dict[tuple[str, str], str | None] = {}
    for mark in marks:
        again = mark.key is not None and mark.key in seen and (mark.value is None or seen[mark.key] != mark.value)
        if mark.key is None or again or mark.family != family:
            yield mark
            seen = {}
        family = mark.family
        if mark.key is not None:
            seen[mark.key] = mark.value


def _with_kernel(padded: str, begins: Iterator[_Mark]) -> Iterator[_Mark]:
    """The same, and where in an output of another tool the kernel's lines begin."""
    marks = list(begins)
    ends = [*(mark.at - 1 for mark in marks[1:]), len(padded)]
    for mark, end in zip(marks, ends, strict=False):
        yield mark
        kernel = _KERNEL.search(padded, mark.at, end)
        if kernel is not None and mark.family != "title":
            yield _Mark(kernel.start("begin"), "kernel", None, None, "", mark.host)


def _joined(parts: list[TextPart]) -> Iterator[TextPart]:
    """A title and what stands under it are one part; blank text belongs to what it follows."""
    waiting: TextPart | None = None
    for part in parts:
        if waiting is not None:
            host = part.host or waiting.host
            title = part.title or waiting.title
            part = replace(part, text=waiting.text + part.text, first=waiting.first, title=title, host=host)
            waiting = None
        body = part.text.split("\n", 1)[-1] if part.title or part.text.startswith("```") else part.text
        if not body.strip():
            waiting = part
        else:
            yield part
    if waiting is not None:
        yield waiting
