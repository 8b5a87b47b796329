"""A node whose driver NVIDIA's GPU Operator manages is left to it."""

from __future__ import annotations

import pytest

from fleet.driver_operator_labels import (
    DEPLOY_LABEL,
    ENABLED_ANNOTATION,
    SKIP_LABEL,
    STATE_LABEL,
    UpgradeState,
    read_operator_driver,
    refusal,
)


def test_a_node_without_the_operators_labels_is_ours() -> None:
    assert refusal({}) is None
    assert refusal({"nvidia.com/gpu.present": "true"}) is None
    assert read_operator_driver({}).managed is None


def test_a_host_that_brings_its_own_driver_is_ours() -> None:
    assert refusal({DEPLOY_LABEL: "pre-installed"}) is None


@pytest.mark.parametrize(
    "state",
    [state for state in UpgradeState if state not in (UpgradeState.NONE, UpgradeState.DONE, UpgradeState.FAILED)],
)
def test_every_state_of_an_upgrade_under_way_is_waited_for(state: UpgradeState) -> None:
    assert f"({state.value}): wait" in (refusal({STATE_LABEL: state.value, DEPLOY_LABEL: "pre-installed"}) or "")


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({STATE_LABEL: "upgrade-done"}, {}),
        ({STATE_LABEL: "upgrade-failed"}, {}),
        ({DEPLOY_LABEL: "true"}, {}),
        ({DEPLOY_LABEL: "paused-for-driver-upgrade"}, {}),
        ({}, {ENABLED_ANNOTATION: "true"}),
    ],
)
def test_a_managed_node_is_never_worked_against(labels: dict[str, str], annotations: dict[str, str]) -> None:
    assert "the GPU Operator manages its driver" in (refusal(labels, annotations) or "")


def test_a_word_that_is_not_known_is_never_taken_for_rest() -> None:
    told = read_operator_driver({STATE_LABEL: "upgrade-sideways"})
    assert (told.state, told.under_way) == (None, None)
    assert "'upgrade-sideways', which is not known" in (refusal({STATE_LABEL: "upgrade-sideways"}) or "")


def test_a_node_that_the_operator_skips_is_its_own_all_the_same() -> None:
    assert SKIP_LABEL in (refusal({STATE_LABEL: "upgrade-done", SKIP_LABEL: "true"}) or "")
