"""The matrix-multiply rate that dcgmproftester prints for each GPU, in GFLOP/s: DCGM 2.0 to 4.6, `-t 1004`.

Each worker prints one line a second. Since 3.2.5 the rate has three significant digits, so one line may be half a
per cent off; the value is therefore the mean of a run's lines, without the first fifth, in which clocks still rise.
Lines of 2.0 name no worker: they are of the one GPU that the tool was given. Since 3.3 the fields 1006 to 1008 print no
rate unless it is asked for. PASSED and FAILED are about DCGM's counters, and say nothing with --no-dcgm-validation.
Source: NVIDIA/DCGM dcgmproftester/PhysicalGpu.cpp, tags v2.1.4 to v4.6.0; of 2.0, NVIDIA's GPU telemetry guide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from fleet.measure_readers.values import Measured, ToolReading, completed, measured, short_lines
from fleet.readers.pci_address import gpu_address
from fleet.readers.plain_text import evidence, number

_RATE = re.compile(
    r"(?:\bWorker\s+(?P<gpu>\d{1,3})(?:/\d+/\d+)?(?::\d+)?\s*\[\d+\]\s*:\s*|\bGPU\s+(?P<other>\d{1,3}):\s*|^\s*)"
    r"\w*(?:Active|Util)\w*\s*:\s*generated\b.*\((?P<rate>[^\s()]+)\s+gflops\)",
    re.IGNORECASE,
)
_WORKER = re.compile(r"\bWorker\s+(?P<gpu>\d{1,3})(?:/\d+/\d+)?(?::\d+)?\s*\[\d+\]\s*:\s*(?P<rest>.*)$")
_BUS = re.compile(r"\bBus ID (\S+) mapped to cuda device")
_FAULT = re.compile(
    r"Wrong version of dcgmproftester|Please use dcgmproftester\d+|\bError\b.*|Failed to start CUDA|"
    r"testing FAILED|Unable to |is unsupported|returned -\d+",
    re.IGNORECASE,
)
_WRONG_TOOL = re.compile(r"Wrong version of dcgmproftester|Please use dcgmproftester\d+ instead", re.IGNORECASE)
_FEWEST = 3


def wrong_dcgmproftester(text: str) -> bool:
    """Whether the tool says that it is built for another CUDA version than this driver's."""
    return _WRONG_TOOL.search(text) is not None


def dcgmproftester_values(text: str, gpus: int | None = None) -> ToolReading:
    """Each GPU's rate in GFLOP/s; `gpus` is how many there must be."""
    lines = short_lines(text)
    rates: defaultdict[int | None, list[float | None]] = defaultdict(list)
    addresses: dict[int, str] = {}
    for line in lines:
        rate = _RATE.search(line) if "gflops" in line else None
        worker = _WORKER.search(line)
        if rate:
            index = rate["gpu"] or rate["other"]
            rates[None if index is None else int(index)].append(number(rate["rate"]))
        elif worker and (bus := _BUS.search(worker["rest"])) and (address := gpu_address(bus[1])):
            addresses[int(worker["gpu"])] = address
    faults = [line.strip() for line in lines if _FAULT.search(line)]
    values = [_mean(index, found) for index, found in rates.items()]
    if None in rates:  # with one GPU it can be no other; with several, nothing says which one it was
        values = [
            Measured(0 if gpus == 1 else None, value.value, value.missing) for value in values if value.gpu is None
        ]
        gpus = 1 if gpus == 1 else None
    why = faults[0] if faults else _silence(lines)
    return ToolReading(completed(values, gpus, evidence(f"dcgmproftester: {why}")), "dcgmproftester", addresses)


def _mean(gpu: int | None, rates: Sequence[float | None]) -> Measured:
    known = [rate for rate in rates if rate is not None]
    if len(known) < _FEWEST:
        return Measured(gpu, None, f"dcgmproftester printed {len(known)} rates, which is too few for a mean")
    steady = known[len(known) // 5 :]
    return measured(gpu, sum(steady) / len(steady), "dcgmproftester printed no rate")


def _silence(lines: Sequence[str]) -> str:
    if any("Active: target" in line for line in lines):
        return "prints no rate for this field; it does for 1004"
    return "printed no rate for it"
