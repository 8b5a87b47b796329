"""What measuring tools print, written by hand in their own layouts."""

from __future__ import annotations

import json
from collections.abc import Sequence

HBM_TEST = "device_local_copy"


def nvbandwidth_json(
    values: Sequence[float | None], test: str = HBM_TEST, version: str = "v0.8", addresses: Sequence[str] = ()
) -> str:
    """A run of one test in the layout of 0.5 and later: numbers as texts, N/A for a pair that was not measured."""
    row = ["N/A" if value is None else f"{value:g}" for value in values]
    case = {
        "bandwidth_description": "memcpy local GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix": [row],
        "name": test,
        "status": "Passed",
        "sum": sum(value or 0.0 for value in values),
    }
    root: dict[str, object] = {"CUDA Runtime Version": 12080, "Driver Version": "570.133.20", "git_version": version}
    root |= {"testcases": [case], "version": version}
    if addresses:
        listed = [f"{at}: NVIDIA H100 80GB HBM3 ({address}): (gpu-0001)" for at, address in enumerate(addresses)]
        root["GPU Device list"] = listed
    return json.dumps({"nvbandwidth": root}, indent=1) + "\n\n"


def nvbandwidth_text(values: Sequence[float | None], test: str, end: str = "SUM") -> str:
    """The same as a table, as every version prints it without -j."""
    heading = "  " + "".join(f"{at:>10}" for at in range(len(values)))
    row = " 0" + "".join(f"{'N/A' if value is None else f'{value:.2f}':>10}" for value in values)
    total = sum(value or 0.0 for value in values)
    return (
        "nvbandwidth Version: v0.4\nBuilt from Git version: 1a2b3c4\n\n"
        "NOTE: This tool reports current measured bandwidth on your system.\n\n"
        "CUDA Runtime Version: 12020\nCUDA Driver Version: 12020\nDriver Version: 535.104.05\n\n"
        + "".join(f"Device {at}: NVIDIA H100 80GB HBM3\n" for at in range(len(values)))
        + f"\nRunning {test}.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n{heading}\n{row}\n\n"
        f"{end} {test} {total:.2f}\n\n"
    )


def all_reduce(
    bus: float = 480.5,
    in_place: float = 481.5,
    wrong: str = "0",
    ranks: int = 8,
    cut: bool = False,
    extra: bool = False,
    stamp: str = "",
) -> str:
    """all_reduce_perf for one size; `extra` adds the columns of -I, `stamp` that of -T, `cut` ends it in the table."""
    devices = "".join(
        f"#  Rank {r:2} Group  0 Pid  71234 on   gpu-0001 device {r:2} [0000:{r + 16:02x}:00] NVIDIA H100 80GB HBM3\n"
        for r in range(ranks)
    )
    columns = "time   algbw   busbw #wrong" + ("   i_min   i_max   i_p99   i_cv%" if extra else "")
    iterations = "  31210.0  31300.0  31290.5  0.12" if extra else ""
    halves = "".join(
        f"  31254.1  {value / 1.75:6.2f}  {value:6.2f}  {wrong:>5}{iterations}" for value in (bus, in_place)
    )
    text = (
        f"# nThread 1 nGpus {ranks} minBytes 8589934592 maxBytes 8589934592 step: 1048576(bytes) warmup iters: 1 "
        f"iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n{devices}#\n"
        "#                                                              out-of-place                       in-place\n"
        f"#       size         count      type   redop    root     {columns}     {columns}\n"
        "#        (B)    (elements)                              (us)  (GB/s)  (GB/s)           (us)  (GB/s)  (GB/s)\n"
        f"  8589934592    2147483648     float     sum      -1{halves}{stamp}\n"
    )
    if cut:
        return text
    return text + f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {(bus + in_place) / 2:g} \n#\n"


def proftester(rates: Sequence[Sequence[str]], shape: str = "Worker {gpu}:0 [1004]: ", dot: str = ".") -> str:
    """dcgmproftester's lines, one list of rates for each GPU; `shape` is how its version names the worker."""
    lines = ["Skipping CreateDcgmGroups() since DCGM validation is disabled"]
    for tick in range(max((len(own) for own in rates), default=0)):
        for gpu, own in enumerate(rates):
            if tick < len(own):
                name = shape.format(gpu=gpu)
                lines.append(f"{name}TensorEngineActive: generated ???, dcgm 0 ({own[tick]} gflops){dot}")
    return "\n".join([*lines, "Skipping UnwatchFields() since DCGM validation is disabled", ""])
