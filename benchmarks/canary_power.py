"""The driver canary's error rates, by simulation of whole canaries through the judge that operators use.

    python -m benchmarks.canary_power --canaries 2000

Nodes have 8 GPUs, levels that differ, sessions that differ, noisy repetitions, inlets that warm with their rack, a
usual power cap in the GEMM, and errors that come in bursts. Four benchmarks and two counts are looked at three times.
First nothing changes (A/A): each fail is a false alarm. Then one measure loses 5 %; then a lost setting costs 9 % of
the all-reduce; then a driver makes nodes report errors. Last come power curves of one measure by loss and size.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from scipy.special import betaincinv

from fleet.canary import judge_canary
from fleet.canary_cohorts import Cohorts, plan_cohorts
from fleet.canary_design import CanaryDesign
from fleet.canary_measure import Levels, judge_change
from fleet.canary_noise import CanaryNoise
from fleet.canary_power import chance_to_find, size_for
from fleet.canary_table import NodeChange
from fleet.canary_verdict import CanaryVerdict, Outcome
from fleet.measures import Better, Cohort, Conditions, Measure, MeasureKind, NodeTraits, Phase, Sample

GPUS = 8
RUNS = 3
LOOKS = (1 / 3, 2 / 3, 1.0)
HOURS = 48.0
NOISE = CanaryNoise()
GEMM = Measure("gemm", "GFLOP/s", Better.HIGHER, MeasureKind.BENCHMARK)
ALL_REDUCE = Measure("all_reduce", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK)
BENCHMARKS = (
    GEMM,
    Measure("hbm", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK),
    ALL_REDUCE,
    Measure("host_to_device", "GB/s", Better.HIGHER, MeasureKind.BENCHMARK),
)
COUNTS = (
    Measure("xid", "events", Better.LOWER, MeasureKind.COUNT, 1.0),
    Measure("pcie_replay", "events", Better.LOWER, MeasureKind.COUNT, 1.0),
)
BURST_CHANCE_PER_HOUR = 0.001
BURST_EVENTS = 8
DESIGN = CanaryDesign(measures=(*BENCHMARKS, *COUNTS), looks=LOOKS, runs=RUNS)
BEGIN = datetime(2026, 11, 30, tzinfo=UTC)
LOSSES = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.09)
SIZES = (4, 6, 8, 12, 16, 32)


@dataclass(frozen=True, slots=True)
class Change:
    """What the change does to canary nodes: the shares that measures lose, and errors of its own per node-hour."""

    losses: tuple[tuple[str, float], ...] = ()
    errors_per_node_hour: float = 0.0
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Of many canaries."""

    canaries: int
    outcomes: dict[str, int]
    reasons: dict[str, int]
    measures_failed: dict[str, int]
    causes: dict[str, int]
    seconds: float


def cohorts_of(size: int, seed: int) -> Cohorts:
    """Chosen from twelve racks of eight nodes of one model with two firmwares."""
    traits = [
        NodeTraits(f"gpu{number:03}", "HGX-H100", f"r{number // 8:02}", "25.1" if number % 3 else "24.9", 400.0)
        for number in range(96)
    ]
    return plan_cohorts(traits, size, seed)


