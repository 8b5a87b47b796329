"""What changes something: resets, updates, settings, sessions."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from simulator.bmc.device import RESET_TYPES
from simulator.bmc.messages import answer, error
from simulator.bmc.tree import ROOT, Ids, dump
from simulator.bmc.tree_chassis import AUX_RESET_PATH
from simulator.bmc.tree_services import PUSH_PATH, SIMPLE_UPDATE_PATH, monitor_uri, session_doc, task_doc
from simulator.bmc.tree_systems import HOST
from simulator.bmc.updates import LoadImage
from simulator.bmc.upload import fetch_image, read_push, read_targets
from simulator.faults import FaultKind
from simulator.firmware import FirmwareImage, read_image

if TYPE_CHECKING:
    from simulator.bmc.device import Bmc

Action = Callable[["Bmc", web.BaseRequest, Ids], Awaitable[web.Response]]
BUSY_SECONDS = 30
SESSIONS = f"{ROOT}/SessionService/Sessions"


async def _body(request: web.BaseRequest) -> dict[str, object]:
    """The JSON object of a request; an empty body is an empty object. Raises ValueError."""
    text = await request.read()
    data = json.loads(text) if text else {}
    if not isinstance(data, dict):
        raise ValueError("the body must be a JSON object")
    return data


async def log_in(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    """POST to the session collection; the one action that needs no login."""
    body = await _body(request)
    user, password = body.get("UserName"), body.get("Password")
    if not isinstance(user, str) or not isinstance(password, str):
        return error(400, "PropertyMissing", "UserName and Password are required.")
    if not bmc.sessions.accepts(user, password):
        bmc.log("login_refused")
        return unauthorized()
    if bmc.sessions.full:
        return error(503, "SessionLimitExceeded", "The session limit is reached.", "End other sessions.")
    session = bmc.sessions.open(bmc.time_text())
    headers = {"X-Auth-Token": session.token, "Location": f"{SESSIONS}/{session.id}"}
    return answer(dump(session_doc(session)), 201, headers)


def unauthorized() -> web.Response:
    return error(
        401,
        "NoValidSession",
        "There is no valid session established with the implementation.",
        "Establish a session before attempting any operations.",
        {"WWW-Authenticate": 'Basic realm="Redfish"'},
    )


async def _log_out(bmc: Bmc, _: web.BaseRequest, ids: Ids) -> web.Response:
    session = bmc.sessions.find(ids[0])
    if session is None:
        return error(404, "ResourceMissingAtURI", "There is no such session.")
    bmc.sessions.close(session)
    return answer(None, 204)


async def _reset_type(request: web.BaseRequest, allowed: tuple[str, ...]) -> str:
    reset_type = (await _body(request)).get("ResetType", allowed[0])
    if not isinstance(reset_type, str) or reset_type not in allowed:
        raise ValueError(f"ResetType must be one of {', '.join(allowed)}")
    return reset_type


async def _reset_host(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    bmc.reset_host(await _reset_type(request, RESET_TYPES))
    return answer(None, 204)


async def _reset_bmc(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    await _reset_type(request, ("GracefulRestart", "ForceRestart"))
    bmc.reset_bmc()
    return answer(None, 204)


async def _cycle_ac(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    await _reset_type(request, ("AuxPowerCycle",))
    bmc.cycle_ac()
    return answer(None, 204)


async def _clear_log(bmc: Bmc, _: web.BaseRequest, __: Ids) -> web.Response:
    bmc.events.entries.clear()
    return answer(None, 204)


async def _push(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    push = await read_push(request)

    async def load() -> FirmwareImage:
        return read_image(push.head)

    return _begin(bmc, load, push.targets, push.force)


async def _simple_update(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    body = await _body(request)
    uri = body.get("ImageURI")
    if not isinstance(uri, str) or not uri.startswith(("http://", "https://")):
        return error(400, "ActionParameterMissing", "ImageURI must be an http or https address.")
    return _begin(bmc, lambda: fetch_image(uri), read_targets(body), body.get("ForceUpdate") is True)


def _begin(bmc: Bmc, load: LoadImage, targets: tuple[str, ...], force: bool) -> web.Response:
    wait = str(bmc.clock.real(BUSY_SECONDS))
    if bmc.updates.busy:
        return error(
            503,
            "ServiceTemporarilyUnavailable",
            f"Another update is running. Retry in {wait} seconds.",
            "Wait until the running update has ended.",
            {"Retry-After": wait},
        )
    unknown = [id_ for id_ in targets if id_ not in bmc.firmware.components]
    if unknown:
        return error(400, "PropertyValueNotInList", f"There is no component {unknown[0]} to update.")
    if bmc.faults.bite(FaultKind.ALREADY_CURRENT, where=lambda fault: fault.text("answer") == "refusal"):
        text = "Firmware versions on server match catalog, applicable updates are not present in the repository."
        return error(400, "IDRAC.2.1.SUP029", text, "No response action is required.")
    task = bmc.updates.begin(load, targets, force)
    return answer(dump(task_doc(bmc, task)), 202, {"Location": monitor_uri(task), "Retry-After": wait})


async def _patch_host(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    body = await _body(request)
    boot = body.get("Boot")
    if set(body) != {"Boot"} or not isinstance(boot, dict):
        return error(400, "PropertyNotWritable", "Only Boot can be changed here.")
    bmc.settings.set_boot(boot)
    return answer(None, 204)


async def _patch_bios(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    attributes = (await _body(request)).get("Attributes")
    if not isinstance(attributes, dict):
        return error(400, "PropertyMissing", "Attributes is required.")
    bmc.settings.set_pending_bios(attributes)
    return answer(None, 204)


async def _patch_secure_boot(bmc: Bmc, request: web.BaseRequest, _: Ids) -> web.Response:
    enable = (await _body(request)).get("SecureBootEnable")
    if not isinstance(enable, bool):
        return error(400, "PropertyMissing", "SecureBootEnable must be true or false.")
    bmc.settings.secure_boot_enable = enable
    return answer(None, 204)


ACTIONS: dict[tuple[str, str], Action] = {
    ("POST", "SessionService/Sessions"): log_in,
    ("DELETE", "SessionService/Sessions/{}"): _log_out,
    ("POST", f"{HOST}/Actions/ComputerSystem.Reset"): _reset_host,
    ("POST", "Managers/BMC_0/Actions/Manager.Reset"): _reset_bmc,
    ("POST", AUX_RESET_PATH): _cycle_ac,
    ("POST", f"{HOST}/LogServices/SEL/Actions/LogService.ClearLog"): _clear_log,
    ("POST", "Managers/BMC_0/LogServices/SEL/Actions/LogService.ClearLog"): _clear_log,
    ("POST", PUSH_PATH): _push,
    ("POST", SIMPLE_UPDATE_PATH): _simple_update,
    ("PATCH", HOST): _patch_host,
    ("PATCH", f"{HOST}/Bios/Settings"): _patch_bios,
    ("PATCH", f"{HOST}/SecureBoot"): _patch_secure_boot,
}
"""By method and path template below /redfish/v1. A ValueError of an action is a 400."""
