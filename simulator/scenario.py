"""A scenario: the fleet and the faults that show what one flow does. One file per flow in `scenarios/`.

description: one sentence for the person who watches
fleet: {nodes: 32, racks: 4, gpus_per_node: 8, seed: 7, time_scale: 60}
faults: []          # as in a faults file, and so are
drivers: {}         # driver releases and what is wrong with them
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from fleet.errors import ConfigurationError
from simulator.faults import parse_faults

FOLDER = Path(__file__).parent / "scenarios"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScenarioFleet(_Strict):
    """What `gpufleet simulate` is given. `time_scale` is simulated seconds per second."""

    nodes: int = Field(32, ge=1)
    racks: int = Field(4, ge=1)
    gpus_per_node: int = Field(8, ge=1)
    seed: int = 7
    time_scale: float = Field(60.0, gt=0)


class Scenario(_Strict):
    description: Annotated[str, StringConstraints(min_length=20)]
    fleet: ScenarioFleet = ScenarioFleet()
    faults: tuple[dict[str, bool | int | float | str], ...] = ()
    drivers: dict[str, JsonValue] = {}

    def faults_text(self) -> str:
        """The faults as the text of a faults file."""
        drivers = {"drivers": self.drivers} if self.drivers else {}
        return yaml.safe_dump({"faults": list(self.faults), **drivers}, sort_keys=False)


def read_scenario(flow: str) -> Scenario:
    """The scenario of `flow` (its function's name).

    Raises ConfigurationError where it is missing or wrong. Node names in its faults are checked by the
    simulator, which makes them.
    """
    path = FOLDER / f"{flow}.yaml"
    try:
        scenario = Scenario.model_validate(yaml.safe_load(path.read_text()))
    except FileNotFoundError as error:
        known = ", ".join(sorted(found.stem for found in FOLDER.glob("*.yaml")))
        raise ConfigurationError(f"no scenario for {flow!r}; known: {known}") from error
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigurationError(f"{path.name}: {error}") from error
    drawn = yaml.safe_dump({"faults": [fault for fault in scenario.faults if "nodes" not in fault]})
    parse_faults(drawn, path.name, (), scenario.fleet.seed)
    return scenario
