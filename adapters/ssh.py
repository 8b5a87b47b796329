"""A GPU host's shell over SSH: one kept connection per host, one channel per command."""

from __future__ import annotations

import contextlib
import io
import logging
import secrets
import select
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko

from adapters.known_hosts import KnownHosts
from adapters.local import Finished
from adapters.operator_files import read_operator_text
from adapters.ssh_files import CHECK_AND_MOVE, MAKE_FOLDER, RECEIVE, folder_of, sftp_write
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, NodeUnreachable

logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)  # what matters is raised

# fastest first, as measured; the server's word counts among those that both have
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
_KEX = (
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group14-sha256",
)
_CHANNELS = 8  # OpenSSH's MaxSessions is 10
_IDLE_SECONDS = 5.0  # how often paramiko's reader wakes on a quiet connection (its default: 0.1)
_GRACE_SECONDS = 2.0  # a command has ended, but a child of its still holds the output


@dataclass(frozen=True, slots=True)
class SshAccess:
    """How to log in. `known_hosts` None switches the check of host keys off: anybody may answer then."""

    user: str
    key: paramiko.PKey
    known_hosts: KnownHosts | None
    connect_timeout_seconds: float = 15.0
    output_limit_bytes: int = 16 * 1024 * 1024


def read_key(path: Path) -> paramiko.PKey:
    """Read a private key file. Raises ConfigurationError; the key's text is never in its message."""
    try:
        text = read_operator_text(path, "the SSH key")
    except ConfigurationError as error:
        raise ConfigurationError(f"{error.message}; check ssh.key") from None
    return parse_key(text, str(path))


def parse_key(text: str, source: str) -> paramiko.PKey:
    """A private key from its text. Raises ConfigurationError naming `source`."""
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key(io.StringIO(text))
        except paramiko.PasswordRequiredException:
            raise ConfigurationError(
                f"the SSH key in {source} has a passphrase; give gpufleet a key of its own without one"
            ) from None
        except (paramiko.SSHException, ValueError, IndexError):
            continue
    raise ConfigurationError(f"{source} holds no private key that is known (ed25519, ecdsa, rsa); check ssh.key")


