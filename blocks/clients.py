"""Ready clients of one fleet, made once per process and shared by its threads."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.checkpoint_storage import CheckpointStorage
from adapters.clock import SystemClock
from adapters.fleet_file import read_fleet_file
from adapters.known_hosts import KnownHosts
from adapters.local import LocalHost
from adapters.redfish import BmcLogin, BmcTls, RedfishBmc
from adapters.references import key_path, read_secret
from adapters.slurm import SlurmScheduler
from adapters.slurm_fences import SlurmFences
from adapters.ssh import SshAccess, SshHost, SshPool, read_key
from blocks.jobs import SharedJobs
from blocks.scheduler import NoScheduler, SharedScheduler
from fleet.budget import PoolLimits
from fleet.errors import ConfigurationError
from fleet.model import Node
from fleet.ports import Bmc, Clock, Fences, FileHost, Host, Scheduler
from ledger import Ledger

if TYPE_CHECKING:
    from adapters.kubernetes import KubernetesScheduler


class Clients:
    """What one fleet file leads to. Nothing is opened before it is asked for."""

    def __init__(self, fleet_file: Path) -> None:
        self.folder = fleet_file.parent
        self.spec = read_fleet_file(fleet_file)
        self.clock: Clock = SystemClock()
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._ssh: SshPool | None = None
        self._scheduler: SharedScheduler | None = None
        self._jobs: SharedJobs | None = None
        self._fences: Fences | None = None
        self._fences_known = False

    def ledger(self) -> Ledger:
        with self._lock:
            if self._ledger is None:
                self._ledger = Ledger.open(ledger_url(self.spec.ledger, self.folder), self.clock)
            return self._ledger

    def bmc(self, node: Node) -> Bmc:
        """A new client; whoever asked for it closes it."""
        settings = self.spec.bmc
        login = BmcLogin(settings.user, read_secret(settings.password, self.folder, "bmc.password"))
        ca = None if settings.tls.ca is None else str(self.folder / settings.tls.ca)
        return RedfishBmc(node.bmc, login, BmcTls(settings.tls.verify, ca), settings.request_timeout_seconds, node.name)

    def host(self, node: Node) -> Host:
        """The node's shell over a kept connection."""
        return self.file_host(node)

    def file_host(self, node: Node) -> FileHost:
        return self._pool().host(node.name, node.ssh)

    def scheduler(self) -> SharedScheduler:
        with self._lock:
            if self._scheduler is None:
                poll = self.spec.scheduler.poll_seconds
                self._scheduler = SharedScheduler(self._new_scheduler(), self.clock, poll)
            return self._scheduler

    def fences(self) -> Fences | None:
        """What keeps new work from running on nodes of two kinds; None without a workload manager."""
        with self._lock:
            if not self._fences_known:
                self._fences, self._fences_known = self._new_fences(), True
            return self._fences

    def jobs(self) -> SharedJobs:
        if self._jobs is None:
            scheduler, storage, poll = self.scheduler(), self._storage(), self.spec.scheduler.poll_seconds
            with self._lock:
                if self._jobs is None:
                    self._jobs = SharedJobs(self.spec.drain, storage, scheduler, self.clock, poll)
        return self._jobs

    def _storage(self) -> CheckpointStorage | None:
        settings = self.spec.drain.checkpoints
        if settings is None:
            return None
        host: Host = LocalHost()
        if settings.host is not None:
            access = replace(self.ssh_access(), user=settings.user or self.spec.ssh.user)
            host = SshHost("checkpoints", settings.host, access)
        return CheckpointStorage(host, self.clock, settings.clock_folder or "")

    def sync_inventory(self) -> None:
        """Bring the ledger's inventory and limits in step with the fleet file."""
        racks = {rack: self.spec.rack_limit(rack) for rack in self.spec.racks}
        pools = {name: PoolLimits.of(pool) for name, pool in self.spec.pools.items()}
        self.ledger().inventory.sync(self.spec.inventory(), racks, pools)

    def _new_scheduler(self) -> Scheduler:
        settings = self.spec.scheduler
        if settings.kind == "none":
            return NoScheduler(tuple(entry.name for entry in self.spec.nodes))
        if settings.kind == "kubernetes":
            return self._kubernetes()
        return SlurmScheduler(self._controller())

    def _new_fences(self) -> Fences | None:
        settings = self.spec.scheduler
        if settings.kind == "none":
            return None
        return self._kubernetes() if settings.kind == "kubernetes" else SlurmFences(self._controller())

    def _controller(self) -> Host:
        settings = self.spec.scheduler
        if settings.controller is None:
            return LocalHost()
        access = replace(self.ssh_access(), user=settings.user or self.spec.ssh.user)
        return SshHost("scheduler", settings.controller, access)

    def _kubernetes(self) -> KubernetesScheduler:
        from adapters.kubernetes import KubernetesScheduler
        from adapters.kubernetes_api import KubernetesApi

        settings = self.spec.scheduler
        path = None if settings.kubeconfig is None else self.folder / settings.kubeconfig
        return KubernetesScheduler(KubernetesApi.from_kubeconfig(path, settings.context), self.clock)

    def _pool(self) -> SshPool:
        with self._lock:
            if self._ssh is None:
                self._ssh = SshPool(self.ssh_access())
            return self._ssh

    def ssh_access(self) -> SshAccess:
        """How hosts of the fleet are logged in to."""
        settings = self.spec.ssh
        known = KnownHosts.read(self.folder / settings.known_hosts) if settings.verify_host_keys else None
        key = read_key(key_path(settings.key, self.folder))
        return SshAccess(settings.user, key, known, settings.connect_timeout_seconds)


_kept: dict[str, tuple[int, Clients]] = {}
_keeping = threading.Lock()


def clients_of(fleet_file: str) -> Clients:
    """The process's clients for a fleet file as it is now.

    A file that was broken or moved away in mid-operation must not fail the visits under way: the last good
    one stays in force in this process. Raises ConfigurationError where there never was a good one.
    """
    kept = _kept.get(fleet_file)
    try:
        if kept is not None and kept[0] == os.stat(fleet_file).st_mtime_ns:  # noqa: PTH116  asked 1,000 times a visit
            return kept[1]
        with _keeping:
            kept = _kept.get(fleet_file)
            modified = Path(fleet_file).stat().st_mtime_ns
            if kept is None or kept[0] != modified:
                kept = _kept[fleet_file] = modified, Clients(Path(fleet_file))
    except OSError as error:
        if kept is None:
            raise ConfigurationError(f"cannot read the fleet file {fleet_file}: {error.strerror}") from error
    except ConfigurationError:
        if kept is None:
            raise
    return kept[1]


def ledger_url(url: str, folder: Path) -> str:
    """The ledger's URL with a relative SQLite path taken from the fleet file's folder."""
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith(prefix + "/"):
        return f"{prefix}{(folder / url.removeprefix(prefix)).absolute()}"
    return url
