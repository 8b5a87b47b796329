"""What was known of a node and since when."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.knowledge_tools import gpu, reading
from unit.ledger_tools import FakeClock, fleet_of, running, take

from fleet.errors import PreconditionError
from fleet.model import NodeState
from ledger import FactChange, Ledger
from ledger.database import Database

pytest_plugins = ("unit.ledger_fixtures",)


def test_the_first_reading_is_an_arrival_and_no_change(ledger: Ledger, clock: FakeClock) -> None:
    recorded = ledger.facts.record([reading("a", clock.now(), gpu("3b", "S1"))])
    assert (recorded.arrived, recorded.changes, recorded.unchanged) == (("a",), (), 0)
    (node,) = ledger.facts.current()
    assert node.known.facts == {"driver.loaded": "570.10"}
    assert [(part.key, part.slot, part.known.facts["vbios"]) for part in node.parts] == [("gpu:S1", "3b", "96.00")]


def test_a_node_that_is_as_it_was_moves_last_seen_and_nothing_else(ledger: Ledger, clock: FakeClock) -> None:
    ledger.facts.record([reading("a", clock.now(), gpu("3b", "S1"))])
    head, first = ledger.audit.head(), clock.now()
    clock.sleep(30)
    recorded = ledger.facts.record([reading("a", clock.now(), gpu("3b", "S1"))])
    assert (recorded.unchanged, recorded.changed, ledger.audit.head()) == (1, (), head)
    then = ledger.facts.at("a")
    assert (then.facts["driver.loaded"].since, then.facts["driver.loaded"].last_seen) == (first, clock.now())
    assert then.parts[0].facts["vbios"].last_seen == clock.now()
    assert ledger.facts.current()[0].parts[0].seen == clock.now()


def test_a_changed_fact_keeps_its_past_with_when_it_was_last_seen(ledger: Ledger, clock: FakeClock) -> None:
    start = clock.now()
    for seconds, driver in ((0, "570.10"), (30, "570.10"), (60, "580.20")):
        at = start + timedelta(seconds=seconds)
        recorded = ledger.facts.record([reading("a", at, facts={"driver.loaded": driver, "os.release": "x"})])
    assert recorded.changes == (FactChange("a", None, "driver.loaded", "570.10", "580.20", None),)
    old, new = ledger.facts.history("a", "driver.loaded")
    assert (old.value, old.since, old.until) == ("570.10", start, start + timedelta(seconds=60))
    assert old.last_seen == start + timedelta(seconds=30)
    assert (new.value, new.since, new.until) == ("580.20", start + timedelta(seconds=60), None)
    known = ledger.facts.current()[0].known
    assert known.since("driver.loaded") - known.since("os.release") == timedelta(seconds=60)


def test_what_could_not_be_read_is_unknown_since_then_and_keeps_its_last_value(
    ledger: Ledger, clock: FakeClock
) -> None:
    start = clock.now()
    ledger.facts.record([reading("a", start)])
    clock.sleep(30)
    lost = reading("a", clock.now(), facts={"os.release": "x"}, unknown={"driver.loaded": "nvidia-smi hung"})
    recorded = ledger.facts.record([lost])
    assert FactChange("a", None, "driver.loaded", "570.10", None, "nvidia-smi hung") in recorded.changes
    fact = ledger.facts.at("a").facts["driver.loaded"]
    assert (fact.value, fact.reason, fact.since, fact.last_value) == (None, "nvidia-smi hung", clock.now(), "570.10")
    clock.sleep(30)
    ledger.facts.record([reading("a", clock.now())])
    values = [(fact.value, fact.last_value) for fact in ledger.facts.history("a", "driver.loaded")]
    assert values == [("570.10", None), (None, "570.10"), ("570.10", None)]


def test_another_reason_for_the_same_unknown_is_no_change(ledger: Ledger, clock: FakeClock) -> None:
    facts = {"os.release": "x"}
    ledger.facts.record([reading("a", clock.now(), facts=facts, unknown={"driver.loaded": "hung 3 s"})])
    head = ledger.audit.head()
    clock.sleep(30)
    ledger.facts.record([reading("a", clock.now(), facts=facts, unknown={"driver.loaded": "hung 4 s"})])
    assert ledger.audit.head() == head
    (fact,) = ledger.facts.history("a", "driver.loaded")
    assert (fact.reason, fact.since) == ("hung 4 s", clock.now() - timedelta(seconds=30))


@pytest.mark.parametrize("unknown", [{"*": "no SSH"}, {"probe": "no SSH"}, {}])
def test_a_reading_without_any_fact_makes_everything_unknown(
    ledger: Ledger, clock: FakeClock, unknown: dict[str, str]
) -> None:
    ledger.facts.record([reading("a", clock.now(), gpu("3b", "S1"))])
    clock.sleep(30)
    ledger.facts.record([reading("a", clock.now(), facts={}, unknown=unknown)])
    fact = ledger.facts.at("a").facts["driver.loaded"]
    assert (fact.value, fact.last_value) == (None, "570.10")
    assert [part.key for part in ledger.facts.at("a").parts] == ["gpu:S1"]


def test_a_family_that_could_not_be_read_is_unknown_and_one_that_is_gone_ends(ledger: Ledger, clock: FakeClock) -> None:
    facts = {"service.a": "active", "service.b": "active", "firmware.X": "1", "os.release": "x"}
    ledger.facts.record([reading("a", clock.now(), facts=facts)])
    clock.sleep(30)
    ledger.facts.record([reading("a", clock.now(), facts={"os.release": "x"}, unknown={"service.*": "no systemctl"})])
    now = ledger.facts.at("a").facts
    assert (now["service.a"].value, now["service.b"].last_value) == (None, "active")
    assert "firmware.X" not in now
    assert ledger.facts.history("a", "firmware.X")[0].until == clock.now()


def test_sources_do_not_end_each_others_facts_and_known_goes_before_unknown(ledger: Ledger, clock: FakeClock) -> None:
    at = clock.now()
    ledger.facts.record([reading("a", at, facts={"bmc.version": "1", "bios.X": "on"}, source="bmc")])
    told = reading("a", at, facts={"driver.loaded": "570", "bios.X": "off"}, unknown={"bmc.version": "no ipmitool"})
    ledger.facts.record([told])
    known = ledger.facts.current()[0].known
    assert known.facts == {"bmc.version": "1", "bios.X": "off", "driver.loaded": "570"}
    assert known.unknown == {}
    assert {fact.source for fact in ledger.facts.history("a", "bios.X")} == {"probe", "bmc"}
    assert ledger.facts.at("a").facts["bmc.version"].value == "1"


def test_late_early_and_repeated_readings_change_nothing(ledger: Ledger, clock: FakeClock) -> None:
    clock.sleep(60)
    now = clock.now()
    ledger.facts.record([reading("a", now)])
    head = ledger.audit.head()
    other = {"driver.loaded": "1"}
    late = ledger.facts.record([reading("a", now - timedelta(seconds=30), facts=other)])
    early = ledger.facts.record([reading("a", now + timedelta(hours=2), facts=other)])
    again = ledger.facts.record([reading("a", now)])
    assert "older" in late.skipped["a"]
    assert "yet to come" in early.skipped["a"]
    assert (again.skipped, again.unchanged, ledger.audit.head()) == ({}, 1, head)


def test_several_readings_of_one_node_in_one_call_are_taken_in_order(ledger: Ledger, clock: FakeClock) -> None:
    start = clock.now()
    told = [
        reading("a", start + timedelta(seconds=s), facts={"driver.loaded": v})
        for s, v in ((9, "2"), (0, "1"), (18, "3"))
    ]
    ledger.facts.record(told)
    assert [fact.value for fact in ledger.facts.history("a", "driver.loaded")] == ["1", "2", "3"]


def test_each_changed_node_is_one_audit_record_however_much_changed(ledger: Ledger, clock: FakeClock) -> None:
    def sweep(value: str) -> None:
        many = {f"bios.{n}": value for n in range(300)}
        ledger.facts.record([reading(n, clock.now(), facts=many) for n in "ab"] + [reading("c", clock.now())])
        clock.sleep(30)

    sweep("on")
    before = ledger.audit.head().seq
    sweep("off")
    assert ledger.audit.head().seq == before + 2
    record = ledger.audit.tail(1)[0]
    assert (record.action, record.subject, record.actor) == ("node.facts", "b", "tester@desk")
    assert "and 200 more" in record.payload
    assert len(record.payload) < 10_000
    assert ledger.audit.verify() == []


def test_texts_that_no_database_takes_are_kept_readable(ledger: Ledger, clock: FakeClock) -> None:
    odd = reading(
        "a", clock.now(), gpu("3b\0", "S\0", facts={"n\0": "\ud800"}), facts={"x\0y": "a\0b"}, numbers={"\0": 1.0}
    )
    ledger.facts.record([odd])
    clock.sleep(30)
    assert ledger.facts.record([reading("a", clock.now(), facts={"x\0y": "c"})]).changed == ("a",)
    assert ledger.facts.history("a", "x\ufffdy")[-1].value == "c"


def test_a_node_at_a_date_has_the_facts_and_parts_of_that_date(ledger: Ledger, clock: FakeClock) -> None:
    start = clock.now()
    ledger.facts.record([reading("a", start, gpu("3b", "S1"), gpu("5d", "S2"))])
    clock.sleep(3600)
    swapped = gpu("3b", "S9", facts={"model": "H100", "vbios": "97.00"})
    ledger.facts.record([reading("a", clock.now(), swapped, gpu("5d", "S2"), facts={"driver.loaded": "580"})])
    then, now = ledger.facts.at("a", start + timedelta(seconds=1)), ledger.facts.at("a")
    assert [part.key for part in then.parts] == ["gpu:S1", "gpu:S2"]
    assert [part.key for part in now.parts] == ["gpu:S9", "gpu:S2"]
    assert [part.facts["vbios"].value for part in (*then.parts, *now.parts)] == ["96.00", "96.00", "97.00", "96.00"]
    assert (then.facts["driver.loaded"].value, now.facts["driver.loaded"].value) == ("570.10", "580")
    before = ledger.facts.at("a", start - timedelta(seconds=1))
    assert (before.facts, before.parts, before.first_seen) == ({}, (), start)


def test_the_state_at_a_date_is_the_audits_or_unknown(ledger: Ledger, clock: FakeClock) -> None:
    ledger.facts.record([reading("r1-0", clock.now()), reading("stray", clock.now())])
    clock.sleep(10)
    fleet_of(ledger, {"r1": 1})
    start = clock.now()
    for state in (NodeState.QUARANTINED, NodeState.BURN_IN, NodeState.IN_SERVICE):
        clock.sleep(10)
        ledger.inventory.move("r1-0", state, "")

    def state_after(seconds: int) -> NodeState | None:
        return ledger.facts.at("r1-0", start + timedelta(seconds=seconds)).state

    assert [state_after(s) for s in (-5, 5, 15, 25, 35)] == [
        None,
        NodeState.IN_SERVICE,
        NodeState.QUARANTINED,
        NodeState.BURN_IN,
        NodeState.IN_SERVICE,
    ]
    assert ledger.facts.at("stray").state is None


def test_a_node_that_a_person_took_back_is_in_service_from_then_on(ledger: Ledger, clock: FakeClock) -> None:
    fleet_of(ledger, {"r1": 1})
    ledger.facts.record([reading("r1-0", clock.now())])
    owner = running(ledger)
    take(ledger, owner, "r1-0")
    ledger.inventory.move("r1-0", NodeState.DRAINING, "", owner[0])
    clock.sleep(10)
    ledger.leases.take_back("r1-0", "eva", "mine")
    taken = clock.now()
    clock.sleep(10)
    ledger.inventory.move("r1-0", NodeState.QUARANTINED, "")
    states = [ledger.facts.at("r1-0", taken + timedelta(seconds=s)).state for s in (-5, 5, 15)]
    assert states == [NodeState.DRAINING, NodeState.IN_SERVICE, NodeState.QUARANTINED]


def test_what_was_never_read_is_refused_and_not_empty(ledger: Ledger, clock: FakeClock) -> None:
    with pytest.raises(PreconditionError, match="ever read"):
        ledger.facts.at("nobody")
    with pytest.raises(PreconditionError, match="no node and no part"):
        ledger.facts.history("nobody", "x")
    ledger.facts.record([reading("a", clock.now())])
    assert ledger.facts.history("a", "never.told") == ()
    assert ledger.facts.current(["nobody"]) == []


def test_a_reading_without_a_time_zone_is_refused_and_nothing_is_kept(ledger: Ledger, clock: FakeClock) -> None:
    told = [reading("a", clock.now()), reading("b", clock.now().replace(tzinfo=None))]
    with pytest.raises(TypeError):
        ledger.facts.record(told)
    assert ledger.facts.current() == []


names = st.sampled_from(["x", "y", "s.a", "s.b"])
told_facts = st.tuples(
    st.dictionaries(names, st.sampled_from("123")),
    st.dictionaries(names | st.sampled_from(["s.*", "*"]), st.just("why")),
)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(told_facts, min_size=1, max_size=7))
def test_at_every_moment_a_known_value_is_what_the_newest_reading_told(
    ledger: Ledger, clock: FakeClock, told: list[tuple[dict[str, str], dict[str, str]]]
) -> None:
    clock.sleep(30)
    times = []
    for facts, unknown in told:
        clock.sleep(30)
        ledger.facts.record([reading("a", clock.now(), facts=facts, unknown=unknown)])
        times.append(clock.now())
    for at, (facts, _) in zip(times, told, strict=True):
        for moment in (at, at + timedelta(seconds=29)):
            now = ledger.facts.at("a", moment).facts
            assert {name: fact.value for name, fact in now.items() if fact.value is not None} == facts
            assert all(fact.since <= at and fact.reason for fact in now.values() if fact.value is None)
    for name in ("x", "y", "s.a", "s.b"):
        spans = ledger.facts.history("a", name)
        assert all(one.until is not None and one.until <= two.since for one, two in pairwise(spans))
        assert all(one.last_seen < one.until for one in spans if one.until is not None)


def test_a_ledger_from_before_readings_were_kept_is_brought_up_to_date(tmp_path: Path, clock: FakeClock) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    config = Config()
    config.set_main_option("script_location", "ledger:migrations")
    config.set_main_option("path_separator", "os")
    database = Database(url, clock)
    with database.write() as tx:
        config.attributes["connection"] = tx.connection
        command.upgrade(config, "0001")
    database.close()
    ledger = Ledger.open(url, clock)
    fleet_of(ledger, {"r1": 1})
    assert ledger.facts.record([reading("r1-0", clock.now(), gpu("3b", "S1"))]).arrived == ("r1-0",)
    ledger.close()
