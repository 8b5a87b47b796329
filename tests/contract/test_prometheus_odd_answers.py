"""Whatever a server answers, it is series or one of our errors."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx
from hypothesis import given
from hypothesis import strategies as st

from adapters.clock import SystemClock
from adapters.prometheus import Prometheus
from fleet.errors import FleetError
from fleet.metrics_port import MetricsAnswer

NOW = datetime(2026, 11, 30, tzinfo=UTC)
KEYS = ("status", "data", "result", "resultType", "metric", "values", "value", "warnings", "error", "errorType", "x")
WORDS = ("success", "error", "matrix", "vector", "scalar", "string", "timeout", "execution", "NaN", "+Inf", "1e999", "")
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text(max_size=5))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)),
    max_leaves=25,
)
RESULTS = st.fixed_dictionaries(
    {"resultType": st.sampled_from(("matrix", "vector", "scalar", "string")), "result": TREES}
)
BODIES = st.one_of(
    TREES.map(json.dumps),
    st.fixed_dictionaries({"status": st.just("success"), "data": RESULTS}).map(json.dumps),
    st.text(max_size=40),
)


def ask(status: int, content: bytes) -> None:
    """Every kind of question once; a FleetError is an answer too."""
    client = Prometheus(
        "https://m",
        SystemClock(),
        transport=httpx.MockTransport(lambda _: httpx.Response(status, content=content, headers={"Retry-After": "0"})),
    )
    with suppress(FleetError):
        answer = client.read_range("m", NOW, NOW + timedelta(minutes=5), timedelta(minutes=1))
        assert isinstance(answer, MetricsAnswer)
        assert all(len(series.times) == len(series.values) for series in answer.series)
        assert all(list(series.times) == sorted(series.times) for series in answer.series)
    with suppress(FleetError):
        client.read_series(["m"], NOW, NOW)
    with suppress(FleetError):
        client.read_names(["m"], NOW, NOW)
    client.close()


@given(BODIES)
def test_an_odd_body_of_success_breaks_nothing(body: str) -> None:
    ask(200, body.encode("utf-8", "surrogatepass"))


@given(st.sampled_from([204, 301, 400, 401, 404, 418, 422, 429, 500, 503, 599]), BODIES)
def test_an_odd_refusal_breaks_nothing(status: int, body: str) -> None:
    ask(status, body.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=60))
def test_bytes_that_are_no_text_break_nothing(content: bytes) -> None:
    ask(200, content)
