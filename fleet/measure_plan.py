"""Which commands measure what on a node, in the order in which one run of them goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from fleet.canary_settings import (
    ALL_REDUCE,
    BUILT_IN,
    GEMM,
    HBM_BANDWIDTH,
    HOST_TO_DEVICE,
    CanarySettings,
    OwnCommand,
)
from fleet.measure_readers.dcgmproftester import dcgmproftester_values, wrong_dcgmproftester
from fleet.measure_readers.json_value import json_values
from fleet.measure_readers.nccl_tests import nccl_value
from fleet.measure_readers.nvbandwidth import nvbandwidth_values
from fleet.measure_readers.values import ToolReading
from fleet.measures import Measure, MeasureKind

HBM_TEST, HOST_TO_DEVICE_TEST = "device_local_copy", "host_to_device_memcpy_ce"
"""nvbandwidth's tests: a copy inside each GPU's memory, and one from pinned host memory to each GPU."""

_NVBANDWIDTH_SECONDS = 300.0
_ALL_REDUCE_SECONDS = 600.0
_GEMM_MARGIN_SECONDS = 180.0  # dcgmproftester loads its kernels on eight GPUs before the time counts


def _never(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class MeasureCommand:
    """One benchmark. `candidates` are tried in their order: the first that the node has, and that is not `refused`.

    `read` makes the values of what it printed (stdout, then stderr) and of how many GPUs there must be.
    `cool`: it is only started on GPUs that are idle and cool.
    """

    measure: Measure
    candidates: tuple[tuple[str, ...], ...]
    per_gpu: bool
    cool: bool
    timeout_seconds: float
    read: Callable[[str, int | None], ToolReading]
    refused: Callable[[str], bool] = _never


def benchmark_measures(settings: CanarySettings, gpus: int | None) -> tuple[Measure, ...]:
    """What is measured on a node of so many GPUs, without the measures that are switched off.

    `gpus` None: not known; all are then named.
    """
    own = (
        Measure(name, command.unit, command.better, MeasureKind.BENCHMARK)
        for name, command in settings.commands.items()
    )
    able = (measure for measure in (*BUILT_IN, *own) if measure != ALL_REDUCE or gpus is None or gpus > 1)
    return tuple(wished for measure in able if (wished := settings.margined(measure)) is not None)


def not_comparable(settings: CanarySettings, cuda_before: int, cuda_after: int) -> tuple[Measure, ...]:
    """Measures that drivers of these two CUDA major versions cannot be compared by: each needs a tool of its own.

    A plan leaves them out and says so; else they would be missing after the change, and nothing could pass.
    """
    if cuda_before == cuda_after or settings.tools.across_cuda_versions:
        return ()
    return tuple(measure for measure in benchmark_measures(settings, None) if measure.name == GEMM.name)


def measure_plan(settings: CanarySettings, gpus: int) -> tuple[MeasureCommand, ...]:
    """One run's commands on a node of `gpus` GPUs: the operator's own after ours, but GEMM last, as it heats most."""
    wished = {measure.name: measure for measure in benchmark_measures(settings, gpus)}
    commands = (*_built_in(settings, gpus), *_own(settings))
    chosen = [command for command in commands if command.measure.name in wished]
    chosen.sort(key=lambda command: command.measure.name == GEMM.name)
    return tuple(
        MeasureCommand(
            wished[one.measure.name], one.candidates, one.per_gpu, one.cool, one.timeout_seconds, one.read, one.refused
        )
        for one in chosen
    )


def _built_in(settings: CanarySettings, gpus: int) -> Iterator[MeasureCommand]:
    tools = settings.tools
    for measure, test in ((HBM_BANDWIDTH, HBM_TEST), (HOST_TO_DEVICE, HOST_TO_DEVICE_TEST)):
        words = (*tools.nvbandwidth, "-j", "-t", test)
        read = partial(_nvbandwidth, test)
        yield MeasureCommand(measure, (words,), True, True, _NVBANDWIDTH_SECONDS, read)
    size = tools.all_reduce_bytes
    words = (*tools.all_reduce_perf, "-b", size, "-e", size, "-g", str(gpus), "-n", "20")
    yield MeasureCommand(ALL_REDUCE, (words,), False, True, _ALL_REDUCE_SECONDS, nccl_value)
    seconds = str(tools.gemm_seconds)
    candidates = tuple((*one, "--no-dcgm-validation", "-t", "1004", "-d", seconds) for one in tools.dcgmproftester)
    timeout = tools.gemm_seconds + _GEMM_MARGIN_SECONDS
    yield MeasureCommand(GEMM, candidates, True, False, timeout, dcgmproftester_values, wrong_dcgmproftester)


def _own(settings: CanarySettings) -> Iterator[MeasureCommand]:
    for name, own in settings.commands.items():
        measure = Measure(name, own.unit, own.better, MeasureKind.BENCHMARK)
        read = partial(_json, own, name)
        yield MeasureCommand(measure, (own.command,), own.per_gpu, own.cool, own.timeout_seconds, read)


def _nvbandwidth(test: str, text: str, gpus: int | None) -> ToolReading:
    return nvbandwidth_values(text, test, gpus)


def _json(own: OwnCommand, name: str, text: str, gpus: int | None) -> ToolReading:
    return json_values(text, own.json_path, gpus, own.per_gpu, name)
