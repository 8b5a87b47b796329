"""What readers and the measuring of nodes give, as evidence of acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleet.acceptance_evidence import PartValue, RunEvidence
from fleet.acceptance_parts import Part, PartFinding, PartKind, node_part, placed
from fleet.acceptance_rules import AcceptanceRule
from fleet.findings import Finding
from fleet.measures import Sample
from fleet.node_health import log_findings, state_findings
from fleet.node_reading import NodeReading
from fleet.readers.dcgm_diag import DiagReport, DiagResult, DiagTest, diag_findings
from fleet.readers.dcgm_errors import Weight


def values_of(
    samples: Iterable[Sample], rule: AcceptanceRule, parts: Sequence[Part], unit: str
) -> tuple[PartValue, ...]:
    """The samples of one node as values of its parts: of the GPU in the slot, or of the node where they name none.

    `unit` is that of the samples, whose own measure does not matter here.
    """
    gpus = {part.slot: part for part in parts if part.kind is PartKind.GPU}

    def part_of(sample: Sample) -> Part:
        if sample.gpu is None or rule.kind is PartKind.NODE:
            return node_part(sample.node)
        return gpus.get(str(sample.gpu), Part(sample.node, PartKind.GPU, str(sample.gpu)))

    return tuple(PartValue(part_of(one), one.value, unit, one.run, one.missing, one.conditions) for one in samples)


def run_of_diag(node: str, test: str, report: DiagReport, parts: Sequence[Part], tool: str = "dcgmi") -> RunEvidence:
    """A run of `dcgmi diag`: its findings, and the GPUs that its hardware tests prove good.

    A GPU is proven where at least one hardware test passed on it and none ended otherwise; a run that did not do its
    work, or whose text ends too early, proves none. `report.errors` of a run without a single test say why it did not
    run. The exit status of dcgmi is no part of it.
    """
    findings = placed(node, diag_findings(report), parts)
    if report.errors and not report.tests:
        return RunEvidence(node, test, findings=findings, not_run="; ".join(report.errors), tool=tool)
    whole = not report.errors and report.complete is not False
    gpus = [part for part in parts if part.kind is PartKind.GPU]
    proven = tuple(part for part in gpus if whole and _proves(report, part))
    version = f"{tool} {report.version}" if report.version else tool
    return RunEvidence(node, test, findings=findings, proven=proven, tool=version)


def state_of(node: str, reading: NodeReading, parts: Sequence[Part]) -> tuple[PartFinding, ...] | None:
    """What is wrong with a node by one look at it; None where the look did not show its GPUs."""
    if reading.gpus is None and reading.smi is None:
        return None
    found: tuple[Finding, ...] = (*state_findings(reading), *log_findings(reading))
    return placed(node, found, parts)


def _proves(report: DiagReport, part: Part) -> bool:
    own = [test for test in report.tests if not test.is_software and _is_of(test, report, part)]
    return bool(own) and all(_clean(test) for test in own)


def _is_of(test: DiagTest, report: DiagReport, part: Part) -> bool:
    """Whether the result is this part's, or that of all parts together. A serial in the report goes before a number."""
    if test.entity is None:
        return True
    serial = report.serials.get(test.entity)
    if serial is not None and part.serial is not None:
        return serial == part.serial
    return test.entity == f"{part.kind.value} {part.slot}"


def _clean(test: DiagTest) -> bool:
    grave = any(
        warning.weight in (Weight.ISOLATE, Weight.RESET) or warning.limits_coverage for warning in test.warnings
    )
    return test.result is DiagResult.PASS and not grave
