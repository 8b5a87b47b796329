"""The probe over OpenSSH's sshd: pushed once, run over the kept connection, and what is in its way said truly."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.known_hosts import KnownHosts
from adapters.probe import Probe, ProbeFile, ProbeRequest, probe_file
from adapters.ssh import SshAccess, SshHost, read_key
from fleet.errors import ConfigurationError, HostKeyChanged, NodeUnreachable, TransientError
from tests.real.sshd import RealSshd, missing_parts

pytestmark = [
    pytest.mark.sshd,
    pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or ""),
]
QUICK = ProbeRequest(sections=("system", "memory"))
SFTP_SERVER = "/usr/lib/openssh/sftp-server"


class NodeSshd(RealSshd):
    """sshd with `settings` added to its configuration; every login finds its tools in `tools` alone.

    Its home is another one than the user's, so that no start-up file of the user changes that.
    """

    def __init__(self, folder: Path, settings: str = "Subsystem sftp internal-sftp\n") -> None:
        super().__init__(folder)
        self.settings = settings
        self.tools = folder / "tools"
        self.home = folder / "home"

    def start(self) -> None:
        (self.folder / "sshd_config").write_text(
            f"ListenAddress {self.address}\nHostKey {self.folder}/host\nPidFile none\nStrictModes no\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPermitRootLogin prohibit-password\n"
            f"SetEnv PATH={self.tools} HOME={self.home}\n{self.settings}"
        )
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "/usr/sbin/sshd"
        with (self.folder / "sshd.log").open("ab") as log:
            command = [program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < end, (self.folder / "sshd.log").read_text()
                time.sleep(0.05)

    def install(self, *names: str) -> None:
        self.tools.mkdir(exist_ok=True)
        for name in names:
            found = next(path for path in (Path("/usr/bin") / name, Path("/bin") / name) if path.exists())
            (self.tools / name).symlink_to(found)

    def script(self, name: str, text: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.tools / name).chmod(0o755)


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[NodeSshd]:
    node = NodeSshd(tmp_path)
    prepare(node)
    with node:
        yield node


def prepare(node: NodeSshd) -> None:
    node.install("sh", "mkdir", "cat", "sha256sum", "mv", "rm", "chmod", "echo", "test", "true")
    node.script("python3", f'exec {shlex.quote(sys.executable)} "$@"')


def connect(sshd: NodeSshd) -> SshHost:
    access = SshAccess(sshd.user, read_key(sshd.key), KnownHosts.read(sshd.known_hosts), connect_timeout_seconds=5)
    return SshHost("gpu-0001", sshd.address, access)


@pytest.fixture
def host(sshd: NodeSshd) -> Iterator[SshHost]:
    host = connect(sshd)
    yield host
    host.close()


def probe(host: SshHost, sshd: NodeSshd, file: ProbeFile | None = None) -> Probe:
    return Probe(host, "gpu-0001", file, folder=str(sshd.home / ".cache" / "gpufleet"))


def pushed(sshd: NodeSshd) -> list[Path]:
    return sorted((sshd.home / ".cache" / "gpufleet").glob("*.pyz*"))


def test_the_first_reading_pushes_the_probe_and_the_next_ones_do_not(sshd: NodeSshd, host: SshHost) -> None:
    reading = probe(host, sshd).read(QUICK)
    assert reading.kernel == os.uname().release
    file = sshd.home / ".cache" / "gpufleet" / f"probe-{probe_file().digest[:16]}.pyz"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == probe_file().digest
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    written = file.stat().st_mtime_ns
    assert probe(host, sshd).read(QUICK).kernel == reading.kernel
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (written, file.stat().st_ino)


def test_a_file_that_was_changed_on_the_node_is_never_run(sshd: NodeSshd, host: SshHost) -> None:
    probe(host, sshd).read(QUICK)
    file = next(path for path in pushed(sshd) if path.suffix == ".pyz")
    file.write_bytes(b"print('not the probe')")
    assert probe(host, sshd).read(QUICK).kernel == os.uname().release
    assert hashlib.sha256(file.read_bytes()).hexdigest() == probe_file().digest


def test_every_section_comes_over_the_wire(sshd: NodeSshd, host: SshHost) -> None:
    reading = probe(host, sshd).read()
    assert {"gpus", "driver", "packages", "system", "disks", "pci", "network", "kernel_log"} <= set(reading.sections)
    assert reading.wall_seconds is not None


def test_a_file_with_another_digest_than_was_said_is_not_kept(sshd: NodeSshd, host: SshHost) -> None:
    with pytest.raises(ConfigurationError, match=r"gpu-0001: .*did not arrive as it was sent: sha256 .*, wanted 00"):
        host.put(str(sshd.home / "folder" / "file"), b"content", "00")
    assert list((sshd.home / "folder").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named_with_the_systems_reason(sshd: NodeSshd, host: SshHost) -> None:
    sshd.home.write_text("a file where the home should be")
    with pytest.raises(ConfigurationError, match=r"cannot make .*Not a directory"):
        probe(host, sshd).read(QUICK)


def test_without_sftp_the_shell_takes_the_file(tmp_path: Path) -> None:
    node = NodeSshd(tmp_path, settings="")
    prepare(node)
    with node:
        host = connect(node)
        assert probe(host, node).read(QUICK).kernel == os.uname().release
        host.close()


@pytest.mark.skipif(not Path(SFTP_SERVER).exists(), reason="no sftp-server (Debian: openssh-sftp-server)")
def test_a_login_that_prints_a_banner_does_no_harm(tmp_path: Path) -> None:
    banner = tmp_path / "banner.sh"
    banner.write_text("echo 'Welcome to gpu-0001! {\"version\": 1}'; trap 'echo good bye' EXIT\n")
    node = NodeSshd(tmp_path, settings=f"Subsystem sftp {SFTP_SERVER}\n")
    prepare(node)
    with node:
        key = (node.folder / "authorized_keys").read_text()
        forced = f'. {banner}; eval \\"$SSH_ORIGINAL_COMMAND\\"'
        (node.folder / "authorized_keys").write_text(f'command="{forced}" {key}')
        host = connect(node)
        assert "Welcome" in host.run(("true",)).stdout
        assert probe(host, node).read(QUICK).kernel == os.uname().release
        host.close()


def test_a_node_without_python_says_so(sshd: NodeSshd, host: SshHost) -> None:
    (sshd.tools / "python3").unlink()
    with pytest.raises(ConfigurationError, match="gpu-0001: has no python3 on its PATH"):
        probe(host, sshd).read(QUICK)
    assert not sshd.home.exists()


OLD = "import sys; sys.version_info = (3, 6, 8); sys.version = '3.6.8 (default)'; exec(sys.argv.pop(1))"


def test_a_python_that_is_too_old_is_named(sshd: NodeSshd, host: SshHost) -> None:
    sshd.script("python3", f'shift 3; exec {sys.executable} -I -S -c "{OLD}" "$@"')
    with pytest.raises(ConfigurationError, match=r"gpu-0001: Python 3\.6\.8 is too old; the probe needs 3\.8"):
        probe(host, sshd).read(QUICK)


def test_a_newer_python_beside_an_old_one_is_found(sshd: NodeSshd, host: SshHost) -> None:
    sshd.script("python3", f'shift 3; exec {sys.executable} -I -S -c "{OLD}" "$@"')
    sshd.script("python3.11", f'exec {shlex.quote(sys.executable)} "$@"')
    assert probe(host, sshd).read(QUICK).kernel == os.uname().release


def test_a_login_that_runs_no_commands_is_told_as_what_it_is(sshd: NodeSshd, host: SshHost) -> None:
    key = (sshd.folder / "authorized_keys").read_text()
    (sshd.folder / "authorized_keys").write_text(f'command="echo This account is closed." {key}')
    with pytest.raises(ConfigurationError, match=r"runs no commands, it answers: This account is closed\."):
        probe(host, sshd).read(QUICK)


def test_a_probe_that_fails_shows_its_last_words(sshd: NodeSshd, host: SshHost) -> None:
    content = b"raise SystemExit('odd: no such thing')"
    broken = ProbeFile(content, hashlib.sha256(content).hexdigest())
    with pytest.raises(ConfigurationError, match=r"exit status 1\): odd: no such thing"):
        probe(host, sshd, broken).read(QUICK)


def test_a_document_that_was_cut_off_is_asked_for_again_not_believed(sshd: NodeSshd, host: SshHost) -> None:
    content = b"print('=====gpufleet-probe-begin=====\\n{\"version\":1')"
    cut = ProbeFile(content, hashlib.sha256(content).hexdigest())
    with pytest.raises(TransientError, match="cut off"):
        probe(host, sshd, cut).read(QUICK)


def test_a_changed_host_key_stops_the_node_before_anything_is_sent(sshd: NodeSshd, host: SshHost) -> None:
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    with pytest.raises(HostKeyChanged, match="gpu-0001: the host key of"):
        probe(host, sshd).read(QUICK)
    assert not sshd.home.exists()


def test_a_node_that_is_down_is_unreachable(sshd: NodeSshd, host: SshHost) -> None:
    sshd.stop()
    with pytest.raises(NodeUnreachable):
        probe(host, sshd).read(QUICK)
