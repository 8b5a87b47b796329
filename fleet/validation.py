"""The verdict on a node that was just updated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fleet.model import PowerState, SystemReading

_LISTED = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[0-9a-fA-F-]+)\)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`findings` name everything that is not as it must be; empty where the node passed."""

    passed: bool
    findings: tuple[str, ...]


def judge_after_update(system: SystemReading, listed: str | None, expected_gpus: int | None) -> Verdict:
    """`listed` is the text of `nvidia-smi -L`, None where the host gave none; `expected_gpus` None if untold."""
    findings: list[str] = []
    if system.power is not PowerState.ON:
        findings.append(f"power is {system.power.value}")
    findings += [f"BMC: {gpu.id} is {gpu.health}" for gpu in system.gpus if gpu.health == "Critical"]
    wanted = expected_gpus if expected_gpus is not None else len(system.gpus) or None
    if listed is None:
        findings.append("the host could not list its GPUs (nvidia-smi -L)")
    else:
        found = len(set(_LISTED.findall(listed)))
        if wanted is not None and found != wanted:
            findings.append(f"the host shows {found} GPUs, not {wanted}")
        elif not found:
            findings.append("the host shows no GPU")
    return Verdict(not findings, tuple(findings))
