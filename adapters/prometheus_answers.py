"""From an HTTP answer of a metrics server, or its silence, to series or to one of our errors: decided here only."""

from __future__ import annotations

import base64
import email.utils
import json
import math
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from urllib.parse import quote, urlsplit

import httpx

from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, NodeUnreachable, TransientError
from fleet.json_values import JsonObject, flag_at, printable, text_at, texts_at, value_at
from fleet.metrics_port import MetricsAnswer, Series, pointed
from fleet.ports import Clock

_SHOWN = 300
_PATIENCE = frozenset({408, 425, 429, 500, 502, 503, 504})
# Words with which servers say that a shorter time would be answered: Prometheus, Thanos, Mimir, VictoriaMetrics.
_TOO_MUCH = re.compile(
    r"maximum resolution|too many (?:samples|points|data ?points|chunks|series)|limit of .*points"
    r"|exceed(?:s|ed)? .*limit|query (?:time range|length) exceeds|would load too many|response size"
    r"|max(?:imum)? (?:number of )?(?:fetched )?(?:samples|points|chunks|series|query)"
    r"|result .*too large|larger than max",
    re.IGNORECASE,
)
# What a server that asks others says when one of these does not answer.
_STORES = re.compile(
    r"store ?api|rpc error|deadline exceeded|context canceled|connection re|unavailable|no such host|i/o timeout"
    r"|ingester|store-?gateway|broken pipe|EOF",
    re.IGNORECASE,
)
_ENGINE = re.compile(r"^PromQL (?:warning|info)", re.IGNORECASE)  # words on the query, not on its data


class TooMuch(ConfigurationError):
    """The answer would be larger than the server or we take: ask for less time."""


class TimedOut(TransientError):
    """The query took too long: a shorter time may be answered."""


@dataclass(frozen=True)
class Asked:
    """Whom we ask, and as whom. Raises ConfigurationError for what is no server's URL or no credential."""

    given: str
    bearer: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if "@" in self.given:
            raise ConfigurationError("a metrics server's URL must not hold credentials; they are given apart from it")
        for secret in (self.bearer, self.password):
            if secret is not None and not (secret.strip() and secret.isprintable()):
                raise ConfigurationError("a metrics server's credential is empty or holds what no header can")
        if self.bearer is not None and not re.fullmatch(r"[\x21-\x7e]+", self.bearer.strip()):
            raise ConfigurationError("a metrics server's bearer token has blanks in it, or marks that no token has")
        try:
            parts = urlsplit(self.given.strip())
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            right = False
        if not right or parts.query or parts.fragment:
            raise ConfigurationError(f"{self.given!r} is not a metrics server's URL; write https://HOST:PORT")

    @property
    def url(self) -> str:
        """Without a trailing slash or /api/v1."""
        parts = urlsplit(self.given.strip())
        path = re.sub(r"/api(/v1)?$", "", parts.path.rstrip("/"))
        return f"{parts.scheme}://{parts.netloc}{path}"

    @property
    def authorization(self) -> str | None:
        """The header that enters the server."""
        if self.bearer is not None:
            return f"Bearer {self.bearer.strip()}"
        return None if self.user is None else f"Basic {self._basic}"

    @property
    def _basic(self) -> str:
        return base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def hide(self, text: str) -> str:
        """The text without our secrets, for a server or a proxy that repeats what it was sent; one line, not long."""
        secrets = [secret.strip() for secret in (self.bearer, self.password) if secret]
        secrets += [quote(secret, safe="") for secret in secrets]
        if self.user is not None:
            secrets.append(self._basic)
        for secret in sorted(set(secrets), key=len, reverse=True):
            text = text.replace(secret, "(the secret)")
        return " ".join(str(printable(text)).split())[:_SHOWN]


@dataclass(frozen=True, slots=True)
class Read:
    """What an answer held: series, or the texts of a list."""

    answer: MetricsAnswer
    values: tuple[str, ...] = ()


def read_answer(response: httpx.Response, asked: Asked, listed: bool = False) -> Read:
    """Read an answer of success. Raises as `error_of` where it says that it is an error.

    `listed`: it is a list, of texts or label sets, and not a query's result. An empty one may be written as null.
    """
    body = _body(response)
    if body is None:
        raise _unreadable(response, asked)
    if value_at(body, "status") != "success":
        raise error_of(response, asked)
    data = value_at(body, "data")
    warnings = tuple(asked.hide(text) for text in texts_at(body, "warnings"))
    infos = tuple(asked.hide(text) for text in texts_at(body, "infos"))
    partial = flag_at(body, "isPartial") is True or any(not _ENGINE.match(text) for text in warnings)
    if flag_at(body, "isPartial") is True and not warnings:
        warnings = ("a part of the server did not answer",)
    inner = data if listed else value_at(data, "result")
    whole = listed or value_at(data, "resultType") in ("matrix", "vector", "scalar", "string")
    if not whole or not isinstance(inner, list | None):
        raise ConfigurationError(f"{asked.url} answers, and not as a metrics server does; check the URL")
    series = tuple(_label_sets(inner or []) if listed else _series(data))
    texts = tuple(text for text in inner or [] if isinstance(text, str)) if listed else ()
    return Read(MetricsAnswer(series, warnings, infos, partial), texts)


