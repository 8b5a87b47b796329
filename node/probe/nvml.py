"""GPUs by NVML. Every attribute is asked for by itself, and none that fails takes another with it."""

# pathlib costs more start-up time than a section
# ruff: noqa: PTH110

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from . import nvml_special as special
from .commands import claim
from .nvml_attributes import FIELDS, GROUPS, MEMORY_V1, MEMORY_V2, Call, mib
from .nvml_part import FUNCTION_NOT_FOUND, Failure, Part, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from .workers import Pair

BUSY = "an NVML call of another probe has not returned"
_WAIT_SECONDS = 2.0
_FALLBACKS = (
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
)


def read_gpus(library: str | None, first: int) -> Iterator[Pair]:
    """Yields `init` (why NVML cannot be used, or None), `system`, `count`, then per GPU from `first` on its parts.

    Before each part comes ("at", [index, part]): where a call that never returns has been made.
    """
    import pynvml  # type: ignore[import-untyped,unused-ignore]  # here, as it costs the other sections time

    yield "at", [None, "the wait for another probe's NVML call that has not returned"]
    held = claim("nvml", library or "", _WAIT_SECONDS)
    if held is None:
        yield "init", {"code": None, "words": BUSY}
        return
    yield "at", [None, "nvmlInit"]
    reason = _initialise(pynvml, library)
    yield "init", reason
    if reason is not None:
        return
    if first == 0:
        yield "system", _system(pynvml)
    yield "at", [None, "nvmlDeviceGetCount"]
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        yield "init", {"code": error.value, "words": str(error)}
        return
    yield "count", count
    for index in range(first, count):
        yield from _gpu(pynvml, index)


def _initialise(nvml: ModuleType, library: str | None) -> dict[str, object] | None:
    try:
        path = library or next((p for p in _FALLBACKS if not _loads("libnvidia-ml.so.1") and os.path.exists(p)), None)
        if path is not None:
            vars(nvml)["nvmlLib"] = ctypes.CDLL(path)
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"code": error.value, "words": str(error)}
    except OSError as error:
        return {"code": None, "words": str(error)}
    return None


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _system(nvml: ModuleType) -> dict[str, object]:
    part = Part(nvml)
    part.ask(Call("driver_version", "nvmlSystemGetDriverVersion"))
    part.ask(Call("nvml_version", "nvmlSystemGetNVMLVersion"))
    part.ask(
        Call(
            "cuda_version",
            "nvmlSystemGetCudaDriverVersion_v2 nvmlSystemGetCudaDriverVersion",
            (),
            lambda number: f"{number // 1000}.{number % 1000 // 10}",
        )
    )
    return part.known


def _gpu(nvml: ModuleType, index: int) -> Iterator[Pair]:
    yield "at", [index, "nvmlDeviceGetHandleByIndex"]
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        yield "gpu", {"index": index, "error": {"code": error.value, "words": str(error)}}
        return
    for name, calls in GROUPS.items():
        yield "at", [index, name]
        part = Part(nvml, handle)
        for call in calls:
            part.ask(call)
        yield "gpu", {"index": index, "known": part.known, "unknown": part.unknown}
    for name, read in _SPECIAL.items():
        yield "at", [index, name]
        part = Part(nvml, handle)
        read(part)
        yield "gpu", {"index": index, "known": part.known, "unknown": part.unknown}


def _memory(part: Part) -> None:
    nvml = part.nvml

    def v2() -> object:
        info = nvml.nvmlDeviceGetMemoryInfo(part.handle, nvml.nvmlMemory_v2)
        return mib(info.total), mib(info.free), mib(info.used), mib(info.reserved)

    def v1() -> object:
        info = nvml.nvmlDeviceGetMemoryInfo(part.handle)
        return mib(info.total), mib(info.free), mib(info.used)

    value = attempt(nvml, v2)
    if isinstance(value, Failure) and value.code == FUNCTION_NOT_FOUND:
        part.fill(MEMORY_V1, v1)
    else:
        part.keep(MEMORY_V2.split(), value)


def _fields(part: Part) -> None:
    special.read_fields(part, FIELDS)


_SPECIAL: dict[str, Callable[[Part], None]] = {
    "memory info": _memory,
    "fields": _fields,
    "SRAM errors": special.read_sram,
    "fabric": special.read_fabric,
    "platform": special.read_platform,
    "processes": special.read_processes,
    "MIG": special.read_mig,
    "NVLink": special.read_links,
}
