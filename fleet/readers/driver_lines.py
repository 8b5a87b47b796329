"""What the NVIDIA driver, its modules and rival drivers say in the kernel log besides Xids and SXids."""

from __future__ import annotations

import re

from fleet.findings import Action, Severity
from fleet.readers.line_rules import LineEvent, RuleTable, rule
from fleet.readers.log_records import LogRecord
from fleet.readers.pci_address import ADDRESS

_AT = rf"(?:GPU\s+)?(?:at\s+)?(?:PCI:)?(?P<device>{ADDRESS})"
_VERSION = r"\d{3}\.\d+(?:\.\d+)*"

_WORDS = ("nvrm", "nvidia", "nouveau", "nova", "module", "dkms", "peermem", "uvm", "nv_drm")
_RULES = (
    rule(
        rf"NVRM:.*?{_AT}.*?(?:RmInitAdapter failed|rm_init_adapter failed|Failed to copy vbios)",
        "gpu.init_failed",
        Severity.FATAL,
        Action.REBOOT_NODE,
        "gpu",
        "The driver cannot initialise the GPU: it is missing from nvidia-smi.",
    ),
    rule(
        rf"nvidia: probe of (?P<device>{ADDRESS}) failed|nvidia (?P<other>{ADDRESS}): probe with driver nvidia failed",
        "gpu.init_failed",
        Severity.FATAL,
        Action.REBOOT_NODE,
        "gpu",
        "The driver could not take the GPU when it was probed.",
    ),
    rule(
        rf"NVRM:.*?{_AT}.*?already bound to (?P<driver>[\w-]+)",
        "driver.conflict",
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "gpu",
        "Another driver ({driver}) holds the GPU: keep it from loading, rebuild the initramfs and reboot.",
    ),
    rule(
        rf"^(?P<driver>nouveau|nova|nova_core|NovaCore) (?P<device>{ADDRESS}):",
        "driver.conflict",
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "gpu",
        "Another driver ({driver}) holds the GPU: keep it from loading, rebuild the initramfs and reboot.",
    ),
    rule(
        rf"(?:(?P<device>{ADDRESS}).*?)?Kernel driver in use:\s*(?P<driver>nouveau|nova\w*)",
        "driver.conflict",
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "gpu",
        "Another driver holds the GPU: keep it from loading, rebuild the initramfs and reboot.",
    ),
    rule(
        r"NVIDIA probe routine was not called for (?P<count>\d+) device",
        "driver.conflict",
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "node",
        "Another driver (nouveau, nova, vfio) holds {count} GPUs: the NVIDIA driver was not asked.",
    ),
    rule(
        r"NVRM:.*(?:No NVIDIA (?:GPU|graphics adapter|devices)|None of the NVIDIA (?:devices|graphics adapters|GPU))",
        "driver.no_device",
        Severity.ERROR,
        Action.INVESTIGATE,
        "node",
        "The driver found no GPU that it could use.",
    ),
    rule(
        rf"NVRM:.*?(?P<device>{ADDRESS}).*?not supported by",
        "gpu.not_supported",
        Severity.ERROR,
        Action.UPDATE_SOFTWARE,
        "gpu",
        "This driver (or its open kernel module) does not support the GPU.",
    ),
    rule(
        rf"NVRM:.*BAR\d+ is 0M.*?(?P<device>{ADDRESS})|NVRM:.*PCI I/O region assigned to your NVIDIA device is invalid",
        "gpu.bar_invalid",
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "gpu",
        "The firmware gave the GPU no memory window: 64-bit addressing above 4 GB is off, or its space is too small.",
    ),
    rule(
        rf"nvidia(?: (?P<device>{ADDRESS}))?:.*firmware load for nvidia/(?P<file>\S+) failed",
        "driver.gsp_firmware_missing",
        Severity.ERROR,
        Action.UPDATE_SOFTWARE,
        "gpu",
        "The GSP firmware {file} of this driver is not on the node.",
    ),
    rule(
        rf"NVRM:(?:.*?{_AT})?.*?(?:Cannot initialize GSP firmware|GSP firmware.{{0,40}}(?:fail|not found)|"
        r"kgspInitRm\w*.{0,60}fail)",
        "gpu.gsp_failed",
        Severity.ERROR,
        Action.RESET_GPU,
        "gpu",
        "The GPU's own processor (GSP) did not start.",
    ),
    rule(
        rf"NVRM:(?:.*?{_AT})?.*?RC watchdog: GPU is probably locked",
        "gpu.locked",
        Severity.ERROR,
        Action.RESET_GPU,
        "gpu",
        "The driver's watchdog had no answer from the GPU.",
    ),
    rule(
        r"uvm encountered global fatal error (?P<number>\w+)",
        "driver.uvm_fatal",
        Severity.FATAL,
        Action.REBOOT_NODE,
        "node",
        "Unified memory stopped with fatal error {number}: only a reboot brings it back.",
    ),
    rule(
        r"Attempting to remove device (?P<device>\S+?) with non-zero usage|Module nvidia\w* is in use",
        "driver.in_use",
        Severity.WARNING,
        Action.INVESTIGATE,
        "node",
        "The driver could not be unloaded: a process or a module still holds it.",
    ),
    rule(
        r"\[nvidia-drm\].*Failed to|nv_drm_\w+.*\*ERROR\*",
        "driver.drm_failed",
        Severity.WARNING,
        Action.INVESTIGATE,
        "node",
        "The driver's display part could not use a GPU: see whether the GPU itself could be initialised.",
    ),
    rule(
        r"peermem.*detected invalid context",
        "driver.peermem_invalid_context",
        Severity.WARNING,
        Action.RESTART_APPLICATION,
        "node",
        "GPUDirect RDMA memory was freed after its process had ended.",
    ),
    rule(
        r"NVRM:.*Going over RM unhandled interrupt threshold",
        "driver.unhandled_interrupts",
        Severity.WARNING,
        Action.INVESTIGATE,
        "node",
        "The driver saw many interrupts that it could not place.",
    ),
    rule(
        r"nvidia\S*: (?:module verification failed|.{0,40}taints kernel)",
        "driver.kernel_tainted",
        Severity.INFO,
        Action.NONE,
        "node",
        "An NVIDIA module that is unsigned or not free taints the kernel: usual where Secure Boot is off.",
    ),
    rule(
        r"(?:Loading of (?:unsigned )?module.{0,40}rejected|unsigned module loading is restricted|module nvidia.{0,60}"
        r"Key was rejected|(?:insert|modprobe).{0,40}nvidia.{0,40}Key was rejected)",
        "driver.module_rejected",
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "node",
        "Secure Boot refuses the NVIDIA module: sign it with an enrolled key.",
    ),
    rule(
        r"nvidia\S*: (?:disagrees about version of symbol|Unknown symbol|version magic)",
        "driver.module_mismatch",
        Severity.ERROR,
        Action.UPDATE_SOFTWARE,
        "node",
        "The NVIDIA module was built for another kernel, or its modules are of different versions.",
    ),
    rule(
        r"modprobe: FATAL: Module nvidia\S* not found|dkms.{0,120}(?:bad return status|build.{0,20}fail|Error!)|"
        r"Error! Bad return status for module build",
        "driver.module_missing",
        Severity.ERROR,
        Action.UPDATE_SOFTWARE,
        "node",
        "There is no NVIDIA module for the running kernel: its build failed or was never done.",
    ),
    rule(
        rf"nvidia (?P<device>{ADDRESS}): (?P<speed>[\d.]+ Gb/s) available PCIe bandwidth, "
        r"limited by (?P<by>.+?)(?: \(|$)",
        "pcie.link_limited",
        Severity.WARNING,
        Action.CHECK_LINK,
        "gpu",
        "The GPU's PCIe link has {speed}, limited by {by}.",
    ),
)
_TABLE = RuleTable(_WORDS, _RULES)
_LOADING = re.compile(rf"NVIDIA UNIX (?P<open>Open )?.*?Kernel Module.*?(?P<version>{_VERSION})")
_MISMATCH = re.compile(r"NVRM:\s*API mismatch", re.IGNORECASE)
_NVML_MISMATCH = re.compile(r"Driver/library version mismatch", re.IGNORECASE)


