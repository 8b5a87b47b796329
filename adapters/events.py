"""Arrivals as events of the Prefect server, which starts the intake flow on them."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events import Event

from fleet.arrival import EVENT, Arrival, payload_of
from fleet.errors import ConfigurationError, TransientError


def event_of(arrival: Arrival, fleet: str) -> Event:
    """The event `gpufleet.hardware.arrived`: its resource is the hardware, related to the fleet by name."""
    payload = payload_of(arrival)
    resource = {
        "prefect.resource.id": f"gpufleet.hardware.{arrival.key}",
        "prefect.resource.name": arrival.hardware.label,
        "gpufleet.source": arrival.source.value,
    }
    related = {"prefect.resource.id": f"gpufleet.fleet.{fleet}", "prefect.resource.role": "fleet"}
    return Event.model_validate(
        {
            "event": EVENT,
            "occurred": arrival.seen_at,
            "resource": resource,
            "related": [related],
            "payload": payload,
        }
    )


def emit_arrivals(arrivals: Sequence[Arrival], fleet: str, client: SyncPrefectClient | None = None) -> None:
    """Send them in one request, so that either all or none are known to have come.

    Over HTTP, because that answers; whoever calls keeps what was announced after this has returned. Raises
    TransientError where the server does not answer, ConfigurationError where it refuses.
    """
    if not arrivals:
        return
    events = [event_of(arrival, fleet).model_dump(mode="json") for arrival in arrivals]
    try:
        with client or get_client(sync_client=True) as server:
            server.request("POST", "/events", json=events)
    except httpx.HTTPStatusError as error:
        raise ConfigurationError(
            f"the Prefect server refuses the events (HTTP {error.response.status_code})"
        ) from error
    except httpx.HTTPError as error:
        raise TransientError(f"the Prefect server does not answer ({error}); run `gpufleet up`") from error
