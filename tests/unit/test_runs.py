"""Speaking with Prefect where there is no server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest
from prefect import State
from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, temporary_settings
from prefect.states import Cancelled, Crashed, Pending, Running, Scheduled, Suspended

from fleet.errors import TransientError
from tasks import runs
from tasks.runs import resume_run, run_condition

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def test_without_a_server_the_way_on_is_named_and_no_temporary_one_is_started() -> None:
    alone = {PREFECT_API_URL: None, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}
    with temporary_settings(alone):
        with pytest.raises(TransientError, match="gpufleet up"):
            resume_run("2f9d1bd4-0c1c-4bfa-b0d9-5d4d3e3c9f0e", {})
        with pytest.raises(TransientError, match="gpufleet up"):
            run_condition("2f9d1bd4-0c1c-4bfa-b0d9-5d4d3e3c9f0e", datetime.now(UTC))


class Server:
    """Knows one run, whose state began `age` ago."""

    def __init__(self, state: State[None], age: timedelta) -> None:
        self._state = state.model_copy(update={"timestamp": NOW - age})

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open."""

    def read_flow_run(self, _: UUID) -> SimpleNamespace:
        return SimpleNamespace(state=self._state)


@pytest.mark.parametrize(
    ("state", "minutes", "condition"),
    [
        (Pending(), 1, "under_way"),
        (Pending(), 3, "stuck"),
        (Running(), 1, "under_way"),
        (Running(), 3, "stuck"),
        (Scheduled(), 300, "under_way"),
        (Suspended(), 300, "suspended"),
        (Crashed(), 1, "over"),
        (Cancelled(), 1, "cancelled"),
    ],
)
def test_what_is_pending_or_running_for_long_without_a_claim_is_stuck(
    monkeypatch: pytest.MonkeyPatch, state: State[None], minutes: int, condition: str
) -> None:
    monkeypatch.setattr(runs, "_client", lambda: Server(state, timedelta(minutes=minutes)))
    assert run_condition("2f9d1bd4-0c1c-4bfa-b0d9-5d4d3e3c9f0e", NOW) == condition
