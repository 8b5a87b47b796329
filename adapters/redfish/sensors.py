"""The inlet's temperature over Redfish, with as few requests as this BMC allows."""

from __future__ import annotations

from adapters.redfish.answers import ResourceMissing
from adapters.redfish.client import RedfishClient
from adapters.redfish.members import survey_members
from fleet.inlet import inlet_celsius, inlet_of_thermal, names_inlet
from fleet.json_values import JsonObject, objects_at, text_at

_PAGES = 50


class InletSensors:
    """Finds the inlet's sensors once, and reads only those again. Used by one thread at a time."""

    def __init__(self, client: RedfishClient) -> None:
        self._client = client
        self._sensors: tuple[str, ...] | None = None
        self._thermal: tuple[str, ...] = ()

    def read_celsius(self) -> float | None:
        """The temperature now; None where this BMC shows none. Raises as `fleet.ports.Bmc` says."""
        if self._sensors is None:
            self._find()
        bodies = [self._get(uri) for uri in self._sensors or ()]
        found = inlet_celsius(bodies)
        if found is not None:
            return found
        values = [inlet_of_thermal(self._get(uri)) for uri in self._thermal]
        return min((value for value in values if value is not None), default=None)

    def _find(self) -> None:
        """Sensors by name, since a collection has hundreds; where no name tells, what each chassis sums up."""
        collection = self._client.link("Chassis")
        chassis = survey_members(self._client, collection, "chassis").entries if collection else []
        sensors = [uri for body in chassis for uri in self._named(text_at(body, "Sensors", "@odata.id"))]
        thermal = [uri for body in chassis for uri in self._summaries(body)]
        self._sensors, self._thermal = tuple(dict.fromkeys(sensors)), tuple(dict.fromkeys(thermal))

    def _named(self, collection: str | None) -> list[str]:
        found: list[str] = []
        pages: set[str] = set()
        while collection is not None and collection not in pages and len(pages) < _PAGES:
            pages.add(collection)
            body = self._get(collection)
            links = (text_at(entry, "@odata.id") for entry in objects_at(body, "Members"))
            found += [uri for uri in links if uri is not None and names_inlet(uri)]
            collection = text_at(body, "Members@odata.nextLink")
        return found

    def _summaries(self, chassis: JsonObject) -> list[str]:
        subsystem = text_at(chassis, "ThermalSubsystem", "@odata.id")
        metrics = text_at(self._get(subsystem), "ThermalMetrics", "@odata.id") if subsystem else None
        return [uri for uri in (metrics, text_at(chassis, "Thermal", "@odata.id")) if uri is not None]

    def _get(self, uri: str) -> JsonObject:
        """The resource; empty where it is gone."""
        try:
            return self._client.get(uri, "sensor")
        except ResourceMissing:
            return {}