class World:
    """One canary's nodes: draws samples of a phase, repetition by repetition."""

    def __init__(self, cohorts: Cohorts, change: Change, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.cohorts, self.change = cohorts, change
        self.nodes = (*cohorts.canary, *cohorts.control)
        racks = {one.node: one.rack for one in cohorts.traits}
        names = sorted(set(racks.values()))
        self.rack = np.array([names.index(racks[node]) for node in self.nodes])
        shape = (len(BENCHMARKS), len(self.nodes))
        self.level = self.rng.normal(0, NOISE.node_to_node, shape)
        self.own = self.rng.normal(0, NOISE.node_to_node / 2, (*shape, GPUS))
        self.session = {phase: self.rng.normal(0, NOISE.change / np.sqrt(2), shape) for phase in Phase}
        warmth = self.rng.normal(0, 1.5, len(names)) + self.rng.normal(0, 2.0)
        here = self.rng.normal(0, 0.5, len(self.nodes))
        self.inlet = {Phase.BEFORE: np.full(len(self.nodes), 24.0), Phase.AFTER: 24 + warmth[self.rack] + here}
        losses = dict(change.losses)
        lost = [np.log1p(-losses.get(measure.name, 0.0)) for measure in BENCHMARKS]
        canary = np.arange(len(self.nodes)) < len(cohorts.canary)
        self.effect = {Phase.BEFORE: np.zeros(shape), Phase.AFTER: np.outer(lost, canary)}
        self.sick = {Phase.BEFORE: np.zeros(len(self.nodes)), Phase.AFTER: canary * change.errors_per_node_hour}

    def samples(self, phase: Phase, run: int) -> list[Sample]:
        """One repetition of all benchmarks, and a third of the day's counts."""
        rng, count = self.rng, len(self.nodes)
        common = rng.normal(0, NOISE.run_to_run, (len(BENCHMARKS), count))
        single = rng.normal(0, NOISE.gpu, (len(BENCHMARKS), count, GPUS))
        inlet = self.inlet[phase] + rng.normal(0, 0.2, count)
        node = self.level + self.session[phase] + self.effect[phase] + common - NOISE.heat * (inlet - 24)
        values = 1000 * np.exp(node[:, :, None] + self.own + single)
        at = BEGIN + timedelta(hours=8 * run + (0 if phase is Phase.BEFORE else 48))
        told: list[Sample] = []
        for number, name in enumerate(self.nodes):
            calm = Conditions((), float(inlet[number]), 70.0, 700.0, 0)
            capped = Conditions(("sw_power_cap",), float(inlet[number]), 70.0, 700.0, 0)
            for place, measure in enumerate(BENCHMARKS):
                seen = capped if measure is GEMM else calm
                gpus = [None] if measure is ALL_REDUCE else range(GPUS)
                told += [
                    Sample(
                        name, measure.name, phase, at, float(values[place, number, gpu or 0]), gpu, run, "", None, seen
                    )
                    for gpu in gpus
                ]
            told += self._counts(name, number, phase, run, at)
        return told

    def _counts(self, name: str, number: int, phase: Phase, run: int, at: datetime) -> list[Sample]:
        hours = HOURS / RUNS
        told = []
        for place, measure in enumerate(COUNTS):
            bursts = self.rng.poisson(BURST_CHANCE_PER_HOUR * hours)
            events = int(self.rng.poisson(BURST_EVENTS, bursts).sum())
            if place == 0:
                events += int(self.rng.poisson(self.sick[phase][number] * hours))
            told.append(Sample(name, measure.name, phase, at, float(events), None, run, "", hours))
        return told


def run_canary(size: int, change: Change, seed: int) -> CanaryVerdict:
    """All looks of one canary, until it fails; a pass is looked at again, as waves are."""
    cohorts = cohorts_of(size, seed)
    world = World(cohorts, change, seed)
    samples = [one for run in range(RUNS) for one in world.samples(Phase.BEFORE, run)]
    lost = dict.fromkeys(cohorts.canary, (change.setting,)) if change.setting else {}
    verdicts: list[CanaryVerdict] = []
    for look in range(1, len(LOOKS) + 1):
        samples += world.samples(Phase.AFTER, look - 1)
        verdicts.append(judge_canary(DESIGN, cohorts, samples, lost, look, verdicts))
        if verdicts[-1].outcome is Outcome.FAIL:
            break
    return verdicts[-1]


def many(size: int, change: Change, canaries: int, seed: int) -> Result:
    begin = time.perf_counter()
    outcomes, reasons, failed, causes = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for number in range(canaries):
        verdict = run_canary(size, change, seed + number)
        outcomes[verdict.outcome.value] += 1
        reasons[verdict.why.value] += 1
        causes[verdict.cause.kind.value] += 1
        failed.update(one.name for one in verdict.measures if one.outcome is Outcome.FAIL)
    spent = time.perf_counter() - begin
    return Result(canaries, dict(outcomes), dict(reasons), dict(failed), dict(causes), round(spent, 1))


def curve(loss: float, size: int, canaries: int, rng: np.random.Generator) -> tuple[float, float]:
    """Shares of single measures that failed and that passed at the last look, node changes drawn as planned with."""
    level = Levels(DESIGN.fail_level(LOOKS), DESIGN.pass_level(LOOKS))
    names = [f"n{number}" for number in range(2 * size)]
    cohorts = Cohorts(tuple(names[:size]), tuple(names[size:]))
    counted = Counter[Outcome]()
    for _ in range(canaries):
        gains = rng.normal(0, NOISE.of_pair(RUNS), 2 * size)
        gains[:size] += np.log1p(-loss)
        warmth = rng.normal(0, 1.5, 2 * size)
        rows = [
            NodeChange(name, cohort, float(gain - NOISE.heat * warm), (), (), float(warm), True, False, ())
            for name, gain, warm, cohort in zip(names, gains, warmth, _sides(size), strict=True)
        ]
        counted[judge_change(DESIGN, GEMM, rows, cohorts, level, {}).outcome] += 1
    return counted[Outcome.FAIL] / canaries, counted[Outcome.PASS] / canaries


def curves(canaries: int, seed: int) -> list[dict[str, float]]:
    """Print the curves of all losses and sizes, and return their points."""
    rng = np.random.default_rng(seed)
    points: list[dict[str, float]] = []
    print("\nfound / passed, by loss (rows) and nodes per cohort; in brackets what the power analysis says")
    print("loss   " + "".join(f"{size:>24}" for size in SIZES))
    for loss in LOSSES:
        cells = []
        for nodes in SIZES:
            found, passed = curve(loss, nodes, canaries, rng)
            said = chance_to_find(loss, nodes, RUNS, NOISE, DESIGN.alpha, len(DESIGN.measures), LOOKS, GEMM.margin)
            points.append({"loss": loss, "nodes": nodes, "found": found, "passed": passed, "planned": round(said, 4)})
            cells.append(f"{found:8.3f} ({said:.3f}) {passed:.3f}")
        print(f"{loss:5.0%}  " + "".join(f"{cell:>24}" for cell in cells), flush=True)
    return points


def _sides(size: int) -> list[Cohort]:
    return [Cohort.CANARY] * size + [Cohort.CONTROL] * size


def _upper(events: int, of: int) -> float:
    """What the true share is below, with 95 % confidence (Clopper-Pearson)."""
    return float(betaincinv(events + 1, of - events, 0.95)) if events < of else 1.0


def _line(name: str, size: int, result: Result) -> str:
    outcomes = ", ".join(f"{word} {result.outcomes.get(word, 0)}" for word in ("pass", "fail", "inconclusive"))
    return f"{name:34} {size:3} nodes  {result.canaries:5} canaries  {outcomes}  ({result.reasons}) {result.seconds} s"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--canaries", type=int, default=2000)
    parser.add_argument("--curve", type=int, default=400, help="canaries for each point of the curves")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    given = parser.parse_args(arguments)
    planned = size_for(0.05, NOISE, 0.95, DESIGN.alpha, len(DESIGN.measures), LOOKS, runs=(RUNS,))
    print(f"planned for a loss of 5 % and power 95 %: {planned.nodes} nodes per cohort, {planned.runs} runs")
    size, some = max(planned.nodes, 4), max(given.canaries // 4, 1)
    cases = {
        "nothing changed (A/A)": (Change(), given.canaries),
        "2 % lost in all four, the margin": (Change(tuple((one.name, 0.02) for one in BENCHMARKS)), some),
        "5 % lost in hbm": (Change((("hbm", 0.05),)), some),
        "5 % lost in all_reduce": (Change((("all_reduce", 0.05),)), some),
        "9 % of all_reduce, setting lost": (Change((("all_reduce", 0.09),), setting="power_limit"), some),
        "an error per node in 8 h": (Change(errors_per_node_hour=1 / 8), some),
    }
    results = {}
    for name, (change, canaries) in cases.items():
        results[name] = many(size, change, canaries, given.seed)
        print(_line(name, size, results[name]), flush=True)
    alarms = results["nothing changed (A/A)"].outcomes.get("fail", 0)
    print(
        f"false alarms: {alarms} of {given.canaries}, below {_upper(alarms, given.canaries):.2%} with 95 % confidence"
    )
    points = curves(given.curve, given.seed)
    if given.json:
        told = {"size": asdict(planned), "cases": {name: asdict(one) for name, one in results.items()}, "curve": points}
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
