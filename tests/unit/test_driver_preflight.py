"""What stands in the way of a driver change is found before anything is touched, each with what to do next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest
from unit.driver_host_fake import FakeGpuHost, target
from unit.driver_state_fake import NEW, NEW_NAMES, NEXT_KERNEL, OLD, OLD_NAMES, REVISION, digest_of
from unit.site_fakes import SiteClock

from fleet.driver_facts import DriverFacts, PackageFacts
from fleet.driver_holders import Holder
from fleet.driver_operator_labels import STATE_LABEL, refusal
from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord, Simulation
from fleet.driver_preflight import Preflight, check_driver_change
from fleet.driver_settings import DriverSettings, FreeSpace
from fleet.driver_target import FormerDriver, InstallKind, RebootPolicy, RunfilePin
from fleet.node_parts import PciDevice
from fleet.node_reading import NodeReading, read_node

TODAY = date(2026, 11, 30)
ALL = "gpus,driver,packages,system,pci"


def reading(change: Callable[[FakeGpuHost], None] = lambda _: None) -> NodeReading:
    host = FakeGpuHost(SiteClock())
    change(host)
    text = host.run(("sh", "-c", "probe", "sh", f"--sections={ALL}")).stdout
    return read_node(text.split("=====")[2])


def good() -> DriverFacts:
    """A node on which nothing stands in the way."""
    sources = ("http://mirror.example x/main amd64 Packages",)
    names = [(n, OLD + REVISION) for n in OLD_NAMES] + [(n, NEW + REVISION) for n in NEW_NAMES]
    packages = PackageFacts(
        kind=InstallKind.APT,
        manager="dpkg",
        installed=tuple(InstalledPackage(name, OLD + REVISION) for name in OLD_NAMES),
        audit=(),
        offered=tuple(OfferedPackage(name, version, sources) for name, version in names),
        records=tuple(PackageRecord(n, NEW + REVISION, digest_of(n, NEW + REVISION)) for n in NEW_NAMES),
        simulation=Simulation(dict.fromkeys(NEW_NAMES, NEW + REVISION), OLD_NAMES),
    )
    return DriverFacts(
        target=target(),
        reading=reading(),
        today=TODAY,
        packages=packages,
        former=FormerDriver(version=OLD, driver=target(OLD)),
        free_mib={"/usr": 9000, "/boot": 900, "/var": 9000},
        holders=(),
        signer="DKMS key",
        kubernetes=False,
    )


def codes(judged: Preflight) -> set[str]:
    return {finding.code for finding in judged.blocking}


def judge(facts: DriverFacts, settings: DriverSettings | None = None) -> Preflight:
    return check_driver_change(facts, settings or DriverSettings())


def packages(**changes: object) -> DriverFacts:
    return replace(good(), packages=replace(good().packages, **changes))  # type: ignore[arg-type]


def test_a_node_without_obstacles_passes() -> None:
    judged = judge(good())
    assert judged.passed, judged.blocking


def with_driver(**changes: object) -> DriverFacts:
    facts = good()
    driver = replace(facts.reading.driver, **changes)  # type: ignore[arg-type]
    return replace(facts, reading=replace(facts.reading, driver=driver))


def with_reading(**changes: object) -> DriverFacts:
    return replace(good(), reading=replace(good().reading, **changes))  # type: ignore[arg-type]


def two_kernels(host: FakeGpuHost) -> None:
    host.kernels[NEXT_KERNEL] = False


def no_gpus(host: FakeGpuHost) -> None:
    host.gpus = []


STRANGER = Holder(9, "python3", "eva", "session-4.scope", "/dev/nvidia0")
CONTAINER = Holder(9, "python3", "root", f"docker-{'ab' * 32}.scope", "/dev/nvidia0")
NOUVEAU = (PciDevice("0000:01:00.0", "0x10de", None, "0x030200", "nouveau"),)
NOVA = (PciDevice("0000:01:00.0", "0x10de", None, "0x030000", "nova_core"),)
PASSED = (PciDevice("0000:01:00.0", "0x10de", None, "0x030200", "vfio-pci"),)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (with_reading(pci=NOUVEAU), "kernel_driver.wrong"),
        (with_reading(pci=NOVA), "kernel_driver.wrong"),
        (with_reading(pci=PASSED), "kernel_driver.passthrough"),
        (replace(good(), reading=reading(two_kernels)), "headers.missing"),
        (replace(good(), reading=reading(no_gpus)), "gpu.unknown"),
        (replace(with_driver(secure_boot=True), signer=""), "secure_boot.unsigned"),
        (replace(with_driver(secure_boot=True), signer=None), "secure_boot.signer_unknown"),
        (replace(good(), free_mib={"/usr": 9000, "/boot": 3, "/var": 9000}), "space.short"),
        (replace(good(), holders=(STRANGER,)), "holder.foreign"),
        (replace(good(), holders=(CONTAINER,)), "holder.container"),
        (with_driver(library_versions=(OLD, "550.54.15")), "driver.two"),
        (with_driver(origin="runfile"), "installer.other"),
        (with_driver(origin="container"), "installer.other"),
        (replace(good(), driver_refusal=refusal({STATE_LABEL: "drain-required"})), "operator.manages"),
        (packages(audit=None), "packages.unknown"),
        (packages(audit=("slurm-wlm",)), "packages.broken"),
        (packages(refresh="E: The repository 'http://mirror.example x Release' is not signed."), "repository.unsigned"),
        (
            packages(refresh="E: Failed to fetch http://mirror.example/dists/x/InRelease  Hash Sum mismatch"),
            "repository.digest",
        ),
        (packages(refresh="Temporary failure resolving 'm'"), "repository.unreachable"),
        (packages(records=()), "package.digest_unknown"),
        (packages(records=tuple(PackageRecord(n, NEW + REVISION, "0" * 64) for n in NEW_NAMES)), "package.digest"),
        (packages(simulation=None), "install.not_simulated"),
        (packages(simulation=Simulation(refusal="E: unmet dependencies")), "install.refused"),
        (packages(simulation=Simulation(removes=("slurm-wlm",))), "install.removes"),
        (packages(simulation=Simulation(unauthenticated=True)), "package.unsigned"),
        (packages(held=("ibutils",), simulation=Simulation({"ibutils": "2"})), "install.changes_held"),
        (packages(simulation=Simulation({"linux-image-6.8.0-60-generic": "1"})), "install.changes_kernel"),
        (replace(good(), former=FormerDriver(why_not="no driver is seen on the node")), "way_back.none"),
    ],
)
def test_each_obstacle_blocks_and_says_what_to_do(facts: DriverFacts, code: str) -> None:
    judged = judge(facts)
    assert code in codes(judged), judged.findings
    assert all(str(finding) for finding in judged.blocking)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (with_driver(secure_boot=None), "secure_boot.unknown"),
        (with_driver(on_disk="570.172.08"), "driver.half_changed"),
        (replace(good(), free_mib={}), "space.unknown"),
        (replace(good(), holders=None), "holders.unknown"),
        (replace(good(), active_upgraders=("apt-daily-upgrade.service",)), "upgrades.running"),
        (packages(held=("nvidia-dkms-570-server-open",)), "packages.held"),
        (packages(audit=("nvidia-dkms-570-server-open",)), "packages.driver_broken"),
        (packages(simulation=Simulation(removes=("cuda-12-8",))), "install.removes_cuda"),
        (packages(installed=(*good().packages.installed, InstalledPackage("cuda", "12.8"))), "cuda.pulls_driver"),
        (with_reading(egress={"popularity_contest": "yes"}), "egress.on"),
    ],
)
def test_what_is_worth_knowing_does_not_block(facts: DriverFacts, code: str) -> None:
    judged = judge(facts)
    assert code in {finding.code for finding in judged.findings}
    assert judged.passed, judged.blocking


def test_a_runfile_of_a_cuda_toolkit_is_told_as_what_it_is() -> None:
    facts = with_driver(origin="runfile")
    section = {**facts.reading.sections["driver"], "installers": {"cuda_runfile": True, "runfile": True}}
    sections = {**facts.reading.sections, "driver": section}
    judged = judge(replace(facts, reading=replace(facts.reading, sections=sections)))
    assert any("bundled" in finding.text for finding in judged.blocking)


def test_a_half_changed_driver_is_told_as_what_it_is() -> None:
    def half(host: FakeGpuHost) -> None:
        host.loaded = "570.86.15"

    judged = judge(replace(good(), reading=reading(half)))
    assert "driver.mismatch" in codes(judged)
    assert any("module 570.86.15 is loaded beside a user space of 570.133.20" in f.text for f in judged.blocking)


def test_a_fabric_manager_may_not_stay_behind() -> None:
    facts = good()
    pins = tuple(pin for pin in facts.target.packages if "fabric" not in pin.name)
    judged = judge(replace(facts, target=facts.target.model_copy(update={"packages": pins})))
    assert "fabric_manager.left_behind" in codes(judged)


def test_a_branch_after_its_end_needs_the_fleets_word() -> None:
    old = target(OLD).model_copy(update={"version": "535.54.03"})
    facts = replace(good(), target=old, today=date(2027, 6, 1))
    assert "branch.end_of_life" in codes(judge(facts))
    assert "branch.end_of_life" not in codes(judge(facts, DriverSettings(allow_end_of_life=True)))


def test_a_driver_that_does_not_drive_the_gpu_is_refused() -> None:
    facts = replace(good(), target=target().model_copy(update={"version": "470.256.02"}))
    assert codes(judge(facts)) & {"matrix.refused", "matrix.unknown"}


def test_a_plan_without_digests_is_refused_unless_the_fleet_allows_it() -> None:
    bare = tuple(pin.model_copy(update={"sha256": None}) for pin in target().packages)
    facts = replace(good(), target=target().model_copy(update={"packages": bare}))
    assert "package.no_digest" in codes(judge(facts))
    assert judge(facts, DriverSettings(require_digests=False)).passed


def test_outside_reports_are_refused_where_the_fleet_says_so() -> None:
    facts = with_reading(egress={"popularity_contest": "yes"})
    assert "egress.on" in codes(judge(facts, DriverSettings(egress="refuse")))
    assert "egress.on" not in {f.code for f in judge(facts, DriverSettings(egress="ignore")).findings}


def test_who_holds_a_gpu_does_not_matter_where_the_node_is_rebooted_anyway() -> None:
    facts = replace(good(), holders=(STRANGER,), target=target(reboot=RebootPolicy.ALWAYS))
    assert judge(facts).passed


def test_services_that_are_known_block_nothing() -> None:
    known = Holder(4100, "nv-hostengine", "root", "nvidia-dcgm.service", "/dev/nvidia0")
    bare = Holder(5180, "nvidia-persiste", "root", "", "/dev/nvidia0")
    assert judge(replace(good(), holders=(known, bare))).passed


def test_a_runfile_is_checked_by_its_digest() -> None:
    pin = RunfilePin(path=f"/srv/NVIDIA-Linux-x86_64-{NEW}.run", sha256="a" * 64)
    changes = {"kind": InstallKind.RUNFILE, "packages": (), "runfile": pin}
    facts = replace(with_driver(origin="runfile"), target=target().model_copy(update=changes))
    absent = replace(facts, packages=PackageFacts(InstallKind.RUNFILE, "dpkg"))
    assert "runfile.absent" in codes(judge(absent))
    other = replace(facts, packages=PackageFacts(InstallKind.RUNFILE, "dpkg", runfile_sha256="b" * 64))
    assert "runfile.digest" in codes(judge(other))
    same = replace(facts, packages=PackageFacts(InstallKind.RUNFILE, "dpkg", runfile_sha256="a" * 64))
    assert judge(same).passed, judge(same).blocking


def test_room_is_asked_for_as_the_fleet_file_says() -> None:
    assert "space.short" in codes(judge(good(), DriverSettings(free=FreeSpace(boot_mib=100_000))))


def test_kernels_are_ordered_by_their_numbers() -> None:
    def later(host: FakeGpuHost) -> None:
        host.kernels["6.8.0-100-generic"] = False

    judged = judge(replace(good(), reading=reading(later)))
    assert any("next kernel 6.8.0-100-generic" in finding.text for finding in judged.blocking)
