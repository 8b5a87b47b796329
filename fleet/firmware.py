"""What an entry of a BMC's firmware inventory stands for: running, staged, backup or not there.

Sources: DMTF SoftwareInventory (Status, Active, Staged), NVIDIA's NvidiaSoftwareInventory (firmware slots),
and the inventories of Dell, Lenovo, Supermicro and HPE boards as captured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from fleet.json_values import JsonObject, flag_at, object_at, text_at, value_at
from fleet.model import FirmwareComponent, FirmwareRole

# "0.00" is a version that real CPLDs report, so a zero by itself is a placeholder only as a bare "0".
_PLACEHOLDERS = {
    *("", "0", "na", "n/a", "n.a.", "none", "null", "(null)", "<null>", "unknown", "unavailable", "invalid"),
    *("not available", "not applicable", "not present", "absent", "undefined", "tbd"),
}
_BLANK_SHAPE = re.compile(r"^[-*?#_.\s]*$")
_STAGED_WORDS = {"pending", "staging", "staged"}
_BACKUP_WORDS = {
    *("backup", "golden", "recovery", "previous", "rollback"),
    *("redundant", "standby", "inactive", "alternate"),
}
_BACKUP_NAME = re.compile(
    r"\b(backup|golden|recovery|redundant|previous|alternate)\b.*\b(rom|bios|uefi|bmc|firmware|image)\b",
    re.IGNORECASE,
)
_WAITING_SLOT = {"pendingactivation", "staged"}
_NOT_USABLE = {"absent", "disabled", "unavailableoffline"}
_DELL = {
    "installed": FirmwareRole.ACTIVE,
    "current": FirmwareRole.ACTIVE,
    "previous": FirmwareRole.BACKUP,
    "available": FirmwareRole.BACKUP,
}
_DELL_ID = re.compile(r"^(Installed|Current|Previous|Available|Rollback)-.*__(?P<part>.+)$", re.IGNORECASE)


def real_version(text: object) -> str | None:
    """The version, None for what BMCs write where they have none ("NA", "-*", "Unknown", null …)."""
    if not isinstance(text, str):
        return None
    version = text.strip().strip("\x00").strip()
    if version.casefold() in _PLACEHOLDERS or _BLANK_SHAPE.match(version):
        return None
    return version


def read_component(entry: JsonObject) -> FirmwareComponent:
    """One inventory entry by itself; `read_inventory` also joins entries that belong together."""
    uri = text_at(entry, "@odata.id") or ""
    ident = text_at(entry, "Id") or uri.rstrip("/").rpartition("/")[2]
    state = text_at(entry, "Status", "State") or "Unknown"
    name = text_at(entry, "Name") or ident
    version = real_version(value_at(entry, "Version"))
    active = object_at(entry, "Oem", "Nvidia", "ActiveFirmwareSlot")
    if version is None and text_at(active, "FirmwareState") == "Activated":
        version = real_version(value_at(active, "Version"))
    role = _role(entry, ident, name, state, version)
    return FirmwareComponent(
        id=ident,
        version=version,
        staged=_staged_in_slot(entry) if role in (FirmwareRole.ACTIVE, FirmwareRole.UNKNOWN) else None,
        role=role,
        state=state,
        health=text_at(entry, "Status", "Health"),
        updateable=flag_at(entry, "Updateable"),
        uri=uri,
        name=name,
    )


def read_inventory(entries: Iterable[JsonObject]) -> tuple[FirmwareComponent, ...]:
    """All entries, each URI once, in the BMC's order.

    A staged entry of its own (Lenovo "-Pending", Supermicro "Staging_") also sets `staged` of the entry
    that it will replace.
    """
    found: dict[str, FirmwareComponent] = {}
    for number, entry in enumerate(entries):
        component = read_component(entry)
        found.setdefault(component.uri or f"#{number}", component)
    components = _settle_dell(tuple(found.values()))
    waiting = {_stem(c.id): c.version for c in components if c.role is FirmwareRole.STAGED}
    return tuple(_with_waiting(component, waiting) for component in components)


def staged_in_own_entry(component: FirmwareComponent, inventory: Iterable[FirmwareComponent]) -> bool:
    """True where the staged version stands in this entry and no other entry shows it."""
    others = [c for c in inventory if c.role is FirmwareRole.STAGED]
    return component.staged is not None and all(_stem(c.id) != _stem(component.id) for c in others)


def _role(entry: JsonObject, ident: str, name: str, state: str, version: str | None) -> FirmwareRole:
    kind = state.casefold()
    words = {word for word in re.split(r"[-_.:\s]+", ident.casefold()) if word}
    first = re.split(r"[-_]", ident.casefold(), maxsplit=1)[0]
    if kind == "absent":
        return FirmwareRole.ABSENT
    if words & _STAGED_WORDS or flag_at(entry, "Staged") is True:
        return FirmwareRole.STAGED if version else FirmwareRole.ABSENT
    if kind == "standbyspare" or flag_at(entry, "Active") is False:
        return FirmwareRole.BACKUP
    if "-" in ident and first in _DELL and kind not in _NOT_USABLE:
        return _DELL[first] if version else FirmwareRole.UNKNOWN
    if words & _BACKUP_WORDS or _BACKUP_NAME.search(name):
        return FirmwareRole.BACKUP
    if kind in _NOT_USABLE:
        return FirmwareRole.ABSENT
    return FirmwareRole.ACTIVE if version else FirmwareRole.UNKNOWN


def _staged_in_slot(entry: JsonObject) -> str | None:
    for slot in ("InactiveFirmwareSlot", "ActiveFirmwareSlot"):
        found = object_at(entry, "Oem", "Nvidia", slot)
        if (text_at(found, "FirmwareState") or "").casefold() in _WAITING_SLOT:
            return real_version(value_at(found, "Version"))
    return None


def _stem(ident: str) -> str:
    """The id without the word that says "staged"."""
    words = [word for word in re.split(r"[-_.]+", ident.casefold()) if word not in _STAGED_WORDS]
    return "-".join(words)


def _with_waiting(component: FirmwareComponent, waiting: dict[str, str | None]) -> FirmwareComponent:
    if component.role is not FirmwareRole.ACTIVE or component.staged is not None:
        return component
    staged = waiting.get(_stem(component.id))
    return replace(component, staged=staged) if staged and staged != component.version else component


def _settle_dell(components: tuple[FirmwareComponent, ...]) -> tuple[FirmwareComponent, ...]:
    """Dell's Installed- entry is the running one: a Current- entry that differs from it is unknown."""
    installed = {_part(c): c.version for c in components if c.id.casefold().startswith("installed-")}
    return tuple(
        replace(c, role=FirmwareRole.UNKNOWN)
        if c.id.casefold().startswith("current-") and installed.get(_part(c), c.version) != c.version
        else c
        for c in components
    )


def _part(component: FirmwareComponent) -> str:
    match = _DELL_ID.match(component.id)
    return match["part"] if match else component.id
