"""What `dcgmi diag` judged, of every version and in JSON or as a table, and what that proves.

A pass of the Deployment tests alone says nothing about the hardware; a test that was skipped, not run, or passed after
it could not allocate its memory, judged nothing; one hardware error decides, whatever else is mere configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.readers.dcgm_errors import Weight, finding, identify
from fleet.readers.plain_text import evidence, named

KIND = "dcgm_diag"


class DiagResult(StrEnum):
    """A test's own word. `UNKNOWN` is a word that we do not know, or none."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    NOT_RUN = "not_run"
    UNKNOWN = "unknown"


class Proof(StrEnum):
    """What a diagnostic run proves."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class DiagWarning:
    """A message of a test. `error_id` and `weight` are None where the version does not print them."""

    text: str
    error_id: int | None = None
    weight: Weight | None = None

    @property
    def is_configuration(self) -> bool:
        if self.weight not in (None, Weight.NONE, Weight.UNKNOWN):
            return self.weight is Weight.CONFIG
        error = identify(self.error_id, self.text)
        return error is not None and error.weight is Weight.CONFIG

    @property
    def limits_coverage(self) -> bool:
        """Did the test not get the memory that it needs, so that its pass covers too little?"""
        error = identify(self.error_id, self.text)
        return error is not None and error.name in ("DCGM_FR_MEMORY_ALLOC", "DCGM_FR_MEMORY_ALLOC_HOST")


@dataclass(frozen=True, slots=True)
class DiagTest:
    """One test on one part. `entity` ("gpu 3", "cpu 0") is None where the run gives one result for all."""

    category: str | None
    name: str
    entity: str | None
    result: DiagResult
    warnings: tuple[DiagWarning, ...] = ()
    info: tuple[str, ...] = ()

    @property
    def is_software(self) -> bool:
        """Does it look only at how the node is set up? Told by the category; the names change between versions."""
        if self.category is not None:
            return self.category.casefold() == "deployment"
        return self.name.casefold() in ("software", "denylist", "blacklist", "nvml library", "cuda main library")


@dataclass(frozen=True, slots=True)
class DiagReport:
    """A whole run. `entities` are all parts that it lists; `complete` is False where the text ends too early and None
    where that cannot be told; `errors` are what kept it from running."""

    version: str | None = None
    driver: str | None = None
    entities: tuple[str, ...] = ()
    tests: tuple[DiagTest, ...] = ()
    errors: tuple[str, ...] = ()
    complete: bool | None = None
    device_ids: tuple[str, ...] = ()
    serials: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DiagVerdict:
    """`software` of the Deployment tests, `hardware` of all others, and why not pass, a sentence each."""

    software: Proof
    hardware: Proof
    reasons: tuple[str, ...] = ()


_RESULTS = {
    "pass": DiagResult.PASS,
    "passed": DiagResult.PASS,
    "fail": DiagResult.FAIL,
    "failed": DiagResult.FAIL,
    "warn": DiagResult.WARN,
    "warning": DiagResult.WARN,
    "skip": DiagResult.SKIP,
    "skipped": DiagResult.SKIP,
    "not run": DiagResult.NOT_RUN,
    "notrun": DiagResult.NOT_RUN,
    "not_run": DiagResult.NOT_RUN,
}


def result_of(word: str | None) -> DiagResult:
    """The result by its word, in any case."""
    return _RESULTS.get(" ".join((word or "").split()).casefold(), DiagResult.UNKNOWN)


def entity_name(group: str, number: int | str) -> str:
    """How a part is called in all results: "gpu 3"."""
    return f"{group.casefold()} {number}"


def entities_in(text: str) -> tuple[str, ...]:
    """The GPUs, CPUs and switches that a message names, each once."""
    found = re.findall(r"(?<![a-z])(gpu|cpu|nvswitch|switch)s?:?[ ]?(\d{1,3})(?!\d)", text, re.IGNORECASE)
    return tuple(dict.fromkeys(entity_name(group, number) for group, number in found))


def judge_diag(report: DiagReport, excused: frozenset[str] = frozenset()) -> DiagVerdict:
    """What the run proves. `excused` are names of tests (any case) that this node need not run to pass."""
    names = frozenset(name.casefold() for name in excused)
    software = [test for test in report.tests if test.is_software]
    hardware = [test for test in report.tests if not test.is_software]
    hard = [test for test in report.tests if _condemns(test)]
    reasons = [f"{_where(test)}: {_why(test)}" for test in report.tests if _why(test) and not _excused(test, names)]
    judged = [test for test in hardware if test.result is DiagResult.PASS and not _why(test)]
    reasons += [f"the run did not do its work: {error}" for error in report.errors]
    if report.complete is False:
        reasons.append("the text ends before the run's end")
    if not judged:
        reasons.append("no test judged the hardware")
    reasons += _unjudged(report, judged)
    doubts = [test for test in hardware if _why(test) and not _excused(test, names)]
    unsure = bool(report.errors or report.complete is False or not judged or doubts or _unjudged(report, judged))
    return DiagVerdict(
        software=_software_proof(software),
        hardware=Proof.FAIL if hard else Proof.INCONCLUSIVE if unsure else Proof.PASS,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _excused(test: DiagTest, names: frozenset[str]) -> bool:
    return test.name.casefold() in names and test.result in (DiagResult.SKIP, DiagResult.NOT_RUN)


def _software_proof(tests: list[DiagTest]) -> Proof:
    if any(test.result is DiagResult.FAIL for test in tests):
        return Proof.FAIL
    return Proof.PASS if tests and all(test.result is DiagResult.PASS for test in tests) else Proof.INCONCLUSIVE


def _unjudged(report: DiagReport, judged: list[DiagTest]) -> list[str]:
    """Listed GPUs that no hardware test passed on, where results are per part at all."""
    seen = {test.entity for test in judged}
    if None in seen or not judged:
        return []
    missing = [entity for entity in report.entities if entity.startswith("gpu ") and entity not in seen]
    return [f"no hardware test has a result for {named(missing)}"] if missing else []


def _condemns(test: DiagTest) -> bool:
    """A failure that is not mere configuration, or a warning of any test that DCGM weighs as the hardware's."""
    if any(warning.weight in (Weight.ISOLATE, Weight.RESET) for warning in test.warnings):
        return True
    if test.result is not DiagResult.FAIL:
        return False
    return not test.warnings or not all(warning.is_configuration for warning in test.warnings)


