"""Which GPUs are missing, from what was read of all nodes."""

from __future__ import annotations

import pytest

from fleet.missing_gpus import GpuSlots, missing_gpus


def node(
    name: str, seen: str, lost: str = "", wanted: int | None = None, bus: int | None = None, read: bool = True
) -> GpuSlots:
    """A node of one model; slots are single letters."""
    return GpuSlots(name, "HGX-H100-8", read, frozenset(seen), frozenset(lost), wanted, bus)


def found(*nodes: GpuSlots) -> list[tuple[str, str | None]]:
    return [(gpu.node, gpu.slot) for gpu in missing_gpus(nodes).gpus]


def test_a_gpu_that_was_seen_before_is_missing_in_its_slot() -> None:
    assert found(node("a", seen="xy", lost="z")) == [("a", "z")]


def test_a_slot_that_the_other_nodes_of_the_model_use_and_this_one_never_did_is_missing() -> None:
    (gpu,) = missing_gpus([node("a", "xyz"), node("b", "xyz"), node("c", "xz")]).gpus
    assert (gpu.node, gpu.slot, gpu.why) == ("c", "y", "2 of 3 nodes of this model have one there")


def test_a_node_with_as_many_gpus_in_other_slots_misses_none() -> None:
    assert found(node("a", "xyz"), node("b", "xyz"), node("c", "uvw")) == []


def test_two_nodes_of_a_model_say_nothing_of_what_is_usual() -> None:
    answer = missing_gpus([node("a", "xyz"), node("b", "xy")])
    assert (answer.gpus, answer.not_known) == ((), ("a", "b"))


def test_nodes_that_are_all_different_say_nothing_of_what_is_usual() -> None:
    assert missing_gpus([node("a", "x"), node("b", "xy"), node("c", "xyz")]).not_known == ("a", "b", "c")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (node("a", "xy", wanted=4), "the baseline wants 4, 2 are known"),
        (node("a", "xy", bus=4), "the PCI bus shows 4, 2 are known"),
        (node("a", "xy", wanted=4, bus=3), "the baseline wants 4, 2 are known"),
    ],
)
def test_what_baseline_or_bus_count_and_no_slot_names_is_missing_somewhere(told: GpuSlots, why: str) -> None:
    gpus = missing_gpus([told]).gpus
    assert [(gpu.slot, gpu.why) for gpu in gpus] == [(None, why), (None, why)]


def test_a_gpu_that_is_lost_is_counted_once() -> None:
    assert found(node("a", "xy", lost="z", wanted=3)) == [("a", "z")]


def test_a_node_that_could_not_be_read_misses_nothing_and_is_named() -> None:
    answer = missing_gpus([node("a", "", lost="xyz", wanted=3, read=False)])
    assert (answer.gpus, answer.not_read, answer.not_known) == ((), ("a",), ())


def test_what_could_not_be_read_is_no_measure_for_others() -> None:
    unread = [node(name, "", read=False) for name in ("b", "c", "d")]
    assert missing_gpus([node("a", "xyz"), *unread]).not_known == ("a",)


def test_a_node_of_no_file_is_compared_with_no_other() -> None:
    stray = GpuSlots("stray", None, True, frozenset("x"), frozenset())
    answer = missing_gpus([stray, node("a", "xy"), node("b", "xy"), node("c", "xy")])
    assert (answer.gpus, answer.not_known) == ((), ("stray",))
