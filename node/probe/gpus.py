"""The section of the GPUs: NVML in a child that may hang, else nvidia-smi's XML, to be read on the controller."""

from __future__ import annotations

import base64
import gzip
import time
from typing import TYPE_CHECKING

from .commands import claim, run
from .files import Root, unknown
from .nvml import BUSY, read_gpus
from .workers import Collected, collect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .workers import Pair

_MAX_XML_BYTES = 4 << 20
_DRIVER_NOT_LOADED = 9
_NVML_SECONDS = 3.0  # what NVML gets at least, of a short deadline the greater part


def read_gpu_section(root: Root, library: str | None, seconds: float) -> Iterator[Pair]:
    """`source` is nvml or nvidia-smi; with the latter `xml` has its answer, gzip in base64."""
    if library is None and not root.exists("/sys/module/nvidia"):
        yield "nvml", {"code": _DRIVER_NOT_LOADED, "words": "the nvidia module is not loaded"}
        yield "source", unknown("the nvidia module is not loaded, and NVML would load it")
        return
    end = time.monotonic() + seconds
    answer = _ask(library, 0, min(seconds * 0.8, max(_NVML_SECONDS, seconds * 0.45)))
    reached = _Reached(answer.pairs)
    yield "nvml", reached.init
    if reached.init is None and reached.count is None:
        yield "source", unknown(f"{answer.fault}, in {reached.at[1]}" if answer.fault else "NVML gave no count of GPUs")
        return
    if isinstance(reached.init, dict) and reached.init.get("words") == BUSY:
        yield "source", unknown(BUSY)
        return
    if reached.init is not None:
        yield from _by_tool(root, end - time.monotonic())
        return
    yield "source", "nvml"
    yield "system", reached.system
    yield "count", reached.count
    devices = reached.devices
    if answer.fault is not None and reached.at[0] is not None:
        devices[reached.at[0]] = _hung(devices, reached.at[0], answer.fault, reached.at[1])
        rest = reached.at[0] + 1
        if rest < (reached.count or 0):
            devices.update(_rest(library, rest, reached.count or 0, end - time.monotonic()))
    yield "devices", [devices[index] for index in sorted(devices)]


def _ask(library: str | None, first: int, seconds: float) -> Collected:
    return collect({"nvml": lambda: read_gpus(library, first)}, seconds)["nvml"]


def _rest(library: str | None, first: int, count: int, seconds: float) -> dict[int, dict[str, object]]:
    """The GPUs behind one at which NVML did not return: a second attempt, and the reason for those it leaves out."""
    answer = _ask(library, first, seconds * 0.6)
    reached = _Reached(answer.pairs)
    devices = reached.devices
    reason = answer.fault or "NVML could not be used a second time"
    for index in range(first, count):
        if index not in devices or (index == reached.at[0] and answer.fault is not None):
            devices[index] = _hung(devices, index, reason, reached.at[1])
    return devices


def _hung(devices: dict[int, dict[str, object]], index: int, reason: str, part: str) -> dict[str, object]:
    """What is known of the GPU, marked as unfinished."""
    device = devices.get(index, {"index": index, "known": {}, "unknown": {}})
    return {**device, "unfinished": f"{reason}, in {part}"}


class _Reached:
    """The pairs of read_gpus, put together."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.init: object = None
        self.system: object = {}
        self.count: int | None = None
        self.at: tuple[int | None, str] = (None, "the start")
        self.devices: dict[int, dict[str, object]] = {}
        for key, value in pairs:
            self._take(key, value)

    def _take(self, key: str, value: object) -> None:
        if key == "at" and isinstance(value, list):
            self.at = (value[0], value[1])
        elif key == "count" and isinstance(value, int):
            self.count = value
        elif key == "init":
            self.init = value
        elif key == "system":
            self.system = value
        elif key == "gpu" and isinstance(value, dict):
            self._add(value)

    def _add(self, part: dict[str, object]) -> None:
        index = part["index"]
        assert isinstance(index, int)
        device = self.devices.setdefault(index, {"index": index, "known": {}, "unknown": {}})
        if "error" in part:
            device["error"] = part["error"]
        known, fresh = device["known"], part.get("known", {})
        missed, fresh_missed = device["unknown"], part.get("unknown", {})
        if isinstance(known, dict) and isinstance(fresh, dict):
            known.update(fresh)
        if isinstance(missed, dict) and isinstance(fresh_missed, dict):
            for reason, names in fresh_missed.items():
                missed.setdefault(reason, []).extend(names)


def _by_tool(root: Root, seconds: float) -> Iterator[Pair]:
    held = claim("nvidia-smi", root.folder, 1.0)
    if held is None:
        yield "source", unknown("nvidia-smi of another probe has not returned")
        return
    done = run(root, ("nvidia-smi", "-q", "-x"), seconds * 0.8, held)
    held.close()
    if isinstance(done, str):
        yield "source", unknown(done)
        return
    yield "source", "nvidia-smi"
    yield "exit_status", done.code
    yield "stderr", done.err[-2000:]
    content = done.out.encode()[:_MAX_XML_BYTES]
    yield "xml", base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()
