"""The verdict on burn-in, end to end: what passes, what fails, and what says nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from fleet.acceptance import judge_acceptance
from fleet.acceptance_cohort import CohortCall
from fleet.acceptance_evidence import NodeEvidence, PartValue, RunEvidence
from fleet.acceptance_parts import Part, PartFinding, PartKind, Stage, node_part
from fleet.acceptance_rules import RULES, AcceptanceRule, ordered, rule_named
from fleet.acceptance_settings import AcceptanceSettings
from fleet.acceptance_sku import Sku, sku_of
from fleet.acceptance_verdict import NodeVerdict, PartVerdict
from fleet.canary_verdict import Outcome
from fleet.errors import ConfigurationError
from fleet.findings import Action, Finding, Severity
from fleet.gpu_settings import GpuSettings, NodeGpuSettings
from fleet.measures import Conditions

H100 = sku_of("NVIDIA H100 80GB HBM3", "0x233010DE")
CALM = Conditions((), 24.0, 60.0, 700.0, 0)
HBM, H2D, GEMM = (rule_named(f"node/gpu/{name}") for name in ("hbm_bandwidth", "host_to_device", "gemm"))
HEAT, DIAG = rule_named("node/gpu/thermals"), rule_named("node/gpu/diag_3")
ALL_REDUCE = rule_named("node/nccl/all_reduce")
SPREAD = (0.0, 0.004, -0.003, 0.002, -0.001, 0.003, -0.004, 0.001)  # of healthy parts, as shares

Level = Callable[[int, int], float | None]


def gpu(node: int, slot: int) -> Part:
    return Part(f"n{node}", PartKind.GPU, str(slot), f"165{node}{slot}")


def healthy(level: float) -> Level:
    return lambda node, slot: level * (1 + SPREAD[(slot + 3 * node) % 8])


def node_of(
    number: int,
    rules: Sequence[AcceptanceRule],
    level: Mapping[str, Level],
    conditions: Callable[[int, int], Conditions] = lambda *_: CALM,
    gpus: int = 8,
) -> NodeEvidence:
    """A node that has run all these tests; `level` by measure."""
    parts = tuple(gpu(number, slot) for slot in range(gpus))
    runs = []
    for rule in rules:
        of = parts if rule.kind is PartKind.GPU else (node_part(f"n{number}"),)
        values = tuple(
            PartValue(part, level[rule.measure](number, int(part.slot or 0)), rule.unit, 0, "no line for it", seen)
            for part in of
            for seen in [conditions(number, int(part.slot or 0))]
        )
        runs.append(RunEvidence(f"n{number}", rule.id, values, setup={"gpus": "8"}))
    return NodeEvidence(f"n{number}", H100, parts, tuple(runs), state=(), settings=settings_of(gpus))


def settings_of(gpus: int = 8, **changed: float) -> NodeGpuSettings:
    """Right ones; `changed` are power limits by GPU: gpu3=500."""
    return NodeGpuSettings(
        gpus=tuple(
            GpuSettings(
                index=slot, ecc=True, power_default_watts=700.0, power_limit_watts=changed.get(f"gpu{slot}", 700.0)
            )
            for slot in range(gpus)
        )
    )


def rack(
    rule: AcceptanceRule,
    level: Level,
    conditions: Callable[[int, int], Conditions] = lambda *_: CALM,
    nodes: int = 8,
) -> list[NodeEvidence]:
    return [node_of(number, [rule], {rule.measure: level}, conditions) for number in range(nodes)]


def but(level: Level, *sick: tuple[int, int], share: float) -> Level:
    """The level, of some parts by a share of it."""

    def of(node: int, slot: int) -> float | None:
        value = level(node, slot)
        return value if value is None or (node, slot) not in sick else value * share

    return of


def judged(nodes: Sequence[NodeEvidence], *rules: AcceptanceRule, name: str = "n3") -> NodeVerdict:
    found = judge_acceptance(nodes, rules).node(name)
    assert found is not None
    return found


def part_in(verdict: NodeVerdict, rule: AcceptanceRule, slot: int) -> PartVerdict:
    (test,) = (test for test in verdict.tests if test.test == rule.id)
    (found,) = (one for one in test.parts if one.part.slot == str(slot))
    return found


def test_a_healthy_rack_passes_in_every_part() -> None:
    verdict = judge_acceptance(rack(H2D, healthy(55.0)), [H2D])
    assert {node.outcome for node in verdict.nodes} == {Outcome.PASS}
    assert sum(len(test.parts) for node in verdict.nodes for test in node.tests if test.test == H2D.id) == 64


def test_a_gpu_8_percent_slow_fails_though_it_is_above_the_limit() -> None:
    verdict = judged(rack(H2D, but(healthy(55.0), (3, 5), share=0.92)), H2D)
    found = part_in(verdict, H2D, 5)
    assert found.value is not None
    assert found.value > 48
    assert found.outcome is Outcome.FAIL
    assert "though it is within its limits" in found.text
    assert list(verdict.faulty) == ["gpu:16535"]


def test_a_gpu_5_percent_slow_is_an_outlier_though_above_the_limit() -> None:
    verdict = judged(rack(H2D, but(healthy(55.0), (3, 5), share=0.95)), H2D)
    assert part_in(verdict, H2D, 5).outcome is Outcome.FAIL
    assert sum(one.outcome is Outcome.FAIL for test in verdict.tests for one in test.parts) == 1


def test_a_gpu_2_percent_slow_is_as_gpus_are() -> None:
    verdict = judged(rack(H2D, but(healthy(55.0), (3, 5), share=0.98)), H2D)
    assert verdict.outcome is Outcome.PASS


def test_a_gpu_of_a_third_of_the_speed_fails_though_the_diagnostic_passed() -> None:
    gflops = but(lambda *_: 19200.0, (0, 0), share=0.349)
    node = node_of(0, [GEMM], {"gemm": gflops})
    diag = RunEvidence("n0", DIAG.id, proven=node.parts)
    verdict = judged([replace(node, runs=(*node.runs, diag))], DIAG, GEMM, name="n0")
    assert [test.outcome for test in verdict.tests] == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]
    assert part_in(verdict, GEMM, 0).outcome is Outcome.FAIL


def test_a_value_below_an_operators_limit_fails_even_where_all_are_alike() -> None:
    verdict = judged(rack(H2D, healthy(40.0)), H2D)
    assert {one.outcome for one in verdict.tests[1].parts} == {Outcome.FAIL}
    assert "operator's pass limit" in part_in(verdict, H2D, 0).text


def test_a_value_measured_elsewhere_fails_nothing_and_says_so() -> None:
    found = part_in(judged(rack(HBM, healthy(2500.0)), HBM), HBM, 0)
    assert found.outcome is Outcome.PASS
    assert any("measured elsewhere" in note and "fails nothing" in note for note in found.notes)


def test_a_missing_value_is_inconclusive_with_its_reason() -> None:
    level = healthy(55.0)
    verdict = judged(rack(H2D, lambda n, s: None if (n, s) == (3, 5) else level(n, s)), H2D)
    found = part_in(verdict, H2D, 5)
    assert (found.outcome, found.text) == (Outcome.INCONCLUSIVE, "no line for it")
    assert verdict.to_repeat == (H2D.id,)
    cohort = verdict.tests[1].cohort
    assert cohort is not None
    assert (cohort.complete, cohort.size, cohort.expected) == (False, 63, 64)
    assert "63 of 64 values: the cohort is incomplete" in cohort.text


def test_a_gpu_without_any_value_is_not_forgotten() -> None:
    nodes = rack(H2D, healthy(55.0))
    run = nodes[3].runs[0]
    nodes[3] = replace(nodes[3], runs=(replace(run, values=run.values[:-1]),))
    found = part_in(judged(nodes, H2D), H2D, 7)
    assert (found.outcome, found.text) == (Outcome.INCONCLUSIVE, "no value of it")


def test_a_test_that_was_not_run_is_inconclusive() -> None:
    nodes = rack(H2D, healthy(55.0))
    nodes[3] = replace(nodes[3], runs=())
    assert part_in(judged(nodes, H2D), H2D, 0).text == "was not run"
    nodes[3] = replace(nodes[3], runs=(RunEvidence("n3", H2D.id, not_run="nvbandwidth is not installed"),))
    verdict = judged(nodes, H2D)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert part_in(verdict, H2D, 0).text == "nvbandwidth is not installed"


def test_a_node_that_nobody_looked_at_afterwards_does_not_pass() -> None:
    nodes = rack(H2D, healthy(55.0))
    nodes[3] = replace(nodes[3], state=None)
    verdict = judged(nodes, H2D)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "nobody looked" in verdict.tests[0].parts[0].text


def test_a_lost_gpu_fails_the_node_whatever_its_tests_said() -> None:
    nodes = rack(H2D, healthy(55.0))
    lost = Finding("gpu 2", "gpu.lost", Severity.FATAL, Action.REBOOT_NODE, "GPU is lost")
    nodes[3] = replace(nodes[3], state=(PartFinding(gpu(3, 2), lost),))
    verdict = judged(nodes, H2D)
    assert verdict.outcome is Outcome.FAIL
    assert list(verdict.faulty) == ["gpu:16532"]


def test_a_lone_node_is_judged_by_its_limits_and_says_that_it_had_no_like() -> None:
    (node,) = rack(ALL_REDUCE, lambda *_: 475.0, nodes=1)
    verdict = judged([node], ALL_REDUCE, name="n0")
    assert verdict.outcome is Outcome.PASS
    assert any("too few to compare" in note for note in verdict.tests[1].parts[0].notes)
    strict = AcceptanceSettings(cohort_needed=True)
    assert judge_acceptance([node], [ALL_REDUCE], strict).nodes[0].outcome is Outcome.INCONCLUSIVE


def test_without_limit_and_without_like_nothing_passes() -> None:
    (node,) = rack(ALL_REDUCE, lambda *_: 475.0, nodes=1)
    verdict = judged([replace(node, sku=Sku())], ALL_REDUCE, name="n0")
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "no limit applies" in verdict.tests[1].parts[0].text


def test_nodes_in_service_lend_their_values_and_are_not_judged() -> None:
    nodes = rack(ALL_REDUCE, lambda n, _: 440.0 if n == 3 else 480.0 + n / 4)

    lent = [node if node.node == "n3" else replace(node, accepted=True) for node in nodes]
    verdict = judge_acceptance(lent, [ALL_REDUCE])
    assert [node.node for node in verdict.nodes] == ["n3"]
    assert verdict.nodes[0].outcome is Outcome.FAIL


def test_a_rack_of_which_most_is_slow_is_no_measure_for_the_rest() -> None:
    slow = but(healthy(55.0), *((node, slot) for node in range(5) for slot in range(8)), share=0.92)
    verdict = judge_acceptance(rack(H2D, slow), [H2D])
    (cohort,) = verdict.cohorts.values()
    assert cohort.call is CohortCall.SPLIT
    assert Outcome.PASS not in {node.outcome for node in verdict.nodes}


def test_two_models_are_two_cohorts() -> None:
    nodes = rack(HBM, healthy(2900.0))
    other = [replace(node, sku=sku_of("NVIDIA A100-SXM4-80GB")) for node in rack(HBM, healthy(1700.0))[4:]]
    verdict = judge_acceptance([*nodes[:4], *other], [HBM])
    assert {node.outcome for node in verdict.nodes} == {Outcome.PASS}
    assert len(verdict.cohorts) == 2


def test_a_value_in_another_unit_is_converted_and_one_of_another_kind_is_none() -> None:
    nodes = rack(H2D, healthy(55.0))
    run = nodes[3].runs[0]
    mega = [replace(one, value=(one.value or 0) * 1000, unit="MB/s") for one in run.values]
    mega[2] = replace(mega[2], value=60.0, unit="C")
    nodes[3] = replace(nodes[3], runs=(replace(run, values=tuple(mega)),))
    verdict = judged(nodes, H2D)
    assert part_in(verdict, H2D, 1).outcome is Outcome.PASS
    assert part_in(verdict, H2D, 2).text == "a value in C where GB/s was expected"


def test_repetitions_are_joined_and_spoiled_ones_set_aside() -> None:
    rule = replace(H2D, runs=3)
    nodes = rack(rule, healthy(55.0))
    run = nodes[3].runs[0]
    more = [replace(one, run=at) for one in run.values for at in (1, 2)]
    spoiled = [
        replace(one, value=20.0, conditions=replace(CALM, others=2)) if one.run == 2 and one.part.slot == "5" else one
        for one in more
    ]
    full = [
        replace(
            node,
            runs=(
                replace(
                    node.runs[0], values=tuple(replace(one, run=at) for one in node.runs[0].values for at in range(3))
                ),
            ),
        )
        for node in nodes
    ]
    full[3] = replace(nodes[3], runs=(replace(run, values=(*run.values, *spoiled)),))
    found = part_in(judged(full, rule), rule, 5)
    assert found.outcome is Outcome.PASS
    assert any("1 repetitions were set aside" in note for note in found.notes)


def test_tests_are_ordered_by_their_stage() -> None:
    stages = [rule.stage for rule in ordered(reversed(RULES))]
    assert stages == sorted(stages)
    assert [stage.word for stage in Stage] == ["sanity", "validation", "performance", "stress"]
    verdict = judged(rack(H2D, healthy(55.0)), HEAT, H2D, DIAG)
    assert [test.test for test in verdict.tests] == ["node/state", DIAG.id, H2D.id, HEAT.id]


def test_a_test_that_is_planned_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="there twice"):
        judge_acceptance([], [H2D, H2D])


def test_a_node_that_is_there_twice_is_refused() -> None:
    (node,) = rack(H2D, healthy(55.0), nodes=1)
    with pytest.raises(ConfigurationError, match="node n0 is there twice"):
        judge_acceptance([node, node], [H2D])


def test_an_unknown_test_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="node/gpu/hbm_bandwidth"):
        rule_named("node/gpu/hbm_bandwith")


def test_a_verdict_goes_to_json_and_back() -> None:
    hot = replace(CALM, throttled=("hw_thermal",))
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.92), lambda n, s: hot if (n, s) == (3, 1) else CALM)
    verdict = judged(nodes, H2D)
    assert NodeVerdict.from_json(verdict.to_json()) == verdict


def test_a_count_below_zero_is_no_count() -> None:
    rows = rule_named("node/gpu/rows_remapped")
    nodes = rack(rows, lambda _, slot: -1.0 if slot == 5 else 600.0 if slot == 6 else 0.0)
    verdict = judged(nodes, rows)
    assert [part_in(verdict, rows, slot).outcome for slot in (4, 5, 6)] == [
        Outcome.PASS,
        Outcome.INCONCLUSIVE,
        Outcome.FAIL,
    ]


def test_a_nodes_verdict_says_in_a_line_for_each_open_test_what_decided() -> None:
    nodes = rack(H2D, but(healthy(55.0), (3, 5), share=0.92))
    assert judged(nodes, H2D, name="n0").text == "n0: 2 tests passed"
    (line,) = judged(nodes, H2D).text.splitlines()
    assert line.startswith("node/gpu/host_to_device: fail, 1 of 8 parts: n3 gpu 5 (serial 16535): 50.")


def test_most_of_the_repetitions_must_be_clean() -> None:
    rule = replace(H2D, runs=3)
    found = part_in(judged(rack(rule, healthy(55.0)), rule), rule, 5)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.text == "too few repetitions; 1 of 3 values that can be used"


def test_gpus_with_other_settings_are_no_part_of_the_cohort() -> None:
    nodes = rack(GEMM, healthy(50000.0))
    nodes[3] = replace(nodes[3], settings=settings_of(gpu5=500.0))
    (cohort,) = judge_acceptance(nodes, [GEMM]).cohorts.values()
    assert (cohort.size, cohort.expected) == (63, 64)
    assert "power limit 500 W" in cohort.missing[0]


def test_what_the_operator_says_of_the_site_lets_its_limits_apply() -> None:
    pair = rule_named("pair/nccl/all_reduce")
    (node,) = rack(pair, lambda *_: 120.0, nodes=1)
    node = replace(node, runs=(replace(node.runs[0], setup={"nodes": "2"}),))
    assert judge_acceptance([node], [pair]).nodes[0].outcome is Outcome.INCONCLUSIVE
    site = AcceptanceSettings(setup={"platform": "a3-megagpu"})
    assert judge_acceptance([node], [pair], site).nodes[0].outcome is Outcome.FAIL
