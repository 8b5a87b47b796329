"""What differs between vendors, in one place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleet.json_values import JsonObject, object_at, text_at
from fleet.model import PowerState

# A baseboard that NVIDIA shows as a system of its own beside the host.
BASEBOARD_ID = re.compile(r"^HGX_", re.IGNORECASE)
TASK_PATH = re.compile(r"/redfish/v1/[A-Za-z/]*Tasks?/[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class StandbyCycle:
    """An action that cuts standby power too. `values` are accepted ResetType words, best first."""

    action: str
    values: tuple[str, ...]
    extra: tuple[tuple[str, str], ...] = ()
    any_value: bool = False  # the action does nothing else, so any word it offers will do


# Best first. Dell: FullPowerCycle does not always reach the GPU board, ExtendedReset does, with the host off
# (Dell KB 000355295). HPE: iLO's AuxCycle. FullPowerCycle: DMTF Resource.ResetType.
STANDBY_CYCLES = (
    StandbyCycle("#NvidiaChassis.AuxPowerReset", ("AuxPowerCycle", "AuxPowerCycleForce"), any_value=True),
    StandbyCycle("#DellOemChassis.ExtendedReset", ("PowerCycle",), (("FinalPowerState", "On"),)),
    StandbyCycle("#HpeComputerSystemExt.SystemReset", ("AuxCycle",)),
    StandbyCycle("#Chassis.Reset", ("FullPowerCycle",)),
    StandbyCycle("#ComputerSystem.Reset", ("FullPowerCycle",)),
)
# The host is drained: a clean restart first, force only where that is all there is.
HOST_RESETS = ("GracefulRestart", "ForceRestart", "PowerCycle")
MANAGER_RESETS = ("GracefulRestart", "ForceRestart")

_POWER = {
    "on": PowerState.ON,
    "off": PowerState.OFF,
    "poweringon": PowerState.POWERING_ON,
    "poweringoff": PowerState.POWERING_OFF,
}


def power_of(system: JsonObject) -> PowerState:
    """Redfish PowerState; any other word is UNKNOWN."""
    return _POWER.get((text_at(system, "PowerState") or "").casefold(), PowerState.UNKNOWN)


def actions_of(resource: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Every action with a target, those of vendors too: their depth under Oem differs."""
    pending = [object_at(resource, "Actions"), object_at(resource, "Oem")]
    while pending:
        for name, value in pending.pop().items():
            if not isinstance(value, Mapping):
                continue
            if text_at(value, "target"):
                yield f"#{name.rpartition('#')[2]}" if "#" in name else name, value
            else:
                pending.append(value)
