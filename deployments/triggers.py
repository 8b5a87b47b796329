"""Event triggers of deployments, checked before Prefect runs them.

A fault in a template's parameters shows only when the event comes: a line in the server's log, and no run.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from prefect.events.schemas.automations import (
    CompoundTrigger,
    EventTrigger,
    MetricTrigger,
    SequenceTrigger,
)
from prefect.events.schemas.deployment_triggers import (
    DeploymentCompoundTrigger,
    DeploymentEventTrigger,
    DeploymentMetricTrigger,
    DeploymentSequenceTrigger,
    DeploymentTriggerTypes,
)
from prefect.events.schemas.events import Event
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

_OUTER: dict[str, type[BaseModel]] = {
    "event": DeploymentEventTrigger,
    "metric": DeploymentMetricTrigger,
    "compound": DeploymentCompoundTrigger,
    "sequence": DeploymentSequenceTrigger,
}
_INNER: dict[str, type[BaseModel]] = {
    "event": EventTrigger,
    "metric": MetricTrigger,
    "compound": CompoundTrigger,
    "sequence": SequenceTrigger,
}
_PREFECT_KINDS = ("none", "json", "jinja", "workspace_variable")
_KIND_KEYS = ("__prefect_kind", "value", "template", "variable_name")
# What Prefect puts into a template (its actions module), and the times among an event's fields.
_NAMES = frozenset(
    ("automation", "event", "labels", "firing", "firings", "events", "flow", "flow_run", "task_run")
) | frozenset(("deployment", "work_pool", "work_queue", "concurrency_limit"))
_EVENT_FIELDS = [
    *Event.model_fields,
    "involved_resources",
    "resource_in_role",
    "resources_in_role",
    "size_bytes",
]
_TIMES = ("occurred", "received")


def trigger_faults(trigger: Mapping[str, JsonValue], place: str) -> list[str]:
    """Every fault of one trigger; empty where Prefect will do what is written."""
    faults = _unknown_keys(trigger, place, _OUTER)
    try:
        TypeAdapter(DeploymentTriggerTypes).validate_python(dict(trigger))
    except ValidationError as error:
        faults += [f"{place}.{'.'.join(map(str, found['loc'][1:]))}: {found['msg']}" for found in error.errors()]
    faults += _value_faults(trigger.get("parameters"), f"{place}.parameters")
    return faults


def _unknown_keys(trigger: Mapping[str, JsonValue], place: str, models: dict[str, type[BaseModel]]) -> list[str]:
    kind = str(trigger.get("type", "event"))
    if kind not in models:
        return [f"{place}.type: {kind!r}; {nearest(kind, list(models))}"]
    known = [name for name in models[kind].model_fields if name != "id"]
    faults = [f"{place}.{key}: unknown key; {nearest(key, known)}" for key in trigger if key not in known]
    inner = trigger.get("triggers")
    for index, part in enumerate(inner if isinstance(inner, list) else []):
        if isinstance(part, dict):
            faults += _unknown_keys(part, f"{place}.triggers[{index}]", _INNER)
    return faults


def _value_faults(value: JsonValue, place: str) -> list[str]:
    """Faults in the parameters: templates are texts, typed values are marked with __prefect_kind."""
    if isinstance(value, str):
        return template_faults(value, place)
    if isinstance(value, list):
        return [fault for index, part in enumerate(value) for fault in _value_faults(part, f"{place}[{index}]")]
    if not isinstance(value, dict):
        return []
    faults: list[str] = []
    if "__prefect_kind" in value:
        kind = str(value["__prefect_kind"])
        if kind not in _PREFECT_KINDS:
            faults.append(f"{place}.__prefect_kind: {kind!r}; {nearest(kind, list(_PREFECT_KINDS))}")
        faults += [
            f"{place}.{key}: unknown key; {nearest(key, list(_KIND_KEYS))}" for key in value if key not in _KIND_KEYS
        ]
    return faults + [fault for key, part in value.items() for fault in _value_faults(part, f"{place}.{key}")]


def template_faults(template: str, place: str) -> list[str]:
    """What would go wrong with one Jinja template when its event comes."""
    environment = ImmutableSandboxedEnvironment()
    environment.filters["tojson"] = str
    try:
        tree = environment.parse(template)
    except jinja2.TemplateSyntaxError as error:
        return [f"{place}: {error.message} in {template!r}"]
    unknown = sorted(meta.find_undeclared_variables(tree) - _NAMES)
    faults = [f"{place}: no {name!r} in a trigger; {nearest(name, list(_NAMES))}" for name in unknown]
    read = [
        get for get in tree.find_all(nodes.Getattr) if isinstance(get.node, nodes.Name) and get.node.name == "event"
    ]
    for attribute in sorted({get.attr for get in read} - set(_EVENT_FIELDS)):
        faults.append(f"{place}: an event has no {attribute!r}; {nearest(attribute, _EVENT_FIELDS)}")
    texts = {get.node for get in tree.find_all(nodes.Getattr) if get.attr == "isoformat"}
    for get in read:
        if get.attr in _TIMES and get not in texts:
            faults.append(f"{place}: event.{get.attr} is a time and fails here: write event.{get.attr}.isoformat()")
    return faults


def nearest(word: str, known: list[str]) -> str:
    """A hint for an unknown word."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
