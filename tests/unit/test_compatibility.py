"""Which driver and toolkit fit which GPU: every verdict with the rule that decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.catalog_data import load_catalog
from fleet.compat_rules import Effect, KernelModules, MemoryMode, Platform
from fleet.compatibility import CompatibilityVerdict, Verdict, judge
from fleet.drivers import fabric_manager_matches
from fleet.gpu_names import identify

CATALOG = load_catalog()


def _deciding(verdict: CompatibilityVerdict) -> set[str]:
    worst = verdict.rules[0].effect
    return {rule.name for rule in verdict.rules if rule.effect is worst}


def _noted(verdict: CompatibilityVerdict, name: str) -> str:
    return next((rule.text for rule in verdict.rules if rule.name == name and rule.effect is Effect.NOTES), "")


def test_fabric_manager_must_be_the_very_release() -> None:
    assert fabric_manager_matches("535.54.03", "535.54.03-1") is True
    assert fabric_manager_matches("530.30.02", "530.41.03") is False
    assert fabric_manager_matches("535.54.03", "535") is None
    assert fabric_manager_matches("535", "535") is None
    assert fabric_manager_matches("535.54.03", "not installed") is None
    same = judge("H100", "535.54.03", platform=Platform(fabric_manager="535.54.03-1"))
    other = judge("H100", "535.54.03", platform=Platform(fabric_manager="535.86.10"))
    untold = judge("H100", "535", platform=Platform(fabric_manager="535.86.10"))
    assert [v.verdict for v in (same, other, untold)] == [Verdict.OK, Verdict.REFUSED, Verdict.UNKNOWN]
    assert _deciding(other) == {"fabric_manager.equal"}


@pytest.mark.parametrize(
    ("gpu", "driver", "cuda", "rules"),
    [
        ("V100", "590", None, {"architecture.last_driver"}),
        ("V100", "580.95.05", "13.0", {"architecture.last_cuda"}),
        ("V100", "590", "13.0", {"architecture.last_driver", "architecture.last_cuda"}),
        ("P40", None, "13", {"architecture.last_cuda"}),
        ("GTX 980", "595.58.03", None, {"architecture.last_driver"}),
        ("K80", "510.47.03", None, {"architecture.last_driver"}),
        ("K10", "470.82.01", "11.4", {"architecture.last_cuda"}),
        ("V100", "470.57.02", "8.0", {"architecture.first_cuda"}),
        ("H100", "580.95.05", "11.4", {"architecture.first_cuda"}),
        ("B200", "580.95.05", "12.4", {"architecture.first_cuda"}),
        ("H100", "470.57.02", None, {"architecture.first_driver"}),
        ("RTX 4090", "535.54.03", "13.0", {"cuda.minor_version", "cuda.forward_gpus"}),
    ],
)
def test_a_refusal_names_its_rule_and_source(gpu: str, driver: str | None, cuda: str | None, rules: set[str]) -> None:
    verdict = judge(gpu, driver, cuda)
    assert (verdict.verdict, _deciding(verdict), verdict.package) == (Verdict.REFUSED, rules, None)
    assert all(rule.source for rule in verdict.rules)


@pytest.mark.parametrize(
    ("gpu", "driver", "cuda"),
    [
        ("V100", "580", "12.9"),
        ("V100", "470.57.02", "9.2"),
        ("H100", "535.104.05", "12.4"),
        ("H100", "590.48.01-1ubuntu1", "11.8"),
        ("A100", "470.57.02", "11.8"),
        ("A100", "450.51.06", "11.0.3"),
        ("K80", "R470", "11.8"),
        ("T4", "440.33", "10.2"),
        ("RTX 4090", "535", "12.2.140"),
        ("M2090", "390.30", None),
    ],
)
def test_older_toolkits_and_minor_versions_run(gpu: str, driver: str, cuda: str | None) -> None:
    assert judge(gpu, driver, cuda).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("gpu", "driver", "cuda", "package"),
    [
        ("H100", "535.104.05", "13.0", "cuda-compat-13-0"),
        ("Hopper", "570.86.15", "13.0.2", "cuda-compat-13-0"),
        ("A100", "470.57.02", "12.2.140", "cuda-compat-12-2"),
        ("T4", "418.87.00", "11.4", "cuda-compat-11-4"),
        ("H100", "535", "13", "cuda-compat-13-<minor>"),
    ],
)
def test_a_newer_major_toolkit_needs_its_compat_package(gpu: str, driver: str, cuda: str, package: str) -> None:
    verdict = judge(gpu, driver, cuda)
    assert (verdict.verdict, verdict.package) == (Verdict.NEEDS_CUDA_COMPAT, package)
    assert "no table of the bases" in _noted(verdict, "cuda.forward_bases")


@pytest.mark.parametrize(
    ("gpu", "driver", "cuda", "package"),
    [
        ("H100", "525.60.12", "12.0", "cuda-compat-12-0"),
        ("A100", "450.51.06", "11.8", "cuda-compat-11-8"),
        ("T4", "418.39", "10.2", "cuda-compat-10-2"),
    ],
)
def test_a_driver_of_the_same_major_that_is_too_old_is_refused(gpu: str, driver: str, cuda: str, package: str) -> None:
    verdict = judge(gpu, driver, cuda)
    assert (verdict.verdict, verdict.package) == (Verdict.REFUSED, package)
    assert "update within" in verdict.rules[0].text


@pytest.mark.parametrize(
    ("gpu", "driver", "cuda", "missing"),
    [
        ("V100", None, None, "Neither"),
        ("H100", "700.10", None, "no branch R700"),
        ("H100", "latest", None, "no driver branch or version"),
        ("H100", "580", "twelve", "no CUDA version"),
        ("H100", "580", "14.0", "no minimum driver for CUDA 14.0"),
        ("V100", None, "9.2", "no minimum driver for CUDA 9.2"),
        ("T4", "418.39", "10", "tell the minor version"),
        ("RTX A6000", "535", "13.0", "whether RTX A6000 may use that"),
        ("Ampere", "535", "13.0", "name the model"),
        ("H100", "560.35.03", "13.0", "new feature branch R560"),
        ("B300", "570.172.08", None, "older than Blackwell Ultra"),
        ("Kepler", "470", "11.4", "name the model"),
    ],
)
def test_where_the_facts_are_silent_the_verdict_is_unknown_and_says_what_is_missing(
    gpu: str, driver: str | None, cuda: str | None, missing: str
) -> None:
    verdict = judge(gpu, driver, cuda)
    assert verdict.verdict is Verdict.UNKNOWN
    assert missing in " ".join(verdict.unknown)


def test_a_refusal_stands_even_where_something_else_is_unknown() -> None:
    verdict = judge("V100", "700", "14.0")
    assert verdict.verdict is Verdict.REFUSED
    assert verdict.unknown


def test_a_branch_that_spans_the_minimum_is_ok_with_a_note() -> None:
    verdict = judge("H100", "525", "12.4")
    assert verdict.verdict is Verdict.OK
    assert "525.60.13" in _noted(verdict, "cuda.minor_version")


def test_a_driver_older_than_the_toolkits_own_is_said_to_be_limited() -> None:
    assert "PTX" in _noted(judge("H100", "535.104.05", "12.4"), "cuda.minor_version")
    assert _noted(judge("H100", "550.54.15", "12.4"), "cuda.minor_version") == ""


def test_the_installer_of_a_toolkit_is_warned_of() -> None:
    assert "535.104.05" in _noted(judge("H100", "570.86.10", "12.2"), "driver.bundled")
    assert "does not drive this GPU" in _noted(judge("K80", "470.82.01", "11.8"), "driver.bundled")
    assert _noted(judge("H100", "535.54.03", "12.2.0"), "driver.bundled") == ""


@pytest.mark.parametrize(
    ("gpu", "driver", "modules", "verdict"),
    [
        ("V100", "535", KernelModules.OPEN, Verdict.REFUSED),
        ("V100", "535", KernelModules.CLOSED, Verdict.OK),
        ("H100", "535", KernelModules.OPEN, Verdict.OK),
        ("H100", "535", KernelModules.CLOSED, Verdict.OK),
        ("GH200", "535", KernelModules.CLOSED, Verdict.REFUSED),
        ("B200", "580", KernelModules.CLOSED, Verdict.REFUSED),
        ("A100", "470", KernelModules.OPEN, Verdict.REFUSED),
    ],
)
def test_kernel_modules_go_by_generation(gpu: str, driver: str, modules: KernelModules, verdict: Verdict) -> None:
    assert judge(gpu, driver, platform=Platform(kernel_modules=modules)).verdict is verdict


@pytest.mark.parametrize(
    ("driver", "mode", "verdict"),
    [
        ("580.95.05", None, Verdict.OK),
        ("580.95.05", MemoryMode.NUMA, Verdict.REFUSED),
        ("570.86.10", MemoryMode.CDMM, Verdict.OK),
        ("570.86.10", None, Verdict.UNKNOWN),
    ],
)
def test_kubernetes_on_a_coherent_platform_needs_cdmm(driver: str, mode: MemoryMode | None, verdict: Verdict) -> None:
    assert judge("GB200", driver, platform=Platform(kubernetes=True, memory_mode=mode)).verdict is verdict
    assert judge("GB200", driver, platform=Platform(kubernetes=False, memory_mode=mode)).verdict is Verdict.OK
    assert judge("B200", driver, platform=Platform(kubernetes=True, memory_mode=mode)).verdict is Verdict.OK


_WORDS = st.one_of(
    st.text(max_size=40),
    st.from_regex(r"[vR]?[0-9]{1,4}(\.[0-9]{1,3}){0,4}(-[a-z0-9]+)?", fullmatch=True),
    st.sampled_from(["V100", "Kepler", "sm_90", "GB200", "535", "580.65.06", "12.2", "13", "RTX 6000"]),
)


@given(_WORDS, st.none() | _WORDS, st.none() | _WORDS, st.none() | _WORDS)
def test_any_words_get_a_verdict(gpu: str, driver: str | None, cuda: str | None, fabric_manager: str | None) -> None:
    verdict = judge(gpu, driver, cuda, Platform(fabric_manager=fabric_manager))
    if identify(gpu, CATALOG) is None:
        assert verdict.verdict in (Verdict.UNKNOWN, Verdict.REFUSED)
    assert (verdict.verdict is Verdict.NEEDS_CUDA_COMPAT) <= (verdict.package is not None)
    assert all(rule.source and rule.text for rule in verdict.rules)


@pytest.mark.corpus
def test_every_settled_case_of_the_facts_comes_out(shared: Path) -> None:
    cases = [c for c in json.loads((shared / "facts" / "cases.json").read_text()) if c["id"] == "compat"]
    assert cases
    for case in cases:
        expected, asked = case["expected"], case["input"]
        verdict = judge(asked["gpu"], asked.get("driver"), asked.get("cuda"))
        if expected.startswith("refuse"):
            assert verdict.verdict is Verdict.REFUSED, case
            branch = expected.partition("last branch ")[2]
            assert branch in verdict.rules[0].text, case
            assert ("cuda-compat" in expected) == (verdict.package is not None), case
        else:
            wanted = Verdict.NEEDS_CUDA_COMPAT if expected == "needs cuda-compat" else Verdict(expected)
            assert verdict.verdict is wanted, case
