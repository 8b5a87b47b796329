"""What is wrong with a GPU, from one reading of it. What is not known is no finding: it is named apart.

One look cannot see rates: replay counters, corrected errors and pages retired in a week need two. The figures and
their sources are those of `fleet.health_limits`; what to do follows NVIDIA's GPU memory error management guide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleet.findings import Action, Finding, Severity
from fleet.gpu import GpuReading, RecoveryAction
from fleet.health_limits import (
    RemapVerdict,
    RetirementVerdict,
    page_retirement_verdict,
    recovery_action,
    row_remap_verdict,
)

_SHOWN = 300
_NAMED = 8
_SERVER_GPU = re.compile(
    r"\b(Tesla|HGX|GRID|G?[ABHV]\d00|GB\d00|GH200|A(2|10|16|30|40)|L(2|4|20|40)S?|[TPMK](4|6|40|80|100))[A-Z]*\b"
)
_DESKTOP_GPU = re.compile(r"GeForce|Quadro|RTX|TITAN", re.IGNORECASE)
_UNCORRECTABLE = (
    "uncorrectable",
    "dram_uncorrectable",
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "register_file_uncorrectable",
    "l1_uncorrectable",
    "l2_uncorrectable",
)


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """What a policy may set. `retired_pages`: object from so many on, before DCGM's own limit is reached."""

    retired_pages: int | None = None
    unreadable_attributes: int = 3  # fewer are a passing failure to read, not a dead GPU


DEFAULT_LIMITS = GpuLimits()
_Rule = Callable[[GpuReading, GpuLimits], Iterator[Finding]]

_RECOVERY: dict[RecoveryAction, tuple[Severity, str]] = {
    RecoveryAction.GPU_RESET: (Severity.FATAL, "cannot be used until it is reset"),
    RecoveryAction.BUS_RESET: (Severity.FATAL, "cannot be used until its bus is reset"),
    RecoveryAction.NODE_REBOOT: (Severity.FATAL, "cannot be used until the node is rebooted"),
    RecoveryAction.SYSTEM_REBOOT: (Severity.FATAL, "cannot be used until the system is rebooted"),
    RecoveryAction.DRAIN_P2P: (
        Severity.ERROR,
        "peer-to-peer traffic must end first: stop all jobs that use it, read again, then do what is asked then",
    ),
    RecoveryAction.DRAIN_AND_RESET: (Severity.ERROR, "works with less than it has: let its jobs end, then reset it"),
    RecoveryAction.RECOVER_IMEX_DOMAIN: (Severity.ERROR, "the IMEX domain must be recovered"),
    RecoveryAction.OTHER: (Severity.ERROR, "the driver asks for an action not known here"),
}


def _what_to_do(asked: RecoveryAction) -> Action:
    """The action of NVML's number for it, which is its place in `RecoveryAction`."""
    known = recovery_action(list(RecoveryAction).index(asked))
    return Action.INVESTIGATE if known is None else known.action


def findings_of_gpu(gpu: GpuReading, limits: GpuLimits = DEFAULT_LIMITS) -> tuple[Finding, ...]:
    """Everything wrong or worth knowing in one reading, the worst kinds first. A GPU that is well gives none."""
    return tuple(finding for rule in _RULES for finding in rule(gpu, limits))


def unread_of_gpu(gpu: GpuReading) -> tuple[str, ...]:
    """The values that were asked for and could not be read or understood."""
    names = ", ".join(name.replace("_", " ") for name in gpu.unreadable[:_NAMED])
    more = f" and {len(gpu.unreadable) - _NAMED} more" if len(gpu.unreadable) > _NAMED else ""
    failed = (f"{gpu.subject}: {names}{more} could not be read",) if names else ()
    return (*failed, *(f"{gpu.subject}: a value of unknown shape: {text}" for text in gpu.unparsed))


