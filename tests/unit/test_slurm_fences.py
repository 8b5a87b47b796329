"""What the fences make of Slurm's refusals; the words are those of Slurm 22.05."""

from __future__ import annotations

import pytest

from adapters.local import Finished
from adapters.slurm_fences import SlurmFences
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, NodeUnreachable, SchedulerUnreachable

NONE = "No reservations in the system\n"
FENCE = (
    "ReservationName=gpufleet.train StartTime=2026-11-30T16:00:00 EndTime=2027-11-30T16:00:00 Duration=365-00:00:00 "
    "Nodes={nodes} NodeCnt=2 CoreCnt=16 Features=(null) PartitionName=(null) Flags={flags} TRES=cpu=16 Users=-nobody "
    "Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n"
)
FLAGS = "IGNORE_JOBS,SPEC_NODES,NO_HOLD_JOBS_AFTER_END,MAGNETIC"
IN_USE = "delete_reservation ReservationName=gpufleet.train: Requested reservation is in use"


class Host:
    """Answers each command by its second word; a list is answered one after the other, its last one for ever."""

    def __init__(self, **answers: list[Finished]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, ...]] = []

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        self.asked.append(arguments)
        left = self.answers[arguments[1] if arguments[0] == "scontrol" else arguments[0]]
        return left.pop(0) if len(left) > 1 else left[0]

    def close(self) -> None: ...


def _ok(text: str = "") -> list[Finished]:
    return [Finished(0, text, "")]


def _no(words: str) -> Finished:
    return Finished(1, "", words)


def _fence(nodes: str = "gpu[1-2]", flags: str = FLAGS) -> list[Finished]:
    return _ok(FENCE.format(nodes=nodes, flags=flags))


def test_a_site_without_the_user_nobody_shuts_root_out_instead() -> None:
    host = Host(show=_ok(NONE), create=[_no("Error creating the reservation: Invalid user id"), *_ok()])
    assert SlurmFences(host).ensure_fence("train", ("gpu2", "gpu1"))
    made = [command for command in host.asked if command[1] == "create"]
    assert [next(word for word in command if word.startswith("Users")) for command in made] == [
        "Users=-nobody",
        "Users=-root",
    ]
    assert "Nodes=gpu[1-2]" in made[0]
    assert "ReservationName=gpufleet.train" in made[0]


def test_a_site_whose_accounting_does_not_know_nobody_shuts_root_out_instead() -> None:
    words = "Error creating the reservation: Invalid account or account/partition combination specified"
    host = Host(show=_ok(NONE), create=[_no(words), *_ok()])
    assert SlurmFences(host).ensure_fence("train", ("gpu1",))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Requested reservation overlaps with another reservation", ConfigurationError),
        ("Access/permission denied", CredentialsRejected),
        ("Invalid user id", CredentialsRejected),
        ("Unable to contact slurm controller (connect failure)", SchedulerUnreachable),
        ("something never seen", SchedulerUnreachable),
    ],
)
def test_a_fence_that_cannot_be_made_says_why(words: str, kind: type[FleetError]) -> None:
    host = Host(show=_ok(NONE), create=[_no(f"Error creating the reservation: {words}")])
    with pytest.raises(kind):
        SlurmFences(host).ensure_fence("train", ("gpu1",))


def test_a_silent_controller_is_never_a_fleet_without_fences() -> None:
    class Silent(Host):
        def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
            raise NodeUnreachable("timed out", node="ctl")

    for host in (Silent(), Host(show=_ok("")), Host(show=[_no("slurm_load_reservations error: Unable to contact")])):
        with pytest.raises(SchedulerUnreachable):
            SlurmFences(host).read_fences()
        with pytest.raises(SchedulerUnreachable):
            SlurmFences(host).ensure_fence("train", ())


def test_a_fence_that_draws_nobody_in_any_more_is_mended() -> None:
    for flags in ("IGNORE_JOBS,SPEC_NODES", "IGNORE_JOBS,MAGNETIC"):
        host = Host(show=_fence(flags=flags), update=_ok())
        assert SlurmFences(host).ensure_fence("train", ("gpu1", "gpu2"))
        assert host.asked[-1][2:4] == ("ReservationName=gpufleet.train", "Nodes=gpu[1-2]")
    host = Host(show=_fence())
    assert not SlurmFences(host).ensure_fence("train", ("gpu1", "gpu2"))


def test_jobs_are_taken_out_of_a_fence_before_it_goes() -> None:
    host = Host(show=_fence(), delete=[_no(IN_USE), *_ok()], squeue=_ok("7\n8\n"), update=_ok())
    assert SlurmFences(host).ensure_fence("train", ())
    assert ("scontrol", "update", "JobId=7,8", "ReservationName=") in host.asked


def test_a_fence_whose_jobs_keep_starting_is_asked_again_and_not_forced() -> None:
    host = Host(show=_fence(), delete=[_no(IN_USE)], squeue=_ok("7\n"), update=_ok())
    with pytest.raises(SchedulerUnreachable, match="kept starting"):
        SlurmFences(host).ensure_fence("train", ())
    assert all("EndTime" not in word for command in host.asked for word in command)


def test_a_fence_that_somebody_else_took_away_meanwhile_is_gone() -> None:
    words = "delete_reservation ReservationName=gpufleet.train: Requested reservation is invalid"
    assert SlurmFences(Host(show=_fence(), delete=[_no(words)])).ensure_fence("train", ())


def test_a_list_too_long_for_a_command_line_is_said_to_be() -> None:
    names = tuple(f"{index:012b}".translate({48: "a", 49: "b"}) * 5 for index in range(3000))
    with pytest.raises(ConfigurationError, match="fit into no command line"):
        SlurmFences(Host(show=_ok(NONE))).ensure_fence("train", names)
