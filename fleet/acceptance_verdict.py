"""The verdict of acceptance as values: of a part in a test, of a test on a node, of a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from fleet.acceptance_causes import Cause
from fleet.acceptance_cohort import CohortResult, Peer
from fleet.acceptance_limits import LimitCheck
from fleet.acceptance_parts import Part, PartFinding, Stage
from fleet.canary_verdict import Outcome


@dataclass(frozen=True, slots=True)
class PartVerdict:
    """One part in one test. `value` is in `unit`, None where there is none to judge.

    `checks` are all limits that apply, those that may fail it first. `causes` explain what is not a pass, the surest
    first. `mend` is what must be mended first, a text each; then, and where `repeat` is set, the test is run again.
    """

    test: str
    part: Part
    outcome: Outcome
    text: str
    value: float | None = None
    unit: str = ""
    checks: tuple[LimitCheck, ...] = ()
    peer: Peer | None = None
    causes: tuple[Cause, ...] = ()
    findings: tuple[PartFinding, ...] = ()
    mend: tuple[str, ...] = ()
    repeat: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """One test on one node. `cohort` is what its values were compared with (its peers stand in the parts), or None."""

    __test__ = False  # no test of ours, whatever its name

    test: str
    stage: Stage
    outcome: Outcome
    parts: tuple[PartVerdict, ...]
    cohort: CohortResult | None = None

    @property
    def text(self) -> str:
        """ "node/gpu/hbm_bandwidth: fail, 1 of 8 parts: …", with the first part that decided."""
        decisive = [one for one in self.parts if one.outcome is self.outcome]
        if self.outcome is Outcome.PASS or not decisive:
            return f"{self.test}: {self.outcome.value}, {len(self.parts)} parts"
        of = f"{len(decisive)} of {len(self.parts)} parts"
        return f"{self.test}: {self.outcome.value}, {of}: {decisive[0].part}: {decisive[0].text}"


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """One node: its tests in the order of their stages."""

    node: str
    outcome: Outcome
    tests: tuple[TestVerdict, ...]

    @property
    def faulty(self) -> Mapping[str, tuple[PartVerdict, ...]]:
        """The verdicts against each part that failed, by its key (serial, else slot), in the tests' order."""
        found: dict[str, tuple[PartVerdict, ...]] = {}
        for one in self._parts(Outcome.FAIL):
            found[one.part.key] = (*found.get(one.part.key, ()), one)
        return found

    @property
    def to_mend(self) -> tuple[str, ...]:
        """What must be mended before tests are repeated, each once."""
        return tuple(dict.fromkeys(text for test in self.tests for one in test.parts for text in one.mend))

    @property
    def to_repeat(self) -> tuple[str, ...]:
        """The tests that must be run again, in their order."""
        return tuple(test.test for test in self.tests if any(one.repeat for one in test.parts))

    @property
    def text(self) -> str:
        """A line for each test that did not pass; one line where all did."""
        open_tests = [test.text for test in self.tests if test.outcome is not Outcome.PASS]
        return "\n".join(open_tests) or f"{self.node}: {len(self.tests)} tests passed"

    def _parts(self, outcome: Outcome) -> Iterable[PartVerdict]:
        return (one for test in self.tests for one in test.parts if one.outcome is outcome)

    def to_json(self) -> str:
        """The whole tree; numbers are finite or null."""
        return _NODE.dump_json(self).decode()

    @staticmethod
    def from_json(text: str | bytes) -> NodeVerdict:
        """The inverse of `to_json`. Raises pydantic.ValidationError (a ValueError) for any other text."""
        return _NODE.validate_json(text)


@dataclass(frozen=True, slots=True)
class AcceptanceVerdict:
    """All nodes that were judged together. `cohorts` are the comparisons by (test, product and setup)."""

    nodes: tuple[NodeVerdict, ...]
    cohorts: Mapping[tuple[str, str], CohortResult] = field(default_factory=dict)

    def node(self, name: str) -> NodeVerdict | None:
        return next((one for one in self.nodes if one.node == name), None)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Fail where one failed, else inconclusive where one is or where there is none at all, else pass."""
    seen = set(outcomes)
    if Outcome.FAIL in seen:
        return Outcome.FAIL
    return Outcome.PASS if seen == {Outcome.PASS} else Outcome.INCONCLUSIVE


_NODE = TypeAdapter(NodeVerdict)
