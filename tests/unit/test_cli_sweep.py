"""`gpufleet sweep`: how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from unit.cli_site import CliSite, cli_site

from fleet.model import Node
from tasks.sweeping import Swept


class Sweeper:
    """Reads nothing, and has found what the test says."""

    swept = Swept()

    def __init__(self, fleet: object, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    def round(self, progress: Callable[[int], None]) -> Swept:
        progress(2 * len(self.nodes))
        return self.swept


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    monkeypatch.setattr("tasks.sweeping.Sweeper", Sweeper)
    return cli_site(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("swept", "code", "said"),
    [
        (Swept(read=6), 0, ""),
        (Swept(read=5, failed={"gpu-0001": "connection refused"}), 3, "gpu-0001: connection refused"),
        (Swept(read=6, conflicts=["gpu:S1 is in a and in b"]), 3, "gpu:S1 is in a and in b"),
    ],
)
def test_what_was_not_read_or_contradicts_itself_ends_with_3(
    site: CliSite, monkeypatch: pytest.MonkeyPatch, swept: Swept, code: int, said: str
) -> None:
    monkeypatch.setattr(Sweeper, "swept", swept)
    for options in ((), ("--json",)):
        assert site.run("sweep", *options).exit_code == code
    assert said in site.run("sweep").stderr


@pytest.mark.parametrize(
    ("nodes", "code", "said"),
    [
        ("gpu-[0003-0005]", 6, "no node 'gpu-0004', 'gpu-0005' in this fleet; did you mean 'gpu-000"),
        ("", 6, "leave NODES out"),
        ("gpu-[1", 2, "not closed"),
    ],
)
def test_nodes_that_are_not_there_are_named(site: CliSite, nodes: str, code: int, said: str) -> None:
    refused = site.run("sweep", nodes)
    assert (refused.exit_code, said in " ".join(refused.stderr.split())) == (code, True)
