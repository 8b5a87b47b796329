"""Does a driver run this GPU, and does a CUDA toolkit run on both: every answer with its rule and source.

A verdict is three-valued and more: what the catalogue does not know makes it unknown, never ok. Rules and their
sources stand in fleet/catalog/compat_rules.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from fleet.catalog_data import OPERATOR, Architecture, Catalog, Origin, Toolkit, load_catalog
from fleet.compat_rules import AppliedRule, Effect, Platform, apply, forward_rules, platform_rules
from fleet.drivers import CudaVersion, DriverVersion, at_least, at_most, parse_cuda, parse_driver
from fleet.gpu_names import Gpu, identify, nearest


class Verdict(StrEnum):
    """What may be done. Only OK and NEEDS_CUDA_COMPAT let a wave begin."""

    OK = "ok"
    NEEDS_CUDA_COMPAT = "ok only with cuda-compat"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CompatibilityVerdict:
    """The answer for one GPU with a driver, a toolkit or both, as they were given.

    `rules` are those that decided, the worst first. `package` is the cuda-compat package that the verdict rests on:
    needed where the verdict is NEEDS_CUDA_COMPAT; where it is REFUSED, the one without which it is refused.
    `unknown` says what is missing.
    """

    gpu: str
    driver: str | None
    cuda: str | None
    verdict: Verdict
    rules: tuple[AppliedRule, ...]
    package: str | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Asked:
    gpu: str
    driver: str | None
    cuda: str | None


_WORST_FIRST = (Effect.REFUSES, Effect.UNDECIDED, Effect.NEEDS_PACKAGE, Effect.NOTES, Effect.ALLOWS)
_VERDICTS = {
    Effect.REFUSES: Verdict.REFUSED,
    Effect.UNDECIDED: Verdict.UNKNOWN,
    Effect.NEEDS_PACKAGE: Verdict.NEEDS_CUDA_COMPAT,
}


def judge(
    gpu: str,
    driver: str | None = None,
    cuda: str | None = None,
    platform: Platform | None = None,
    catalog: Catalog | None = None,
) -> CompatibilityVerdict:
    """The verdict on `gpu` (a model, an architecture or a compute capability in any spelling).

    `driver` is a branch ("535", "R535") or a release; a branch is taken as its newest release. `cuda` is "13",
    "12.2" or "12.2.140". Never raises for what it is given; with neither of them the verdict is unknown.
    """
    facts = catalog or load_catalog()
    kind = identify(gpu, facts)
    release = None if driver is None else parse_driver(driver)
    toolkit = None if cuda is None else parse_cuda(cuda)
    found = [
        *_names(facts, _Asked(gpu, driver, cuda), kind, release, toolkit),
        *_over_rows(facts, kind, release, toolkit),
        *_pair(facts, kind, release, toolkit),
        *platform_rules(facts, kind, release, toolkit, platform or Platform()),
    ]
    rules = tuple(sorted(found, key=lambda rule: _WORST_FIRST.index(rule.effect)))
    worst = rules[0].effect
    deciding = [rule for rule in rules if rule.effect is worst]
    packages = {rule.package for rule in deciding}
    return CompatibilityVerdict(
        gpu=gpu,
        driver=driver,
        cuda=cuda,
        verdict=_VERDICTS.get(worst, Verdict.OK),
        rules=rules,
        package=packages.pop() if len(packages) == 1 else None,
        unknown=tuple(rule.text for rule in rules if rule.effect is Effect.UNDECIDED),
    )


def _names(
    facts: Catalog, asked: _Asked, kind: Gpu | None, release: DriverVersion | None, toolkit: CudaVersion | None
) -> Iterator[AppliedRule]:
    """What of the question the catalogue understands."""
    if kind is None:
        near = nearest(asked.gpu, facts)
        hint = f"; the nearest names are {', '.join(near)}" if near else ""
        text = f"{asked.gpu[:60]!r} names no one kind of GPU in the catalogue{hint}."
        yield apply(facts, "gpu.known", Effect.UNDECIDED, text)
    else:
        yield apply(facts, "gpu.known", Effect.ALLOWS, f"{kind.name} is of the architecture {kind.architecture}.")
    if asked.driver is None and asked.cuda is None:
        yield apply(facts, "driver.known", Effect.UNDECIDED, "Neither a driver nor a toolkit is given.")
    if asked.driver is not None and release is None:
        text = f"{asked.driver[:60]!r} is no driver branch or version."
        yield apply(facts, "driver.known", Effect.UNDECIDED, text)
    if release is not None and not facts.knows_branch(release.branch):
        text = f"The catalogue has no branch R{release.branch}; its newest is R{max(facts.branches)}."
        yield apply(facts, "driver.known", Effect.UNDECIDED, text)
    if asked.cuda is not None and toolkit is None:
        yield apply(facts, "cuda.known", Effect.UNDECIDED, f"{asked.cuda[:60]!r} is no CUDA version.")
    if toolkit is not None and _past_the_listed(facts, toolkit):
        text = f"The catalogue does not list CUDA {toolkit.text}: the rules of CUDA {toolkit.major} are applied."
        yield apply(facts, "cuda.known", Effect.NOTES, text)


def _past_the_listed(facts: Catalog, toolkit: CudaVersion) -> bool:
    listed = [kit.cuda.parts[:2] for kit in facts.toolkits if kit.cuda.major == toolkit.major]
    return bool(listed) and toolkit.parts[:2] > max(listed)


def _over_rows(
    facts: Catalog, kind: Gpu | None, release: DriverVersion | None, toolkit: CudaVersion | None
) -> Iterator[AppliedRule]:
    """The support range. Where a name covers several ranges, what only some of them refuse is undecided."""
    if kind is None:
        return
    by_row = [list(_architecture(facts, row, release, toolkit)) for row in kind.rows]
    for rules in by_row:
        others = [{(rule.name, rule.effect) for rule in other} for other in by_row]
        for rule in rules:
            shared = all((rule.name, rule.effect) in other for other in others)
            if shared and rules is by_row[0]:
                yield rule
            elif not shared and rule.effect is Effect.REFUSES:
                text = f"{rule.text} {kind.name} may also be another capability: name the model."
                yield apply(facts, rule.name, Effect.UNDECIDED, text)


def _architecture(
    facts: Catalog, row: Architecture, release: DriverVersion | None, toolkit: CudaVersion | None
) -> Iterator[AppliedRule]:
    who = f"{row.name} ({', '.join(row.capabilities)})"
    if release is not None:
        yield from _driver_range(facts, row, who, release)
    if toolkit is not None:
        yield from _cuda_range(facts, row, who, toolkit)


def _driver_range(facts: Catalog, row: Architecture, who: str, release: DriverVersion) -> Iterator[AppliedRule]:
    branch, first = release.branch, facts.first_branch(row)
    if row.last_driver is None:
        yield apply(facts, "architecture.last_driver", Effect.ALLOWS, f"No last branch is set for {who}.", row.origin)
    elif branch > row.last_driver:
        text = f"R{branch} does not drive {who}: last branch R{row.last_driver}."
        yield apply(facts, "architecture.last_driver", Effect.REFUSES, text, row.origin)
    else:
        text = f"R{branch} drives {who}: last branch R{row.last_driver}."
        yield apply(facts, "architecture.last_driver", Effect.ALLOWS, text, row.origin)
    if first is not None and branch < first:
        sure = row.origin.confidence == "high"
        text = f"R{branch} is older than {who}: its first toolkit, CUDA {row.first_cuda.text}, came with R{first}."
        yield apply(facts, "architecture.first_driver", Effect.REFUSES if sure else Effect.UNDECIDED, text)


def _cuda_range(facts: Catalog, row: Architecture, who: str, toolkit: CudaVersion) -> Iterator[AppliedRule]:
    if row.last_cuda is not None:
        effect, end = _bound(at_most(toolkit.parts, row.last_cuda.parts), toolkit)
        text = f"The last toolkit for {who} is CUDA {row.last_cuda.text}: {end}"
        yield apply(facts, "architecture.last_cuda", effect, text, row.origin)
    effect, end = _bound(at_least(toolkit.parts, row.first_cuda.parts), toolkit)
    text = f"The first toolkit for {who} is CUDA {row.first_cuda.text}: {end}"
    yield apply(facts, "architecture.first_cuda", effect, text, row.origin)


def _bound(inside: bool | None, toolkit: CudaVersion) -> tuple[Effect, str]:
    if inside is None:
        return Effect.NOTES, f"not every CUDA {toolkit.text} fits."
    if inside:
        return Effect.ALLOWS, f"CUDA {toolkit.text} fits."
    return Effect.REFUSES, f"CUDA {toolkit.text} does not fit."


def _pair(
    facts: Catalog, kind: Gpu | None, release: DriverVersion | None, toolkit: CudaVersion | None
) -> Iterator[AppliedRule]:
    """Whether the driver is new enough for the toolkit, natively or with cuda-compat."""
    if toolkit is None:
        return
    name, minimum, origin = _minimum(facts, toolkit)
    if minimum is None:
        yield from _without_minimum(facts, release, toolkit)
        return
    need = f"CUDA {toolkit.text} needs driver {minimum.text} or later"
    if release is None:
        yield apply(facts, name, Effect.NOTES, f"{need}.", origin)
        return
    enough = release.at_least(minimum)
    if enough is None:
        text = f"{need}; {release.text} has older releases too."
        yield apply(facts, name, Effect.NOTES, text, origin)
    elif enough:
        yield apply(facts, name, Effect.ALLOWS, f"{need}; {release.text} is.", origin)
        yield from _limited(facts, release, toolkit)
    elif name == "cuda.exact_minimum" and len(toolkit.parts) == 1:
        text = f"{need} in its last minor version, and {release.text} is older: tell the minor version."
        yield apply(facts, "cuda.known", Effect.UNDECIDED, text, origin)
    else:
        lacking = apply(facts, name, Effect.REFUSES, f"{need}, and {release.text} is older.", origin)
        yield from forward_rules(facts, kind, release, toolkit, lacking)


def _limited(facts: Catalog, release: DriverVersion, toolkit: CudaVersion) -> Iterator[AppliedRule]:
    """A driver older than the toolkit's own runs it by minor version compatibility, without its newer features."""
    carried = [kit.packaged_driver for kit in _listed(facts, toolkit) if len(toolkit.parts) > 1]
    oldest = min(carried, key=lambda driver: driver.parts, default=None)
    if oldest is not None and release.at_least(oldest) is False:
        text = f"{release.text} is older than {oldest.text}, the toolkit's own: its PTX and newer features do not work."
        yield apply(facts, "cuda.minor_version", Effect.NOTES, text)


