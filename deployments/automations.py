"""What Prefect does by itself when something happens."""

from __future__ import annotations

from datetime import timedelta

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

HEARTBEAT = "prefect.flow-run.heartbeat"
# A waiting run has no process and so no heartbeat: Suspended and Paused end the wait as well.
_ENDS = ("Completed", "Failed", "Cancelled", "Crashed", "Suspended", "Paused")

SILENT_RUN = AutomationCore(
    name="gpufleet: a flow run without a heartbeat has crashed",
    description=(
        "A flow run whose host died would stay Running for ever. Three heartbeats of 30 s are missing: "
        "it becomes Crashed, and `reconcile` takes its operation up again."
    ),
    trigger=EventTrigger(
        after={HEARTBEAT},
        expect={HEARTBEAT, *(f"prefect.flow-run.{state}" for state in _ENDS)},
        match={"prefect.resource.id": "prefect.flow-run.*"},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=90),
    ),
    actions=[ChangeFlowRunState(state=StateType.CRASHED, message="no heartbeat for 90 s: its process or host is gone")],
)

AUTOMATIONS = (SILENT_RUN,)


async def ensure_automations(client: PrefectClient) -> list[str]:
    """Create or update our automations, found by name. Returns the names that changed.

    One that a person has disabled stays disabled.
    """
    changed: list[str] = []
    for wanted in AUTOMATIONS:
        same_name = await client.read_automations_by_name(wanted.name)
        if not same_name:
            await client.create_automation(wanted)
            changed.append(wanted.name)
            continue
        kept, *doubles = same_name
        for double in doubles:
            await client.delete_automation(double.id)
        present = AutomationCore.model_validate(kept.model_dump(exclude={"id"}))
        desired = wanted.model_copy(update={"enabled": kept.enabled})
        if _comparable(present) != _comparable(desired):
            await client.update_automation(kept.id, desired)
            changed.append(wanted.name)
    return changed


def _comparable(automation: AutomationCore) -> dict[str, object]:
    """The automation without what the server adds."""
    return automation.model_dump(exclude={"trigger": {"id"}, "owner_resource": True}, exclude_none=True)
