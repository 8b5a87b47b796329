"""NetBox's REST API: devices are read, page by page; nothing is ever changed there.

Source of the protocol: NetBox's documentation, "REST API overview" (pages by limit and offset, `next` as a URL) and
"Authentication" (`Token` for version 1, `Bearer nbt_…` for version 2 tokens, since 4.5).
"""

from __future__ import annotations

import email.utils
import json
import re
from collections.abc import Sequence
from datetime import UTC
from urllib.parse import parse_qsl, urlsplit

import httpx

from adapters.redfish.answers import read_answer
from adapters.redfish.settings import BmcTls, tls_context
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, NodeUnreachable, TransientError
from fleet.json_values import JsonObject, number_at, objects_at, text_at, value_at
from fleet.ports import Clock

_DEVICES = "/api/dcim/devices/"
_PAGE = 500
_MOST_PAGES = 2_000
_LARGEST_PAGE = 64 * 2**20
_ATTEMPTS = 6
_PATIENCE_SECONDS = 300.0  # one page with all its waits; no further try begins after it
_FIRST_WAIT_SECONDS = 1.0
_PAGE_TIMEOUTS = 4.0  # times the timeout of one read
_TOKEN = re.compile(r"[\x21-\x7e]{8,200}")

Query = tuple[tuple[str, str], ...]