def read_driver_line(record: LogRecord, window: str) -> LineEvent | None:
    """What a record says of the driver; `window` is its message and those of the driver that follow at once."""
    message = record.message.strip()
    if "ismatch" in message and (_MISMATCH.search(message) or _NVML_MISMATCH.search(message)):
        return _mismatch(record, window)
    multi_line = "NVRM: The NVIDIA GPU" in message or "PCI I/O region" in message
    return _TABLE.event(record, window if multi_line else message)


def loaded_version(message: str) -> tuple[str, bool] | None:
    """The version of the kernel module that a line says is loading, and whether it is the open one."""
    if "NVIDIA UNIX" not in message:
        return None
    found = _LOADING.search(message)
    return (found["version"], bool(found["open"])) if found else None


def _mismatch(record: LogRecord, window: str) -> LineEvent | None:
    versions = list(dict.fromkeys(re.findall(rf"\bversion:?\s+({_VERSION})", window)))
    library, module = versions if len(versions) == 2 else ("unknown", "unknown")
    found = rule(
        r"mismatch",
        "driver.library_mismatch",
        Severity.ERROR,
        Action.REBOOT_NODE,
        "node",
        f"The library is of version {library}, the loaded kernel module of {module}: reload the module or reboot.",
    )
    return found.event(record, record.message)
