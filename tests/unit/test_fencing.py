"""The fence around updated nodes: what is in it, and when it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.site_fakes import PLAIN, Site, firmware

from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.fences import fence_name, nodes_to_fence, operation_of
from fleet.reasons import ReasonKind
from ledger import NodeStatus, OperationState
from tasks import fencing
from tasks.fencing import PoolFence, lift_fences
from tasks.node import visit_node

NODE = "gpu-0001"


@dataclass
class Fences:
    """Fences in memory; `calls` are the sets that were asked for."""

    held: dict[str, tuple[str, ...]] = field(default_factory=dict)
    calls: list[tuple[str, ...]] = field(default_factory=list)
    fail: list[Exception] = field(default_factory=list)

    def read_fences(self) -> dict[str, tuple[str, ...]]:
        return dict(self.held)

    def ensure_fence(self, name: str, nodes: tuple[str, ...]) -> bool:
        if self.fail:
            raise self.fail.pop()
        self.calls.append(nodes)
        changed = self.held.get(name, ()) != nodes
        self.held[name] = nodes
        if not nodes:
            self.held.pop(name, None)
        return changed


@pytest.fixture
def fences() -> Fences:
    return Fences()


@pytest.fixture
def site(tmp_path: Path, fences: Fences, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.setattr(made, "fences", lambda: fences, raising=False)
    return made


def fence_of(site: Site, working: set[str], current: tuple[str, ...] = (), wanted: bool = True) -> PoolFence:
    """The fence of a wave, for a pool in which `working` take work."""
    plan = SimpleNamespace(policy=SimpleNamespace(pools={"train": SimpleNamespace(fence=wanted)}), current=current)
    run = SimpleNamespace(fleet=site, operation=site.operation, plan=plan, ledger=site.ledger())
    made = PoolFence(run, SimpleNamespace(pool="train"))  # type: ignore[arg-type]
    made._working = working
    made._new |= set(current)
    return made


def test_an_updated_node_is_in_the_fence_before_it_takes_work_again(site: Site, fences: Fences) -> None:
    fence = fence_of(site, {NODE, "gpu-0002"}, ("gpu-0003",))
    cordoned: list[bool] = []
    keep = fences.ensure_fence

    def look(name: str, nodes: tuple[str, ...]) -> bool:
        cordoned.append(site.fake_scheduler.cordoned)
        return keep(name, nodes)

    fences.ensure_fence = look  # type: ignore[method-assign]
    carried = firmware()
    carried.fence = fence.take_in
    assert visit_node(site.new_visit(), carried, PLAIN).status is NodeStatus.UPDATED
    assert cordoned == [True]
    assert fences.held == {fence_name("train", site.operation): (NODE, "gpu-0003")}


def test_the_last_node_of_the_pool_takes_the_fence_away(site: Site, fences: Fences) -> None:
    name = fence_name("train", site.operation)
    fences.held[name] = ("gpu-0002",)
    fence_of(site, {NODE, "gpu-0002"}, ("gpu-0002",)).take_in(site.new_visit())
    assert fences.held == {}


def test_a_node_that_is_in_already_costs_no_further_command(site: Site, fences: Fences) -> None:
    fence = fence_of(site, {NODE, "gpu-0002"})
    visit = site.new_visit()
    fence.take_in(visit)
    fence.take_in(visit)
    assert fences.calls == [(NODE,)]


def test_a_pool_that_wants_no_fence_has_none(site: Site, fences: Fences) -> None:
    fence_of(site, {NODE, "gpu-0002"}, wanted=False).take_in(site.new_visit())
    assert fences.calls == []


def test_a_scheduler_that_is_away_is_waited_for(site: Site, fences: Fences) -> None:
    fences.fail = [SchedulerUnreachable("no answer"), SchedulerUnreachable("no answer")]
    fence_of(site, {NODE, "gpu-0002"}).take_in(site.new_visit())
    assert fences.calls == [(NODE,)]


def test_a_scheduler_that_cannot_fence_does_not_hold_the_rollout_up_and_is_told_of_once(
    site: Site, fences: Fences, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    logger = SimpleNamespace(warning=lambda text, *values: said.append(text % values))
    monkeypatch.setattr(fencing, "get_run_logger", lambda: logger)
    fences.fail = [ConfigurationError("no operator rights")]
    fence = fence_of(site, {NODE, "gpu-0002"})
    visit = site.new_visit()
    fence.take_in(visit)
    fence.take_in(visit)
    assert fences.calls == []
    assert len(said) == 1
    assert said[0].startswith("pool train is not fenced: no operator rights; new jobs may span")


@pytest.mark.parametrize(
    ("state", "status", "stays"),
    [
        (OperationState.RUNNING, NodeStatus.PENDING, True),
        (OperationState.HALTED, NodeStatus.PENDING, True),
        (OperationState.ABORTED, NodeStatus.PENDING, False),
        (OperationState.DONE, NodeStatus.UPDATED, False),
        (OperationState.DONE, NodeStatus.SKIPPED, True),
    ],
)
def test_a_fence_stays_while_its_operation_may_go_on_or_left_nodes_behind(
    site: Site, fences: Fences, state: OperationState, status: NodeStatus, stays: bool
) -> None:
    name = fence_name("train", site.operation)
    fences.held[name] = ("gpu-0002",)
    operations = site.ledger().operations
    token = site.new_visit().token
    if status is not NodeStatus.PENDING:
        operations.finish_node(site.operation, NODE, status, "", token)
    operations.set_state(site.operation, state, ReasonKind.NONE, "", token)
    lines = lift_fences(site)  # type: ignore[arg-type]
    assert (name in fences.held, bool(lines)) == (stays, not stays)


def test_fences_of_others_are_left_alone(site: Site, fences: Fences) -> None:
    fences.held["maintenance"] = (NODE,)
    assert lift_fences(site) == []  # type: ignore[arg-type]
    assert fences.held == {"maintenance": (NODE,)}


def test_a_fence_names_its_pool_and_operation_and_holds_nothing_in_a_pool_of_one_kind() -> None:
    assert operation_of(fence_name("train.eu", "fw-20261130-7k3q")) == "fw-20261130-7k3q"
    assert nodes_to_fence({"b", "a"}, {"a", "b", "c"}) == ("a", "b")
    assert nodes_to_fence({"a", "b"}, {"a", "b"}) == ()
    assert nodes_to_fence(set(), {"a"}) == ()
