"""prefect.yaml: Prefect ignores what it does not know, so we do not."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from prefect import Flow
from prefect.deployments import steps

from deployments.manifest import DeploymentEntry, read_manifest
from deployments.triggers import template_faults, trigger_faults
from fleet.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]

MANIFEST = ROOT / "prefect.yaml"


def _deployments() -> list[object]:
    return [pytest.param(entry, id=entry.name) for entry in read_manifest(MANIFEST).deployments]


def _changed(tmp_path: Path, old: str, new: str) -> Path:
    text = MANIFEST.read_text()
    assert old in text
    path = tmp_path / "prefect.yaml"
    path.write_text(text.replace(old, new, 1))
    return path


def _flow(entry: DeploymentEntry) -> Flow[..., object]:
    flow = getattr(import_module(f"flows.{entry.flow}"), entry.flow)
    assert isinstance(flow, Flow)
    return flow


@pytest.mark.parametrize("entry", _deployments())
def test_an_entrypoint_is_a_flow_that_takes_the_deployments_parameters(entry: DeploymentEntry) -> None:
    signature = inspect.signature(_flow(entry).fn)
    given = [entry.parameters, *(schedule.parameters for schedule in entry.schedules)]
    given += [part for trigger in entry.triggers if isinstance(part := trigger.get("parameters"), dict)]
    assert {name for parameters in given for name in parameters} <= set(signature.parameters)
    if entry.schedules or entry.triggers:
        required = {name for name, p in signature.parameters.items() if p.default is inspect.Parameter.empty}
        assert required <= set(entry.parameters), "a scheduled run has no person to fill these in"


@pytest.mark.parametrize("entry", _deployments())
def test_a_deployment_works_from_the_pool_that_up_makes(entry: DeploymentEntry) -> None:
    assert entry.work_pool.name == "gpufleet"


def test_every_pull_step_exists_and_takes_its_inputs() -> None:
    for step in read_manifest(MANIFEST).pull:
        for name, inputs in step.items():
            function = getattr(steps, name.removeprefix("prefect.deployments.steps."))
            assert isinstance(inputs, dict)
            inspect.signature(function).bind(**inputs)


def test_only_gpufleets_variables_are_asked_for() -> None:
    variables = {part.split("}}")[0].strip() for part in MANIFEST.read_text().split("{{ $")[1:]}
    assert variables == {"GPUFLEET_HOME", "GPUFLEET_FLEET"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "name: gpufleet\n",
            "name: gpufleet\ndeployment: []\n",
            "deployment: unknown key; did you mean 'deployments'?",
        ),
        ("    tags: [firmware", "    tag: [firmware", "tag: unknown key; did you mean 'tags'?"),
        ("      - interval: 120", "      - intervall: 60", "intervall: unknown key; did you mean 'interval'?"),
        ("      - interval: 120", "      - cron: '61 * * * *'", "schedules.0"),
        ("      - interval: 120", "      - interval: 120\n        cron: '0 * * * *'", "exactly one of cron"),
        ("      - interval: 120", "      - interval: -5", "greater than 0"),
        ("      - interval: 120", "      - interval: 120\n        timezone: Mars/Olympus", "schedules.0"),
        ("collision_strategy: CANCEL_NEW", "collision_strategy: CANCEL", "collision_strategy"),
        ("    limit: 1\n", "    limit: 1\n    limits: 2\n", "limits: unknown key; did you mean 'limit'?"),
        ("name: gpufleet\n  fleet", "nam: gpufleet\n  fleet", "nam: unknown key; did you mean 'name'?"),
        ("flows.reconcile.reconcile", "flows/reconcile.py:reconcile", "entrypoint"),
        ("flows.reconcile.reconcile", "flows.sweep.reconcile", "flows.reconcile.reconcile"),
        ("name: reconcile\n", "name: reconciler\n", "is called 'reconcile'"),
        ("    tags: [housekeeping]", "    tags: [housekeeping]\n    tags: [x]", "given 2 times"),
    ],
)
def test_a_fault_is_named_with_the_nearest_right_word(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_manifest(_changed(tmp_path, old, new))
    assert said in str(caught.value)


TRIGGER = """
type: event
match: {prefect.resource.id: "gpufleet.node.*"}
expect: [gpufleet.hardware.arrived]
parameters:
  fleet: "{{ event.resource.id }}"
  at: "{{ event.occurred.isoformat() }}"
  payload: {__prefect_kind: json, value: {__prefect_kind: jinja, template: "{{ event.payload | tojson }}"}}
"""


def test_a_right_trigger_has_no_faults() -> None:
    assert trigger_faults(yaml.safe_load(TRIGGER), "t") == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("expect:", "expects:", "t.expects: unknown key; did you mean 'expect'?"),
        ("type: event", "type: evnt", "did you mean 'event'?"),
        ("type: event", "posture: Proactive\nwithin: 1", "within"),
        (".isoformat()", "", "event.occurred is a time and fails here"),
        ("event.resource", "event.resourc", "did you mean 'resource'?"),
        ("event.resource", "evnt.resource", "did you mean 'event'?"),
        ("resource.id }}", "resource.id }", "t.parameters.fleet"),
        ("__prefect_kind: jinja", "__prefect_kind: ninja", "did you mean 'jinja'?"),
        ("template:", "tmplate:", "did you mean 'template'?"),
    ],
)
def test_a_faulty_trigger_is_found_before_its_event_comes(old: str, new: str, said: str) -> None:
    assert old in TRIGGER
    assert said in "\n".join(trigger_faults(yaml.safe_load(TRIGGER.replace(old, new, 1)), "t"))


def test_a_key_inside_a_compound_trigger_is_checked_too() -> None:
    compound = {"type": "compound", "require": "all", "within": 60, "triggers": [yaml.safe_load(TRIGGER)]}
    faults = trigger_faults(compound, "t")
    assert any("triggers[0].parameters: unknown key" in fault for fault in faults)


def test_a_plain_text_is_a_good_template() -> None:
    assert template_faults("train", "t") == []
