"""What the simulated Slurm leaves alone, what ends with a reservation, and that it keeps no timers of the past."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.slurm_simulated import SimulatedSlurm

NEW = ("scontrol", "create", "ReservationName=r", "StartTime=now", "Nodes=gpu0001")


@pytest.fixture
def slurm(tmp_path: Path) -> SimulatedSlurm:
    return SimulatedSlurm(tmp_path)


def _reasons(slurm: SimulatedSlurm) -> list[str]:
    shown = slurm.run("scontrol", "show", "node", "gpu0001").stdout
    return [line.split("[")[0].strip() for line in shown.splitlines() if "Reason=" in line]


def _states(slurm: SimulatedSlurm) -> list[str]:
    return slurm.run("squeue", "-h", "-a", "--states=all", "-o", "%T").stdout.split()


def test_new_features_leave_the_reason_of_a_drained_node_alone(slurm: SimulatedSlurm) -> None:
    slurm.run("scontrol", "update", "nodename=gpu0001", "state=drain", "reason=dimm 7 of ann")
    assert slurm.run("scontrol", "update", "nodename=gpu0001", "availablefeatures=new").code == 0
    assert _reasons(slurm) == ["Reason=dimm 7 of ann"]


def test_a_malformed_list_of_nodes_is_refused_and_changes_nothing(slurm: SimulatedSlurm) -> None:
    reply = slurm.run("scontrol", "update", "nodename=gpu[0001", "availablefeatures=new")
    assert (reply.code, reply.stderr) == (1, "slurm_update error: Invalid node name specified\n")


def test_a_running_job_ends_with_its_reservation(slurm: SimulatedSlurm) -> None:
    assert slurm.run(*NEW, "Duration=1", "Users=root").code == 0
    slurm.run("sbatch", "--reservation=r", stdin="#!/bin/sh\nsleep 9999\n")
    slurm.timers.advance(30)
    assert _states(slurm) == ["RUNNING"]
    slurm.timers.advance(90)
    assert _states(slurm) == ["TIMEOUT"]
    assert slurm.run("scontrol", "show", "reservation").stdout == "No reservations in the system\n"


def test_a_job_of_a_flexible_reservation_goes_on_behind_its_end(slurm: SimulatedSlurm) -> None:
    assert slurm.run(*NEW, "Duration=1", "Users=root", "Flags=FLEX").code == 0
    slurm.run("sbatch", "--reservation=r", stdin="#!/bin/sh\nsleep 9999\n")
    slurm.timers.advance(120)
    assert _states(slurm) == ["RUNNING"]


def test_reservations_that_come_and_go_leave_one_timer(slurm: SimulatedSlurm) -> None:
    def waiting() -> int:
        return len(slurm.timers._due) - len(slurm.timers._cancelled)

    slurm.run(*NEW, "Duration=UNLIMITED", "Users=root")
    slurm.timers.advance(120)
    before = waiting()
    for number in range(20):
        slurm.run("scontrol", "update", "ReservationName=r", f"Nodes=gpu000{1 + number % 2}")
    slurm.timers.advance(120)
    assert waiting() <= before + 1
