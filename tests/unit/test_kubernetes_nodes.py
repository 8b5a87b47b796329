"""Node objects → SchedulerNode, and the patches that close and open a node."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.drain import judge_drain
from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.json_values import object_at, objects_at, value_at
from fleet.kubernetes import (
    CORDON,
    FENCE,
    FOUND_CORDONED,
    REASON,
    cordon_patch,
    fence_of,
    fence_patch,
    is_ours,
    read_node,
    read_nodes,
    uncordon_patch,
)
from fleet.model import SchedulerNode, SchedulerState
from tests.unit.kubernetes_objects import ANY_JSON, Json, node

OTHERS: Json = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}


def _read(tree: Mapping[str, object], busy: bool = False) -> SchedulerNode:
    return read_node("gpu01", tree, busy)


def merged(tree: object, patch: object) -> object:
    """RFC 7396, which is what the server does with the patch."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(tree) if isinstance(tree, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _patched(tree: Json, patch: Mapping[str, object] | None) -> Json:
    assert patch is not None
    result = merged(tree, patch)
    assert isinstance(result, dict)
    return result


def test_a_ready_node_without_pods_is_idle_and_open() -> None:
    seen = _read(node())
    assert (seen.state, seen.cordoned, seen.reason, seen.gpus) == (SchedulerState.IDLE, False, None, 8)
    assert seen.flags == {"READY"}


def test_a_ready_node_with_pods_is_busy() -> None:
    assert _read(node(), busy=True).state is SchedulerState.BUSY


@pytest.mark.parametrize(("ready", "flag"), [("False", "NOT_READY"), ("Unknown", "NOT_RESPONDING")])
@pytest.mark.parametrize("busy", [True, False])
def test_a_node_that_is_not_ready_is_down_and_never_idle(ready: str, flag: str, busy: bool) -> None:
    seen = _read(node(ready=ready), busy)
    assert seen.state is SchedulerState.DOWN
    assert flag in seen.flags


@pytest.mark.parametrize("ready", [None, "true", "", "Maybe"])
def test_a_node_that_does_not_say_whether_it_is_ready_is_unknown(ready: str | None) -> None:
    assert _read(node(ready=ready)).state is SchedulerState.UNKNOWN


def test_two_answers_about_readiness_are_none() -> None:
    tree = node()
    conditions = object_at(tree, "status")["conditions"]
    assert isinstance(conditions, list)
    conditions.append({"type": "Ready", "status": "False"})
    assert _read(tree).state is SchedulerState.UNKNOWN


def test_a_node_whose_schedulability_is_written_oddly_is_not_idle() -> None:
    assert _read(node(unschedulable="false")).state is SchedulerState.UNKNOWN


def test_a_persons_cordon_is_seen_and_has_no_reason_of_ours() -> None:
    stale = {REASON: "gpufleet[op-1]"}
    seen = _read(node(unschedulable=True, annotations=stale))
    assert (seen.cordoned, seen.reason) == (True, None)
    assert "SCHEDULING_DISABLED" in seen.flags


def test_conditions_that_hold_are_flags() -> None:
    tree = node()
    conditions = object_at(tree, "status")["conditions"]
    assert isinstance(conditions, list)
    conditions.append({"type": "GpuXidError", "status": "True"})
    assert _read(tree).flags == {"READY", "GPU_XID_ERROR"}


