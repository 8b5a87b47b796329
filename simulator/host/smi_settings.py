"""What nvidia-smi changes on a simulated host: modes, limits, clocks, MIG devices, and a GPU's reset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from simulator.host.services import FABRIC_MANAGER, PERSISTENCED, Services
from simulator.host.state import HostState
from simulator.settings import MIG_PROFILES, POWER_LIMIT_WATTS, GpuSettings
from simulator.slurm.reply import Reply, failure

_COMPUTE_MODES = {
    "0": "Default",
    "1": "Exclusive_Thread",
    "2": "Prohibited",
    "3": "Exclusive_Process",
    "DEFAULT": "Default",
    "PROHIBITED": "Prohibited",
    "EXCLUSIVE_PROCESS": "Exclusive_Process",
}
_ON = {"1": True, "ENABLED": True, "0": False, "DISABLED": False}
_LONG = {
    "--id": "-i",
    "--persistence-mode": "-pm",
    "--power-limit": "-pl",
    "--ecc-config": "-e",
    "--compute-mode": "-c",
    "--applications-clocks": "-ac",
    "--lock-gpu-clocks": "-lgc",
    "--multi-instance-gpu": "-mig",
    "--reset-gpu-clocks": "-rgc",
    "--reset-applications-clocks": "-rac",
    "--gpu-reset": "-r",
}
_WITHOUT_VALUE = {"-rgc", "-rac", "-r"}
_NEEDS_VALUE = {"-i", "-pm", "-pl", "-e", "-c", "-ac", "-lgc", "-mig"}
_DONE = "All done.\n"


class SmiSettings:
    """Changes are written to the truth log as made by nvidia-smi."""

    def __init__(self, host: HostState, services: Services) -> None:
        self._host = host
        self._services = services

    def run(self, words: list[str]) -> Reply | None:
        """For all GPUs or `-i N`; None where the words ask for nothing of this kind."""
        given = _options(words)
        if given is None or not given.keys() - {"-i"}:
            return None
        slots = self._slots(given.pop("-i", None))
        if isinstance(slots, Reply):
            return slots
        lines: list[str] = []
        with self._host.settings_change("nvidia-smi"):
            for option, value in given.items():
                for slot in slots:
                    answer = self._change(slot, option, value)
                    if answer.code:
                        return answer
                    lines.append(answer.stdout)
        return Reply(0, "".join(lines) + _DONE)

    def _slots(self, chosen: str | None) -> list[int] | Reply:
        count = self._host.machine.gpus
        if chosen is None:
            return list(range(count))
        slots = []
        for word in chosen.split(","):
            found = self._slot(word)
            if found is None:
                return Reply(6, "No devices were found\n")
            slots.append(found)
        return slots

    def _slot(self, word: str) -> int | None:
        """By index, UUID, or PCI address."""
        for slot, part in enumerate(self._host.machine.parts):
            address = f"{0x18 + slot * 0x11:02x}:00.0"
            if word in (str(slot), f"GPU-{part.uuid}", part.serial) or word.lower().endswith(f":{address}"):
                return slot
        return None

    def _change(self, slot: int, option: str, value: str) -> Reply:
        gpu, name = self._host.settings.gpus[slot], f"GPU 00000000:{0x18 + slot * 0x11:02X}:00.0"
        changes: dict[str, Callable[[], Reply]] = {
            "-pm": lambda: self._persistence(gpu, name, value),
            "-pl": lambda: _power(gpu, name, value),
            "-e": lambda: _ecc(gpu, name, value),
            "-c": lambda: _compute(gpu, name, value),
            "-ac": lambda: _application_clocks(gpu, name, value),
            "-lgc": lambda: _lock_clocks(gpu, name, value),
            "-rgc": lambda: _lock_clocks(gpu, name, None),
            "-rac": lambda: _application_clocks(gpu, name, None),
            "-mig": lambda: self._mig_mode(slot, gpu, name, value),
            "-r": lambda: self._reset(slot, gpu, name),
        }
        return changes[option]()

    def _persistence(self, gpu: GpuSettings, name: str, value: str) -> Reply:
        on = _ON.get(value.upper())
        if on is None:
            return failure(f"Invalid persistence mode: {value}\n", 2)
        word = "Enabled" if on else "Disabled"
        was, gpu.persistence = gpu.persistence, on
        return Reply(
            0,
            f"{word} persistence mode for {name}.\n"
            if was != on
            else f"Persistence mode is already {word} for {name}.\n",
        )

    def _users(self, slot: int) -> list[int]:
        """Processes that keep a GPU from a change of its MIG mode, or from a reset."""
        spared = {f"{unit}.service" for unit in (PERSISTENCED, FABRIC_MANAGER)}
        return [
            process.pid
            for process in self._services.holders()
            if f"/dev/nvidia{slot}" in process.devices and process.unit not in spared
        ]

    def _mig_mode(self, slot: int, gpu: GpuSettings, name: str, value: str) -> Reply:
        on = _ON.get(value.upper())
        if on is None:
            return failure(f"Invalid MIG mode: {value}\n", 2)
        word = "Enabled" if on else "Disabled"
        if gpu.mig == on:
            gpu.mig_pending = on
            return Reply(0, f"{word} MIG Mode for {name}\n")
        if self._users(slot):
            gpu.mig_pending = on
            pending = f"pending {word.lower().removesuffix('d')} state"
            waits = f"Warning: MIG mode is in {pending} for {name}:In use by another client"
            return Reply(0, f"{waits}\n{name} is currently being used by one or more other processes\n")
        gpu.set_mig(on)
        return Reply(0, f"{word} MIG Mode for {name}\n")

    def _reset(self, slot: int, gpu: GpuSettings, name: str) -> Reply:
        if self._users(slot):
            return failure(f"{name} is currently in use by another process.\n\n1 device is currently being used.\n", 19)
        gpu.reset()
        return Reply(0, f"{name} was successfully reset.\n")

    def mig(self, words: list[str]) -> Reply:
        """`mig [-i N] -cgi PROFILES [-C]`, `-dci`, `-dgi` and `-lgi`."""
        given = dict(zip(words, [*words[1:], ""], strict=True))
        slots = self._slots(given.get("-i"))
        if isinstance(slots, Reply):
            return slots
        able = [slot for slot in slots if self._host.settings.gpus[slot].mig]
        if not able:
            return failure("No MIG-enabled devices found.\n", 6)
        with self._host.settings_change("nvidia-smi"):
            if "-cgi" in given:
                return self._create(able, given["-cgi"], "-C" in given)
            if "-dgi" in given or "-dci" in given:
                return self._destroy(able, whole="-dgi" in given)
        if "-lgi" in given:
            return self._list_instances(able)
        return failure("Option is not recognized. Please run 'nvidia-smi mig -h'.\n", 2)

    def _create(self, slots: list[int], wanted: str, with_compute: bool) -> Reply:
        names = [_profile(word) for word in wanted.split(",")]
        profiles = [name for name in names if name is not None]
        if len(profiles) != len(names) or not with_compute:
            return failure(f"Unable to parse GPU instance profiles: {wanted}\n", 2)
        text = ""
        for slot in slots:
            made = self._host.settings.gpus[slot].make_instances(profiles)
            if made is None:
                id_ = MIG_PROFILES[profiles[0]][0]
                text += (
                    f"Unable to create a GPU instance on GPU {slot:2d} using profile {id_}: Insufficient Resources\n"
                )
                return Reply(19, f"{text}Failed to create GPU instances: Insufficient Resources\n")
            for one in made:
                id_ = MIG_PROFILES[one.profile][0]
                profile = f"using profile MIG {one.profile} (ID {id_:2d})"
                text += f"Successfully created GPU instance ID {one.id:2d} on GPU {slot:2d} {profile}\n"
                inner = f"on GPU {slot:2d} GPU instance ID {one.id:2d} using profile MIG {one.profile} (ID  0)"
                text += f"Successfully created compute instance ID  0 {inner}\n"
        return Reply(0, text)

    def _destroy(self, slots: list[int], whole: bool) -> Reply:
        text = ""
        for slot in slots:
            gpu = self._host.settings.gpus[slot]
            for one in gpu.instances:
                what = f"GPU instance ID {one.id:2d}" if whole else "compute instance ID  0"
                text += f"Successfully destroyed {what} from GPU {slot:2d}\n"
            if whole:
                gpu.instances.clear()
        return Reply(0, text) if text else failure("No GPU instances found: Not Found\n", 6)

    def _list_instances(self, slots: list[int]) -> Reply:
        rows = [
            f"|{slot:4d}  MIG {one.profile:<14}{MIG_PROFILES[one.profile][0]:5d}{one.id:9d}           |"
            for slot in slots
            for one in self._host.settings.gpus[slot].instances
        ]
        if not rows:
            return failure("No GPU instances found: Not Found\n", 6)
        return Reply(0, "".join(f"{row}\n" for row in ("| GPU instances: |", *rows)))


def _options(words: list[str]) -> dict[str, str] | None:
    """Option → value, by short names; None where a word is none of these options."""
    given: dict[str, str] = {}
    place = iter(words)
    for word in place:
        name, equals, value = word.partition("=")
        short = _LONG.get(name, name)
        if short in _WITHOUT_VALUE:
            given[short] = ""
        elif short in _NEEDS_VALUE:
            given[short] = value if equals else next(place, "")
        else:
            return None
    return given


def _power(gpu: GpuSettings, name: str, value: str) -> Reply:
    least, most = POWER_LIMIT_WATTS
    watts = None
    with suppress(ValueError):
        watts = float(value)
    if watts is None or not least <= watts <= most:
        text = f"Provided power limit {value} W is not a valid power limit which should be between"
        return failure(f"{text} {least:.2f} W and {most:.2f} W for {name}\n", 2)
    was, gpu.power_limit_watts = gpu.power_limit_watts, watts
    return Reply(0, f"Power limit for {name} was set to {watts:.2f} W from {was:.2f} W.\n\n")


def _ecc(gpu: GpuSettings, name: str, value: str) -> Reply:
    on = _ON.get(value.upper())
    if on is None:
        return failure(f"Invalid ECC configuration: {value}\n", 2)
    word = "Enabled" if on else "Disabled"
    if gpu.ecc_pending == on:
        return Reply(0, f"ECC support is already {word} for {name}.\n")
    gpu.ecc_pending = on
    return Reply(0, f"{word} ECC support for {name}.\nReboot required.\n")


def _compute(gpu: GpuSettings, name: str, value: str) -> Reply:
    mode = _COMPUTE_MODES.get(value.upper())
    if mode is None:
        return failure(f"Invalid compute mode: {value}\n", 2)
    gpu.compute_mode = mode
    return Reply(0, f"Set compute mode to {mode.upper()} for {name}.\n")


def _clocks(value: str) -> tuple[int, int] | None:
    first, _, second = value.partition(",")
    return (int(first), int(second or first)) if first.isdigit() and (second or first).isdigit() else None


def _application_clocks(gpu: GpuSettings, name: str, value: str | None) -> Reply:
    if value is None:
        gpu.application_clocks_mhz = GpuSettings().application_clocks_mhz
        return Reply(0, f"All applications clocks reset to default for {name}\n")
    clocks = _clocks(value)
    if clocks is None or clocks[0] != 2619 or not 210 <= clocks[1] <= 1980:
        text = f'Specified clock combination "(MEM {value.replace(",", ", SM ")})" is not supported for {name}.'
        return failure(
            f"{text} Run 'nvidia-smi -q -d SUPPORTED_CLOCKS' to see list of supported clock combinations\n", 2
        )
    gpu.application_clocks_mhz = clocks
    return Reply(0, f'Applications clocks set to "(MEM {clocks[0]}, SM {clocks[1]})" for {name}\n')


def _lock_clocks(gpu: GpuSettings, name: str, value: str | None) -> Reply:
    clocks = None if value is None else _clocks(value)
    if value is not None and clocks is None:
        return failure(f"Invalid GPU clocks: {value}\n", 2)
    gpu.locked_clocks_mhz = clocks
    if clocks is None:
        return Reply(0, f"GPU clocks reset for {name}\n")
    return Reply(0, f'GPU clocks set to "(gpuClkMin {clocks[0]}, gpuClkMax {clocks[1]})" for {name}\n')


def _profile(word: str) -> str | None:
    """A MIG profile by its name, with or without "MIG", or by its number."""
    plain = word.strip().removeprefix("MIG ").strip()
    if plain in MIG_PROFILES:
        return plain
    return next((name for name, (id_, *_) in MIG_PROFILES.items() if str(id_) == plain), None)
