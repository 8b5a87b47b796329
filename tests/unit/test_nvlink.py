"""Links are judged by the number that the model must have, and by counters that mean something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import Action, Explanation, Severity
from fleet.readers import nvlink
from fleet.readers.nvlink import expected_links, link_findings
from fleet.readers.nvlink_text import LinkedPart, LinkState, ber, read_nvlink


def _status(model: str, *links: str) -> str:
    lines = [f"\t Link {number}: {words}" for number, words in enumerate(links)]
    return "\n".join([f"GPU 0: {model} (UUID: GPU-00000000-0000-0000-0000-000000000001)", *lines, ""])


def _part(text: str) -> LinkedPart:
    (part,) = read_nvlink(text)
    return part


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("NVIDIA H100 80GB HBM3", {18}),
        ("NVIDIA H200", {18}),
        ("NVIDIA GB200", {18}),
        ("NVIDIA B300 SXM6 AC", {18}),
        ("NVIDIA H100 NVL", {12}),
        ("NVIDIA H100 PCIe", {0, 12}),
        ("NVIDIA A100-SXM4-40GB", {12}),
        ("NVIDIA A100-PCIE-40GB", {0, 12}),
        ("NVIDIA A100 80GB PCIe", {0, 12}),
        ("NVIDIA A800-SXM4-80GB", {8}),
        ("Tesla V100-SXM2-32GB", {6}),
        ("Tesla V100-PCIE-32GB", {0}),
        ("NVIDIA L40S", {0}),
    ],
)
def test_each_model_has_its_number_of_links(model: str, count: set[int]) -> None:
    assert expected_links(model) == count


def test_a_model_that_is_not_known_has_no_number() -> None:
    assert expected_links("NVIDIA X9000") is None
    text = _status("NVIDIA X9000", "50 GB/s", "<inactive>")
    assert [found.code for found in nvlink.explain(text).findings] == ["nvlink.down"]
    assert any("how many links" in note for note in nvlink.explain(text).unknown)


def test_one_inactive_link_of_an_hgx_gpu_is_a_fault() -> None:
    part = _part(_status("NVIDIA H100 80GB HBM3", *["26.562 GB/s"] * 7, "<inactive>", *["26.562 GB/s"] * 10))
    (found,) = link_findings(part)
    assert (found.code, found.severity, found.evidence) == (
        "nvlink.links_missing",
        Severity.ERROR,
        "17 of 18 links up; down: 7",
    )


def test_a_pcie_gpu_without_a_bridge_has_no_fault() -> None:
    text = _status("NVIDIA A100 80GB PCIe", *["<inactive>"] * 12)
    assert link_findings(_part(text)) == ()
    assert any("bridge" in note for note in nvlink.explain(text).unknown)
    assert link_findings(_part(text), expected=12)[0].code == "nvlink.all_down"


def test_all_links_of_a_pair_that_is_bridged_by_design_are_missing() -> None:
    (found,) = link_findings(_part(_status("NVIDIA H100 NVL", *["<inactive>"] * 18)))
    assert (found.code, found.severity) == ("nvlink.all_down", Severity.ERROR)


def test_a_text_that_was_cut_is_no_fault() -> None:
    text = _status("NVIDIA H100 80GB HBM3", *["26.562 GB/s"] * 5)
    assert link_findings(_part(text)) == ()
    assert any("cut" in note for note in nvlink.explain(text).unknown)


def test_the_driver_that_says_all_links_are_inactive_is_heard() -> None:
    text = "GPU 2: NVIDIA B200 (UUID: GPU-2)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
    assert nvlink.recognises(text)
    (found,) = nvlink.explain(text).findings
    assert (found.subject, found.code, found.action) == ("gpu 2", "nvlink.all_down", Action.RESET_FABRIC)


def test_mig_gives_no_answer_and_no_fault() -> None:
    text = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nNvlink queries are not supported for Devices in MIG mode\n"
    explained = nvlink.explain(text)
    assert explained.findings == ()
    assert any("MIG" in note for note in explained.unknown)
    assert "links up" not in explained.subjects[0].facts


def test_old_counters_are_watched_and_recovery_errors_warn() -> None:
    text = _status("Tesla V100-SXM2-32GB", "Replay Errors: 3", "Recovery Errors: 1", "CRC Errors: N/A", "CRC Errors: 0")
    found = nvlink.explain(text).findings
    assert [(item.subject, item.evidence, item.severity) for item in found] == [
        ("gpu 0 link 0", "Replay Errors: 3", Severity.INFO),
        ("gpu 0 link 1", "Recovery Errors: 1", Severity.WARNING),
    ]
    assert any("link 2 CRC Errors" in note for note in nvlink.explain(text).unknown)


@pytest.mark.parametrize(
    "words",
    [
        "FEC Errors - 0: 98123847123",
        "Effective BER: 15e-255",
        "Symbol BER: 0",
        "Raw BER: 1e-5",
        "Raw Errors Lane 0: 77",
        "Link recovery successful events: 4",
        "Tx packets: 5555",
        "Link recovery failed events: 0",
    ],
)
def test_what_is_never_a_fault_by_itself_is_none(words: str) -> None:
    assert nvlink.explain(_status("NVIDIA GB200", words)).findings == ()


@pytest.mark.parametrize(
    ("words", "severity"),
    [
        ("Effective BER: 2e-08", Severity.ERROR),
        ("Symbol BER: 3e-9", Severity.ERROR),
        ("Link recovery failed events: 1", Severity.WARNING),
        ("Malformed packet Errors: 2", Severity.WARNING),
        ("Buffer overrun Errors: 2", Severity.WARNING),
        ("Rx Errors: 2", Severity.INFO),
    ],
)
def test_what_tells_of_a_bad_link_is_a_finding(words: str, severity: Severity) -> None:
    (found,) = nvlink.explain(_status("NVIDIA B200", words)).findings
    assert (found.subject, found.severity) == ("gpu 0 link 0", severity)


def test_a_bit_error_rate_is_a_rate_or_unknown() -> None:
    assert [ber(text) for text in ("15e-255", "2e-08", "0", "N/A", "7", "-1")] == [0.0, 2e-08, 0.0, None, None, None]


def test_capabilities_say_nothing_about_the_links_state() -> None:
    text = "GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-1)\n\t Link 0, P2P is supported: true\n"
    assert nvlink.recognises(text)
    (link,) = _part(text).links
    assert (link.state, link.facts["P2P is supported"]) == (LinkState.UNKNOWN, "true")
    assert nvlink.explain(text).findings == ()


def test_dcgms_error_counts_are_a_table() -> None:
    text = """\
