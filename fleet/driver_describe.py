"""A driver plan in words and tables, for people who have to approve it."""

from __future__ import annotations

from collections import Counter

from fleet.driver_cohorts import WaveCohorts
from fleet.driver_cost import cost_text
from fleet.driver_rollout import DriverPlan

COHORT_COLUMNS = (
    *("wave", "nodes", "measured", "controls", "control GPU-hours", "finds", "out at most", "expected", "bake"),
    "GPU-hours lost",
)


def driver_facts(plan: DriverPlan) -> list[str]:
    """The plan's key figures, one text each."""
    canary, size = plan.canary, plan.size
    former = Counter(node.changes[0].current for node in plan.nodes.values() if node.changes)
    ways = Counter(plan.target(node).kind.value for node in plan.nodes)
    loss = "unknown" if plan.lost_gpu_hours is None else f"{plan.lost_gpu_hours:.1f} GPU-hours"
    facts = [
        f"fleet {plan.fleet}, pools {', '.join(plan.policy.pools)}; plan digest {plan.digest[:16]}",
        f"driver {plan.to}: {len(plan.nodes)} nodes to change, {len(plan.current)} already there, "
        f"{len(plan.left_out)} left out",
        "from " + (", ".join(f"{version} × {count}" for version, count in sorted(former.items())) or "nothing"),
        "installed by " + (", ".join(f"{way} × {count}" for way, count in sorted(ways.items())) or "nothing"),
        f"measured: {', '.join(measure.name for measure in plan.measures())}; {size.runs} runs before and after, in "
        f"{canary.looks} look{'s' if canary.looks > 1 else ''}",
        f"a wave whose change loses nothing is failed once in {1 / canary.alpha:.0f} times at most; with {size.nodes} "
        f"nodes in each cohort a loss of {canary.loss:.0%} in one measure is found {size.finds:.0%} of the time",
        "a failed verdict puts the former driver and settings back on every changed node, without asking again",
        f"work lost if every job were stopped now: {loss}; the drain waits for each job's next checkpoint or its end",
    ]
    cost = plan.control_cost()
    if cost is not None:
        facts.append(cost_text(cost))
    facts += plan.notes
    if plan.expected_end is not None:
        facts.append(f"expected end {plan.expected_end:%F %T} UTC, without waiting for work or approvals")
    return facts


def cohort_rows(plan: DriverPlan) -> list[tuple[str, ...]]:
    """The cells of `COHORT_COLUMNS`, per wave."""
    rows: list[tuple[str, ...]] = []
    for wave in plan.waves:
        cohort = plan.cohorts[wave.number]
        finds = "nothing" if cohort.smallest_detectable is None else f"{cohort.smallest_detectable:.1%}"
        rows.append(
            (
                f"{wave.number} {wave.name}",
                str(len(wave.nodes)),
                str(len(cohort.measured)),
                str(len(cohort.controls)),
                _control_hours(cohort),
                finds,
                f"{wave.out_at_most} of {plan.pool_sizes[wave.pool]}",
                f"{wave.expected_seconds:.0f} s",
                f"{wave.bake_seconds:.0f} s",
                "unknown" if wave.lost_gpu_hours is None else f"{wave.lost_gpu_hours:.1f}",
            )
        )
    return rows


def _control_hours(cohort: WaveCohorts) -> str:
    """GPU-hours that the wave's controls are out of service to be measured."""
    hours = None if cohort.cost is None else cohort.cost.gpu_hours
    return "unknown" if hours is None else f"{hours:.1f}"


def describe_driver_plan(plan: DriverPlan, operation: str) -> str:
    """Markdown: what will be done, to how many, at what risk."""
    lines = [
        f"# {operation}: driver {plan.to}",
        "",
        *(f"- {line}" for line in driver_facts(plan)),
        "",
        f"| {' | '.join(COHORT_COLUMNS)} |",
        "|---" * len(COHORT_COLUMNS) + "|",
        *(f"| {' | '.join(row)} |" for row in cohort_rows(plan)),
    ]
    notes = [f"- wave {number}: {note}" for number, cohort in plan.cohorts.items() for note in cohort.notes]
    if notes:
        lines += ["", *notes]
    if plan.left_out:
        lines += ["", "Left out:", "", *(f"- {node}: {why}" for node, why in sorted(plan.left_out.items()))]
    return "\n".join(lines)
