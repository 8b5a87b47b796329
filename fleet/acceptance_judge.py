"""The verdict on one part in one test, from everything that is known around it.

What decides, in this order: a finding of a hardware fault fails the part; a measurement that was spoiled, and a setting
that must be mended, judge nothing; a value that is missing judges nothing; then limits and cohort. A value that falls
short fails the part only where nothing else is the likelier cause and its conditions are known: slow things are made by
heat and other processes too, but nothing makes a bad part fast, so that a good value needs no such proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.acceptance_bearing import Bearing, bearing_of
from fleet.acceptance_causes import HELD_DOWN, Cause, Sureness, Surroundings, Usual, explain_shortfall
from fleet.acceptance_cohort import CohortCall, CohortResult, Peer, Standing
from fleet.acceptance_evidence import Reading, RunEvidence
from fleet.acceptance_limits import LimitCheck, ModelLimits
from fleet.acceptance_parts import Part, PartFinding, PartKind
from fleet.acceptance_rules import AcceptanceRule, CauseKind
from fleet.acceptance_settings import AcceptanceSettings
from fleet.acceptance_verdict import PartVerdict
from fleet.canary_table import POWER_CAP, throttle_reasons
from fleet.canary_verdict import Outcome

_AWAY = frozenset({Standing.WITH_NODE, Standing.WITH_PLACE})
_SAYS_NOTHING = frozenset({CauseKind.CONTAMINATION, CauseKind.CONFIGURATION})


@dataclass(frozen=True, slots=True)
class Case:
    """All that a verdict on one part rests on. `found` are the findings of this very test, `state` those of the node
    as it was found beside it, settings that must be mended among them; both of all parts."""

    rule: AcceptanceRule
    reading: Reading
    run: RunEvidence | None
    limits: ModelLimits
    cohort: CohortResult | None
    usual: Usual
    found: tuple[PartFinding, ...]
    state: tuple[PartFinding, ...]
    state_read: bool
    settings_read: bool
    settings: AcceptanceSettings

    @property
    def part(self) -> Part:
        return self.reading.part

    @property
    def peer(self) -> Peer | None:
        return None if self.cohort is None else self.cohort.peer(self.part)

    def own(self, findings: Sequence[PartFinding], with_node: bool = False) -> tuple[PartFinding, ...]:
        """Those about this part, and with `with_node` those about its node as a whole; of a node all of its parts'."""
        part = self.part
        if not with_node:
            return tuple(one for one in findings if one.part.place == part.place)
        return tuple(
            one
            for one in findings
            if one.part.node == part.node
            and (part.kind is PartKind.NODE or one.part.kind is PartKind.NODE or one.part.place == part.place)
        )


def judge_part(case: Case) -> PartVerdict:
    """The verdict, with what it rests on."""
    return _by_findings(case) or (_by_value(case) if case.rule.measure else _by_report(case))


def judge_findings(rule: AcceptanceRule, part: Part, findings: Sequence[PartFinding]) -> PartVerdict | None:
    """The verdict on a part of which there are findings alone; None where they are only notes."""
    own = tuple(one for one in findings if one.part.place == part.place)
    by_bearing = {bearing: tuple(one for one in own if bearing_of(one.finding) is bearing) for bearing in Bearing}
    if hard := by_bearing[Bearing.HARDWARE]:
        return PartVerdict(rule.id, part, Outcome.FAIL, _said(hard), causes=_causes(rule, part, own), findings=own)
    if mend := by_bearing[Bearing.CONFIGURATION]:
        text = f"must be mended first: {_said(mend)}"
        return PartVerdict(
            *(rule.id, part, Outcome.INCONCLUSIVE, text),
            causes=_causes(rule, part, own),
            findings=own,
            mend=_mends(mend),
            repeat=True,
        )
    doubts = (*by_bearing[Bearing.CONDITION], *by_bearing[Bearing.DOUBT])
    if not doubts:
        return None
    causes = _causes(rule, part, own)
    return PartVerdict(*(rule.id, part, Outcome.INCONCLUSIVE, _said(doubts)), causes=causes, findings=own, repeat=True)


def _by_findings(case: Case) -> PartVerdict | None:
    """What the findings of the test itself decide; heat decides a test of heat against the part."""
    heat = tuple(one for one in case.own(case.found) if bearing_of(one.finding) is Bearing.CONDITION)
    if case.rule.judges_conditions:
        reasons = throttle_reasons(case.reading.conditions) - POWER_CAP
        if reasons or heat:
            said = _said(heat) if heat else f"its clocks were held down ({', '.join(sorted(reasons))})"
            return _hot(case, said, bool(heat))
        case_findings = tuple(one for one in case.found if bearing_of(one.finding) is not Bearing.CONDITION)
    else:
        case_findings = case.found
    verdict = judge_findings(case.rule, case.part, case_findings)
    if verdict is not None:
        return verdict
    return _to_mend(case, case.own(case.found, with_node=True))


