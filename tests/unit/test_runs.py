"""Speaking with Prefect where there is no server."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE, temporary_settings

from fleet.errors import TransientError
from tasks.runs import resume_run, run_condition


def test_without_a_server_the_way_on_is_named_and_no_temporary_one_is_started() -> None:
    alone = {PREFECT_API_URL: None, PREFECT_SERVER_ALLOW_EPHEMERAL_MODE: False}
    with temporary_settings(alone):
        with pytest.raises(TransientError, match="gpufleet up"):
            resume_run("2f9d1bd4-0c1c-4bfa-b0d9-5d4d3e3c9f0e", {})
        with pytest.raises(TransientError, match="gpufleet up"):
            run_condition("2f9d1bd4-0c1c-4bfa-b0d9-5d4d3e3c9f0e", datetime.now(UTC))
