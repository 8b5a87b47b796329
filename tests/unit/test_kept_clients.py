"""A fleet file that is edited while an operation runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unit.site_fakes import SPEC

from blocks.clients import clients_of
from fleet.errors import ConfigurationError


def write(path: Path, text: str, at: int) -> None:
    path.write_text(text)
    os.utime(path, (at, at))


def test_an_edit_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    write(path, SPEC, 1000)
    assert clients_of(str(path)).spec.rack_limit("r01") == 1
    write(path, SPEC.replace("racks: {r01: {}}", "racks: {r01: {limit: 3}}"), 2000)
    assert clients_of(str(path)).spec.rack_limit("r01") == 3


def test_a_file_that_is_broken_or_gone_leaves_the_last_good_one_in_force(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    write(path, SPEC, 1000)
    good = clients_of(str(path))
    write(path, "version: 1\nfleet: [", 2000)
    assert clients_of(str(path)) is good
    path.unlink()
    assert clients_of(str(path)) is good


def test_a_file_that_never_was_good_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    with pytest.raises(ConfigurationError, match="cannot read"):
        clients_of(str(path))
    path.write_text("version: 1\nfleet: [")
    with pytest.raises(ConfigurationError, match="not YAML"):
        clients_of(str(path))
