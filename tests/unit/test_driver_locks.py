"""Another package manager at work is seen before anything is disturbed, is waited for, and is named."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.driver_host_fake import NEW, OLD, SERVICES, DriverSite, FakeGpuHost, change, check_whole, restore
from unit.site_fakes import Answer, SiteClock

from adapters.local import LocalHost
from adapters.packages import packages_of
from adapters.packages_locks import APT_LOCKS, RPM_LOCKS, read_locks
from fleet.driver_target import InstallKind
from fleet.errors import DriverBlocked
from fleet.package_locks import END, LockHolder, read_lock_holders

UPGRADE = "process 777 (unattended-upgr)"


class LockedHost(FakeGpuHost):
    """A host whose lock table is read, and whose dpkg is locked until `held_until` (monotonic)."""

    def __init__(self, clock: SiteClock) -> None:
        super().__init__(clock)
        self.held_until = 0.0

    def _answer(self, arguments: tuple[str, ...]) -> Answer:
        match arguments:
            case ("sh", "-c", _, "gpufleet-locks", first, *_):
                held = self.clock.monotonic() < self.held_until
                line = f"lock\t777\tunattended-upgr\t{first}\n" if held else ""
                return Answer(stdout=f"{line}{END}\n")
        return super()._answer(arguments)


class LockedSite(DriverSite):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.locked = LockedHost(self.clock)
        self.gpu_host = self.locked
        self.seen: list[tuple[str | None, bool]] = []

    def hold(self, seconds: float) -> None:
        """From now on; some time into it, note what the node waits for and whether all its services run."""
        self.locked.held_until = self.clock.monotonic() + seconds
        self.clock.after(200, self._look)

    def _look(self) -> None:
        (row,) = self.ledger().operations.node_rows(self.operation)
        whole = self.gpu_host.services == dict.fromkeys(SERVICES, "active")
        self.seen.append((row.waiting_for, whole))


@pytest.fixture
def site(tmp_path: Path) -> LockedSite:
    return LockedSite(tmp_path)


def test_a_lock_is_waited_for_while_every_service_still_runs_and_is_told(site: LockedSite) -> None:
    site.hold(600)
    change(site)
    assert site.seen == [(f"waits for the package manager: held by {UPGRADE}", True)]
    check_whole(site.gpu_host, NEW)


def test_a_lock_that_does_not_go_blocks_the_node_with_nothing_stopped_or_unloaded(site: LockedSite) -> None:
    site.hold(1e6)
    with pytest.raises(DriverBlocked, match=r"held by process 777 \(unattended-upgr\), for 900 s"):
        change(site)
    check_whole(site.gpu_host, OLD)
    disturbing = (("systemctl", "stop"), ("systemctl", "mask"), ("modprobe", "-r"))
    assert not [command for command in site.gpu_host.commands if command[:2] in disturbing]


def test_a_lock_that_comes_after_the_checks_is_met_before_services_are_stopped(site: LockedSite) -> None:
    mask = site.gpu_host._systemctl

    def masking(verb: str, unit: str) -> Answer:
        if verb == "mask" and not site.locked.held_until:
            site.hold(600)
        return mask(verb, unit)

    site.gpu_host._systemctl = masking  # type: ignore[method-assign]
    change(site)
    assert site.seen == [(f"waits for the package manager: held by {UPGRADE}", True)]
    check_whole(site.gpu_host, NEW)


def test_the_way_back_waits_before_it_stops_services_too(site: LockedSite) -> None:
    change(site)
    site.hold(600)
    restore(site)
    assert site.seen == [(f"waits for the package manager: held by {UPGRADE}", True)]
    check_whole(site.gpu_host, OLD)


def test_an_automatic_upgrade_that_runs_is_let_finish_before_services_are_stopped(site: LockedSite) -> None:
    site.gpu_host.services["apt-daily-upgrade"] = "active"

    def end() -> None:
        del site.gpu_host.services["apt-daily-upgrade"]

    site.clock.after(300, end)
    change(site)
    stopped = [n for n, command in enumerate(site.gpu_host.commands) if command[:2] == ("systemctl", "stop")]
    asked = [n for n, command in enumerate(site.gpu_host.commands) if "apt-daily-upgrade.service" in command]
    assert len([n for n in asked if n < stopped[0]]) > 5
    check_whole(site.gpu_host, NEW)


def test_an_upgrade_that_hangs_without_a_lock_keeps_nobody_from_the_change(site: LockedSite) -> None:
    site.gpu_host.services["apt-daily-upgrade"] = "active"
    change(site)
    assert site.gpu_host.loaded == NEW


def test_a_host_that_cannot_tell_its_locks_is_changed_and_a_lock_is_met_later(tmp_path: Path) -> None:
    site = DriverSite(tmp_path)
    change(site)
    check_whole(site.gpu_host, NEW)


def test_an_answer_without_its_end_tells_nothing_and_odd_lines_tell_of_nobody() -> None:
    line = "lock\t41\tapt-get\t/var/lib/dpkg/lock\n"
    assert read_lock_holders(line) is None
    assert read_lock_holders("") is None
    assert read_lock_holders(f"Welcome!\r\n{line}lock\tx\ty\tz\nlock\t²\ty\tz\nlock\t1\n{END}\r\n") == (
        LockHolder(41, "apt-get", "/var/lib/dpkg/lock"),
    )
    assert read_lock_holders(f"{line}lock\t41\tapt-get\t/var/lib/dpkg/lock-frontend\n{END}") == (
        LockHolder(41, "apt-get", "/var/lib/dpkg/lock"),
    )
    assert read_lock_holders(END) == ()
    assert str(LockHolder(41, "apt-get", "/x")) == "process 41 (apt-get)"


def test_no_text_makes_the_reader_fail() -> None:
    rng = random.Random(3)
    for _ in range(300):
        read_lock_holders("".join(rng.choice("lock\t\n\r0123456789²\x00é " + END) for _ in range(80)) + f"\n{END}\n")


def test_each_package_manager_looks_at_its_own_locks() -> None:
    class Asked:
        def __init__(self) -> None:
            self.files: tuple[str, ...] = ()

        def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
            self.files = arguments[4:]
            return Answer(stdout=END)

        def close(self) -> None:
            """Nothing is kept open."""

    for kind, files in ((InstallKind.APT, APT_LOCKS), (InstallKind.DNF, RPM_LOCKS)):
        asked = Asked()
        assert packages_of(kind, asked, "gpu-0001").locks() == ()
        assert asked.files == files


_HOLDS = "import fcntl,sys,time;f=open(sys.argv[1],'w');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(99)"


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock `tmp_path`/lock, as apt does."""
    command = [sys.executable, "-c", _HOLDS, str(tmp_path / "lock")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def test_a_real_lock_is_seen_with_its_process_and_gone_when_that_ends(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    file = tmp_path / "lock"
    if f":{file.stat().st_ino} " not in Path("/proc/locks").read_text():
        pytest.skip("the kernel shows no table of locks here")
    found = read_locks(LocalHost(), (str(tmp_path / "none"), str(file)))
    assert found is not None
    assert [(one.pid, one.file) for one in found] == [(holder.pid, str(file))]
    assert found[0].command.startswith("python")
    holder.kill()
    holder.wait()
    assert read_locks(LocalHost(), (str(file),)) == ()


def test_a_file_that_is_open_and_not_locked_is_no_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with file.open("w"):
        assert read_locks(LocalHost(), (str(file),)) == ()


def test_a_process_that_left_its_number_in_a_lock_file_counts_while_it_lives(tmp_path: Path) -> None:
    file = tmp_path / "rpmdb_lock.pid"
    file.write_text(str(os.getpid()))
    found = read_locks(LocalHost(), (str(file),))
    assert found is not None
    assert [one.pid for one in found] == [os.getpid()]
    file.write_text("999999999")
    assert read_locks(LocalHost(), (str(file),)) == ()
    file.write_text("no number")
    assert read_locks(LocalHost(), (str(file),)) == ()
