"""Where things are on this BMC: found once, kept as addresses, forgotten when one of them is gone."""

from __future__ import annotations

from adapters.redfish.answers import busy
from adapters.redfish.client import RedfishClient
from adapters.redfish.members import read_members, survey_members
from adapters.redfish.quirks import BASEBOARD_ID
from fleet.errors import ConfigurationError
from fleet.json_values import JsonObject, object_at, objects_at, text_at, texts_at


class Places:
    """Lazily found addresses of one BMC. Each method raises as `fleet.ports.Bmc` says."""

    def __init__(self, client: RedfishClient) -> None:
        self._client = client
        self._found: dict[str, str | None] = {}
        self._allowed: dict[str, tuple[str, ...]] = {}

    def forget(self) -> None:
        """After a reset or an update addresses may be others."""
        self._found.clear()
        self._allowed.clear()

    def update_service(self) -> str:
        uri = self._client.link("UpdateService")
        if uri is None:
            raise ConfigurationError("this BMC offers no UpdateService; its firmware cannot be managed by Redfish")
        return uri

    def firmware_inventory(self) -> str:
        """The collection's address."""
        if "inventory" not in self._found:
            body = self._client.get(self.update_service(), "update service")
            self.learn_inventory(text_at(body, "FirmwareInventory", "@odata.id"))
        uri = self._found["inventory"]
        if uri is None:
            raise ConfigurationError("this BMC lists no firmware inventory; look for a newer BMC firmware")
        return uri

    def learn_inventory(self, uri: str | None) -> None:
        self._found["inventory"] = uri

    def tasks(self) -> str | None:
        """The collection of tasks; None where the BMC has none."""
        if "tasks" not in self._found:
            service = self._client.link("Tasks")
            body = self._client.get(service, "task service") if service else {}
            self._found["tasks"] = text_at(body, "Tasks", "@odata.id")
        return self._found["tasks"]

    def systems(self, strict: bool = False) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
        """All systems, the host first, and what could not be read; with `strict` that raises instead."""
        uri = self._client.link("Systems")
        if uri is None:
            raise ConfigurationError("this BMC lists no systems; is it the BMC of a host?")
        found = survey_members(self._client, uri, "system", strict)
        ordered = tuple(sorted(found.entries, key=_host_first))
        if ordered and not found.problems:  # else the host may be the one that is missing
            self._found["system"] = text_at(ordered[0], "@odata.id")
            self._found["bios"] = text_at(ordered[0], "Bios", "@odata.id")
        return ordered, tuple(found.problems)

    def host(self) -> JsonObject:
        """The host's system, as it is now."""
        known = self._found.get("system")
        if known is not None:
            return self._client.get(known, "system")
        ordered, problems = self.systems(strict=True)
        if not ordered or problems:
            raise busy(f"no system can be read ({'; '.join(problems) or 'the BMC lists none'}); ask again")
        return ordered[0]

    def bios(self) -> str | None:
        """The host's BIOS resource; None where the host has none."""
        if "bios" not in self._found:
            self._found["bios"] = text_at(self.host(), "Bios", "@odata.id")
        return self._found["bios"]

    def manager(self, host: JsonObject) -> JsonObject | None:
        """The BMC's own resource, as it is now; None where it shows none."""
        if "manager" not in self._found:
            self._found["manager"] = self._find_manager(host)
        uri = self._found["manager"]
        return self._client.get(uri, "manager") if uri is not None else None

    def _find_manager(self, host: JsonObject) -> str | None:
        managed = objects_at(host, "Links", "ManagedBy")
        known = self._client.link("Links", "ManagerProvidingService")
        known = known or (text_at(managed[0], "@odata.id") if managed else None)
        collection = self._client.link("Managers")
        if known is not None or collection is None:
            return known
        members = read_members(self._client, collection, "manager")
        bmcs = [body for body in members if text_at(body, "ManagerType") == "BMC"] or list(members)
        return text_at(bmcs[0], "@odata.id") if bmcs else None

    def allowed(self, action: JsonObject, parameter: str = "ResetType") -> tuple[str, ...]:
        """The values that an action takes, from itself or its ActionInfo; empty where it tells none."""
        inline = texts_at(action, f"{parameter}@Redfish.AllowableValues")
        info = text_at(action, "@Redfish.ActionInfo")
        if inline or info is None:
            return inline
        if info not in self._allowed:
            body = self._client.get(info, "action info")
            values = [
                texts_at(item, "AllowableValues")
                for item in objects_at(body, "Parameters")
                if text_at(item, "Name") == parameter
            ]
            self._allowed[info] = values[0] if values else ()
        return self._allowed[info]


def _host_first(system: JsonObject) -> tuple[bool, bool]:
    resets = "#ComputerSystem.Reset" in object_at(system, "Actions")
    return (bool(BASEBOARD_ID.match(text_at(system, "Id") or "")), not resets)
