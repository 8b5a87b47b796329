"""Bring a running Prefect server to what this checkout and a fleet file say."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path

from prefect.client.orchestration import get_client

from blocks.fleet import Fleet, block_name
from deployments.automations import ensure_automations
from deployments.limits import LimitChange, desired_limits, ensure_limits
from deployments.manifest import read_manifest
from deployments.pool import ensure_pool
from fleet.config import FleetSpec
from fleet.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Applied:
    """What was brought in step: the pool's and the block's fate, changed limits and automations."""

    pool: str
    block: str
    limits: tuple[LimitChange, ...]
    automations: tuple[str, ...]
    limits_set: dict[str, int]


async def _apply(spec: FleetSpec, fleet_file: Path, limits_before: dict[str, int]) -> Applied:
    async with get_client() as client:
        pool = await ensure_pool(client)
        limits = await ensure_limits(client, spec, limits_before)
        automations = await ensure_automations(client)
    name = block_name(spec.fleet)
    await Fleet(fleet_file=str(fleet_file)).save(name, overwrite=True)
    return Applied(pool, name, tuple(limits), tuple(automations), desired_limits(spec))


def apply(spec: FleetSpec, fleet_file: Path, limits_before: dict[str, int]) -> Applied:
    """Work pool, rack limits, automations and the fleet's block; each is left alone where it is right.

    Needs PREFECT_API_URL and PREFECT_API_AUTH_STRING in the environment since before Prefect's import.
    """
    return asyncio.run(_apply(spec, fleet_file, limits_before))


def deploy(home: Path) -> None:
    """Deploy everything in `home`/prefect.yaml, as `prefect --no-prompt deploy --all` does.

    Runs Prefect's command inside this process: a new one would spend 3 s on importing Prefect again.
    Raises ConfigurationError that lists what is wrong in the file, or with Prefect's words.
    """
    from prefect.cli import app

    read_manifest(home / "prefect.yaml")
    output, arguments = io.StringIO(), sys.argv
    try:
        sys.argv = ["prefect", "--no-prompt", "deploy", "--all"]
        with contextlib.chdir(home), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            app()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ConfigurationError(f"prefect.yaml could not be deployed:\n{output.getvalue().strip()}") from end
    finally:
        sys.argv = arguments
