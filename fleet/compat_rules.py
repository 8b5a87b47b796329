"""Rules beside the support ranges: cuda-compat, kernel modules, memory mode, bundled driver, fabric manager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fleet.catalog_data import BranchKind, Catalog, DriverBranch, GpuClass, Origin
from fleet.drivers import CudaVersion, DriverVersion, fabric_manager_matches
from fleet.gpu_names import Gpu


class Effect(StrEnum):
    """What a rule does to the verdict."""

    REFUSES = "refuses"
    UNDECIDED = "undecided"  # it applies, and something is missing
    NEEDS_PACKAGE = "needs_package"
    NOTES = "notes"  # holds under a condition, or warns
    ALLOWS = "allows"


class KernelModules(StrEnum):
    """Which of NVIDIA's kernel modules is installed."""

    OPEN = "open"
    CLOSED = "closed"


class MemoryMode(StrEnum):
    """Who manages GPU memory on a coherent platform: the driver, or the kernel as NUMA nodes."""

    CDMM = "cdmm"
    NUMA = "numa"


@dataclass(frozen=True, slots=True)
class Platform:
    """What stands around the GPU. None: not told, and then the rule only notes what it asks for."""

    kubernetes: bool | None = None
    memory_mode: MemoryMode | None = None
    kernel_modules: KernelModules | None = None
    fabric_manager: str | None = None


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule at work: its name and source in the catalogue, and what it says of this case."""

    name: str
    source: str
    text: str
    effect: Effect
    as_of: str | None = None
    package: str | None = None


def apply(
    facts: Catalog, name: str, effect: Effect, text: str, origin: Origin | None = None, package: str | None = None
) -> AppliedRule:
    """The catalogue's rule `name` with what it says here. `origin` is the source of the entry that it rests on."""
    source = origin or facts.rules[name].origin
    return AppliedRule(name, source.source, text, effect, source.as_of, package)


def forward_rules(
    facts: Catalog, kind: Gpu | None, release: DriverVersion, toolkit: CudaVersion, lacking: AppliedRule
) -> Iterator[AppliedRule]:
    """May a cuda-compat package bridge a driver that is too old for the toolkit? `lacking` says that it is."""
    package, branch = toolkit.compat_package, facts.branches.get(release.branch)
    gpu_class = None if kind is None else kind.gpu_class
    if gpu_class is GpuClass.CONSUMER and kind is not None:
        yield lacking
        text = f"{kind.name} is no data centre GPU and may not use {package}."
        yield apply(facts, "cuda.forward_gpus", Effect.REFUSES, text)
    elif branch is None or branch.max_cuda_major is None:
        text = f"{lacking.text} Which CUDA R{release.branch} is made for is not known, so neither is {package}'s use."
        yield apply(facts, "cuda.forward", Effect.UNDECIDED, text)
    elif toolkit.major <= branch.max_cuda_major:
        text = (
            f"{lacking.text} Refused without {package}, which is meant for a newer major version: "
            f"update within R{release.branch}, or to a later branch."
        )
        yield apply(facts, lacking.name, Effect.REFUSES, text, package=package)
    elif gpu_class is not GpuClass.DATA_CENTER:
        who = "this GPU" if kind is None else kind.name
        text = f"{lacking.text} It takes {package}, and whether {who} may use that is not known: name the model."
        yield apply(facts, "cuda.forward_gpus", Effect.UNDECIDED, text)
    else:
        yield from _on_base(facts, branch, toolkit, lacking.text)


def _on_base(facts: Catalog, branch: DriverBranch, toolkit: CudaVersion, why: str) -> Iterator[AppliedRule]:
    package = toolkit.compat_package
    needs = apply(facts, "cuda.forward", Effect.NEEDS_PACKAGE, f"{why} {package} bridges that.", package=package)
    listed = facts.compat_bases.get((toolkit.major, toolkit.parts[1])) if len(toolkit.parts) > 1 else None
    if listed is not None:
        bases, origin = listed
        names = ", ".join(f"R{number}" for number in sorted(bases))
        if branch.number in bases:
            yield needs
            yield apply(facts, "cuda.forward_bases", Effect.ALLOWS, f"{package} may sit on {names}.", origin)
        else:
            text = f"{why} {package} may sit on {names}, not on R{branch.number}."
            yield apply(facts, "cuda.forward_bases", Effect.REFUSES, text, origin)
    elif branch.kind is BranchKind.NEW_FEATURE:
        text = f"{why} Whether {package} may sit on the new feature branch R{branch.number} is not in the catalogue."
        yield apply(facts, "cuda.forward_bases", Effect.UNDECIDED, text)
    else:
        yield needs
        text = f"The catalogue has no table of the bases of {package}: see that R{branch.number} is among them."
        yield apply(facts, "cuda.forward_bases", Effect.NOTES, text)


