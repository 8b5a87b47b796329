"""The service root and the services beside the hardware: sessions, accounts, events, tasks, updates."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from simulator.bmc.sessions import LOCKOUT_SECONDS, LOCKOUT_THRESHOLD, TIMEOUT_SECONDS, Session
from simulator.bmc.tree import OK, ROOT, Doc, Ids, Render, collection, link, resource
from simulator.bmc.updates import UpdateTask

if TYPE_CHECKING:
    from simulator.bmc.device import Bmc

METADATA = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b'<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0"><edmx:DataServices>'
    b'<Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">'
    b'<EntityContainer Name="Service" Extends="ServiceRoot.v1_14_0.ServiceContainer"/>'
    b"</Schema></edmx:DataServices></edmx:Edmx>\n"
)
PUSH_PATH = "UpdateService/update-multipart"
SIMPLE_UPDATE_PATH = "UpdateService/Actions/UpdateService.SimpleUpdate"


def service_root(bmc: Bmc) -> Doc:
    """The only resource that needs no login and that answers while the BMC starts."""
    links: Doc = {
        name: link(name)
        for name in (
            "AccountService",
            "Chassis",
            "ComponentIntegrity",
            "EventService",
            "JsonSchemas",
            "Managers",
            "Registries",
            "SessionService",
            "Systems",
            "UpdateService",
        )
    }
    expand = {"ExpandAll": False, "Levels": True, "Links": False, "MaxLevels": 1, "NoLinks": True}
    return {
        "@odata.id": "/redfish/v1/",
        "@odata.type": "#ServiceRoot.v1_14_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.15.0",
        "Product": "HGX H100 simulator",
        "Vendor": "NVIDIA",
        "UUID": service_uuid(bmc, "service"),
        "ProtocolFeaturesSupported": {"ExpandQuery": expand, "SelectQuery": False, "FilterQuery": False},
        "Links": {"Sessions": link("SessionService/Sessions")},
        "Tasks": link("TaskService"),
        **links,
    }


def service_uuid(bmc: Bmc, part: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{part}.{bmc.machine.name}"))


def odata_document() -> Doc:
    names = ("Systems", "Chassis", "Managers", "UpdateService", "TaskService", "SessionService")
    entries = [{"name": name, "kind": "Singleton", "url": f"{ROOT}/{name}"} for name in names]
    return {"@odata.context": f"{ROOT}/$metadata", "value": entries}


def session_doc(session: Session) -> Doc:
    path = f"SessionService/Sessions/{session.id}"
    return resource(path, "Session.v1_5_0", "User Session", UserName=session.user, CreatedTime=session.created)


def task_doc(bmc: Bmc, task: UpdateTask) -> Doc:
    doc = resource(
        f"TaskService/Tasks/{task.id}",
        "Task.v1_6_1",
        f"Task {task.id}",
        TaskState=task.state,
        TaskStatus=task.status,
        PercentComplete=task.percent(bmc.clock.now()),
        StartTime=task.start_text,
        Messages=task.messages,
        TaskMonitor=monitor_uri(task),
        HidePayload=True,
    )
    if task.end_text is not None:
        doc["EndTime"] = task.end_text
    return doc


def monitor_uri(task: UpdateTask) -> str:
    return f"{ROOT}/TaskService/TaskMonitors/{task.id}"


def _session_service(_: Bmc, __: Ids) -> Doc:
    return resource(
        "SessionService",
        "SessionService.v1_1_8",
        "Session Service",
        ServiceEnabled=True,
        SessionTimeout=TIMEOUT_SECONDS,
        Status=OK,
        Sessions=link("SessionService/Sessions"),
    )


def _sessions(bmc: Bmc, _: Ids) -> Doc:
    return collection("SessionService/Sessions", "Session", [session.id for session in bmc.sessions.all()])


def _session(bmc: Bmc, ids: Ids) -> Doc | None:
    session = bmc.sessions.find(ids[0])
    return session_doc(session) if session else None


def _account_service(_: Bmc, __: Ids) -> Doc:
    return resource(
        "AccountService",
        "AccountService.v1_11_1",
        "Account Service",
        ServiceEnabled=True,
        AccountLockoutThreshold=LOCKOUT_THRESHOLD,
        AccountLockoutDuration=LOCKOUT_SECONDS,
        Accounts=link("AccountService/Accounts"),
        Roles=link("AccountService/Roles"),
        Status=OK,
    )


def _account(bmc: Bmc, ids: Ids) -> Doc | None:
    if ids[0] != "1":
        return None
    return resource(
        "AccountService/Accounts/1",
        "ManagerAccount.v1_9_0",
        "User Account",
        UserName=bmc.sessions.user,
        Password=None,
        RoleId="Administrator",
        Enabled=True,
        Locked=bmc.sessions.locked,
        AccountTypes=["Redfish"],
        Links={"Role": link("AccountService/Roles/Administrator")},
    )


def _role(_: Bmc, ids: Ids) -> Doc | None:
    if ids[0] != "Administrator":
        return None
    privileges = ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"]
    return resource(
        "AccountService/Roles/Administrator",
        "Role.v1_3_1",
        "Administrator Role",
        RoleId="Administrator",
        IsPredefined=True,
        AssignedPrivileges=privileges,
    )


def _event_service(_: Bmc, __: Ids) -> Doc:
    return resource(
        "EventService",
        "EventService.v1_8_0",
        "Event Service",
        ServiceEnabled=False,
        DeliveryRetryAttempts=3,
        DeliveryRetryIntervalSeconds=30,
        EventFormatTypes=["Event"],
        Subscriptions=link("EventService/Subscriptions"),
        Status={"State": "Disabled"},
    )


def _task_service(bmc: Bmc, _: Ids) -> Doc:
    return resource(
        "TaskService",
        "TaskService.v1_2_0",
        "Task Service",
        ServiceEnabled=True,
        DateTime=bmc.time_text(),
        CompletedTaskOverWritePolicy="Oldest",
        LifeCycleEventOnTaskStateChange=False,
        Tasks=link("TaskService/Tasks"),
        Status=OK,
    )


def _tasks(bmc: Bmc, _: Ids) -> Doc:
    seen = [task.id for task in bmc.updates.tasks.values() if not task.hidden]
    return collection("TaskService/Tasks", "Task", seen)


def _task(bmc: Bmc, ids: Ids) -> Doc | None:
    task = bmc.updates.tasks.get(ids[0])
    return task_doc(bmc, task) if task and not task.hidden else None


def _update_service(_: Bmc, __: Ids) -> Doc:
    simple = {
        "target": f"{ROOT}/{SIMPLE_UPDATE_PATH}",
        "TransferProtocol@Redfish.AllowableValues": ["HTTP", "HTTPS"],
    }
    return resource(
        "UpdateService",
        "UpdateService.v1_11_1",
        "Update Service",
        ServiceEnabled=True,
        MultipartHttpPushUri=f"{ROOT}/{PUSH_PATH}",
        MaxImageSizeBytes=209715200,
        FirmwareInventory=link("UpdateService/FirmwareInventory"),
        Actions={"#UpdateService.SimpleUpdate": simple},
        Status=OK,
    )


def _fixed(path: str, kind: str, members: list[str]) -> Render:
    return lambda _, __: collection(path, kind, members)


SERVICES: dict[str, Render] = {
    "SessionService": _session_service,
    "SessionService/Sessions": _sessions,
    "SessionService/Sessions/{}": _session,
    "AccountService": _account_service,
    "AccountService/Accounts": _fixed("AccountService/Accounts", "ManagerAccount", ["1"]),
    "AccountService/Accounts/{}": _account,
    "AccountService/Roles": _fixed("AccountService/Roles", "Role", ["Administrator"]),
    "AccountService/Roles/{}": _role,
    "EventService": _event_service,
    "EventService/Subscriptions": _fixed("EventService/Subscriptions", "EventDestination", []),
    "TaskService": _task_service,
    "TaskService/Tasks": _tasks,
    "TaskService/Tasks/{}": _task,
    "UpdateService": _update_service,
    "Registries": _fixed("Registries", "MessageRegistryFile", []),
    "JsonSchemas": _fixed("JsonSchemas", "JsonSchemaFile", []),
}
