"""A small fleet file, and what an import into it comes to."""

from __future__ import annotations

from fleet.config import FleetSpec, parse_fleet
from fleet.fleet_file_edit import places
from fleet.inventory_csv import read_csv
from fleet.inventory_import import ImportPlan, Known, plan_import
from fleet.inventory_rows import Rows

FLEET = """\
version: 1
fleet: lab   # the one in hall 2, Köln
bmc: {user: admin, password: {env: BMC_PASSWORD}}
ssh: {user: root, key: {file: id_ed25519}}
gate: {required: 0}
pools: {train: {}, dev: {production: false}}
racks: {r01: {}, r02: {}}
nodes:
  - {name: gpu-0001, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1, unit: 1}
  - {name: gpu-0002, rack: r01, pool: dev, model: HGX-H100-8, bmc: "https://10.0.0.2/", ssh: "10.1.0.2:22"}  # loud
"""
HEADER = "name,rack,pool,model,bmc,ssh,unit\n"
NEW = "gpu-0003,r02,train,HGX-H100-8,https://10.0.0.3,10.1.0.3,1\n"


def spec(text: str = FLEET) -> FleetSpec:
    return parse_fleet(text, "fleet.yaml")


def outcome(source: Rows, known: Known | None = None) -> tuple[ImportPlan | None, list[str]]:
    plan, faults = plan_import(source, spec(), known or Known(places=places(FLEET, "fleet.yaml")))
    return plan, [str(fault) for fault in faults]


def plan_of(text: str, known: Known | None = None) -> ImportPlan:
    plan, faults = outcome(read_csv(text, "new.csv"), known)
    assert faults == []
    assert plan is not None
    return plan


def faults_of(text: str, known: Known | None = None) -> list[str]:
    plan, faults = outcome(read_csv(text, "new.csv"), known)
    assert plan is None
    return faults
