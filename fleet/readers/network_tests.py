"""Measured bandwidth: nccl-tests, perftest (ib_write_bw and its kin) and iperf3; figures, not verdicts.

Whether a figure is enough, the limits of the model and the cohort decide. Source of the layouts: linux-rdma/perftest,
esnet/iperf.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.json_values import number_at, object_at, text_at
from fleet.readers.json_in_text import find_json
from fleet.readers.nccl_tests import NcclRun, is_nccl, read_nccl
from fleet.readers.plain_text import any_of, evidence, number, plain_lines, whole

_GBIT = {"gb/sec": 1.0, "mb/sec": 8e-3, "mib/sec": 8 * 1.048576e-3, "gib/sec": 8 * 1.073741824}
_IPERF_UNITS = {"": 1e-9, "k": 1e-6, "m": 1e-3, "g": 1.0, "t": 1e3}


@dataclass(frozen=True, slots=True)
class RdmaRow:
    """One message size of perftest, in Gbit/s; None where the tool printed no number."""

    size_bytes: int
    iterations: int | None
    peak_gbit_s: float | None
    average_gbit_s: float | None


@dataclass(frozen=True, slots=True)
class RdmaRun:
    """A run of perftest: its device and link layer as printed, its rows, and what it complained of."""

    test: str | None = None
    device: str | None = None
    link: str | None = None
    bidirectional: bool = False
    rows: tuple[RdmaRow, ...] = ()
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IperfRun:
    """iperf3's sums in Gbit/s; None where the text has none."""

    sent_gbit_s: float | None = None
    received_gbit_s: float | None = None
    retransmits: int | None = None
    errors: tuple[str, ...] = ()


_PERFTEST = re.compile(r"#bytes\s+#iterations\s+BW peak\[([A-Za-z]+/sec)\]", re.IGNORECASE)
_RDMA_ERRORS = re.compile(
    r"couldn't (?:connect|listen|get|create)|unable to (?:init|find|open|create|establish|write)"
    r"|failed to (?:modify|create|connect|complete|exchange)|completion with error|IB device .*not found"
    r"|did not detect devices|mr allocation",
    re.IGNORECASE,
)


def recognises(text: str) -> bool:
    """Is it the output of one of these tools?"""
    return is_nccl(text) or is_perftest(text) or is_iperf(text)


def is_perftest(text: str) -> bool:
    """Is it the output of ib_write_bw or its kin?"""
    if not any_of(("#bytes", "RDMA_", "BW Test"), text):
        return False
    return (
        re.search(r"#bytes\s+#iterations|RDMA_(?:Write|Read) .*Test|\bSend (?:Bidirectional )?BW Test", text)
        is not None
    )


def is_iperf(text: str) -> bool:
    """Is it the output of iperf3?"""
    if "bits/sec" in text and re.search(r"\[(?: *\d+|SUM)\][^\n\[]{0,200}bits/sec", text):
        return True
    if "iperf" in text and re.search(r"\biperf3?: error|\"start\"[^\n]*\"iperf3?", text):
        return True
    return '"sum_received"' in text


def read_rdma(text: str) -> RdmaRun:
    """A run of perftest. Text without one gives a run without rows."""
    unit: float | None = None
    rows, errors = [], []
    test = re.search(r"(RDMA_Write|RDMA_Read|Send)[\w -]{0,60}Test", text)
    for line in plain_lines(text):
        heading = _PERFTEST.search(line)
        words = line.split()
        if heading:
            unit = _GBIT.get(heading[1].casefold())
        elif unit is not None and len(words) >= 4 and words[0].isdecimal() and words[1].isdecimal():
            peak, average = number(words[2]), number(words[3])
            rows.append(
                RdmaRow(
                    int(words[0][:18]),
                    whole(words[1]),
                    peak * unit if peak is not None else None,
                    average * unit if average is not None else None,
                )
            )
        elif _RDMA_ERRORS.search(line):
            errors.append(line.strip())
    device, link = re.search(r"Device\s*:\s*(\S+)", text), re.search(r"Link type\s*:\s*(\S+)", text)
    return RdmaRun(
        test=" ".join(test[0].split()) if test else None,
        device=device[1] if device else None,
        link=link[1] if link else None,
        bidirectional="Bidirectional" in text,
        rows=tuple(rows),
        errors=tuple(dict.fromkeys(errors)),
    )


_IPERF_LINE = re.compile(
    r"\[\s*(\d+|SUM)\]\s+[\d.]+-[\d.]+\s+sec\s+\S+ \w*Bytes\s+([\d.]+) ([KMGT]?)bits/sec"
    r"(?:\s+(\d+))?.*?(sender|receiver)?\s*$"
)


