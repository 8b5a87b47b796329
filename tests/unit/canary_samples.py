"""Samples of canaries, drawn with the noise that is planned with; what differs is said by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from fleet.canary_cohorts import Cohorts
from fleet.canary_noise import CanaryNoise
from fleet.measures import Better, Conditions, Measure, MeasureKind, NodeTraits, Phase, Sample

BEGIN = datetime(2026, 11, 30, tzinfo=UTC)
HBM = Measure("hbm", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)
ALL_REDUCE = Measure("all_reduce", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)
STEP = Measure("step_time", "s", Better.LOWER, MeasureKind.STEP_TIME)
CLOCK = Measure("sm_clock", "MHz", Better.HIGHER, MeasureKind.SERIES)
XID = Measure("xid", "events", Better.LOWER, MeasureKind.COUNT, 1.0)


def cohorts(size: int = 8, racks: int = 4, controls: int | None = None) -> Cohorts:
    """`size` canary nodes c00…, and controls k00…, dealt over the racks r0…"""
    canary = [f"c{n:02}" for n in range(size)]
    control = [f"k{n:02}" for n in range(size if controls is None else controls)]
    traits = tuple(NodeTraits(n, "HGX-H100", f"r{int(n[1:]) % racks}", "25.1", 400.0) for n in (*canary, *control))
    return Cohorts(tuple(canary), tuple(control), traits=traits)


@dataclass
class Draw:
    """What is so on a node after the change: a loss, conditions; nodes in `silent` give nothing after it."""

    loss: Mapping[str, float] = field(default_factory=dict)
    conditions: Callable[[str, Phase], Conditions] = lambda node, phase: Conditions((), 24.0, 60.0, 700.0, 0)
    silent: frozenset[str] = frozenset()
    drift: float = 0.0
    runs: int = 3
    gpus: int = 8
    seed: int = 1
    noise: CanaryNoise = field(default_factory=CanaryNoise)

    def samples(self, group: Cohorts, measure: Measure = HBM) -> list[Sample]:
        rng = np.random.default_rng(self.seed)
        told = []
        for node in (*group.canary, *group.control):
            level = rng.normal(0, self.noise.node_to_node)
            for phase in Phase:
                moved = rng.normal(0, self.noise.change / np.sqrt(2))
                after = phase is Phase.AFTER
                effect = (np.log1p(-self.loss.get(node, 0.0)) - self.drift) * after
                effect *= 1 if measure.better is Better.HIGHER else -1
                for run in range(self.runs):
                    common = rng.normal(0, self.noise.run_to_run)
                    single = rng.normal(0, self.noise.gpu, self.gpus)
                    if node in self.silent and after:
                        continue
                    at = BEGIN + timedelta(hours=24 * after + run)
                    seen = self.conditions(node, phase)
                    told += [
                        Sample(
                            node,
                            measure.name,
                            phase,
                            at,
                            float(1000 * np.exp(level + moved + effect + common + own)),
                            gpu if measure is HBM else None,
                            run,
                            "",
                            None,
                            seen,
                        )
                        for gpu, own in enumerate(single[: self.gpus if measure is HBM else 1])
                    ]
        return told


def counts(
    group: Cohorts, events: Mapping[str, float], hours: float = 24.0, before: Mapping[str, float] | None = None
) -> list[Sample]:
    """One count per node and phase; nodes that are not named had none."""
    told = []
    for node in (*group.canary, *group.control):
        for phase, had in ((Phase.BEFORE, before or {}), (Phase.AFTER, events)):
            at = BEGIN + timedelta(hours=24 * (phase is Phase.AFTER))
            told.append(Sample(node, XID.name, phase, at, float(had.get(node, 0)), exposure_hours=hours))
    return told


def all_lose(nodes: tuple[str, ...], share: float) -> dict[str, float]:
    return dict.fromkeys(nodes, share)
