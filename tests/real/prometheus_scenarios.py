"""Fleets of 16 canary and 16 control nodes with 8 GPUs each, as dcgm-exporter would have told of them.

A driver change from 570 to 580 on the canaries lies between two hours, each read as two runs. Nodes, GPUs and runs
differ by honest noise: 0.4 % between nodes, 0.3 % between GPUs, 0.1 % between a node's runs, 0.5 % from point to point.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from fleet.measures import Cohort, NodeTraits, Phase
from fleet.metrics_settings import MetricsSettings
from fleet.series import PhaseWindow, SeriesReading

BEGAN = datetime(2026, 3, 2, tzinfo=UTC)
STEP_SECONDS = 120
Reader = Callable[..., SeriesReading]
"""The reading of a scenario's measures, by name; of the busy clock where none is named."""
GPUS = 8
CANARIES = tuple(f"gpu{number:03}" for number in range(1, 17))
CONTROLS = tuple(f"gpu{number:03}" for number in range(17, 33))
NODES = (*CANARIES, *CONTROLS)
BUSY_CLOCK_MHZ = 1755.0

_MINUTE = timedelta(minutes=1)
WINDOWS = tuple(
    PhaseWindow(phase, BEGAN + first * _MINUTE, BEGAN + (first + 30) * _MINUTE, run)
    for phase, run, first in ((Phase.BEFORE, 0, 0), (Phase.BEFORE, 1, 30), (Phase.AFTER, 0, 80), (Phase.AFTER, 1, 110))
)
_CHANGED = (BEGAN + 70 * _MINUTE).timestamp()
_DOWN = ((BEGAN + 60 * _MINUTE).timestamp(), (BEGAN + 72 * _MINUTE).timestamp())
_ENDS = (BEGAN + 140 * _MINUTE).timestamp()
REBOOTED = BEGAN + 100 * _MINUTE
"""When the first canary of scenario `resets` boots once more."""
_HW_THERMAL, _NONE = 0x40, 0x0


@dataclass(frozen=True)
class Scenario:
    """What is so in it. Shares are of the busy clock.

    `loss` after the change on canaries, `drift` from the first to the last point on all nodes, `bad_rack` after the
    change on all nodes of rack r4, `throttled` after the change on controls, by heat. `silent` canaries have no series
    after the change. `counters`: PCIe replays, ECC and Xids are there, and begin again at 0 with the driver's load.
    `renamed`: the change brings an exporter with other names, units and labels too.
    """

    name: str
    loss: float = 0.0
    drift: float = 0.0
    bad_rack: float = 0.0
    throttled: float = 0.0
    silent: int = 0
    counters: bool = False
    renamed: bool = False


SCENARIOS = (
    Scenario("clean", renamed=True),
    Scenario("loss", loss=0.03),
    Scenario("drift", drift=0.04),
    Scenario("rack", bad_rack=0.06),
    Scenario("missing", silent=12),
    Scenario("resets", counters=True),
    Scenario("throttled", loss=0.03, throttled=0.05),
)


def settings_for(scenario: str, url: str) -> MetricsSettings:
    """How this scenario's series are read."""
    inlet = 'ipmi_temperature_celsius{name="Inlet Temp"}'
    return MetricsSettings(url=url, step_seconds=STEP_SECONDS, matchers={"fleet": scenario}, inlet=inlet)


def cohort_of(node: str) -> Cohort:
    return Cohort.CANARY if node in CANARIES else Cohort.CONTROL


def cohorts() -> dict[str, Cohort]:
    return {node: cohort_of(node) for node in NODES}


def rack_of(node: str) -> str:
    """Four racks, with as many canaries as controls in each."""
    return f"r{NODES.index(node) % 4 + 1}"


def traits() -> tuple[NodeTraits, ...]:
    return tuple(NodeTraits(node, "HGX H100 8-GPU", rack_of(node), "1.2.0", 400.0) for node in NODES)


def openmetrics(scenarios: tuple[Scenario, ...] = SCENARIOS) -> Iterator[str]:
    """Every sample of the scenarios as OpenMetrics lines; the label `fleet` tells them apart."""
    for scenario in scenarios:
        noise = np.random.default_rng(zlib.crc32(scenario.name.encode()))
        for node in NODES:
            yield from _node_lines(scenario, node, noise)


