"""A plan in words and tables, for people who have to approve it."""

from __future__ import annotations

from collections import Counter

from fleet.plan import FirmwarePlan


def describe_plan(plan: FirmwarePlan, operation: str) -> str:
    """Markdown: what will be done, to how many, at what risk."""
    lines = [
        f"# {operation}: firmware {plan.bundle_name} {plan.bundle_release}",
        "",
        *(f"- {line}" for line in plan_facts(plan)),
        "",
        "| wave | nodes | racks | out at most | expected | bake |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in wave_rows(plan)),
    ]
    if plan.left_out:
        lines += ["", "Left out:", "", *(f"- {node}: {why}" for node, why in sorted(plan.left_out.items()))]
    return "\n".join(lines)


def plan_facts(plan: FirmwarePlan) -> list[str]:
    """The plan's key figures, one text each."""
    changed = Counter(c.entry for node in plan.nodes.values() for c in node.changes)
    loss = "not known (no checkpoints read)" if plan.lost_gpu_hours is None else f"{plan.lost_gpu_hours:.1f} GPU-hours"
    facts = [
        f"fleet {plan.fleet}, pools {', '.join(plan.policy.pools)}; plan digest {plan.digest[:16]}",
        f"{len(plan.nodes)} nodes to change, {len(plan.current)} already current, {len(plan.left_out)} left out",
        "components: " + (", ".join(f"{entry} × {count}" for entry, count in changed.items()) or "none"),
        "one-way (no downgrade afterwards): " + (", ".join(plan.one_way) or "none"),
        f"work lost: {loss}; the drain waits for jobs to end",
    ]
    if plan.expected_end is not None:
        facts.append(f"expected end {plan.expected_end:%F %T} UTC, without waiting for work or approvals")
    if plan.visit_by is not None:
        facts.append(f"every node by {plan.visit_by:%F %T} UTC: {'reachable' if plan.reachable else 'NOT reachable'}")
    return facts


def wave_rows(plan: FirmwarePlan) -> list[tuple[str, str, str, str, str, str]]:
    """(wave, nodes, racks, out at most, expected, bake) per wave."""
    return [
        (
            f"{wave.number} {wave.name}",
            str(len(wave.nodes)),
            ", ".join(f"{rack}:{count}" for rack, count in list(wave.racks.items())[:8])
            + (f" … {len(wave.racks)} racks" if len(wave.racks) > 8 else ""),
            f"{wave.out_at_most} of {plan.pool_sizes[wave.pool]}",
            f"{wave.expected_seconds:.0f} s in {wave.rounds} rounds",
            f"{wave.bake_seconds:.0f} s",
        )
        for wave in plan.waves
    ]
