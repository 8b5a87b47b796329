"""A small fleet, its baseline, and readings of nodes that are as they should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from fleet.baseline import BaselineSpec, parse_baseline
from fleet.config import FleetSpec, parse_fleet
from fleet.facts import NodeFacts, PartFacts

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
DRIVER = "580.105.08"
VBIOS = "96.00.A5.00.03"

SPEC = """\
version: 1
fleet: lab
bmc: {user: a, password: {env: X}}
ssh: {user: root, key: {file: k}}
gate: {required: 0}
pools: {train: {}, dev: {production: false}}
racks: {r01: {}, r02: {}}
nodes:
  - {name: gpu-0001, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1}
  - {name: gpu-0002, rack: r02, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.2", ssh: 10.1.0.2}
  - {name: gpu-0003, rack: r02, pool: dev, model: HGX-H100-8, bmc: "https://10.0.0.3", ssh: 10.1.0.3}
"""

BASELINE = """\
version: 1
pools:
  train:
    driver: 580.105.08
    kernel: 6.8.0-*-generic
    os: Ubuntu 24.04*
    container_toolkit: 1.18.1
    firmware:
      vbios: {match: [HGX_FW_GPU_SXM_*], version: 96.00.A5.00.03}
    bios: {SriovGlobalEnable: Enabled}
    services: {nvidia-persistenced: active, packagekit: inactive}
    gpu: {ecc: on, mig: off, persistence: on, compute_mode: default, power_limit_watts: 700}
    models:
      HGX-H100-8: {gpu_count: 2}
    forbidden: {packages: [cuda-drivers*], egress: [motd_news], unattended_upgrades: true}
"""

GOOD: Mapping[str, str] = {
    "driver.loaded": DRIVER,
    "driver.on_disk": DRIVER,
    "driver.user_space": DRIVER,
    "fabric_manager.version": DRIVER,
    "kernel.running": "6.8.0-45-generic",
    "os.release": "Ubuntu 24.04.3 LTS",
    "container_toolkit.version": "1.18.1",
    "gpu.count": "2",
    "firmware.HGX_FW_GPU_SXM_1": VBIOS,
    "firmware.HGX_FW_GPU_SXM_2": VBIOS,
    "bios.SriovGlobalEnable": "enabled",
    "service.nvidia-persistenced": "active",
    "service.packagekit": "inactive",
    "packages.listed": "*nvidia* cuda-drivers*",
    "package.nvidia-driver-580-server": "580.105.08-0ubuntu1",
    "egress.motd_news": "0",
    "updates.unattended": "off",
}

GOOD_GPU: Mapping[str, str] = {
    "ecc_mode": "enabled",
    "mig_mode": "disabled",
    "persistence": "enabled",
    "compute_mode": "Default",
    "power_limit_watts": "700.00",
    "vbios": VBIOS,
}


@cache
def fleet() -> FleetSpec:
    return parse_fleet(SPEC, "fleet.yaml")


@cache
def baseline(text: str = BASELINE) -> BaselineSpec:
    return parse_baseline(text, "baseline.yaml", fleet())


def gpu(number: int, node: str, changed: Mapping[str, str] | None = None) -> PartFacts:
    """GPU 1 or 2 of the node, by its serial."""
    slot = f"0000:{number}b:00.0"
    return PartFacts("gpu", slot, f"{node}-{number}", None, {**GOOD_GPU, **(changed or {})})


def reading(
    node: str, changed: Mapping[str, str] | None = None, gpus: tuple[PartFacts, ...] | None = None
) -> NodeFacts:
    """A node as it should be, but for `changed`."""
    parts = (gpu(1, node), gpu(2, node)) if gpus is None else gpus
    return NodeFacts(node, AT, "probe", {**GOOD, **(changed or {})}, parts=parts)


def without(facts: NodeFacts, name: str, why: str | None = None) -> NodeFacts:
    """The reading without one fact; `why` is the reason it gives."""
    left = {key: value for key, value in facts.facts.items() if key != name}
    return replace(facts, facts=left, unknown={name: why} if why else {})


def good_fleet() -> tuple[NodeFacts, ...]:
    return tuple(reading(name) for name in ("gpu-0001", "gpu-0002", "gpu-0003"))
