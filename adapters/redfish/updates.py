"""Pushing an image, and the task that follows."""

from __future__ import annotations

from pathlib import Path

from adapters.redfish.answers import Answer, RequestRefused, busy
from adapters.redfish.client import RedfishClient
from adapters.redfish.places import Places
from adapters.redfish.quirks import TASK_PATH
from fleet.bmc_messages import Meaning, meaning_of
from fleet.bmc_tasks import is_task, read_task
from fleet.errors import BmcBusy, ConfigurationError, TransientError
from fleet.json_values import JsonObject, text_at
from fleet.model import RedfishTask, TaskOutcome
from fleet.update_service import UpdateService, read_update_service, update_parameters


def push_image(client: RedfishClient, places: Places, image: Path, targets: tuple[str, ...]) -> RedfishTask:
    """As `fleet.ports.Bmc.push_image`. Reading the update service first also renews an old session."""
    service = read_service(client, places)
    uri = _check(service, image)
    try:
        with image.open("rb") as stream:
            answer = client.push(uri, update_parameters(service, targets), image.name, stream, "image push")
        if service.two_step and service.start_update is not None:
            answer = _start(client, service.start_update)
    except RequestRefused as error:
        return _unless_current(error)
    return task_of(client, answer)


def simple_update(
    client: RedfishClient, places: Places, image_uri: str, targets: tuple[str, ...], protocol: str | None
) -> RedfishTask:
    """Let the BMC fetch the image. `protocol` ("HTTPS") is sent where it is given or the BMC names some."""
    service = read_service(client, places)
    if service.simple_update is None:
        raise ConfigurationError("this BMC offers no SimpleUpdate; push the image instead")
    scheme = protocol or image_uri.partition(":")[0].upper()
    body: dict[str, object] = {"ImageURI": image_uri}
    if protocol is not None or service.simple_update_protocols:
        body["TransferProtocol"] = scheme
    if targets:
        body["Targets"] = list(targets)
    try:
        answer = client.post(service.simple_update, body, "SimpleUpdate")
    except RequestRefused as error:
        return _unless_current(error)
    return task_of(client, answer)


def read_service(client: RedfishClient, places: Places) -> UpdateService:
    """The update service as it is now."""
    service = read_update_service(client.get(places.update_service(), "update service"))
    places.learn_inventory(service.inventory)
    return service


def task_of(client: RedfishClient, answer: Answer) -> RedfishTask:
    """The task that an accepted request began; outcome UNKNOWN with an empty uri where the BMC names none."""
    body = answer.body or {}
    if is_task(body):
        return read_task(body, answer.location or "")
    named = TASK_PATH.search(" ".join(f"{m.text} {' '.join(m.arguments)}" for m in answer.messages))
    uri = text_at(body, "@odata.id") or answer.location or (named[0] if named else None)
    messages = tuple(str(message) for message in answer.messages)
    if uri is None:
        current = meaning_of(answer.messages) is Meaning.ALREADY_CURRENT
        outcome = TaskOutcome.ALREADY_CURRENT if current else TaskOutcome.UNKNOWN
        return RedfishTask("", "", "Accepted", None, None, outcome, messages)
    uri = client.address.path(uri)
    fallback = RedfishTask(uri.rstrip("/").rpartition("/")[2], uri, "New", None, None, TaskOutcome.RUNNING, messages)
    try:
        return task_at(client.fetch(uri, "task"), uri) or fallback
    except TransientError:
        return fallback  # the push was taken: a look that failed must not read as a push that failed


def task_at(answer: Answer, uri: str) -> RedfishTask | None:
    """A task from the answer of its address or of its monitor; None where the answer tells of no task."""
    body: JsonObject = answer.body or {}
    if is_task(body) and answer.status < 300:
        return read_task(body, uri)
    ident = uri.rstrip("/").rpartition("/")[2]
    messages = tuple(str(message) for message in answer.messages)
    if answer.status == 202:  # a monitor: still at work
        return RedfishTask(ident, uri, "Running", None, None, TaskOutcome.RUNNING, messages)
    if answer.status in (200, 201, 204) and answer.readable:  # a monitor gives the operation's own answer at its end
        return RedfishTask(ident, uri, "Completed", None, None, TaskOutcome.SUCCEEDED, messages)
    return None


def _check(service: UpdateService, image: Path) -> str:
    """The address to push to. Raises before anything is sent."""
    if service.busy_with is not None:
        raise busy(f"image push: the BMC is updating already ({service.busy_with}); wait for its end")
    if service.enabled is False:
        raise ConfigurationError("image push: the update service is switched off; enable it on the BMC")
    if service.multipart_uri is None:
        others = [n for n, v in (("HttpPushUri", service.http_push_uri), ("SimpleUpdate", service.simple_update)) if v]
        raise ConfigurationError(
            f"image push: no MultipartHttpPushUri; the BMC offers {' and '.join(others) or 'nothing'}"
        )
    try:
        size = image.stat().st_size
    except OSError as error:
        raise ConfigurationError(f"image push: cannot read {image}: {error.strerror}; check the bundle") from error
    if service.max_image_bytes is not None and size > service.max_image_bytes:
        raise ConfigurationError(f"image push: {image.name} has {size} bytes, the BMC takes {service.max_image_bytes}")
    return service.multipart_uri


def _start(client: RedfishClient, target: str) -> Answer:
    try:
        return client.post(target, {}, "start of the update")
    except BmcBusy as error:
        error.message = f"{error.message}; the image is stored but its update was not started"
        raise


def _unless_current(error: RequestRefused) -> RedfishTask:
    """A refusal that means "already at this version" is a result; any other is raised again."""
    if error.meaning is not Meaning.ALREADY_CURRENT:
        raise error
    return RedfishTask("", "", "Refused", None, None, TaskOutcome.ALREADY_CURRENT, error.evidence)
