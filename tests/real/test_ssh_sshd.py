"""The SSH adapter against OpenSSH's sshd."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapters.known_hosts import KnownHosts
from adapters.ssh import SshAccess, SshHost, SshPool, read_key
from fleet.errors import ConfigurationError, CredentialsRejected, HostKeyChanged, NodeUnreachable
from tests.real.sshd import RealSshd, missing_parts

pytestmark = [
    pytest.mark.sshd,
    pytest.mark.skipif(missing_parts() is not None, reason=missing_parts() or ""),
]


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[RealSshd]:
    with RealSshd(tmp_path) as server:
        yield server


@pytest.fixture
def access(sshd: RealSshd) -> SshAccess:
    return SshAccess(sshd.user, read_key(sshd.key), KnownHosts.read(sshd.known_hosts), connect_timeout_seconds=5)


@pytest.fixture
def host(sshd: RealSshd, access: SshAccess) -> Iterator[SshHost]:
    host = SshHost("gpu01", sshd.address, access)
    yield host
    host.close()


def test_a_command_gives_its_code_and_both_streams(host: SshHost) -> None:
    result = host.run(("sh", "-c", "echo out; echo err >&2; exit 3"))
    assert (result.code, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_every_argument_arrives_as_it_was_given(host: SshHost) -> None:
    odd = ("a b", "$HOME", "`id`", "'", '"', ";", "&&", "\n", "*", "", "ä")
    assert host.run(("printf", "<%s>", *odd)).stdout == "".join(f"<{text}>" for text in odd)


def test_no_variable_of_ours_reaches_the_host(host: SshHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_SECRET", "hunter2")
    assert "hunter2" not in host.run(("env",)).stdout


def test_commands_of_many_threads_share_one_connection(host: SshHost) -> None:
    def client_port(index: int) -> str:
        return host.run(("sh", "-c", f"sleep 0.05; echo $SSH_CLIENT {index}")).stdout

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(client_port, range(40)))
    assert [int(answer.split()[-1]) for answer in answers] == list(range(40))
    assert len({answer.split()[1] for answer in answers}) == 1


def test_a_megabyte_on_both_streams_arrives_whole(host: SshHost) -> None:
    result = host.run(("sh", "-c", "head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero; exit 7"))
    assert (result.code, len(result.stdout), len(result.stderr)) == (7, 3_000_000, 3_000_000)


def test_output_above_the_limit_stops_the_command(sshd: RealSshd, access: SshAccess) -> None:
    small = SshAccess(access.user, access.key, access.known_hosts, output_limit_bytes=10_000)
    host = SshHost("gpu01", sshd.address, small)
    with pytest.raises(ConfigurationError, match="more than 10000 bytes"):
        host.run(("yes",))
    assert host.run(("true",)).code == 0
    host.close()


def test_a_command_that_hangs_is_given_up_and_the_connection_goes_on(host: SshHost) -> None:
    with pytest.raises(NodeUnreachable, match=r"gpu01: sleep did not end within 0\.3 s"):
        host.run(("sleep", "30"), timeout_seconds=0.3)
    assert host.run(("echo", "still here")).stdout == "still here\n"


def test_a_child_that_keeps_the_output_open_does_not_hold_the_answer(host: SshHost) -> None:
    result = host.run(("sh", "-c", "sleep 20 & echo done"), timeout_seconds=15)
    assert (result.code, result.stdout) == (0, "done\n")


def test_a_command_ended_by_a_signal_has_code_minus_one(host: SshHost) -> None:
    assert host.run(("sh", "-c", "kill -9 $$")).code == -1


def test_a_session_cut_in_mid_command_is_unreachable_not_a_result(sshd: RealSshd, host: SshHost) -> None:
    host.run(("true",))
    cut = threading.Timer(0.5, sshd.cut_sessions)
    cut.start()
    with pytest.raises(NodeUnreachable, match=r"it may still run there|SSH broke"):
        host.run(("sleep", "20"), timeout_seconds=15)
    cut.join()


def test_a_session_that_died_in_between_is_replaced(sshd: RealSshd, host: SshHost) -> None:
    host.run(("true",))
    sshd.cut_sessions()
    assert host.run(("echo", "again")).stdout == "again\n"


def test_a_host_that_refuses_connections_is_unreachable(sshd: RealSshd, host: SshHost) -> None:
    sshd.stop()
    with pytest.raises(NodeUnreachable, match="refused"):
        host.run(("true",))


def test_a_changed_host_key_stops_before_the_login(sshd: RealSshd, host: SshHost) -> None:
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    with pytest.raises(HostKeyChanged, match="ssh-keygen -R"):
        host.run(("true",))
    assert "Accepted publickey" not in (sshd.folder / "sshd.log").read_text()


def test_an_unknown_host_key_says_how_to_add_it(sshd: RealSshd, access: SshAccess) -> None:
    empty = SshAccess(access.user, access.key, KnownHosts("", "known_hosts"))
    with pytest.raises(ConfigurationError, match=f"ssh-keyscan -p {sshd.port} 127.0.0.1 >> known_hosts"):
        SshHost("gpu01", sshd.address, empty).run(("true",))


def test_a_host_key_is_not_looked_at_where_that_is_switched_off(sshd: RealSshd, access: SshAccess) -> None:
    host = SshHost("gpu01", sshd.address, SshAccess(access.user, access.key, known_hosts=None))
    assert host.run(("true",)).code == 0
    host.close()


def test_a_refused_key_is_credentials_rejected(sshd: RealSshd, host: SshHost) -> None:
    (sshd.folder / "authorized_keys").write_text("")
    with pytest.raises(CredentialsRejected, match="authorized_keys"):
        host.run(("true",))


def test_a_pool_gives_one_host_per_address_and_closes_all(sshd: RealSshd, access: SshAccess) -> None:
    pool = SshPool(access)
    host = pool.host("gpu01", sshd.address)
    assert host.run(("true",)).code == 0
    assert pool.host("gpu01", sshd.address) is host
    pool.close()
    assert pool.host("gpu01", sshd.address) is not host
    pool.close()
