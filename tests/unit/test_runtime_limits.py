"""Rack limits: the fleet file leads, and a person's change in the Prefect UI is respected."""

from __future__ import annotations

from deployments.limits import LimitChange, plan_limits


def test_a_new_rack_gets_a_limit() -> None:
    assert plan_limits({"rack-a": 2}, present={}, set_before={}) == [LimitChange("rack-a", "create", 2)]


def test_a_limit_that_is_right_is_left_alone() -> None:
    assert plan_limits({"rack-a": 2}, present={"rack-a": 2}, set_before={"rack-a": 2}) == []


def test_a_changed_fleet_file_changes_the_limit() -> None:
    changes = plan_limits({"rack-a": 3}, present={"rack-a": 2}, set_before={"rack-a": 2})
    assert changes == [LimitChange("rack-a", "update", 3)]


def test_a_limit_that_a_person_lowered_stays() -> None:
    changes = plan_limits({"rack-a": 2}, present={"rack-a": 0}, set_before={"rack-a": 2})
    assert changes == [LimitChange("rack-a", "keep", 2)]


def test_a_changed_fleet_file_wins_over_a_person() -> None:
    changes = plan_limits({"rack-a": 4}, present={"rack-a": 0}, set_before={"rack-a": 2})
    assert changes == [LimitChange("rack-a", "update", 4)]


def test_the_limit_of_a_rack_that_is_gone_is_deleted() -> None:
    changes = plan_limits({}, present={"rack-old": 2}, set_before={"rack-old": 2})
    assert changes == [LimitChange("rack-old", "delete", None)]


def test_a_limit_that_somebody_else_made_is_never_deleted() -> None:
    assert plan_limits({}, present={"rack-theirs": 2, "database": 5}, set_before={}) == []
