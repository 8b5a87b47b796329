"""Readers for Slurm's JSON (`sinfo --json`, `squeue --json`, slurmrestd), versions 21.08 to 25.11.

A state is a string, with flags apart, up to 22.05 (23.02 for jobs) and a list after it; a number is plain,
or `{set, infinite, number}` from 23.02 on.
"""

from __future__ import annotations

import json

from fleet.errors import ConfigurationError, SchedulerUnreachable
from fleet.hostlist import expand
from fleet.model import Job, SchedulerNode
from fleet.slurm import gpus_in, holds_nodes, job_gpus, read_features
from fleet.slurm_state import read_state

_NO_SUCH_JOB = 2017  # ESLURM_INVALID_JOB_ID


def read_json_nodes(text: str) -> dict[str, SchedulerNode]:
    """The nodes of a document. Raises SchedulerUnreachable where it reports errors, ConfigurationError
    where it is no JSON of Slurm with nodes."""
    document = _document(text, "nodes")
    _raise_errors(_items(document, "errors"))
    return {node.name: node for node in map(_node, _items(document, "nodes"))}


def read_json_jobs(text: str) -> tuple[Job, ...]:
    """The jobs of a document; `nodes` of each holds only nodes that it still holds.

    Empty where the controller does not know the job that was asked for: it has forgotten it, which is no
    proof that it ended well. Raises as `read_json_nodes` does.
    """
    document = _document(text, "jobs")
    errors = [error for error in _items(document, "errors") if _number(error.get("error_number")) != _NO_SUCH_JOB]
    _raise_errors(errors)
    now = _number(document.get("last_update"))
    return tuple(_job(item, now) for item in _items(document, "jobs"))


def _document(text: str, key: str) -> dict[str, object]:
    try:
        document: object = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"not a JSON document, or cut off: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get(key), list):
        raise ConfigurationError(f"not JSON of Slurm: it has no list {key!r}")
    return document


def _raise_errors(errors: list[dict[str, object]]) -> None:
    told = [_text(error.get("error")) or _text(error.get("description")) for error in errors]
    told = [text for text, error in zip(told, errors, strict=True) if text or _number(error.get("error_number"))]
    if told:
        raise SchedulerUnreachable(f"Slurm answered with an error: {told[0]}; ask again", evidence=tuple(told))


def _items(document: dict[str, object], key: str) -> list[dict[str, object]]:
    found = document.get(key)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    """A list of words, or one word."""
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _number(value: object) -> float | None:
    """A plain number or `{set, infinite, number}`; None where it is not set or infinite."""
    if isinstance(value, dict):
        inner = value.get("number")
        return (
            float(inner) if value.get("set") and not value.get("infinite") and isinstance(inner, int | float) else None
        )
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _node(item: dict[str, object]) -> SchedulerNode:
    seen = read_state([*_texts(item.get("state")), *_texts(item.get("state_flags"))])
    changed, started = _number(item.get("reason_changed_at")), _number(item.get("slurmd_start_time"))
    return SchedulerNode(
        name=_text(item.get("name")),
        state=seen.state,
        flags=seen.flags,
        cordoned=seen.cordoned,
        reason=_text(item.get("reason")) or None,
        reason_by=_text(item.get("reason_set_by_user")) or None,
        reason_at=f"{changed:.0f}" if changed else None,
        gpus=gpus_in(_text(item.get("gres"))),
        features=read_features(",".join(_texts(item.get("active_features")) or _texts(item.get("features")))),
        registered=f"{started:.0f}" if started else None,
    )


def _job(item: dict[str, object], now: float | None) -> Job:
    words = [word.upper() for word in _texts(item.get("job_state"))]
    state = "COMPLETING" if "COMPLETING" in words else (words[0] if words else "UNKNOWN")
    started, limit = _number(item.get("start_time")), _number(item.get("time_limit"))
    running = state == "RUNNING" and started and now
    return Job(
        id=_whole(item.get("job_id")) or "0",
        name=_text(item.get("name")),
        user=_text(item.get("user_name")),
        state=state,
        nodes=expand(_text(item.get("nodes"))) if holds_nodes(state) else (),
        gpus=_job_gpus(item),
        elapsed_seconds=now - started if running and now and started else None,
        limit_seconds=limit * 60 if limit else None,  # given in minutes
        comment=_text(item.get("comment")),
        account=_text(item.get("account")),
        partition=_text(item.get("partition")),
        requeue=requeue if isinstance(requeue := item.get("requeue"), bool) else None,
    )


def _whole(value: object) -> str:
    number = _number(value)
    return "" if number is None else f"{number:.0f}"


def _job_gpus(item: dict[str, object]) -> int | None:
    detail = [gpus_in(text) for text in _texts(item.get("gres_detail"))]
    counted = [gpus for gpus in detail if gpus is not None]
    if counted:
        return sum(counted)
    count = _number(item.get("node_count"))
    total = gpus_in(_text(item.get("tres_alloc_str")))
    return total if total is not None else job_gpus(_text(item.get("tres_per_node")), f"{count or 0:.0f}")
