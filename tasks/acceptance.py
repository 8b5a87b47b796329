"""Is a node fit for work again after it was changed?"""

from __future__ import annotations

from fleet.errors import BurnInFailed, TransientError
from fleet.model import NodeState
from fleet.ports import Bmc
from fleet.validation import Verdict, judge_after_update
from tasks.bmc import patiently
from tasks.visit import Visit


def validate_node(visit: Visit) -> None:
    """Compare what BMC and host show after the change with what they must show.

    Raises BurnInFailed with the findings. What could not be read is a finding, never a pass.
    """
    visit.ledger.inventory.move(visit.name, NodeState.VALIDATING, "validates", visit.operation)
    visit.say("validates")
    with visit.step("validate", {}) as evidence:
        verdict = _settled_verdict(visit, visit.bmc)
        evidence |= {"passed": verdict.passed, "findings": list(verdict.findings)}
        if not verdict.passed:
            raise BurnInFailed("; ".join(verdict.findings), node=visit.name, evidence=verdict.findings)


def _settled_verdict(visit: Visit, bmc: Bmc) -> Verdict:
    """The first good verdict, or the last one in the fleet's settle time: SSH is up before the GPU driver is."""
    settings, clock = visit.fleet.spec().bmc, visit.fleet.clock
    deadline = clock.monotonic() + settings.settle_seconds
    while True:
        verdict = _look(visit, bmc)
        if verdict.passed or clock.monotonic() >= deadline:
            return verdict
        visit.say(f"validates: {verdict.findings[0]}")
        clock.sleep(settings.poll_seconds)


def _look(visit: Visit, bmc: Bmc) -> Verdict:
    system = patiently(visit, "validates", bmc.read_system)
    listed: str | None
    try:
        answer = visit.fleet.host(visit.node).run(("nvidia-smi", "-L"), timeout_seconds=60.0)
        listed = answer.stdout if answer.code == 0 else None
    except TransientError:
        listed = None
    seen = visit.look().nodes.get(visit.name)
    return judge_after_update(system, listed, None if seen is None else seen.gpus)
