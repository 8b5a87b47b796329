"""How well a node and its GPUs are by one reading: the rules that `explain` uses, on the probe's values."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.findings import Action, Finding, Severity
from fleet.gpu_health import findings_of_gpu
from fleet.gpu_report import findings_of_report
from fleet.node_reading import NodeReading
from fleet.readers.kernel_log import findings_of, read_kernel_log

OK = "ok"
_RANK = {Severity.FATAL: 0, Severity.ERROR: 1, Severity.WARNING: 2}
_SHOWN = 4


def state_findings(reading: NodeReading) -> tuple[Finding, ...]:
    """What is wrong now, the node's own findings first. What could not be read gives none: see `reading.unknown`."""
    if reading.smi is not None:
        return (*_of_node(reading), *findings_of_report(reading.smi))
    return (*_of_node(reading), *(found for gpu in reading.gpus or () for found in findings_of_gpu(gpu)))


def log_findings(reading: NodeReading) -> tuple[Finding, ...]:
    """What the kernel said since the last reading, without what is only worth knowing."""
    if reading.kernel_log is None or not reading.kernel_log.lines:
        return ()
    found = findings_of(read_kernel_log("\n".join(reading.kernel_log.lines)))
    return tuple(finding for finding in found if finding.severity is not Severity.INFO)


def health_of(findings: Iterable[Finding], subject: str | None = None) -> str:
    """ "ok", or the worst severity and the codes of all findings (of `subject` alone, where given)."""
    bad = [f for f in findings if f.severity in _RANK and subject in (None, f.subject)]
    if not bad:
        return OK
    worst = min(bad, key=lambda finding: _RANK[finding.severity]).severity
    codes = list(dict.fromkeys(f.code if subject else f"{f.subject} {f.code}" for f in bad))
    more = f" and {len(codes) - _SHOWN} more" if len(codes) > _SHOWN else ""
    return f"{worst.value}: {', '.join(codes[:_SHOWN])}{more}"


def _of_node(reading: NodeReading) -> Iterable[Finding]:
    if reading.gpu_count is not None and reading.gpus_on_bus is not None and reading.gpu_count < reading.gpus_on_bus:
        evidence = f"driver shows {reading.gpu_count}, PCI bus {reading.gpus_on_bus}"
        text = "a GPU is on the bus and the driver does not show it"
        yield Finding("node", "gpu.count_mismatch", Severity.FATAL, Action.REBOOT_NODE, evidence, text)
    loaded, user_space = reading.driver.loaded, reading.driver.user_space
    if loaded is not None and user_space is not None and loaded != user_space:
        text = "the loaded module and the user space are of two versions: unload it, or reboot"
        evidence = f"loaded {loaded}, user space {user_space}"
        yield Finding("node", "driver.library_mismatch", Severity.ERROR, Action.REBOOT_NODE, evidence, text)
    manager = reading.driver.fabric_manager
    if loaded is not None and manager is not None and manager != loaded:
        text = "the fabric manager must be of the driver's very version"
        evidence = f"driver {loaded}, fabric manager {manager}"
        yield Finding("node", "driver.fabric_manager_mismatch", Severity.ERROR, Action.UPDATE_SOFTWARE, evidence, text)
