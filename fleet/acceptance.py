"""The verdict on burn-in: pass, fail or inconclusive, of every node by its tests and of every test by its parts.

Nodes are judged together, because a part is held against its like besides the limits of its model. Nothing passes on
what is not there: a part that must be judged and has no value is inconclusive with the reason, as is a test that was
not run, and a node that nobody looked at afterwards. The rules for one part are those of `fleet.acceptance_judge`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from fleet.acceptance_causes import Usual, usual_of
from fleet.acceptance_cohort import CohortResult, Member, Peer, Standing, compare
from fleet.acceptance_configuration import UsualSettings, setting_findings, usual_settings
from fleet.acceptance_evidence import NodeEvidence, Reading, read_parts, usual_cap, worst_conditions
from fleet.acceptance_judge import Case, judge_findings, judge_part
from fleet.acceptance_limits import Limit, ModelLimits, limits_for
from fleet.acceptance_parts import Part, PartFinding, PartKind, node_part
from fleet.acceptance_rules import STATE, AcceptanceRule, ordered
from fleet.acceptance_settings import AcceptanceSettings
from fleet.acceptance_verdict import AcceptanceVerdict, NodeVerdict, PartVerdict, TestVerdict, worst
from fleet.canary_verdict import Outcome
from fleet.errors import ConfigurationError

DEFAULTS = AcceptanceSettings()


def judge_acceptance(
    nodes: Sequence[NodeEvidence], rules: Iterable[AcceptanceRule], settings: AcceptanceSettings = DEFAULTS
) -> AcceptanceVerdict:
    """Judge every node that is not in service yet by these tests, and by what was found on it in any case.

    `rules` are the tests that had to be run (`settings.rules()` has all that are known by name). Nodes in service lend
    their values to the cohorts. Raises ConfigurationError for a test, or a node, that is there twice.
    """
    planned = ordered([rule for rule in rules if rule.id != STATE.id])
    site = _Site(nodes, settings)
    judged = [node for node in nodes if not node.accepted]
    tests: dict[str, list[TestVerdict]] = {node.node: [_state(site, node)] for node in judged}
    cohorts: dict[tuple[str, str], CohortResult] = {}
    for rule in planned:
        for trial in _trials(site, rule):
            if trial.cohort is not None:
                cohorts[rule.id, trial.name] = trial.cohort
            for node in trial.nodes:
                if not node.accepted:
                    tests[node.node].append(_test(site, trial, node))
    verdicts = (NodeVerdict(node, worst(test.outcome for test in found), tuple(found)) for node, found in tests.items())
    return AcceptanceVerdict(tuple(verdicts), cohorts)


class _Site:
    """What all tests share: each model's usual settings, what must be mended on each node, and the limits."""

    def __init__(self, nodes: Sequence[NodeEvidence], settings: AcceptanceSettings) -> None:
        _check_once(nodes)
        self.nodes, self.settings = tuple(nodes), settings
        self.limits: defaultdict[str, list[Limit]] = defaultdict(list)
        for limit in settings.all_limits():
            self.limits[limit.measure].append(limit)
        models: defaultdict[str, list[NodeEvidence]] = defaultdict(list)
        for node in nodes:
            models[node.sku.name].append(node)
        usual = {
            model: usual_settings(node.settings for node in like if node.settings is not None)
            for model, like in models.items()
        }
        self.state = {node.node: self._state_of(node, usual[node.sku.name]) for node in nodes}

    def _state_of(self, node: NodeEvidence, usual: UsualSettings) -> tuple[PartFinding, ...]:
        return (*(node.state or ()), *setting_findings(node.node, node.settings, node.parts, usual))


@dataclass(frozen=True, slots=True)
class _Trial:
    """One test on all nodes of one product that were measured in one way. `readings` are by node."""

    rule: AcceptanceRule
    name: str
    nodes: tuple[NodeEvidence, ...]
    readings: Mapping[str, tuple[Reading, ...]]
    usual: Usual
    cohort: CohortResult | None = None
    setup: Mapping[str, str] = field(default_factory=dict)


def _trials(site: _Site, rule: AcceptanceRule) -> Iterator[_Trial]:
    models: defaultdict[str, list[NodeEvidence]] = defaultdict(list)
    for node in site.nodes:
        if not node.accepted or node.run(rule.id) is not None:
            models[node.sku.name].append(node)
    for model, like in models.items():
        for setup, nodes in _by_setup(rule, like):
            yield _trial(site, rule, model, dict(setup), nodes)


def _by_setup(
    rule: AcceptanceRule, nodes: Sequence[NodeEvidence]
) -> list[tuple[tuple[tuple[str, str], ...], list[NodeEvidence]]]:
    """Nodes that were measured alike; those without a run are with the most, whose cohort they are missing from."""
    groups: defaultdict[tuple[tuple[str, str], ...], list[NodeEvidence]] = defaultdict(list)
    silent: list[NodeEvidence] = []
    for node in nodes:
        run = node.run(rule.id)
        if run is None or run.not_run:
            silent.append(node)
        else:
            groups[tuple(sorted(run.setup.items()))].append(node)
    if silent:
        most = max(groups, key=lambda setup: len(groups[setup]), default=())
        groups[most] += silent
    return list(groups.items())


def _trial(
    site: _Site, rule: AcceptanceRule, model: str, setup: dict[str, str], nodes: Sequence[NodeEvidence]
) -> _Trial:
    runs = {node.node: node.run(rule.id) for node in nodes}
    values = [value for run in runs.values() if run is not None for value in run.values]
    capped = usual_cap(values)
    readings = {node.node: read_parts(rule, runs[node.node], _due(rule, node), capped) for node in nodes}
    setup = {**site.settings.setup, **setup}
    return _Trial(
        rule=rule,
        name=" ".join((model, *(f"{name}={value}" for name, value in sorted(setup.items())))),
        nodes=tuple(nodes),
        readings=readings,
        usual=usual_of((one.conditions for told in readings.values() for one in told), capped),
        cohort=_cohort(site, rule, nodes, readings),
        setup=setup,
    )


