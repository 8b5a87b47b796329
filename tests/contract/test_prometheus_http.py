"""A metrics server that fails is an error, never an empty answer; and nobody sees its credentials."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from urllib.parse import parse_qs

import httpx
import pytest

from adapters.prometheus import Prometheus, PrometheusAccess
from adapters.prometheus_answers import TimedOut, TooMuch
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, NodeUnreachable, TransientError

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TOKEN = "glsa_0123456789abcdef"
URL = "https://metrics.example:9090/prom"
Handler = Callable[[httpx.Request], httpx.Response]


class Sleeper:
    """A clock that only remembers for how long somebody slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def client(handler: Handler, clock: Sleeper | None = None, access: PrometheusAccess | None = None) -> Prometheus:
    entered = access or PrometheusAccess(bearer=TOKEN)
    return Prometheus(URL, clock or Sleeper(), entered, transport=httpx.MockTransport(handler))


def always(status: int, body: object, **headers: str) -> Handler:
    content = body if isinstance(body, str) else json.dumps(body)
    kind = {"Content-Type": "text/plain" if isinstance(body, str) else "application/json"}
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return lambda _: httpx.Response(status, content=content.encode(), headers={**kind, **named})


def success(data: object, **beside: object) -> dict[str, object]:
    return {"status": "success", "data": data, **beside}


def vector(*values: str) -> dict[str, object]:
    result = [{"metric": {"gpu": str(n)}, "value": [1764504000, value]} for n, value in enumerate(values)]
    return {"resultType": "vector", "result": result}


def failure(kind: str, words: str) -> dict[str, object]:
    return {"status": "error", "errorType": kind, "error": words}


def error_of(handler: Handler, clock: Sleeper | None = None) -> FleetError:
    with pytest.raises(FleetError) as caught:
        client(handler, clock).read_instant("up", NOW)
    shown = f"{caught.value!r} {caught.value} {caught.value.evidence} {caught.value.__cause__!r}"
    assert TOKEN not in shown
    return caught.value


def test_values_come_as_they_were_written() -> None:
    answer = client(always(200, success(vector("1.5", "NaN", "+Inf", "-Inf", "1e300")))).read_instant("m", NOW)
    values = [series.values[0] for series in answer.series]
    assert values[0] == 1.5
    assert values[1] != values[1]
    assert values[2:] == [float("inf"), float("-inf"), 1e300]
    assert not answer.partial


def test_a_query_goes_by_post_with_our_token_and_tenant() -> None:
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return always(200, success(vector()))(request)

    client(handler, access=PrometheusAccess(bearer=TOKEN, tenant="site-a")).read_instant("up", NOW)
    (request,) = asked
    assert str(request.url) == f"{URL}/api/v1/query"
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.headers["X-Scope-OrgID"] == "site-a"
    form = parse_qs(request.content.decode())
    assert form == {"query": ["up"], "time": [f"{NOW.timestamp():.3f}"], "timeout": ["60s"]}


def test_a_proxy_that_takes_no_post_is_asked_by_get_from_then_on() -> None:
    methods: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        return always(405, "")(request) if request.method == "POST" else always(200, success(vector("1")))(request)

    prometheus = client(handler)
    assert prometheus.read_instant("up", NOW).series
    assert prometheus.read_instant("up", NOW).series
    assert methods == ["POST", "GET", "GET"]


def ranges(asked: list[tuple[float, float]], most_points: int = 11_000) -> Handler:
    """A server that answers every range with a point for each step, and takes `most_points` of them."""

    def handler(request: httpx.Request) -> httpx.Response:
        form = parse_qs(request.content.decode())
        start, end, step = (float(form[key][0]) for key in ("start", "end", "step"))
        count = round((end - start) / step) + 1
        if count > most_points:
            words = "exceeded maximum resolution of 11,000 points per timeseries."
            return always(400, failure("bad_data", words))(request)
        asked.append((start, end))
        points = [[start + n * step, str(n)] for n in range(count)]
        return always(200, success({"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": points}]}))(
            request
        )

    return handler


