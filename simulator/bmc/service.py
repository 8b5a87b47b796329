"""How a BMC answers one request: phase, faults, login, then the resource or the action."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache

from aiohttp import hdrs, web

from simulator.bmc.actions import ACTIONS, Action, log_in, unauthorized
from simulator.bmc.device import Bmc, Phase
from simulator.bmc.messages import HEADERS, answer, error
from simulator.bmc.tree import ROOT, Doc, PathTable, Render, dump, read, read_expanded
from simulator.bmc.tree_chassis import CHASSIS
from simulator.bmc.tree_firmware import FIRMWARE, INVENTORY
from simulator.bmc.tree_services import (
    METADATA,
    PUSH_PATH,
    SERVICES,
    SIMPLE_UPDATE_PATH,
    odata_document,
    service_root,
    task_doc,
)
from simulator.bmc.tree_systems import SYSTEMS
from simulator.faults import FaultKind

STARTING_RETRY_SECONDS = 15
TREE: PathTable[Render] = PathTable({**SERVICES, **FIRMWARE, **SYSTEMS, **CHASSIS})
_CHANGES: Mapping[str, PathTable[Action]] = {
    method: PathTable({path: action for (own, path), action in ACTIONS.items() if own == method})
    for method in ("POST", "PATCH", "DELETE")
}
_MONITORS = f"{ROOT}/TaskService/TaskMonitors/"
_PUSHES = frozenset({f"{ROOT}/{PUSH_PATH}", f"{ROOT}/{SIMPLE_UPDATE_PATH}"})


async def serve(bmc: Bmc, request: web.BaseRequest) -> web.StreamResponse:
    """Answer `request`; never raises for what a client can send."""
    path = request.path.rstrip("/")
    public = _public(bmc, request, path)
    if public is not None:
        return public
    if bmc.phase is not Phase.UP:
        return _busy("The service is starting.", bmc.clock.real(STARTING_RETRY_SECONDS))
    if bmc.faults:
        refusal = await _misbehave(bmc, request, path)
        if refusal is not None:
            return refusal
    if request.method == "POST" and path == f"{ROOT}/SessionService/Sessions":
        return await _act(log_in, bmc, request, ())
    if not _logged_in(bmc, request):
        return unauthorized()
    if request.method in {"GET", "HEAD"}:
        return await _read(bmc, request, path)
    return await _change(bmc, request, path)


def _public(bmc: Bmc, request: web.BaseRequest, path: str) -> web.Response | None:
    if path not in _PUBLIC or request.method not in {"GET", "HEAD"}:
        return None
    if path == f"{ROOT}/$metadata":
        return web.Response(body=METADATA, headers=HEADERS, content_type="application/xml")
    docs: dict[str, Doc] = {"/redfish": {"v1": f"{ROOT}/"}, f"{ROOT}/odata": odata_document()}
    return answer(dump(docs.get(path) or service_root(bmc)))


_PUBLIC = frozenset({"/redfish", ROOT, f"{ROOT}/odata", f"{ROOT}/$metadata"})


def _busy(text: str, retry_after_seconds: int) -> web.Response:
    headers = {"Retry-After": str(retry_after_seconds)}
    return error(503, "ServiceTemporarilyUnavailable", text, "Wait, then send the request again.", headers)


async def _misbehave(bmc: Bmc, request: web.BaseRequest, path: str) -> web.Response | None:
    slow = bmc.faults.bite(FaultKind.SLOW_ANSWERS)
    if slow is not None:
        await bmc.clock.sleep(slow.seconds())
    words = {"any", _request_word(path)}
    busy = bmc.faults.bite(FaultKind.BMC_503, where=lambda fault: fault.text("requests") in words)
    if busy is not None:
        wait = bmc.clock.real(busy.seconds("retry_after_seconds"))
        return _busy(f"The service is busy. Retry in {wait} seconds.", wait)
    token = request.headers.get("X-Auth-Token")
    if token and bmc.sessions.use(token) and bmc.faults.bite(FaultKind.SESSION_EXPIRES):
        bmc.sessions.clear()
    return None


def _request_word(path: str) -> str:
    if path in _PUSHES:
        return "push"
    if path.startswith(f"{ROOT}/TaskService"):
        return "task"
    return "inventory" if path.startswith(f"{ROOT}/{INVENTORY}") else "other"


def _logged_in(bmc: Bmc, request: web.BaseRequest) -> bool:
    token = request.headers.get("X-Auth-Token")
    if token is not None:
        return bmc.sessions.use(token) is not None
    basic = request.headers.get(hdrs.AUTHORIZATION)
    if basic is None:
        return False
    if bmc.sessions.accepts_basic(basic):
        return True
    bmc.log("login_refused")
    return False


async def _read(bmc: Bmc, request: web.BaseRequest, path: str) -> web.StreamResponse:
    if path.startswith(_MONITORS):
        return _monitor(bmc, path.removeprefix(_MONITORS))
    body = _render(bmc, path, expand="$expand" in request.query if request.query_string else False)
    if body is None:
        return error(404, "ResourceMissingAtURI", f"The resource at the URI {path} was not found.")
    etag = _etag(body)
    if request.headers.get(hdrs.IF_NONE_MATCH) == etag:
        return answer(None, 304, {"ETag": etag})
    headers = {"ETag": etag, "Allow": _allowed(path)}
    if bmc.faults and len(body) > 2 and bmc.faults.bite(FaultKind.TRUNCATED_BODY):
        return await _truncated(request, body, headers)
    return answer(body, 200, headers)


def _render(bmc: Bmc, path: str, expand: bool) -> bytes | None:
    if not expand:
        doc = read(TREE, bmc, path)
        return dump(doc) if doc is not None else None
    if path == f"{ROOT}/{INVENTORY}":
        # Every poll of a rollout reads this one; the rest is small.
        return bmc.keep_rendered(bmc.inventory_key(), lambda: dump(read_expanded(TREE, bmc, path) or {}))
    doc = read_expanded(TREE, bmc, path)
    return dump(doc) if doc is not None else None


def _etag(body: bytes) -> str:
    return f'W/"{zlib.crc32(body):08x}"'


@lru_cache(maxsize=4096)
def _allowed(path: str) -> str:
    return ", ".join(["GET", "HEAD", *(method for method, table in _CHANGES.items() if table.find(path))])


def _monitor(bmc: Bmc, id_: str) -> web.Response:
    task = bmc.updates.tasks.get(id_)
    if task is None or task.hidden:
        return error(404, "ResourceMissingAtURI", "There is no such task.")
    if task.state == "Running":
        return answer(dump(task_doc(bmc, task)), 202, {"Retry-After": "5"})
    return answer(dump(task_doc(bmc, task)))


async def _truncated(request: web.BaseRequest, body: bytes, headers: Mapping[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={**HEADERS, **headers, "Content-Length": str(len(body))})
    response.content_type = "application/json"
    response.force_close()
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def _change(bmc: Bmc, request: web.BaseRequest, path: str) -> web.StreamResponse:
    table = _CHANGES.get(request.method)
    found = table.find(path) if table else None
    if found is None:
        known = TREE.find(path) is not None
        text = f"The method {request.method} is not allowed for {path}."
        return error(405 if known else 404, "OperationNotAllowed" if known else "ResourceMissingAtURI", text)
    wanted = request.headers.get(hdrs.IF_MATCH)
    if wanted not in {None, "*"} and wanted != _etag(_render(bmc, path, expand=False) or b""):
        return error(412, "PreconditionFailed", "The ETag does not match the resource's.", "Read it again first.")
    return await _act(found[0], bmc, request, found[1])


async def _act(action: Action, bmc: Bmc, request: web.BaseRequest, ids: tuple[str, ...]) -> web.Response:
    try:
        return await action(bmc, request, ids)
    except ValueError as wrong:
        return error(400, "PropertyValueError", f"{wrong}.")
