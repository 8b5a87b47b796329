"""The exporters of all simulated hosts behind one address on loopback: /metrics, or /metrics/NODE for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web

from simulator.host.exporter import exposition

Samples = Callable[[], dict[str, list[str]]]
_TURN = 20  # nodes
_TYPE = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


class MetricsServer:
    """`exporters` tells each node's samples; a node whose exporter does not answer has none."""

    def __init__(self, exporters: Mapping[str, Samples]) -> None:
        self._exporters = exporters
        self._http: web.Server | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where the whole fleet's metrics are; empty before `start`."""
        if self._server is None:
            return ""
        address, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{address}:{port}/metrics"

    async def start(self) -> None:
        """Listen on a free port. Raises OSError where there is none."""
        self._http = web.Server(self._answer, access_log=None)
        self._server = await asyncio.get_running_loop().create_server(self._http, "127.0.0.1", 0)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._http is not None:
            await self._http.shutdown(1.0)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if request.method != "GET" or parts[0] != "metrics" or len(parts) > 2:
            return web.Response(status=404, text="/metrics, or /metrics/NODE\n")
        if len(parts) == 1:
            return web.Response(text=await self._whole_fleet(), headers=_TYPE)
        tell = self._exporters.get(parts[1])
        if tell is None:
            return web.Response(status=404, text="no such node\n")
        samples = tell()
        if not samples:
            return web.Response(status=503, text="the exporter does not answer\n")
        return web.Response(text=exposition([samples]), headers=_TYPE)

    async def _whole_fleet(self) -> str:
        """All nodes, with turns for the other listeners in between."""
        found = []
        for place, tell in enumerate(self._exporters.values()):
            found.append(tell())
            if place % _TURN == 0:
                await asyncio.sleep(0)
        return exposition(found)
