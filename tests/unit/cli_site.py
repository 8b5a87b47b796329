"""A fleet file with a real ledger beside it, and hand-written BMC, host and scheduler behind the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner
from unit.ledger_tools import FREE
from unit.site_fakes import GPU, NEW, OLD, SWITCH, FakeBmc, FakeHost, FakeScheduler, SiteClock

from blocks.clients import Clients
from blocks.scheduler import SharedScheduler
from cli.main import app
from fleet.config import Pool
from fleet.model import Node, NodeState
from fleet.plan import Change, FirmwarePlan, NodePlan, Policy, Wave
from ledger import NodeStatus, Runner

SPEC = """\
version: 1
fleet: lab
bmc: {user: a, password: {env: X}, poll_seconds: 10, ready_timeout_seconds: 600}
ssh: {user: root, key: {file: k}}
gate: {required: 0}
pools: {train: {capacity_floor: 0}, dev: {production: false, capacity_floor: 0}}
racks: {r01: {}, r02: {}}
nodes:
  - {name: gpu-0001, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1}
  - {name: gpu-0002, rack: r02, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.2", ssh: 10.1.0.2}
  - {name: gpu-0003, rack: r02, pool: dev, model: HGX-H100-8, bmc: "https://10.0.0.3", ssh: 10.1.0.3}
"""


class CliSite(Clients):
    """What a Fleet block leads to. Nodes without a BMC of their own share one; the scheduler knows gpu-0001."""

    def __init__(self, folder: Path, spec: str) -> None:
        self.file = folder / "fleet.yaml"
        self.file.write_text(spec)
        super().__init__(self.file)
        self.site_clock = SiteClock()
        self.clock = self.site_clock
        self.fake_bmc = FakeBmc(self.site_clock, versions={GPU: NEW, SWITCH: NEW})
        self.own_bmcs: dict[str, FakeBmc] = {}
        self.fake_host = FakeHost()
        self.fake_scheduler = FakeScheduler()
        self.asked: list[str] = []
        self.sync_inventory()

    def bmc(self, node: Node) -> FakeBmc:
        self.asked.append(node.name)
        return self.own_bmcs.get(node.name, self.fake_bmc)

    def host(self, node: Node) -> FakeHost:
        return self.fake_host

    def scheduler(self) -> SharedScheduler:
        return SharedScheduler(self.fake_scheduler, self.clock, 0.0)

    def run(self, *arguments: str, answer: str | None = None) -> Result:
        """One command on this fleet; `answer` is what is typed."""
        return CliRunner().invoke(app, [*arguments, "--fleet", str(self.file)], input=answer)

    def operation(self, status: NodeStatus = NodeStatus.FAILED) -> str:
        """A firmware operation that wanted NEW on gpu-0001 and left the node with `status`."""
        ledger, plan = self.ledger(), plan_of_one()
        ident = ledger.operations.create("firmware_rollout", plan.to_json(), plan.digest, "tester").id
        ledger.operations.add_nodes(ident, [("gpu-0001", 1, 0)])
        if status is not NodeStatus.PENDING:
            ledger.operations.start_nodes(ident, ["gpu-0001"])
            ledger.operations.finish_node(ident, "gpu-0001", status, "")
        return ident

    def quarantine(self, why: str = "reset ignored") -> None:
        self.ledger().inventory.move("gpu-0001", NodeState.QUARANTINED, why)

    def hold(self, operation: str) -> int:
        """Let the operation own gpu-0001; its token."""
        token = self.ledger().operations.claim(operation, Runner("lab", 1, 1.0, None), True)
        self.ledger().leases.acquire(operation, token, ["gpu-0001"], {"gpu-0001": FREE})
        return token

    def state(self) -> NodeState:
        return self.ledger().inventory.node("gpu-0001").state


def plan_of_one() -> FirmwarePlan:
    """GPU and switch of gpu-0001 from OLD to NEW."""
    changes = tuple(Change(component=c, current=OLD, desired=NEW, entry=e) for c, e in ((GPU, "gpu"), (SWITCH, "sw")))
    wave = Wave(
        number=1,
        name="canary",
        pool="train",
        units=(("gpu-0001",),),
        racks={"r01": 1},
        out_at_most=1,
        rounds=1,
        expected_seconds=60.0,
        bake_seconds=0.0,
    )
    return FirmwarePlan(
        fleet="lab",
        made_at=SiteClock().now(),
        bundle_name="hgx",
        bundle_release="24.09",
        bundle_path="/b/bundle.yaml",
        bundle_digest="b" * 64,
        bundle_versions={"gpu": NEW, "sw": NEW},
        seed=7,
        policy=Policy(rack_limits={"r01": 2}, pools={"train": Pool()}, gates={}),
        pool_sizes={"train": 2},
        nodes={"gpu-0001": NodePlan(pool="train", rack="r01", model="HGX-H100-8", changes=changes)},
        waves=(wave,),
    )


def cli_site(folder: Path, monkeypatch: pytest.MonkeyPatch, spec: str = SPEC) -> CliSite:
    """A site that every Fleet block of this test leads to."""
    made = CliSite(folder, spec)
    monkeypatch.setattr("blocks.fleet.clients_of", lambda file: made)
    return made
