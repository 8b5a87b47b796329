"""Nodes that run together run alike, or there is a finding."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.drift_facts import AT, DRIVER, VBIOS, gpu, reading, without

from fleet.facts import NodeFacts
from fleet.findings import Action, Severity
from fleet.homogeneity import GroupKind, Homogeneity, judge_homogeneity
from fleet.model import Job, Node

OTHER = "570.172.08"


def node(name: str, **where: str) -> Node:
    place = {"pool": "train", "rack": f"rack-of-{name}", "model": "HGX-H100-8", **where}
    return Node(name=name, bmc="https://10.0.0.1", ssh="10.1.0.1:22", **place)


def driver(name: str, version: str) -> NodeFacts:
    return reading(name, {"driver.loaded": version, "driver.user_space": version, "fabric_manager.version": version})


def job(ident: str, *nodes: str, state: str = "RUNNING") -> Job:
    return Job(ident, "train", "ada", state, nodes, 16, 60.0, None, "", "ml", "gpu")


def shown(found: Homogeneity) -> list[tuple[str, str, str]]:
    return [(group.kind.value, group.name, group.fact) for group in found.mixed]


def test_nodes_that_run_alike_are_no_finding() -> None:
    nodes = [node("a", rack="r1", nvlink_domain="d1"), node("b", rack="r1", nvlink_domain="d1")]
    found = judge_homogeneity(nodes, [reading("a"), reading("b")], [job("1", "a", "b")])
    assert found == Homogeneity((), ())


def test_two_drivers_in_one_nvlink_domain_are_an_error_that_names_the_nodes() -> None:
    nodes = [node(name, nvlink_domain="d1") for name in ("gpu-1", "gpu-2", "gpu-3")]
    found = judge_homogeneity(nodes, [driver("gpu-1", DRIVER), driver("gpu-2", OTHER), driver("gpu-3", DRIVER)], [])
    assert shown(found) == [
        ("nvlink domain", "d1", fact) for fact in ("driver.loaded", "driver.user_space", "fabric_manager.version")
    ]
    finding = found.mixed[0].finding()
    assert (finding.subject, finding.code, finding.severity) == ("nvlink domain d1", "mixed.driver", Severity.ERROR)
    assert finding.evidence == f"driver.loaded: {DRIVER} on gpu-[1,3]; {OTHER} on gpu-2"
    assert finding.action is Action.UPDATE_SOFTWARE


def test_two_firmware_versions_in_one_running_job_are_an_error() -> None:
    nodes = [node("a"), node("b")]
    changed = {"firmware.HGX_FW_NVSwitch_0": "96.10.55.00.01"}
    facts = [reading("a", {"firmware.HGX_FW_NVSwitch_0": "96.10.57.00.01"}), reading("b", changed)]
    found = judge_homogeneity(nodes, facts, [job("7", "a", "b")])
    assert shown(found) == [("job", "7", "firmware.HGX_FW_NVSwitch_*")]
    finding = found.mixed[0].finding()
    assert (finding.code, finding.action) == ("mixed.firmware", Action.UPDATE_FIRMWARE)


@pytest.mark.parametrize("state", ["PENDING", "COMPLETED", "REQUEUED"])
def test_a_job_that_holds_no_nodes_is_no_group(state: str) -> None:
    facts = [driver("a", DRIVER), driver("b", OTHER)]
    assert judge_homogeneity([node("a"), node("b")], facts, [job("7", "a", "b", state=state)]).mixed == ()


def test_a_job_on_one_node_or_with_strangers_only_is_no_group() -> None:
    facts = [driver("a", DRIVER), driver("b", OTHER)]
    jobs = [job("7", "a"), job("8", "a", "login-1"), job("9", "a", "a")]
    assert judge_homogeneity([node("a"), node("b")], facts, jobs).mixed == ()


def test_a_rack_is_a_warning_and_compares_only_what_should_be_alike() -> None:
    nodes = [node("a", rack="r1"), node("b", rack="r1"), node("c", rack="r1", pool="dev")]
    found = judge_homogeneity(nodes, [driver("a", DRIVER), driver("b", DRIVER), driver("c", OTHER)], [])
    assert found.mixed == ()
    found = judge_homogeneity(nodes, [driver("a", DRIVER), driver("b", OTHER), driver("c", OTHER)], [])
    assert {(group.kind, group.nodes) for group in found.mixed} == {(GroupKind.RACK, frozenset({"a", "b"}))}
    assert found.mixed[0].finding().severity is Severity.WARNING


def test_a_node_whose_gpus_have_two_vbios_versions_is_mixed_in_itself() -> None:
    gpus = (gpu(1, "a"), gpu(2, "a", {"vbios": "96.00.89.00.01"}))
    by_host = judge_homogeneity([node("a")], [reading("a", gpus=gpus)], [])
    by_bmc = judge_homogeneity([node("a")], [reading("a", {"firmware.HGX_FW_GPU_SXM_2": "96.00.89.00.01"})], [])
    assert shown(by_host) == [("nvlink domain", "a", "vbios")]
    assert by_host.mixed[0].finding().code == "mixed.firmware"
    assert shown(by_bmc) == [("nvlink domain", "a", "firmware.HGX_FW_GPU_SXM_*")]


def test_components_that_differ_by_their_number_are_not_compared_with_each_other() -> None:
    facts = reading(
        "a", {"firmware.HGX_FW_PCIeSwitch_0": "0.0.7", "firmware.NIC.Slot.1": "28.1", "firmware.NIC.Slot.2": "26.4"}
    )
    assert judge_homogeneity([node("a")], [facts], []).mixed == ()


def test_firmware_is_compared_among_nodes_of_one_model_and_drivers_among_all() -> None:
    nodes = [node("a"), node("b", model="HGX-H200-8")]
    other = {f"firmware.HGX_FW_GPU_SXM_{slot}": "96.00.C2.00.01" for slot in (1, 2)}
    facts = [driver("a", DRIVER), reading("b", {**other, "driver.loaded": OTHER})]
    found = judge_homogeneity(nodes, facts, [job("7", "a", "b")])
    jobs = [group.fact for group in found.mixed if group.kind is GroupKind.JOB]
    assert jobs == ["driver.loaded"]


def test_the_same_version_in_two_spellings_is_not_mixed() -> None:
    nodes = [node("a", nvlink_domain="d"), node("b", nvlink_domain="d")]
    spelled = {"driver.loaded": f"{DRIVER}-0ubuntu1", "firmware.HGX_FW_GPU_SXM_1": VBIOS.lower()}
    assert judge_homogeneity(nodes, [reading("a"), reading("b", spelled)], []).mixed == ()


def test_two_kernels_differ_by_any_letter() -> None:
    nodes = [node("a", nvlink_domain="d"), node("b", nvlink_domain="d")]
    other = reading("b", {"kernel.running": "6.8.0-45-lowlatency"})
    assert [g.fact for g in judge_homogeneity(nodes, [reading("a"), other], []).mixed] == ["kernel.running"]


def test_what_is_not_known_of_nodes_that_run_together_is_said() -> None:
    nodes = [node(name, nvlink_domain="d") for name in ("gpu-1", "gpu-2", "gpu-3")]
    facts = [reading("gpu-1"), without(reading("gpu-2"), "driver.loaded", "no module")]
    found = judge_homogeneity(nodes, facts, [job("7", "gpu-1", "gpu-3")])
    assert found.mixed == ()
    assert found.unknown == (
        "nvlink domain d: driver.loaded is not known of gpu-[2-3]",
        "nvlink domain d: firmware, vbios are not known of gpu-3",
        "job 7: driver.loaded, firmware, vbios are not known of gpu-3",
    )


def test_firmware_that_was_read_of_one_node_and_not_of_another_is_unknown() -> None:
    nodes = [node(name, nvlink_domain="d") for name in ("gpu-1", "gpu-2", "gpu-3")]
    more = {"firmware.HGX_FW_CPLD_0": "0.22"}
    one_gpu_less = without(reading("gpu-3", more), "firmware.HGX_FW_GPU_SXM_2")
    found = judge_homogeneity(nodes, [reading("gpu-1", more), reading("gpu-2"), one_gpu_less], [])
    assert found.unknown == (
        "nvlink domain d: firmware.HGX_FW_CPLD_0 is not known of gpu-2",
        "nvlink domain d: firmware.HGX_FW_GPU_SXM_* is not known of gpu-3",
    )


def test_a_vbios_that_was_not_read_is_unknown_and_not_alike() -> None:
    nodes = [node(name, nvlink_domain="d") for name in ("gpu-1", "gpu-2")]
    blind = reading("gpu-2", gpus=(gpu(1, "gpu-2", {"vbios": "[N/A]"}), gpu(2, "gpu-2", {"vbios": "N/A"})))
    found = judge_homogeneity(nodes, [reading("gpu-1"), blind], [])
    assert found == Homogeneity((), ("nvlink domain d: vbios is not known of gpu-2",))
    alone = reading("gpu-1", gpus=(gpu(1, "gpu-1"), gpu(2, "gpu-1", {"vbios": "N/A"})))
    assert judge_homogeneity(nodes[:1], [alone], []).unknown == (
        "nvlink domain d: vbios of some GPUs is not known of gpu-1",
    )


def test_firmware_that_no_node_tells_is_unknown_of_all() -> None:
    nodes = [node(name, nvlink_domain="d") for name in ("gpu-1", "gpu-2")]
    facts = [NodeFacts(name, AT, "probe", {"driver.loaded": DRIVER}) for name in ("gpu-1", "gpu-2")]
    found = judge_homogeneity(nodes, facts, [])
    assert found.unknown == ("nvlink domain d: firmware, vbios are not known of gpu-[1-2]",)


def test_a_placeholder_is_no_version() -> None:
    nodes = [node("a", nvlink_domain="d"), node("b", nvlink_domain="d")]
    assert judge_homogeneity(nodes, [reading("a"), driver("b", "N/A")], []).mixed == ()


def test_evidence_is_cut_to_what_a_finding_carries() -> None:
    names = [f"gpu{'x' * n}" for n in range(1, 40)]
    nodes = [node(name, nvlink_domain="d") for name in names]
    facts = [driver(name, DRIVER if len(name) % 2 else OTHER) for name in names]
    assert len(judge_homogeneity(nodes, facts, []).mixed[0].finding().evidence) == 300


_TEXTS = st.dictionaries(st.sampled_from(["driver.loaded", "kernel.running", "firmware.GPU_0", "firmware."]), st.text())


@settings(deadline=None, max_examples=100)
@given(_TEXTS, _TEXTS)
def test_whatever_two_nodes_tell_mixed_versions_differ_and_their_order_does_not_matter(
    ours: Mapping[str, str], theirs: Mapping[str, str]
) -> None:
    nodes = [node("a", nvlink_domain="d"), node("b", nvlink_domain="d")]
    facts = [NodeFacts("a", AT, "probe", ours), NodeFacts("b", AT, "probe", theirs)]
    found = judge_homogeneity(nodes, facts, [])
    assert found == judge_homogeneity(nodes[::-1], facts[::-1], [])
    assert all(len(group.versions) > 1 for group in found.mixed)