def _due(rule: AcceptanceRule, node: NodeEvidence) -> tuple[Part, ...]:
    """The parts that the test must judge on a node."""
    if rule.kind is PartKind.NODE:
        return (node_part(node.node),)
    return tuple(part for part in node.parts if part.kind is rule.kind)


def _cohort(
    site: _Site, rule: AcceptanceRule, nodes: Sequence[NodeEvidence], readings: Mapping[str, tuple[Reading, ...]]
) -> CohortResult | None:
    """Clean values of parts whose settings are right; a model that is not known has no like."""
    if rule.cohort is None or nodes[0].sku.name == "unknown model":
        return None
    members: list[Member] = []
    missing: list[str] = []
    for node in nodes:
        for reading in readings[node.node]:
            mended = _other_settings(site, rule, reading.part)
            if reading.value is not None and not mended:
                members.append(Member(reading.part, reading.value))
            else:
                missing.append(f"{reading.part}: {reading.why or mended}")
    return compare(members, rule.better, rule.cohort, missing=missing)


def _other_settings(site: _Site, rule: AcceptanceRule, part: Part) -> str:
    """What must be mended on a part (of a node: on any of its) before its values are like the others'; else ""."""
    if not rule.under_gpu_conditions:
        return ""
    settings = [one for one in site.state[part.node] if one.finding.code.startswith("setting.")]
    own = [one for one in settings if part.kind is PartKind.NODE or one.part.place == part.place]
    return "; ".join(one.finding.evidence for one in own)


def _test(site: _Site, trial: _Trial, node: NodeEvidence) -> TestVerdict:
    rule, run, readings = trial.rule, node.run(trial.rule.id), trial.readings[node.node]
    limits = (
        limits_for(rule.measure, node.sku, trial.setup, site.limits[rule.measure]) if rule.measure else ModelLimits()
    )
    parts = [judge_part(_case(site, trial, node, reading, limits)) for reading in readings]
    if not readings:
        text = f"the node's list of parts has no {rule.kind.value}, and none was measured"
        parts.append(PartVerdict(rule.id, node_part(node.node), Outcome.INCONCLUSIVE, text))
    known = {reading.part.place for reading in readings}
    for part in dict.fromkeys(one.part for one in (run.findings if run else ()) if one.part.place not in known):
        found = judge_findings(rule, part, run.findings if run else ())
        parts += [found] if found is not None else []
    if trial.cohort is not None and node.node in trial.cohort.slow_nodes:
        parts.append(_slow_node(site, trial, node))
    cohort = None if trial.cohort is None else replace(trial.cohort, peers={})
    return TestVerdict(rule.id, rule.stage, worst(one.outcome for one in parts), tuple(parts), cohort)


def _case(site: _Site, trial: _Trial, node: NodeEvidence, reading: Reading, limits: ModelLimits) -> Case:
    run = node.run(trial.rule.id)
    return Case(
        rule=trial.rule,
        reading=reading,
        run=run,
        limits=limits,
        cohort=trial.cohort,
        usual=trial.usual,
        found=() if run is None else run.findings,
        state=site.state[node.node],
        state_read=node.state is not None,
        settings_read=node.settings is not None,
        settings=site.settings,
    )


def _slow_node(site: _Site, trial: _Trial, node: NodeEvidence) -> PartVerdict:
    """The node as the part that is slow: its middle part is an outlier among those of the other nodes."""
    readings = [one for one in trial.readings[node.node] if one.value is not None]
    assert trial.cohort is not None
    off = trial.cohort.slow_nodes[node.node]
    whole = Reading(
        part=node_part(node.node),
        value=median(one.value for one in readings if one.value is not None),
        conditions=worst_conditions([one.conditions for one in readings]),
        known=all(one.known for one in readings),
    )
    case = _case(site, trial, node, whole, ModelLimits())
    found = judge_part(replace(case, cohort=_alone(trial.cohort, whole.part, off)))
    return replace(found, text=f"all its {trial.rule.kind.value}s are slow alike: {found.text}")


def _alone(cohort: CohortResult, part: Part, off: float) -> CohortResult:
    """The cohort with the node in its parts' place."""
    peers = {(part.node, part.kind.value, part.slot): Peer(Standing.OUTLIER, off)}
    return replace(cohort, peers=peers, slow_nodes={})


def _state(site: _Site, node: NodeEvidence) -> TestVerdict:
    """What was found on the node, part by part: it is judged whatever tests were planned."""
    whole = node_part(node.node)
    found = site.state[node.node]
    parts = [judge_findings(STATE, part, found) for part in dict.fromkeys((whole, *(one.part for one in found)))]
    verdicts = [one for one in parts if one is not None]
    if node.state is None:
        text = "nobody looked at the node after its tests: what is wrong with it now is not known"
        verdicts.append(PartVerdict(STATE.id, whole, Outcome.INCONCLUSIVE, text, repeat=True))
    if not verdicts:
        verdicts.append(PartVerdict(STATE.id, whole, Outcome.PASS, "nothing is wrong with it"))
    return TestVerdict(STATE.id, STATE.stage, worst(one.outcome for one in verdicts), tuple(verdicts))


def _check_once(nodes: Sequence[NodeEvidence]) -> None:
    twice = [name for name, count in Counter(node.node for node in nodes).items() if count > 1]
    if twice:
        raise ConfigurationError(f"evidence of node {', '.join(sorted(twice))} is there twice")
