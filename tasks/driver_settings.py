"""Every GPU setting as it was before the install: looked for, noted, set again, read back."""

from __future__ import annotations

from fleet.driver_packages import last_words
from fleet.driver_target import RebootPolicy
from fleet.errors import DriverMismatch
from fleet.gpu_settings import LostSetting, NodeGpuSettings, commands_for, lost, settings_of
from tasks.driver_holders import stop_holders
from tasks.driver_load import load_and_read_back, reboot
from tasks.driver_work import DriverWork

_ROUNDS = 4  # modes, a reboot for them, what the reboot lost, MIG devices
_NEEDS_QUIET = ("-e", "-mig", "mig")  # the GPU must have no user


def ensure_settings(work: DriverWork) -> tuple[LostSetting, ...]:
    """Put the settings back. The answer is what was lost at first, also after a restart of ours.

    Raises DriverMismatch where they cannot be put back.
    """
    seen = _read(work)
    first = _remember(work, lost(work.former.settings, seen))
    said = ""
    for _ in range(_ROUNDS):
        missing = lost(work.former.settings, seen)
        if not missing:
            break
        commands = commands_for(work.former.settings, seen)
        if commands:
            said = _set(work, commands) or said
        elif any(one.waits for one in missing) and work.target.reboot is not RebootPolicy.NEVER:
            reboot(work, f"settings wait for a reset: {missing[0]}")
            load_and_read_back(work)
        else:
            break
        seen = _read(work)
    missing = lost(work.former.settings, seen)
    if missing:
        text = "; ".join(str(one) for one in missing[:6])
        tail = f" ({said})" if said else ""
        raise DriverMismatch(f"settings cannot be put back: {text}{tail}", node=work.visit.name)
    _lock_clocks(work, seen)
    return first


def _lock_clocks(work: DriverWork, seen: NodeGpuSettings) -> None:
    """Lock the clocks that the fleet file names: a lock goes with the driver, and cannot be read back."""
    wanted = work.settings.lock_gpu_clocks_mhz
    if wanted is None or not (work.happened("install") or work.happened("load")):
        return
    text = f"{wanted[0]},{wanted[1]}"
    with work.visit.step(f"{work.name}:clocks", {"lock": text}) as evidence:
        commands = {gpu.index: ("nvidia-smi", "-i", str(gpu.index), "-lgc", text) for gpu in seen.gpus}
        evidence["refused"] = [index for index, command in commands.items() if work.host.set_gpu(command).code]


def _read(work: DriverWork) -> NodeGpuSettings:
    """The settings once every GPU is seen, or what there is in the settle time: the driver may lag the login."""
    clock, seconds = work.visit.fleet.clock, work.visit.fleet.spec().bmc.settle_seconds
    deadline = clock.monotonic() + seconds
    while True:
        seen = settings_of(work.read("gpus").gpus)
        if len(seen.gpus) >= len(work.former.settings.gpus) or clock.monotonic() >= deadline:
            return seen
        work.visit.say(f"reads settings: {len(seen.gpus)} of {len(work.former.settings.gpus)} GPUs are seen")
        clock.sleep(work.settings.poll_seconds)


def _remember(work: DriverWork, found: tuple[LostSetting, ...]) -> tuple[LostSetting, ...]:
    """What was lost when it was first looked for; a later runner reads it from the journal."""
    known = remembered(work)
    if known is not None:
        return known
    with work.visit.step(f"{work.name}:lost", {}) as evidence:
        evidence["lost"] = [
            {"gpu": one.gpu, "setting": one.setting, "before": one.before, "now": one.now, "waits": one.waits}
            for one in found
        ]
    return found


def remembered(work: DriverWork) -> tuple[LostSetting, ...] | None:
    """What the newest install lost; None where that was not looked for yet."""
    entry, install = work.visit.last(f"{work.name}:lost"), work.visit.last(f"{work.name}:install")
    if entry is None or (install is not None and install.id > entry.id):
        return None
    listed = entry.result.get("lost")
    if not isinstance(listed, list):
        return None
    return tuple(
        LostSetting(int(one["gpu"]), str(one["setting"]), str(one["before"]), str(one["now"]), bool(one["waits"]))
        for one in listed
    )


def _set(work: DriverWork, commands: tuple[tuple[str, ...], ...]) -> str:
    """Run the commands; the answer is what the last refusal said. MIG devices come last, once modes are right."""
    modes = tuple(command for command in commands if command[1] != "mig")
    batch = modes or commands
    if any(word in command for command in batch for word in _NEEDS_QUIET):
        stop_holders(work)
    work.visit.check_undisturbed()
    work.visit.say(f"sets {len(batch)} GPU settings")
    said = ""
    with work.visit.step(f"{work.name}:settings", {"commands": [" ".join(command) for command in batch]}) as evidence:
        for command in batch:
            answer = work.host.set_gpu(command)
            if answer.code:
                said = f"{' '.join(command)}: {last_words(answer.stderr or answer.stdout, 1)}"
        evidence["refused"] = said
    return said
