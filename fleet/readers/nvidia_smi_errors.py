"""What nvidia-smi says instead of data, or beside it, on either stream."""

from __future__ import annotations

import re

from fleet.gpu import SmiError, SmiErrorKind
from fleet.readers.pci_address import pci_address
from fleet.readers.plain_text import any_of, clean

_ANY = (
    "device handle",
    "nvml",
    "communicate",
    "not found",
    "no such file",
    "no devices",
    "no supported",
    "inforom is corrupt",
    "external power",
    "gpu interrupts",
    "to recover this gpu",
    "version mismatch",
    "libnvidia-ml",
    "exit",
)
_SHOWN = 300
_ALONE_WORDS = (
    "NVIDIA-SMI has failed",
    "Unable to determine the device handle for",
    "Failed to initialize NVML",
    "No devices were found",
)
_ALONE = re.compile(rf"^[^\S\n]*(?:{'|'.join(_ALONE_WORDS)})[^\n]{{0,1000}}", re.MULTILINE)

_HANDLE = re.compile(r"unable to determine the device handle for\s+gpu\s*(?P<rest>\S.*)", re.IGNORECASE)
_NAMED = re.compile(
    r"(?:(?P<index>\d{1,3})\s*(?::?\s+|:?$))?(?P<address>[0-9a-f]+:[0-9a-f]+:[0-9a-f]+(?:\.[0-9a-f]+)?)?\s*:?\s*(?P<detail>.*)",
    re.IGNORECASE,
)
_GPU_AT = re.compile(r"\bgpu\s*(?P<gpu>[0-9a-f]{3,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)
_EXIT = re.compile(r"\bnvidia-smi\b.{0,80}?\bexit(?:ed)?\b[^\d\n]{0,30}(?P<code>\d{1,3})\b", re.IGNORECASE)
_EXIT_CODES = {
    4: SmiErrorKind.NOT_PERMITTED,
    6: SmiErrorKind.NO_DEVICES,
    8: SmiErrorKind.GPU_NEEDS_POWER,
    9: SmiErrorKind.DRIVER_NOT_RUNNING,
    10: SmiErrorKind.INTERRUPT_FAULT,
    12: SmiErrorKind.LIBRARY_MISSING,
    14: SmiErrorKind.INFOROM_CORRUPTED,
    15: SmiErrorKind.GPU_LOST,
    18: SmiErrorKind.LIBRARY_MISMATCH,
    255: SmiErrorKind.NVML_FAILED,
}  # nvidia-smi ends with NVML's return code
_DETAILS: tuple[tuple[str, SmiErrorKind], ...] = (
    ("lost", SmiErrorKind.GPU_LOST),
    ("reset", SmiErrorKind.GPU_NEEDS_RESET),
    ("power", SmiErrorKind.GPU_NEEDS_POWER),
    ("interrupt", SmiErrorKind.INTERRUPT_FAULT),
    ("infor", SmiErrorKind.INFOROM_CORRUPTED),
    ("permission", SmiErrorKind.NOT_PERMITTED),
)
_LINES: tuple[tuple[re.Pattern[str], SmiErrorKind], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"inforom is corrupt", SmiErrorKind.INFOROM_CORRUPTED),
        (r"driver/library version mismatch", SmiErrorKind.LIBRARY_MISMATCH),
        (r"could\s?n.?t communicate with the nvidia driver", SmiErrorKind.DRIVER_NOT_RUNNING),
        (r"failed to initialize nvml:\s*(nvidia )?driver (is )?not loaded", SmiErrorKind.DRIVER_NOT_RUNNING),
        (r"could\s?n.?t find (the )?libnvidia-ml|nvml shared library could\s?n.?t be", SmiErrorKind.LIBRARY_MISSING),
        (r"failed to initialize nvml:\s*(nvml )?(shared )?library not found", SmiErrorKind.LIBRARY_MISSING),
        (r"nvidia-smi:? .*(command )?not found|not found:? .*nvidia-smi\b", SmiErrorKind.TOOL_MISSING),
        (r"nvidia-smi.*no such file or directory|no such file or directory: '?nvidia-smi", SmiErrorKind.TOOL_MISSING),
        (r"no devices were found|no supported gpus were found", SmiErrorKind.NO_DEVICES),
        (r"insufficient external power", SmiErrorKind.GPU_NEEDS_POWER),
        (r"issue with gpu interrupts", SmiErrorKind.INTERRUPT_FAULT),
        (r"failed to initialize nvml:.*(permission|blocked by the operating system)", SmiErrorKind.NOT_PERMITTED),
        (r"failed to initialize nvml:?|failed to properly shut down nvml", SmiErrorKind.NVML_FAILED),
        (r"reboot the system to recover this gpu", SmiErrorKind.GPU_LOST),
    )
)  # fmt: skip


def read_errors(text: str) -> tuple[SmiError, ...]:
    """Every error line, each once, in its order. An address that is none stays as printed, in `printed_gpu`."""
    found: dict[tuple[str, str | None], SmiError] = {}
    lowered = text.lower()
    if not any(word in lowered for word in _ANY):
        return ()
    for line in clean(text).splitlines():
        error = _error(line.strip(" |"))
        if error is not None:
            found.setdefault((error.kind, error.gpu or error.printed_gpu), error)
    return tuple(found.values())


def lone_errors(text: str) -> str:
    """The lines that nvidia-smi alone prints and that no other output has; "" where there are none.

    They say how a GPU or the driver is even where they stand behind another tool's output.
    """
    if not any_of(_ALONE_WORDS, text):
        return ""
    return "".join(f"{match[0].strip()}\n" for match in _ALONE.finditer(text))


def _error(line: str) -> SmiError | None:
    if len(line) > 2000 or not line:
        return None
    handle = _HANDLE.search(line)
    if handle is not None and (named := _NAMED.match(handle["rest"])) is not None:
        printed, detail = named["address"] or named["index"], named["detail"].strip()
        kind = next((kind for word, kind in _DETAILS if word in detail.lower()), SmiErrorKind.GPU_UNREACHABLE)
        return SmiError(kind, line[:_SHOWN], _gpu(printed), printed, detail[:_SHOWN])
    for pattern, kind in _LINES:
        if pattern.search(line):
            at = _GPU_AT.search(line)
            printed = at["gpu"] if at else None
            return SmiError(kind, line[:_SHOWN], _gpu(printed), printed, line.rsplit(":", 1)[-1].strip()[:_SHOWN])
    exit_ = _EXIT.search(line)
    kind_of_exit = _EXIT_CODES.get(int(exit_["code"])) if exit_ else None
    return SmiError(kind_of_exit, line[:_SHOWN]) if kind_of_exit else None


def _gpu(printed: str | None) -> str | None:
    """An address normalised, or an index; None for what is neither."""
    if printed is None:
        return None
    return str(int(printed)) if re.fullmatch(r"\d{1,3}", printed) else pci_address(printed)
