"""The NVIDIA driver in all its parts: kernel module, user space, their origin, DKMS, and who else claims the GPUs."""

# pathlib costs more start-up time than a section
# ruff: noqa: PTH123

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .commands import run_all
from .files import Root, unknown
from .system import running_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .commands import Outcome
    from .workers import Pair

_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)*)\b")
_SONAME = re.compile(r"^libnvidia-ml\.so\.(\d{3}\.[\d.]*\d)$")
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/usr/local/lib",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
)
_MODULES = (
    "nvidia",
    "nvidia_uvm",
    "nvidia_modeset",
    "nvidia_drm",
    "nvidia_peermem",
    "nv_peer_mem",
    "gdrdrv",
    "nouveau",
    "nova_core",
    "nova_drm",
    "nvidiafb",
    "vfio_pci",
    "mlx5_core",
    "ib_core",
)
_SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def read_driver(root: Root, seconds: float) -> Iterator[Pair]:
    """Each part by itself; a part that cannot be told is {"unknown": why}."""
    kernel = running_kernel(root)
    yield "loaded", _loaded(root)
    yield "user_space", _user_space(root)
    yield "modules", {name: _module(root, name) for name in _MODULES if root.exists(f"/sys/module/{name}")}
    yield "kernels", [_kernel(root, name, name == kernel) for name in _kernels(root)]
    yield "dkms", _dkms(root)
    yield "secure_boot", _secure_boot(root)
    yield "lockdown", _lockdown(root)
    yield "tpm", _tpm(root)
    yield "parameters", _parameters(root)
    yield "installers", _installers(root)
    library = _library(root)
    outcomes = run_all(root, _commands(library), seconds)
    yield "on_disk", _on_disk(outcomes["modinfo"])
    yield "fabric_manager", _version_of(outcomes["nv-fabricmanager"])
    yield "container_toolkit", _version_of(outcomes["nvidia-ctk"])
    yield "library_owner", _owner(library, outcomes)


def _commands(library: str | None) -> dict[str, tuple[str, ...]]:
    path = library or "/"
    return {
        "modinfo": ("modinfo", "nvidia"),
        "nv-fabricmanager": ("nv-fabricmanager", "--version"),
        "nvidia-ctk": ("nvidia-ctk", "--version"),
        "dpkg": ("dpkg-query", "-S", path),
        "rpm": ("rpm", "-qf", "--qf", "%{NAME}\n", path),
    }


def _loaded(root: Root) -> object:
    """The module that runs: version from /sys, flavour and full line from /proc."""
    line = (root.text("/proc/driver/nvidia/version") or "").split("\n")[0]
    version = root.text("/sys/module/nvidia/version")
    found = _VERSION.search(line)
    if version is None and found is None:
        return unknown("the nvidia module is not loaded")
    return {
        "version": version or (found.group(1) if found else None),
        "proc_version": found.group(1) if found else None,
        "open": ("Open Kernel Module" in line) if line else None,
        "line": line or None,
    }


def _module(root: Root, name: str) -> dict[str, object]:
    path = f"/sys/module/{name}"
    return {
        "version": root.text(f"{path}/version"),
        "uses": root.number(f"{path}/refcnt"),
        "holders": root.names(f"{path}/holders"),
    }


def _library(root: Root) -> str | None:
    """Where the libnvidia-ml.so.VERSION lies that programs are given."""
    for folder in _LIBRARY_FOLDERS:
        names = [name for name in root.names(folder) if _SONAME.match(name)]
        linked = root.link(f"{folder}/libnvidia-ml.so.1")
        if names:
            return f"{folder}/{linked if linked in names else names[-1]}"
    return None


def _user_space(root: Root) -> object:
    """Versions of libnvidia-ml in every library folder; more than one is two drivers on one another."""
    found = {}
    for folder in _LIBRARY_FOLDERS:
        versions = [match.group(1) for match in map(_SONAME.match, root.names(folder)) if match]
        if versions:
            found[folder] = versions
    if not found:
        return unknown("no libnvidia-ml in the library folders")
    folder = next(iter(found))
    link = _SONAME.match(root.link(f"{folder}/libnvidia-ml.so.1") or "")
    return {"version": link.group(1) if link else found[folder][-1], "folders": found}


def _kernels(root: Root) -> list[str]:
    return [name for name in root.names("/lib/modules") if root.exists(f"/lib/modules/{name}/modules.dep")]


