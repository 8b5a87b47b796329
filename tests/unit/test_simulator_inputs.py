"""What a simulated fleet is made from: firmware vintages, images and the faults file."""

from __future__ import annotations

import random

import pytest

from fleet.errors import ConfigurationError
from simulator.faults import FaultKind, expand_nodes, parse_faults
from simulator.firmware import (
    VINTAGES,
    FirmwareImage,
    build_image,
    demo_bundle_entries,
    hgx_h100_components,
    hgx_h100_firmware,
    read_image,
)


def test_a_node_has_firmware_of_its_vintage_and_only_the_newest_is_up_to_date() -> None:
    images = [entry.image for entry in demo_bundle_entries()]
    assert len(hgx_h100_components(8)) >= 25
    assert not hgx_h100_firmware(random.Random(1), VINTAGES[-1]).behind(images)
    assert len(hgx_h100_firmware(random.Random(1), VINTAGES[0]).behind(images)) > 8


def test_an_image_says_what_it_is_and_a_damaged_one_is_refused() -> None:
    image = FirmwareImage("HGX_FW_GPU_SXM", ("HGX_FW_GPU_SXM_*",), "96.00.A5.00.03")
    content = build_image(image, random.Random(1))
    assert read_image(content) == image
    assert len(content) > 64 * 1024
    with pytest.raises(ValueError, match="no readable header"):
        read_image(content[5:])


def test_a_faults_file_gives_named_nodes_and_a_drawn_share_their_faults() -> None:
    nodes = [f"gpu-{n:04d}" for n in range(1, 101)]
    text = """
faults:
  - {nodes: "gpu-[0001-0003]", kind: bmc_503, retry_after_seconds: 5, times: 4}
  - {share: 0.1, kind: task_vanishes, staged: false}
"""
    faults = parse_faults(text, "faults.yaml", nodes, seed=7)
    drawn = [node for node, own in faults.items() if own[0].kind is FaultKind.TASK_VANISHES]
    assert faults["gpu-0002"][0].times == 4
    assert faults["gpu-0002"][0].seconds("retry_after_seconds") == 5
    assert len(drawn) == 10
    assert faults == parse_faults(text, "faults.yaml", nodes, seed=7)
    assert faults != parse_faults(text, "faults.yaml", nodes, seed=8)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("{share: 0.1, kind: bmc_50}", "nearest: bmc_503"),
        ("{share: 0.1, kind: refused, second: 3}", "nearest: seconds"),
        ("{share: 1.5, kind: refused}", "from 0 to 1"),
        ("{nodes: gpu-0009, kind: refused}", "nearest: gpu-000"),
        ("{kind: refused}", "exactly one of nodes and share"),
        ("{share: 0.1, kind: refused, times: -1}", "whole number"),
        ("{share: 0.1, kind: bmc_503, requests: pusch}", "nearest: push"),
        ("{share: 0.1, kind: task_vanishes, staged: 3}", "true or false"),
    ],
)
def test_a_wrong_faults_file_is_refused_with_what_is_right(entry: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        parse_faults(f"faults:\n  - {entry}\n", "faults.yaml", ["gpu-0001", "gpu-0002"], seed=1)


def test_node_patterns_keep_their_zeros_and_take_several_ranges() -> None:
    assert expand_nodes("gpu-[0009-0010,12],login") == ["gpu-0009", "gpu-0010", "gpu-12", "login"]
