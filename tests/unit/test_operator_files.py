"""What a person points to is read where it is a file, and refused at once where reading it would never end."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.baseline_file import read_baseline_file
from adapters.fleet_file import read_fleet_file
from adapters.known_hosts import KnownHosts
from adapters.operator_files import NoSuchFile, read_operator_bytes, read_operator_text
from adapters.redfish.settings import BmcTls, tls_context
from adapters.references import read_secret
from adapters.ssh import read_key
from fleet.config import SecretRef, parse_fleet
from fleet.errors import ConfigurationError

SPEC = """\
version: 1
fleet: lab
bmc: {user: a, password: {env: X}}
ssh: {user: root, key: {file: k}}
gate: {required: 0}
pools: {train: {}}
racks: {r01: {}}
nodes: [{name: n1, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1}]
"""


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe that nobody writes to."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


READERS: list[Callable[[Path], object]] = [
    read_fleet_file,
    lambda path: read_baseline_file(path, parse_fleet(SPEC, "fleet.yaml")),
    KnownHosts.read,
    read_key,
    lambda path: read_secret(SecretRef(file=path.name), path.parent, "bmc.password"),
    lambda path: tls_context(BmcTls(ca=str(path))),
]


@pytest.mark.parametrize("read", READERS)
def test_no_reader_waits_for_a_pipe(pipe: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigurationError, match="it is a pipe, no regular file"):
        read(pipe)


@pytest.mark.parametrize("read", READERS)
def test_every_reader_says_which_file_is_not_there(tmp_path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(ConfigurationError, match="nothing: No such file"):
        read(tmp_path / "nothing")


def test_folders_devices_and_sockets_are_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for path, kind in (("/dev/zero", "a device"), (str(tmp_path), "a folder"), (f"{tmp_path}/socket", "a socket")):
            with pytest.raises(ConfigurationError, match=f"cannot read the list {path}: it is {kind}"):
                read_operator_bytes(Path(path), "the list")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 2**30)  # takes no room
    with pytest.raises(ConfigurationError, match="more than 256 MiB"):
        read_operator_bytes(path, "the list")


def test_a_file_that_is_not_there_can_be_told_from_one_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile):
        read_operator_bytes(tmp_path / "none", "the list")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="Not a directory") as caught:
        read_operator_bytes(tmp_path / "file" / "none", "the list")
    assert not isinstance(caught.value, NoSuchFile)


def test_a_link_to_a_file_is_followed_and_line_ends_are_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"a\r\nb\rc\n")
    (tmp_path / "link").symlink_to("real")
    assert read_operator_text(tmp_path / "link", "the list") == "a\nb\nc\n"


def test_what_a_file_holds_is_in_no_message(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"hunter2\xff")
    with pytest.raises(ConfigurationError, match=r"is not UTF-8 text \(byte 7\)") as caught:
        read_operator_text(tmp_path / "secret", "the list")
    assert (caught.value.__cause__, "xff" in str(caught.value)) == (None, False)
