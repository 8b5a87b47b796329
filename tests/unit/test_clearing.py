"""What lets a quarantined node go back: everything read, and everything as it must be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.clearing import (
    ClearPlan,
    Observed,
    Wanted,
    check_clearable,
    describe_clearing,
    is_our_cordon,
    judge_clearing,
    not_cleared_reason,
    quarantine_reason,
)
from fleet.errors import PreconditionError
from fleet.model import (
    FirmwareComponent,
    FirmwareRole,
    GpuReading,
    NodeState,
    PowerState,
    SchedulerNode,
    SchedulerState,
    SystemReading,
)

OLD, NEW = "96.00.74.00.01", "96.00.A5.00.03"
SEEN = SchedulerNode("n1", SchedulerState.IDLE, frozenset({"IDLE", "DRAIN"}), True, "gpufleet[fw-1]", "root", None, 2)
LISTED = "".join(f"GPU {n}: NVIDIA H100 (UUID: GPU-0000000{n})\n" for n in range(2))
SYSTEM = SystemReading("NVIDIA", "HGX", "S1", "1", PowerState.ON, (), ())


def component(version: str | None, role: FirmwareRole = FirmwareRole.ACTIVE) -> FirmwareComponent:
    return FirmwareComponent("GPU_1", version, None, role, "Enabled", "OK", True, "/fw/GPU_1", "GPU 1")


GOOD = Observed(SYSTEM, (component(NEW),), LISTED, SEEN)
PLAN = ClearPlan("n1", "reset ignored", SEEN, Wanted("fw-1", {"GPU_1": NEW}), accept_firmware=False)


def test_a_node_that_is_as_it_must_be_passes() -> None:
    assert judge_clearing(PLAN, GOOD).passed


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (replace(GOOD, listed=None), "could not list its GPUs"),
        (replace(GOOD, listed=LISTED.splitlines()[0]), "shows 1 GPUs, not 2"),
        (replace(GOOD, seen=None), "the scheduler does not know it"),
        (replace(GOOD, seen=replace(SEEN, state=SchedulerState.DOWN)), "down in the scheduler"),
        (replace(GOOD, system=replace(SYSTEM, power=PowerState.OFF)), "power is off"),
        (
            replace(GOOD, system=replace(SYSTEM, gpus=(GpuReading("GPU_1", None, None, None, "Enabled", "Critical"),))),
            "GPU_1 is Critical",
        ),
        (replace(GOOD, firmware=(component(OLD),)), f"GPU_1 runs {OLD}, fw-1 wanted {NEW}"),
        (replace(GOOD, firmware=()), "GPU_1 runs an unknown version"),
        (replace(GOOD, firmware=(component(NEW, FirmwareRole.BACKUP),)), "GPU_1 runs an unknown version"),
    ],
)
def test_a_node_stays_out_for_what_is_wrong_or_not_known(observed: Observed, said: str) -> None:
    verdict = judge_clearing(PLAN, observed)
    assert not verdict.passed
    assert said in "; ".join(verdict.findings)


def test_other_firmware_passes_where_a_person_accepts_it_and_is_kept_as_accepted() -> None:
    accepting = replace(PLAN, accept_firmware=True)
    verdict = judge_clearing(accepting, replace(GOOD, firmware=(component(OLD),)))
    assert (verdict.findings, verdict.accepted) == ((), (f"GPU_1 runs {OLD}, fw-1 wanted {NEW}",))
    assert not judge_clearing(accepting, replace(GOOD, listed=None)).passed


def test_firmware_is_not_compared_where_no_operation_wanted_any() -> None:
    assert judge_clearing(replace(PLAN, wanted=None), replace(GOOD, firmware=())).passed


@pytest.mark.parametrize(
    ("cordoned", "reason", "ours"),
    [
        (True, "gpufleet[fw-1] quarantined: x", True),
        (True, "bad fan, see gpufleet[fw-1]", False),
        (True, None, False),
        (False, "gpufleet[fw-1]", False),
    ],
)
def test_a_cordon_is_ours_only_where_its_reason_begins_with_our_mark(
    cordoned: bool, reason: str | None, ours: bool
) -> None:
    assert is_our_cordon(replace(SEEN, cordoned=cordoned, reason=reason)) is ours


def test_the_plan_says_whose_cordon_stays() -> None:
    theirs = replace(PLAN, seen=replace(SEEN, reason="bad fan", reason_by="ana"))
    assert "leaves the cordon, which is not ours (ana: bad fan)" in describe_clearing(theirs)
    assert "uncordons it, since the reason is ours: gpufleet[fw-1]" in describe_clearing(PLAN)


def test_attempts_that_failed_do_not_pile_up_in_the_reason() -> None:
    once = not_cleared_reason("reset ignored", ("power is off",))
    assert not_cleared_reason(quarantine_reason(once), ("power is off",)) == once


@pytest.mark.parametrize("state", [NodeState.QUARANTINED, NodeState.VALIDATING])
def test_a_node_that_nobody_holds_may_be_cleared_out_of_quarantine_or_a_broken_off_validation(state: NodeState) -> None:
    check_clearable("n1", state, None)
    with pytest.raises(PreconditionError, match="held by fw-2"):
        check_clearable("n1", state, "fw-2")


def test_a_node_in_service_has_nothing_to_clear() -> None:
    with pytest.raises(PreconditionError, match="is in_service, not quarantined"):
        check_clearable("n1", NodeState.IN_SERVICE, None)