class NetBox:
    """One NetBox. The token is never part of a message; it goes to no other host, whatever the answers say."""

    def __init__(
        self,
        url: str,
        token: str,
        clock: Clock,
        ca: str | None = None,
        timeout_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` is NetBox's own, with its path where it has one. Raises ConfigurationError for a wrong one."""
        self.url = _base(url)
        self._clock = clock
        self._token = token.strip().encode()
        self._page_seconds = _PAGE_TIMEOUTS * timeout_seconds
        headers = {"Accept": "application/json", "User-Agent": "gpufleet", "Authorization": _authorization(token)}
        if transport is None:
            transport = httpx.HTTPTransport(verify=tls_context(BmcTls(ca=ca)), trust_env=False)
        self._client = httpx.Client(headers=headers, timeout=timeout_seconds, transport=transport, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def read_devices(self, filters: Sequence[tuple[str, str]] = ()) -> tuple[JsonObject, ...]:
        """Every device that fits NetBox's own filters (`role`, `site`, `tag`, `status` …), complete or not at all.

        Raises CredentialsRejected, ConfigurationError (no NetBox there, an unknown filter), NodeUnreachable, and
        TransientError where it keeps asking for patience or the list changed while it was read.
        """
        query: Query = (*filters, ("limit", str(_PAGE)))
        found: dict[str, JsonObject] = {}
        asked: set[Query] = set()
        count: float | None = None
        while query not in asked and len(asked) < _MOST_PAGES:
            asked.add(query)
            page = self._page(query)
            total = number_at(page, "count")
            if total is None or not isinstance(value_at(page, "results"), list):
                raise ConfigurationError(f"{self.url}{_DEVICES} answers, and not as NetBox does; check the URL")
            if count is not None and total != count:
                break
            count = total
            for device in objects_at(page, "results"):
                found[json.dumps(value_at(device, "id"), sort_keys=True)] = device
            following = text_at(page, "next")
            if following is None:
                if len(found) == count:
                    return tuple(found.values())
                break
            query = tuple(parse_qsl(urlsplit(following).query, keep_blank_values=True))  # its host is not trusted
        raise TransientError(
            f"NetBox's list changed while it was read ({len(found)} of {count or 0:.0f} devices); run it again"
        )

    def _page(self, query: Query) -> JsonObject:
        """One page; waits and asks again where NetBox wants patience."""
        began = self._clock.monotonic()
        for attempt in range(_ATTEMPTS):
            answer = self._ask(query)
            if isinstance(answer, httpx.Response) and answer.status_code != 429 and answer.status_code < 500:
                return self._read(answer)
            wait = _retry_after(answer, self._clock) if isinstance(answer, httpx.Response) else None
            wait = min(_FIRST_WAIT_SECONDS * 2**attempt, 30.0) if wait is None else wait
            if attempt == _ATTEMPTS - 1 or self._clock.monotonic() - began + wait > _PATIENCE_SECONDS:
                raise self._gave_up(answer, wait)
            self._clock.sleep(wait)
        raise AssertionError("the last turn returns or raises")

    def _ask(self, query: Query) -> httpx.Response | httpx.RequestError:
        deadline = self._clock.monotonic() + self._page_seconds
        try:
            with self._client.stream("GET", self.url + _DEVICES, params=query) as response:
                content = bytearray()
                for part in response.iter_bytes():
                    content += part
                    if len(content) > _LARGEST_PAGE:
                        raise ConfigurationError(f"NetBox sends a page of more than {_LARGEST_PAGE >> 20} MiB")
                    if self._clock.monotonic() > deadline:
                        raise httpx.ReadTimeout("a page trickles and does not end")
            headers = {key: value for key, value in response.headers.items() if key != "content-encoding"}
            told = bytes(content).replace(self._token, b"(the token)")  # a proxy's error page may repeat what was sent
            return httpx.Response(response.status_code, headers=headers, content=told)
        except httpx.RequestError as error:
            return error

    def _read(self, response: httpx.Response) -> JsonObject:
        answer = read_answer(response, response.content)
        if answer.status in (401, 403):
            raise CredentialsRejected(f"NetBox refuses the token (HTTP {answer.status}{_detail(answer.body)})")
        if 300 <= answer.status < 400:
            where = (answer.location or "").partition("?")[0]
            raise ConfigurationError(f"{self.url} points to {where}; give that address if you trust it with the token")
        if answer.status == 404:
            raise ConfigurationError(f"no NetBox at {self.url}: {_DEVICES} is not there")
        if answer.status >= 400:
            raise ConfigurationError(f"NetBox refuses the query (HTTP {answer.status}{_detail(answer.body)})")
        if answer.body is None:
            raise ConfigurationError(f"{self.url}{_DEVICES} answers with no JSON object; check the URL")
        return answer.body

    def _gave_up(self, answer: httpx.Response | httpx.RequestError, wait: float) -> FleetError:
        if isinstance(answer, httpx.Response):
            return TransientError(f"NetBox asks to wait (HTTP {answer.status_code}, {wait:.0f} s more); try later")
        return NodeUnreachable(f"NetBox at {self.url}: no answer ({type(answer).__name__}: {answer})")


def _base(url: str) -> str:
    """The URL without a trailing slash or /api. Raises ConfigurationError; credentials in it are not repeated."""
    if "@" in url:
        raise ConfigurationError("NetBox's URL must not hold credentials; the token is given apart from it")
    try:
        parts = urlsplit(url.strip())
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or parts.query or parts.fragment:
        raise ConfigurationError(f"{url!r} is not NetBox's URL; write https://HOST")
    return f"{parts.scheme}://{parts.netloc}{re.sub(r'/api$', '', parts.path.rstrip('/'))}"


def _authorization(token: str) -> str:
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError("the NetBox token is none: empty, too short, or with blanks in it")
    return f"Bearer {token}" if token.startswith("nbt_") else f"Token {token}"


def _retry_after(response: httpx.Response, clock: Clock) -> float | None:
    """Seconds to wait, from a number or a date; None where it does not say."""
    said = response.headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", said):
        return float(said)
    try:
        moment = email.utils.parsedate_to_datetime(said)
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - clock.now()).total_seconds())


def _detail(body: JsonObject | None) -> str:
    """What NetBox says beside the status: `detail`, or the messages by field."""
    if not body:
        return ""
    said = text_at(body, "detail") or json.dumps(body, ensure_ascii=False)
    return f": {said[:300]}"