def read_iperf(text: str) -> IperfRun:
    """iperf3's result, as text or with -J; the sum of parallel streams goes before a single one."""
    found = find_json(text, lambda value: isinstance(value, Mapping) and ("end" in value or "error" in value))
    if found is not None:
        end = object_at(found.value, "end")
        sent, received = (number_at(end, key, "bits_per_second") for key in ("sum_sent", "sum_received"))
        again, error = number_at(end, "sum_sent", "retransmits"), text_at(found.value, "error")
        return IperfRun(
            sent / 1e9 if sent is not None else None,
            received / 1e9 if received is not None else None,
            int(again) if again is not None else None,
            (error,) if error else (),
        )
    sums: dict[tuple[str, bool], tuple[float, int | None]] = {}
    errors = []
    for line in plain_lines(text):
        row = _IPERF_LINE.search(line)
        if row and row[5]:
            rate = number(row[2])
            if rate is not None:
                sums[row[5], row[1] == "SUM"] = (rate * _IPERF_UNITS[row[3].casefold()], whole(row[4]))
        elif re.search(r"\biperf3?: error", line):
            errors.append(line.strip())
    sent_, received_ = (sums.get((way, True)) or sums.get((way, False)) for way in ("sender", "receiver"))
    return IperfRun(
        sent_[0] if sent_ else None, received_[0] if received_ else None, sent_[1] if sent_ else None, tuple(errors)
    )


def explain(text: str) -> Explanation:
    """The run for a person: what was measured, and what failed."""
    if is_nccl(text):
        return _explain_nccl(read_nccl(text))
    if is_perftest(text):
        return _explain_rdma(read_rdma(text))
    return _explain_iperf(read_iperf(text))


_LIMITS = "Whether this is enough: the limits of the model and of its peers decide."


def _failed(code: str, error: str) -> Finding:
    text = "The test did not run to its end; it measured nothing that counts."
    return Finding("node", code, Severity.WARNING, Action.INVESTIGATE, evidence(error), text)


def nccl_findings(run: NcclRun) -> tuple[Finding, ...]:
    """Wrong results and failures; bandwidth is for the limits to judge."""
    found = [_failed("nccl.failed", error) for error in run.errors if "WARN" not in error or not run.complete]
    wrong = [row for row in run.rows if row.wrong or row.in_place_wrong]
    if wrong or run.out_of_bounds:
        shown = f"#wrong at {len(wrong)} sizes" if wrong else f"Out of bounds values : {run.out_of_bounds}"
        text = "The collective gave wrong numbers: a GPU, a link or its memory corrupts data."
        found.append(Finding("node", "nccl.wrong_results", Severity.ERROR, Action.RUN_DIAGNOSTICS, shown, text))
    return tuple(found)


def _explain_nccl(run: NcclRun) -> Explanation:
    facts = {"collective": run.collective, "ranks": str(run.ranks) if run.ranks else None}
    peak = run.peak
    facts["peak busbw"] = f"{peak.best_bus_gb_s:g} GB/s at {peak.size_bytes} bytes" if peak else None
    facts["average busbw"] = f"{run.average_bus_gb_s:g} GB/s" if run.average_bus_gb_s is not None else None
    unknown = [_LIMITS]
    if not run.complete:
        unknown.append("The run's end: the text has no average, so it was cut or broke off.")
    if any(row.wrong is None for row in run.rows):
        unknown.append("Whether the results were right: they were not checked at every size.")
    subject = Subject("node", {key: value for key, value in facts.items() if value})
    hosts = tuple(Subject(f"node {host}") for host in run.hosts)
    return Explanation("nccl_tests", (subject, *hosts), nccl_findings(run), tuple(unknown))


def _explain_rdma(run: RdmaRun) -> Explanation:
    best = max((row.average_gbit_s for row in run.rows if row.average_gbit_s is not None), default=None)
    facts = {"test": run.test, "link": run.link, "best average": f"{best:g} Gbit/s" if best is not None else None}
    unknown = [_LIMITS] if best is not None else ["The bandwidth: the text has no result."]
    subject = Subject(f"link {run.device}" if run.device else "link", {k: v for k, v in facts.items() if v})
    findings = tuple(_failed("rdma.failed", error) for error in run.errors)
    return Explanation("perftest", (subject,), findings, tuple(unknown))


def _explain_iperf(run: IperfRun) -> Explanation:
    rates = (("sent", run.sent_gbit_s), ("received", run.received_gbit_s))
    facts = {key: f"{value:g} Gbit/s" for key, value in rates if value is not None}
    facts |= {"retransmits": str(run.retransmits)} if run.retransmits is not None else {}
    unknown = [_LIMITS] if facts else ["The bandwidth: the text has no sum."]
    findings = tuple(_failed("iperf.failed", error) for error in run.errors)
    return Explanation("iperf3", (Subject("node", facts),), findings, tuple(unknown))
