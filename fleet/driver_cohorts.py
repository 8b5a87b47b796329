"""Who is measured in each wave of a driver rollout, how many it takes, and what the change leaves incomparable."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from fleet.canary_cohorts import Cohorts, match_controls
from fleet.canary_compare import FEWEST_NODES
from fleet.canary_noise import CanaryNoise
from fleet.canary_power import CanarySize, size_for, smallest_detectable
from fleet.canary_settings import CanarySettings, MeasureSettings
from fleet.catalog_data import load_catalog
from fleet.driver_cost import ControlCost
from fleet.drivers import parse_driver
from fleet.measure_plan import benchmark_measures, not_comparable
from fleet.measures import NodeTraits
from fleet.plan import Wave
from fleet.setting_types import Strict

_BENCHMARK_SECONDS = 15.0  # one run of one measure on all GPUs of a node, as the tools are called


class WaveCohorts(Strict):
    """The nodes of one wave that are measured, and those that are measured beside them and not changed.

    `smallest_detectable` is the loss, as a share, that this many nodes find with the policy's power; None: none.
    `cost` is what measuring the controls takes; None where the plan does not tell.
    """

    measured: tuple[str, ...]
    controls: tuple[str, ...]
    smallest_detectable: float | None
    notes: tuple[str, ...] = ()
    cost: ControlCost | None = None


def without(settings: CanarySettings, names: Sequence[str]) -> CanarySettings:
    """The settings with these benchmarks switched off."""
    off = {
        name: settings.measures.get(name, MeasureSettings()).model_copy(update={"measured": False}) for name in names
    }
    return settings.model_copy(update={"measures": {**settings.measures, **off}})


def incomparable(settings: CanarySettings, to: str, former: Sequence[str | None]) -> tuple[str, ...]:
    """Benchmarks that cannot be run by one tool on both drivers; a driver of unknown CUDA version counts as another."""
    then = cuda_major(to) or 0
    found = [measure.name for now in former for measure in not_comparable(settings, cuda_major(now) or -1, then)]
    return tuple(dict.fromkeys(found))


def cuda_major(driver: str | None) -> int | None:
    """The newest CUDA that the driver's branch speaks, by the catalogue; None where that is not known."""
    found = None if driver is None else parse_driver(driver)
    branch = None if found is None else load_catalog().branches.get(found.branch)
    return None if branch is None else branch.max_cuda_major


def planned_size(settings: CanarySettings, series: int) -> CanarySize:
    """What the error rates ask for, with `series` measures beside the benchmarks. Raises ConfigurationError."""
    measures = benchmark_measures(settings, None)
    return size_for(
        settings.loss,
        CanaryNoise(),
        settings.power,
        settings.alpha,
        len(measures) + series,
        settings.design(measures).looks,
        margin=max(measure.margin for measure in measures),
        miss=settings.miss,
        runs=(settings.runs,),
    )


def wave_cohorts(
    waves: Sequence[Wave],
    serving: Mapping[str, str],
    traits: Mapping[str, NodeTraits],
    settings: CanarySettings,
    size: CanarySize,
    seed: int,
    series: int,
) -> dict[int, WaveCohorts]:
    """By wave number. Controls are not changed while a wave runs: later waves' nodes, or earlier ones'.

    `serving` has the pool of each node that has the release already. `series`: how many measures are series.
    """
    found: dict[int, WaveCohorts] = {}
    pool_of = {node: wave.pool for wave in waves for node in wave.nodes} | dict(serving)
    for wave in waves:
        order = sorted(wave.nodes)
        random.Random(seed + wave.number).shuffle(order)  # noqa: S311 - not a secret
        measured = tuple(sorted(order[: size.nodes]))
        others = [n for n, pool in pool_of.items() if pool == wave.pool and n not in wave.nodes]
        known = [traits[node] for node in (*measured, *others)]
        matched = match_controls(measured, known, seed) if others else Cohorts(measured, ())
        found[wave.number] = WaveCohorts(
            measured=measured,
            controls=tuple(sorted(matched.control)),
            smallest_detectable=_detectable(settings, min(len(measured), len(matched.control)), series),
            notes=_notes(wave, matched, bool(others)),
        )
    return found


def _notes(wave: Wave, matched: Cohorts, has_others: bool) -> tuple[str, ...]:
    notes = list(matched.notes) if has_others else [f"no node of pool {wave.pool} is left to be a control"]
    if min(len(matched.canary), len(matched.control)) < FEWEST_NODES:
        notes.append("too few nodes for a verdict: it goes on whatever was measured, and only its health is watched")
    return tuple(notes)


def _detectable(settings: CanarySettings, nodes: int, series: int) -> float | None:
    measures = benchmark_measures(settings, None)
    if nodes < FEWEST_NODES:
        return None
    return smallest_detectable(
        nodes,
        settings.runs,
        CanaryNoise(),
        settings.power,
        settings.alpha,
        len(measures) + series,
        settings.design(measures).looks,
        margin=max(measure.margin for measure in measures),
    )


def measuring_seconds(settings: CanarySettings) -> float:
    """About how long one node is measured in one phase."""
    return settings.runs * len(benchmark_measures(settings, None)) * _BENCHMARK_SECONDS