def _hot(case: Case, said: str, heat: bool) -> PartVerdict:
    """Under load it was held down: a fault of its cooling or power, unless the room itself was too warm."""
    inlet = case.reading.conditions.inlet_celsius
    causes = _explained(case)
    if inlet is not None and inlet > case.settings.inlet_celsius:
        text = f"{said}, but the air at its inlet had {inlet:g} C: cool the room, then repeat"
        return _verdict(case, Outcome.INCONCLUSIVE, text, causes, repeat=True)
    if not heat and not throttle_reasons(case.reading.conditions) & HELD_DOWN:
        return _verdict(case, Outcome.INCONCLUSIVE, f"{said}, and what that means is not known", causes, repeat=True)
    if case.reading.conditions.others:
        return _verdict(case, Outcome.INCONCLUSIVE, f"{said} while something else ran on it", causes, repeat=True)
    return _verdict(case, Outcome.FAIL, f"{said} under load", causes)


def _by_report(case: Case) -> PartVerdict:
    """A test without values passes what its own report proves."""
    run = case.run
    if run is None or run.not_run:
        return _verdict(case, Outcome.INCONCLUSIVE, case.reading.why or "was not run", repeat=True)
    if any(part.place == case.part.place for part in run.proven):
        return _verdict(case, Outcome.PASS, "its report proves it good")
    return _verdict(case, Outcome.INCONCLUSIVE, "its report does not judge this part", repeat=True)


def _by_value(case: Case) -> PartVerdict:
    reading = case.reading
    if reading.value is None:
        causes = _explained(case) if reading.soiled else ()
        return _verdict(case, Outcome.INCONCLUSIVE, reading.why, causes, repeat=True)
    mend = _to_mend(case, case.own(case.state, with_node=case.rule.under_gpu_conditions))
    if mend is not None:
        return mend
    broken = [check for check in _checks(case) if check.fails]
    peer = case.peer
    outlier = peer is not None and peer.standing is Standing.OUTLIER
    if peer is not None and peer.standing in _AWAY:
        where = "its whole node" if peer.standing is Standing.WITH_NODE else "its slot on most nodes"
        text = f"is slow with {where} ({_short(case, peer)}): that is to be mended first, then the test repeated"
        return _verdict(case, Outcome.INCONCLUSIVE, text, _explained(case), repeat=True)
    if broken or outlier:
        return _short_of(case, broken, peer if outlier else None)
    return _good(case)


def _short_of(case: Case, broken: Sequence[LimitCheck], peer: Peer | None) -> PartVerdict:
    """A value that falls short: of the part, unless something else is likelier or could not be looked at."""
    said = [check.text for check in broken]
    if peer is not None and case.cohort is not None:
        above = "" if broken or not case.limits.decides else ", though it is within its limits"
        said.append(f"is {_short(case, peer)} its like{above}")
    text = f"{_value(case)} {'; '.join(said)}"
    causes = _explained(case)
    other = [cause for cause in causes if cause.kind in _SAYS_NOTHING and cause.sureness is Sureness.SURE]
    if other:
        mend = tuple(str(cause) for cause in other if cause.kind is CauseKind.CONFIGURATION)
        text = f"{text}; this says nothing of the part: {other[0].text}"
        return _verdict(case, Outcome.INCONCLUSIVE, text, causes, mend=mend, repeat=True)
    if not case.reading.known:
        text = f"{text}; whether something slowed it is not known"
        return _verdict(case, Outcome.INCONCLUSIVE, text, causes, repeat=True)
    return _verdict(case, Outcome.FAIL, text, causes)


def _good(case: Case) -> PartVerdict:
    """A value that neither limits nor cohort object to: enough of them must have been there to object."""
    cohort, decides = case.cohort, case.limits.decides
    compared = cohort is not None and cohort.call is CohortCall.COMPARED
    if case.rule.judges_conditions and not case.reading.known:
        return _verdict(case, Outcome.INCONCLUSIVE, "whether its clocks were held down is not known", repeat=True)
    if cohort is not None and cohort.call in (CohortCall.UNEVEN, CohortCall.SPLIT):
        return _verdict(case, Outcome.INCONCLUSIVE, f"cannot be compared with its like: {cohort.text}", repeat=True)
    if not compared and not decides:
        why = "no limit applies" if case.rule.cohort is None else f"no limit applies, and {_why_alone(case)}"
        return _verdict(case, Outcome.INCONCLUSIVE, f"{_value(case)} cannot be judged: {why}")
    if not compared and case.rule.cohort is not None and case.settings.cohort_needed:
        return _verdict(case, Outcome.INCONCLUSIVE, f"is within its limits, but {_why_alone(case)}")
    by = [name for name, is_so in (("its limits", decides), ("its like", compared)) if is_so]
    return _verdict(case, Outcome.PASS, f"{_value(case)} is good by {' and '.join(by)}")