@pytest.mark.parametrize("most_points", [11_000, 3_000, 1])
def test_a_long_range_is_asked_in_pieces_and_comes_as_one_series(most_points: int) -> None:
    asked: list[tuple[float, float]] = []
    count = 25_000 if most_points > 1 else 50
    end = NOW + (count - 1) * timedelta(seconds=15)
    (series,) = client(ranges(asked, most_points)).read_range("m", NOW, end, timedelta(seconds=15)).series
    assert len(series.times) == count
    assert list(series.times) == [NOW.timestamp() + 15 * n for n in range(count)]
    assert all(before[1] + 15 == after[0] for before, after in pairwise(asked))


def test_a_range_that_ends_before_it_begins_has_no_points() -> None:
    assert client(ranges([])).read_range("m", NOW, NOW - timedelta(1), timedelta(1)).series == ()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, "no", CredentialsRejected),
        (403, f"token {TOKEN} is not known", CredentialsRejected),
        (302, "", ConfigurationError),
        (404, "404 page not found", ConfigurationError),
        (400, failure("bad_data", "1:5: parse error: unexpected end of input"), ConfigurationError),
        (422, failure("execution", "found duplicate series for the match group"), ConfigurationError),
        (422, failure("execution", "query processing would load too many samples into memory"), TooMuch),
        (400, failure("bad_data", "exceeded maximum resolution of 11,000 points per timeseries"), TooMuch),
        (422, failure("execution", "expanding series: proxy Series(): No StoreAPIs matched"), TransientError),
        (422, failure("execution", "rpc error: code = Unavailable desc = connection refused"), TransientError),
        (503, failure("timeout", "query timed out in expression evaluation"), TimedOut),
        (503, "Service Unavailable", TransientError),
        (500, failure("internal", "something broke"), TransientError),
        (429, failure("too_many_requests", "rate limit"), TransientError),
        (200, failure("execution", "something"), ConfigurationError),
        (200, "<html>Sign in</html>", ConfigurationError),
        (200, '{"status":"success","data":{"resultType":"vector","resu', TransientError),
        (200, {"status": "success", "data": "yes"}, ConfigurationError),
        (200, [], TransientError),
    ],
)
def test_every_refusal_has_its_error(status: int, body: object, kind: type[FleetError]) -> None:
    assert type(error_of(always(status, body))) is kind


def test_a_server_that_asks_for_patience_is_asked_again() -> None:
    clock, answers = Sleeper(), [always(503, "starting", Retry_After="7"), always(200, success(vector("1")))]
    assert client(lambda request: answers.pop(0)(request), clock).read_instant("up", NOW).series
    assert clock.slept == [7.0]


def test_a_server_that_never_recovers_is_given_up_within_a_bound() -> None:
    clock = Sleeper()
    assert isinstance(error_of(always(503, "Service Unavailable"), clock), TransientError)
    assert 0 < sum(clock.slept) <= 300


def test_a_server_that_does_not_answer_is_no_empty_answer() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"refused {TOKEN}", request=request)

    assert isinstance(error_of(handler), NodeUnreachable)


def test_a_wrong_certificate_is_for_a_person_to_mend_and_not_tried_again() -> None:
    clock = Sleeper()

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", request=request)

    assert isinstance(error_of(handler, clock), ConfigurationError)
    assert clock.slept == []


def test_the_password_is_not_shown_in_any_form() -> None:
    access = PrometheusAccess(user="reader", password="pa:ss word")
    echo = "cmVhZGVyOnBhOnNzIHdvcmQ= pa%3Ass%20word pa:ss word"
    with pytest.raises(CredentialsRejected) as caught:
        client(always(401, echo), access=access).read_instant("up", NOW)
    assert "word" not in str(caught.value)
    assert "cmVh" not in str(caught.value)
    assert "pa:ss" not in repr(access)


