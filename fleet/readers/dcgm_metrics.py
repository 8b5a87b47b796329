"""Prometheus text of dcgm-exporter and of what passes its values on.

DCGM writes "no value" as a very large number, which survives a later change of units; a metric that is absent is not 0.
Source: NVIDIA/DCGM dcgm_structs.h (DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK), dcgm-exporter
default-counters.csv, and the field names that DCGM 4.6 renamed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.health_catalog import xid_rule
from fleet.health_limits import read_clock_events, recovery_action
from fleet.readers.dcgm_errors import finding
from fleet.readers.pci_address import gpu_address
from fleet.readers.plain_text import evidence, named, plain_lines

KIND = "dcgm_metrics"

_FP64_BLANK = 140737488355328.0
_INT64_BLANK = 0x7FFFFFFFFFFFFFF0
_INT32_BLANK = 0x7FFFFFF0
_REASONS = ("no value", "not found", "not supported", "not permitted")
_SCALES = (1.0, 100.0, 1e3, 1e6, 0.01, 1e-3, 1e-6)

# DCGM 4.6's new names and dcgm-exporter's variants, by the name that most fleets still have.
_RENAMED = {
    "DCGM_FI_DEV_XID_ERROR": "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL": "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL": "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_PAGE_RETIRED_PENDING": "DCGM_FI_DEV_RETIRED_PENDING",
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILED": "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": "DCGM_FI_DEV_GPU_RECOVERY_ACTION",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. `value` is None where DCGM had none, and `why` says its reason ("not supported")."""

    metric: str
    labels: Mapping[str, str]
    value: float | None
    why: str = ""

    @property
    def subject(self) -> str:
        """The GPU by its number, else by its PCI address; the node where the labels name none."""
        number, address = self.labels.get("gpu"), self.labels.get("pci_bus_id", "")
        if number:
            return f"gpu {number}"
        return f"gpu {gpu_address(address) or address}" if address else "node"


def blank_reason(value: float) -> str | None:
    """Why DCGM has no value, where the number stands for that, also after a change of units; None for a real one."""
    if math.isnan(value) or math.isinf(value):
        return "not a number"
    for scale in _SCALES:
        offset = value / scale - _FP64_BLANK
        if abs(offset - round(offset)) < 0.05 and 0 <= round(offset) <= 3:
            return _REASONS[round(offset)]
        if math.isclose(value / scale, _INT64_BLANK, rel_tol=1e-9):
            return "no value"
    if value - _INT32_BLANK in (0, 1, 2, 3):
        return _REASONS[int(value - _INT32_BLANK)]
    return None


def known_value(word: str) -> float | None:
    """The number that a word is; None for DCGM's blanks, NaN, N/A and words."""
    try:
        value = float(word)
    except ValueError:
        return None
    return None if blank_reason(value) else value


