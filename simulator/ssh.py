"""SSH servers of the simulated hosts: one listener and one host key each, one command per channel."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field

import asyncssh
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from simulator.hosts import HostShell
from simulator.machine import Machine
from simulator.slurm.reply import Reply
from simulator.truth import TruthLog

_BACKLOG = 16
_MAX_INPUT = 1 << 20


def derive_key(seed: int, name: str) -> asyncssh.SSHKey:
    """The ed25519 key of `name`: the same for a seed, and no secret of any worth."""
    secret = hashlib.sha256(f"gpufleet simulator {seed} {name}".encode()).digest()
    key = Ed25519PrivateKey.from_private_bytes(secret)
    return asyncssh.import_private_key(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))


def public_line(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519 AAAA…`, without a comment."""
    return " ".join(key.export_public_key().decode().split()[:2])


@dataclass(eq=False)
class _Host:
    name: str
    address: str
    port: int
    key: asyncssh.SSHKey
    shell: HostShell
    machine: Machine | None
    listener: asyncssh.SSHAcceptor | None = None
    connections: set[asyncssh.SSHServerConnection] = field(default_factory=set)


class _Server(asyncssh.SSHServer):
    """Keeps a host's connections, and tells the truth log who was not let in."""

    def __init__(self, host: _Host, truth: TruthLog) -> None:
        self._host = host
        self._truth = truth
        self._connection: asyncssh.SSHServerConnection | None = None
        self._user: str | None = None
        self._let_in = False

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._host.connections.add(conn)

    def begin_auth(self, username: str) -> bool:
        self._user = username
        return True

    def auth_completed(self) -> None:
        self._let_in = True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._connection is not None:
            self._host.connections.discard(self._connection)
        machine = self._host.machine
        lost_power = machine is not None and not machine.up
        if self._user is not None and not self._let_in and not lost_power:
            rack = machine.rack if machine else None
            self._truth.write("login_refused", self._host.name, rack, user=self._user, service="ssh")


class SshFarm:
    """All SSH hosts in one event loop. A host with a machine refuses connections while that is not up."""

    def __init__(self, truth: TruthLog, client_key: str) -> None:
        self._truth = truth
        self._allowed = asyncssh.import_authorized_keys(client_key)
        self._hosts: list[_Host] = []
        self._changes: set[asyncio.Task[None]] = set()

    def add(
        self, name: str, address: str, port: int, key: asyncssh.SSHKey, shell: HostShell, machine: Machine | None
    ) -> None:
        host = _Host(name, address, port, key, shell, machine)
        self._hosts.append(host)
        if machine is not None:
            machine.listeners.append(lambda _: self._follow(host))

    async def start(self) -> None:
        """Listen everywhere. Raises OSError that names the first address that cannot be had."""
        for host in self._hosts:
            if host.machine is None or host.machine.up:
                await self._open(host)

    async def stop(self) -> None:
        for task in self._changes:
            task.cancel()
        for host in self._hosts:
            self._close(host)

    def _follow(self, host: _Host) -> None:
        if host.machine is not None and not host.machine.up:
            self._close(host)
            return
        task = asyncio.get_running_loop().create_task(self._open(host))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def _open(self, host: _Host) -> None:
        host.listener = await asyncssh.listen(
            host.address,
            host.port,
            server_factory=lambda: _Server(host, self._truth),
            process_factory=lambda process: self._serve(host, process),
            server_host_keys=[host.key],
            authorized_client_keys=self._allowed,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            agent_forwarding=False,
            compression_algs=["none"],
            line_editor=False,
            reuse_address=True,
            backlog=_BACKLOG,
            encoding=None,
        )
        if host.machine is not None and not host.machine.up:
            self._close(host)

    def _close(self, host: _Host) -> None:
        if host.listener is not None:
            host.listener.close()
            host.listener = None
        for connection in list(host.connections):
            connection.abort()
        host.connections.clear()

    async def _serve(self, host: _Host, process: asyncssh.SSHServerProcess[bytes]) -> None:
        line = process.command or ""
        stdin = await _input(process) if host.shell.wants_input(line) else b""
        user = str(process.get_extra_info("username"))
        answer = host.shell.run(line, user, stdin)
        reply = answer if isinstance(answer, Reply) else await answer
        process.stdout.write(reply.stdout.encode())
        process.stderr.write(reply.stderr.encode())
        process.exit(reply.code)


async def _input(process: asyncssh.SSHServerProcess[bytes]) -> bytes:
    """All of the standard input, up to a bound."""
    content = b""
    while len(content) < _MAX_INPUT and (part := await process.stdin.read(_MAX_INPUT)):
        content += part
    return content
