"""A GPU node in a Debian root behind a real sshd: real dpkg and apt, and a kernel, modules and GPUs made of files.

The driver's packages are built here. Their scripts do what DKMS and NVIDIA's packages do, to files.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from unit.driver_host_fake import DriverSite
from unit.site_fakes import SPEC, SiteClock

from adapters.known_hosts import KnownHosts
from adapters.ssh import SshAccess, SshHost, read_key
from fleet.model import Node
from tests.real.debian_root import REPOSITORY, Deb, Signer, build, copy_root, inside, make_root, publish, write
from tests.real.sshd import RealSshd

OLD, NEW = "570.133.20", "580.95.05"
KERNEL, NEXT_KERNEL = "6.8.0-45-generic", "6.8.0-60-generic"
REVISION = "-0ubuntu1"
SETTINGS = {"persistence": "Enabled", "compute": "Exclusive_Process", "power": "600.00 W"}
SERVICES = ("nvidia-dcgm", "nvidia-fabricmanager", "nvidia-persistenced")
BOOT_ID = "7c0e1f7e-56a5-4b0b-8f2f-3a1d4c5b6a79"

_BUILD = """\
for kernel in $(ls /lib/modules); do
  test -e /lib/modules/$kernel/build/Makefile || continue
  for source in /usr/src/nvidia-*; do
    test -e $source/version || continue
    mkdir -p /lib/modules/$kernel/updates
    cp $source/version /lib/modules/$kernel/updates/nvidia.ko
    echo "updates/nvidia.ko:" > /lib/modules/$kernel/modules.dep
  done
done
"""
_SLOW = 'if test -e /etc/slow; then echo "building"; sleep "$(cat /etc/slow)"; fi\n'
_MODPROBE = """\
kernel=$(cat /proc/sys/kernel/osrelease)
if [ "$1" = -r ]; then
  shift
  if ls /run/units/nvidia-dcgm >/dev/null 2>&1; then echo "modprobe: FATAL: Module nvidia is in use." >&2; exit 1; fi
  for name; do rm -rf /sys/module/$name; [ $name = nvidia ] && rm -rf /proc/driver/nvidia; done
  exit 0
fi
file=/lib/modules/$kernel/updates/nvidia.ko
test -s $file || { echo "modprobe: FATAL: Module $1 not found in directory /lib/modules/$kernel" >&2; exit 1; }
mkdir -p /sys/module/$1/holders; cp $file /sys/module/$1/version; echo 0 >/sys/module/$1/refcnt
[ "$1" = nvidia ] || exit 0
mkdir -p /proc/driver/nvidia
echo "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  $(cat $file)  Release" >/proc/driver/nvidia/version
mkdir -p /run/gpu; echo Disabled >/run/gpu/persistence; echo Default >/run/gpu/compute; echo "700.00 W" >/run/gpu/power
"""
_MODINFO = """\
kernel=$(cat /proc/sys/kernel/osrelease); field=
while [ $# -gt 1 ]; do case $1 in -F) field=$2; shift;; -k) kernel=$2; shift;; esac; shift; done
file=/lib/modules/$kernel/updates/nvidia.ko
test -s $file || { echo "modinfo: ERROR: Module nvidia not found." >&2; exit 1; }
case $field in version) cat $file;; signer) echo "DKMS key";; *) echo "version: $(cat $file)";; esac
"""
_SYSTEMCTL = """\
mkdir -p /run/units /run/masked; verb=$1; shift; [ "$1" = --runtime ] && shift
case $verb in
  is-active) for u; do if [ -e /run/units/${u%.service} ]; then echo active; else echo inactive; fi; done; exit 3;;
  stop) rm -f /run/units/$1;;
  start) test -e /sys/module/nvidia || { echo "Job for $1 failed" >&2; exit 1; }; : >/run/units/$1;;
  mask) : >/run/masked/$1;;
  unmask) rm -f /run/masked/$1;;
