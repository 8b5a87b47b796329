"""prefect.yaml, read strictly: Prefect itself ignores a key that it does not know."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationError,
    model_validator,
)

from deployments.triggers import nearest, trigger_faults
from fleet.errors import ConfigurationError

Mapping = dict[str, JsonValue]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class WorkPoolEntry(_Strict):
    name: str
    work_queue_name: str | None = None
    job_variables: Mapping = {}


class ConcurrencyEntry(_Strict):
    limit: int = Field(ge=1)
    collision_strategy: Literal["ENQUEUE", "CANCEL_NEW"] = "ENQUEUE"
    grace_period_seconds: int | None = Field(None, ge=60, le=86400)


class ScheduleEntry(_Strict):
    cron: str | None = None
    interval: float | None = Field(None, gt=0, description="seconds")
    rrule: str | None = None
    timezone: str | None = None
    anchor_date: str | None = None
    active: bool = True
    parameters: Mapping = {}
    slug: Slug | None = None
    day_or: bool = True

    @model_validator(mode="after")
    def _one_that_prefect_accepts(self) -> Self:
        if sum(given is not None for given in (self.cron, self.interval, self.rrule)) != 1:
            raise ValueError("give exactly one of cron, interval and rrule")
        if self.cron is not None:
            CronSchedule(cron=self.cron, timezone=self.timezone, day_or=self.day_or)
        elif self.interval is not None:
            IntervalSchedule.model_validate({"interval": self.interval, "timezone": self.timezone})
        else:
            RRuleSchedule.model_validate({"rrule": self.rrule, "timezone": self.timezone or "UTC"})
        return self


class DeploymentEntry(_Strict):
    name: Slug
    entrypoint: Annotated[str, StringConstraints(pattern=r"^flows\.[a-z0-9_]+\.[a-z0-9_]+$")]
    description: Annotated[str, StringConstraints(min_length=40)] = Field(description="for an operator")
    tags: tuple[str, ...] = ()
    version: str | None = None
    paused: bool = False
    schedules: tuple[ScheduleEntry, ...] = ()
    concurrency_limit: int | ConcurrencyEntry | None = None
    parameters: Mapping = {}
    enforce_parameter_schema: Literal[True] = True
    work_pool: WorkPoolEntry
    triggers: tuple[Mapping, ...] = ()

    @property
    def flow(self) -> str:
        """The flow's function, which is also its file's name."""
        return self.entrypoint.rpartition(".")[2]

    @model_validator(mode="after")
    def _named_like_its_flow(self) -> Self:
        if self.entrypoint != f"flows.{self.flow}.{self.flow}":
            raise ValueError(f"file and function of a flow have one name: flows.{self.flow}.{self.flow}")
        if self.name != self.flow.replace("_", "-"):
            raise ValueError(f"the deployment of {self.flow} is called {self.flow.replace('_', '-')!r}")
        return self


class Manifest(_Strict):
    """All of prefect.yaml. `definitions` only holds YAML anchors."""

    name: Literal["gpufleet"]
    prefect_version: str | None = Field(None, alias="prefect-version")
    pull: tuple[Mapping, ...]
    definitions: dict[str, JsonValue] = {}
    deployments: tuple[DeploymentEntry, ...] = Field(min_length=1)


def read_manifest(path: Path) -> Manifest:
    """Read prefect.yaml. Raises ConfigurationError that lists every fault of it."""
    text = path.read_text()
    try:
        tree, data = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path.name}: not YAML: {error}") from error
    faults = _duplicates(tree, "") if tree is not None else []
    manifest: Manifest | None = None
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        for found in error.errors():
            faults.append(_explain(found["loc"], found["type"], found["msg"]))
    for deployment in manifest.deployments if manifest else ():
        for index, trigger in enumerate(deployment.triggers):
            faults += trigger_faults(trigger, f"{deployment.name}.triggers[{index}]")
    if faults or manifest is None:
        raise ConfigurationError("\n".join(f"{path.name}: {fault}" for fault in faults))
    return manifest


def _explain(path: tuple[int | str, ...], kind: str, message: str) -> str:
    place = ".".join(str(step) for step in path) or "the file"
    if kind == "extra_forbidden":
        return f"{place}: unknown key; {nearest(str(path[-1]), _keys_at(path[:-1]))}"
    return f"{place}: {message}"


def _keys_at(path: tuple[int | str, ...]) -> list[str]:
    """The keys that are allowed at `path`."""
    model: type[BaseModel] = Manifest
    for step in path:
        if str(step) == ConcurrencyEntry.__name__:
            model = ConcurrencyEntry
        field = model.model_fields.get(str(step))
        inner = _models_in(field.annotation) if field is not None else []
        model = inner[0] if inner else model
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]


def _duplicates(node: yaml.Node, place: str) -> list[str]:
    """Keys that are given twice: YAML keeps the last one in silence."""
    found: list[str] = []
    if isinstance(node, yaml.MappingNode):
        seen = Counter(key.value for key, _ in node.value)
        found += [f"{place}{key}: given {times} times" for key, times in seen.items() if times > 1]
        for key, value in node.value:
            found += _duplicates(value, f"{place}{key.value}.")
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found += _duplicates(value, f"{place}{index}.")
    return found
