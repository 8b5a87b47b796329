"""Who listens on a port, and which port is free."""

from __future__ import annotations

import socket

import psutil

from cli.runtime.settings import HOST


def port_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def next_free_port(port: int) -> int:
    """The first free port above `port`."""
    return next(candidate for candidate in range(port + 1, 65536) if port_free(candidate))


def port_owner(port: int) -> str:
    """Who listens there, as far as this user may see."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return "another process"
    for connection in connections:
        if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
            return _named(connection.pid)
    return "another process"


def _named(pid: int | None) -> str:
    if pid is None:
        return "a process of another user"
    try:
        process = psutil.Process(pid)
        return f"{process.name()} (pid {pid}, user {process.username()})"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return f"pid {pid}"
