"""The scontrol command: show, update, requeue, hold, release, ping."""

from __future__ import annotations

from collections.abc import Callable

from fleet.errors import ConfigurationError
from fleet.hostlist import compress, expand
from simulator.slurm.arguments import Options, parse
from simulator.slurm.controller import Controller
from simulator.slurm.records import FINISHED, SlurmError, SlurmJob
from simulator.slurm.reply import UNREACHABLE, Reply, failure
from simulator.slurm.scontrol_reservations import (
    create_reservation,
    delete_reservation,
    show_reservations,
    update_reservation,
)
from simulator.slurm.show import show_job, show_node, show_partition
from simulator.slurm.words import parse_limit

_OPTIONS = Options(
    "scontrol",
    takes=frozenset({"cluster", "uid"}),
    flags=frozenset({"oneliner", "all", "details", "quiet", "verbose", "hide", "local", "future", "version", "help"}),
    short={"o": "oneliner", "a": "all", "d": "details", "Q": "quiet", "v": "verbose", "V": "version"}
    | {"F": "future", "M": "cluster", "u": "uid", "h": "help"},
)
_STATES = ("DRAIN", "RESUME", "UNDRAIN", "DOWN", "IDLE")
_BAD_STATE = (
    "Invalid input: {0}\nRequest aborted\n"
    "Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n"
    "Not all states are valid given a node's prior state\n"
)
_NO_REASON = "You must specify a reason when DOWNING or DRAINING a node. Request denied\n"
_NO_ENTITY = (
    "No valid entity in update command\n"
    'Input line must include "NodeName", "PartitionName", "Reservation", "JobId", or "SlurmctldDebug"\n'
)


def scontrol(controller: Controller, arguments: list[str], user: str) -> Reply:
    parsed = parse(arguments, _OPTIONS)
    if not parsed.words:
        return Reply(0, "scontrol: \n")
    keyword, words = parsed.words[0].lower(), parsed.words[1:]
    if _means(keyword, "show", 3):
        return _show(controller, words, parsed.has("oneliner"))
    if _means(keyword, "update", 1):
        return _update(controller, words, user)
    if _means(keyword, "ping", 3):
        state = "UP" if controller.reachable else "DOWN"
        return Reply(0 if controller.reachable else 1, f"Slurmctld(primary) at slurm-01 is {state}\n")
    if keyword in {"create", "delete"} and not words:
        return failure(f"too few arguments for {keyword} keyword\n")
    if keyword == "create":
        return _create(controller, words)
    if keyword == "delete":
        return _delete(controller, words)
    if keyword == "write" and words[:1] == ["batch_script"] and len(words) > 1:
        return _write_script(controller, *words[1:3])
    if keyword in {"requeue", "requeuehold", "hold", "release"}:
        return _on_jobs(controller, keyword, words)
    return failure(f"invalid keyword: {parsed.words[0]}\n")


def _means(word: str, keyword: str, least: int) -> bool:
    return len(word) >= least and keyword.startswith(word)


def _show(controller: Controller, words: list[str], oneliner: bool) -> Reply:
    if not words:
        return failure("too few arguments for keyword:show\n")
    entity, name = words[0].lower(), words[1] if len(words) > 1 else None
    if entity in {"hostnames", "hostlist", "hostlistsorted"}:
        return _show_hosts(entity, name)
    if _means(entity, "nodes", 2):
        return _show_nodes(controller, name, oneliner)
    if _means(entity, "jobs", 1):
        return _show_jobs(controller, name, oneliner)
    if _means(entity, "partitions", 3):
        return _show_partitions(controller, name, oneliner)
    if _means(entity, "reservations", 3) or entity == "reservationname":
        return show_reservations(controller, name, oneliner)
    return failure(f"invalid entity:{words[0]} for keyword:show \n")


def _show_hosts(entity: str, name: str | None) -> Reply:
    if name is None:
        return Reply(0, "", "scontrol: error: host list is empty\n")
    try:
        names = expand(name)
    except ConfigurationError:
        return failure("Invalid hostlist: " + name + "\n")
    if entity == "hostnames":
        return Reply(0, "".join(f"{host}\n" for host in names))
    return Reply(0, compress(names) + "\n")


