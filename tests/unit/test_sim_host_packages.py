"""The package manager of a simulated Ubuntu host, through the readers that the product has for real ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.sim_host_bench import ENVIRONMENT, NODE, HostBench, install_words, version

from adapters.packages_apt import AptPackages
from fleet.driver_target import PackagePin
from simulator.host.releases import RELEASES, driver_debs

NEW, FORMER = "570.172.08", "550.54.15"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[HostBench]:
    found = HostBench(tmp_path)
    yield found
    found.close()


def states(bench: HostBench) -> dict[str, str]:
    answer = bench.ask("dpkg-query", "-W", "-f", "${Package}\\t${db:Status-Abbrev}\\n", "*nvidia*")
    return dict(line.split("\t") for line in answer.stdout.splitlines())


def test_dpkg_tells_the_packages_of_the_driver_with_versions_and_holds(bench: HostBench) -> None:
    packages = AptPackages(bench, NODE)
    found = {package.name: package.version for package in packages.installed()}
    assert {name: found[name] for name in driver_debs(FORMER)} == driver_debs(FORMER)
    assert packages.held() == ("nvidia-driver-550-server",)
    assert packages.audit() == ()


def test_a_pattern_that_fits_nothing_is_told_and_the_others_are_answered(bench: HostBench) -> None:
    answer = bench.ask("dpkg-query", "-W", "-f", "${Package}\\n", "nouveau*", "dkms")
    assert (answer.code, answer.stdout) == (1, "dkms\n")
    assert answer.stderr == "dpkg-query: no packages found matching nouveau*\n"


def test_every_release_is_offered_under_the_names_of_its_branch_with_digest_and_size(bench: HostBench) -> None:
    packages = AptPackages(bench, NODE)
    for release in RELEASES:
        pins = tuple(PackagePin(name=name, version=text) for name, text in driver_debs(release).items())
        offered = {(offer.name, offer.version) for offer in packages.offered(tuple(pin.name for pin in pins))}
        assert {(pin.name, pin.version) for pin in pins} <= offered
        records = packages.records(pins)
        assert [len(record.sha256 or "") for record in records] == [64] * len(pins)
    shown = bench.ask("apt-cache", "show", f"nvidia-dkms-570-server={version(NEW)}").stdout
    assert "Size: " in shown
    assert f"Version: {version(NEW)}\n" in shown


def test_another_branch_takes_the_place_of_the_one_that_is_there(bench: HostBench) -> None:
    pins = tuple(PackagePin(name=name, version=text) for name, text in driver_debs(NEW).items())
    simulated = AptPackages(bench, NODE).simulate(pins)
    assert simulated is not None
    assert not simulated.refusal
    assert set(simulated.installs) == set(driver_debs(NEW))
    assert {name for name in driver_debs(FORMER) if "firmware" not in name} == set(simulated.removes)
    assert states(bench)["nvidia-driver-550-server"] == "hi "


def test_a_version_that_is_not_the_newest_needs_all_of_its_packages_named(bench: HostBench) -> None:
    words = ("apt-get", "-s", "install", "-y", "--allow-change-held-packages")
    older = bench.ask(*words, f"nvidia-driver-570-server={version(NEW)}")
    assert older.code == 100
    assert " nvidia-driver-570-server : Depends: " in older.stderr
    assert "(= 570.172.08-0ubuntu0.22.04.1) but 570.195.03-0ubuntu0.22.04.1 is to be installed" in older.stderr
    newest = bench.ask(*words, "nvidia-driver-580-server")
    assert newest.code == 0
    assert "Inst nvidia-dkms-580-server (580.105.08-0ubuntu0.22.04.1 " in newest.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nvidia-driver-999-server"], "E: Unable to locate package nvidia-driver-999-server"),
        (["nvidia-dkms-570-server=1.2"], "E: Version '1.2' for 'nvidia-dkms-570-server' was not found"),
        (["nvidia-driver-580-server"], "E: Held packages were changed and -y was used without"),
    ],
)
def test_apt_refuses_in_its_own_words(bench: HostBench, words: list[str], said: str) -> None:
    answer = bench.ask("apt-get", "-s", "install", "-y", *words)
    assert answer.code == 100
    assert said in answer.stderr


def test_an_install_takes_a_minute_and_a_half_and_changes_the_user_space_but_not_the_loaded_module(
    bench: HostBench,
) -> None:
    bench.start_job("one", *ENVIRONMENT, "apt-get", *install_words(NEW))
    bench.advance(85)
    assert bench.read_job("one")["state"] == "running"
    bench.advance(10)
    told = bench.read_job("one")
    assert (told["state"], told["code"]) == ("ended", 0)
    assert "Setting up nvidia-dkms-570-server" in str(told["tail"])
    reading = bench.probe()
    assert (reading.driver.loaded, reading.driver.on_disk, reading.driver.user_space) == (FORMER, NEW, NEW)
    assert reading.driver.fabric_manager == NEW
    assert states(bench)["nvidia-fabricmanager-550"] == "rc "
    [install] = bench.truth("driver_install")
    assert (install["version"], install["from"], install["ok"]) == (NEW, FORMER, True)


def test_a_job_of_the_same_name_is_not_started_twice(bench: HostBench) -> None:
    bench.install(NEW, "one")
    before = bench.read_job("one")
    bench.start_job("one", "dpkg", "--configure", "-a")
    bench.advance(200)
    assert bench.read_job("one") == before
    assert len(bench.truth("driver_install")) == 1
    assert bench.read_job("other") == {"state": "absent", "code": None, "tail": ""}


@pytest.mark.parametrize(
    ("seconds", "broken"),
    [
        (5.0, set()),
        (20.0, {"iU "}),
        (50.0, {"iF ", "iU "}),
    ],
)
def test_a_host_that_loses_power_in_an_install_has_half_of_it_and_dpkg_mends_that(
    bench: HostBench, seconds: float, broken: set[str]
) -> None:
    bench.start_job("one", *ENVIRONMENT, "apt-get", *install_words(NEW))
    bench.advance(seconds)
    bench.do(bench.machine.power_off)
    bench.do(bench.machine.power_on)
    bench.advance(200)
    told = bench.read_job("one")
    assert (told["state"], told["code"]) == ("lost", None)
    assert {state for state in states(bench).values() if state[1] in "UF"} == broken
    audit = AptPackages(bench, NODE).audit() or ()
    assert bool(audit) == bool(broken)
    if broken:
        refused = bench.ask("apt-get", *install_words(NEW))
        assert "dpkg was interrupted, you must manually run 'dpkg --configure -a'" in refused.stderr
        bench.start_job("mend", *ENVIRONMENT, "dpkg", "--configure", "-a")
        bench.advance(90)
        assert bench.read_job("mend")["code"] == 0
        assert AptPackages(bench, NODE).audit() == ()
        assert bench.probe().driver.on_disk == NEW
        assert bench.install(NEW, "again")["code"] == 0
    else:
        assert states(bench)["nvidia-driver-550-server"] == "hi "


def test_dpkgs_lock_is_held_while_an_install_runs(bench: HostBench) -> None:
    bench.start_job("one", *ENVIRONMENT, "apt-get", *install_words(NEW))
    bench.advance(20)
    second = bench.ask("apt-get", *install_words("580.95.05"))
    assert second.code == 100
    assert "Could not get lock /var/lib/dpkg/lock-frontend. It is held by process" in second.stderr
    assert bench.ask("dpkg", "--configure", "-a").code == 2


def test_the_former_driver_can_be_installed_again(bench: HostBench) -> None:
    assert bench.install(NEW, "there")["code"] == 0
    assert bench.install(FORMER, "back")["code"] == 0
    reading = bench.probe()
    assert {reading.driver.loaded, reading.driver.on_disk, reading.driver.user_space} == {FORMER}
    assert reading.nvml_error is None


def test_a_module_that_does_not_build_leaves_the_packages_half_configured(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{dkms_fails: gpu-0001}")
    told = bench.install(NEW)
    assert told["code"] == 100
    assert "Error! Bad return status for module build on kernel: 5.15.0-105-generic (x86_64)" in str(told["tail"])
    found = states(bench)
    assert (found["nvidia-dkms-570-server"], found["nvidia-driver-570-server"]) == ("iF ", "iU ")
    assert set(AptPackages(bench, NODE).audit() or ()) == {"nvidia-dkms-570-server", "nvidia-driver-570-server"}
    assert bench.ask("modinfo", "-F", "version", "-k", "5.15.0-105-generic", "nvidia").code == 1
    assert bench.install(FORMER, "back")["code"] == 0
    bench.close()


def test_holds_are_set_and_lifted(bench: HostBench) -> None:
    packages = AptPackages(bench, NODE)
    packages.release(("nvidia-driver-550-server",))
    assert packages.held() == ()
    packages.hold(("nvidia-dkms-550-server", "nvidia-driver-550-server"))
    assert packages.held() == ("nvidia-dkms-550-server", "nvidia-driver-550-server")
    assert bench.ask("apt-mark", "hold", "no-such-package").code == 100


def test_an_automatic_upgrade_that_holds_the_lock_ends_by_itself(tmp_path: Path) -> None:
    bench = HostBench(tmp_path, "{apt_busy: [gpu-0001]}")
    assert "unattended-upgr" in bench.ask("apt-get", *install_words(NEW)).stderr
    bench.advance(1800)
    assert bench.install(NEW)["code"] == 0
    bench.close()