_SAMPLE = re.compile(r"(?:^|\s)([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?\s+([^\s{}]+)(?:\s+-?\d+)?(?:\s+#.*)?$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SIGN = re.compile(r"DCGM_(?:FI|EXP)_\w+\s*(?:\{[^\n]{0,4000}\})?[ \t]+[-+\dNIi.]|# (?:TYPE|HELP) DCGM_", re.MULTILINE)


def recognises(text: str) -> bool:
    """Are there samples of DCGM fields in it?"""
    return "DCGM_" in text and _SIGN.search(text) is not None


def read_dcgm_metrics(text: str) -> tuple[Sample, ...]:
    """Every sample, in order and under its old name; lines that are none are left out, as is a cut last one."""
    samples = []
    for line in plain_lines(text):
        found = None if line.lstrip().startswith("#") else _SAMPLE.search(line)
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        labels = {key: _unescaped(content) for key, content in _LABEL.findall(found[2] or "")}
        why = blank_reason(value)
        samples.append(Sample(_RENAMED.get(found[1], found[1]), labels, None if why else value, why or ""))
    return tuple(samples)


def _unescaped(text: str) -> str:
    return text.replace(r"\"", '"').replace(r"\n", " ").replace(r"\\", "\\")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A value above `limit` is a finding. Source: the public alert rules of facts H."""

    metric: str
    limit: float
    code: str
    severity: Severity
    action: Action
    text: str


_RULES = (
    _Rule(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE",
        0,
        "ecc.row_remap_failed",
        Severity.ERROR,
        Action.CONTACT_VENDOR,
        "A row could not be remapped: the GPU is to be returned once the vendor's diagnostic confirms it.",
    ),
    _Rule(
        "DCGM_FI_DEV_ROW_REMAP_PENDING",
        0,
        "ecc.row_remap_pending",
        Severity.WARNING,
        Action.RESET_GPU,
        "A row is to be remapped at the next reset of the GPU.",
    ),
    _Rule(
        "DCGM_FI_DEV_RETIRED_PENDING",
        0,
        "ecc.page_retirement_pending",
        Severity.WARNING,
        Action.RESET_GPU,
        "Pages are to be retired at the next reset of the GPU.",
    ),
    _Rule(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        0,
        "ecc.uncorrectable",
        Severity.ERROR,
        Action.RESET_GPU,
        "Uncorrectable memory errors since the driver was loaded.",
    ),
    _Rule(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        0,
        "ecc.rows_remapped",
        Severity.WARNING,
        Action.WATCH,
        "Rows were remapped after uncorrectable errors; they are mended.",
    ),
    _Rule(
        "DCGM_FI_DEV_GPU_TEMP",
        85,
        "thermal.gpu_hot",
        Severity.WARNING,
        Action.CHECK_COOLING,
        "Above 85 °C; it counts where it stays so for minutes.",
    ),
)


def metric_findings(samples: Iterable[Sample]) -> tuple[Finding, ...]:
    """What the values say; a value that is unknown says nothing."""
    found = (item for sample in samples if sample.value for item in _of_sample(sample, sample.value))
    return tuple(dict.fromkeys(found))


def _of_sample(sample: Sample, value: float) -> Iterable[Finding]:
    shown = evidence(f"{sample.metric}={value:g}", *(f"{k}={v}" for k, v in sample.labels.items() if k == "xid"))
    for rule in _RULES:
        if sample.metric == rule.metric and value > rule.limit:
            yield Finding(sample.subject, rule.code, rule.severity, rule.action, shown, rule.text)
    yield from _status(sample, value, shown)
    counted = sample.labels.get("xid")
    if "XID_ERRORS" in sample.metric and counted is not None and counted.isdecimal():
        window = sample.labels.get("window_size_in_ms")
        text = f"{value:g} times" + (
            f" in the last {int(window) / 1000:g} s." if window and window.isdecimal() else "."
        )
        yield xid_finding(sample.subject, int(counted[:6]), shown, text)
    elif sample.metric == "DCGM_FI_DEV_XID_ERRORS" and value.is_integer() and 0 < value < 100000:
        yield xid_finding(
            sample.subject, int(value), shown, "The last Xid of this GPU; the value says not when it was."
        )
    elif sample.metric == "DCGM_FI_DEV_CLOCKS_EVENT_REASONS" and value.is_integer() and 0 < value < 2**32:
        slowing = read_clock_events(int(value)).slowing
        if slowing:
            action = Action.CHECK_POWER if slowing == ("hw_power_brake",) else Action.CHECK_COOLING
            text = f"The clocks are held down: {named(slowing)}."
            yield Finding(sample.subject, "clocks.slowed", Severity.WARNING, action, shown, text)
    elif sample.metric == "DCGM_FI_DEV_GPU_RECOVERY_ACTION":
        wanted = recovery_action(int(value))
        text = f"The driver asks for: {wanted.name}." if wanted else "The driver asks for what has no known name."
        action = wanted.action if wanted else Action.INVESTIGATE
        yield Finding(sample.subject, "gpu.recovery_action", Severity.ERROR, action, shown, text)


def _status(sample: Sample, value: float, shown: str) -> Iterable[Finding]:
    """The health and fabric manager states. Source: dcgm_structs.h (health 0, 10, 20; fabric manager 0 to 6)."""
    if sample.metric == "DCGM_EXP_GPU_HEALTH_STATUS":
        words = (sample.labels.get(key, "") for key in ("health_watch", "health_error_code"))
        yield finding(sample.subject, evidence(shown, *words), failed=value >= 20)
    elif sample.metric == "DCGM_FI_DEV_FABRIC_MANAGER_STATUS" and value in (1, 2):
        text = "The fabric manager has not started, or is at it."
        yield Finding(sample.subject, "fabric.not_ready", Severity.WARNING, Action.WAIT, shown, text)
    elif sample.metric == "DCGM_FI_DEV_FABRIC_MANAGER_STATUS" and value == 4:
        text = "The fabric manager failed."
        yield Finding(sample.subject, "fabric.failed", Severity.ERROR, Action.RESTART_SERVICE, shown, text)


def xid_finding(subject: str, code: int, shown: str, text: str) -> Finding:
    """An Xid that DCGM tells of, weighed by the catalogue; one that it does not have is for a person to look at."""
    rule = xid_rule(code)
    severity, action = (rule.severity, rule.action) if rule else (Severity.WARNING, Action.INVESTIGATE)
    described = f"{rule.description}. {text}" if rule else text
    return Finding(subject, f"xid.{code}", severity, action, shown, described)


_EXPECTED = (
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_GPU_TEMP",
)


def explain(text: str) -> Explanation:
    """The scrape for a person: GPUs, what is wrong, and what it does not hold."""
    samples = read_dcgm_metrics(text)
    subjects: dict[str, dict[str, str]] = {}
    blank: dict[tuple[str, str], list[str]] = {}
    for sample in samples:
        facts = subjects.setdefault(sample.subject, {})
        facts |= {key: sample.labels[key] for key in ("modelName", "UUID", "Hostname") if sample.labels.get(key)}
        if address := gpu_address(sample.labels.get("pci_bus_id", "")):
            facts["pci address"] = address
        if sample.value is not None:
            facts[sample.metric] = f"{sample.value:.10g}"
        else:
            blank.setdefault((sample.metric, sample.why), []).append(sample.subject)
    unknown = [f"{metric}: DCGM says {why} for {named(dict.fromkeys(of))}." for (metric, why), of in blank.items()]
    present = {sample.metric for sample in samples}
    unknown += [f"{name}: not in this scrape; that is not 0." for name in _EXPECTED if name not in present]
    return Explanation(
        kind=KIND,
        subjects=tuple(Subject(name, facts) for name, facts in subjects.items()),
        findings=metric_findings(samples),
        unknown=tuple(dict.fromkeys(unknown)),
    )
