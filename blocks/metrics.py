"""A fleet's metrics server as a ready client, and what a canary reads from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from adapters.prometheus import Prometheus, PrometheusAccess
from adapters.redfish.settings import BmcTls
from adapters.references import read_secret
from fleet.config import SecretRef
from fleet.errors import TransientError
from fleet.metrics_port import Metrics, MetricsAnswer, joined
from fleet.metrics_settings import MetricsSecret, MetricsSettings
from fleet.ports import Clock
from fleet.series import PhaseWindow, SeriesReading, read_samples
from fleet.series_catalog import UTILISATION, SeriesRule, rules_for, with_conditions
from fleet.series_labels import NodeNames, last_value_query, narrowed, node_of, selectors_for

_NODES_AT_ONCE = 32  # times 8 GPUs, a day and a point a minute: 370,000 points in one answer
_NODES_IN_A_URL = 12  # names are asked for by GET, and proxies cut long addresses
_SENSOR_SECONDS = 300.0  # sensors are scraped more seldom than GPUs


def open_metrics(settings: MetricsSettings, folder: Path, clock: Clock) -> closing[Prometheus]:
    """The client of the fleet file's `metrics`, closed at the end of the `with` block.

    `folder` is the fleet file's. Raises ConfigurationError for a secret or a CA that is not there.
    """
    access = PrometheusAccess(
        bearer=_secret(settings.bearer, folder, "metrics.bearer"),
        user=settings.user,
        password=_secret(settings.password, folder, "metrics.password"),
        tenant=settings.tenant,
    )
    ca = None if settings.tls.ca is None else str(folder / settings.tls.ca)
    tls = BmcTls(settings.tls.verify, ca)
    return closing(Prometheus(settings.url, clock, access, tls, settings.timeout_seconds))


def read_series_samples(
    metrics: Metrics,
    settings: MetricsSettings,
    rules: Iterable[SeriesRule],
    nodes: Sequence[str],
    windows: Sequence[PhaseWindow],
) -> SeriesReading:
    """The samples of these measures on these nodes in these windows, with their conditions.

    Raises what `Metrics` says: a server that cannot be asked is no missing series.
    """
    rules = tuple(rules)
    asker = _Asker(metrics, settings, NodeNames(tuple(nodes), settings.names), windows)
    wanted = dict.fromkeys(name.name for rule in with_conditions(rules) for name in rule.names)
    there = asker.read_names() if windows else None
    answers = {metric: asker.read(metric) for metric in wanted if there is None or metric in there}
    inlet = asker.read_inlet(settings.inlet) if settings.inlet is not None else MetricsAnswer()
    warnings = dict.fromkeys(
        warning for answer in (*answers.values(), inlet) if answer.partial for warning in answer.warnings
    )
    by_name = {metric: answer.series for metric, answer in answers.items()}
    return read_samples(rules, by_name, asker.names, windows, settings, inlet.series, tuple(warnings))


def read_present_rules(
    metrics: Metrics, settings: MetricsSettings, rules: Iterable[SeriesRule], nodes: Sequence[str], window: PhaseWindow
) -> tuple[SeriesRule, ...]:
    """Those of the rules that can be read: their metric is exported, and where they need it, the utilisation too.

    Raises what `Metrics` says, and TransientError where a part of the server did not answer.
    """
    asker = _Asker(metrics, settings, NodeNames(tuple(nodes), settings.names), (window,))
    there = asker.read_names()
    if there is None:
        raise TransientError("the metrics server's list of metrics is not whole")
    (utilisation,) = rules_for([UTILISATION])
    known = _has(utilisation, there)
    return tuple(rule for rule in rules if _has(rule, there) and (known or not rule.busy_only))


def read_nodes_seen(
    metrics: Metrics, settings: MetricsSettings, nodes: Sequence[str], window: PhaseWindow
) -> frozenset[str]:
    """The nodes of which the server has any series of a GPU in the window.

    Raises what `Metrics` says, and TransientError where a part of the server did not answer.
    """
    asker = _Asker(metrics, settings, NodeNames(tuple(nodes), settings.names), (window,))
    found: set[str | None] = set()
    for selectors in asker.by_nodes(""):
        fitting = tuple(narrowed(selector, '__name__=~"DCGM_FI_.*"') for selector in selectors)
        answer = metrics.read_series(fitting, window.start, window.end)
        if answer.partial:
            raise TransientError(f"the metrics server's list of series is not whole: {answer.warnings[0]}")
        found |= {node_of(one.labels, asker.names, settings.labels) for one in answer.series}
    return frozenset(node for node in found if node is not None)


class _Asker:
    """Asks for the points of a few nodes, one window and one metric at a time."""

    def __init__(
        self, metrics: Metrics, settings: MetricsSettings, names: NodeNames, windows: Sequence[PhaseWindow]
    ) -> None:
        self.names = names
        self._metrics = metrics
        self._settings = settings
        self._windows = windows

    def by_nodes(self, metric: str, at_once: int = _NODES_AT_ONCE) -> Iterator[tuple[str, ...]]:
        """Selectors of the metric for some nodes after the other."""
        nodes, settings = self.names.nodes, self._settings
        for first in range(0, len(nodes), at_once):
            some = nodes[first : first + at_once]
            yield selectors_for(metric, some, self.names, settings.labels, settings.matchers)

    def read_names(self) -> frozenset[str] | None:
        """The metrics that the nodes have at all; None where the server could not tell all of them."""
        start, end = min(one.start for one in self._windows), max(one.end for one in self._windows)
        found: set[str] = set()
        for selectors in self.by_nodes("", _NODES_IN_A_URL):
            names = self._metrics.read_names(selectors, start, end)
            if names is None:
                return None
            found |= names
        return frozenset(found)

    def read(self, metric: str) -> MetricsAnswer:
        """The metric's points in every window."""
        return self._ranges(self.by_nodes(metric), self._settings.step_seconds)

    def read_inlet(self, selector: str) -> MetricsAnswer:
        """The points of a person's selector, which keeps its own matchers, on our nodes."""
        metric, _, matchers = selector.partition("{")
        own = matchers.rstrip("}").strip().rstrip(",")
        ours = (tuple(narrowed(one, own) for one in selectors) for selectors in self.by_nodes(metric))
        return self._ranges(ours, max(self._settings.step_seconds, _SENSOR_SECONDS))

    def _ranges(self, by_nodes: Iterable[tuple[str, ...]], seconds: float) -> MetricsAnswer:
        """The last points of each step. The first step begins with the window, so that nothing older is in it."""
        step = self._settings.step
        return joined(
            self._metrics.read_range(last_value_query(selectors, seconds), window.start + step, window.end, step)
            for selectors in by_nodes
            for window in self._windows
        )


def _has(rule: SeriesRule, names: frozenset[str]) -> bool:
    return any(name.name in names for name in rule.names)


def _secret(ref: MetricsSecret | None, folder: Path, what: str) -> str | None:
    return None if ref is None else read_secret(SecretRef(env=ref.env, file=ref.file), folder, what)
