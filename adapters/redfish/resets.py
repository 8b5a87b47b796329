"""Resets: which action does what was asked, by what the BMC offers."""

from __future__ import annotations

from adapters.redfish.answers import busy
from adapters.redfish.client import RedfishClient
from adapters.redfish.members import Members, survey_members
from adapters.redfish.places import Places
from adapters.redfish.quirks import (
    HOST_RESETS,
    MANAGER_RESETS,
    STANDBY_CYCLES,
    StandbyCycle,
    actions_of,
    power_of,
)
from fleet.errors import ConfigurationError
from fleet.json_values import JsonObject, object_at, text_at
from fleet.model import PowerState


def reboot_host(client: RedfishClient, places: Places) -> None:
    """Restart the host, or switch it on where it is off. Raises ConfigurationError where nothing fits."""
    host = places.host()
    wanted = ("On", "ForceOn") if power_of(host) is PowerState.OFF else HOST_RESETS
    _reset(client, places, object_at(host, "Actions", "#ComputerSystem.Reset"), wanted, "host reset")


def reset_manager(client: RedfishClient, places: Places) -> None:
    """Restart the BMC itself; its session is gone after that."""
    manager = places.manager(places.host())
    if manager is None:
        raise ConfigurationError("this BMC shows no manager of its own, so it cannot be reset by Redfish")
    _reset(client, places, object_at(manager, "Actions", "#Manager.Reset"), MANAGER_RESETS, "BMC reset")


def cycle_standby(client: RedfishClient, places: Places) -> None:
    """Cut all power, standby too. Raises ConfigurationError that names the resets there are."""
    systems, _ = places.systems(strict=True)
    chassis_uri = client.link("Chassis")
    chassis = survey_members(client, chassis_uri, "chassis") if chassis_uri else Members()
    offered = [found for resource in (*chassis.entries, *systems) for found in actions_of(resource)]
    for cycle in STANDBY_CYCLES:
        for name, action in offered:
            value = _value(places, cycle, action) if name == cycle.action else None
            if value is not None:
                target = text_at(action, "target") or ""
                client.post(target, {"ResetType": value, **dict(cycle.extra)}, "standby power cycle")
                return
    if chassis.problems:
        raise busy(f"standby power cycle: {'; '.join(chassis.problems)}; no action was found in the rest, ask again")
    resets = sorted(
        {f"{name[1:]} ({', '.join(places.allowed(a)) or 'no values told'})" for name, a in offered if _is_reset(name)}
    )
    raise ConfigurationError(
        f"no reset of this BMC cuts standby power; it offers: {'; '.join(resets) or 'none'}. "
        "Cycle the node at its power feed, or choose another reset in the bundle"
    )


def _is_reset(name: str) -> bool:
    return name.endswith("Reset")


def _value(places: Places, cycle: StandbyCycle, action: JsonObject) -> str | None:
    allowed = places.allowed(action)
    fitting = [value for value in cycle.values if value in allowed]
    if fitting:
        return fitting[0]
    if cycle.any_value:
        return allowed[0] if allowed else cycle.values[0]
    return cycle.values[0] if not allowed and "Oem" in (text_at(action, "target") or "") else None


def _reset(client: RedfishClient, places: Places, action: JsonObject, wanted: tuple[str, ...], what: str) -> None:
    target = text_at(action, "target")
    if target is None:
        raise ConfigurationError(f"{what}: this BMC offers no such action; use another kind of reset")
    allowed = places.allowed(action)
    choice = next((value for value in wanted if value in allowed), None)
    if choice is None and allowed:
        raise ConfigurationError(f"{what}: none of {', '.join(wanted)} is offered, only {', '.join(allowed)}")
    client.post(target, {"ResetType": choice or wanted[0]}, what)
