"""A node's measurement, from its drain to its return: what is kept, what is not repeated, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from unit.measurement_site import (
    ALL_REDUCE,
    GEMM,
    GPUS,
    HBM,
    HOST_DEVICE,
    MISSING,
    NODE,
    VALUES,
    InletBmc,
    MeasuredSite,
)
from unit.site_fakes import SPEC, Answer
from unit.test_drain_jobs import JOB, run

from fleet.errors import ConfigurationError, CredentialsRejected, HostKeyChanged, LeaseLost, NodeUnreachable
from fleet.measure_record import MeasuredWith
from fleet.measures import Phase
from fleet.model import NodeState
from ledger import ControlVerb, NodeStatus, Outcome
from tasks.measured import evidence_store, measure_phase, measured_samples, measured_with
from tasks.measurement import Measuring, measure_visit
from tasks.scheduler import wait_until_empty


@pytest.fixture
def site(tmp_path: Path) -> MeasuredSite:
    return MeasuredSite(tmp_path)


def in_service(site: MeasuredSite) -> bool:
    return (site.state(), site.fake_scheduler.cordoned) == (NodeState.IN_SERVICE, False)


def dies() -> Answer:
    raise KeyboardInterrupt  # as good as kill -9: nothing of ours catches it


def test_a_node_is_measured_and_goes_back_as_it_was(site: MeasuredSite) -> None:
    result = site.measure(runs=2)
    assert (result.status, result.reason) == (NodeStatus.UNCHANGED, f"measured: {2 * VALUES} values")
    assert in_service(site)
    assert site.steps() == ["cordon", "drain", "measure:before", "validate", "return"]
    samples = measured_samples(site.ledger(), site.operation)
    assert {sample.phase for sample in samples} == {Phase.BEFORE}
    assert [s.value for s in samples if (s.measure, s.gpu) == ("hbm_bandwidth", 7)] == [2907.0, 2907.0]


def test_what_a_tool_printed_can_be_read_again_by_the_digest_in_the_journal(site: MeasuredSite) -> None:
    site.measure()
    entry = site.ledger().journal.last(site.operation, NODE, "measure:before")
    assert entry is not None
    raw = entry.result["raw"]
    assert isinstance(raw, list)
    assert {one["measure"] for one in raw} == {"hbm_bandwidth", "host_to_device", "all_reduce", "gemm"}
    kept = evidence_store(site).read(raw[0]["digest"])  # type: ignore[arg-type]
    assert kept is not None
    assert "device_local_copy" in kept
    assert (site.folder() / "evidence").is_dir()


def test_a_node_with_work_is_waited_for_and_goes_back_unmeasured_after_its_time(site: MeasuredSite) -> None:
    run(site, JOB)
    result = site.measure()
    assert result.status is NodeStatus.SKIPPED
    assert "job 7 of eva" in result.reason
    assert (site.tool_host.ran, site.state()) == ([], NodeState.IN_SERVICE)


def test_a_job_that_begins_after_the_drain_is_not_disturbed_by_a_benchmark(
    site: MeasuredSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = site.ledger().inventory.move

    def let_work_in(node: str, to: NodeState, reason: str, operation: str | None = None) -> None:
        move(node, to, reason, operation)
        if to is NodeState.MAINTENANCE:
            site.fake_scheduler.jobs = (JOB,)

    monkeypatch.setattr(site.ledger().inventory, "move", let_work_in)
    result = site.measure()
    assert (result.status, site.tool_host.ran) == (NodeStatus.SKIPPED, [])
    assert "job 7 of eva began on gpu-0001 after the drain" in result.reason
    assert in_service(site)


def test_a_node_without_any_tool_goes_back_and_names_what_is_missing(site: MeasuredSite) -> None:
    site.tool_host.tools.clear()
    result = site.measure()
    assert result.status is NodeStatus.SKIPPED
    assert result.reason.startswith(f"nothing could be measured: {VALUES} missing: ")
    assert "nvbandwidth is not installed" in result.reason
    assert in_service(site)


def test_a_value_that_is_missing_is_named_beside_those_that_are_there(site: MeasuredSite) -> None:
    site.tool_host.tools[ALL_REDUCE] = MISSING
    result = site.measure()
    assert result.status is NodeStatus.UNCHANGED
    assert result.reason == f"measured: {VALUES - 1} values, 1 missing: all_reduce_perf is not installed"


def test_a_node_that_loses_a_gpu_under_the_load_is_quarantined_and_its_values_are_kept(site: MeasuredSite) -> None:
    whole = site.tool_host.tools[GEMM]

    def loses_a_gpu() -> Answer:
        site.tool_host.listed = "".join(site.tool_host.listed.splitlines(keepends=True)[:-1])
        assert isinstance(whole, Answer)
        return whole

    site.tool_host.tools[GEMM] = loses_a_gpu
    result = site.measure()
    assert result.status is NodeStatus.FAILED
    assert "the host shows 7 GPUs, not 8" in result.reason
    assert (site.state(), site.fake_scheduler.cordoned) == (NodeState.QUARANTINED, True)
    assert len(measured_samples(site.ledger(), site.operation)) == VALUES
    assert site.measure().status is NodeStatus.FAILED


@pytest.mark.parametrize("tool", [HBM, HOST_DEVICE, ALL_REDUCE, GEMM])
def test_a_runner_that_dies_while_it_measures_has_the_next_one_measure_again(site: MeasuredSite, tool: str) -> None:
    working = site.tool_host.tools[tool]
    site.tool_host.tools[tool] = dies
    with pytest.raises(KeyboardInterrupt):
        site.measure()
    assert measured_samples(site.ledger(), site.operation) == ()
    site.tool_host.tools[tool] = working
    assert site.measure().status is NodeStatus.UNCHANGED
    assert len(measured_samples(site.ledger(), site.operation)) == VALUES
    assert in_service(site)


@pytest.mark.parametrize(
    "moment", [NodeState.DRAINED, NodeState.MAINTENANCE, NodeState.VALIDATING, NodeState.IN_SERVICE]
)
@pytest.mark.parametrize("after", [False, True])
def test_a_runner_that_dies_at_any_move_of_the_node_is_followed_by_one_that_ends_the_visit(
    site: MeasuredSite, monkeypatch: pytest.MonkeyPatch, moment: NodeState, after: bool
) -> None:
    move = site.ledger().inventory.move

    def die(node: str, to: NodeState, reason: str, operation: str | None = None) -> None:
        if to is moment and not after:
            raise KeyboardInterrupt
        move(node, to, reason, operation)
        if to is moment:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(site.ledger().inventory, "move", die)
        with pytest.raises(KeyboardInterrupt):
            site.measure()
    result = site.measure()
    assert (result.status, result.reason) == (NodeStatus.UNCHANGED, f"measured: {VALUES} values")
    assert in_service(site)
    assert len(site.tool_host.ran) == len(set(site.tool_host.ran)), "a tool was run twice"
    assert site.ledger().journal.attempts(site.operation, NODE, "measure:before") == 1


def test_a_finished_measure_step_is_read_back_and_not_run_again(site: MeasuredSite) -> None:
    first = site.new_visit()
    settings = site.spec().canary
    site.fake_scheduler.cordoned = True
    found = measure_phase(first, Phase.BEFORE, 1, settings)
    ran = list(site.tool_host.ran)
    again = measure_phase(site.new_visit(), Phase.BEFORE, 1, settings)
    assert (again.samples, again.measured_with, site.tool_host.ran) == (found.samples, found.measured_with, ran)


def test_the_phase_after_uses_the_tools_of_the_phase_before(site: MeasuredSite) -> None:
    visit, settings = site.new_visit(), site.spec().canary
    site.fake_scheduler.cordoned = True
    measure_phase(visit, Phase.BEFORE, 1, settings)
    site.tool_host.tools["dcgmproftester13"] = site.tool_host.tools.pop(GEMM)
    after = measure_phase(visit, Phase.AFTER, 1, settings)
    gemm = [sample for sample in after.samples if sample.measure == "gemm"]
    assert all(sample.value is None for sample in gemm)
    assert "another would not compare" in gemm[0].missing
    phases = [sample.phase for sample in measured_samples(site.ledger(), site.operation)]
    assert phases == [Phase.BEFORE] * VALUES + [Phase.AFTER] * VALUES


def test_a_later_measurement_can_be_told_to_use_the_tools_and_slots_of_an_earlier_one(site: MeasuredSite) -> None:
    earlier = site.operation
    site.measure()
    site.release()
    known = measured_with(site.ledger(), earlier, NODE)
    assert known is not None
    assert known.tools["gemm"][0] == GEMM
    site.operation = site.new_operation()
    site.tool_host.tools["dcgmproftester13"] = site.tool_host.tools[GEMM]
    site.tool_host.listed = "".join(
        f"GPU {n}: NVIDIA H100 (UUID: GPU-0000000{7 - n})\n" for n in range(GPUS)
    )  # the GPUs answer in another order
    site.measure(phase=Phase.AFTER, before=earlier)
    hbm = {s.gpu: s.value for s in measured_samples(site.ledger(), site.operation) if s.measure == "hbm_bandwidth"}
    assert hbm[7] == 2900.0
    assert "dcgmproftester13" not in site.tool_host.ran[-1]


def test_nothing_measured_is_no_measured_with(site: MeasuredSite) -> None:
    assert measured_with(site.ledger(), site.operation, NODE) is None
    assert measured_samples(site.ledger(), site.operation) == ()


def test_kept_samples_that_cannot_be_read_are_an_error_and_not_no_samples(site: MeasuredSite) -> None:
    visit = site.new_visit()
    entry = site.ledger().journal.begin(site.operation, visit.token, NODE, "measure:before", {})
    site.ledger().journal.finish(entry, Outcome.DONE, {"samples": [{"node": NODE}]})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        measured_samples(site.ledger(), site.operation)


@pytest.mark.parametrize("error", [HostKeyChanged("its host key changed"), CredentialsRejected("it refused our login")])
def test_a_host_that_must_not_be_talked_to_goes_back_unmeasured(site: MeasuredSite, error: Exception) -> None:
    def refuses() -> Answer:
        raise error

    site.tool_host.tools[HBM] = refuses
    result = site.measure()
    assert (result.status, result.reason) == (NodeStatus.SKIPPED, str(error))
    assert in_service(site)
    entry = site.ledger().journal.last(site.operation, NODE, "measure:before")
    assert entry is not None
    assert entry.outcome is Outcome.FAILED


def test_a_cordon_of_somebody_else_stays_after_the_measurement(site: MeasuredSite) -> None:
    site.fake_scheduler.cordoned, site.fake_scheduler.reason = True, "ask eva"
    assert site.measure().status is NodeStatus.UNCHANGED
    assert (site.fake_scheduler.cordoned, site.fake_scheduler.reason) == (True, "ask eva")


def test_a_node_that_a_person_undrains_is_left_to_them(site: MeasuredSite, monkeypatch: pytest.MonkeyPatch) -> None:
    run(site, JOB)
    site.clock.after(600.0, lambda: setattr(site.fake_scheduler, "cordoned", False))
    result = site.measure()
    assert result.status is NodeStatus.SKIPPED
    assert "undrained by hand" in result.reason
    assert site.ledger().leases.lease(NODE) is None


def test_a_halted_measurement_gives_back_a_node_that_only_waits(site: MeasuredSite) -> None:
    run(site, JOB)
    halt = site.ledger().operations.request
    site.clock.after(300.0, lambda: halt(site.operation, ControlVerb.HALT, "eva", ""))
    assert site.measure().status is NodeStatus.PENDING
    assert site.fake_scheduler.cordoned is False


def test_a_node_that_was_given_back_to_be_measured_later_is_measured_then(site: MeasuredSite) -> None:
    test_a_halted_measurement_gives_back_a_node_that_only_waits(site)
    site.ledger().operations.request(site.operation, ControlVerb.RESUME, "eva", "")
    site.fake_scheduler.jobs = ()
    run(site, replace(JOB, nodes=()))
    site.fake_scheduler.jobs, site.fake_scheduler.state = (), type(site.fake_scheduler.state).IDLE
    assert site.measure().status is NodeStatus.UNCHANGED


def test_a_runner_that_was_replaced_stops_without_a_word(site: MeasuredSite) -> None:
    old = site.new_visit()
    site.new_visit()
    with pytest.raises(LeaseLost):
        measure_visit(old, Measuring(Phase.BEFORE, 1, site.spec().canary), wait_until_empty.fn)


def test_a_node_that_was_in_quarantine_before_is_not_called_this_operations_failure(site: MeasuredSite) -> None:
    visit = site.new_visit()
    visit.before = replace(visit.before, state=NodeState.QUARANTINED)
    site.ledger().inventory.move(NODE, NodeState.QUARANTINED, "GPU 3 fell off the bus")
    result = measure_visit(visit, Measuring(Phase.BEFORE, 1, site.spec().canary), wait_until_empty.fn)
    assert result.status is NodeStatus.SKIPPED
    assert "was quarantined before" in result.reason


def test_tools_are_run_by_sudo_where_the_fleet_file_says_so(tmp_path: Path) -> None:
    site = MeasuredSite(tmp_path, SPEC + "drivers: {sudo: true}\n")
    site.measure()
    assert site.tool_host.prefixes == {("sudo", "-n")}


def _inlet_site(site: MeasuredSite, read: Callable[[], float | None]) -> InletBmc:
    bmc = InletBmc(site.fake_bmc, read)
    site.fake_bmc = bmc  # type: ignore[assignment]
    return bmc


def test_the_air_at_the_inlet_is_kept_with_each_value_where_the_bmc_tells_it(site: MeasuredSite) -> None:
    _inlet_site(site, lambda: 24.5)
    assert site.measure().status is NodeStatus.UNCHANGED
    assert {s.conditions.inlet_celsius for s in measured_samples(site.ledger(), site.operation)} == {24.5}


@pytest.mark.parametrize(("error", "times"), [(CredentialsRejected("401"), 1), (NodeUnreachable("no route"), 2)])
def test_a_bmc_that_fails_is_not_asked_for_the_inlet_again_and_again(
    site: MeasuredSite, error: Exception, times: int
) -> None:
    def fails() -> float:
        raise error

    bmc = _inlet_site(site, fails)
    assert site.measure(runs=3).status is NodeStatus.UNCHANGED
    assert bmc.asked == times
    assert {s.conditions.inlet_celsius for s in measured_samples(site.ledger(), site.operation)} == {None}


def test_a_measured_with_is_whole_after_its_own_json(site: MeasuredSite) -> None:
    site.measure()
    found = measured_with(site.ledger(), site.operation, NODE)
    assert isinstance(found, MeasuredWith)
    assert set(found.tools) == {"hbm_bandwidth", "host_to_device", "all_reduce", "gemm"}
    assert found.slots["GPU-00000005"] == 5