def _listed(facts: Catalog, toolkit: CudaVersion) -> list[Toolkit]:
    """The toolkits of this major version, or of this minor one where that is told."""
    size = min(len(toolkit.parts), 2)
    return [kit for kit in facts.toolkits if kit.cuda.parts[:size] == toolkit.parts[:size]]


def _minimum(facts: Catalog, toolkit: CudaVersion) -> tuple[str, DriverVersion | None, Origin | None]:
    """The rule, the oldest driver that runs `toolkit` natively, and its source; of "10" that of the last 10.x."""
    major = facts.minimum_by_major.get(toolkit.major)
    rule = "cuda.exact_minimum" if major is None or toolkit.parts[:2] == (11, 0) else "cuda.minor_version"
    kits = _listed(facts, toolkit)
    if major is not None and (len(toolkit.parts) == 1 or not kits):
        return rule, major, None
    kit = max(kits, key=lambda kit: kit.minimum_driver.parts, default=None)
    if kit is None:
        return rule, None, None
    return rule, kit.minimum_driver, kit.origin if kit.origin.confidence == OPERATOR else None


def _without_minimum(facts: Catalog, release: DriverVersion | None, toolkit: CudaVersion) -> Iterator[AppliedRule]:
    """A toolkit that the catalogue does not list: an old one runs on any driver made for a later one."""
    oldest = min(facts.toolkits, key=lambda kit: kit.cuda.parts)
    newest = max(facts.toolkits, key=lambda kit: kit.cuda.parts)
    if toolkit.parts < oldest.cuda.parts and release is not None and release.at_least(oldest.minimum_driver):
        text = f"{release.text} runs CUDA {oldest.cuda.text}, so it runs CUDA {toolkit.text} too."
        yield apply(facts, "cuda.backward", Effect.ALLOWS, text)
        return
    text = (
        f"The catalogue has no minimum driver for CUDA {toolkit.text}; it has {oldest.cuda.text} to {newest.cuda.text}."
    )
    yield apply(facts, "cuda.known", Effect.UNDECIDED, text)
