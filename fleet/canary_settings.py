"""The fleet file's `canary`: how sure a verdict on a change must be, and what is measured with which commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from fleet.measure_readers.json_value import path_steps
from fleet.measures import Better, Measure, MeasureKind
from fleet.setting_types import Name, Seconds, Strict

if TYPE_CHECKING:
    from fleet.canary_design import CanaryDesign

Chance = Annotated[float, Field(gt=0, lt=1)]
Words = Annotated[tuple[str, ...], Field(min_length=1)]

GEMM = Measure("gemm", "GFLOP/s", Better.HIGHER, MeasureKind.BENCHMARK)
HBM_BANDWIDTH = Measure("hbm_bandwidth", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)
HOST_TO_DEVICE = Measure("host_to_device", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)
ALL_REDUCE = Measure("all_reduce", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)

BUILT_IN = (HBM_BANDWIDTH, HOST_TO_DEVICE, ALL_REDUCE, GEMM)
"""The benchmarks that we bring; the order is that of a run, in which the one that heats most comes last."""


class MeasureSettings(Strict):
    measured: bool = Field(True, description="false: this benchmark is left out")
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="the loss that is accepted, 0.02 for 2 %; none: canary.margin"
    )


class OwnCommand(Strict):
    """A command of the operator's that prints JSON with one number, or with one for each GPU."""

    command: Words = Field(description="run as it stands, without a shell")
    json_path: str = Field(description="where the number is: results[0].bandwidth")
    unit: Annotated[str, StringConstraints(max_length=24)] = ""
    better: Better = Better.HIGHER
    per_gpu: bool = Field(False, description="json_path leads to a list with a number for each GPU")
    cool: bool = Field(True, description="wait before it until the GPUs are cool")
    timeout_seconds: float = Field(300.0, gt=0, le=7200)

    @field_validator("json_path")
    @classmethod
    def _a_path(cls, path: str) -> str:
        path_steps(path)
        return path


class ToolSettings(Strict):
    """How the tools are called on the hosts; words before a name (env …, a container's) are allowed."""

    nvbandwidth: Words = ("nvbandwidth",)
    all_reduce_perf: Words = ("all_reduce_perf",)
    dcgmproftester: tuple[Words, ...] = Field(
        (("dcgmproftester13",), ("dcgmproftester12",), ("dcgmproftester11",)),
        description="tried in this order; it must fit the CUDA version of the driver",
        min_length=1,
    )
    across_cuda_versions: bool = Field(
        False,
        description="compare gemm though another dcgmproftester measures after the change: its libraries differ too",
    )
    all_reduce_bytes: Annotated[str, StringConstraints(pattern=r"^[1-9]\d{0,12}[KMG]?$")] = "8G"
    gemm_seconds: int = Field(10, ge=5, le=600)


class CanarySettings(Strict):
    """`miss` and `power` are as in `fleet.canary_design.CanaryDesign`."""

    alpha: Chance = Field(0.01, description="how often a change that loses nothing may be failed, whole canary")
    miss: Chance = Field(0.05, description="how often a change that loses a margin in one measure may pass in it")
    margin: Chance = Field(0.02, description="the loss that is accepted where a measure has no margin of its own")
    loss: Chance = Field(0.05, description="the loss that must be found; the plan's size follows from it")
    power: Chance = Field(0.95, description="how often that loss must be found")
    runs: int = Field(3, ge=1, le=50, description="of each benchmark, on each node, before and after")
    looks: int = Field(3, ge=1, le=20, description="at the data while it bakes; more looks cost power")
    bake_hours: float = Field(24.0, ge=0, allow_inf_nan=False, description="watched under jobs after the change")
    measures: dict[Name, MeasureSettings] = Field({}, description="by name: on or off, and a margin of its own")
    commands: dict[Name, OwnCommand] = Field({}, description="measures of your own, by name")
    tools: ToolSettings = ToolSettings()
    cool_within_celsius: float = Field(5.0, ge=0, le=50, description="of a GPU's idle temperature, before a test")
    cool_seconds: Seconds = Field(300.0, description="the longest wait for that, and for a GPU without processes")
    cool_poll_seconds: float = Field(10.0, gt=0, le=300, description="between two looks while it waits")
    look_seconds: float = Field(1.0, gt=0, le=60, description="between two looks at the GPUs while a test runs")

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        taken = {measure.name for measure in BUILT_IN} & self.commands.keys()
        if taken:
            raise ValueError(f"commands: {', '.join(sorted(taken))} is a measure that we bring; give another name")
        return self

    def margined(self, measure: Measure) -> Measure | None:
        """The measure with this fleet's margin; None where it is switched off."""
        own = self.measures.get(measure.name, MeasureSettings())
        if not own.measured:
            return None
        margin = self.margin if measure.kind is not MeasureKind.COUNT else measure.margin
        margin = margin if own.margin is None else own.margin
        return Measure(measure.name, measure.unit, measure.better, measure.kind, margin)

    def unknown_measures(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Names under `measures` that are neither among `known` (series, counts) nor benchmarks: slips of the pen."""
        benchmarks = {measure.name for measure in BUILT_IN}
        return tuple(sorted(self.measures.keys() - benchmarks - self.commands.keys() - set(known)))

    def design(self, measures: tuple[Measure, ...]) -> CanaryDesign:
        """The rules of a canary with these measures. Raises ConfigurationError for what cannot be."""
        from fleet.canary_design import CanaryDesign  # it brings scipy, which reading a fleet file must not wait for

        shares = tuple((look + 1) / self.looks for look in range(self.looks))
        return CanaryDesign(measures, self.alpha, self.miss, self.power, shares, self.runs)