def platform_rules(
    facts: Catalog,
    kind: Gpu | None,
    release: DriverVersion | None,
    toolkit: CudaVersion | None,
    platform: Platform,
) -> Iterator[AppliedRule]:
    """What the kernel modules, the memory mode, the toolkit's own driver and the fabric manager say."""
    if kind is not None and release is not None:
        yield from _kernel_modules(facts, kind, release, platform.kernel_modules)
        yield from _coherent(facts, kind, release, platform)
    if toolkit is not None:
        yield from _bundled(facts, kind, release, toolkit)
    if platform.fabric_manager is not None and release is not None:
        yield _fabric_manager(facts, release, platform.fabric_manager)


def _kernel_modules(
    facts: Catalog, kind: Gpu, release: DriverVersion, modules: KernelModules | None
) -> Iterator[AppliedRule]:
    if kind.architecture in facts.closed_modules_only:
        name, right = "kernel_modules.closed_only", KernelModules.CLOSED
    elif kind.architecture in facts.open_modules_only or kind.coherent:
        name, right = "kernel_modules.open_only", KernelModules.OPEN
    else:
        name, right = "kernel_modules.open_first_branch", None
    if right is not None:
        wrong = modules is not None and modules is not right
        effect = Effect.REFUSES if wrong else Effect.NOTES if modules is None else Effect.ALLOWS
        yield apply(facts, name, effect, f"{kind.name} needs the {right} kernel modules.")
    if modules is KernelModules.OPEN and release.branch < facts.open_modules_first_branch:
        text = f"R{release.branch} has no open kernel modules; R{facts.open_modules_first_branch} is the first."
        yield apply(facts, "kernel_modules.open_first_branch", Effect.REFUSES, text)


def _coherent(facts: Catalog, kind: Gpu, release: DriverVersion, platform: Platform) -> Iterator[AppliedRule]:
    if not kind.coherent or platform.kubernetes is False:
        return
    who, since = f"{kind.name} under Kubernetes", facts.cdmm_default_since
    if platform.kubernetes is None:
        text = f"{who} needs the memory mode CDMM, the default from {since.text} on."
        yield apply(facts, "coherent.cdmm", Effect.NOTES, text)
    elif platform.memory_mode is MemoryMode.NUMA:
        text = f"{who} needs CDMM: as NUMA nodes, GPU memory would be taken for the host's."
        yield apply(facts, "coherent.cdmm", Effect.REFUSES, text)
    elif platform.memory_mode is MemoryMode.CDMM:
        yield apply(facts, "coherent.cdmm", Effect.ALLOWS, f"{who} runs with CDMM.")
    elif release.at_least(since) is False:
        text = f"{who} needs CDMM, which {release.text} does not set by itself: tell the memory mode."
        yield apply(facts, "coherent.cdmm", Effect.UNDECIDED, text)
    else:
        yield apply(facts, "coherent.cdmm", Effect.NOTES, f"{who} needs CDMM: leave it as the driver sets it.")


def _bundled(
    facts: Catalog, kind: Gpu | None, release: DriverVersion | None, toolkit: CudaVersion
) -> Iterator[AppliedRule]:
    """The toolkit's installer would replace the fleet's driver, perhaps by one that does not drive the GPU."""
    kits = [kit for kit in facts.toolkits if kit.cuda.parts[: len(toolkit.parts)] == toolkit.parts[:3]]
    if not kits:
        return
    kit = max(kits, key=lambda kit: kit.cuda.parts)
    carried = kit.packaged_driver
    if release is not None and release.parts == carried.parts:
        return
    text = f"The installer of CUDA {kit.cuda.text} also brings driver {carried.text}: install the toolkit alone."
    last = {row.last_driver for row in kind.rows} if kind is not None else set()
    if any(branch is not None and carried.branch > branch for branch in last):
        text += " That driver does not drive this GPU."
    yield apply(facts, "driver.bundled", Effect.NOTES, text, kit.origin)


def _fabric_manager(facts: Catalog, release: DriverVersion, fabric_manager: str) -> AppliedRule:
    fits = fabric_manager_matches(release.text, fabric_manager)
    both = f"driver {release.text}, fabric manager {fabric_manager[:60]!r}"
    if fits is None:
        text = f"{both}: whether they are the same release cannot be told; give both in full."
        return apply(facts, "fabric_manager.equal", Effect.UNDECIDED, text)
    if fits:
        return apply(facts, "fabric_manager.equal", Effect.ALLOWS, f"{both}: the same release.")
    text = f"{both}: they must be the same release."
    return apply(facts, "fabric_manager.equal", Effect.REFUSES, text)