+-----------------------------+------------------------------------------------+
| NVLINK Error Counts                                                          |
| GPU 3                                                                        |
+=============================+================================================+
| Link 0                      |                                                |
| -> CRC FLIT Error           | 0                                              |
| -> Recovery Error           | 2                                              |
| Link 1                      |                                                |
| -> CRC FLIT Error           | N/A                                            |
+-----------------------------+------------------------------------------------+
"""
    part = _part(text)
    assert (part.name, part.links[1].counters) == ("gpu 3", {"CRC FLIT Error": None})
    (found,) = link_findings(part)
    assert (found.subject, found.severity) == ("gpu 3 link 0", Severity.WARNING)


def test_dcgms_error_counts_as_json_say_the_same() -> None:
    body = {"Link 0": {"children": {"CRC FLIT Error": {"value": "0"}, "Recovery Error": {"value": "2"}}}}
    text = json.dumps({"header": ["NVLINK Error Counts", "GPU 3"], "body": body})
    assert nvlink.recognises(text)
    (found,) = nvlink.explain(text).findings
    assert (found.subject, found.severity) == ("gpu 3 link 0", Severity.WARNING)


def test_a_link_that_is_slower_than_its_siblings_is_found() -> None:
    part = _part(_status("Tesla V100-SXM2-32GB", *["25.781 GB/s"] * 5, "12.890 GB/s"))
    (found,) = link_findings(part)
    assert (found.subject, found.code) == ("gpu 0 link 5", "nvlink.slow")


def test_switches_of_dcgm_are_parts_too() -> None:
    text = "GPUs:\n    gpuId 0:\n        U U\nNvSwitches:\n    switchId 4:\n        U D X _\n"
    gpu, switch = read_nvlink(text)
    assert (gpu.name, switch.name) == ("gpu 0", "switch 4")
    assert [link.state for link in switch.links] == [
        LinkState.UP,
        LinkState.DOWN,
        LinkState.DISABLED,
        LinkState.NOT_SUPPORTED,
    ]


@pytest.mark.parametrize("line", ["node3: {}", "2026-01-01T00:00:00Z stdout F {}", "{}\r"])
def test_prefixes_and_carriage_returns_do_no_harm(line: str) -> None:
    text = _status("NVIDIA A100-SXM4-80GB", *["25 GB/s"] * 12)
    part = _part("\n".join(line.format(one) for one in text.splitlines()))
    assert part.count(LinkState.UP) == 12


@given(st.text(), st.integers(0, 400))
def test_any_text_gives_an_answer(junk: str, place: int) -> None:
    text = _status("NVIDIA GB200", "53.125 GB/s", "Effective BER: 2e-08", "<inactive>", "Rx Errors: 9")
    for damaged in (junk, text[:place] + junk, text[:place] + junk + text[place:]):
        nvlink.recognises(damaged)
        assert isinstance(nvlink.explain(damaged), Explanation)


def test_a_list_of_gpus_alone_is_not_claimed() -> None:
    assert not nvlink.recognises(
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n"
    )
    assert not nvlink.recognises("mlx5_0: Link 3 is up")


def _corpus(shared: Path, name: str) -> str:
    return (shared / "corpus" / "net" / name).read_text()


@pytest.mark.corpus
def test_eight_real_a100_are_well(shared: Path) -> None:
    explained = nvlink.explain(_corpus(shared, "nvlink_s_a100_ok.txt"))
    assert [subject.facts["links up"] for subject in explained.subjects] == ["12 of 12"] * 8
    assert (explained.findings, explained.unknown) == ((), ())


@pytest.mark.corpus
def test_an_h100_nvl_with_twelve_of_eighteen_links_is_well(shared: Path) -> None:
    text = _corpus(shared, "nvlink_s_h100_pcie_6_inactive_by_design.txt")
    assert nvlink.explain(text).findings == ()
    assert link_findings(_part(text), expected=18)[0].code == "nvlink.links_missing"


@pytest.mark.corpus
def test_a_real_mig_node_has_an_unknown_state_and_no_fault(shared: Path) -> None:
    explained = nvlink.explain(_corpus(shared, "nvlink_s_h100_mig_not_supported.txt"))
    assert (explained.findings, len(explained.subjects), len(explained.unknown)) == ((), 1, 1)


@pytest.mark.corpus
def test_only_the_link_with_a_high_error_rate_is_found(shared: Path) -> None:
    (found,) = nvlink.explain(_corpus(shared, "nvlink_e_gb200_ber.txt")).findings
    assert (found.subject, found.evidence) == ("gpu 0 link 3", "Effective BER: 2e-08")


@pytest.mark.corpus
def test_the_remote_end_keeps_its_domain(shared: Path) -> None:
    part = _part(_corpus(shared, "nvlink_R_a100_remote.txt"))
    assert (len(part.links), part.links[0].remote, part.links[0].remote_link) == (12, "00000008:00:00.0", 29)


@pytest.mark.corpus
def test_bug_37_the_same_words_are_right_or_a_fault_by_the_model(shared: Path) -> None:
    assert "18 inactive" in (shared / "corpus/bugs/37_nvlink_expected_count.md").read_text()
    by_design = [26.562 if number not in (4, 5, 10, 11, 16, 17) else None for number in range(18)]
    nvl = _status("NVIDIA H100 NVL", *(f"{speed} GB/s" if speed else "<inactive>" for speed in by_design))
    assert link_findings(_part(nvl)) == ()
    assert link_findings(_part(_status("NVIDIA H100 NVL", *["<inactive>"] * 18))) != ()
    assert link_findings(_part(_status("NVIDIA A100-PCIE-40GB", *["<inactive>"] * 12))) == ()
    hgx = _status("NVIDIA H100 80GB HBM3", *("<inactive>" if n == 7 else "26.562 GB/s" for n in range(18)))
    assert link_findings(_part(hgx))[0].severity is Severity.ERROR
