"""Prometheus' HTTP API, as Thanos, Mimir and VictoriaMetrics speak it too: queries only; nothing is ever written.

Source of the protocol: Prometheus' documentation, "HTTP API" (`status`, `errorType`, `warnings`, `infos`; 400 for bad
parameters, 422 for what cannot be executed, 503 for a query that timed out; at most 11,000 points of a series in one
answer); VictoriaMetrics' `isPartial`. A query that fails is never an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import httpx

from adapters.prometheus_answers import Asked, Read, TimedOut, TooMuch, error_of, is_patience, read_answer, retry_after
from adapters.redfish.settings import BmcTls, tls_context
from fleet.errors import ConfigurationError
from fleet.metrics_port import MetricsAnswer, joined
from fleet.ports import Clock

_MOST_POINTS = 10_000  # of a series in one answer; Prometheus takes 11,000
_LARGEST_ANSWER = 256 * 2**20
_ATTEMPTS = 4
_PATIENCE_SECONDS = 300.0
_FIRST_WAIT_SECONDS = 1.0

Form = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PrometheusAccess:
    """How the server is entered: a bearer token, or a user with a password, or neither. Secrets show in no text."""

    bearer: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tenant: str | None = None


_NOBODY = PrometheusAccess()
_SYSTEM_STORE = BmcTls()


class Prometheus:
    """One server. Its credentials are never part of a message, and go to no other host whatever it answers."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        access: PrometheusAccess = _NOBODY,
        tls: BmcTls = _SYSTEM_STORE,
        timeout_seconds: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` is the server's own, with its path where it has one. Raises ConfigurationError for a wrong one."""
        self._asked = Asked(url, access.bearer, access.user, access.password)
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._get_only = False
        headers = {"Accept": "application/json", "User-Agent": "gpufleet"}
        if access.tenant is not None:
            headers["X-Scope-OrgID"] = access.tenant
        if self._asked.authorization is not None:
            headers["Authorization"] = self._asked.authorization
        if transport is None:
            transport = httpx.HTTPTransport(verify=tls_context(tls), trust_env=False)
        self._client = httpx.Client(headers=headers, timeout=timeout_seconds, transport=transport, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def read_instant(self, query: str, at: datetime) -> MetricsAnswer:
        """As `Metrics.read_instant`."""
        return self._query("query", (("query", query), ("time", _seconds(at)), self._limit()))

    def read_range(self, query: str, start: datetime, end: datetime, step: timedelta) -> MetricsAnswer:
        """As `Metrics.read_range`; asked in pieces where it has more points than one answer takes."""
        if step <= timedelta(0):
            raise ConfigurationError(f"a step of {step} is none")
        count = (end - start) // step + 1
        if count <= 0:
            return MetricsAnswer()
        return joined(self._pieces(query, start, step, count))

    def read_series(self, selectors: Iterable[str], start: datetime, end: datetime) -> MetricsAnswer:
        """As `Metrics.read_series`."""
        return self._read_list("series", _matching(selectors, start, end), get=False).answer

    def read_names(self, selectors: Iterable[str], start: datetime, end: datetime) -> frozenset[str] | None:
        """As `Metrics.read_names`."""
        read = self._read_list("label/__name__/values", _matching(selectors, start, end), get=True)
        return None if read.answer.partial else frozenset(read.values)

    def _pieces(self, query: str, start: datetime, step: timedelta, count: int) -> Iterator[MetricsAnswer]:
        """The range from `start`, in the largest pieces that the server takes."""
        size = min(count, _MOST_POINTS)
        done = 0
        while done < count:
            points = min(size, count - done)
            first = start + done * step
            try:
                yield self._range(query, first, first + (points - 1) * step, step)
            except (TooMuch, TimedOut):
                if points < 2:
                    raise
                size = points // 2
                continue
            done += points

    def _range(self, query: str, start: datetime, end: datetime, step: timedelta) -> MetricsAnswer:
        times = (("start", _seconds(start)), ("end", _seconds(end)), ("step", f"{step.total_seconds():.3f}"))
        return self._query("query_range", (("query", query), *times, self._limit()))

    def _limit(self) -> tuple[str, str]:
        """The server gives up when we do: a query that nobody waits for still takes its memory."""
        return "timeout", f"{self._timeout_seconds:.0f}s"

    def _query(self, endpoint: str, form: Form) -> MetricsAnswer:
        return read_answer(self._ask(endpoint, form), self._asked).answer

    def _read_list(self, endpoint: str, form: Form, get: bool) -> Read:
        return read_answer(self._ask(endpoint, form, get), self._asked, listed=True)

    def _ask(self, endpoint: str, form: Form, get: bool = False) -> httpx.Response:
        """One request; waits and asks again where the server wants patience. Raises as `Metrics`, and TooMuch."""
        began = self._clock.monotonic()
        for attempt in range(_ATTEMPTS):
            answer = self._send(endpoint, form, get)
            if isinstance(answer, httpx.Response) and answer.is_success:
                return answer
            wait = retry_after(answer, self._clock) if isinstance(answer, httpx.Response) else None
            wait = min(_FIRST_WAIT_SECONDS * 2**attempt, 30.0) if wait is None else wait
            last = attempt == _ATTEMPTS - 1 or self._clock.monotonic() - began + wait > _PATIENCE_SECONDS
            if last or not is_patience(answer):
                raise error_of(answer, self._asked)
            self._clock.sleep(wait)
        raise AssertionError("the last turn returns or raises")

    def _send(self, endpoint: str, form: Form, get: bool) -> httpx.Response | httpx.HTTPError:
        url = f"{self._asked.url}/api/v1/{endpoint}"
        try:
            if get or self._get_only:
                return self._read("GET", url, form)
            answer = self._read("POST", url, form)
            if answer.status_code in (405, 501):  # a proxy that lets only reading through
                self._get_only = True
                return self._read("GET", url, form)
        except httpx.HTTPError as error:
            return error
        return answer

    def _read(self, method: str, url: str, form: Form) -> httpx.Response:
        deadline = self._clock.monotonic() + 2 * self._timeout_seconds
        pairs: list[tuple[str, str | int | float | bool | None]] = list(form)
        encoded = str(httpx.QueryParams(pairs))
        request = (
            self._client.build_request("GET", url, params=pairs)
            if method == "GET"
            else self._client.build_request(
                "POST", url, content=encoded, headers={"Content-Type": "application/x-www-form-urlencoded"}
            )
        )
        response = self._client.send(request, stream=True)
        try:
            content = bytearray()
            for part in response.iter_bytes():
                content += part
                if len(content) > _LARGEST_ANSWER:
                    raise TooMuch(f"the answer of {self._asked.url} has more than {_LARGEST_ANSWER >> 20} MiB")
                if self._clock.monotonic() > deadline:
                    raise httpx.ReadTimeout("an answer trickles and does not end")
        finally:
            response.close()
        headers = {key: value for key, value in response.headers.items() if key != "content-encoding"}
        return httpx.Response(response.status_code, headers=headers, content=bytes(content))


def _matching(selectors: Iterable[str], start: datetime, end: datetime) -> Form:
    return (*(("match[]", selector) for selector in selectors), ("start", _seconds(start)), ("end", _seconds(end)))


def _seconds(moment: datetime) -> str:
    return f"{moment.timestamp():.3f}"
