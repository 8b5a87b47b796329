"""GPUs, drivers and toolkits are read in every spelling; what names none of them is nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.catalog_data import GpuClass, load_catalog
from fleet.compatibility import Verdict, judge
from fleet.drivers import is_newer, parse_cuda, parse_driver
from fleet.gpu_names import Gpu, identify, nearest

CATALOG = load_catalog()


def _gpu(name: str) -> Gpu:
    found = identify(name, CATALOG)
    assert found is not None, name
    return found


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("V100", "Volta"),
        ("Tesla V100-SXM2-32GB", "Volta"),
        ("NVIDIA Corporation GV100GL [Tesla V100 SXM2 32GB] (rev a1)", "Volta"),
        ("sm_70", "Volta"),
        ("Tesla K80", "Kepler"),
        ("GeForce GTX 1070 Ti", "Pascal"),
        ("TITAN X (Pascal)", "Pascal"),
        ("Tesla T4", "Turing"),
        ("NVIDIA GeForce RTX 2080 SUPER", "Turing"),
        ("Quadro RTX 6000", "Turing"),
        ("NVIDIA A100-SXM4-80GB", "Ampere"),
        ("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5fd4f087)", "Ampere"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "Ampere"),
        ("RTX 4090", "Ada"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "Ada"),
        ("NVIDIA RTX 6000 Ada Generation", "Ada"),
        ("ada lovelace", "Ada"),
        ("H100 SXM5", "Hopper"),
        ("NVIDIA H100 80GB HBM3", "Hopper"),
        ("HGX-H100-8", "Hopper"),
        ("8xH100", "Hopper"),
        ("PowerEdge XE9680 H100", "Hopper"),
        ("Hopper", "Hopper"),
        ("compute 9.0", "Hopper"),
        ("sm_90a", "Hopper"),
        ("GB200", "Blackwell"),
        ("NVIDIA GB200 NVL72", "Blackwell"),
        ("sm_100", "Blackwell"),
        ("12.0", "Blackwell"),
        ("Blackwell Ultra", "Blackwell Ultra"),
        ("NVIDIA B300 SXM6", "Blackwell Ultra"),
    ],
)
def test_a_gpu_is_known_in_every_spelling(name: str, architecture: str) -> None:
    assert _gpu(name).architecture == architecture


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("V1000", "V100"),
        ("Hoper", "Hopper"),
        ("RTX 6000", "Quadro RTX 6000"),
        ("RTX 6000", "RTX 6000 Ada"),
        ("8.7", "sm_86"),
    ],
)
def test_an_unknown_or_ambiguous_gpu_gets_the_nearest_names(name: str, near: str) -> None:
    assert identify(name, CATALOG) is None
    assert near in nearest(name, CATALOG)
    verdict = judge(name, "580.95.05", "12.9")
    assert (verdict.verdict, near in verdict.unknown[0]) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize("name", ["", " ", "MI300X", "70", "GeForce", "[", "8", "GPU"])
def test_what_names_no_gpu_is_unknown(name: str) -> None:
    assert judge(name, "580.95.05").verdict is Verdict.UNKNOWN


def test_an_architecture_with_boards_of_every_market_has_no_class() -> None:
    assert _gpu("Ampere").gpu_class is None
    assert _gpu("A100").gpu_class is GpuClass.DATA_CENTER
    assert _gpu("sm_90").gpu_class is GpuClass.DATA_CENTER
    assert (_gpu("GB200").coherent, _gpu("B200").coherent, _gpu("Blackwell").coherent) == (True, False, None)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("535", (535,)),
        ("R535", (535,)),
        ("r580-open", (580,)),
        ("535.54.03", (535, 54, 3)),
        ("580.178", (580, 178)),
        ("590.48.01-1ubuntu1", (590, 48, 1)),
        ("3:535.54.03-1.el8", (535, 54, 3)),
        ("NVIDIA-Linux-x86_64-535.54.03.run", (535, 54, 3)),
        ("nvidia-driver-535-server 535.183.01-0ubuntu0.22.04.1", (535, 183, 1)),
    ],
)
def test_a_driver_is_read_in_every_spelling(text: str, parts: tuple[int, ...]) -> None:
    found = parse_driver(text)
    assert found is not None
    assert found.parts == parts


@pytest.mark.parametrize(
    "text", ["", "31.0.15.3758", "12.2.140", "V100", "H100", "535.1.2.3", "1234", "535 or 550", "٥٣٥"]
)
def test_what_is_no_driver_version_is_none(text: str) -> None:
    assert parse_driver(text) is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("13", (13,)),
        ("12.2", (12, 2)),
        ("12.2.140", (12, 2, 140)),
        ("V12.2.140", (12, 2, 140)),
        ("cuda-toolkit-12-2", (12, 2)),
        ("12.2.0-devel-ubuntu22.04", (12, 2, 0)),
        ("13.0 Update 2", (13, 0)),
        ("11.x", (11,)),
    ],
)
def test_a_toolkit_is_read_in_every_spelling(text: str, parts: tuple[int, ...]) -> None:
    found = parse_cuda(text)
    assert found is not None
    assert found.parts == parts


@pytest.mark.parametrize("text", ["", "535", "535.54.03", "abc", "2024"])
def test_what_is_no_toolkit_is_none(text: str) -> None:
    assert parse_cuda(text) is None


def test_driver_versions_are_compared_as_numbers() -> None:
    assert is_newer("535.104.05", "535.86.10") is True
    assert is_newer("580.65.6", "580.65.06") is False
    assert is_newer("580.178", "580.173.02") is True
    assert is_newer("535", "535.54.03") is None
    assert is_newer("junk", "535.54.03") is None


@pytest.mark.corpus
def test_every_settled_order_of_versions_comes_out(shared: Path) -> None:
    cases = [c for c in json.loads((shared / "facts" / "cases.json").read_text()) if c["id"] == "version_gt"]
    assert cases
    assert [is_newer(*case["input"]) for case in cases] == [case["expected"] for case in cases]
