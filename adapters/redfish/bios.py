"""The host's BIOS attributes: two reads at most, and none where no attribute is asked for."""

from __future__ import annotations

from adapters.redfish.answers import ResourceMissing
from adapters.redfish.client import RedfishClient
from adapters.redfish.places import Places
from fleet.bios import BiosReading, not_read, read_attributes
from fleet.errors import CredentialsRejected, FleetError, NodeUnreachable
from fleet.json_values import JsonObject, text_at


def read_bios(client: RedfishClient, places: Places, names: tuple[str, ...]) -> BiosReading:
    """The named attributes, in force and waiting.

    A resource that the BMC refuses or garbles makes its attributes unknown. Raises CredentialsRejected, and
    NodeUnreachable where the BMC does not answer.
    """
    if not names:
        return BiosReading()
    try:
        uri = places.bios()
        if uri is None:
            return not_read(names, "the BMC shows no BIOS of the host")
        active = client.get(uri, "BIOS")
    except ResourceMissing:
        places.forget()
        return not_read(names, "the BMC names a BIOS resource and does not have it")
    except (CredentialsRejected, NodeUnreachable):
        raise
    except FleetError as error:
        return not_read(names, error.message)
    return read_attributes(names, active, _settings(client, active))


def _settings(client: RedfishClient, active: JsonObject) -> JsonObject | str:
    """What waits for the next start; a BMC that cannot tell it, in words, has still told what is in force."""
    uri = text_at(active, "@Redfish.Settings", "SettingsObject", "@odata.id")
    if uri is None:
        return "the BMC shows no settings object of its BIOS"
    try:
        return client.get(uri, "BIOS settings")
    except (CredentialsRejected, NodeUnreachable):
        raise
    except FleetError as error:
        return error.message
