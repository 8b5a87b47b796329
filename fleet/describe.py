"""A plan in words and tables, for people who have to approve it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from fleet.plan import FirmwarePlan, Wave

WAVE_COLUMNS = ("wave", "nodes", "racks", "jobs disturbed", "GPU-hours lost", "out at most", "expected", "bake")

_NAMED = 20


def describe_plan(plan: FirmwarePlan, operation: str) -> str:
    """Markdown: what will be done, to how many, at what risk."""
    lines = [
        f"# {operation}: firmware {plan.bundle_name} {plan.bundle_release}",
        "",
        *(f"- {line}" for line in plan_facts(plan)),
        "",
        f"| {' | '.join(WAVE_COLUMNS)} |",
        "|---" * len(WAVE_COLUMNS) + "|",
        *(f"| {' | '.join(row)} |" for row in wave_rows(plan)),
    ]
    if plan.left_out:
        lines += ["", "Left out:", "", *(f"- {node}: {why}" for node, why in sorted(plan.left_out.items()))]
    return "\n".join(lines)


def plan_facts(plan: FirmwarePlan) -> list[str]:
    """The plan's key figures, one text each."""
    changed = Counter(c.entry for node in plan.nodes.values() for c in node.changes)
    times = sum(wave.disturbances for wave in plan.waves)
    loss = "unknown" if plan.lost_gpu_hours is None else f"{plan.lost_gpu_hours:.1f} GPU-hours"
    facts = [
        f"fleet {plan.fleet}, pools {', '.join(plan.policy.pools)}; plan digest {plan.digest[:16]}",
        f"{len(plan.nodes)} nodes to change, {len(plan.current)} already current, {len(plan.left_out)} left out",
        "components: " + (", ".join(f"{entry} × {count}" for entry, count in changed.items()) or "none"),
        "one-way (no downgrade afterwards): " + (", ".join(_grouped(plan.one_way)) or "none"),
        f"work lost if every job were stopped now: {loss}; the drain waits for each job's next checkpoint or its end; "
        f"jobs are disturbed {_times(times)}",
    ]
    if plan.protected:
        named = [f"job {job} (until {until:%F %H:%M} UTC)" for job, until in plan.protected.items()]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        facts.append("disturbed lately, so their nodes go last: " + ", ".join(named[:_NAMED]) + more)
    if plan.deferred:
        facts.append(
            f"{len(plan.deferred)} of those left out are deferred for jobs that were disturbed lately; the last may be "
            f"visited from {max(plan.deferred.values()):%F %H:%M} UTC on"
        )
    if plan.expected_end is not None:
        facts.append(f"expected end {plan.expected_end:%F %T} UTC, without waiting for work or approvals")
    if plan.visit_by is not None:
        facts.append(f"every node by {plan.visit_by:%F %T} UTC: {'reachable' if plan.reachable else 'NOT reachable'}")
    return facts


def wave_rows(plan: FirmwarePlan) -> list[tuple[str, ...]]:
    """The cells of `WAVE_COLUMNS`, per wave."""
    return [
        (
            f"{wave.number} {wave.name}",
            str(len(wave.nodes)),
            ", ".join(f"{rack}:{count}" for rack, count in list(wave.racks.items())[:8])
            + (f" … {len(wave.racks)} racks" if len(wave.racks) > 8 else ""),
            _disturbed(wave),
            "unknown" if wave.lost_gpu_hours is None else f"{wave.lost_gpu_hours:.1f}",
            f"{wave.out_at_most} of {plan.pool_sizes[wave.pool]}",
            f"{wave.expected_seconds:.0f} s in {wave.rounds} round{'s' if wave.rounds > 1 else ''}",
            f"{wave.bake_seconds:.0f} s",
        )
        for wave in plan.waves
    ]


def _disturbed(wave: Wave) -> str:
    """How many jobs; and how often in all, where some are disturbed more than once."""
    return str(wave.jobs) if wave.disturbances == wave.jobs else f"{wave.jobs}, {_times(wave.disturbances)}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _grouped(components: Iterable[str]) -> list[str]:
    """HGX_FW_GPU_SXM_1 to _8 as one HGX_FW_GPU_SXM_[1-8]; ids without a number at their end as they are."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    groups: dict[str, None] = {}
    for component in components:
        found = re.fullmatch(r"(.*?)(0|[1-9]\d{0,8})", component)
        groups[found[1] if found else component] = None
        if found:
            numbers[found[1]].append(int(found[2]))
    return [stem + _spans(numbers[stem]) if stem in numbers else stem for stem in groups]


def _spans(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return "[" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans) + "]"
