"""What nvidia-smi says of the conditions of a measurement: clocks event reasons, temperature, power, processes.

Drivers before 535 know the reasons only as clocks_throttle_reasons; every driver still answers to that name.
Source: `nvidia-smi --help-query-gpu` of drivers 515 to 580; the bits: `fleet.health_limits.read_clock_events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.gpu import GpuReading, SmiReport
from fleet.readers.nvidia_smi_csv import read_nvidia_smi_csv
from fleet.readers.nvidia_smi_table import read_nvidia_smi_table
from fleet.readers.plain_text import evidence, printed

_FIELDS = ("index", "{}.active", "temperature.gpu", "power.limit", "power.draw", "clocks.sm")
_APPS = ("gpu_uuid", "pid", "process_name")
_FORMAT = "--format=csv,noheader,nounits"
_CHARACTERS = 64 * 1024  # a node has tens of GPUs and processes; what is longer is no answer of these queries

NEW_REASONS, OLD_REASONS = "clocks_event_reasons", "clocks_throttle_reasons"
"""The two names of the same mask."""


@dataclass(frozen=True, slots=True)
class GpuConditions:
    """One look at one GPU; None is not known. `slowed` are the reasons that hold its clocks down now."""

    index: int
    slowed: tuple[str, ...] | None = None
    celsius: float | None = None
    power_limit_watts: float | None = None
    power_draw_watts: float | None = None
    sm_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class ConditionsReading:
    """One answer: the GPUs that told something, and what nvidia-smi said instead ("" where it said nothing)."""

    gpus: tuple[GpuConditions, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ForeignProcess:
    """A compute process on a GPU."""

    gpu_uuid: str
    pid: int
    name: str


def conditions_query(reasons: str = NEW_REASONS) -> tuple[str, ...]:
    """The command that `read_conditions` reads; `reasons` is NEW_REASONS or OLD_REASONS."""
    return ("nvidia-smi", f"--query-gpu={','.join(_FIELDS).format(reasons)}", _FORMAT)


def processes_query() -> tuple[str, ...]:
    """The command that `read_processes` reads."""
    return ("nvidia-smi", f"--query-compute-apps={','.join(_APPS)}", _FORMAT)


def is_unknown_field(text: str) -> bool:
    """Whether nvidia-smi refused the query because it does not know a field by that name."""
    return "is not a valid field to query" in text


def read_conditions(text: str) -> ConditionsReading:
    """The answer to `conditions_query`, with or without its heading and units. Never raises."""
    report = _report(text, ", ".join(_FIELDS).format(NEW_REASONS))
    gpus = tuple(_conditions(gpu, gpu.index) for gpu in report.gpus if gpu.index is not None)
    return ConditionsReading(tuple(sorted(gpus, key=lambda gpu: gpu.index)), _problem(text, report, bool(gpus)))


def read_processes(text: str) -> tuple[ForeignProcess, ...] | None:
    """The answer to `processes_query`; None where it is no answer, which is not "none"."""
    report = _report(text, ", ".join(_APPS))
    found = tuple(
        ForeignProcess(gpu.uuid, process.pid, process.name or "?")
        for gpu in report.gpus
        for process in gpu.processes or ()
        if gpu.uuid is not None and process.pid is not None
    )
    lines = [line for line in printed(text).splitlines() if line.strip()]
    quiet = not lines or all("no running" in line.lower() or line.startswith("gpu_uuid") for line in lines)
    return found if found or (quiet and not report.errors) else None


def read_gpu_list(text: str) -> Mapping[int, str]:
    """`nvidia-smi -L`: the UUID of each GPU by nvidia-smi's index; empty where it lists none."""
    gpus = read_nvidia_smi_table(text).gpus
    return {gpu.index: gpu.uuid for gpu in gpus if gpu.index is not None and gpu.uuid is not None}


def _report(text: str, heading: str) -> SmiReport:
    """The rows as if their heading stood above them: it was asked to leave it out."""
    text = text[:_CHARACTERS]
    first = text.lstrip("\ufeff \t\r\n").split(",", 1)[0].strip()
    own = first in ("index", "gpu_uuid")
    return read_nvidia_smi_csv(text if own else f"{heading}\n{text}")


def _conditions(gpu: GpuReading, index: int) -> GpuConditions:
    return GpuConditions(
        index,
        _slowed(gpu),
        None if gpu.temperature_gpu_celsius is None else float(gpu.temperature_gpu_celsius),
        gpu.power_limit_watts,
        gpu.power_draw_watts,
        None if gpu.clock_sm_mhz is None else float(gpu.clock_sm_mhz),
    )


def _slowed(gpu: GpuReading) -> tuple[str, ...] | None:
    """None where the mask was not told. Idle clocks, application clocks and sync boost are settings, no hindrance."""
    told = (
        ("sw_power_cap", gpu.event_sw_power_cap),
        ("hw_slowdown", gpu.event_hw_slowdown),
        ("sw_thermal", gpu.event_sw_thermal_slowdown),
        ("hw_thermal", gpu.event_hw_thermal_slowdown),
        ("hw_power_brake", gpu.event_hw_power_brake),
    )
    if any(is_so is None for _, is_so in told):
        return None
    return tuple(name for name, is_so in told if is_so)


def _problem(text: str, report: SmiReport, answered: bool) -> str:
    if report.errors:
        return evidence(report.errors[0].line)
    if answered:
        return ""
    return evidence(text) or "nvidia-smi printed nothing"
