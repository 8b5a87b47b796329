"""Measurement tools on a simulated host: nvbandwidth, all_reduce_perf and dcgmproftester, printing as the real ones.

Shapes: nvbandwidth 0.8, nccl-tests 2.17, dcgmproftester of DCGM 4.5 (three digits of a rate).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable

from simulator.host.driver import Driver
from simulator.host.heat import Heat
from simulator.host.performance import RUN_SHARE, Measure
from simulator.host.releases import RELEASES
from simulator.host.state import HostState, Process
from simulator.settings import GPU_NAME
from simulator.slurm.reply import Reply

_BANDWIDTH_TESTS = {
    "device_local_copy": (Measure.HBM, "memcpy local GPU(column) bandwidth (GB/s)"),
    "host_to_device_memcpy_ce": (Measure.HOST_DEVICE, "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"),
    "device_to_host_memcpy_ce": (Measure.HOST_DEVICE, "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)"),
}
_SECONDS = {Measure.HBM: 12.0, Measure.HOST_DEVICE: 15.0, Measure.ALL_REDUCE: 18.0, Measure.GEMM: 4.0}
_SIZE = re.compile(r"(\d+)([KMGkmg]?)")
_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_FIELDS = {"1001": "GrActivity", "1004": "TensorEngineActive", "1005": "DramUtil"}
_RUNS_ON_LATER = 12  # the tool that DCGM 4 lets run on drivers of later CUDA versions too
_TITLES = "    time   algbw   busbw  #wrong"
_TITLE_UNITS = "    (us)  (GB/s)  (GB/s)        "
_MISMATCH = "system has unsupported display driver / cuda driver combination"
_NO_DEVICE = "no CUDA-capable device is detected"
_NOT_READY = "system not yet initialized"


class Tools:
    """The tools of one host. Each takes simulated time, in which it is a process on the GPUs."""

    def __init__(self, host: HostState, driver: Driver, heat: Heat) -> None:
        self._host = host
        self._driver = driver
        self._heat = heat
        self._runs: Counter[Measure] = Counter()

    def run(self, words: list[str]) -> Reply | Awaitable[Reply] | None:
        """None for a command that is none of them."""
        name = words[0].rpartition("/")[2] if words else ""
        if name == "nvbandwidth":
            return self._nvbandwidth(words[1:])
        if name == "all_reduce_perf":
            return self._all_reduce(words[1:])
        found = re.fullmatch(r"dcgmproftester(11|12|13)", name)
        return self._dcgmproftester(int(found[1]), words[1:]) if found is not None else None

    def _fault(self) -> str:
        """Why CUDA cannot be used; empty where it can."""
        if self._host.loaded is None:
            return _NO_DEVICE
        if not self._host.usable:
            return _MISMATCH
        return "" if self._driver.fabric_ready else _NOT_READY

    async def _measure(self, name: str, measure: Measure, slots: list[int], seconds: float) -> dict[int | None, float]:
        """Values by slot; of all GPUs together under None where the measure is of all."""
        host = self._host
        pid = host.next_pid()
        devices = ("/dev/nvidiactl", "/dev/nvidia-uvm", *(f"/dev/nvidia{slot}" for slot in slots))
        host.tools[pid] = Process(pid, name[:15], "root", "-", devices, cuda=True)
        loads = self._heat.begin(slots, measure)
        try:
            await host.machine.clock.sleep(seconds)
        finally:
            host.tools.pop(pid, None)
            self._heat.end(slots)
        self._runs[measure] += 1
        run = self._runs[measure]
        performance = host.site.performance
        if measure is Measure.ALL_REDUCE:
            return {None: performance.run(host.place, None, measure, loads, run)}
        return {
            slot: performance.run(host.place, slot, measure, [load], run)
            for slot, load in zip(slots, loads, strict=True)
        }

    async def _nvbandwidth(self, words: list[str]) -> Reply:
        tests = [test for test in words[words.index("-t") + 1 :] if not test.startswith("-")] if "-t" in words else []
        host, slots = self._host, list(range(self._host.machine.gpus))
        root: dict[str, object] = {"git_version": "v0.8", "version": "v0.8"}
        fault = self._fault()
        if fault:
            code = {_MISMATCH: "SYSTEM_DRIVER_MISMATCH", _NO_DEVICE: "NO_DEVICE"}.get(fault, "SYSTEM_NOT_READY")
            where = "in expression cuInit(0) in main() : nvbandwidth.cpp:180"
            root["error"] = f"[CUDA_ERROR_{code}] {fault} {where}"
            return Reply(1, _styled({"nvbandwidth": root}))
        major, _, minor = RELEASES.get(host.user_space or "", "12.4").partition(".")
        root |= {"CUDA Runtime Version": 12040, "Driver Version": host.user_space}
        root["CUDA Driver Version"] = int(major) * 1000 + int(minor) * 10
        root["GPU Device list"] = [f"{slot}: {GPU_NAME} ({_bus(slot)}): ({host.machine.name})" for slot in slots]
        cases = [await self._bandwidth_case(test, slots) for test in tests or list(_BANDWIDTH_TESTS)]
        return Reply(0, _styled({"nvbandwidth": root | {"testcases": cases}}))

    async def _bandwidth_case(self, test: str, slots: list[int]) -> dict[str, object]:
        if test not in _BANDWIDTH_TESTS:
            return {"name": test, "status": "Not Found"}
        measure, description = _BANDWIDTH_TESTS[test]
        found = await self._measure("nvbandwidth", measure, slots, _SECONDS[measure])
        return {
            "bandwidth_description": description,
            "bandwidth_matrix": [[f"{value:.6g}" for value in found.values()]],
            "name": test,
            "status": "Passed",
            "sum": sum(found.values()),
        }

    async def _all_reduce(self, words: list[str]) -> Reply:
        given = dict(zip(words[::2], words[1::2], strict=False))
        host, name = self._host, self._host.machine.name
        gpus, iterations = int(given.get("-g", "1")), int(given.get("-n", "20"))
        fault = self._fault()
        if fault:
            where = "common.cu:958"
            return Reply(
                2, f"{name}: Test CUDA failure {where} '{fault}'\n .. {name} pid 4242: Test failure common.cu:880\n"
            )
        if gpus > host.machine.gpus:
            text = f"Invalid number of GPUs: {gpus} requested but only {host.machine.gpus} were found."
            return Reply(1, "", f"{text}\nPlease check the number of processes and GPUs per process.\n")
        smallest, largest = _bytes(given.get("-b", "32M")), _bytes(given.get("-e", given.get("-b", "32M")))
        slots = list(range(gpus))
        busbw = (await self._measure("all_reduce_perf", Measure.ALL_REDUCE, slots, _SECONDS[Measure.ALL_REDUCE]))[None]
        text = _nccl_heading(name, gpus, smallest, largest, iterations, int(given.get("-f", "0")))
        shown = []
        for size in _steps(smallest, largest, int(given.get("-f", "0"))):
            bandwidth = busbw * size / (size + 60e6 * (gpus > 1))  # small ones are bound by latency
            text += _nccl_row(size, bandwidth, gpus)
            shown.append(bandwidth)
        mean = sum(shown) / len(shown)
        text += f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {mean:g} \n#\n"
        return Reply(0, f"{text}# Collective test concluded: all_reduce_perf\n\n")

    async def _dcgmproftester(self, major: int, words: list[str]) -> Reply:
        options = [word for word in words if word != "--no-dcgm-validation"]
        given = dict(zip(options[::2], options[1::2], strict=False))
        fault = self._fault()
        if fault:
            return Reply(1, "", f"Error: unable to initialise CUDA: {fault}.\nError -1 from main().\n")
        driver_major = int(RELEASES.get(self._host.user_space or "", "12.4").partition(".")[0])
        if major != driver_major and not driver_major > major == _RUNS_ON_LATER:
            text = f"Wrong version of dcgmproftester is used. Expected Cuda version is {major}. "
            return Reply(244, f"{text}Installed Cuda version is {driver_major}.")
        slots = [int(slot) for slot in given.get("-i", "").split(",") if slot.isdigit()]
        slots = [s for s in slots if s < self._host.machine.gpus] or list(range(self._host.machine.gpus))
        seconds, field = float(given.get("-d", "30")), given.get("-t", "1001")
        found = await self._measure(f"dcgmproftester{major}", Measure.GEMM, slots, seconds + _SECONDS[Measure.GEMM])
        later = f"Running version {major} binary with CUDA driver version {driver_major}.\n"
        return Reply(0, (later if major != driver_major else "") + self._ticks(found, field, max(1, int(seconds))))

    def _ticks(self, found: dict[int | None, float], field: str, seconds: int) -> str:
        """One line a second and GPU; the first seconds are slower, and each differs a little."""
        lines = ["Skipping CreateDcgmGroups() since DCGM validation is disabled"] * (len(found) + 1)
        lines += ["Skipping WatchFields() since DCGM validation is disabled"]
        title, run = _FIELDS.get(field, "TensorEngineActive"), self._runs[Measure.GEMM]
        for second in range(seconds):
            for slot, value in found.items():
                flutter = self._host.site.performance.noise(self._host.place.node, slot, run, second)
                shown = value * (0.97 if second == 0 else 1.0) * (1 + 0.3 * RUN_SHARE * flutter)
                lines.append(f"Worker {slot}:0 [{field}]: {title}: generated ???, dcgm 0 ({shown:.3g} gflops).")
        for slot in found:
            bus = f"00000000:{0x18 + (slot or 0) * 0x11:02X}:00.0"
            lines.append(f"Worker {slot}:0[{field}]: Message: Bus ID {bus} mapped to cuda device ID {slot}")
            lines.append("DCGM CudaContext Init completed successfully.")
        return "".join(f"{line}\n" for line in lines)


def _styled(tree: dict[str, object]) -> str:
    return json.dumps(tree, indent="\t", separators=(",", " : "), sort_keys=True) + "\n\n"


def _bus(slot: int) -> str:
    return f"00000000:{0x18 + slot * 0x11:02x}:00"


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _SIZES[found[2].lower()] if found is not None else 32 << 20


def _steps(smallest: int, largest: int, factor: int) -> list[int]:
    sizes = [max(4, smallest)]
    while factor > 1 and sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return sizes


def _nccl_heading(name: str, gpus: int, smallest: int, largest: int, iterations: int, factor: int) -> str:
    step = f"{factor}(factor)" if factor > 1 else "1048576(bytes)"
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22703 nccl-library=22703",
        "# Collective test starting: all_reduce_perf",
        f"# nThread 1 nGpus {gpus} minBytes {smallest} maxBytes {largest} step: {step} warmup iters: 1 "
        f"iters: {iterations} agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {slot:2d} Group  0 Pid   4242 on {name:>10} device {slot:2d} [{_bus(slot)[4:]}] {GPU_NAME}"
            for slot in range(gpus)
        ),
        "#",
        "#" + f"{'out-of-place':>74}{'in-place':>35}          ",
        f"#       size         count      type   redop    root {_TITLES} {_TITLES} ",
        f"#        (B)    (elements)                           {_TITLE_UNITS} {_TITLE_UNITS} ",
    ]
    return "".join(f"{line}\n" for line in lines)


def _nccl_row(size: int, busbw: float, gpus: int) -> str:
    algbw = busbw if gpus < 2 else busbw * gpus / (2 * (gpus - 1))
    microseconds = size / (algbw * 1e9) * 1e6
    shown = f"{microseconds:.1f}" if microseconds < 10_000 else f"{microseconds:.0f}"
    half = f"{shown:>8}  {algbw:>6.2f}  {busbw:>6.2f}      0"
    return f"{size:>12} {size // 4:>13}     float     sum      -1 {half} {half}\n"
