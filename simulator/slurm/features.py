"""What jobs ask of a node's features: `a&b`, `a|b`, and `[a|b]` for one of them on all nodes (sbatch --constraint)."""

from __future__ import annotations

from simulator.slurm.records import SlurmNode


def alternatives(constraint: str) -> list[str]:
    """The constraints of which one must hold on every node of the job: `[a|b]` is two, anything else is one."""
    if constraint.startswith("[") and constraint.endswith("]"):
        return [part.strip() for part in constraint[1:-1].split("|")]
    return [constraint]


def fits_features(constraint: str, node: SlurmNode) -> bool:
    """Could the node be one of the job's?"""
    return any(_fits(each, node) for each in alternatives(constraint))


def _fits(constraint: str, node: SlurmNode) -> bool:
    choices = [part.split("&") for part in constraint.split("|")]
    return not constraint or any(set(map(str.strip, words)) <= set(node.features) for words in choices)