def _show_nodes(controller: Controller, name: str | None, oneliner: bool) -> Reply:
    if not controller.reachable:
        return failure(f"slurm_load_node error: {UNREACHABLE}\n")
    clock = controller.timers.clock
    try:
        names = tuple(controller.nodes) if name is None else expand(name)
    except ConfigurationError:
        return Reply(1, f"Node {name} not found\n")
    out, code = [], 0
    for each in names:
        node = controller.nodes.get(each)
        code = code if node else 1
        out.append(show_node(node, clock, oneliner) if node else f"Node {each} not found\n")
    return Reply(code, "".join(out))


def _show_jobs(controller: Controller, name: str | None, oneliner: bool) -> Reply:
    if not controller.reachable:
        return failure(f"slurm_load_jobs error: {UNREACHABLE}\n")
    clock = controller.timers.clock
    if name is None:
        shown = "".join(show_job(job, clock, oneliner) for job in controller.jobs.values())
        return Reply(0, shown or "No jobs in the system\n")
    job = find_job(controller, name)
    if job is None:
        return failure("slurm_load_jobs error: Invalid job id specified\n")
    return Reply(0, show_job(job, clock, oneliner))


def _show_partitions(controller: Controller, name: str | None, oneliner: bool) -> Reply:
    if not controller.reachable:
        return failure(f"slurm_load_partitions error: {UNREACHABLE}\n")
    if name is not None and name not in controller.partitions:
        return Reply(1, f"Partition {name} not found\n")
    chosen = controller.partitions if name is None else (name,)
    default = controller.partitions[0]
    return Reply(0, "".join(show_partition(p, controller.nodes_of(p), p == default, oneliner) for p in chosen))


def _create(controller: Controller, words: list[str]) -> Reply:
    tag = words[0].partition("=")[0].lower()
    if not _means(tag, "reservationname", 3):
        return failure(f"scontrol: error: Invalid creation entity: {words[0]}\n")
    return create_reservation(controller, words)


def _delete(controller: Controller, words: list[str]) -> Reply:
    tag, _, name = words[0].partition("=")
    if not _means(tag.lower(), "reservationname", 3) or not name:
        return failure(f"Invalid deletion entity: {words[0]}\n")
    return delete_reservation(controller, words[0])


def _write_script(controller: Controller, id_: str, file: str = "") -> Reply:
    """To standard output only: the simulator keeps no files for anybody."""
    job = find_job(controller, id_)
    if not controller.reachable:
        return Reply(0, "", f"job script retrieval failed: {UNREACHABLE}\n")
    if job is None or file != "-":
        return Reply(0, "", "job script retrieval failed: Invalid job id specified\n")
    return Reply(0, job.request.script)


def find_job(controller: Controller, text: str) -> SlurmJob | None:
    return controller.find(text)


def _on_jobs(controller: Controller, keyword: str, words: list[str]) -> Reply:
    if not words:
        return failure(f"too few arguments for keyword:{keyword}\n")
    errors, running_only = "", words[0].lower() == "incomplete"
    words = words[1:] if running_only else words
    for text in (part for word in words for part in word.split(",")):
        job = find_job(controller, text)
        if not controller.reachable:
            errors += f"Unexpected message received for job {text}\n"
        elif job is None:
            errors += f"Invalid job id specified for job {text}\n"
        elif keyword.startswith("requeue"):
            try:
                controller.requeue(job, running_only=running_only)
                job.held = job.held or keyword == "requeuehold"
            except SlurmError as error:
                errors += f"{error} for job {text}\n"
        else:
            job.held = keyword == "hold"
            controller.queue.look_again()
    return Reply(1 if errors else 0, "", errors)


def _update(controller: Controller, words: list[str], user: str) -> Reply:
    if not words:
        return failure("too few arguments for update keyword\n")
    changes = [(tag.lower(), value) for tag, _, value in (word.partition("=") for word in words)]
    tags = {tag for tag, _ in changes}
    if any(_means(tag, "nodename", 4) for tag in tags):
        return _update_nodes(controller, changes, user)
    if tags & {"job", "jobid"}:
        return _update_job(controller, changes)
    if any(_means(tag, "reservationname", 3) for tag in tags):
        return update_reservation(controller, words)
    return failure(_NO_ENTITY)


def _unquote(value: str) -> str:
    """scontrol takes one quote off each end of a reason."""
    value = value.removeprefix('"')
    return value.removesuffix('"')