esac
"""
_SMI = """\
loaded=$(cat /sys/module/nvidia/version 2>/dev/null)
test -n "$loaded" || { echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9; }
test "$loaded" = VERSION || { echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18; }
while [ $# -gt 0 ]; do
  case $1 in
    -pm) [ $2 = 1 ] && echo Enabled >/run/gpu/persistence; exit 0;;
    -c) [ $2 = 3 ] && echo Exclusive_Process >/run/gpu/compute; exit 0;;
    -pl) echo "$2.00 W" >/run/gpu/power; exit 0;;
  esac
  shift
done
cat <<END
<?xml version="1.0" ?>
<nvidia_smi_log><timestamp>Mon Nov 30 12:00:00 2026</timestamp><driver_version>$loaded</driver_version>
<cuda_version>13.0</cuda_version><attached_gpus>1</attached_gpus><gpu id="00000000:18:00.0">
<product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-5b7c0f3e-0000-0000-0000-000000000001</uuid>
<persistence_mode>$(cat /run/gpu/persistence)</persistence_mode><compute_mode>$(cat /run/gpu/compute)</compute_mode>
<mig_mode><current_mig>Disabled</current_mig><pending_mig>Disabled</pending_mig></mig_mode>
<ecc_mode><current_ecc>Enabled</current_ecc><pending_ecc>Enabled</pending_ecc></ecc_mode>
<gpu_power_readings><current_power_limit>$(cat /run/gpu/power)</current_power_limit>
<requested_power_limit>$(cat /run/gpu/power)</requested_power_limit></gpu_power_readings>
</gpu></nvidia_smi_log>
END
"""


def driver_debs(version: str) -> list[Deb]:
    """The packages of one release, named as Ubuntu names them."""
    branch, full = version.partition(".")[0], version + REVISION
    lib = "/usr/lib/x86_64-linux-gnu"

    def other(kind: str) -> dict[str, str]:
        return {"Provides": kind, "Conflicts": kind, "Replaces": kind}

    dkms = Deb(f"nvidia-dkms-{branch}-server-open", full, other("test-nvidia-dkms"))
    dkms.fields["Depends"] = f"libnvidia-compute-{branch}-server (= {full})"
    dkms.files = {f"/usr/src/nvidia-{version}/version": f"{version}\n"}
    dkms.scripts = {"postinst": _SLOW + _BUILD, "prerm": "rm -f /lib/modules/*/updates/nvidia.ko"}
    compute = Deb(f"libnvidia-compute-{branch}-server", full, other("test-libnvidia-compute"))
    compute.files = {f"{lib}/libnvidia-ml.so.{version}": "no library\n"}
    compute.links = {f"{lib}/libnvidia-ml.so.1": f"libnvidia-ml.so.{version}"}
    utils = Deb(f"nvidia-utils-{branch}-server", full, other("test-nvidia-utils"))
    utils.files = {"/usr/bin/nvidia-smi": "#!/bin/sh\n" + _SMI.replace("VERSION", version)}
    manager = Deb(f"nvidia-fabricmanager-{branch}", full, other("test-fabricmanager"))
    manager.files = {"/usr/bin/nv-fabricmanager": f"#!/bin/sh\necho 'Fabric Manager version is : {version}'\n"}
    return [dkms, compute, utils, manager]


def kernel_debs(kernel: str, headers: bool = True) -> list[Deb]:
    """A kernel's packages; its headers come with the build that DKMS does for a new kernel."""
    version = kernel.removesuffix("-generic")
    image = Deb(f"linux-image-{kernel}", version, {}, {f"/lib/modules/{kernel}/modules.order": ""})
    image.scripts = {"postinst": f"test -e /lib/modules/{kernel}/modules.dep || : >/lib/modules/{kernel}/modules.dep"}
    source = Deb(f"linux-headers-{kernel}", version, {}, {f"/lib/modules/{kernel}/build/Makefile": "all:\n"})
    source.scripts = {"postinst": _BUILD}
    meta = Deb("linux-image-generic", version, {"Depends": f"linux-image-{kernel}"})
    return [image, *([source] if headers else []), meta]