@pytest.mark.parametrize(
    ("labels", "capacity", "gpus"),
    [
        ({}, {"nvidia.com/gpu": "8"}, 8),
        ({}, {"nvidia.com/gpu": 8}, 8),
        ({"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu": "32"}, 8),
        ({}, {"nvidia.com/gpu": "0"}, 0),
        ({}, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"}, None),
        ({}, {"cpu": "224"}, None),
        ({}, {"nvidia.com/gpu": "many"}, None),
        ({}, {"nvidia.com/gpu": "-1"}, None),
        ({"nvidia.com/gpu.count": "٨"}, {}, None),
    ],
)
def test_gpus_are_counted_or_not_told(labels: dict[str, str], capacity: Json, gpus: int | None) -> None:
    tree = node(labels=labels)
    tree["status"] = {"capacity": capacity}
    assert _read(tree).gpus == gpus


def test_a_cordon_closes_the_node_with_its_reason_letter_by_letter() -> None:
    reason = ' bad dimm; "quoted" $HOME — ümlaut\nsecond line '
    tree = _patched(
        node(taints=[OTHERS]), cordon_patch(node(taints=[OTHERS]), reason, "gpufleet", "2026-11-30T10:00:00Z")
    )
    seen = _read(tree)
    assert (seen.cordoned, seen.reason, seen.reason_by) == (True, reason, "gpufleet")
    assert seen.reason_at == "2026-11-30T10:00:00Z"
    assert value_at(tree, "spec", "unschedulable") is True
    assert OTHERS in objects_at(tree, "spec", "taints")


def test_a_change_names_the_version_that_was_read() -> None:
    assert value_at(cordon_patch(node(version="41"), "x", "y", "z"), "metadata", "resourceVersion") == "41"


def test_what_a_cordon_did_an_uncordon_undoes() -> None:
    before = node(taints=[OTHERS], annotations={"team": "a"})
    closed = _patched(before, cordon_patch(before, "x", "y", "z"))
    opened = _patched(closed, uncordon_patch(closed))
    assert opened["spec"] == before["spec"]
    assert opened["metadata"] == before["metadata"]


def test_a_node_that_a_person_had_closed_stays_closed_when_we_let_go() -> None:
    before = node(unschedulable=True, annotations={"why": "bad dimm"})
    closed = _patched(before, cordon_patch(before, "ours", "y", "z"))
    again = _patched(closed, cordon_patch(closed, "ours, more", "y", "z"))
    assert _read(again).reason == "ours, more"
    opened = _patched(again, uncordon_patch(again))
    assert (_read(opened).cordoned, _read(opened).reason) == (True, None)
    assert object_at(opened, "metadata", "annotations") == {"why": "bad dimm"}


def test_a_mark_left_behind_does_not_keep_a_node_closed() -> None:
    before = node(annotations={FOUND_CORDONED: "true"})
    closed = _patched(before, cordon_patch(before, "x", "y", "z"))
    assert not _read(_patched(closed, uncordon_patch(closed))).cordoned


@pytest.mark.parametrize("tree", [node(), node(unschedulable=True), node(taints=[OTHERS])])
def test_there_is_nothing_to_undo_where_nothing_is_ours(tree: Json) -> None:
    assert uncordon_patch(tree) is None


def test_a_node_that_a_person_uncordoned_is_still_closed_by_our_taint() -> None:
    closed = _patched(node(), cordon_patch(node(), "x", "y", "z"))
    by_hand = _patched(closed, {"spec": {"unschedulable": None}})
    assert _read(by_hand).cordoned


def test_a_node_whose_taint_and_flag_were_both_taken_away_was_taken_back() -> None:
    closed = _patched(node(), cordon_patch(node(), "x", "y", "z"))
    by_hand = _patched(closed, {"spec": {"unschedulable": None, "taints": []}})
    assert judge_drain("gpu01", _read(by_hand), ()).taken_back


def test_a_fence_is_a_taint_and_a_label_of_its_name() -> None:
    inside = _patched(node(taints=[OTHERS]), fence_patch(node(taints=[OTHERS]), "firmware-24.9"))
    assert fence_of(inside) == "firmware-24.9"
    assert object_at(inside, "metadata", "labels")[FENCE] == "firmware-24.9"
    assert fence_patch(inside, "firmware-24.9") is None
    outside = _patched(inside, fence_patch(inside, None))
    assert fence_of(outside) is None
    assert FENCE not in object_at(outside, "metadata", "labels")
    assert objects_at(outside, "spec", "taints") == (OTHERS,)
    assert fence_patch(outside, None) is None


def test_a_fence_and_a_cordon_do_not_touch_each_other() -> None:
    inside = _patched(node(), fence_patch(node(), "new"))
    closed = _patched(inside, cordon_patch(inside, "x", "y", "z"))
    assert (fence_of(closed), is_ours(closed)) == ("new", True)
    assert fence_of(_patched(closed, uncordon_patch(closed))) == "new"
    assert is_ours(_patched(closed, fence_patch(closed, None)))


@pytest.mark.parametrize("name", ["", "-a", "a b", "ä", "x" * 64, "a/b"])
def test_a_name_that_is_no_label_value_is_no_fence(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot name a fence"):
        fence_patch(node(), name)


def test_a_node_without_a_name_is_no_answer() -> None:
    with pytest.raises(SchedulerUnreachable):
        read_nodes([node(), {"metadata": {}}], frozenset())


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), ANY_JSON))
def test_any_object_gives_a_node_that_is_not_idle_without_a_word_for_it(tree: Json) -> None:
    seen = _read(tree)
    assert seen.state is SchedulerState.UNKNOWN
    assert cordon_patch(tree, "x", "y", "z")["spec"]


@given(st.sampled_from(["conditions", "capacity", "allocatable"]), ANY_JSON)
def test_any_status_is_read(part: str, value: object) -> None:
    tree = node()
    tree["status"] = {"conditions": [{"type": "Ready", "status": "True"}], part: value}
    assert _read(tree).gpus is None


def test_the_cordon_key_is_what_the_docs_say() -> None:
    assert CORDON == "gpufleet.io/cordon"


@pytest.mark.parametrize(
    ("labels", "annotations", "why"),
    [
        ({}, {}, None),
        ({"nvidia.com/gpu.deploy.driver": "pre-installed"}, {}, None),
        ({"nvidia.com/gpu.deploy.driver": "true"}, {}, "the GPU Operator manages its driver"),
        ({"nvidia.com/gpu-driver-upgrade-state": "drain-required"}, {}, "is changing its driver (drain-required)"),
        ({"nvidia.com/gpu-driver-upgrade-state": "later"}, {}, "'later', which is not known"),
        ({}, {"nvidia.com/gpu-driver-upgrade-enabled": "true"}, "the GPU Operator manages its driver"),
    ],
)
def test_a_node_tells_whose_its_driver_is(
    labels: Mapping[str, str], annotations: Mapping[str, str], why: str | None
) -> None:
    told = _read(node(labels=labels, annotations=annotations)).driver_refusal
    assert told is None if why is None else why in (told or "")


def test_a_label_that_is_no_text_is_not_taken_for_a_missing_one() -> None:
    tree = node()
    labels = object_at(tree, "metadata", "labels")
    assert isinstance(labels, dict)
    labels["nvidia.com/gpu-driver-upgrade-state"] = 5
    assert "'5', which is not known" in (_read(tree).driver_refusal or "")