def untold_of_gpu(gpu: GpuReading) -> tuple[str, ...]:
    """What a full reading should tell of a GPU's health and this one does not."""
    untold: list[str] = []
    if gpu.remapped_rows_pending is None and gpu.retired_pages_pending is None:
        untold.append("whether memory waits for a repair (remapped rows and retired pages not given)")
    if gpu.remapped_rows_failure is None and gpu.retired_pages_double_bit is None:
        untold.append("whether a repair of its memory failed")
    if all(value is None for _, value in _uncorrectable(gpu, "volatile")):
        untold.append("uncorrectable ECC errors")
    if gpu.recovery_action is None and gpu.reset_required is None:
        untold.append("whether the driver asks for a reset")
    return tuple(f"{gpu.subject}: {text}" for text in untold)


def _finding(
    gpu: GpuReading, code: str, severity: Severity, action: Action, evidence: str, text: str
) -> Iterator[Finding]:
    yield Finding(gpu.subject, code, severity, action, evidence[:_SHOWN], text)


def _reach(gpu: GpuReading, limits: GpuLimits) -> Iterator[Finding]:
    failed = ", ".join(gpu.unreadable)
    if gpu.lost:
        text = (
            "the driver has lost it: reboot the node, and look for Xid 79 and for power and seating if it comes again"
        )
        yield from _finding(gpu, "gpu.lost", Severity.FATAL, Action.REBOOT_NODE, f"GPU is lost ({failed})", text)
    elif len(gpu.unreadable) >= limits.unreadable_attributes and not gpu.reset_required:
        text = (
            "the driver answers most questions about it with an error: it may be dead; read again, then the kernel log"
        )
        yield from _finding(gpu, "gpu.unreadable", Severity.ERROR, Action.RUN_DIAGNOSTICS, f"error for {failed}", text)
    elif gpu.unreadable and not gpu.reset_required:
        text = "a single failed reading passes mostly by itself: read again before anything else"
        yield from _finding(gpu, "gpu.read_error", Severity.INFO, Action.WATCH, f"error for {failed}", text)


