"""May this node's driver be changed now? Every obstacle is found before anything is disturbed, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.compat_rules import KernelModules, MemoryMode, Platform
from fleet.compatibility import Verdict, judge
from fleet.driver_facts import DriverFacts, memory_mode
from fleet.driver_preflight_host import host_findings
from fleet.driver_preflight_packages import package_findings
from fleet.driver_preflight_shape import PreflightFinding, blocks, notes
from fleet.driver_readback import parts_of, says_mismatch
from fleet.driver_settings import DriverSettings
from fleet.driver_target import ModuleFlavour, is_fabric_manager
from fleet.end_of_life import Support, branch_end
from fleet.gpu_settings import cannot_be_put_back, settings_of

__all__ = ["Preflight", "PreflightFinding", "check_driver_change"]

_MODULES = {ModuleFlavour.OPEN: KernelModules.OPEN, ModuleFlavour.PROPRIETARY: KernelModules.CLOSED}
_MEMORY = {"driver": MemoryMode.CDMM, "cdmm": MemoryMode.CDMM, "numa": MemoryMode.NUMA}


@dataclass(frozen=True, slots=True)
class Preflight:
    """All findings, the blocking ones first. `passed` where none blocks."""

    findings: tuple[PreflightFinding, ...]

    @property
    def passed(self) -> bool:
        return not self.blocking

    @property
    def blocking(self) -> tuple[PreflightFinding, ...]:
        return tuple(finding for finding in self.findings if finding.blocking)


def check_driver_change(facts: DriverFacts, settings: DriverSettings) -> Preflight:
    """Judge the change. What could not be read and matters blocks: it is never taken as good."""
    found = [
        *_operator(facts),
        *_matrix(facts),
        *_end_of_life(facts, settings),
        *_parts(facts),
        *_settings(facts),
        *host_findings(facts, settings),
        *package_findings(facts, settings),
    ]
    return Preflight(tuple(sorted(found, key=lambda finding: not finding.blocking)))


def _operator(facts: DriverFacts) -> Iterator[PreflightFinding]:
    why = facts.driver_refusal
    if why is not None:
        yield blocks("operator.manages", why, "change it through the GPU Operator, or leave the node out")


def _matrix(facts: DriverFacts) -> Iterator[PreflightFinding]:
    models = sorted({gpu.product_name for gpu in facts.reading.gpus or () if gpu.product_name})
    if not models and says_mismatch(facts.reading):
        parts = parts_of(facts.reading)
        text = f"module {parts.loaded} is loaded beside a user space of {parts.user_space}: its settings cannot be read"
        yield blocks("driver.mismatch", text, "reboot the node first, so that it runs what is on its disk")
    elif not models:
        yield blocks("gpu.unknown", "the node's GPU models could not be read", "read the node, then plan again")
    manager = facts.target.fabric_manager
    platform = Platform(
        kubernetes=facts.kubernetes,
        memory_mode=_MEMORY.get((memory_mode(facts.reading) or "").lower()),
        kernel_modules=None if facts.target.flavour is None else _MODULES[facts.target.flavour],
        fabric_manager=None if manager is None else manager.version,
    )
    for model in models:
        verdict = judge(model, facts.target.version, None, platform)
        text = verdict.rules[0].text if verdict.rules else f"{model} with {facts.target.version}"
        if verdict.verdict is Verdict.REFUSED:
            yield blocks("matrix.refused", text, "choose a driver that drives this GPU: `gpufleet compat`")
        elif verdict.verdict is not Verdict.OK:
            yield blocks("matrix.unknown", text, "describe it in a catalogue file, or choose another driver")


def _end_of_life(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    end = branch_end(facts.target.version, facts.today)
    if end.support is Support.END_OF_LIFE:
        make = notes if settings.allow_end_of_life else blocks
        yield make("branch.end_of_life", end.text, "choose a supported branch, or set drivers.allow_end_of_life")
    elif end.support is Support.UNKNOWN:
        yield notes("branch.unknown", end.text, "find out when the branch ends")


def _parts(facts: DriverFacts) -> Iterator[PreflightFinding]:
    """What must be of the driver's version and would stay behind."""
    services = facts.former.services if facts.former else ()
    runs = "nvidia-fabricmanager" in services or facts.reading.driver.fabric_manager is not None
    has_package = any(is_fabric_manager(package.name) for package in facts.packages.installed)
    if facts.target.packages and facts.target.fabric_manager is None and (has_package or runs):
        yield blocks(
            "fabric_manager.left_behind",
            f"the node has a fabric manager, and the target brings none of {facts.target.version}",
            "add the fabric manager's package to the target: both must be exactly the same release",
        )


def _settings(facts: DriverFacts) -> Iterator[PreflightFinding]:
    settings = facts.former.settings if facts.former else settings_of(facts.reading.gpus)
    for why in cannot_be_put_back(settings):
        yield blocks("mig.layout", why, "note its layout and clear it by hand, or leave the node out")
    for gpu in settings.gpus:
        if gpu.mig_mode and gpu.mig is None:
            yield blocks("mig.unknown", f"gpu {gpu.index}: MIG is on, and its devices could not be read", "read again")
