"""Any Redfish resource or error body, by the readers that flows use."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from fleet.bmc_logs import LogKind, LogReading, read_log, read_log_entry
from fleet.bmc_messages import BmcMessage, Meaning, meaning_of, read_messages
from fleet.bmc_messages import Severity as Said
from fleet.bmc_sensors import SensorVerdict, read_sensor
from fleet.bmc_tasks import is_task, read_task
from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.firmware import read_inventory
from fleet.json_values import JsonObject, objects_at, printable, text_at
from fleet.model import FirmwareComponent, FirmwareRole, TaskOutcome
from fleet.readers.json_in_text import all_json
from fleet.readers.plain_text import any_of
from fleet.update_service import read_update_service

KIND = "redfish"
_WORDS = ('"@odata.', '"@Message.ExtendedInfo"', '"error"', '"Members"')
_SHOWN = 300

# Parts of which one machine holds several equal ones; two CPLDs or BMCs, say, are different devices.
_TWINS = re.compile(r"(GPU|SXM|SWITCH|EROT|IROT|RETIMER|NIC|CX\d)[_-]?$|^HGX_FW_CPU_", re.IGNORECASE)

_MEANINGS: dict[Meaning, tuple[Severity, Action, str]] = {
    Meaning.ALREADY_CURRENT: (Severity.INFO, Action.NONE, "the wanted version is installed already: a success"),
    Meaning.BUSY: (Severity.WARNING, Action.WAIT, "the BMC works on something else: ask again later"),
    Meaning.TRANSFER_PROTOCOL_REQUIRED: (
        Severity.ERROR,
        Action.FIX_CONFIGURATION,
        "ask again with TransferProtocol in the request",
    ),
    Meaning.NOT_AUTHORISED: (Severity.ERROR, Action.FIX_CONFIGURATION, "the account or its privileges are not enough"),
    Meaning.MISSING: (Severity.ERROR, Action.FIX_CONFIGURATION, "no such resource here: asking again does not help"),
    Meaning.BAD_REQUEST: (Severity.ERROR, Action.FIX_CONFIGURATION, "the request is wrong: asking again does not help"),
    Meaning.NOT_SUPPORTED: (Severity.ERROR, Action.FIX_CONFIGURATION, "this BMC cannot do it"),
    Meaning.IMAGE_REJECTED: (Severity.ERROR, Action.INVESTIGATE, "the image or its signature does not fit"),
    Meaning.INTERNAL: (Severity.ERROR, Action.INVESTIGATE, "the BMC failed; it may have begun"),
}
_OUTCOMES: dict[TaskOutcome, tuple[Severity, Action, str]] = {
    TaskOutcome.RUNNING: (Severity.INFO, Action.WAIT, "still runs"),
    TaskOutcome.WAITING_FOR_RESET: (Severity.WARNING, Action.REBOOT_NODE, "waits for a reset of the host"),
    TaskOutcome.SUCCEEDED: (Severity.INFO, Action.NONE, "done, by its own word; the inventory has the last one"),
    TaskOutcome.SUCCEEDED_WITH_WARNINGS: (
        Severity.WARNING,
        Action.INVESTIGATE,
        "done with warnings: read the version back",
    ),
    TaskOutcome.ALREADY_CURRENT: (Severity.INFO, Action.NONE, "the wanted version was installed already"),
    TaskOutcome.FAILED: (Severity.ERROR, Action.INVESTIGATE, "failed, whatever its percentage says"),
}
_LOGS: dict[LogKind, tuple[Severity, Action, str]] = {
    LogKind.FAULT: (Severity.ERROR, Action.INVESTIGATE, "a part says that something is wrong"),
    LogKind.RECOVERY_NEEDED: (
        Severity.ERROR,
        Action.UPDATE_FIRMWARE,
        "its firmware sits in recovery mode: write it anew",
    ),
    LogKind.EXPECTED: (Severity.INFO, Action.NONE, "follows from a restart"),
    LogKind.NOISE: (Severity.INFO, Action.NONE, "the BMC's own software, or a test"),
    LogKind.INFO: (Severity.INFO, Action.NONE, "administration, no fault"),
}


def recognises(text: str) -> bool:
    """Whether the text holds a Redfish resource, a list of them, or an error body; HTTP headers may come first."""
    return bool(_documents(text))


def explain(text: str) -> Explanation:
    """What the resource says, read as flows read it."""
    parts = [_explain_one(body) for body in _documents(text)]
    if not parts:
        return Explanation(KIND, unknown=("no Redfish resource in it that can be read",))
    kinds = list(dict.fromkeys(part.kind for part in parts))
    return Explanation(
        kind=kinds[0] if len(kinds) == 1 else KIND,
        subjects=tuple(subject for part in parts for subject in part.subjects),
        findings=tuple(finding for part in parts for finding in part.findings),
        unknown=tuple(unknown for part in parts for unknown in part.unknown),
    )


def _documents(text: str) -> list[JsonObject]:
    """The JSON objects of the text that are Redfish; what stands between documents (headers) is passed over."""
    if not any_of(_WORDS, text):
        return []
    found: list[JsonObject] = []
    for document in all_json(text):
        value = printable(document)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and _is_redfish(item):
                found.append(item)
            elif isinstance(item, dict) and item and all(isinstance(v, dict) and _is_redfish(v) for v in item.values()):
                found += list(item.values())  # a map of addresses to resources
    return found


def _is_redfish(body: JsonObject) -> bool:
    if any(str(key).startswith("@odata.") or str(key) == "@Message.ExtendedInfo" for key in body):
        return True
    if objects_at(body, "Members") and all(_is_redfish(member) for member in objects_at(body, "Members")[:3]):
        return True
    code = text_at(body, "error", "code") or ""
    return bool(objects_at(body, "error", "@Message.ExtendedInfo")) or bool(re.match(r"[A-Za-z]+\.\d+\.\d+", code))


def _explain_one(body: JsonObject) -> Explanation:
    """The first of these that fits: the order is from the plainest to the most general."""
    kind = _type(body)
    members = objects_at(body, "Members")
    first = _type(members[0]) if members else ""
    choices: tuple[tuple[bool, Callable[[JsonObject], Explanation]], ...] = (
        ("error" in body, _error),
        (is_task(body), _task),
        (kind == "UpdateService" or "MultipartHttpPushUri" in body, _update_service),
        (kind in ("SoftwareInventory", "FirmwareInventory") or first == "SoftwareInventory", _inventory),
        (kind in ("LogEntry", "LogEntryCollection") or first == "LogEntry", _log),
        (kind == "Sensor", _sensor),
    )
    return next((explained for fits, explained in choices if fits), _resource)(body)


def _type(body: JsonObject) -> str:
    """SoftwareInventory of "#SoftwareInventory.v1_4_0.SoftwareInventory"."""
    return (text_at(body, "@odata.type") or "").rpartition(".")[2].lstrip("#")


def _error(body: JsonObject) -> Explanation:
    messages = read_messages(body)
    meaning = meaning_of(messages)
    if meaning is Meaning.OTHER or not messages:
        level = max((message.severity for message in messages), default=Said.UNKNOWN)
        severity = Severity.ERROR if level >= Said.CRITICAL else Severity.WARNING
        plain = (severity, Action.INVESTIGATE, "the BMC says no, and its words are not known")
    else:
        plain = _MEANINGS[meaning]
    evidence = "; ".join(str(message) for message in messages)[:_SHOWN] or json.dumps(body)[:_SHOWN]
    finding = Finding("bmc", f"bmc.{meaning.value}", plain[0], plain[1], evidence, plain[2])
    every = {"messages": str(len(messages))} | {f"message {n}": _said(m) for n, m in enumerate(messages, 1)}
    return Explanation("redfish-error", (Subject("bmc", every),), (finding,))


def _said(message: BmcMessage) -> str:
    return f"{message.severity.name.casefold()}: {message}"[:_SHOWN]


def _task(body: JsonObject) -> Explanation:
    task = read_task(body)
    name = f"task {task.id}"
    facts = {"state": task.state, "outcome": task.outcome.value}
    facts |= {"status": task.status} if task.status else {}
    facts |= {"percent": str(task.percent)} if task.percent is not None else {}
    if task.outcome not in _OUTCOMES:
        return Explanation("redfish-task", (Subject(name, facts),), unknown=(f"{name}: what {task.state} means",))
    severity, action, text = _OUTCOMES[task.outcome]
    evidence = "; ".join((f"TaskState={task.state}", f"TaskStatus={task.status}", *task.messages))[:_SHOWN]
    finding = Finding(name, f"task.{task.outcome.value}", severity, action, evidence, text)
    return Explanation("redfish-task", (Subject(name, facts),), (finding,))


def _update_service(body: JsonObject) -> Explanation:
    service = read_update_service(body)
    facts = {
        "enabled": _word(service.enabled),
        "multipart push": service.multipart_uri or "not offered",
        "http push": service.http_push_uri or "not offered",
        "simple update": service.simple_update or "not offered",
        "start update": service.start_update or "not offered",
        "two steps": _word(service.two_step),
        "apply times": ", ".join(service.apply_times) or "not told",
        "largest image": f"{service.max_image_bytes} bytes" if service.max_image_bytes else "not told",
        "busy with": service.busy_with or "nothing",
    }
    findings: tuple[Finding, ...] = ()
    if service.enabled is False:
        why = "updates are switched off"
        findings = (
            Finding(
                "update service",
                "update.disabled",
                Severity.ERROR,
                Action.FIX_CONFIGURATION,
                "ServiceEnabled=false",
                why,
            ),
        )
    if service.busy_with:
        findings += (
            Finding(
                "update service",
                "update.busy",
                Severity.WARNING,
                Action.WAIT,
                service.busy_with[:_SHOWN],
                "an update runs",
            ),
        )
    unknown = ("whether updates are enabled",) if service.enabled is None else ()
    return Explanation("redfish-update-service", (Subject("update service", facts),), findings, unknown)


def _word(value: bool | None) -> str:
    return {True: "yes", False: "no"}.get(value, "unknown") if value is not None else "unknown"


def _inventory(body: JsonObject) -> Explanation:
    components = read_inventory(objects_at(body, "Members") or (body,))
    subjects = tuple(Subject(component.id, _component_facts(component)) for component in components)
    findings = [finding for component in components for finding in _component_findings(component)]
    unknown = tuple(
        f"{c.id}: its running version" for c in components if c.role is FirmwareRole.UNKNOWN or _driver_off(c)
    )
    return Explanation("redfish-firmware", subjects, (*findings, *_mixed(components)), unknown)


def _driver_off(component: FirmwareComponent) -> bool:
    """The BMC's idea of the host's driver, while that driver does not run."""
    return "driver" in component.id.casefold() and component.role is not FirmwareRole.ACTIVE


def _component_facts(component: FirmwareComponent) -> dict[str, str]:
    facts = {"version": component.version or "unknown", "role": component.role.value, "state": component.state}
    facts |= {"staged": component.staged} if component.staged else {}
    facts |= {"health": component.health} if component.health else {}
    return facts | ({"updateable": _word(component.updateable)} if component.updateable is not None else {})


def _component_findings(component: FirmwareComponent) -> Iterator[Finding]:
    evidence = f"Version={component.version} State={component.state} Health={component.health}"
    if component.role is FirmwareRole.ABSENT and component.health == "Critical":
        why = "its firmware device is not usable now: the host may be off, or the part in recovery; not up to date"
        yield Finding(component.id, "firmware.not_usable", Severity.ERROR, Action.INVESTIGATE, evidence, why)
    elif component.role is FirmwareRole.ACTIVE and component.health in ("Warning", "Critical"):
        severity = Severity.ERROR if component.health == "Critical" else Severity.WARNING
        yield Finding(component.id, "firmware.unhealthy", severity, Action.INVESTIGATE, evidence)
    if component.staged and component.role is FirmwareRole.ACTIVE:
        why = f"{component.staged} is written and waits for the reset of its kind"
        yield Finding(component.id, "firmware.staged", Severity.INFO, Action.NONE, f"staged={component.staged}", why)


def _mixed(components: tuple[FirmwareComponent, ...]) -> Iterator[Finding]:
    """Numbered twins (GPU_0, GPU_1 …) that carry different versions."""
    families: defaultdict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for component in components:
        stem = re.sub(r"\d+$", "", component.id)
        if _TWINS.search(stem) and component.version and component.role in (FirmwareRole.ACTIVE, FirmwareRole.ABSENT):
            families[stem][component.version.casefold()].append(component.id)
    for stem, versions in families.items():
        if len(versions) > 1:
            evidence = "; ".join(f"{', '.join(ids)}: {version}" for version, ids in versions.items())[:_SHOWN]
            why = "equal parts of one machine run different firmware"
            yield Finding(f"{stem}*", "firmware.mixed", Severity.WARNING, Action.UPDATE_FIRMWARE, evidence, why)


def _log(body: JsonObject) -> Explanation:
    entries = read_log(body) if objects_at(body, "Members") else (read_log_entry(body),)
    subjects = tuple(dict.fromkeys(entry.device or "node" for entry in entries))
    findings = tuple(_entry_finding(entry) for entry in entries)
    unknown = tuple(
        f"entry {e.id}: when it happened (its clock was not set, or has no zone)" for e in entries if e.at is None
    )
    return Explanation("redfish-log", tuple(Subject(name) for name in subjects), findings, unknown)


def _entry_finding(entry: LogReading) -> Finding:
    severity, action, text = _LOGS[entry.kind]
    if entry.kind is LogKind.FAULT and entry.severity is not Said.CRITICAL:
        severity = Severity.WARNING
    when = f"{entry.at:%F %T} UTC " if entry.at else ""
    evidence = f"{when}{entry.message_id or ''} {entry.text}".strip()[:_SHOWN]
    return Finding(entry.device or "node", f"bmc_log.{entry.kind.value}", severity, action, evidence, text)


def _sensor(body: JsonObject) -> Explanation:
    sensor = read_sensor(body)
    value = "none" if sensor.value is None else f"{sensor.value:g} {sensor.unit or ''}".strip()
    subject = Subject(sensor.id, {"reading": value, "state": sensor.state, "verdict": sensor.verdict.value})
    evidence = f"Reading={value} State={sensor.state} Health={sensor.health}"
    if sensor.verdict is SensorVerdict.UNKNOWN:
        return Explanation("redfish-sensor", (subject,), unknown=(f"{sensor.id}: its value",))
    found = {
        SensorVerdict.ALARM: (Severity.ERROR, Action.INVESTIGATE, "beyond its critical threshold, or the BMC says so"),
        SensorVerdict.WARNING: (Severity.WARNING, Action.WATCH, "beyond its caution threshold, or the BMC says so"),
        SensorVerdict.ABSENT: (Severity.INFO, Action.NONE, "the part is not there: no alarm"),
    }.get(sensor.verdict)
    findings = (
        () if found is None else (Finding(sensor.id, f"sensor.{sensor.verdict.value}", *found[:2], evidence, found[2]),)
    )
    return Explanation("redfish-sensor", (subject,), findings)


def _resource(body: JsonObject) -> Explanation:
    """Any other resource: what it is, and what its own status says."""
    kind = _type(body) or "resource"
    name = text_at(body, "Id") or text_at(body, "@odata.id") or kind
    keys = (
        "Name",
        "Manufacturer",
        "Model",
        "PartNumber",
        "SerialNumber",
        "UUID",
        "PowerState",
        "BiosVersion",
        "FirmwareVersion",
        "Version",
    )
    facts = {key: value for key in keys if (value := text_at(body, key))}
    state, health = text_at(body, "Status", "State"), text_at(body, "Status", "Health")
    facts |= {k: v for k, v in (("State", state), ("Health", health)) if v}
    findings: tuple[Finding, ...] = ()
    if health in ("Warning", "Critical") and state != "Absent":
        severity = Severity.ERROR if health == "Critical" else Severity.WARNING
        findings = (
            Finding(name, "bmc.unhealthy", severity, Action.INVESTIGATE, f"Status.Health={health} State={state}"),
        )
    unknown = () if health else (f"{name}: its health",)
    return Explanation(f"redfish-{kind}".casefold(), (Subject(name, facts),), findings, unknown)
