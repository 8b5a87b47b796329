"""The fleet file of a simulated fleet: the same format, and the same checks, as a real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from fleet.config import FleetSpec, parse_fleet
from simulator.addresses import Endpoint

PRODUCTION, DEVELOPMENT = "train", "dev"
MODEL = "HGX-H100-8"
APPROVER = "demo-approver@example.org"
BMC_USER, SSH_USER = "admin", "root"
RACK_LIMIT = 2
FLOORS = {PRODUCTION: 0.85, DEVELOPMENT: 0.0}
_UNITS = 42


@dataclass(frozen=True, slots=True)
class Place:
    """One node before it is built."""

    name: str
    rack: str
    pool: str
    model: str
    unit: int | None
    endpoint: Endpoint


def model_name(gpus: int) -> str:
    return MODEL if gpus == 8 else f"HGX-H100-{gpus}"


def lay_out(count: int, racks: int, gpus: int, endpoints: Sequence[Endpoint]) -> list[Place]:
    """Racks of equal size in order; one node in sixteen, spread over the racks, is for development."""
    size = -(-count // racks)
    places: list[Place] = []
    for index in range(count):
        rack, slot = divmod(index, size)
        height = _UNITS // size
        places.append(
            Place(
                name=f"gpu-{index + 1:04d}",
                rack=f"r{rack + 1:02d}",
                pool=DEVELOPMENT if index % 16 == 15 else PRODUCTION,
                model=model_name(gpus),
                unit=1 + slot * height if height else None,
                endpoint=endpoints[index],
            )
        )
    return places


def write_fleet(places: Sequence[Place], controller: Endpoint, scale: float, tls: bool) -> tuple[str, FleetSpec]:
    """The file's text and what it says. Waiting times are real seconds that suit the clock's `scale`."""
    scheme = "https" if tls else "http"
    tree = {
        "version": 1,
        "fleet": "demo",
        "site": "simulated",
        "bmc": _bmc(scale, tls),
        "ssh": {
            "user": SSH_USER,
            "key": {"file": "ssh_key"},
            "known_hosts": "known_hosts",
            "connect_timeout_seconds": 5.0,
        },
        "scheduler": {
            "kind": "slurm",
            "controller": f"{controller.address}:{controller.ssh_port}",
            "poll_seconds": round(max(0.5, 15 / scale, len(places) / 500), 3),
        },
        "drivers": _drivers(scale),
        "canary": _canary(scale),
        "bundle_signers": "allowed_signers",
        "gate": {
            "required": 1,
            "allowed_signers": "allowed_signers",
            "signers": [{"principal": APPROVER, "roles": ["approver"]}],
        },
        "pools": {pool: _pool(pool, places, scale) for pool in dict.fromkeys(place.pool for place in places)},
        "racks": {rack: {"power_domain": f"{rack}-pdu"} for rack in dict.fromkeys(p.rack for p in places)},
        "nodes": [_node(place, scheme) for place in places],
    }
    text = "# Written by `gpufleet simulate`. Secrets are in the files that it names.\n"
    text += yaml.safe_dump(tree, sort_keys=False, width=110)
    return text, parse_fleet(text, "fleet.yaml")


def _node(place: Place, scheme: str) -> dict[str, object]:
    end = place.endpoint
    entry: dict[str, object] = {
        "name": place.name,
        "rack": place.rack,
        "pool": place.pool,
        "model": place.model,
        "bmc": f"{scheme}://{end.address}:{end.bmc_port}",
        "ssh": f"{end.address}:{end.ssh_port}",
    }
    return entry if place.unit is None else entry | {"unit": place.unit}


def _bmc(scale: float, tls: bool) -> dict[str, object]:
    settings: dict[str, object] = {
        "user": BMC_USER,
        "password": {"file": "bmc_password"},
        "poll_seconds": round(max(0.2, 10 / scale), 3),
        "update_timeout_seconds": round(max(20.0, 3600 / scale), 3),
        "ready_timeout_seconds": round(max(30.0, 1800 / scale), 3),
        "settle_seconds": round(max(5.0, 300 / scale), 3),
        "boot_timeout_seconds": round(max(45.0, 2400 / scale), 3),
    }
    return settings | {"tls": {"ca": "ca.pem"}} if tls else settings


def _drivers(scale: float) -> dict[str, object]:
    return {
        "unload_pause_seconds": round(max(0.2, 10 / scale), 3),
        "lock_seconds": round(max(30.0, 900 / scale), 3),
        "install_seconds": round(max(60.0, 3600 / scale), 3),
        "poll_seconds": round(max(0.3, 5 / scale), 3),
        "reach_seconds": round(max(20.0, 300 / scale), 3),
        "expected_boot_seconds": round(300 / scale, 3),
    }


def _canary(scale: float) -> dict[str, object]:
    return {
        "bake_hours": round(24 / scale / 60, 4),
        "cool_seconds": round(max(10.0, 300 / scale), 3),
        "cool_poll_seconds": round(max(0.3, 10 / scale), 3),
        "look_seconds": round(max(0.05, 1 / scale), 3),
    }


def _floor(pool: str, count: int) -> float:
    """The pool's floor; lower where it would let no node of a small pool out."""
    if count >= 7 or pool == DEVELOPMENT:
        return FLOORS[pool]
    return 0.5 if count > 1 else 0.0


def _pool(pool: str, places: Sequence[Place], scale: float) -> dict[str, object]:
    count = sum(place.pool == pool for place in places)
    return {
        "production": pool == PRODUCTION,
        "capacity_floor": _floor(pool, count),
        "rack_limit": RACK_LIMIT,
        "breaker": {"share": 0.5, "window_seconds": round(max(5.0, 600 / scale), 3), "floor_nodes": 4},
        "waves": {
            "canary": 2,
            "growth": "exponential",
            "factor": 2.0,
            "bake_seconds": round(max(1.0, 300 / scale), 3),
            "failure_budget": max(2, count // 8),
            "drain_timeout_seconds": round(max(120.0, 48 * 3600 / scale), 3),
        },
    }