def _node_lines(scenario: Scenario, node: str, noise: np.random.Generator) -> Iterator[str]:
    times = np.arange(BEGAN.timestamp() + 7, _ENDS + 1, STEP_SECONDS)
    if node in CANARIES:
        times = times[(times < _DOWN[0]) | (times > _DOWN[1])]
        if CANARIES.index(node) < scenario.silent:
            times = times[times < _CHANGED]
    yield from _sensors(scenario, node, noise)
    course = (1 + noise.normal(0, 0.004)) * _course(scenario, node, times)
    for run in range(int((_ENDS - BEGAN.timestamp()) // 1800) + 1):
        course[(times - BEGAN.timestamp()) // 1800 == run] *= 1 + noise.normal(0, 0.001)
    for gpu in range(GPUS):
        yield from _gpu_lines(scenario, node, gpu, times, course * (1 + noise.normal(0, 0.003)), noise)


def _sensors(scenario: Scenario, node: str, noise: np.random.Generator) -> Iterator[str]:
    """The inlet's and the outlet's temperature, as a remote IPMI exporter tells them every five minutes."""
    labels = f'fleet="{scenario.name}",instance="{node}:9290"'
    for time in np.arange(BEGAN.timestamp() + 20, _ENDS, 300).tolist():
        celsius = 23 + noise.normal(0, 0.4)
        yield f'ipmi_temperature_celsius{{{labels},name="Inlet Temp"}} {celsius:.1f} {time:.0f}'
        yield f'ipmi_temperature_celsius{{{labels},name="Exhaust Temp"}} {celsius + 15:.1f} {time:.0f}'


def _course(scenario: Scenario, node: str, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """The busy clock of a node as a share of what it should be."""
    after = times > _CHANGED
    course = 1 - scenario.drift * (times - BEGAN.timestamp()) / (_ENDS - BEGAN.timestamp())
    course[after & (node in CANARIES)] *= 1 - scenario.loss
    course[after & (node in CONTROLS)] *= 1 - scenario.throttled
    course[after & (rack_of(node) == "r4")] *= 1 - scenario.bad_rack
    return course


def _gpu_lines(
    scenario: Scenario,
    node: str,
    gpu: int,
    times: NDArray[np.float64],
    course: NDArray[np.float64],
    noise: np.random.Generator,
) -> Iterator[str]:
    clocks = BUSY_CLOCK_MHZ * course * (1 + noise.normal(0, 0.005, len(times)))
    resting = noise.random(len(times)) < 0.1
    clocks[resting] = 345.0
    use = np.where(resting, 0.0, noise.integers(96, 101, len(times)))
    heated = (times > _CHANGED) & (scenario.throttled > 0) & (node in CONTROLS)
    masks = np.where(heated, _HW_THERMAL, _NONE)
    old, new = _labels(scenario, node, gpu, changed=False), _labels(scenario, node, gpu, changed=True)
    renamed = scenario.renamed and node in CANARIES
    for time, clock, busy, mask in zip(times.tolist(), clocks.tolist(), use.tolist(), masks.tolist(), strict=True):
        labels, new_names = (new, renamed) if time > _CHANGED else (old, False)
        if new_names:
            yield f"DCGM_FI_DEV_SM_CLOCK_HERTZ{{{labels}}} {round(clock) * 1e6:.0f} {time:.0f}"
            yield f"DCGM_FI_DEV_GPU_UTIL_RATIO{{{labels}}} {busy / 100:g} {time:.0f}"
        else:
            yield f"DCGM_FI_DEV_SM_CLOCK{{{labels}}} {clock:.0f} {time:.0f}"
            yield f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {busy:g} {time:.0f}"
        yield f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{labels}}} {mask} {time:.0f}"
    if scenario.counters:
        yield from _counters(node, gpu, times, (old, new), noise)


def _labels(scenario: Scenario, node: str, gpu: int, changed: bool) -> str:
    canary = node in CANARIES
    driver = "580.95.05" if changed and canary else "570.124.06"
    host, label = (
        ("hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION")
        if changed and canary and scenario.renamed
        else (
            "Hostname",
            "DCGM_FI_DRIVER_VERSION",
        )
    )
    number = NODES.index(node) * GPUS + gpu
    return (
        f'fleet="{scenario.name}",{host}="{node}.example.net",gpu="{gpu}",'
        f'UUID="GPU-00000000-0000-4000-8000-{number:012}",modelName="NVIDIA H100 80GB HBM3",{label}="{driver}"'
    )


def counted(node: str, gpu: int) -> int:
    """How many PCIe replays each of the two hours brings in scenario `resets`: the same before and after."""
    return 4 + (NODES.index(node) + gpu) % 5


def _counters(
    node: str, gpu: int, times: NDArray[np.float64], labels: tuple[str, str], noise: np.random.Generator
) -> Iterator[str]:
    """PCIe replays from a high level, which the driver's load takes back to 0; ECC at 0; no Xid but one old one."""
    old_xid = 43 if gpu == 5 else 0
    for first, last, named, level, xid in (
        (BEGAN.timestamp(), _CHANGED, labels[0], 4000, old_xid),
        (_CHANGED, _ENDS + 1, labels[1], 0 if node in CANARIES else 4100, 0 if node in CANARIES else old_xid),
    ):
        window = [w for w in WINDOWS if first <= w.start.timestamp() < last]
        start, end = window[0].start.timestamp() + STEP_SECONDS, window[-1].end.timestamp()
        events = np.sort(noise.uniform(start + STEP_SECONDS, end - STEP_SECONDS, counted(node, gpu)))
        for time in times[(times > first) & (times < last)].tolist():
            booted = REBOOTED.timestamp() if node == CANARIES[0] and time > REBOOTED.timestamp() else None
            past = events <= time if booted is None else (events <= time) & (events > booted)
            replays = (level if booted is None else 0) + int(past.sum())
            yield f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{named}}} {replays} {time:.0f}"
            yield f"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{{named}}} 0 {time:.0f}"
            yield f"DCGM_FI_DEV_XID_ERRORS{{{named}}} {xid} {time:.0f}"
