"""All BMCs of a simulated fleet: one HTTP server, one listening socket each."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web

from simulator.bmc.device import Bmc
from simulator.bmc.service import serve
from simulator.clock import SimClock
from simulator.faults import Fault
from simulator.firmware import FirmwareSet
from simulator.machine import Machine
from simulator.truth import TruthLog

_BACKLOG = 64
_MANY_CONNECTIONS = 64


@dataclass(eq=False)
class _Listener:
    bmc: Bmc
    address: str
    port: int
    server: asyncio.Server | None = None
    connections: set[asyncio.Transport] = field(default_factory=set)


class BmcFarm:
    """Holds the BMCs; a request is for the BMC whose socket it came to.

    `tls` makes all of them speak HTTPS. Port 0 takes a free one, which `url` tells after `start`.
    """

    def __init__(self, clock: SimClock, truth: TruthLog, tls: ssl.SSLContext | None = None) -> None:
        self._clock = clock
        self._truth = truth
        self._tls = tls
        self._listeners: dict[Bmc, _Listener] = {}
        self._by_address: dict[tuple[str, int], _Listener] = {}
        self._http: web.Server | None = None

    def add(
        self,
        machine: Machine,
        address: str,
        port: int,
        firmware: FirmwareSet,
        faults: Iterable[Fault],
        user: str,
        password: str,
    ) -> Bmc:
        """A BMC for `machine` at `address:port`; it listens from `start` on."""
        bmc = Bmc(machine, self._clock, self._truth, firmware, faults, user, password)
        self._listeners[bmc] = _Listener(bmc, address, port)
        return bmc

    def url(self, bmc: Bmc) -> str:
        listener = self._listeners[bmc]
        return f"{'https' if self._tls else 'http'}://{listener.address}:{listener.port}"

    async def start(self) -> None:
        """Listen on every address. Raises OSError that names the first one that cannot be had."""
        self._http = web.Server(self._handle, access_log=None, keepalive_timeout=300.0)
        for listener in self._listeners.values():
            await self._open(listener)
            listener.bmc.listen = partial(self._listen, listener)

    async def stop(self) -> None:
        """Stop listening, drop all connections, end what the BMCs are doing."""
        for listener in self._listeners.values():
            listener.bmc.stop()
            self._close(listener)
        if self._http is not None:
            await self._http.shutdown(1.0)

    def _listen(self, listener: _Listener, listening: bool) -> None:
        if listening:
            listener.bmc.spawn(self._open(listener))
        else:
            self._close(listener)

    async def _open(self, listener: _Listener) -> None:
        family = socket.AF_INET6 if ":" in listener.address else socket.AF_INET
        own = socket.socket(family, socket.SOCK_STREAM)
        try:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind((listener.address, listener.port))
        except OSError as error:
            own.close()
            text = f"cannot listen on {listener.address}:{listener.port}: {error.strerror}"
            raise OSError(error.errno, f"{text}; stop what uses it or choose other ports") from error
        listener.port = own.getsockname()[1]
        self._by_address[(listener.address, listener.port)] = listener
        assert self._http is not None
        loop = asyncio.get_running_loop()
        listener.server = await loop.create_server(self._http, sock=own, backlog=_BACKLOG, ssl=self._tls)

    def _close(self, listener: _Listener) -> None:
        if listener.server is not None:
            listener.server.close()
            listener.server = None
        for transport in listener.connections:
            with suppress(AttributeError):  # CPython 3.11 raises it for a TLS connection that is just gone
                transport.abort()
        listener.connections.clear()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        listener = self._by_address[transport.get_extra_info("sockname")[:2]]
        if len(listener.connections) > _MANY_CONNECTIONS:
            listener.connections = {known for known in listener.connections if not known.is_closing()}
        listener.connections.add(transport)
        return await serve(listener.bmc, request)
