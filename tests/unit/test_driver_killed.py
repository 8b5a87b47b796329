"""A driver change whose controller is killed, or cut off, at each command: it ends on one version, whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.driver_host_fake import (
    NEW,
    OLD,
    DriverSite,
    change,
    check_whole,
    restore,
    target,
)

from fleet.driver_target import RebootPolicy


def moments(folder: Path, reboot: RebootPolicy = RebootPolicy.WHEN_NEEDED) -> list[tuple[int, bool]]:
    """Every moment of a change at which dying makes a difference: before a command, or right after its effect."""
    site = DriverSite(folder)
    site.watch_journal()
    change(site, target(reboot=reboot))
    return moments_of(site, 0)


def moments_of(site: DriverSite, first: int) -> list[tuple[int, bool]]:
    """Before every command that follows on a change or on words in the journal, and after every change."""
    host = site.gpu_host
    found = []
    for index in range(first, len(host.commands)):
        changed = index == first or changes_something(host.commands[index - 1])
        if changed or host.written[index] != host.written[index - 1]:
            found.append((index + 1, False))
        if changes_something(host.commands[index]):
            found.append((index + 1, True))
    return found


def changes_something(command: tuple[str, ...]) -> bool:
    return (
        "gpufleet-job-start" in command
        or command[0] in ("modprobe", "nvidia-smi")
        or command[:2]
        in (
            ("systemctl", "stop"),
            ("systemctl", "start"),
            ("systemctl", "mask"),
            ("systemctl", "unmask"),
            ("apt-mark", "hold"),
        )
    )


def die(site: DriverSite, moment: tuple[int, bool]) -> None:
    site.gpu_host.dies_at, site.gpu_host.dies_after = moment


@pytest.mark.parametrize("reboot", [RebootPolicy.WHEN_NEEDED, RebootPolicy.ALWAYS])
def test_killed_at_any_command_it_ends_on_one_version_with_its_settings(tmp_path: Path, reboot: RebootPolicy) -> None:
    for moment in moments(tmp_path / "once", reboot):
        site = DriverSite(tmp_path / f"{moment}")
        die(site, moment)
        with pytest.raises(KeyboardInterrupt):
            change(site, target(reboot=reboot))
        change(site, target(reboot=reboot))
        check_whole(site.gpu_host, NEW)
        assert len(site.gpu_host.installs) == 1, moment
        assert site.gpu_host.boots == (2 if reboot is RebootPolicy.ALWAYS else 1), moment


def test_killed_at_any_command_it_can_go_back_to_the_former_driver(tmp_path: Path) -> None:
    for moment in moments(tmp_path / "once"):
        site = DriverSite(tmp_path / f"{moment}")
        die(site, moment)
        with pytest.raises(KeyboardInterrupt):
            change(site)
        restore(site)
        check_whole(site.gpu_host, OLD)


def test_a_way_back_that_is_killed_at_any_command_ends_on_the_former_driver(tmp_path: Path) -> None:
    site = DriverSite(tmp_path / "once")
    site.watch_journal()
    change(site)
    begun = len(site.gpu_host.commands)
    restore(site)
    check_whole(site.gpu_host, OLD)
    for moment in moments_of(site, begun):
        again = DriverSite(tmp_path / f"{moment}")
        die(again, moment)
        change(again)
        with pytest.raises(KeyboardInterrupt):
            restore(again)
        restore(again)
        check_whole(again.gpu_host, OLD)
        assert len(again.gpu_host.installs) == 2, moment


def test_a_connection_that_breaks_at_any_command_is_only_waited_for(tmp_path: Path) -> None:
    for number in sorted({number for number, _ in moments(tmp_path / "once")}):
        site = DriverSite(tmp_path / f"{number}")
        site.gpu_host.unreachable_at = number
        change(site)
        check_whole(site.gpu_host, NEW)
        assert len(site.gpu_host.installs) == 1, number