def _label_sets(listed: list[object]) -> Iterator[Series]:
    return (Series(_labels(labels), (), ()) for labels in listed if isinstance(labels, Mapping))


def _series(data: object) -> Iterator[Series]:
    """The series of a query's `data`; of a scalar one without labels, of a text none."""
    result, kind = value_at(data, "result"), value_at(data, "resultType")
    if not isinstance(result, list):
        return
    if kind == "scalar":
        yield pointed({}, _points([result]))
        return
    for one in result if kind in ("matrix", "vector") else ():
        points, single = value_at(one, "values"), value_at(one, "value")
        listed = points if isinstance(points, list) else [] if single is None else [single]
        labels = value_at(one, "metric")
        yield pointed(_labels(labels) if isinstance(labels, Mapping) else {}, _points(listed))


def _points(listed: list[object]) -> Iterator[tuple[float, float]]:
    return (point for point in map(_point, listed) if point is not None)


def _labels(labels: Mapping[object, object]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if isinstance(key, str) and isinstance(value, str)}


def _point(point: object) -> tuple[float, float] | None:
    """A time and a value; None for what is neither. Values are texts: "NaN", "+Inf", "1.5e9"."""
    if not isinstance(point, list) or len(point) != 2:
        return None
    try:
        time, value = float(point[0]), float(point[1])
    except (TypeError, ValueError, OverflowError):
        return None
    return (time, value) if math.isfinite(time) else None


def is_patience(answer: httpx.Response | httpx.HTTPError) -> bool:
    """May the same request be answered a little later?"""
    if isinstance(answer, httpx.Response):
        return answer.status_code in _PATIENCE and not _timed_out(answer)
    return isinstance(answer, httpx.TransportError) and not isinstance(answer, httpx.ReadTimeout) and not _tls(answer)


def error_of(answer: httpx.Response | httpx.HTTPError, asked: Asked) -> FleetError:
    """The error of an answer that is none. Never "no data"."""
    if not isinstance(answer, httpx.Response):
        return _silence(answer, asked)
    status, kind, said = answer.status_code, _kind(answer), _said(answer, asked)
    message, evidence = f"{asked.url}: HTTP {status}" + (f", {said}" if said else ""), (said,) if said else ()
    if status in (401, 403):
        return CredentialsRejected(f"the metrics server refuses the credentials ({message})", evidence=evidence)
    if 300 <= status < 400:
        where = asked.hide(answer.headers.get("Location", "").partition("?")[0])
        return ConfigurationError(f"{asked.url} points to {where or 'elsewhere'}; give that address if you trust it")
    if _TOO_MUCH.search(said) and status not in (404, 429):
        return TooMuch(f"the metrics server will not answer so much at once ({message})", evidence=evidence)
    if _timed_out(answer):
        return TimedOut(f"the query took longer than the metrics server allows ({message})", evidence=evidence)
    if status in _PATIENCE or kind in ("unavailable", "internal", "canceled") or status > 500:
        return TransientError(f"the metrics server cannot answer now ({message}); try later", evidence=evidence)
    if kind == "execution" and _STORES.search(said):
        return TransientError(f"a store of the metrics server does not answer ({message})", evidence=evidence)
    if status == 404:
        return ConfigurationError(f"no metrics server at {asked.url}: /api/v1 is not there", evidence=evidence)
    return ConfigurationError(f"the metrics server does not take the query ({message})", evidence=evidence)


def retry_after(response: httpx.Response, clock: Clock) -> float | None:
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


def _silence(error: httpx.HTTPError, asked: Asked) -> FleetError:
    told = asked.hide(f"{type(error).__name__}: {error}")
    if isinstance(error, httpx.ReadTimeout):
        return TimedOut(f"{asked.url}: the query was not answered in time ({told})")
    if _tls(error) or isinstance(error, httpx.UnsupportedProtocol):
        return ConfigurationError(f"{asked.url}: its certificate or address is not right ({told}); see metrics.tls")
    return NodeUnreachable(f"the metrics server at {asked.url} does not answer ({told})")


def _tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _unreadable(response: httpx.Response, asked: Asked) -> FleetError:
    """A login page in the way is for a person to mend; a text that breaks off may come whole the next time."""
    if "json" in response.headers.get("Content-Type", "").lower() or response.content[:1] == b"{":
        return TransientError(f"the answer of {asked.url} breaks off or is no JSON")
    return ConfigurationError(f"{asked.url} answers with no JSON: a login page or another server; check the URL")


def _body(response: httpx.Response) -> JsonObject | None:
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, Mapping) else None


def _kind(response: httpx.Response) -> str:
    return text_at(_body(response), "errorType") or ""


def _timed_out(response: httpx.Response) -> bool:
    return _kind(response) == "timeout"


def _said(response: httpx.Response, asked: Asked) -> str:
    """What the server says beside the status: its error, else the beginning of a plain text."""
    body = _body(response)
    if body is not None:
        return asked.hide(text_at(body, "error") or text_at(body, "message") or "")
    if "html" in response.headers.get("Content-Type", "").lower() or response.content.lstrip()[:1] == b"<":
        return ""
    return asked.hide(response.content[:1000].decode("utf-8", "replace"))