def _why_alone(case: Case) -> str:
    return "it was not compared with its like" if case.cohort is None else case.cohort.text


def _to_mend(case: Case, findings: Sequence[PartFinding]) -> PartVerdict | None:
    mend = tuple(one for one in findings if bearing_of(one.finding) is Bearing.CONFIGURATION)
    if not mend:
        return None
    text = f"must be mended first, and says nothing of the part: {_said(mend)}"
    return _verdict(case, Outcome.INCONCLUSIVE, text, _explained(case), mend=_mends(mend), repeat=True)


def _explained(case: Case) -> tuple[Cause, ...]:
    peer = case.peer
    node_off = None if case.cohort is None else case.cohort.slow_nodes.get(case.part.node)
    return explain_shortfall(
        case.rule,
        case.reading,
        Surroundings(
            usual=case.usual,
            findings=(*case.own(case.found, with_node=True), *case.own(case.state, with_node=True)),
            standing=None if peer is None else peer.standing,
            node_short="" if node_off is None else _off(case.rule, node_off),
            settings_read=case.settings_read,
            state_read=case.state_read,
        ),
    )


def _causes(rule: AcceptanceRule, part: Part, findings: Sequence[PartFinding]) -> tuple[Cause, ...]:
    """What the findings alone speak of."""
    around = Surroundings(findings=tuple(findings), settings_read=True, state_read=True)
    causes = explain_shortfall(rule, Reading(part, None), around)
    return tuple(cause for cause in causes if cause.kind not in (CauseKind.UNKNOWN, CauseKind.PART))


def _verdict(
    case: Case,
    outcome: Outcome,
    text: str,
    causes: tuple[Cause, ...] = (),
    mend: tuple[str, ...] = (),
    repeat: bool = False,
) -> PartVerdict:
    own = (*case.own(case.found, with_node=True), *case.own(case.state, with_node=True))
    return PartVerdict(
        test=case.rule.id,
        part=case.part,
        outcome=outcome,
        text=text,
        value=case.reading.value,
        unit=case.rule.unit,
        checks=_checks(case),
        peer=case.peer,
        causes=causes,
        findings=own,
        mend=mend,
        repeat=repeat,
        notes=tuple(_notes(case)),
    )


def _checks(case: Case) -> tuple[LimitCheck, ...]:
    value = case.reading.value
    return () if value is None else case.limits.check(value, case.rule.unit)


def _notes(case: Case) -> Iterable[str]:
    """What a reader of a pass must know too."""
    yield from (check.text for check in _checks(case) if not check.limit.kind.may_fail)
    yield from (f"not applied: {why}" for why in case.limits.not_applied)
    if case.cohort is not None:
        yield f"cohort: {case.cohort.text}"
    if case.reading.value is not None and case.reading.soiled_runs:
        yield f"{case.reading.soiled_runs} repetitions were set aside ({', '.join(case.reading.soiled)})"
    if case.reading.value is not None and not case.reading.known:
        yield "whether something slowed it is not known"


def _value(case: Case) -> str:
    value = case.reading.value
    return "" if value is None else f"{value:.6g} {case.rule.unit}"


def _short(case: Case, peer: Peer) -> str:
    """ "8.1 % below", "12.0 C above"."""
    worse = "above" if case.rule.better.value == "lower" else "below"
    return f"{_off(case.rule, peer.shortfall)} {worse}"


def _off(rule: AcceptanceRule, shortfall: float) -> str:
    additive = rule.cohort is not None and rule.cohort.additive
    return f"{shortfall:.1f} {rule.unit}" if additive else f"{shortfall * 100:.1f} %"


def _said(findings: Sequence[PartFinding]) -> str:
    return "; ".join(f"{one.finding.code}: {one.finding.evidence}" for one in findings)


def _mends(findings: Sequence[PartFinding]) -> tuple[str, ...]:
    return tuple(f"{one.part}: {one.finding.code}: {one.finding.evidence}" for one in findings)