def _update_nodes(controller: Controller, changes: list[tuple[str, str]], user: str) -> Reply:
    names, state, reason, features = "", None, None, None
    for tag, value in changes:
        if _means(tag, "nodename", 4):
            names = value
        elif _means(tag, "state", 1):
            state = value.upper()
        elif _means(tag, "reason", 3):
            reason = _unquote(value)
        elif _means(tag, "availablefeatures", 5) or _means(tag, "activefeatures", 3):
            features = tuple(word for word in value.split(",") if word)
        else:
            return failure(f"Update of this parameter is not supported: {tag}={value}\nRequest aborted\n")
    if state is None and reason is None and features is None:
        return failure("No changes specified\n")
    if state is not None:
        full = next((word for word in _STATES if word == state or _means(state, word, 3)), None)
        if full is None:
            return failure(_BAD_STATE.format(f"State={state}"))
        state = full
    if state in {"DRAIN", "DOWN"} and not reason:
        return failure(_NO_REASON)
    if not controller.reachable:
        return failure(f"slurm_update error: {UNREACHABLE}\n")
    reply = _apply(controller, names, state, reason, user)
    if features is not None:
        controller.set_features([name for name in _asked(names) if name in controller.nodes], features)
    return reply


def _asked(names: str) -> tuple[str, ...]:
    """The names of a hostlist; one that is malformed is a name that no node has."""
    try:
        return expand(names)
    except ConfigurationError:
        return (names,)


def _apply(controller: Controller, names: str, state: str | None, reason: str | None, user: str) -> Reply:
    """slurmctld does what it can for the whole list, and then names one error."""
    asked = _asked(names)
    known = [name for name in asked if name in controller.nodes]
    change: Callable[[], None]
    if state == "DRAIN":
        change = lambda: controller.drain(known, reason or "", user)  # noqa: E731
    elif state == "DOWN":
        change = lambda: controller.set_down(known, reason or "", user)  # noqa: E731
    elif state == "IDLE":
        change = lambda: controller.set_idle(known, user)  # noqa: E731
    elif state == "UNDRAIN":
        change = lambda: controller.undrain(known, user)  # noqa: E731
    elif state == "RESUME":
        change = lambda: controller.resume(known, user)  # noqa: E731
    else:
        change = lambda: None if reason is None else controller.set_reason(known, reason, user)  # noqa: E731
    try:
        change()
    except SlurmError as error:
        return failure(f"slurm_update error: {error}\n")
    if len(known) != len(asked) or not asked:
        return failure("slurm_update error: Invalid node name specified\n")
    return Reply(0)


def _update_job(controller: Controller, changes: list[tuple[str, str]]) -> Reply:
    """A list of jobs is changed one by one; the code tells whether one was refused."""
    asked = next(value for tag, value in changes if tag in {"job", "jobid"})
    errors = "".join(_update_one(controller, id_, changes) for id_ in asked.split(","))
    return Reply(1 if errors else 0, "", errors)


def _update_one(controller: Controller, id_: str, changes: list[tuple[str, str]]) -> str:
    if not controller.reachable:
        return f"{UNREACHABLE} for job {id_}\n"
    job = find_job(controller, id_)
    if job is None:
        return f"Invalid job id specified for job {id_}\n"
    if job.state in FINISHED:
        return f"Job has already finished for job {id_}\n"
    for tag, value in changes:
        if tag not in {"job", "jobid"}:
            refused = _change_job(controller, job, tag, value)
            if refused is not None:
                return refused.stderr
    return ""


def _change_job(controller: Controller, job: SlurmJob, tag: str, value: str) -> Reply | None:
    if tag == "comment":
        job.comment = _unquote(value)
    elif tag == "starttime" and value.lower() == "now":
        job.eligible = controller.timers.now()
        controller.queue.look_again()
    elif tag == "timelimit":
        try:
            job.limit_seconds = parse_limit(value)
        except ValueError:
            return failure("Invalid TimeLimit value\n")
    elif tag == "reservationname":
        if value and controller.reservations.find(value) is None:
            return failure(f"Requested reservation is invalid for job {job.id}\n")
        job.reservation = job.asked_reservation = value
        controller.queue.look_again()
    else:
        return failure(f"Update of this parameter is not supported: {tag}={value}\nRequest aborted\n")
    return None
