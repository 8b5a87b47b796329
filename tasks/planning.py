"""Reading what a plan is made of, and opening or taking up an operation."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from blocks.fleet import Fleet
from fleet.errors import ConfigurationError
from fleet.plan import FirmwarePlan, check_unchanged, policy_of
from fleet.rollout import BundleSource, plan_rollout
from ledger import Operation
from tasks.bundles import read_bundle
from tasks.operations import OperationRun
from tasks.reading import read_nodes
from tasks.running_jobs import read_running_jobs
from tasks.taking_up import keep_plan, operation_of_this_run, read_kept, take_up

KIND = "firmware_rollout"


def make_plan(
    fleet: Fleet,
    bundle: Path,
    pools: tuple[str, ...],
    seed: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> FirmwarePlan:
    """Read every node of `pools` (all where empty) and plan; nothing is changed.

    `progress` is called with the number of nodes read so far. Raises BundleRejected, ConfigurationError,
    SchedulerUnreachable.
    """
    spec = fleet.spec()
    source = read_bundle(fleet, bundle)
    chosen = pools or tuple(spec.pools)
    nodes = tuple(node for node in spec.inventory() if node.pool in chosen)
    readings = read_nodes(fleet, nodes, progress)
    drawn = random.SystemRandom().randrange(2**31) if seed is None else seed
    jobs = read_running_jobs(fleet, {node.name for node in nodes})
    return plan_rollout(spec, chosen, source, readings, fleet.clock.now(), drawn, jobs)


def open_operation(fleet: Fleet, plan: FirmwarePlan, actor: str) -> Operation:
    """Keep the plan as a new operation; nothing is run yet."""
    return keep_plan(fleet, KIND, plan, actor)


def open_or_take_up(
    fleet: Fleet, operation: str | None, bundle: str | None, pools: list[str] | None
) -> OperationRun[FirmwarePlan]:
    """The operation that this flow run carries out, claimed for this process.

    Raises LeaseLost where another live process runs it, ConfigurationError where neither an operation nor
    a bundle is given, PlanChanged where the kept plan is not what its digest says.
    """

    def plan() -> FirmwarePlan:
        if bundle is None:
            raise ConfigurationError("give an operation to take up, or a bundle to plan for")
        return make_plan(fleet, Path(bundle), tuple(pools or ()))

    return take_up(fleet, KIND, operation_of_this_run(fleet, KIND, operation, plan), read_plan)


def read_plan(operation: Operation) -> FirmwarePlan:
    """The kept plan. Raises ConfigurationError where it was altered behind its digest."""
    return read_kept(operation, FirmwarePlan)


def check_plan(run: OperationRun[FirmwarePlan]) -> BundleSource:
    """Raise PlanChanged where bundle or policy are not what was planned and approved."""
    source = read_bundle(run.fleet, Path(run.plan.bundle_path))
    pools = tuple(run.plan.policy.pools)
    check_unchanged(run.plan, policy_of(run.fleet.spec(), pools), source.digest)
    return source