def _where(test: DiagTest) -> str:
    return f"{test.entity or 'node'}, {test.name}"


def _why(test: DiagTest) -> str:
    """Why this result is no proof of health; empty where it is."""
    if any(warning.limits_coverage for warning in test.warnings):
        return "the test could not allocate its memory, so it covered too little"
    if test.result is DiagResult.FAIL and not _condemns(test):
        return "only the configuration failed: mend it and run again"
    words = {DiagResult.FAIL: "failed", DiagResult.WARN: "passed with a warning", DiagResult.SKIP: "was skipped"}
    words |= {DiagResult.NOT_RUN: "was not run", DiagResult.UNKNOWN: "has no known result"}
    return words.get(test.result, "")


def diag_findings(report: DiagReport, exit_status: int | None = None) -> tuple[Finding, ...]:
    """What the run found, once per part and message, hardware first.

    `exit_status` is dcgmi's own: other than 0 beside a report without a failure it is a finding about the tool.
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for test in report.tests:
        for item in _of_test(test):
            found.setdefault((item.subject, item.code, item.evidence), item)
    for error in report.errors:
        item = _did_not_run(error)
        found.setdefault((item.subject, item.code, item.evidence), item)
    failed = any(test.result is DiagResult.FAIL for test in report.tests)
    if exit_status and report.tests and not failed and not report.errors:
        found["node", "dcgm.exit_status", ""] = _odd_exit(exit_status)
    order = list(Severity)
    return tuple(sorted(found.values(), key=lambda item: -order.index(item.severity)))


def _of_test(test: DiagTest) -> Iterable[Finding]:
    failed = test.result is DiagResult.FAIL
    for warning in test.warnings:
        subjects = (test.entity,) if test.entity else entities_in(warning.text) or ("node",)
        for subject in subjects:
            yield finding(
                subject,
                f"{test.name}: {test.result}: {warning.text}",
                error_id=warning.error_id,
                weight=warning.weight,
                failed=failed,
            )
    if failed and not test.warnings:
        yield finding(test.entity or "node", f"{test.name}: {test.result}")


_NOT_FOUND = re.compile(r"tests? (?:was|were) not found|unknown test", re.IGNORECASE)


def _did_not_run(error: str) -> Finding:
    if _NOT_FOUND.search(error):
        return Finding(
            "node",
            "dcgm.tests_not_found",
            Severity.WARNING,
            Action.UPDATE_SOFTWARE,
            evidence(error),
            "This DCGM does not have the tests that were asked for, so nothing was judged. DCGM 4 keeps them in "
            "packages of their own: install datacenter-gpu-manager-4-proprietary (with -cudaNN for the driver's CUDA).",
        )
    return Finding(
        "node",
        "dcgm.did_not_run",
        Severity.WARNING,
        Action.RESTART_SERVICE if re.search(r"host ?engine|connect", error, re.IGNORECASE) else Action.INVESTIGATE,
        evidence(error),
        "The diagnostic did not do its work; the hardware was not judged.",
    )


def _odd_exit(status: int) -> Finding:
    return Finding(
        "node",
        "dcgm.exit_status",
        Severity.WARNING,
        Action.WATCH,
        f"exit status {status}",
        "dcgmi ended with an error though its report is whole and nothing failed: the report is right.",
    )


def explain_diag(report: DiagReport, exit_status: int | None = None) -> Explanation:
    """The report for a person: its parts, what was found, and what it does not prove."""
    verdict = judge_diag(report)
    facts = {"hardware": str(verdict.hardware), "software": str(verdict.software)}
    facts |= {key: value for key, value in (("dcgm", report.version), ("driver", report.driver)) if value}
    if report.device_ids:
        facts["device ids"] = named(report.device_ids)
    parts = dict.fromkeys([*report.entities, *(test.entity for test in report.tests if test.entity)])
    unknown = [f"Not proven: {reason}." for reason in verdict.reasons if not reason.endswith(": failed")]
    unknown += [note for test in report.tests for note in test.info if re.search("skipped|error getting", note, re.I)]
    if verdict.software is Proof.PASS and all(test.is_software for test in report.tests):
        unknown.append("The deployment tests passed; they say nothing about the hardware.")
    findings = diag_findings(report, exit_status)
    if any(found.code == "dcgm.nvlink_down" for found in findings):
        unknown.append("Whether this GPU has NVLink at all: DCGM says its links are down also without a bridge.")
    unknown.append("dcgmi diag does not cover NVLink counts, the recovery action, or a GPU that is merely slow.")
    return Explanation(
        kind=KIND,
        subjects=(Subject("node", facts), *(Subject(part, _facts_of(part, report)) for part in parts)),
        findings=findings,
        unknown=tuple(dict.fromkeys(unknown)),
    )


def _facts_of(part: str, report: DiagReport) -> Mapping[str, str]:
    facts = {test.name: str(test.result) for test in report.tests if test.entity == part}
    return facts | ({"serial": report.serials[part]} if part in report.serials else {})
