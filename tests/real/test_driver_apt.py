"""A driver change by real apt and dpkg, over a real sshd, with packages whose scripts really run."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.driver_host_fake import PLAIN

from adapters.driver_host import DriverHost
from fleet.driver_target import DriverTarget
from fleet.errors import DriverBlocked, FleetError, NotQualified
from tasks.driver import change_driver, read_driver_target, restore_driver
from tests.real.debian_root import REPOSITORY, Signer, build, inside, missing_tools, publish, write
from tests.real.driver_node import (
    KERNEL,
    NEW,
    NEXT_KERNEL,
    OLD,
    REVISION,
    SERVICES,
    SETTINGS,
    DriverNode,
    driver_debs,
    make_base,
)
from tests.real.sshd import missing_parts

_LACKS = missing_tools() or missing_parts()
pytestmark = [
    pytest.mark.sshd,
    pytest.mark.timeout(900),
    pytest.mark.skipif(_LACKS is not None, reason=_LACKS or ""),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Signer]]:
    root, signer = make_base(tmp_path_factory.mktemp("debian"))
    yield root, signer
    signer.close()
    shutil.rmtree(root)


@pytest.fixture
def node(tmp_path: Path, base: tuple[Path, Signer]) -> Iterator[DriverNode]:
    found = DriverNode(tmp_path, base[0])
    yield found
    found.close_all()


def target(node: DriverNode) -> DriverTarget:
    host = DriverHost(node.file_host(node.spec().inventory()[0]), "gpu-0001")
    assert node.root.joinpath(REPOSITORY).exists()
    return read_driver_target(host, "gpu-0001", NEW)


def change(node: DriverNode, wanted: DriverTarget) -> None:
    change_driver(node.new_visit(), wanted, PLAIN)


def check_whole(node: DriverNode, version: str) -> None:
    assert node.versions() == {deb.name: deb.version for deb in driver_debs(version)}
    assert inside(node.root, "dpkg", "--audit").stdout == ""
    assert node.text("sys/module/nvidia/version") == version
    assert node.text(f"lib/modules/{KERNEL}/updates/nvidia.ko") == version
    assert {name: node.text(f"run/gpu/{name}") for name in SETTINGS} == SETTINGS
    assert {unit for unit in SERVICES if node.root.joinpath("run/units", unit).exists()} == set(SERVICES)
    masked = node.root / "run/masked"
    assert not masked.exists() or list(masked.iterdir()) == []


def installs(node: DriverNode) -> int:
    return len(list(node.root.glob("var/lib/gpufleet/jobs/*install*")))


def wait_for(node: DriverNode, path: str) -> None:
    end = time.monotonic() + 120
    while not list(node.root.glob(path)):
        assert time.monotonic() < end, f"{path} did not come"
        time.sleep(0.05)


def in_background(node: DriverNode, wanted: DriverTarget) -> tuple[threading.Thread, list[FleetError]]:
    faults: list[FleetError] = []

    def run() -> None:
        try:
            change(node, wanted)
        except FleetError as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, faults


def test_the_target_is_what_the_repository_offers_with_its_digests(node: DriverNode) -> None:
    wanted = target(node)
    assert [(pin.name, pin.version) for pin in wanted.packages] == sorted((d.name, d.version) for d in driver_debs(NEW))
    assert all(pin.sha256 for pin in wanted.packages)


def test_a_node_is_upgraded_and_rolled_back(node: DriverNode) -> None:
    change(node, target(node))
    check_whole(node, NEW)
    assert installs(node) == 1
    restore_driver(node.new_visit(), PLAIN)
    check_whole(node, OLD)


def test_an_upgrade_that_is_killed_half_way_on_the_host_is_finished(node: DriverNode) -> None:
    wanted = target(node)
    write(node.root, "etc/slow", "60")
    thread, faults = in_background(node, wanted)
    wait_for(node, "usr/src/nvidia-580.95.05/version")
    wait_for(node, "var/lib/dpkg/info/nvidia-dkms-580-server-open.postinst")
    time.sleep(1)
    node.end_job("install")
    (node.root / "etc/slow").unlink()
    thread.join()
    assert faults == []
    check_whole(node, NEW)


def test_an_upgrade_that_is_killed_half_way_can_go_back(node: DriverNode) -> None:
    wanted = target(node)
    write(node.root, "etc/slow", "600")
    thread, _ = in_background(node, wanted)
    wait_for(node, "var/lib/dpkg/info/nvidia-dkms-580-server-open.postinst")
    time.sleep(1)
    visit = node.new_visit()  # another runner takes over, and the first one ends
    node.end_job("install")
    (node.root / "etc/slow").unlink()
    thread.join()
    restore_driver(visit, PLAIN)
    check_whole(node, OLD)


def test_a_controller_that_is_killed_leaves_a_job_that_the_next_one_waits_for(node: DriverNode) -> None:
    wanted = target(node)
    write(node.root, "etc/slow", "4")
    thread, _ = in_background(node, wanted)
    wait_for(node, "var/lib/gpufleet/jobs/*install*")
    node.sshd.cut_sessions()
    visit = node.new_visit()
    change_driver(visit, wanted, PLAIN)
    thread.join()
    check_whole(node, NEW)
    assert installs(node) == 1


def test_a_held_kernel_is_not_changed_for_a_driver(node: DriverNode, base: tuple[Path, Signer]) -> None:
    inside(node.root, "apt-get", "install", "-y", "linux-image-generic=6.8.0-45")
    inside(node.root, "apt-mark", "hold", "linux-image-generic", f"linux-image-{KERNEL}")
    wants_kernel = driver_debs(NEW)
    wants_kernel[0].fields["Depends"] += f", linux-image-{NEXT_KERNEL}, linux-image-generic (>= 6.8.0-60)"
    folder = own_repository(node)
    for deb in wants_kernel:
        build(deb, folder)
    publish(node.root, base[1])
    inside(node.root, "apt-get", "update")
    with pytest.raises(NotQualified, match=r"would be refused.*\(held: .*linux-image-generic"):
        change(node, target(node))
    check_whole(node, OLD)
    assert not (node.root / "lib/modules" / NEXT_KERNEL).exists()


def own_repository(node: DriverNode) -> Path:
    """The repository's folder; files that are written anew are this node's alone."""
    folder = node.root / REPOSITORY
    for deb in driver_debs(NEW):
        (folder / deb.file_name).unlink(missing_ok=True)
    return folder


def test_a_kernel_that_came_meanwhile_gets_its_module_too(node: DriverNode) -> None:
    done = inside(node.root, "apt-get", "install", "-y", f"linux-image-{NEXT_KERNEL}", f"linux-headers-{NEXT_KERNEL}")
    assert done.returncode == 0, done.stderr
    change(node, target(node))
    check_whole(node, NEW)
    assert node.text(f"lib/modules/{NEXT_KERNEL}/updates/nvidia.ko") == NEW


def test_a_new_kernel_without_headers_is_found_before_anything_is_touched(node: DriverNode) -> None:
    wanted = target(node)
    inside(node.root, "apt-get", "install", "-y", f"linux-image-{NEXT_KERNEL}")
    with pytest.raises(NotQualified, match=f"headers of the next kernel {NEXT_KERNEL}"):
        change(node, wanted)
    check_whole(node, OLD)


def test_an_unattended_upgrade_in_between_is_let_finish_and_named(node: DriverNode) -> None:
    wanted = target(node)
    script = (
        "import fcntl,time;f=open('/var/lib/dpkg/lock-frontend','w');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True)"
    )
    command = ["chroot", str(node.root), "python3", "-c", f"{script};time.sleep(300)"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        waits: list[str] = []
        node.clock.after(400, other.kill)
        visit = node.new_visit()
        said = visit.say
        visit.say = lambda text: (waits.append(text), said(text))[1]  # type: ignore[method-assign]
        change_driver(visit, wanted, PLAIN)
    finally:
        other.kill()
        other.wait()
    assert any(f"held by process {other.pid}" in text for text in waits), waits
    check_whole(node, NEW)


def test_a_lock_that_is_never_given_up_blocks_the_node_and_its_holder_is_named(node: DriverNode) -> None:
    wanted = target(node)
    script = (
        "import fcntl,time;f=open('/var/lib/dpkg/lock-frontend','w');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True)"
    )
    command = ["chroot", str(node.root), "python3", "-c", f"{script};time.sleep(300)"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(DriverBlocked, match=f"process {other.pid}"):
            change(node, wanted)
    finally:
        other.kill()
        other.wait()
    check_whole(node, OLD)


def test_a_package_that_is_not_what_the_plan_says_is_not_installed(node: DriverNode, base: tuple[Path, Signer]) -> None:
    wanted = target(node)
    folder = own_repository(node)
    for deb in driver_debs(NEW):
        deb.files["/usr/share/other"] = deb.name
        build(deb, folder)
    publish(node.root, base[1])
    with pytest.raises(NotQualified, match="SHA-256"):
        change(node, wanted)
    check_whole(node, OLD)


def test_a_file_with_another_digest_than_its_index_leaves_the_former_driver_running(node: DriverNode) -> None:
    wanted = target(node)
    file = node.root / REPOSITORY / f"nvidia-utils-580-server_{NEW}{REVISION}_amd64.deb"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.unlink()
    file.write_bytes(bytes(content))
    with pytest.raises(NotQualified, match="not what its digest says"):
        change(node, wanted)
    check_whole(node, OLD)


def test_an_unsigned_repository_stops_it_before_anything_is_touched(node: DriverNode) -> None:
    wanted = target(node)
    publish(node.root, None)
    with pytest.raises(NotQualified, match="no good signature"):
        change(node, wanted)
    check_whole(node, OLD)


def test_a_repository_that_somebody_else_signed_is_not_taken(node: DriverNode, tmp_path: Path) -> None:
    wanted = target(node)
    key = (node.root / "etc/apt/keyrings/test.asc").read_text()
    (tmp_path / "other").mkdir()
    other = Signer(tmp_path / "other")
    publish(node.root, other)
    other.close()
    write(node.root, "etc/apt/keyrings/test.asc", key)
    with pytest.raises(NotQualified, match="no good signature"):
        change(node, wanted)
    check_whole(node, OLD)
