"""Why a driver does not load or does not work once it is installed: each cause with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum


class LoadFault(StrEnum):
    IN_USE = "in_use"
    KEY_REJECTED = "key_rejected"  # Secure Boot: the module's signer is not enrolled
    NOT_BUILT = "not_built"  # no module for this kernel
    WRONG_KERNEL = "wrong_kernel"  # built for another one
    OTHER_DRIVER_BOUND = "other_driver_bound"  # nouveau or nova_core
    FIRMWARE_MISSING = "firmware_missing"  # GSP
    WRONG_FLAVOUR = "wrong_flavour"  # this GPU needs the open modules, or the closed ones
    UNSUPPORTED_GPU = "unsupported_gpu"
    MISMATCH = "mismatch"  # module and user space are two versions
    FABRIC_MANAGER_MISMATCH = "fabric_manager_mismatch"
    NO_NVSWITCH = "no_nvswitch"  # the fabric manager has nothing to do here: no fault
    SYMBOLS = "symbols"  # another module is missing or of another build
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LoadCause:
    """`line` is what it rests on. `reboot_helps`: whether one reboot may put it right."""

    fault: LoadFault
    line: str
    advice: str
    reboot_helps: bool = False

    def __str__(self) -> str:
        return f"{self.advice} ({self.line.strip()[:200]})" if self.line else self.advice


_CAUSES: tuple[tuple[LoadFault, re.Pattern[str], str, bool], ...] = (
    (
        LoadFault.FABRIC_MANAGER_MISMATCH,
        re.compile(
            r"fabric\s?manager.{0,60} version .{0,80}(?:n.{0,3}t|not) match|mismatch.{0,40}fabric\s?manager", re.I
        ),
        "install the fabric manager of exactly the driver's version",
        False,
    ),
    (
        LoadFault.KEY_REJECTED,
        re.compile(
            r"key was rejected by service|required key not available|Loading of (?:unsigned )?module .{0,40}rejected"
            r"|module verification failed.{0,80}required key|Lockdown: .{0,40}unsigned module",
            re.I,
        ),
        "Secure Boot refuses the module: enrol its signer's key (mokutil --import), or use a signed package",
        False,
    ),
    (
        LoadFault.OTHER_DRIVER_BOUND,
        re.compile(
            r"already bound to nova|bound to (?:nouveau|nova)|nouveau.{0,60}(?:in use|conflict)"
            r"|obtained by the nouveau|nova_?core.{0,40}(?:bound|probe)",
            re.I,
        ),
        "wrong kernel driver bound (nouveau or nova_core): put both on the blacklist, rebuild the initramfs, reboot",
        False,
    ),
    (
        LoadFault.FIRMWARE_MISSING,
        re.compile(
            r"gsp_\w+\.bin.{0,60}(?:failed|error|not found|unable)|firmware .{0,40}nvidia/\d{3}\.\S+ .{0,40}fail"
            r"|failed to load .{0,30}gsp|direct firmware load .{0,40}nvidia",
            re.I,
        ),
        "the GSP firmware of this version is missing in /lib/firmware/nvidia: install its firmware package",
        False,
    ),
    (
        LoadFault.WRONG_FLAVOUR,
        re.compile(
            r"requires use of the (?:NVIDIA )?open|open .{0,40}kernel modules? .{0,40}(?:required|not support)"
            r"|not supported by open nvidia",
            re.I,
        ),
        "this GPU needs the other kind of NVIDIA's kernel modules (open or proprietary)",
        False,
    ),
    (
        LoadFault.MISMATCH,
        re.compile(
            r"API mismatch|Driver/library version mismatch|NVML library version|version mismatch.{0,60}nvidia", re.I
        ),
        "the loaded module and the user space are of two versions",
        True,
    ),
    (
        LoadFault.NOT_BUILT,
        re.compile(r"module nvidia\S* not found|nvidia\.ko.{0,40}no such file", re.I),
        "there is no nvidia module for the running kernel: DKMS did not build it, see its headers and make.log",
        False,
    ),
    (
        LoadFault.WRONG_KERNEL,
        re.compile(r"exec format error|invalid module format|version magic", re.I),
        "the module was built for another kernel",
        True,
    ),
    (
        LoadFault.IN_USE,
        re.compile(r"is in use|resource temporarily unavailable|device or resource busy", re.I),
        "another module or process holds it",
        True,
    ),
    (
        LoadFault.UNSUPPORTED_GPU,
        re.compile(
            r"not supported by the NVIDIA .{0,20}driver|is ignored by|No NVIDIA devices probed|no such device", re.I
        ),
        "the driver found no GPU that it drives: see its branch's list, and what else is bound to the GPUs",
        False,
    ),
    (
        LoadFault.SYMBOLS,
        re.compile(r"unknown symbol|disagrees about version of symbol|invalid argument", re.I),
        "another kernel module that it needs is missing or of another build",
        True,
    ),
    (
        LoadFault.NO_NVSWITCH,
        re.compile(r"NV_WARN_NOTHING_TO_DO", re.I),
        "this board has no NVSwitch, and its fabric manager nothing to do",
        False,
    ),
)


def load_cause(texts: Iterable[str]) -> LoadCause:
    """The first cause, in the order of this file, that one of the texts shows; UNKNOWN where none does."""
    lines = [line for text in texts for line in text.replace("\r", "").splitlines() if line.strip()]
    for fault, pattern, advice, reboot_helps in _CAUSES:
        line = next((line for line in lines if pattern.search(line)), None)
        if line is not None:
            return LoadCause(fault, line, advice, reboot_helps)
    last = lines[-1] if lines else ""
    return LoadCause(LoadFault.UNKNOWN, last, "the driver does not load, and why is not known", True)


def nvidia_lines(lines: Iterable[str]) -> Iterator[str]:
    """Those of a kernel log that speak of the driver."""
    return (line for line in lines if re.search(r"nvidia|NVRM|nouveau|nova|module verification|Lockdown", line, re.I))
