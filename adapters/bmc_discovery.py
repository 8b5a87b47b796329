"""BMCs in a range of addresses, found by the Redfish service root, which answers without a login (DSP0266).

Nothing is sent but one GET, so certificates are not verified here: a new BMC has its factory's. The certificate's
digest is kept, so that whoever logs in later can see that it is the same BMC.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx

from adapters.redfish.answers import Answer, read_answer
from adapters.redfish.settings import BmcTls, tls_context
from fleet.hardware import Hardware
from fleet.json_values import JsonObject, object_at, text_at

_ROOT = "/redfish/v1/"
_HEADERS = {"Accept": "application/json", "OData-Version": "4.0", "User-Agent": "gpufleet"}
_LARGEST_ROOT = 2**20


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a range holds, in its order.

    `unclear` are addresses where something answered that is no readable service root, each with what it was: a BMC
    that starts, one that wants a login first, another machine. `silent` counts the addresses without an answer.
    """

    found: tuple[Hardware, ...]
    unclear: tuple[tuple[str, str], ...]
    silent: int


def discover_bmcs(
    addresses: Sequence[str],
    port: int = 443,
    scheme: str = "https",
    concurrency: int = 64,
    timeout_seconds: float = 3.0,
) -> Discovery:
    """Ask every address once; at most `concurrency` at a time, each within `timeout_seconds`.

    Raises nothing for what an address does.
    """
    urls = [_url(scheme, address, port) for address in addresses]
    results = asyncio.run(_ask_all(urls, max(1, concurrency), timeout_seconds))
    found: list[Hardware] = []
    unclear: list[tuple[str, str]] = []
    for url, result in zip(urls, results, strict=True):
        if isinstance(result, Hardware):
            found.append(result)
        elif result is not None:
            unclear.append((url, result))
    return Discovery(tuple(found), tuple(unclear), len(urls) - len(found) - len(unclear))


def resolve_bmcs(urls: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Every URL with the same URLs by address: itself where its host is one, empty where its name is unknown."""
    with ThreadPoolExecutor(max_workers=32) as pool:
        return dict(zip(urls, pool.map(_resolve, urls), strict=True))


def _resolve(url: str) -> tuple[str, ...]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    port = "" if parts.port is None else f":{parts.port}"
    hosts = dict.fromkeys(str(info[4][0]) for info in found)
    return tuple(f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}" for host in hosts)


def _url(scheme: str, address: str, port: int) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}" + ("" if port == {"https": 443, "http": 80}.get(scheme) else f":{port}")


async def _ask_all(urls: Sequence[str], concurrency: int, timeout_seconds: float) -> list[Hardware | str | None]:
    results: list[Hardware | str | None] = [None] * len(urls)
    left = iter(range(len(urls)))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    context = tls_context(BmcTls(verify=False))
    async with httpx.AsyncClient(verify=context, trust_env=False, limits=limits, timeout=timeout_seconds) as client:
        workers = [_work(client, urls, left, results, timeout_seconds) for _ in range(min(concurrency, len(urls)))]
        await asyncio.gather(*workers)
    return results


async def _work(
    client: httpx.AsyncClient,
    urls: Sequence[str],
    left: Iterator[int],
    results: list[Hardware | str | None],
    timeout_seconds: float,
) -> None:
    """Take one address after the other, until none is left."""
    for index in left:
        results[index] = await _look(client, urls[index], timeout_seconds)


async def _look(client: httpx.AsyncClient, url: str, timeout_seconds: float) -> Hardware | str | None:
    """A BMC, what else answered, or None for silence."""
    connected = False

    async def trace(event: str, _: object) -> None:
        nonlocal connected
        connected = connected or event == "connection.connect_tcp.complete"

    ask = client.stream("GET", url + _ROOT, headers=_HEADERS, extensions={"trace": trace})
    try:
        async with asyncio.timeout(timeout_seconds), ask as response:
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > _LARGEST_ROOT:
                    return f"an answer of more than {_LARGEST_ROOT >> 20} MiB"
            certificate = _certificate(response)
    except (httpx.TimeoutException, TimeoutError):
        return f"takes the connection, and says nothing for {timeout_seconds:g} s" if connected else None
    except (httpx.ConnectError, OSError) as error:
        return _why_not(error)
    except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as error:
        return f"no HTTP that is understood ({type(error).__name__})"
    return _judge(url, read_answer(response, bytes(content)), certificate)


def _why_not(error: Exception) -> str | None:
    """None for silence; in words where a name is none, or something answered and spoke no TLS."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return f"a name that cannot be resolved ({cause.strerror})"
        if isinstance(cause, ssl.SSLError):
            return f"no TLS that is understood ({cause.reason or cause})"
        cause = cause.__cause__ or cause.__context__
    return None


def _certificate(response: httpx.Response) -> str | None:
    stream = response.extensions.get("network_stream")
    tls = stream.get_extra_info("ssl_object") if stream is not None else None
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    return hashlib.sha256(der).hexdigest() if der else None


def _judge(url: str, answer: Answer, certificate: str | None) -> Hardware | str:
    if answer.status in (401, 403):
        return f"wants a login before it tells anything (HTTP {answer.status})"
    if answer.status in (429, 503):
        return f"asks to wait (HTTP {answer.status}); a BMC that starts?"
    if answer.status != 200 or answer.body is None:
        return f"no Redfish service (HTTP {answer.status})"
    if not is_service_root(answer.body):
        return "JSON, and no Redfish service root"
    return read_service_root(answer.body, url, certificate)


def is_service_root(body: JsonObject) -> bool:
    """Does this call itself a service root, or has it what every one has?"""
    if re.match(r"#ServiceRoot\.", text_at(body, "@odata.type") or ""):
        return True
    return text_at(body, "RedfishVersion") is not None and bool({"Systems", "Managers", "Chassis"} & set(body))


def read_service_root(body: JsonObject, url: str, certificate: str | None = None) -> Hardware:
    """What a service root tells of its machine.

    Most tell a UUID (the service's own) and a product; Dell's adds the service tag and the manager's MAC address
    under Oem.Dell (seen on iDRAC 9). Everything else needs a login.
    """
    dell = object_at(body, "Oem", "Dell")
    tag = text_at(dell, "ServiceTag")
    mac = text_at(dell, "ManagerMACAddress")
    return Hardware(
        bmc=url,
        serials={"system": tag} if tag else None,
        uuid=text_at(body, "UUID"),
        macs=(mac,) if mac else (),
        vendor=text_at(body, "Vendor") or ("Dell" if dell else None),
        model=text_at(body, "Product"),
        certificate_sha256=certificate,
    )