def _kernel(root: Root, name: str, running: bool) -> dict[str, object]:
    """Has this kernel an nvidia module, and the headers to build one?"""
    modules: str | None = None
    try:
        dependencies = root.read(f"/lib/modules/{name}/modules.dep", 16 << 20)
        match = re.search(r"^(\S*/nvidia\.ko\S*):", dependencies, re.MULTILINE)
        modules = match.group(1) if match else None
    except OSError as error:
        return {"version": name, "running": running, "unknown": error.strerror}
    return {
        "version": name,
        "running": running,
        "nvidia_module": modules,
        "headers": root.exists(f"/lib/modules/{name}/build/Makefile"),
    }


def _dkms(root: Root) -> list[dict[str, object]]:
    """DKMS's own folders, as `dkms status` reads them: DIR/MODULE/VERSION/KERNEL/ARCH/module."""
    found: list[dict[str, object]] = []
    base = "/var/lib/dkms"
    for module in root.names(base):
        for version in root.names(f"{base}/{module}"):
            if version.startswith("kernel-") or not root.exists(f"{base}/{module}/{version}/source"):
                continue
            built = [
                kernel
                for kernel in root.names(f"{base}/{module}/{version}")
                if any(
                    root.names(f"{base}/{module}/{version}/{kernel}/{arch}/module")
                    for arch in root.names(f"{base}/{module}/{version}/{kernel}")
                )
            ]
            found.append({"module": module, "version": version, "built_for": built})
    return found


def _secure_boot(root: Root) -> object:
    """True or False; the fifth byte of the EFI variable. Source: UEFI specification, 3.3 Global Variables."""
    if not root.exists("/sys/firmware/efi"):
        return False if root.exists("/sys/firmware") else unknown("no /sys/firmware")
    try:
        with open(root.path(f"/sys/firmware/efi/efivars/{_SECURE_BOOT}"), "rb") as file:
            content = file.read(5)
    except OSError as error:
        return unknown(f"the SecureBoot variable cannot be read: {error.strerror}")
    return bool(content[4]) if len(content) == 5 else unknown("the SecureBoot variable is cut short")


def _lockdown(root: Root) -> object:
    match = re.search(r"\[(\w+)\]", root.text("/sys/kernel/security/lockdown") or "")
    return match.group(1) if match else unknown("no /sys/kernel/security/lockdown")


def _tpm(root: Root) -> object:
    """{major version, description} of the first TPM; False where the machine shows none."""
    if not root.exists("/sys/class"):
        return unknown("no /sys/class")
    if not root.names("/sys/class/tpm"):
        return False
    path = f"/sys/class/tpm/{root.names('/sys/class/tpm')[0]}"
    return {"major": root.number(f"{path}/tpm_version_major"), "description": root.text(f"{path}/device/description")}


def _parameters(root: Root) -> object:
    lines = [line.partition(": ") for line in (root.text("/proc/driver/nvidia/params") or "").splitlines()]
    found = {name: value.strip('"') for name, colon, value in lines if colon}
    return found or unknown("no /proc/driver/nvidia/params")


def _installers(root: Root) -> dict[str, bool]:
    """Traces that installers other than the package manager leave."""
    return {
        "runfile": root.exists("/usr/bin/nvidia-uninstall") or root.exists("/var/log/nvidia-installer.log"),
        "cuda_runfile": root.exists("/var/log/cuda-installer.log"),
        "container": root.exists("/run/nvidia/driver/usr"),
    }


def _on_disk(outcome: Outcome) -> object:
    """What modinfo says of the module that the running kernel would load."""
    if isinstance(outcome, str):
        return unknown(outcome)
    if outcome.code:
        return unknown(outcome.err.strip()[-200:] or f"modinfo ended with {outcome.code}")
    fields: dict[str, str] = {}
    for line in outcome.out.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    names = {"version": "version", "file": "filename", "license": "license", "signer": "signer", "vermagic": "vermagic"}
    return {ours: fields.get(theirs) or None for ours, theirs in names.items()}


def _version_of(outcome: Outcome) -> object:
    if isinstance(outcome, str):
        return unknown(outcome)
    found = re.search(r"\d+\.\d+(?:\.\d+)*\S*", outcome.out) or re.search(r"\d+\.\d+(?:\.\d+)*\S*", outcome.err)
    if outcome.code or found is None:
        return unknown((outcome.err or outcome.out).strip()[-200:] or f"status {outcome.code}")
    return {"version": found.group(0)}


def _owner(library: str | None, outcomes: dict[str, Outcome]) -> object:
    """The package that libnvidia-ml belongs to; False where it belongs to none."""
    if library is None:
        return unknown("no libnvidia-ml in the library folders")
    asked = [outcome for outcome in (outcomes["dpkg"], outcomes["rpm"]) if not isinstance(outcome, str)]
    for outcome in asked:
        if outcome.code == 0 and outcome.out.strip():
            return outcome.out.split("\n")[0].partition(": ")[0].partition(":")[0]
    return False if asked else unknown("neither dpkg nor rpm could be asked")