def _recovery(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    action = gpu.recovery_action
    if action is not None and action is not RecoveryAction.NONE:
        severity, text = _RECOVERY[action]
        what = _what_to_do(action)
        printed = next((text for text in gpu.unparsed if text.startswith("recovery_action")), action.value)
        yield from _finding(gpu, f"recovery.{action}", severity, what, f"GPU recovery action: {printed}", text)
    elif gpu.reset_required:
        text = "cannot be used until it is reset"
        yield from _finding(gpu, "recovery.gpu_reset", Severity.FATAL, Action.RESET_GPU, "reset required: Yes", text)
    elif gpu.drain_and_reset_recommended:
        severity, text = _RECOVERY[RecoveryAction.DRAIN_AND_RESET]
        what = _what_to_do(RecoveryAction.DRAIN_AND_RESET)
        yield from _finding(gpu, "recovery.drain_and_reset", severity, what, "drain and reset recommended: Yes", text)


def _uncorrectable(gpu: GpuReading, scope: str) -> list[tuple[str, int | None]]:
    found: list[tuple[str, int | None]] = [
        (name, getattr(gpu, name)) for name in (f"ecc_{scope}_{part}" for part in _UNCORRECTABLE)
    ]
    if scope == "volatile":
        found += [
            (f"MIG device {mig.index} SRAM uncorrectable", mig.ecc_sram_uncorrectable)
            for mig in gpu.mig_instances or ()
        ]
    return found


def _ecc(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    for scope in ("volatile", "aggregate"):
        counts = [f"{name}={value}" for name, value in _uncorrectable(gpu, scope) if value]
        if counts and scope == "volatile":
            sram = any("sram" in count.lower() for count in counts)
            text = "data was lost since the driver was loaded: reset it when its jobs have ended, read remapped rows"
            action = Action.RUN_DIAGNOSTICS if sram else Action.RESET_GPU
            yield from _finding(gpu, "ecc.uncorrectable_volatile", Severity.ERROR, action, ", ".join(counts), text)
        elif counts:
            text = "errors of its whole life, which may be repaired long ago: what is pending or failed decides"
            yield from _finding(
                gpu, "ecc.uncorrectable_aggregate", Severity.INFO, Action.WATCH, ", ".join(counts), text
            )
    if gpu.ecc_sram_threshold_exceeded:
        text = "too many uncorrectable SRAM errors in one place: NVIDIA replaces such a GPU"
        evidence = "SRAM threshold exceeded: Yes"
        yield from _finding(gpu, "ecc.sram_threshold_exceeded", Severity.ERROR, Action.REPLACE_PART, evidence, text)
    if gpu.unrepairable_memory:
        text = "memory that no repair is left for"
        evidence = "unrepairable memory: Yes"
        yield from _finding(gpu, "ecc.unrepairable_memory", Severity.FATAL, Action.REPLACE_PART, evidence, text)
    for name, pending in (("channel", gpu.channel_repair_pending), ("tpc", gpu.tpc_repair_pending)):
        if pending:
            text = "the repair is done at the next reset"
            evidence = f"{name} repair pending: Yes"
            yield from _finding(gpu, f"ecc.{name}_repair_pending", Severity.WARNING, Action.RESET_GPU, evidence, text)


def _inforom(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    if gpu.inforom_checksum_valid is False:
        text = "its own store of identity and error history is damaged: reset it, then ask the vendor if it stays"
        evidence = "InfoROM checksum: invalid"
        yield from _finding(gpu, "inforom.corrupted", Severity.ERROR, Action.RESET_GPU, evidence, text)


def _rows(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    rows = gpu.remapped_rows_uncorrectable
    if gpu.remapped_rows_failure:
        text = "a row could not be remapped: run NVIDIA's field diagnostic, and return the GPU if it confirms"
        evidence = "row remapping failure: Yes"
        yield from _finding(gpu, "ecc.row_remap_failed", Severity.ERROR, Action.RUN_DIAGNOSTICS, evidence, text)
    if gpu.remapped_rows_pending:
        text = "a row is remapped at the next reset of the GPU; until then a new error in it can end a job"
        evidence = "row remapping pending: Yes"
        yield from _finding(gpu, "ecc.row_remap_pending", Severity.WARNING, Action.RESET_GPU, evidence, text)
    full = row_remap_verdict(uncorrectable_remaps=rows, new_uncorrectable=1) is RemapVerdict.FAILURE_FLAG
    if full and not gpu.remapped_rows_failure:
        text = "no more rows can be remapped: the next uncorrectable error sets the failure flag"
        evidence = f"uncorrectable remapped rows: {rows}"
        yield from _finding(gpu, "ecc.row_remap_limit", Severity.ERROR, Action.RUN_DIAGNOSTICS, evidence, text)
    if gpu.remap_banks_none:
        text = "banks without a spare row: the next error in one of them is a remapping failure"
        evidence = f"banks without spare rows: {gpu.remap_banks_none}"
        yield from _finding(gpu, "ecc.row_remap_exhausted_banks", Severity.WARNING, Action.WATCH, evidence, text)


def _pages(gpu: GpuReading, limits: GpuLimits) -> Iterator[Finding]:
    counts = [count for count in (gpu.retired_pages_single_bit, gpu.retired_pages_double_bit) if count is not None]
    total = sum(counts) if counts else len(gpu.retired_pages or ())
    if gpu.retired_pages_pending:
        text = "a page is retired at the next reset of the GPU"
        evidence = f"pending page retirement: Yes ({total} retired)"
        yield from _finding(gpu, "ecc.page_retirement_pending", Severity.WARNING, Action.RESET_GPU, evidence, text)
    failed = page_retirement_verdict(total=total, double_bit=gpu.retired_pages_double_bit, new_last_week=0)
    allowed = limits.retired_pages
    if failed is RetirementVerdict.FAIL or (allowed is not None and total >= allowed):
        text = "more retired pages than the limit allows: ask for a replacement"
        single, double = gpu.retired_pages_single_bit, gpu.retired_pages_double_bit
        evidence = f"retired pages: {total} (single bit {single}, double bit {double})"
        yield from _finding(gpu, "ecc.page_retirement_limit", Severity.ERROR, Action.CONTACT_VENDOR, evidence, text)


def _clocks(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    """Held back by hardware or heat. Idle, a power cap and set clocks are how a GPU works: no finding."""
    if gpu.event_hw_thermal_slowdown:
        text = "the hardware slows it down because it is too hot"
        evidence = "HW Thermal Slowdown: Active"
        yield from _finding(gpu, "clocks.hw_thermal_slowdown", Severity.ERROR, Action.CHECK_COOLING, evidence, text)
    if gpu.event_hw_power_brake:
        text = "the power supply side asks it to slow down: look at power supplies and the rack's power"
        evidence = "HW Power Brake Slowdown: Active"
        yield from _finding(gpu, "clocks.hw_power_brake", Severity.ERROR, Action.CHECK_POWER, evidence, text)
    if gpu.event_hw_slowdown and not (gpu.event_hw_thermal_slowdown or gpu.event_hw_power_brake):
        text = "the hardware slows it down: heat, the power brake, or a draw that is too high or too quick"
        evidence = "HW Slowdown: Active"
        yield from _finding(gpu, "clocks.hw_slowdown", Severity.ERROR, Action.CHECK_POWER, evidence, text)
    if gpu.event_sw_thermal_slowdown:
        text = "the driver slows it down because GPU or memory are above their working temperature"
        evidence = "SW Thermal Slowdown: Active"
        yield from _finding(gpu, "clocks.sw_thermal_slowdown", Severity.WARNING, Action.CHECK_COOLING, evidence, text)


def _heat(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    now, limit = gpu.temperature_gpu_celsius, gpu.temperature_slowdown_celsius
    margin, least = gpu.temperature_margin_celsius, gpu.temperature_slowdown_margin_celsius
    evidence = ""
    if now is not None and limit is not None and now >= limit > 0:
        evidence = f"{now} C of {limit} C"
    elif margin is not None and least is not None and margin <= least:
        evidence = f"T.Limit margin {margin} C, slowdown at {least} C"
    if evidence:
        text = "at the temperature at which it slows down"
        yield from _finding(gpu, "temperature.slowdown", Severity.ERROR, Action.CHECK_COOLING, evidence, text)


def _pcie(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    """A link that idles may run slower or narrower on purpose, so only a GPU at work or in P0 tells."""
    if gpu.performance_state != "P0" and not gpu.utilization_gpu_percent:
        return
    text = "less than GPU and slot can do; a slot that is wired for less looks the same, so compare with its like"
    for code, now, most in (
        ("pcie.width_degraded", gpu.pcie_width, gpu.pcie_width_max),
        ("pcie.generation_degraded", gpu.pcie_generation, gpu.pcie_generation_max),
    ):
        if now is not None and most is not None and now < most:
            evidence = f"{code.split('.')[1].split('_')[0]} {now} of {most} in {gpu.performance_state}"
            yield from _finding(gpu, code, Severity.WARNING, Action.CHECK_LINK, evidence, text)


def _modes(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    for name, current, pending in (
        ("ecc", gpu.ecc_mode_current, gpu.ecc_mode_pending),
        ("mig", gpu.mig_mode_current, gpu.mig_mode_pending),
    ):
        if current is not None and pending is not None and current != pending:
            evidence = f"{name.upper()} mode: current {_switch(current)}, pending {_switch(pending)}"
            text = "the change is made at the next reset of the GPU"
            yield from _finding(gpu, f"mode.{name}_pending", Severity.WARNING, Action.RESET_GPU, evidence, text)
    if gpu.mig_mode_current and gpu.mig_instances == ():
        text = "MIG is on and no instance exists, as after a reboot: no job can run on it until they are made again"
        evidence = "MIG mode: Enabled, no MIG devices"
        yield from _finding(gpu, "mig.no_instances", Severity.WARNING, Action.FIX_CONFIGURATION, evidence, text)
    if gpu.persistence_mode is False and _is_server_gpu(gpu.product_name or ""):
        text = "the driver lets go of it whenever nobody uses it: slow starts, and settings are lost"
        evidence = "persistence mode: Disabled"
        yield from _finding(gpu, "mode.persistence_off", Severity.INFO, Action.FIX_CONFIGURATION, evidence, text)


def _is_server_gpu(product: str) -> bool:
    return bool(_SERVER_GPU.search(product)) and not _DESKTOP_GPU.search(product)


def _switch(value: bool) -> str:
    return "Enabled" if value else "Disabled"


def _fabric(gpu: GpuReading, _limits: GpuLimits) -> Iterator[Finding]:
    state, status = (gpu.fabric_state or "").lower(), (gpu.fabric_status or "").lower()
    evidence = f"fabric state {gpu.fabric_state}, status {gpu.fabric_status}"
    if state in ("in progress", "not started"):
        text = (
            "it has not joined its NVLink fabric yet; if it stays so, the fabric manager or the switches are at fault"
        )
        action = Action.WAIT if state == "in progress" else Action.RESTART_SERVICE
        yield from _finding(gpu, "fabric.not_ready", Severity.ERROR, action, evidence, text)
    elif state and (state != "completed" or status not in ("", "success")):
        text = "it could not join its NVLink fabric: read the fabric manager's log"
        yield from _finding(gpu, "fabric.failed", Severity.ERROR, Action.RESTART_SERVICE, evidence, text)
    if (gpu.fabric_bandwidth or "").lower() == "degraded":
        text = "its NVLink bandwidth is reduced: look at its links and their trunk"
        yield from _finding(
            gpu, "fabric.bandwidth_degraded", Severity.ERROR, Action.RUN_DIAGNOSTICS, "fabric bandwidth Degraded", text
        )
    yield from _fabric_routes(gpu)


def _fabric_routes(gpu: GpuReading) -> Iterator[Finding]:
    summary = (gpu.fabric_health_summary or "healthy").lower()
    wrong = gpu.fabric_incorrect_configuration
    if gpu.fabric_route_unhealthy:
        text = "its NVLink routes are unhealthy, though it has joined the fabric: reset it when its jobs have ended"
        evidence = f"fabric route unhealthy: True (summary {gpu.fabric_health_summary})"
        yield from _finding(gpu, "fabric.route_unhealthy", Severity.ERROR, Action.RESET_GPU, evidence, text)
    elif summary != "healthy":
        limited = "limited" in summary
        evidence = f"fabric health: {gpu.fabric_health_summary}"
        text = (
            "its part of the NVLink fabric has less than its capacity" if limited else "its NVLink fabric is unhealthy"
        )
        severity = Severity.WARNING if limited else Severity.ERROR
        yield from _finding(gpu, "fabric.unhealthy", severity, Action.RUN_DIAGNOSTICS, evidence, text)
    for name, active in (
        ("route recovery", gpu.fabric_route_recovery),
        ("access timeout recovery", gpu.fabric_access_timeout_recovery),
    ):
        if active:
            code = f"fabric.{name.replace(' ', '_')}"
            text = "the fabric recovers by itself; look again"
            yield from _finding(gpu, code, Severity.WARNING, Action.WAIT, f"fabric {name}: True", text)
    if wrong is not None and wrong.lower() not in ("none", "false", "no"):
        text = "the fabric is not set up as it must be"
        evidence = f"fabric incorrect configuration: {wrong}"
        yield from _finding(gpu, "fabric.misconfigured", Severity.ERROR, Action.FIX_CONFIGURATION, evidence, text)


_RULES: tuple[_Rule, ...] = (_reach, _recovery, _ecc, _inforom, _rows, _pages, _fabric, _clocks, _heat, _pcie, _modes)
