"""Where the simulated machines listen: an address each where the system has 127/8, else a port each."""

from __future__ import annotations

import socket
from dataclasses import dataclass

BMC_PORT = 8443
SSH_PORT = 2222
_FIRST_BLOCK, _LAST_BLOCK = 16, 250  # 127.<block>.x.y
_PER_BLOCK = 250 * 250
_FIRST_PORT, _LAST_PORT = 20000, 32000  # below the ports that systems give to clients


@dataclass(frozen=True, slots=True)
class Endpoint:
    address: str
    bmc_port: int
    ssh_port: int


@dataclass
class Claim:
    """Endpoints by node number, and the controller's; `lock` keeps other simulators off until it is closed."""

    nodes: tuple[Endpoint, ...]
    controller: Endpoint
    lock: socket.socket


def has_own_addresses() -> bool:
    """Can 127.0.0.2 be bound? Linux has the whole of 127/8, macOS only 127.0.0.1."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.2", 0))
        except OSError:
            return False
    return True


def claim(nodes: int, own_addresses: bool, base_port: int | None = None) -> Claim:
    """Take what `nodes` nodes need. Raises OSError where nothing is free."""
    if own_addresses:
        return _claim_block(nodes, base_port)
    return _claim_ports(nodes, base_port)


def _claim_block(nodes: int, base_port: int | None) -> Claim:
    if nodes > _PER_BLOCK:
        raise OSError(f"one simulator has addresses for {_PER_BLOCK} nodes; start several")
    bmc, ssh = (BMC_PORT, SSH_PORT) if base_port is None else (base_port, base_port + 1)
    for shift in range(0, 1000, 100):
        for block in range(_FIRST_BLOCK, _LAST_BLOCK + 1):
            lock = _lock(f"127.{block}.255.254", bmc + shift)
            if lock is None:
                continue
            if not _free(f"127.{block}.255.1", ssh + shift):
                lock.close()
                continue
            addresses = (f"127.{block}.{1 + n // 250}.{1 + n % 250}" for n in range(nodes))
            return Claim(
                tuple(Endpoint(address, bmc + shift, ssh + shift) for address in addresses),
                Endpoint(f"127.{block}.255.1", bmc + shift, ssh + shift),
                lock,
            )
    raise OSError(f"no free block of addresses at ports {bmc} and {ssh}; stop a simulator or give --base-port")


def _claim_ports(nodes: int, base_port: int | None) -> Claim:
    need = 2 * nodes + 2
    starts = [base_port] if base_port is not None else list(range(_FIRST_PORT, _LAST_PORT - need, 100))
    for start in starts:
        lock = _lock("127.0.0.1", start)
        if lock is None:
            continue
        if all(_free("127.0.0.1", port) for port in range(start + 1, start + need)):
            ends = (Endpoint("127.0.0.1", start + 2 + 2 * n, start + 3 + 2 * n) for n in range(nodes))
            return Claim(tuple(ends), Endpoint("127.0.0.1", start, start + 1), lock)
        lock.close()
    raise OSError(f"no {need} free ports in a row; stop what uses them or give --base-port")


def _lock(address: str, port: int) -> socket.socket | None:
    held = socket.socket()
    try:
        held.bind((address, port))
        held.listen(1)
    except OSError:
        held.close()
        return None
    return held


def _free(address: str, port: int) -> bool:
    taken = _lock(address, port)
    if taken is None:
        return False
    taken.close()
    return True
