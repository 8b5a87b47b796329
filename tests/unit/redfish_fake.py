"""A hand-written BMC behind httpx.MockTransport: resources by path, sessions, and answers to be given once."""

from __future__ import annotations

import json
from collections import defaultdict
from urllib.parse import unquote

import httpx

from adapters.redfish import BmcLogin, RedfishBmc

ROOT = "/redfish/v1"
UPDATE = f"{ROOT}/UpdateService"
INVENTORY = f"{UPDATE}/FirmwareInventory"
TASKS = f"{ROOT}/TaskService/Tasks"
SYSTEM = f"{ROOT}/Systems/System_0"
MANAGER = f"{ROOT}/Managers/BMC_0"
SESSIONS = f"{ROOT}/SessionService/Sessions"
LOGIN = BmcLogin("operator", "s3cret-word")

Json = dict[str, object]


def link(path: str) -> Json:
    return {"@odata.id": path}


def collection(path: str, *members: str) -> Json:
    return {"@odata.id": path, "Members": [link(m) for m in members], "Members@odata.count": len(members)}


def component(ident: str, version: str | None = "1.0", **more: object) -> Json:
    status = {"State": "Enabled", "Health": "OK"}
    own = {
        "@odata.id": f"{INVENTORY}/{ident}",
        "Id": ident,
        "Name": ident,
        "Version": version,
        "Status": status,
    }
    return {**own, "Updateable": True, **more}


class FakeBmc:
    """`resources` answer GET; `once[method, path]` are answered first, each one time; `requests` is what came."""

    def __init__(self, sessions: bool = True, password: str = LOGIN.password) -> None:
        self.sessions = sessions
        self.password = password
        self.tokens: set[str] = set()
        self.logins = 0
        self.requests: list[tuple[str, str]] = []
        self.bodies: dict[str, bytes] = {}
        self.once: defaultdict[tuple[str, str], list[httpx.Response | Exception]] = defaultdict(list)
        self.resources: dict[str, Json] = _resources()

    def bmc(self, login: BmcLogin | None = LOGIN) -> RedfishBmc:
        return RedfishBmc("https://bmc.example", login, node="n1", transport=httpx.MockTransport(self._answer))

    def put(self, body: Json) -> None:
        self.resources[str(body["@odata.id"])] = body

    def components(self, *entries: Json) -> None:
        for entry in entries:
            self.put(entry)
        self.put(collection(INVENTORY, *(str(entry["@odata.id"]) for entry in entries)))

    def count(self, method: str, path: str) -> int:
        return self.requests.count((method, path))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.path)
        self.requests.append((request.method, path))
        self.bodies[path] = request.read()
        if waiting := self.once[request.method, path]:
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if path == SESSIONS and request.method == "POST":
            return self._log_in(request)
        if path.rstrip("/") != ROOT and not self._known(request):
            return problem(401, "Base.1.18.NoValidSession", "There is no valid session.")
        found = self.resources.get(path.rstrip("/"))
        if found is None or request.method not in ("GET", "DELETE"):
            return problem(404, "Base.1.18.ResourceMissingAtURI", f"The resource at {path} was not found.")
        return httpx.Response(200, json=found)

    def _known(self, request: httpx.Request) -> bool:
        if request.headers.get("X-Auth-Token") in self.tokens:
            return True
        good = httpx.BasicAuth(LOGIN.user, self.password)
        wanted = next(good.auth_flow(httpx.Request("GET", "https://x"))).headers["Authorization"]
        return not self.sessions and request.headers.get("Authorization") == wanted

    def _log_in(self, request: httpx.Request) -> httpx.Response:
        if not self.sessions:
            return httpx.Response(405)
        self.logins += 1
        if json.loads(request.content)["Password"] != self.password:
            return problem(401, "Base.1.18.ResourceAtUriUnauthorized", "Access was denied.")
        token = f"token-{self.logins}"
        self.tokens.add(token)
        location = f"{SESSIONS}/{self.logins}"
        return httpx.Response(201, json=link(location), headers={"X-Auth-Token": token, "Location": location})


def problem(status: int, ident: str, text: str, severity: str = "Critical", **headers: str) -> httpx.Response:
    message = {"MessageId": ident, "Message": text, "Severity": severity}
    body = {"error": {"code": "Base.1.18.GeneralError", "message": "see", "@Message.ExtendedInfo": [message]}}
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def _resources() -> dict[str, Json]:
    root = {
        **link(ROOT),
        "Vendor": "NVIDIA",
        "UpdateService": link(UPDATE),
        "Tasks": link(f"{ROOT}/TaskService"),
        "Systems": link(f"{ROOT}/Systems"),
        "Chassis": link(f"{ROOT}/Chassis"),
        "Managers": link(f"{ROOT}/Managers"),
        "Links": {"Sessions": link(SESSIONS), "ManagerProvidingService": link(MANAGER)},
    }
    update = {
        **link(UPDATE),
        "ServiceEnabled": True,
        "MultipartHttpPushUri": f"{UPDATE}/update-multipart",
        "HttpPushUriOptions": {"ForceUpdate": False},
        "FirmwareInventory": link(INVENTORY),
        "Actions": {"#UpdateService.SimpleUpdate": {"target": f"{UPDATE}/Actions/SimpleUpdate"}},
    }
    system = {
        **link(SYSTEM),
        "Id": "System_0",
        "Manufacturer": "NVIDIA",
        "Model": "HGX",
        "SerialNumber": "S1",
        "PowerState": "On",
        "LastResetTime": "2026-01-01T00:00:00Z",
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart"],
            }
        },
    }
    manager = {
        **link(MANAGER),
        "Id": "BMC_0",
        "LastResetTime": "1970-01-01T00:01:00Z",
        "Actions": {"#Manager.Reset": {"target": f"{MANAGER}/Actions/Manager.Reset"}},
    }
    bodies = (
        root,
        update,
        system,
        manager,
        collection(f"{ROOT}/Systems", SYSTEM),
        collection(f"{ROOT}/Chassis", f"{ROOT}/Chassis/BMC_0"),
        {**link(f"{ROOT}/Chassis/BMC_0"), "Id": "BMC_0", "Name": "Chassis"},
        {**link(f"{ROOT}/TaskService"), "Tasks": link(TASKS)},
        collection(TASKS),
        collection(INVENTORY),
    )
    return {str(body["@odata.id"]): dict(body) for body in bodies}
