"""What a text is that an operator hands in, and what it says, by the readers that everything else uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from fleet.findings import Explanation, Finding, Severity, Subject
from fleet.json_values import printable
from fleet.readers import (
    dcgm_diag_json,
    dcgm_health,
    dcgm_metrics,
    dcgm_text,
    ethernet,
    fabric_manager,
    firmware_table,
    infiniband,
    kernel_log,
    lspci,
    network_tests,
    nvidia_smi_csv,
    nvidia_smi_table,
    nvidia_smi_text,
    nvidia_smi_xml,
    nvlink,
    redfish,
    slurm,
    topology,
)
from fleet.readers.plain_text import by_host


class Reader(Protocol):
    """A module of fleet/readers: cheap to ask whether a text is of its kind, and silent on every other kind."""

    def recognises(self, text: str) -> bool: ...

    def explain(self, text: str) -> Explanation: ...


_READERS: tuple[tuple[str, Reader], ...] = (
    ("a kernel log (dmesg, journalctl, syslog, /dev/kmsg)", kernel_log),
    ("a fabric manager log", fabric_manager),
    ("nvidia-smi -q -x", nvidia_smi_xml),
    ("nvidia-smi -q", nvidia_smi_text),
    ("nvidia-smi --query-… --format=csv", nvidia_smi_csv),
    ("nvidia-smi's table, -L or error messages", nvidia_smi_table),
    ("nvidia-smi nvlink", nvlink),
    ("nvidia-smi topo -m", topology),
    ("dcgmi diag as JSON", dcgm_diag_json),
    ("dcgmi's tables and messages", dcgm_text),
    ("dcgmi health", dcgm_health),
    ("dcgm-exporter's metrics", dcgm_metrics),
    ("InfiniBand ports and links (ibstat, ibv_devinfo, perfquery, mlxlink …)", infiniband),
    ("Ethernet ports (ethtool, ip link …)", ethernet),
    ("lspci -vv", lspci),
    ("bandwidth tests (nccl-tests, ib_write_bw, iperf3)", network_tests),
    ("a Redfish resource or error body", redfish),
    ("Slurm's nodes or jobs (scontrol, sinfo, squeue --json)", slurm),
    ("the table of nvfwupd show_version", firmware_table),
)

KINDS: tuple[str, ...] = tuple(name for name, _ in _READERS)
"""What can be explained, in words."""

_RANK = {Severity.FATAL: 0, Severity.ERROR: 1, Severity.WARNING: 2, Severity.INFO: 3}


def explain(text: str) -> Explanation:
    """Everything that the readers find in `text`; a bug report may hold several kinds.

    A text of no known kind is said to be so: nothing found in it is no sign of health. No word of the answer acts on
    a terminal, whatever the text holds.
    """
    found = _read(text)
    return Explanation(
        found.kind,
        tuple(Subject(_safe(s.name), {_safe(k): _safe(v) for k, v in s.facts.items()}) for s in found.subjects),
        tuple(
            replace(f, subject=_safe(f.subject), code=_safe(f.code), evidence=_safe(f.evidence), text=_safe(f.text))
            for f in found.findings
        ),
        tuple(_safe(line) for line in found.unknown),
    )


def _safe(text: str) -> str:
    return str(printable(text))


def _read(text: str) -> Explanation:
    clean = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    hosts = by_host(clean)
    if len(hosts) > 1:  # pdsh and clush put the host before each line; GPU 0 of one is not GPU 0 of the other
        parts = {host: _explained(own) for host, own in hosts.items()}
        silent = [host for host, found in parts.items() if not found]
        if len(silent) < len(parts) and all(hosts[host].count("\n") < 2 for host in silent):
            joined = _joined([_on_host(host, part) for host, found in parts.items() for part in found])
            lost = (f"{host}: nothing of it is known, it says {hosts[host].strip()[:200]!r}" for host in silent)
            return replace(joined, unknown=(*joined.unknown, *lost))
    found = _explained(clean)
    if not found:
        what = "what this text is: " + ("it is empty" if not clean.strip() else f"known are {'; '.join(KINDS)}")
        return Explanation("unknown", unknown=(what,))
    return found[0] if len(found) == 1 else _joined(found)


def _explained(text: str) -> list[Explanation]:
    return [reader.explain(text) for _, reader in _READERS if reader.recognises(text)]


def _joined(parts: list[Explanation]) -> Explanation:
    return Explanation(
        kind="+".join(dict.fromkeys(part.kind for part in parts)),
        subjects=_merged(parts),
        findings=worst_first(finding for part in parts for finding in part.findings),
        unknown=tuple(dict.fromkeys(line for part in parts for line in part.unknown)),
    )


def _on_host(host: str, part: Explanation) -> Explanation:
    return Explanation(
        kind=part.kind,
        subjects=tuple(replace(subject, name=f"{host} {subject.name}") for subject in part.subjects),
        findings=tuple(replace(finding, subject=f"{host} {finding.subject}") for finding in part.findings),
        unknown=tuple(f"{host}: {line}" for line in part.unknown),
    )


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity; equal ones stay in their order, each once."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: _RANK[finding.severity]))


def _merged(parts: list[Explanation]) -> tuple[Subject, ...]:
    facts: dict[str, dict[str, str]] = {}
    for part in parts:
        for subject in part.subjects:
            facts.setdefault(subject.name, {}).update(subject.facts)
    return tuple(Subject(name, known) for name, known in facts.items())
