"""What one answer of nvidia-smi says as a whole: its GPUs, its errors, its counts and versions."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.gpu import GpuReading, SmiError, SmiErrorKind, SmiReport
from fleet.gpu_health import DEFAULT_LIMITS, GpuLimits, findings_of_gpu, unread_of_gpu, untold_of_gpu
from fleet.versions import is_same

NODE = "node"

_ERRORS: dict[SmiErrorKind, tuple[str, Severity, Action, str]] = {
    SmiErrorKind.DRIVER_NOT_RUNNING: (
        "driver.not_running",
        Severity.FATAL,
        Action.FIX_CONFIGURATION,
        "the kernel module is not loaded: nouveau or nova holds the GPUs, the module was not built for this kernel, or "
        "Secure Boot refuses its signature",
    ),
    SmiErrorKind.LIBRARY_MISMATCH: (
        "driver.library_mismatch",
        Severity.FATAL,
        Action.REBOOT_NODE,
        "the loaded kernel module and the libraries on disk are of two versions: an upgrade that did not load the new "
        "module; reload it, or reboot",
    ),
    SmiErrorKind.LIBRARY_MISSING: (
        "driver.library_missing",
        Severity.FATAL,
        Action.FIX_CONFIGURATION,
        "the driver's libraries are not installed, or not to be seen from where this ran",
    ),
    SmiErrorKind.TOOL_MISSING: (
        "driver.not_installed",
        Severity.FATAL,
        Action.FIX_CONFIGURATION,
        "nvidia-smi is not there: no driver is installed, or its path is not searched",
    ),
    SmiErrorKind.NO_DEVICES: (
        "gpu.none_found",
        Severity.FATAL,
        Action.INVESTIGATE,
        "the driver runs and sees no GPU: compare with lspci and the kernel log",
    ),
    SmiErrorKind.NOT_PERMITTED: (
        "driver.not_permitted",
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "this user or container may not ask the driver",
    ),
    SmiErrorKind.NVML_FAILED: (
        "driver.nvml_failed",
        Severity.ERROR,
        Action.INVESTIGATE,
        "NVML could not start; inside a container a lost device cgroup looks like this and a restart of it helps",
    ),
    SmiErrorKind.GPU_LOST: (
        "gpu.lost",
        Severity.FATAL,
        Action.REBOOT_NODE,
        "the driver has lost the GPU: reboot the node; power cycle and reseat it if it comes again",
    ),
    SmiErrorKind.GPU_UNREACHABLE: (
        "gpu.unreachable",
        Severity.FATAL,
        Action.REBOOT_NODE,
        "the driver cannot reach the GPU: look for Xid 79 in the kernel log; power cycle and reseat it if a reboot "
        "does not help",
    ),
    SmiErrorKind.GPU_NEEDS_RESET: (
        "recovery.gpu_reset",
        Severity.FATAL,
        Action.RESET_GPU,
        "the GPU cannot be used until it is reset",
    ),
    SmiErrorKind.GPU_NEEDS_POWER: (
        "gpu.insufficient_power",
        Severity.FATAL,
        Action.CHECK_POWER,
        "the GPU's power cables give too little, or are not plugged",
    ),
    SmiErrorKind.INTERRUPT_FAULT: (
        "gpu.interrupt_fault",
        Severity.FATAL,
        Action.INVESTIGATE,
        "the GPU's interrupts do not arrive: firmware settings or the PCIe path",
    ),
    SmiErrorKind.INFOROM_CORRUPTED: (
        "inforom.corrupted",
        Severity.ERROR,
        Action.RESET_GPU,
        "the GPU's own store of identity and error history is damaged: reset it, then ask the vendor if it stays",
    ),
}


def explain_report(kind: str, report: SmiReport, limits: GpuLimits = DEFAULT_LIMITS) -> Explanation:
    """Subjects, findings and what stays open. Nothing in it is a clean bill: what was not said is in `unknown`."""
    subjects = [Subject(NODE, facts)] if (facts := _node_facts(report)) else []
    subjects += [Subject(gpu.subject, _gpu_facts(gpu)) for gpu in report.gpus]
    return Explanation(
        kind=kind,
        subjects=tuple(subjects),
        findings=findings_of_report(report, limits),
        unknown=unknown_of_report(report),
    )


def findings_of_report(report: SmiReport, limits: GpuLimits = DEFAULT_LIMITS) -> tuple[Finding, ...]:
    """The errors first, then the node's counts and versions, then each GPU's findings."""
    found = [_of_error(error, report) for error in _own_errors(report)]
    found += _counts(report)
    found += _versions(report)
    found += [finding for gpu in report.gpus for finding in findings_of_gpu(gpu, limits)]
    return tuple(dict.fromkeys(found))


def unknown_of_report(report: SmiReport) -> tuple[str, ...]:
    """What the answer leaves open, each in a text."""
    unknown = list(report.unknown)
    if report.complete is False:
        unknown.append("the text is not whole: what is missing, other GPUs perhaps among it")
    if report.driver_version is None:
        unknown.append("the version of the loaded driver")
    if report.attached_gpus is None:
        unknown.append("how many GPUs the driver sees in all")
    for error in report.errors:
        if error.printed_gpu is not None and error.gpu is None:
            unknown.append(f"which GPU is meant: {error.printed_gpu!r} is no PCI address")
    if not report.gpus:
        unknown.append("the state of every GPU: the text shows none")
    elif not report.full:
        unknown.append("all that this form does not show of the GPUs: only nvidia-smi -q has their whole state")
    for gpu in report.gpus:
        unknown += [*unread_of_gpu(gpu), *(untold_of_gpu(gpu) if report.full else ())]
    return tuple(dict.fromkeys(unknown))


def _own_errors(report: SmiReport) -> Iterator[SmiError]:
    """The errors without "No devices were found" where that only says that the one GPU could not be reached."""
    reach = {SmiErrorKind.GPU_LOST, SmiErrorKind.GPU_UNREACHABLE, SmiErrorKind.GPU_NEEDS_POWER}
    reached = any(error.kind in reach for error in report.errors)
    return (error for error in report.errors if not (reached and error.kind is SmiErrorKind.NO_DEVICES))


def _of_error(error: SmiError, report: SmiReport) -> Finding:
    code, severity, action, text = _ERRORS[error.kind]
    named = error.gpu or error.printed_gpu
    evidence = error.line
    if error.kind is SmiErrorKind.LIBRARY_MISMATCH and report.library_version:
        evidence = f"{error.line}; NVML library version: {report.library_version}"
    return Finding(f"gpu {named}" if named else NODE, code, severity, action, evidence[:300], text)


def _counts(report: SmiReport) -> Iterator[Finding]:
    attached, shown = report.attached_gpus, len(report.gpus)
    if attached is None or attached == shown or report.complete is False:
        return
    text = (
        "the driver counts other GPUs than the text shows: one stopped answering, or the command was limited to some, "
        "or the text is not whole; compare with lspci"
    )
    evidence = f"attached GPUs: {attached}, shown: {shown}"
    yield Finding(NODE, "gpu.count_mismatch", Severity.ERROR, Action.INVESTIGATE, evidence, text)


def _versions(report: SmiReport) -> Iterator[Finding]:
    driver = report.driver_version
    user = [version for version in (report.tool_version, report.library_version) if version]
    gpus = list(dict.fromkeys(gpu.driver_version for gpu in report.gpus if gpu.driver_version))
    if driver is not None and any(is_same(driver, version) is False for version in user):
        evidence = f"driver {driver}, user space {', '.join(user)}"
        text = "kernel module and user space are of two versions: an upgrade is half done; reload the module, or reboot"
        yield Finding(NODE, "driver.two_versions", Severity.ERROR, Action.REBOOT_NODE, evidence, text)
    if len(gpus) > 1:
        evidence = f"driver versions: {', '.join(gpus)}"
        text = "one node runs one driver: these rows are of several nodes or of several times"
        yield Finding(NODE, "driver.two_versions", Severity.WARNING, Action.INVESTIGATE, evidence[:300], text)
    for gpu in report.gpus:
        gsp = gpu.gsp_firmware_version
        if driver is not None and gsp is not None and is_same(driver, gsp) is False:
            evidence = f"driver {driver}, GSP firmware {gsp}"
            text = "the GPU's GSP runs firmware of another driver version"
            yield Finding(gpu.subject, "driver.gsp_mismatch", Severity.WARNING, Action.RESET_GPU, evidence, text)


def _node_facts(report: SmiReport) -> dict[str, str]:
    facts = {
        "driver": report.driver_version,
        "cuda": report.cuda_version,
        "attached_gpus": report.attached_gpus,
        "gpus_shown": len(report.gpus) or None,
        "nvidia_smi": report.tool_version,
        "nvml": report.library_version,
        "schema": report.schema,
        "timestamp": report.timestamp,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _gpu_facts(gpu: GpuReading) -> dict[str, str]:
    facts = {
        "product": gpu.product_name,
        "index": gpu.index,
        "uuid": gpu.uuid,
        "serial": gpu.serial,
        "vbios": gpu.vbios_version,
        "inforom": gpu.inforom_image,
        "board_part_number": gpu.board_part_number,
        "driver": gpu.driver_version,
        "mig_devices": len(gpu.mig_instances) if gpu.mig_instances else None,
        "recovery_action": gpu.recovery_action,
        "retired_pages": None if gpu.retired_pages is None else len(gpu.retired_pages),
        "processes": len(gpu.processes) if gpu.processes else None,
        "power_draw_watts": gpu.power_draw_watts,
        "temperature_gpu_celsius": gpu.temperature_gpu_celsius,
        "fabric_state": gpu.fabric_state,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}