@pytest.mark.parametrize(
    "beside",
    [
        {"warnings": ["store 10.0.0.7:10901: rpc error: deadline exceeded"]},
        {"isPartial": True},
        {"warnings": ["results truncated due to limit"]},
    ],
)
def test_a_part_that_did_not_answer_is_told(beside: dict[str, object]) -> None:
    answer = client(always(200, success(vector("1"), **beside))).read_instant("up", NOW)
    assert answer.partial
    assert answer.warnings


def test_words_of_the_engine_on_the_query_do_not_make_an_answer_partial() -> None:
    beside = {"warnings": ["PromQL warning: quantile value 2"], "infos": ['PromQL info: "m" might not be a counter']}
    answer = client(always(200, success(vector("1"), **beside))).read_instant("up", NOW)
    assert not answer.partial
    assert answer.warnings == ("PromQL warning: quantile value 2",)
    assert answer.infos == ('PromQL info: "m" might not be a counter',)


def test_one_partial_piece_makes_the_range_partial() -> None:
    pieces = [success({"resultType": "matrix", "result": []}), success({"resultType": "matrix", "result": []})]
    pieces[1]["warnings"] = ["a store is gone"]
    prometheus = client(lambda request: always(200, pieces.pop(0))(request))
    answer = prometheus.read_range("m", NOW, NOW + timedelta(seconds=15_000), timedelta(seconds=1))
    assert answer.partial


def test_odd_points_are_left_out_and_nothing_breaks() -> None:
    points = [[1, "2"], [2], "x", [None, "3"], [3, None], ["4", "5"], [float("1e999"), "1"], {"a": 1}, [5, True]]
    result = [{"metric": {"a": "b", "c": 7}, "values": points}, {"metric": None}, 7, {"histograms": [[1, {}]]}]
    answer = client(always(200, success({"resultType": "matrix", "result": result}))).read_instant("m", NOW)
    assert answer.series[0].labels == {"a": "b"}
    assert list(answer.series[0].times) == [1.0, 4.0, 5.0]
    assert [len(series.times) for series in answer.series[1:]] == [0, 0, 0]


def test_names_of_a_partial_answer_are_not_all_names() -> None:
    whole = client(always(200, success(["up", "DCGM_FI_DEV_SM_CLOCK"])))
    assert whole.read_names(["{a='b'}"], NOW, NOW) == {"up", "DCGM_FI_DEV_SM_CLOCK"}
    part = client(always(200, success(["up"], warnings=["a store is gone"])))
    assert part.read_names(["{a='b'}"], NOW, NOW) is None


def test_an_empty_result_may_be_written_as_null_and_an_answer_without_a_result_is_none() -> None:
    assert client(always(200, success({"resultType": "matrix", "result": None}))).read_instant("m", NOW).series == ()
    assert client(always(200, success(None))).read_names(["m"], NOW, NOW) == frozenset()
    assert isinstance(error_of(always(200, success(None))), ConfigurationError)


def test_series_come_as_label_sets() -> None:
    labels = {"__name__": "up", "instance": "gpu001:9400"}
    answer = client(always(200, success([labels]))).read_series(["up"], NOW, NOW)
    assert [series.labels for series in answer.series] == [labels]


@pytest.mark.parametrize("url", ["ftp://a", "metrics:9090", "https://user:pw@host", "https://h?x=1", "https://h:0", ""])
def test_what_is_no_url_of_a_server_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Prometheus(url, Sleeper())
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("given", [f"{URL}/", f"{URL}/api/v1", f"{URL}/api/v1/", URL])
def test_the_api_path_may_be_given_or_not(given: str) -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return always(200, success(vector()))(request)

    Prometheus(given, Sleeper(), transport=httpx.MockTransport(handler)).read_instant("up", NOW)
    assert asked == [f"{URL}/api/v1/query"]


@pytest.mark.parametrize("token", ["", "  ", "two words", "with\nnewline"])
def test_what_is_no_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Prometheus(URL, Sleeper(), PrometheusAccess(bearer=token))
    assert "words" not in str(caught.value)
