"""How often the cohort rule of acceptance accuses healthy parts, and how often it finds faulty ones, by simulation.

    python -m benchmarks.acceptance_rates --racks 1000

A rack has 8 nodes of 8 GPUs of one model, or is a single node of 8 or of 4. A value is the model's times a node's own
level, a GPU's own level and a run's noise, each normal in its logarithm; a fault takes its share off. Every rack goes
through the judge that operators use: the comparison alone for the rates, the whole verdict for what is named. In
brackets: the bound below which the true rate lies with 95 % confidence, where it is an error (Clopper-Pearson).
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import betaincinv

from fleet.acceptance import judge_acceptance
from fleet.acceptance_cohort import CohortCall, CohortResult, Member, Standing, compare
from fleet.acceptance_evidence import NodeEvidence, PartValue, RunEvidence
from fleet.acceptance_parts import Part, PartKind
from fleet.acceptance_rules import AcceptanceRule, CohortRule, rule_named
from fleet.acceptance_sku import sku_of
from fleet.acceptance_verdict import AcceptanceVerdict
from fleet.canary_verdict import Outcome
from fleet.measures import Better, Conditions

LEVEL = 3000.0
SICK_NODE, SICK_GPU = 3, 5


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations as shares of the value: of nodes, of GPUs within a node, of a run."""

    name: str
    node: float
    gpu: float
    run: float

    @property
    def total(self) -> float:
        return float(np.sqrt(self.node**2 + self.gpu**2 + self.run**2))


QUIET = Noise("quiet", 0.001, 0.002, 0.002)
ORDINARY = Noise("ordinary", 0.003, 0.005, 0.003)
ASSUMED = Noise("as assumed", 0.005, 0.007, 0.005)
WILD = Noise("twice what is assumed", 0.010, 0.014, 0.010)
NOISES = (QUIET, ORDINARY, ASSUMED, WILD)


@dataclass(frozen=True, slots=True)
class Fault:
    """`where` picks values by (node, GPU); `loss` is the share that they lose."""

    name: str
    loss: float
    where: Callable[[int, int], bool]


def one_gpu(loss: float, nodes: int) -> Fault:
    sick = (SICK_NODE if nodes > SICK_NODE else 0, 1)
    return Fault(f"one GPU −{loss:.0%}", loss, lambda node, gpu: (node, gpu) == sick)


def four_gpus(loss: float) -> Fault:
    return Fault(f"4 GPUs on 4 nodes −{loss:.0%}", loss, lambda node, gpu: gpu == 2 * node and node < 4)


def slow_node(loss: float) -> Fault:
    return Fault(f"a whole node −{loss:.0%}", loss, lambda node, _: node == SICK_NODE)


def slow_slot(loss: float) -> Fault:
    return Fault(f"a slot on all nodes −{loss:.0%}", loss, lambda _, gpu: gpu == SICK_GPU)


HEALTHY = Fault("nothing wrong", 0.0, lambda *_: False)


@dataclass(frozen=True, slots=True)
class Row:
    """Rates of one fault in one noise, of all racks. `alarms`: racks in which something healthy is accused.

    `found`: racks in which all that is faulty is named as what it is. `silent`: racks that the rule will not judge.
    """

    fault: str
    noise: str
    size: str
    racks: int
    alarms: int
    found: int | None
    silent: int


def values_of(rng: np.random.Generator, noise: Noise, nodes: int, gpus: int, fault: Fault) -> np.ndarray:
    """By node and GPU, in GB/s."""
    logs = rng.normal(0, noise.node, (nodes, 1)) + rng.normal(0, np.hypot(noise.gpu, noise.run), (nodes, gpus))
    sick = np.array([[fault.where(node, gpu) for gpu in range(gpus)] for node in range(nodes)])
    return LEVEL * np.exp(logs) * np.where(sick, 1 - fault.loss, 1.0)


def members_of(values: np.ndarray) -> list[Member]:
    return [
        Member(Part(f"n{node}", PartKind.GPU, str(gpu)), float(value))
        for node, row in enumerate(values)
        for gpu, value in enumerate(row)
    ]


def judged(result: CohortResult, fault: Fault, nodes: int, gpus: int) -> tuple[bool, bool]:
    """Whether something healthy is accused, and whether all that is faulty is named."""
    sick = {(f"n{node}", str(gpu)) for node in range(nodes) for gpu in range(gpus) if fault.where(node, gpu)}
    outliers = {(node, slot) for (node, _, slot), peer in result.peers.items() if peer.standing is Standing.OUTLIER}
    if fault.name.startswith("a whole node"):
        name = f"n{SICK_NODE}"
        return bool(outliers or result.slow_nodes.keys() - {name}), name in result.slow_nodes
    if fault.name.startswith("a slot"):
        slot = str(SICK_GPU)
        others = {place for place in outliers if place[1] != slot}
        return bool(others or result.slow_nodes or result.slow_places.keys() - {slot}), slot in result.slow_places
    return bool(outliers - sick or result.slow_nodes or result.slow_places), sick <= outliers


def rates(rule: CohortRule, noise: Noise, fault: Fault, racks: int, seed: int, nodes: int = 8, gpus: int = 8) -> Row:
    rng = np.random.default_rng(seed)
    alarms = found = silent = 0
    for _ in range(racks):
        result = compare(members_of(values_of(rng, noise, nodes, gpus, fault)), Better.HIGHER, rule)
        alarm, named = judged(result, fault, nodes, gpus)
        alarms, found = alarms + alarm, found + named
        silent += result.call is not CohortCall.COMPARED
    size = f"{nodes}×{gpus}" if nodes > 1 else f"{gpus}"
    return Row(fault.name, noise.name, size, racks, alarms, found if fault.loss else None, silent)