class SshHost:
    """One host. Several threads may run commands at once; each has a channel of its own."""

    def __init__(self, name: str, address: str, access: SshAccess) -> None:
        host, _, port = address.rpartition(":")
        self._name, self._host, self._port = name, (host or address).strip("[]"), int(port) if host else 22
        self._access = access
        self._transport: paramiko.Transport | None = None
        self._lock = threading.Lock()
        self._channels = threading.BoundedSemaphore(_CHANNELS)

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        """Run one command. `code` is -1 where a signal ended it.

        Raises NodeUnreachable (also after `timeout_seconds`: the command may still run there),
        HostKeyChanged, CredentialsRejected, ConfigurationError (unknown host key, output over the limit).
        """
        return self._run(arguments, timeout_seconds, b"")

    def _run(self, arguments: tuple[str, ...], seconds: float, stdin: bytes) -> Finished:
        deadline = time.monotonic() + seconds
        with self._channel(deadline, seconds) as channel:
            return self._exchange(channel, shlex.join(arguments), arguments[0], deadline, seconds, stdin)

    @contextlib.contextmanager
    def _channel(self, deadline: float, seconds: float) -> Iterator[paramiko.Channel]:
        if not self._channels.acquire(timeout=seconds):
            raise NodeUnreachable(f"no free channel within {seconds:g} s", node=self._name)
        try:
            channel = self._open_channel(deadline)
            try:
                yield channel
            finally:
                # where the connection broke meanwhile there is nothing left to close, and the answer still counts
                with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
                    channel.close()
        finally:
            self._channels.release()

    def put(self, path: str, content: bytes, digest: str, timeout_seconds: float = 60.0) -> None:
        """Write a file, 0600; `path` is relative to the home folder. It appears whole and with that SHA-256, or not.

        Over SFTP, or through the shell where the node has no SFTP. Raises what `run` raises, and ConfigurationError
        where the node refuses the file (permission, no space) or it arrives as something else.
        """
        arrived = f"{path}.{secrets.token_hex(4)}"
        self._shell(MAKE_FOLDER, (folder_of(path),), timeout_seconds, f"cannot make {folder_of(path)}")
        if not self._sftp(arrived, content, timeout_seconds):
            self._shell(RECEIVE, (arrived,), timeout_seconds, f"cannot write {path}", content)
        self._shell(CHECK_AND_MOVE, (arrived, path, digest), timeout_seconds, f"{path} did not arrive as it was sent")

    def _shell(self, script: str, arguments: tuple[str, ...], seconds: float, fault: str, stdin: bytes = b"") -> None:
        result = self._run(("sh", "-c", script, "sh", *arguments), seconds, stdin)
        if result.code:
            said = (result.stderr or result.stdout).strip()[-300:]
            raise ConfigurationError(f"{fault}: {said or f'exit status {result.code}'}", node=self._name)

    def _sftp(self, path: str, content: bytes, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        with self._channel(deadline, seconds) as channel:
            channel.settimeout(max(1.0, deadline - time.monotonic()))
            try:
                return sftp_write(channel, path, content)
            except (TimeoutError, EOFError, paramiko.SSHException, paramiko.SFTPError) as error:
                raise NodeUnreachable(f"SFTP of {path} broke: {_words(error)}", node=self._name) from error
            except OSError as error:
                transport = channel.get_transport()
                if not transport.is_active():
                    raise NodeUnreachable(f"SFTP of {path} broke: {_words(error)}", node=self._name) from error
                raise ConfigurationError(f"cannot write {path} over SFTP: {_words(error)}", node=self._name) from error

    def close(self) -> None:
        with self._lock:
            if self._transport is not None:
                _end(self._transport)
                self._transport = None

    def _open_channel(self, deadline: float) -> paramiko.Channel:
        """A channel on the kept connection; a dead one is replaced, as nothing was sent on it yet."""
        transport = self._connected(None)
        for attempt in (1, 2):
            left = max(1.0, deadline - time.monotonic())
            try:
                return transport.open_session(timeout=left)
            except (paramiko.SSHException, EOFError, OSError) as error:
                if attempt == 2 or isinstance(error, paramiko.ChannelException):
                    raise NodeUnreachable(f"SSH opens no channel: {_words(error)}", node=self._name) from error
                transport = self._connected(transport)
        raise AssertionError("unreachable")

    def _connected(self, dead: paramiko.Transport | None) -> paramiko.Transport:
        with self._lock:
            kept = self._transport
            if kept is not None and kept is not dead and kept.is_active():
                return kept
            if kept is not None:
                _end(kept)
            self._transport = None
            self._transport = self._connect()
            return self._transport

    def _connect(self) -> paramiko.Transport:
        seconds = self._access.connect_timeout_seconds
        try:
            sock = socket.create_connection((self._host, self._port), timeout=seconds)
        except OSError as error:
            raise NodeUnreachable(f"SSH at {self._host}:{self._port}: {_words(error)}", node=self._name) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = paramiko.Transport(sock)
        try:
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = seconds
            self._prefer(transport)
            transport.start_client(timeout=seconds)
            self._check_host_key(transport)
            self._log_in(transport)
            sock.settimeout(_IDLE_SECONDS)
            transport.set_keepalive(30)
        except (paramiko.SSHException, EOFError, OSError) as error:
            _end(transport)
            raise NodeUnreachable(
                f"no SSH session with {self._host}:{self._port}: {_words(error)}", node=self._name
            ) from error
        except FleetError:
            _end(transport)
            raise
        return transport

    def _prefer(self, transport: paramiko.Transport) -> None:
        options = transport.get_security_options()
        options.ciphers = [name for name in _CIPHERS if name in options.ciphers]
        options.kex = [name for name in _KEX if name in options.kex]
        known = self._access.known_hosts
        pinned = known.types(self._host, self._port) if known else ()
        wanted = {"rsa-sha2-512", "rsa-sha2-256", *pinned} if "ssh-rsa" in pinned else set(pinned)
        kinds = [kind for kind in options.key_types if kind in wanted]
        # a key of another type than the pinned one proves nothing; with none pinned, any shows what to pin
        options.key_types = kinds or options.key_types

    def _check_host_key(self, transport: paramiko.Transport) -> None:
        if self._access.known_hosts is not None:
            key = transport.get_remote_server_key()
            self._access.known_hosts.check(self._host, self._port, key.get_name(), key.asbytes(), self._name)

    def _log_in(self, transport: paramiko.Transport) -> None:
        user = self._access.user
        try:
            transport.auth_publickey(user, self._access.key)
        except paramiko.AuthenticationException as error:
            if "timeout" in str(error).lower():
                raise NodeUnreachable("SSH login was not answered in time", node=self._name) from error
            raise CredentialsRejected(
                f"refuses the SSH key for user {user!r}; is it in that user's authorized_keys?",
                node=self._name,
            ) from error

    def _exchange(
        self, channel: paramiko.Channel, command: str, name: str, deadline: float, timeout_seconds: float, stdin: bytes
    ) -> Finished:
        try:
            channel.settimeout(max(1.0, deadline - time.monotonic()))
            channel.exec_command(command)
            if stdin:
                channel.sendall(stdin)
            channel.shutdown_write()
            out, err = self._collect(channel, name, deadline, timeout_seconds)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise NodeUnreachable(f"SSH broke while {name} ran: {_words(error)}", node=self._name) from error
        transport = channel.get_transport()
        if not channel.exit_status_ready() or (channel.exit_status < 0 and not transport.is_active()):
            raise NodeUnreachable(f"SSH was cut while {name} ran; it may still run there", node=self._name)
        return Finished(channel.exit_status, out.decode(errors="replace"), err.decode(errors="replace"))

    def _collect(
        self, channel: paramiko.Channel, name: str, deadline: float, timeout_seconds: float
    ) -> tuple[bytes, bytes]:
        """Both streams until the end of the command."""
        out, err = bytearray(), bytearray()
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        quiet_since: float | None = None
        while not (channel.closed or (channel.eof_received and channel.exit_status_ready())):
            now = time.monotonic()
            if now > deadline:
                raise NodeUnreachable(
                    f"{name} did not end within {timeout_seconds:g} s; it may still run there",
                    node=self._name,
                )
            patience = min(deadline - now, 0.2 if quiet_since else 1.0)
            if channel.eof_received:  # the pipe reads ready from here on
                channel.status_event.wait(patience)
            else:
                poll.poll(1000 * patience)
            moved = _drain(channel, out, err)
            self._check_size(len(out) + len(err), name)
            if channel.exit_status_ready() and not moved:
                quiet_since = quiet_since or now
                if now - quiet_since > _GRACE_SECONDS:
                    break
            else:
                quiet_since = None
        while _drain(channel, out, err):
            self._check_size(len(out) + len(err), name)
        return bytes(out), bytes(err)

    def _check_size(self, size: int, name: str) -> None:
        limit = self._access.output_limit_bytes
        if size > limit:
            raise ConfigurationError(f"{name} printed more than {limit} bytes; ask it for less", node=self._name)


def _drain(channel: paramiko.Channel, out: bytearray, err: bytearray) -> int:
    """Move what has arrived; the number of bytes."""
    before = len(out) + len(err)
    if channel.recv_ready():
        out += channel.recv(1 << 20)
    if channel.recv_stderr_ready():
        err += channel.recv_stderr(1 << 20)
    return len(out) + len(err) - before


def _end(transport: paramiko.Transport) -> None:
    with contextlib.suppress(OSError):
        transport.sock.shutdown(socket.SHUT_RDWR)  # wakes the reader at once
    transport.close()
    transport.sock.close()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


class SshPool:
    """The kept connections of many hosts, with one way to log in."""

    def __init__(self, access: SshAccess) -> None:
        self._access = access
        self._hosts: dict[tuple[str, str], SshHost] = {}
        self._lock = threading.Lock()

    def host(self, name: str, address: str) -> SshHost:
        """The host `name` at `address` (`host:port`); the same one at each call."""
        with self._lock:
            key = (name, address)
            if key not in self._hosts:
                self._hosts[key] = SshHost(name, address, self._access)
            return self._hosts[key]

    def close(self) -> None:
        """End every connection; the pool may be used again."""
        with self._lock:
            hosts, self._hosts = list(self._hosts.values()), {}
        for host in hosts:
            host.close()