def make_base(folder: Path) -> tuple[Path, Signer]:
    """A root with the repository and the former driver, from which each test's node is copied."""
    base, signer = make_root(folder), Signer(folder)
    repository = base / REPOSITORY
    repository.mkdir(parents=True)
    for deb in (*driver_debs(OLD), *driver_debs(NEW), *kernel_debs(KERNEL), *kernel_debs(NEXT_KERNEL)):
        build(deb, repository)
    publish(base, signer)
    for name, text in (("modprobe", _MODPROBE), ("modinfo", _MODINFO), ("systemctl", _SYSTEMCTL)):
        write(base, f"usr/sbin/{name}", f"#!/bin/sh\n{text}", 0o755)
    done = inside(base, "sh", "-c", f"apt-get update && apt-get install -y {' '.join(_first())}")
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    return base, signer


def _first() -> list[str]:
    kernel = [f"linux-image-{KERNEL}", f"linux-headers-{KERNEL}"]
    return [*kernel, *(f"{deb.name}={deb.version}" for deb in driver_debs(OLD))]


class ShortClock(SiteClock):
    """Real waiting, but never for long: what is waited for goes on beside us."""

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.25))
        super().sleep(seconds)


class DriverNode(DriverSite):
    """A site whose one host is the root behind sshd."""

    def __init__(self, folder: Path, base: Path) -> None:
        super().__init__(folder, SPEC.replace("settle_seconds: 120", "settle_seconds: 20"))
        self.clock = ShortClock()
        self.root = copy_root(base, base.parent / f"node-{os.getpid()}-{time.monotonic_ns()}")
        self._live()
        self.sshd = _ChrootSshd(folder, self.root)
        self.sshd.__enter__()
        known = KnownHosts(self.sshd.known_hosts.read_text(), "known_hosts")
        self._ssh = SshHost("gpu-0001", self.sshd.address, SshAccess("root", read_key(self.sshd.key), known))

    def _live(self) -> None:
        for path, text in {
            "proc/sys/kernel/osrelease": KERNEL,
            "proc/sys/kernel/hostname": "gpu-0001",
            "proc/sys/kernel/random/boot_id": BOOT_ID,
            "sys/firmware/bios": "",
            "etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"',
        }.items():
            write(self.root, path, f"{text}\n")
        inside(self.root, "sh", "-c", "modprobe nvidia; modprobe nvidia_uvm; mkdir -p /run/units")
        for name, text in SETTINGS.items():
            write(self.root, f"run/gpu/{name}", f"{text}\n")
        for name in SERVICES:
            write(self.root, f"run/units/{name}", "")

    def host(self, node: Node) -> SshHost:  # type: ignore[override]
        return self._ssh

    def file_host(self, node: Node) -> SshHost:  # type: ignore[override]
        return self._ssh

    def text(self, path: str) -> str:
        return (self.root / path).read_text().strip()

    def versions(self) -> dict[str, str]:
        """Every nvidia package that is installed whole."""
        shown = inside(self.root, "dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Abbrev}\\n", "*nvidia*")
        rows = [line.split() for line in shown.stdout.splitlines()]
        return {row[0]: row[1] for row in rows if row[2:] in (["ii"], ["hi"])}

    def end_job(self, part: str) -> None:
        """Kill the newest job of that name with all its processes, as a person or the kernel would."""
        folder = max((self.root / "var/lib/gpufleet/jobs").glob(f"*{part}*"), key=lambda path: path.stat().st_mtime)
        leader = (folder / "process").read_text().split()[0]
        os.killpg(int(leader), signal.SIGKILL)

    def close_all(self) -> None:
        self._ssh.close()
        self.sshd.stop()
        shutil.rmtree(self.root, ignore_errors=True)


class _ChrootSshd(RealSshd):
    """Every command runs in the root, with nothing of the environment outside."""

    def __init__(self, folder: Path, root: Path) -> None:
        super().__init__(folder)
        self._root = root

    def start(self) -> None:
        super().start()
        self.stop()
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = f'exec chroot {self._root} env -i PATH={path} HOME=/root sh -c "cd; $SSH_ORIGINAL_COMMAND"'
        configuration = self.folder / "sshd_config"
        configuration.write_text(f"{configuration.read_text()}ForceCommand {command}\n")
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "/usr/sbin/sshd"
        with (self.folder / "sshd.log").open("ab") as log:
            self._daemon = subprocess.Popen([program, "-D", "-e", "-f", str(configuration)], stdout=log, stderr=log)
        time.sleep(0.5)
