"""The one-node site of `site_fakes` with a host that has the measuring tools, and an operation that measures it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unit.measure_texts import all_reduce, nvbandwidth_json, proftester
from unit.site_fakes import SPEC, Answer, FakeHost, Site

from fleet.measures import Phase
from fleet.model import SystemReading
from fleet.ports import Bmc
from tasks.measurement import Measuring, measure_visit
from tasks.node import VisitResult
from tasks.scheduler import wait_until_empty

NODE = "gpu-0001"
GPUS = 8
VALUES = 3 * GPUS + 1
"""What one run of every benchmark gives on a node of eight GPUs."""

HBM, HOST_DEVICE = "nvbandwidth device_local_copy", "nvbandwidth host_to_device_memcpy_ce"
ALL_REDUCE, GEMM = "all_reduce_perf", "dcgmproftester12"
MISSING = Answer(127, "", "sh: 1: not found\n")

Tool = Answer | Callable[[], Answer]


class ToolHost(FakeHost):
    """Eight idle, cool GPUs. `ran` are the tools that were begun, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []
        self.prefixes: set[tuple[str, ...]] = set()
        self.tools: dict[str, Tool] = {
            HBM: Answer(0, nvbandwidth_json([2900.0 + gpu for gpu in range(GPUS)])),
            HOST_DEVICE: Answer(0, nvbandwidth_json([55.0] * GPUS, "host_to_device_memcpy_ce")),
            ALL_REDUCE: Answer(0, all_reduce()),
            GEMM: Answer(0, proftester([["7e+05"] * 5] * GPUS)),
        }

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
        words = arguments[2:] if arguments[0] == "sudo" else arguments
        if words[0] == "nvidia-smi":
            return self._nvidia_smi(words[1])
        self.prefixes.add(arguments[: len(arguments) - len(words)])
        name = f"{words[0]} {words[-1]}" if words[0] == "nvbandwidth" else words[0]
        self.ran.append(name)
        tool = self.tools.get(name, MISSING)
        return tool() if callable(tool) else tool

    def _nvidia_smi(self, query: str) -> Answer:
        if query == "-L":
            return Answer(0, self.listed)
        if query.startswith("--query-compute-apps"):
            return Answer(0, "")
        return Answer(0, "".join(f"{gpu}, 0x0000000000000001, 30, 700.00, 80.0, 1980\n" for gpu in range(GPUS)))


class InletBmc:
    """A BMC that also tells the air at its inlet; all else is the given one's."""

    def __init__(self, bmc: Bmc, read: Callable[[], float | None]) -> None:
        self._bmc = bmc
        self._read = read
        self.asked = 0

    def read_inlet_celsius(self) -> float | None:
        self.asked += 1
        return self._read()

    def read_system(self) -> SystemReading:
        return self._bmc.read_system()

    def close(self) -> None:
        """Nothing is kept open."""


class MeasuredSite(Site):
    """`measure` is one visit by a new runner, which takes over from any before it."""

    def __init__(self, folder: Path, text: str = SPEC) -> None:
        super().__init__(folder, text)
        self._folder = folder
        self.fake_host = self.tool_host = ToolHost()
        self.operation = self.new_operation()

    def folder(self) -> Path:
        return self._folder

    def new_operation(self) -> str:
        made = self.ledger().operations.create("measurement", "{}", "d" * 64, "tester").id
        self.ledger().operations.add_nodes(made, [(NODE, 1, 0)])
        return made

    def release(self) -> None:
        """What the wave does with a lease once the visit is over."""
        token = self.ledger().operations.get(self.operation).token
        self.ledger().leases.release(self.operation, token, NODE)

    def measure(self, runs: int = 1, phase: Phase = Phase.BEFORE, before: str | None = None) -> VisitResult:
        measuring = Measuring(phase, runs, self.spec().canary, before)
        return measure_visit(self.new_visit(), measuring, wait_until_empty.fn)

    def steps(self) -> list[str]:
        """The journal's steps on the node, in order."""
        return [entry.step for entry in self.ledger().journal.entries(self.operation, NODE)]
