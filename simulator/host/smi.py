"""nvidia-smi on a simulated host: lists, queries, settings, MIG, and what it says where the driver is not whole."""

from __future__ import annotations

from collections.abc import Callable

from simulator.host.heat import Heat
from simulator.host.releases import library_version
from simulator.host.services import Services
from simulator.host.smi_settings import SmiSettings
from simulator.host.state import HostState
from simulator.settings import APPLICATION_CLOCKS_MHZ, GPU_NAME
from simulator.slurm.reply import Reply, failure

_UNITS = {
    "temperature.memory": "",
    "power.limit": " W",
    "power.draw": " W",
    "power.default_limit": " W",
    "clocks.sm": " MHz",
    "clocks.current.sm": " MHz",
    "clocks.applications.graphics": " MHz",
    "clocks.applications.memory": " MHz",
    "utilization.gpu": " %",
    "memory.total": " MiB",
    "memory.used": " MiB",
}
_ASKED_WRONGLY = "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"


class Smi:
    """The tool on one host. `vbios` tells the active GPU firmware in slot order."""

    def __init__(self, host: HostState, services: Services, heat: Heat, vbios: Callable[[], list[str]]) -> None:
        self._host = host
        self._services = services
        self._heat = heat
        self._vbios = vbios
        self._settings = SmiSettings(host, services)

    def run(self, words: list[str]) -> Reply:
        """The answer to `nvidia-smi WORDS…`."""
        broken = self.broken()
        if broken is not None:
            return broken
        if words in (["-L"], ["--list-gpus"]):
            return Reply(0, "".join(map(self._listed, range(self._host.machine.gpus))))
        if words[:1] == ["mig"]:
            return self._settings.mig(words[1:])
        changed = self._settings.run(words)
        if changed is not None:
            return changed
        shape = next((word.partition("=")[2] for word in words if word.startswith("--format=")), "").split(",")
        for option, answer in (("--query-gpu=", self._query), ("--query-compute-apps=", self._apps)):
            asked = next((word.removeprefix(option) for word in words if word.startswith(option)), None)
            if asked is not None and "csv" in shape:
                return answer([name.strip() for name in asked.split(",")], shape)
        return failure(_ASKED_WRONGLY, 2)

    def broken(self) -> Reply | None:
        """What it says where no library, no module, or a library of another version than the module is there."""
        host = self._host
        if host.user_space is None:
            return failure("bash: line 1: nvidia-smi: command not found\n", 127)
        if host.loaded is None:
            text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            return Reply(9, f"{text}Make sure that the latest NVIDIA driver is installed and running.\n\n")
        if not host.usable:
            text = "Failed to initialize NVML: Driver/library version mismatch"
            return Reply(18, f"{text}\nNVML library version: {library_version(host.user_space)}\n")
        return None

    def _listed(self, slot: int) -> str:
        part, gpu = self._host.machine.parts[slot], self._host.settings.gpus[slot]
        lines = [f"GPU {slot}: {GPU_NAME} (UUID: GPU-{part.uuid})"]
        for number, one in enumerate(gpu.instances):
            lines.append(f"  MIG {one.profile:<12}Device  {number}: (UUID: {one.uuid(part.uuid)})")
        return "".join(f"{line}\n" for line in lines)

    def _query(self, names: list[str], shape: list[str]) -> Reply:
        rows = []
        for slot in range(self._host.machine.gpus):
            known = self._known(slot)
            wrong = next((name for name in names if name not in known), None)
            if wrong is not None:
                return Reply(2, f'Field "{wrong}" is not a valid field to query.\n')
            units = {} if "nounits" in shape else _UNITS
            rows.append([f"{known[name]}{units.get(name, '')}" for name in names])
        return _table(names, rows, shape)

    def _known(self, slot: int) -> dict[str, str]:
        host, versions = self._host, self._vbios()
        part, gpu, now = host.machine.parts[slot], host.settings.gpus[slot], self._heat.now(slot)
        bus = f"00000000:{0x18 + slot * 0x11:02X}:00.0"
        clock = str(now.clock_mhz)
        known = {
            "index": str(slot),
            "name": GPU_NAME,
            "serial": part.serial,
            "uuid": f"GPU-{part.uuid}",
            "vbios_version": versions[slot] if slot < len(versions) else "[N/A]",
            "pci.bus_id": bus,
            "driver_version": host.loaded.release if host.loaded else "[N/A]",
            "count": str(host.machine.gpus),
            "board_part_number": part.part_number,
            "persistence_mode": switch(gpu.persistence),
            "compute_mode": gpu.compute_mode,
            "mig.mode.current": switch(gpu.mig),
            "mig.mode.pending": switch(gpu.mig_pending),
            "ecc.mode.current": switch(gpu.ecc),
            "ecc.mode.pending": switch(gpu.ecc_pending),
            "temperature.gpu": f"{now.celsius:.0f}",
            "temperature.memory": f"{now.celsius + 9:.0f}",
            "power.limit": f"{gpu.power_limit_watts:.2f}",
            "power.default_limit": "700.00",
            "power.draw": f"{now.watts:.2f}",
            "clocks.sm": clock,
            "clocks.current.sm": clock,
            "clocks.applications.graphics": str(gpu.application_clocks_mhz[1]),
            "clocks.applications.memory": str(gpu.application_clocks_mhz[0]),
            "clocks.max.sm": str(APPLICATION_CLOCKS_MHZ[1]),
            "clocks_event_reasons.active": f"0x{now.mask:016x}",
            "clocks_throttle_reasons.active": f"0x{now.mask:016x}",
            "utilization.gpu": "100" if now.busy else "0",
            "memory.total": "81559",
            "memory.used": "71204" if now.busy else "0",
        }
        aliases = {"gpu_name": "name", "gpu_serial": "serial", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}
        return known | {alias: known[name] for alias, name in aliases.items()}

    def _apps(self, names: list[str], shape: list[str]) -> Reply:
        rows = []
        for slot, part in enumerate(self._host.machine.parts):
            for process in self._services.holders():
                if not process.cuda or f"/dev/nvidia{slot}" not in process.devices:
                    continue
                known = {
                    "gpu_uuid": f"GPU-{part.uuid}",
                    "gpu_name": GPU_NAME,
                    "pid": str(process.pid),
                    "process_name": process.command,
                    "name": process.command,
                    "used_memory": "71204" if "nounits" in shape else "71204 MiB",
                    "used_gpu_memory": "71204" if "nounits" in shape else "71204 MiB",
                }
                wrong = next((name for name in names if name not in known), None)
                if wrong is not None:
                    return Reply(2, f'Field "{wrong}" is not a valid field to query.\n')
                rows.append([known[name] for name in names])
        return _table(names, rows, shape)


def switch(on: bool) -> str:
    return "Enabled" if on else "Disabled"


def _table(names: list[str], rows: list[list[str]], shape: list[str]) -> Reply:
    titles = [] if "noheader" in shape else [names]
    return Reply(0, "".join(", ".join(row) + "\n" for row in titles + rows))
