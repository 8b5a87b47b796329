"""A whole simulated fleet: machines, BMCs, SSH hosts, Slurm and its jobs, and the folder that describes it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from fleet.approvals import APPROVAL_NAMESPACE, BUNDLE_NAMESPACE
from fleet.config import FleetSpec
from fleet.errors import ConfigurationError
from simulator.addresses import Claim, claim, has_own_addresses
from simulator.bmc import Bmc, BmcFarm
from simulator.bundle import write_bundle
from simulator.clock import SimClock
from simulator.faults import Fault, parse_faults
from simulator.firmware import VINTAGES, demo_bundle_entries, hgx_h100_firmware
from simulator.fleetfile import APPROVER, BMC_USER, DEVELOPMENT, PRODUCTION, Place, lay_out, model_name, write_fleet
from simulator.host.faults import DriverFaults, parse_driver_faults
from simulator.host.performance import Performance
from simulator.host.state import Site
from simulator.hosts import ControllerHost, GpuHost, HostShell
from simulator.jobs import JobPrograms, JobStream
from simulator.keys import make_key, make_password, make_tls
from simulator.machine import Machine, Timing
from simulator.metrics_server import MetricsServer
from simulator.real_site import RealOptions, RealSite
from simulator.slurm import Controller, Shell
from simulator.slurm.controller import Settings
from simulator.ssh import SshFarm, derive_key, public_line
from simulator.timers import Timers
from simulator.truth import TruthLog

_AGES = (0.35, 0.45, 0.20)  # how much of a fleet is of each firmware vintage
_LARGEST_JOB = {PRODUCTION: 0.15, DEVELOPMENT: 0.0}  # as a share of the partition's nodes


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """`time_scale` is simulated seconds per real second; `faults` is the text of a faults file.

    `real` leaves the scheduler to a real Slurm; its time, and that of its jobs, is not scaled.
    """

    folder: Path
    nodes: int = 32
    racks: int = 4
    gpus_per_node: int = 8
    seed: int = 7
    time_scale: float = 60.0
    faults: str | None = None
    faults_name: str = "faults.yaml"
    jobs: bool = True
    tls: bool = False
    base_port: int | None = None
    own_addresses: bool | None = None  # None: ask the system
    return_to_service: int = 2
    uniform: bool = False  # every node of the oldest vintage, and no jitter: for measuring
    real: RealOptions | None = None


class World:
    """Built in its folder by the constructor; listens from `start` until `stop`.

    The constructor raises ConfigurationError where the folder is in use, the faults file is wrong or a real Slurm is
    asked for and not there, and OSError where there are no free addresses. `real` is that Slurm, `controller` the
    simulated one; there is only one of the two.
    """

    def __init__(self, options: WorldOptions) -> None:
        self.options = options
        self.folder = options.folder.absolute()
        _prepare(self.folder)
        self.timing = Timing(jitter=0.0) if options.uniform else Timing()
        own = has_own_addresses() if options.own_addresses is None else options.own_addresses
        names = [f"gpu-{n + 1:04d}" for n in range(options.nodes)]
        text, seed = options.faults, options.seed
        faults = parse_faults(text, options.faults_name, names, seed) if text else {}
        self.driver_faults = parse_driver_faults(text, options.faults_name, names, seed) if text else DriverFaults()
        self.addresses: Claim = claim(options.nodes, own, options.base_port)
        places = lay_out(options.nodes, options.racks, options.gpus_per_node, self.addresses.nodes)
        self.clock = SimClock(options.time_scale)
        self.truth = TruthLog(self.folder / "truth.jsonl", self.clock)
        self.timers = Timers(self.clock)
        self.machines = {place.name: self._machine(place) for place in places}
        self.bmcs: dict[str, Bmc] = {}
        self.spec = self._write_folder(places)
        self.bmc_farm = self._build_bmcs(places, faults)
        self.real = self._build_real(options.real) if options.real else None
        self._simulated = None if options.real else self._build_slurm()
        self.hosts: dict[str, GpuHost] = {}
        self.ssh_farm = self._build_ssh(places)
        self.metrics = MetricsServer({name: host.samples for name, host in self.hosts.items()})
        self._log_fleet()

    @property
    def controller(self) -> Controller:
        """Raises ConfigurationError where the scheduler is a real Slurm."""
        if self._simulated is None:
            raise ConfigurationError("the scheduler of this world is a real Slurm")
        return self._simulated

    async def start(self) -> None:
        """Listen everywhere, then let jobs run. Raises OSError where an address was taken meanwhile, or a real Slurm
        does not come up."""
        if self.real is not None:
            await self.real.start(self.options.jobs)
        await self.bmc_farm.start()
        await self.ssh_farm.start()
        await self.metrics.start()
        for machine in self.machines.values():
            machine.listeners.append(self._log_host)
        if self.options.jobs and self._simulated is not None:
            self.stream.start()
        self._write_record()

    async def failure(self) -> BaseException:
        """Waits until a real Slurm can no longer be followed, and says why; for ever with a simulated one."""
        if self.real is not None:
            return await self.real.failure()
        never: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return await never

    async def stop(self) -> None:
        (self.folder / "simulator.json").unlink(missing_ok=True)
        self.timers.stop()
        await self.metrics.stop()
        await self.ssh_farm.stop()
        await self.bmc_farm.stop()
        if self.real is not None:
            await self.real.stop()
        self.addresses.lock.close()
        self.truth.close()

    def _machine(self, place: Place) -> Machine:
        return Machine(
            place.name,
            place.rack,
            place.pool,
            place.model,
            self.options.gpus_per_node,
            self.clock,
            self.truth,
            self.timing,
        )

    def _write_folder(self, places: list[Place]) -> FleetSpec:
        folder, options = self.folder, self.options
        text, spec = write_fleet(places, self.addresses.controller, options.time_scale, options.tls)
        self._password = make_password(folder / "bmc_password")
        self._client_key = make_key(folder / "ssh_key", "gpufleet")
        approver = make_key(folder / "approver_ed25519", APPROVER)
        spaces = f"{APPROVAL_NAMESPACE},{BUNDLE_NAMESPACE}"
        (folder / "allowed_signers").write_text(f'{APPROVER} namespaces="{spaces}" {approver}\n')
        write_bundle(
            folder / "bundle",
            demo_bundle_entries(options.gpus_per_node),
            (model_name(options.gpus_per_node),),
            self.timing,
            options.time_scale,
            folder / "approver_ed25519",
        )
        (folder / "fleet.yaml").write_text(text)
        return spec

    def _build_bmcs(self, places: list[Place], faults: dict[str, list[Fault]]) -> BmcFarm:
        tls = make_tls(self.folder, (p.endpoint.address for p in places)) if self.options.tls else None
        farm = BmcFarm(self.clock, self.truth, tls)
        for place in places:
            rng = random.Random(f"{self.options.seed} firmware {place.name}")
            vintage = VINTAGES[0] if self.options.uniform else rng.choices(VINTAGES, _AGES)[0]
            self.bmcs[place.name] = farm.add(
                self.machines[place.name],
                place.endpoint.address,
                place.endpoint.bmc_port,
                hgx_h100_firmware(rng, vintage, self.options.gpus_per_node),
                faults.get(place.name, []),
                BMC_USER,
                self._password,
            )
        return farm

    def _build_slurm(self) -> Controller:
        machines = list(self.machines.values())
        pools = [pool for pool in (PRODUCTION, DEVELOPMENT) if any(m.pool == pool for m in machines)]
        settings = Settings(return_to_service=self.options.return_to_service)
        controller = Controller(machines, pools, self.timers, self.truth, settings)
        storage = self.folder / "storage"
        JobPrograms(controller, self.timers, self.truth, storage)
        shares = {pool: _LARGEST_JOB[pool] for pool in pools}
        self.stream = JobStream(controller, self.timers, self.options.seed, shares, storage)
        return controller

    def _build_real(self, options: RealOptions) -> RealSite:
        rts, seed = self.options.return_to_service, self.options.seed
        return RealSite(options, rts, self.machines, self.truth, self.folder, seed)

    def _build_ssh(self, places: list[Place]) -> SshFarm:
        farm, known, seed = SshFarm(self.truth, self._client_key), [], self.options.seed
        units = {place.name: place.unit for place in places if place.unit is not None}
        site = Site(seed, self.driver_faults, Performance(seed), units)
        for place in places:
            key, end = derive_key(seed, place.name), place.endpoint
            shell = GpuHost(self.machines[place.name], self._vbios_of(place.name), site, self._jobs_of(place.name))
            self.machines[place.name].inlet_celsius = shell.heat.inlet
            self.hosts[place.name] = shell
            farm.add(place.name, end.address, end.ssh_port, key, shell, self.machines[place.name])
            known.append(f"[{end.address}]:{end.ssh_port} {public_line(key)}\n")
        key, end = derive_key(seed, "slurm-01"), self.addresses.controller
        shell_host: HostShell = (
            self.real.shell if self.real else ControllerHost(Shell(self.controller, self.folder / "storage"))
        )
        farm.add("slurm-01", end.address, end.ssh_port, key, shell_host, None)
        known.append(f"[{end.address}]:{end.ssh_port} {public_line(key)}\n")
        (self.folder / "known_hosts").write_text("".join(known))
        return farm

    def _vbios_of(self, name: str) -> _Vbios:
        return _Vbios(self.bmcs[name], self.options.gpus_per_node)

    def _jobs_of(self, name: str) -> Callable[[], list[tuple[int, str]]]:
        """The jobs that run on a node, with their users; none are told where the scheduler is a real Slurm."""
        slurm = self._simulated
        if slurm is None:
            return list
        node = slurm.nodes[name]
        return lambda: [(job, slurm.jobs[job].request.user) for job in node.running]

    def _log_host(self, machine: Machine) -> None:
        self.truth.write("host", machine.name, machine.rack, state="up" if machine.up else "down")

    def _log_fleet(self) -> None:
        """The truth log's first line: what a judge must know of the fleet."""
        racks: dict[str, list[str]] = defaultdict(list)
        pools: dict[str, list[str]] = defaultdict(list)
        for machine in self.machines.values():
            racks[machine.rack].append(machine.name)
            pools[machine.pool].append(machine.name)
        images = [entry.image for entry in demo_bundle_entries(self.options.gpus_per_node)]
        behind = {name: sorted(bmc.firmware.behind(images)) for name, bmc in self.bmcs.items()}
        self.truth.write(
            "fleet",
            racks=racks,
            pools=pools,
            limits={rack: self.spec.rack_limit(rack) for rack in racks},
            capacity_floor={pool: self.spec.pools[pool].capacity_floor for pool in pools},
            components_behind={name: ids for name, ids in behind.items() if ids},
            order=[entry.image.family for entry in demo_bundle_entries(self.options.gpus_per_node)],
            resets={e.image.family: e.reset.value for e in demo_bundle_entries(self.options.gpus_per_node)},
            gpus_per_node=self.options.gpus_per_node,
            seed=self.options.seed,
            time_scale=self.options.time_scale,
            slurm="real" if self.real else "simulated",
            drivers=self.driver_faults.installed,
            settings=[gpu.values() for gpu in next(iter(self.hosts.values())).state.settings.gpus],
        )

    def _write_record(self) -> None:
        """Whoever waits for the simulator waits for this file."""
        end = self.addresses.controller
        record = {
            "pid": os.getpid(),
            "nodes": self.options.nodes,
            "bmc_port": self.addresses.nodes[0].bmc_port,
            "ssh_port": self.addresses.nodes[0].ssh_port,
            "controller": f"{end.address}:{end.ssh_port}",
            "time_scale": self.options.time_scale,
            "metrics": self.metrics.url,
            "slurm": "real" if self.real else "simulated",
            "slurm_conf": self.real.slurm.environment["SLURM_CONF"] if self.real else None,
        }
        fresh = self.folder / "simulator.json.tmp"
        fresh.write_text(json.dumps(record) + "\n")
        fresh.replace(self.folder / "simulator.json")


class _Vbios:
    """The GPUs' active firmware, in slot order."""

    def __init__(self, bmc: Bmc, gpus: int) -> None:
        self._bmc = bmc
        self._ids = [f"HGX_FW_GPU_SXM_{slot}" for slot in range(1, gpus + 1)]

    def __call__(self) -> list[str]:
        return [self._bmc.firmware.active[id_] for id_ in self._ids]


def _prepare(folder: Path) -> None:
    """An empty start: what an earlier simulator left goes, unless it still runs."""
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "simulator.json"
    if record.is_file():
        pid = json.loads(record.read_text()).get("pid")
        if isinstance(pid, int) and pid != os.getpid() and psutil.pid_exists(pid):
            raise ConfigurationError(f"a simulator (pid {pid}) runs in {folder}; stop it or give another --dir")
        record.unlink()
    (folder / "truth.jsonl").unlink(missing_ok=True)
    shutil.rmtree(folder / "storage", ignore_errors=True)
    (folder / "storage").mkdir()
