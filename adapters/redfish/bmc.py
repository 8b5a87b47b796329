"""RedfishBmc: the `Bmc` of `fleet.ports` over Redfish."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import httpx

from adapters.redfish import bios, resets, systems, updates
from adapters.redfish.answers import ResourceMissing, busy, error_for
from adapters.redfish.client import RedfishClient
from adapters.redfish.members import read_members, survey_members
from adapters.redfish.places import Places
from adapters.redfish.sensors import InletSensors
from adapters.redfish.settings import BmcLogin, BmcTls
from fleet.bios import BiosReading
from fleet.bmc_tasks import read_task
from fleet.errors import CredentialsRejected, FleetError, OutcomeUnknown
from fleet.firmware import read_inventory
from fleet.json_values import JsonObject
from fleet.model import FirmwareComponent, RedfishTask, ResetKind, ResetMarks, SystemReading


@dataclass(frozen=True, slots=True)
class BmcSurvey:
    """All that one BMC shows, as far as it could be read; `problems` names each thing that could not."""

    system: SystemReading
    firmware: tuple[FirmwareComponent, ...]
    tasks: tuple[RedfishTask, ...]
    problems: tuple[str, ...]


class RedfishBmc:
    """One BMC, for one thread. Errors are those of `fleet.ports.Bmc`, and carry `node`.

    `url` is http(s)://host[:port]; plain http is used only where the URL says so. `login` None means that the
    BMC is read without an account. `transport` replaces the network in tests.
    """

    def __init__(
        self,
        url: str,
        login: BmcLogin | None = None,
        tls: BmcTls | None = None,
        timeout_seconds: float = 30.0,
        node: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._client = RedfishClient(url, login, tls, timeout_seconds, node, transport)
        self._places = Places(self._client)
        self._inlet = InletSensors(self._client)
        self._firmware: tuple[tuple[JsonObject, ...], tuple[FirmwareComponent, ...]] = (), ()

    def read_system(self) -> SystemReading:
        """Parts that cannot be read are listed in `problems`; a BMC that does not answer raises."""
        return systems.read_system(self._client, self._places)

    def read_inlet_celsius(self) -> float | None:
        """The air's temperature where it enters; None where the BMC shows none."""
        return self._inlet.read_celsius()

    def read_firmware(self) -> tuple[FirmwareComponent, ...]:
        """The complete inventory, in the BMC's order; raises BmcBusy where it is shorter than it says."""
        uri = self._places.firmware_inventory()
        try:
            entries = read_members(self._client, uri, "firmware inventory")
        except ResourceMissing:
            self._places.forget()
            raise
        if entries != self._firmware[0]:
            self._firmware = entries, read_inventory(entries)
        return self._firmware[1]

    def read_bios(self, names: Iterable[str]) -> BiosReading:
        """The named BIOS attributes; what this BMC does not give is unknown, a BMC that does not answer raises."""
        return bios.read_bios(self._client, self._places, tuple(names))

    def read_tasks(self) -> tuple[RedfishTask, ...]:
        """Every task that the BMC lists; none where it has no task service."""
        uri = self._places.tasks()
        if uri is None:
            return ()
        return tuple(read_task(body) for body in read_members(self._client, uri, "task"))

    def read_task(self, uri: str) -> RedfishTask | None:
        """One task. A 404 counts as "no such task" only while the BMC lists its tasks without it."""
        if not uri:
            return None
        answer = self._client.fetch(uri, "task")
        task = updates.task_at(answer, uri)
        if task is not None:
            return task
        if answer.status < 300:
            raise busy("task: not a JSON resource (cut or HTML); the BMC may be starting")
        if answer.status not in (404, 410):
            raise error_for(answer, "task", changes=False)
        path = self._client.address.path(uri)
        if any(self._client.address.path(other.uri) == path for other in self.read_tasks() if other.uri):
            raise busy("task: listed but not readable; the BMC may be starting")
        return None

    def push_image(self, image: Path, targets: tuple[str, ...]) -> RedfishTask:
        """Stream the file as a multipart push; see `fleet.ports.Bmc`."""
        return updates.push_image(self._client, self._places, image, targets)

    def simple_update(self, image_uri: str, targets: tuple[str, ...], protocol: str | None = None) -> RedfishTask:
        """Let the BMC fetch the image from `image_uri`; raises as `push_image` does."""
        return updates.simple_update(self._client, self._places, image_uri, targets, protocol)

    def read_reset_marks(self) -> ResetMarks:
        """Power, and LastResetTime of host and BMC."""
        try:
            return systems.read_marks(self._places)
        except ResourceMissing:
            self._places.forget()
            raise

    def reset(self, kind: ResetKind) -> None:
        """Ask for a reset by an action that this BMC offers; ConfigurationError where it offers none."""
        away = kind in (ResetKind.BMC_RESET, ResetKind.AC_CYCLE)
        try:
            if kind is ResetKind.HOST_REBOOT:
                resets.reboot_host(self._client, self._places)
            elif kind is ResetKind.BMC_RESET:
                resets.reset_manager(self._client, self._places)
            elif kind is ResetKind.AC_CYCLE:
                resets.cycle_standby(self._client, self._places)
        except OutcomeUnknown:
            self._restarted(away)
            raise
        self._restarted(away)

    def _restarted(self, away: bool) -> None:
        self._places.forget()
        if away:
            self._client.restarted()

    def survey(self) -> BmcSurvey:
        """Read everything for a person; only a BMC that cannot be read at all raises."""
        system = self.read_system()
        problems = list(system.problems)
        firmware: tuple[FirmwareComponent, ...] = ()
        tasks: tuple[RedfishTask, ...] = ()
        try:
            found = survey_members(self._client, self._places.firmware_inventory(), "firmware inventory")
            firmware, problems = read_inventory(found.entries), problems + found.problems
        except CredentialsRejected:
            raise
        except FleetError as error:
            problems.append(f"{error.message}; the firmware is not known")
        try:
            uri = self._places.tasks()
            listed = survey_members(self._client, uri, "task") if uri else None
            tasks = tuple(read_task(body) for body in listed.entries) if listed else ()
            problems += listed.problems if listed else []
        except CredentialsRejected:
            raise
        except FleetError as error:
            problems.append(f"{error.message}; the tasks are not known")
        return BmcSurvey(system, firmware, tasks, tuple(problems))

    def close(self) -> None:
        """End the session, where one is open."""
        self._client.close()
