"""What Prefect is told of an operation that runs."""

from __future__ import annotations

import json

from unit.cli_site import plan_of_one

from blocks.fleet import Fleet
from flows.firmware_rollout import firmware_wave
from tasks.operations import OperationRun

_MOST_BYTES = 524_288  # what Prefect's server takes as the parameters of one run


def test_a_wave_of_the_largest_fleet_fits_into_the_parameters_of_its_run() -> None:
    names = [f"gpu-{number:05}" for number in range(12_500)]
    one = plan_of_one()
    node = next(iter(one.nodes.values()))
    plan = one.model_copy(update={"nodes": dict.fromkeys(names, node)})
    wave = one.waves[0].model_copy(update={"units": tuple((name,) for name in names)})
    run = OperationRun(Fleet(fleet_file="/srv/fleet.yaml"), "fw-20261130-7k3q", 3, plan)
    told = firmware_wave.serialize_parameters({"run": run, "wave": wave, "only_in_hand": False})
    assert len(json.dumps(told)) < _MOST_BYTES
    assert told["wave"]["number"] == wave.number
