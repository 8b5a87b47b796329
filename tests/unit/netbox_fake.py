"""A NetBox of the tests: its REST format over real HTTP on loopback, paged, with answers to be given first."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

TOKEN = "0123456789abcdef0123456789abcdef01234567"

Json = dict[str, object]


class NetBoxFake(ThreadingHTTPServer):
    """`devices` by page of `page` at most; `first` are statuses and headers given once, before anything else."""

    daemon_threads = True

    def __init__(self, devices: list[Json], page: int = 2) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.devices = devices
        self.page = page
        self.first: list[tuple[int, dict[str, str], str]] = []
        self.authorization = f"Token {TOKEN}"
        self.next_host: str | None = None
        self.count_grows_at: int | None = None
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/netbox"


class _Handler(BaseHTTPRequestHandler):
    server: NetBoxFake
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        parts = urlsplit(self.path)
        if self.server.first:
            status, headers, body = self.server.first.pop(0)
            self._answer(status, body, headers)
        elif parts.path != "/netbox/api/dcim/devices/":
            self._answer(404, "<html>no such page</html>", {"Content-Type": "text/html"})
        elif self.headers["Authorization"] != self.server.authorization:
            self._answer(403, json.dumps({"detail": "Invalid token"}))
        else:
            self._answer(200, json.dumps(self._page(parse_qs(parts.query))))

    def _page(self, query: dict[str, list[str]]) -> Json:
        fitting = [d for d in self.server.devices if query.get("role", [_role(d)]) == [_role(d)]]
        limit = min(int(query["limit"][0]), self.server.page)
        offset = int(query.get("offset", ["0"])[0])
        count = len(fitting) + (offset == self.server.count_grows_at)
        following = None
        if offset + limit < len(fitting):
            host = self.server.next_host or self.headers["Host"]
            kept = {key: values[0] for key, values in query.items()} | {"limit": limit, "offset": offset + limit}
            following = f"http://{host}/netbox/api/dcim/devices/?{urlencode(kept)}"
        return {"count": count, "next": following, "previous": None, "results": fitting[offset : offset + limit]}

    def _answer(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        content = body.encode()
        self.send_response(status)
        for key, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Silence: the tests look at `asked`."""


def _role(device: Json) -> str:
    role = device.get("role")
    return str(role.get("slug")) if isinstance(role, dict) else ""


def device(number: int, **more: object) -> Json:
    """A GPU node as NetBox 4 lists it, cut to what matters and a little of what does not."""
    name = f"gpu-{number:04d}"
    return {
        "id": number,
        "url": f"https://netbox.lab/api/dcim/devices/{number}/",
        "display_url": f"https://netbox.lab/dcim/devices/{number}/",
        "display": name,
        "name": name,
        "device_type": {"id": 4, "manufacturer": {"name": "NVIDIA"}, "model": "HGX-H100-8", "slug": "hgx-h100-8"},
        "role": {"id": 2, "name": "GPU node", "slug": "gpu-node"},
        "serial": f"SN-{number}",
        "site": {"id": 1, "name": "Hall 2", "slug": "hall-2"},
        "rack": {"id": 7, "name": "r02"},
        "position": float(number),
        "face": {"value": "front", "label": "Front"},
        "status": {"value": "active", "label": "Active"},
        "primary_ip4": {"id": 9, "family": {"value": 4}, "address": f"10.1.0.{number}/24"},
        "oob_ip": {"id": 10, "address": f"10.0.0.{number}/24"},
        "tags": [{"id": 1, "name": "pool:train", "slug": "pool-train"}, {"id": 2, "name": "loud", "slug": "loud"}],
        "custom_fields": {"bmc_address": None, "ssh_address": None, "pool": None},
        **more,
    }


@contextmanager
def netbox(devices: list[Json], page: int = 2) -> Iterator[NetBoxFake]:
    """A NetBox that listens until the block ends."""
    server = NetBoxFake(devices, page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
