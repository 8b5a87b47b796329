"""The matrix of `nvidia-smi topo -m` is read in all its forms, and only a GPU that stands out is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.findings import Explanation, Severity
from fleet.readers import topology
from fleet.readers.topology import Topology, read_topology, topology_findings


def _matrix(rows: dict[str, str], tail: str = "0-31", heading: str = "CPU Affinity") -> str:
    names = list(rows)
    lines = ["\t" + "\t".join(names) + f"\t{heading}"]
    lines += [
        f"{name}\t" + "\t".join(f" {word} " for word in words.split()) + f"\t{tail}" for name, words in rows.items()
    ]
    return "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n  NV#  = bonded set of # NVLinks\n"


_GOOD = {f"GPU{row}": " ".join("X" if row == column else "NV18" for column in range(8)) for row in range(8)}


def test_a_switched_node_has_no_finding() -> None:
    found = read_topology(_matrix(_GOOD))
    assert (len(found.gpus), found.nvlinks("GPU0", "GPU7"), found.relation("GPU0", "GPU0")) == (8, 18, "X")
    assert topology_findings(found) == ()


def test_a_gpu_with_fewer_links_than_its_peers_is_found() -> None:
    rows = {name: words.split() for name, words in _GOOD.items()}
    rows["GPU3"] = ["NV17" if word == "NV18" else word for word in rows["GPU3"]]
    for words in (words for name, words in rows.items() if name != "GPU3"):
        words[3] = "NV17"
    (found,) = topology_findings(read_topology(_matrix({name: " ".join(words) for name, words in rows.items()})))
    assert (found.subject, found.code) == ("gpu 3", "topology.nvlinks_missing")


def test_a_gpu_without_nvlink_among_gpus_that_have_it_is_found() -> None:
    rows = {name: words.split() for name, words in _GOOD.items()}
    rows["GPU5"] = ["X" if word == "X" else "SYS" for word in rows["GPU5"]]
    for words in (words for name, words in rows.items() if name != "GPU5"):
        words[5] = "SYS"
    (found,) = topology_findings(read_topology(_matrix({name: " ".join(words) for name, words in rows.items()})))
    assert (found.subject, found.code, found.severity) == ("gpu 5", "topology.gpu_without_nvlink", Severity.ERROR)


def test_a_hybrid_mesh_of_old_names_is_by_design() -> None:
    mesh = {"GPU0": "X NV1 NV2 SOC", "GPU1": "NV1 X SOC NV2", "GPU2": "NV2 SOC X NV1", "GPU3": "SOC NV2 NV1 X"}
    found = read_topology(_matrix(mesh))
    assert (found.relation("GPU0", "GPU3"), found.nvlinks("GPU0", "GPU3")) == ("SYS", 0)
    assert topology_findings(found) == ()


def test_pcie_gpus_have_no_finding() -> None:
    assert topology_findings(read_topology(_matrix({"GPU0": "X PHB", "GPU1": "PHB X"}))) == ()


def test_nics_of_old_drivers_are_columns_by_their_own_name() -> None:
    text = _matrix(
        {"GPU0": "X NV12 PXB SYS", "GPU1": "NV12 X SYS PIX", "mlx5_0": "PXB SYS X SYS", "mlx5_1": "SYS PIX SYS X"}
    )
    found = read_topology(text)
    assert found.nics == ("mlx5_0", "mlx5_1")
    assert (found.nearest_nics("GPU0"), found.nearest_nics("GPU1")) == (("mlx5_0",), ("mlx5_1",))


def test_a_value_that_is_not_available_is_unknown() -> None:
    text = _matrix({"GPU0": "X"}, tail="0-23\t0\t\tN/A", heading="CPU Affinity\tNUMA Affinity\tGPU NUMA ID")
    assert read_topology(text).affinities == {"GPU0": {"CPU Affinity": "0-23", "NUMA Affinity": "0"}}


def test_a_blank_affinity_is_not_taken_for_its_neighbour() -> None:
    text = _matrix({"GPU0": "X"}, tail="0-23\t\t", heading="CPU Affinity\tNUMA Affinity\tGPU NUMA ID")
    assert read_topology(text).affinities == {"GPU0": {"CPU Affinity": "0-23"}}


def test_a_matrix_that_was_cut_names_the_missing_rows() -> None:
    text = _matrix(_GOOD).split("GPU6\t ")[0]
    found = read_topology(text)
    assert found.missing == ("GPU6", "GPU7")
    assert topology_findings(found) == ()
    assert any("GPU6, GPU7" in note for note in topology.explain(text).unknown)


@pytest.mark.parametrize("line", ["node9: {}", "{}\r", "\x1b[4m{}\x1b[0m"])
def test_prefixes_and_escapes_do_no_harm(line: str) -> None:
    text = "\n".join(line.format(one) for one in _matrix(_GOOD).splitlines())
    assert topology.recognises(text)
    assert len(read_topology(text).gpus) == 8


def test_a_line_that_mentions_a_gpu_is_no_matrix() -> None:
    for text in ("GPU0 is fine\n", "GPU0\nGPU1\n", "Note: GPU0 detected\n", "GPU 0: NVIDIA H100 (UUID: GPU-1)\n", ""):
        assert not topology.recognises(text)
    assert read_topology("GPU0 is fine\n") == Topology()


@given(st.text(), st.integers(0, 900))
def test_any_text_gives_an_answer(junk: str, place: int) -> None:
    text = _matrix(_GOOD)
    for damaged in (junk, text[:place] + junk, text[:place] + junk + text[place:]):
        topology.recognises(damaged)
        assert isinstance(topology.explain(damaged), Explanation)


def _corpus(shared: Path, name: str) -> str:
    return (shared / "corpus" / "net" / name).read_text()


@pytest.mark.corpus
def test_nics_are_resolved_through_the_legend(shared: Path) -> None:
    found = read_topology(_corpus(shared, "topo_4gpu_nic_legend.txt"))
    assert [found.nearest_nics(gpu) for gpu in found.gpus] == [
        ("mlx5_0", "mlx5_1"),
        ("mlx5_3",),
        ("mlx5_2",),
        ("mlx5_1",),
    ]
    assert found.affinities["GPU0"] == {"CPU Affinity": "0-55,112-167", "NUMA Affinity": "0"}


@pytest.mark.corpus
def test_grace_is_sys_everywhere_and_no_fault(shared: Path) -> None:
    explained = topology.explain(_corpus(shared, "topo_gb200_all_sys.txt"))
    assert explained.findings == ()
    assert any("Grace" in note for note in explained.unknown)


@pytest.mark.corpus
def test_a_single_gpu_under_escapes_has_its_cpus(shared: Path) -> None:
    found = read_topology(_corpus(shared, "topo_h200_single_ansi.txt"))
    assert (found.gpus, found.nics) == (("GPU0",), ())
    assert found.affinities == {"GPU0": {"CPU Affinity": "0-23", "NUMA Affinity": "0"}}


@pytest.mark.corpus
def test_a_note_before_the_heading_is_not_the_heading(shared: Path) -> None:
    found = read_topology(_corpus(shared, "topo_prefix_note_line.txt"))
    assert (found.gpus, found.nics) == (("GPU0", "GPU1"), ("mlx5_0",))
    assert (found.nearest_nics("GPU0"), found.nearest_nics("GPU1")) == (("mlx5_0",), ())
