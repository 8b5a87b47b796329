"""Which node and GPU labels mean, whatever release of the exporter and whatever relabelling wrote them."""

from __future__ import annotations

import re

import pytest

from fleet.errors import ConfigurationError
from fleet.metrics_settings import MetricsLabels, MetricsSettings
from fleet.series_catalog import How, judged_rules, load_series_rules, rules_for
from fleet.series_labels import GpuLabels, NodeNames, gpu_of, last_value_query, node_of, quoted, selectors_for

WHERE = MetricsLabels()


@pytest.mark.parametrize(
    ("nodes", "value", "node"),
    [
        (("gpu001", "gpu002"), "gpu001", "gpu001"),
        (("gpu001",), "GPU001.site.example", "gpu001"),
        (("gpu001",), "gpu001:9400", "gpu001"),
        (("gpu001",), "gpu001.site.example.:9400", "gpu001"),
        (("gpu001.site.example",), "gpu001", "gpu001.site.example"),
        (("gpu001.a", "gpu001.b"), "gpu001.b", "gpu001.b"),
        (("gpu001.a", "gpu001.b"), "gpu001", None),
        (("gpu001.a",), "gpu001.b", None),
        (("gpu1",), "gpu10", None),
        (("10",), "10.0.0.7:9400", None),
        (("gpu001",), "nvidia-dcgm-exporter-x7k2p", None),
        (("gpu001",), "", None),
    ],
)
def test_a_label_names_a_node_by_its_short_or_full_name(nodes: tuple[str, ...], value: str, node: str | None) -> None:
    assert NodeNames(nodes).find(value) == node


def test_a_pods_name_gives_way_to_the_label_that_names_the_node() -> None:
    labels = {"Hostname": "nvidia-dcgm-exporter-x7k2p", "node": "gpu001", "instance": "10.0.0.7:9400"}
    assert node_of(labels, NodeNames(("gpu001",)), WHERE) == "gpu001"


def test_a_node_may_have_another_name_there() -> None:
    names = NodeNames(("gpu001", "gpu002"), {"gpu001": "rack1-u07"})
    assert names.find("rack1-u07.site:9400") == "gpu001"
    assert names.find("gpu001") is None


@pytest.mark.parametrize(
    ("labels", "gpu"),
    [
        ({"gpu": "3", "UUID": "GPU-x", "device": "nvidia5"}, GpuLabels(3, "GPU-x", False)),
        ({"device": "nvidia5", "uuid": "GPU-x"}, GpuLabels(5, "GPU-x", False)),
        ({"gpu_uuid": "GPU-x", "nvlink": "4"}, GpuLabels(None, "GPU-x", False)),
        ({"gpu": "0", "UUID": "GPU-x", "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb"}, GpuLabels(0, "GPU-x", True)),
        ({"gpu": "NVIDIA H100"}, GpuLabels(None, "", False)),
        ({}, GpuLabels(None, "", False)),
    ],
)
def test_a_gpu_is_known_by_number_and_uuid(labels: dict[str, str], gpu: GpuLabels) -> None:
    assert gpu_of(labels, WHERE) == gpu


@pytest.mark.parametrize("name", ["gpu001", "gpu001.site.example", "a-b_c.d", "10.0.0.7"])
def test_the_pattern_fits_what_is_found_and_nothing_else(name: str) -> None:
    names = NodeNames((name,))
    pattern = re.compile(names.pattern((name,)))
    for value in (name, name.upper(), f"{name}:9400"):
        assert pattern.fullmatch(value)
        assert names.find(value) == name
    for value in (f"{name}0", f"x{name}", f"{name}-2"):
        assert not pattern.fullmatch(value)
        assert names.find(value) is None


def test_a_selector_is_asked_for_every_label_that_may_name_the_node() -> None:
    where = MetricsLabels(node=("Hostname", "instance"))
    names = NodeNames(("gpu001",))
    selectors = selectors_for("m", ("gpu001",), names, where, {"site": 'a"b'})
    assert selectors == (
        'm{site="a\\"b",Hostname=~"(?i:gpu001([.][^:]*)?)(:[0-9]+)?"}',
        'm{site="a\\"b",instance=~"(?i:gpu001([.][^:]*)?)(:[0-9]+)?"}',
    )
    assert last_value_query(("a", "b"), 60) == "last_over_time(a[60000ms]) or last_over_time(b[60000ms])"
    assert quoted("a\\b\n") == '"a\\\\b\\n"'


def test_every_measure_has_names_of_its_own_a_unit_and_a_source() -> None:
    rules = load_series_rules()
    names = [name.name for rule in rules for name in rule.names]
    assert len(set(names)) == len(names)
    assert len({rule.measure for rule in rules}) == len(rules)
    assert all(rule.unit and rule.source for rule in rules)
    assert all(rule.how is not How.MASK and rule.as_measure().margin > 0 for rule in judged_rules())


def test_a_measure_that_nobody_knows_is_named() -> None:
    with pytest.raises(ConfigurationError, match="no series measure sm_clok"):
        rules_for(["sm_clok"])


@pytest.mark.parametrize(
    "given",
    [
        {"bearer": {"env": "A"}, "user": "u", "password": {"env": "B"}},
        {"user": "u"},
        {"password": {"env": "B"}},
        {"bearer": {"env": "A", "file": "b"}},
        {"inlet": "sum("},
        {"url": "https://user:pw@metrics"},
        {"nodes": []},
        {"labels": {"node": []}},
        {"labels": {"node": ["a b"]}},
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"validation error"):
        MetricsSettings.model_validate({"url": "https://metrics", **given})