def evidence(values: np.ndarray, rule: AcceptanceRule, hot: bool) -> list[NodeEvidence]:
    """The rack as the judge gets it; `hot`: one GPU is 14 °C warmer than its like, and its clocks are held down."""
    found = []
    for node, row in enumerate(values):
        parts = tuple(Part(f"n{node}", PartKind.GPU, str(gpu), f"S{node}{gpu}") for gpu in range(len(row)))
        told = []
        for part, value in zip(parts, row, strict=True):
            calm = Conditions((), 24.0, 62.0, 700.0, 0)
            here = hot and (part.node, part.slot) == (f"n{SICK_NODE}", str(SICK_GPU))
            seen = replace(calm, throttled=("hw_thermal",), gpu_celsius=76.0) if here else calm
            told.append(PartValue(part, float(value), rule.unit, conditions=seen))
        run = RunEvidence(f"n{node}", rule.id, tuple(told))
        found.append(NodeEvidence(f"n{node}", sku_of("NVIDIA H100 80GB HBM3"), parts, (run,), state=()))
    return found


def verdicts(noise: Noise, fault: Fault, hot: bool, racks: int, seed: int) -> Counter[str]:
    """What the whole judge says of the sick part: "fail, part", "inconclusive, cooling", and of how many others."""
    rule, rng, said = rule_named("node/gpu/hbm_bandwidth"), np.random.default_rng(seed), Counter[str]()
    for _ in range(racks):
        values = values_of(rng, noise, 8, 8, fault)
        verdict = judge_acceptance(evidence(values, rule, hot), [rule])
        said[_of_sick(verdict, fault)] += 1
        said["healthy parts failed"] += _healthy_failed(verdict, fault)
    return said


def _of_sick(verdict: AcceptanceVerdict, fault: Fault) -> str:
    node = verdict.node(f"n{SICK_NODE}")
    assert node is not None
    slot = "" if fault.name.startswith("a whole node") else str(SICK_GPU)
    kind = PartKind.GPU if slot else PartKind.NODE
    own = [one for test in node.tests[1:] for one in test.parts if one.part.slot == slot and one.part.kind is kind]
    if not own:
        return "not named"
    cause = own[0].causes[0].kind.value if own[0].causes else "no cause"
    return f"{own[0].outcome.value}, {cause}"


def _healthy_failed(verdict: AcceptanceVerdict, fault: Fault) -> int:
    failed = [
        one.part
        for node in verdict.nodes
        for test in node.tests
        for one in test.parts
        if one.outcome is Outcome.FAIL and one.part.kind is PartKind.GPU
    ]
    return sum(not fault.where(int(part.node[1:]), int(part.slot)) for part in failed)


def upper(events: int, of: int) -> float:
    """What the true share is below, with 95 % confidence (Clopper-Pearson)."""
    return float(betaincinv(events + 1, of - events, 0.95)) if events < of else 1.0


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| cohort | noise | fault | healthy parts accused | fault named | not judged |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = "" if row.found is None else f"{row.found / row.racks:.1%}"
        alarms = f"{row.alarms / row.racks:.1%} ({upper(row.alarms, row.racks):.1%})"
        lines.append(f"| {row.size} | {row.noise} | {row.fault} | {alarms} | {found} | {row.silent / row.racks:.1%} |")
    return "\n".join(lines)


def all_rows(rule: CohortRule, racks: int, seed: int) -> list[Row]:
    rows = [rates(rule, noise, HEALTHY, racks, seed) for noise in NOISES]
    for noise in NOISES[:3]:
        rows += [rates(rule, noise, one_gpu(loss, 8), racks, seed + 1) for loss in (0.03, 0.05, 0.08)]
    for noise in (ORDINARY, ASSUMED):
        for fault in (four_gpus(0.05), slow_node(0.05), slow_node(0.08), slow_slot(0.05)):
            rows.append(rates(rule, noise, fault, racks, seed + 2))
    for gpus in (8, 4):
        for noise in (ORDINARY, ASSUMED, WILD):
            rows.append(rates(rule, noise, HEALTHY, racks, seed + 3, 1, gpus))
        for noise in (ORDINARY, ASSUMED):
            for loss in (0.03, 0.05, 0.08):
                rows.append(rates(rule, noise, one_gpu(loss, 1), racks, seed + 4, 1, gpus))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--racks", type=int, default=1000, help="simulated for each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows here too")
    given = parser.parse_args(arguments)
    rule, begin = CohortRule(), time.perf_counter()
    for noise in NOISES:
        parts = f"nodes {noise.node:.1%}, GPUs {noise.gpu:.1%}, runs {noise.run:.1%}"
        print(f"noise {noise.name}: {parts}, together {noise.total:.2%}")
    print(f"the rule: margin {rule.margin:.0%}, assumed noise {rule.noise:.0%}, alpha {rule.alpha:.0%}\n")
    rows = all_rows(rule, given.racks, given.seed)
    print(table(rows))
    sick = Fault("one GPU −8%", 0.08, lambda node, gpu: (node, gpu) == (SICK_NODE, SICK_GPU))
    for name, fault, hot in (
        ("weak GPU −8 %", sick, False),
        ("hot GPU −8 %, throttled", sick, True),
        ("slow node −5 %", slow_node(0.05), False),
    ):
        said = verdicts(ORDINARY, fault, hot, given.racks // 5, given.seed + 5)
        print(f"\n{name}, whole verdict of {given.racks // 5} racks: {dict(said)}")
    print(f"\n{time.perf_counter() - begin:.0f} s")
    if given.json:
        told = [
            {"size": r.size, "noise": r.noise, "fault": r.fault, "alarms": r.alarms, "found": r.found, "racks": r.racks}
            for r in rows
        ]
        given.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
