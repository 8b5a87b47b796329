"""A fleet file that a program changes keeps everything that it was not asked to change."""

from __future__ import annotations

import pytest
from unit.inventory_tools import FLEET, HEADER, NEW, plan_of, spec

from fleet.errors import ConfigurationError
from fleet.fleet_file_edit import edit_fleet, places
from fleet.inventory_import import ImportPlan


def changes(plan: ImportPlan) -> dict[str, dict[str, str | int]]:
    return {name: {change.field: change.new for change in fields} for name, fields in plan.changed.items()}


def test_the_fleet_file_keeps_its_comments_and_order_and_gains_what_was_planned() -> None:
    plan = plan_of(HEADER + NEW + "gpu-0002,,,,,,40\n")
    lines = edit_fleet(FLEET, "fleet.yaml", plan.added, changes(plan)).splitlines()
    assert lines[:9] == FLEET.splitlines()[:9]
    assert lines[9:] == [
        '  - {name: gpu-0002, rack: r01, pool: dev, model: HGX-H100-8, bmc: "https://10.0.0.2/", ssh: "10.1.0.2:22", '
        "unit: 40}  # loud",
        '  - {name: gpu-0003, rack: r02, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.3", ssh: 10.1.0.3, '
        "unit: 1}",
    ]


BLOCK = """nodes:
- name: gpu-0001
  rack: r01   # by the door
  pool: train
  model: HGX-H100-8
  bmc: "https://10.0.0.1"
  ssh: 10.1.0.1

# racks come last here
site: X
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "nodes",
    [
        BLOCK,
        "nodes: []   # none yet\nsite: X\n",
        'nodes: [{name: gpu-0001, rack: r01, pool: train, model: M, bmc: "https://10.0.0.1", ssh: a,}]',
        'nodes:\n    -   {name: gpu-0001, rack: r01, pool: train, model: M, bmc: "https://10.0.0.1", ssh: a}',
    ],
    ids=["block", "empty", "flow", "no-newline-at-end"],
)
def test_every_layout_of_the_node_list_takes_a_node_and_a_change(nodes: str, newline: str) -> None:
    text = (FLEET[: FLEET.index("nodes:")] + nodes).replace("\n", newline)
    (entry,) = plan_of(HEADER + NEW).added
    change: dict[str, dict[str, str | int]] = {"gpu-0001": {"unit": 7, "rack": "r02", "ssh": "10.1.0.1:2222"}}
    now = spec(text).nodes
    new = edit_fleet(text, "fleet.yaml", [entry], change)
    assert spec(new).nodes[-1] == entry
    assert [n.unit for n in spec(new).nodes[:-1]] == [7 for _ in now]
    assert new.count(newline) == new.count("\n")
    for comment in ("# the one in hall 2, Köln", "# by the door", "# racks come last here", "# none yet"):
        assert (comment in new) == (comment in text)


def test_a_file_whose_anchors_would_change_other_nodes_is_left_to_a_person() -> None:
    shared = FLEET.replace(
        'model: HGX-H100-8, bmc: "https://10.0.0.1"', 'model: &m HGX-H100-8, bmc: "https://10.0.0.1"'
    )
    shared = shared.replace("pool: dev, model: HGX-H100-8", "pool: dev, model: *m")
    with pytest.raises(ConfigurationError, match="edit them by hand"):
        edit_fleet(shared, "fleet.yaml", [], {"gpu-0001": {"model": "HGX-B300-8"}})
    new = edit_fleet(shared, "fleet.yaml", [], {"gpu-0002": {"model": "HGX-B300-8"}})
    assert [node.model for node in spec(new).nodes] == ["HGX-H100-8", "HGX-B300-8"]


def test_the_place_of_a_node_is_where_its_entry_begins() -> None:
    assert places(FLEET, "fleet.yaml") == {"gpu-0001": "fleet.yaml:9", "gpu-0002": "fleet.yaml:10"}


@pytest.mark.parametrize(
    "model", ["null", "No", "0x10", "1e3", "12", "a: b", "x #y", "Köln", "- z", "{a}", "'", '"', "~"]
)
def test_a_text_that_yaml_would_take_for_something_else_comes_back_as_it_was(model: str) -> None:
    (entry,) = plan_of(HEADER + NEW).added
    new = edit_fleet(FLEET, "fleet.yaml", [entry.model_copy(update={"model": model})], {"gpu-0001": {"model": model}})
    assert [node.model for node in spec(new).nodes] == [model, "HGX-H100-8", model]
