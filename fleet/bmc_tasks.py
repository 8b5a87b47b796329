"""What a task or job of a BMC says of itself; the inventory still has the last word.

Sources: DMTF Task (TaskState, TaskStatus) and Job, Dell's DellJob (JobState), NVIDIA's update messages.
"""

from __future__ import annotations

from fleet.bmc_messages import BmcMessage, only_already_current, read_messages
from fleet.json_values import JsonObject, number_at, object_at, text_at
from fleet.model import RedfishTask, TaskOutcome

_RUNNING = {
    *("new", "starting", "running", "suspended", "interrupted", "pending", "stopping", "service"),
    *("cancelling", "downloading", "downloaded", "scheduling", "waiting", "paused", "readyforexecution"),
    *("validating", "userintervention", "continue", "rebootcompleted", "inprogress"),
}
_WAITING = {"scheduled", "rebootpending", "pendingactivation", "pendingreboot", "waitingforreset"}
_FAILED = {
    *("exception", "killed", "cancelled", "canceled", "failed", "aborted", "rebootfailed"),
    *("completedwitherrors", "completedwithfailure", "scheduledfailed", "downloadfailed"),
}
_NO_DATES = {"TIME_NA", "TIME_NOW", "NA", "N/A"}


def is_task(body: JsonObject) -> bool:
    """Whether this resource is a task or a job."""
    return text_at(body, "TaskState") is not None or text_at(body, "JobState") is not None


def read_task(body: JsonObject, uri: str = "") -> RedfishTask:
    """One task or job; `uri` is used where the body does not name itself."""
    uri = text_at(body, "@odata.id") or uri
    vendor = object_at(body, "Oem", "Dell")
    messages = read_messages(body)
    if not messages and text_at(vendor, "Message"):
        messages = read_messages({"Messages": [vendor]})
    percent = number_at(body, "PercentComplete")
    started = text_at(body, "StartTime")
    return RedfishTask(
        id=text_at(body, "Id") or uri.rstrip("/").rpartition("/")[2],
        uri=uri,
        state=text_at(body, "TaskState") or text_at(body, "JobState") or "Unknown",
        status=text_at(body, "TaskStatus") or text_at(body, "JobStatus"),
        percent=None if percent is None else max(0, min(100, int(percent))),
        outcome=task_outcome(body, messages),
        messages=tuple(str(message) for message in messages),
        started=None if started in _NO_DATES else started,
    )


def task_outcome(body: JsonObject, messages: tuple[BmcMessage, ...]) -> TaskOutcome:
    """The outcome by state, status, the vendor's job state and the messages.

    100 per cent and "Completed" are not success by themselves; an unknown word is UNKNOWN.
    """
    state = (text_at(body, "TaskState") or text_at(body, "JobState") or "").casefold().replace(" ", "")
    job = (text_at(body, "Oem", "Dell", "JobState") or "").casefold()
    status = (text_at(body, "TaskStatus") or text_at(body, "JobStatus") or "").casefold()
    if job in _FAILED or state in _FAILED:
        skipped = state not in {"killed", "cancelled", "canceled"} and only_already_current(messages)
        return TaskOutcome.ALREADY_CURRENT if skipped else TaskOutcome.FAILED
    if state == "completed":
        return _completed(status, job, messages)
    if job in _WAITING or state in _WAITING:
        return TaskOutcome.WAITING_FOR_RESET
    return TaskOutcome.RUNNING if state in _RUNNING else TaskOutcome.UNKNOWN


def _completed(status: str, job: str, messages: tuple[BmcMessage, ...]) -> TaskOutcome:
    if job in _RUNNING:
        return TaskOutcome.RUNNING
    if job in _WAITING:
        return TaskOutcome.WAITING_FOR_RESET
    texts = " ".join(message.text for message in messages).casefold()
    if status == "critical" or "completed with errors" in texts:
        return TaskOutcome.ALREADY_CURRENT if only_already_current(messages) else TaskOutcome.FAILED
    if status == "warning":
        return TaskOutcome.SUCCEEDED_WITH_WARNINGS
    if status not in {"", "ok"}:
        return TaskOutcome.UNKNOWN
    return TaskOutcome.SUCCEEDED
