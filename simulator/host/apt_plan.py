"""What `apt-get install` would do: what is installed with what is asked for, and what must go for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulator.host.packages import Packages
from simulator.host.releases import DEBS, Offer, family, find, sort_key
from simulator.slurm.reply import Reply

_ARCHIVE = "Ubuntu:22.04/jammy-updates, Ubuntu:22.04/jammy-security [amd64]"


class AptError(Exception):
    """What apt-get says before it changes anything; its exit status is then 100."""


@dataclass(frozen=True, slots=True)
class AptPlan:
    """`install` are packages at a new version, `before` the versions that are replaced, by name."""

    install: tuple[Offer, ...]
    remove: tuple[str, ...]
    before: dict[str, str] = field(default_factory=dict)

    @property
    def fresh(self) -> list[str]:
        return [offer.name for offer in self.install if offer.name not in self.before]

    @property
    def upgraded(self) -> list[str]:
        return [o.name for o in self.install if o.name in self.before and self._newer(o)]

    @property
    def downgraded(self) -> list[str]:
        return [o.name for o in self.install if o.name in self.before and not self._newer(o)]

    def _newer(self, offer: Offer) -> bool:
        return sort_key(offer.version) > sort_key(self.before[offer.name])


def plan_install(packages: Packages, words: Sequence[str], options: frozenset[str]) -> AptPlan:
    """`words` are NAME, or NAME=VERSION. Raises AptError with apt-get's words."""
    wanted = {offer.name: offer for offer in map(_wanted, words)}
    chosen = _with_needs(packages, wanted)
    new = {
        name: offer
        for name, offer in chosen.items()
        if (there := packages.get(name)) is None or there.version != offer.version
    }
    remove = _removed(packages, chosen)
    clash = sorted(remove & set(wanted))
    if clash:
        raise AptError(f"E: Unable to correct problems, you have held broken packages: {' '.join(clash)}.\n")
    before = {name: there.version for name in new if (there := packages.get(name)) is not None}
    plan = AptPlan(tuple(new[name] for name in sorted(new)), tuple(sorted(remove)), before)
    _check_options(packages, plan, options)
    return plan


def _wanted(word: str) -> Offer:
    name, _, version = word.partition("=")
    plain = name.partition(":")[0]
    if plain not in DEBS:
        raise AptError(f"E: Unable to locate package {name}\n")
    offer = find(DEBS, plain, version or None)
    if offer is None:
        raise AptError(f"E: Version '{version}' for '{name}' was not found\n")
    return offer


def _with_needs(packages: Packages, wanted: dict[str, Offer]) -> dict[str, Offer]:
    """What is asked for, and what it needs: as installed, as asked for, or the newest version; apt tries no other."""
    chosen = dict(wanted)
    queue = list(wanted.values())
    while queue:
        offer = queue.pop()
        for name, version in offer.needs:
            known = chosen.get(name)
            there = packages.get(name)
            if known is None and there is not None and there.version == version:
                continue
            candidate = known or find(DEBS, name)
            if candidate is None or candidate.version != version:
                raise AptError(_unmet(offer, name, version, candidate))
            if known is None:
                chosen[name] = candidate
                queue.append(candidate)
    return chosen


def _unmet(offer: Offer, name: str, version: str, candidate: Offer | None) -> str:
    reason = "it is not installable" if candidate is None else f"{candidate.version} is to be installed"
    return (
        "Some packages could not be installed. This may mean that you have\n"
        "requested an impossible situation.\n"
        "The following packages have unmet dependencies:\n"
        f" {offer.name} : Depends: {name} (= {version}) but {reason}\n"
        "E: Unable to correct problems, you have held broken packages.\n"
    )


def _removed(packages: Packages, chosen: dict[str, Offer]) -> set[str]:
    """Those that exclude what is chosen, and those whose needs are then no longer there."""
    kept = {name: package.version for name, package in packages.present().items()}
    families = {family(name) for name in chosen}
    gone = {name for name in kept if name not in chosen and family(name) in families and family(name) != name}
    versions = {name: version for name, version in kept.items() if name not in gone}
    versions |= {name: offer.version for name, offer in chosen.items()}
    while True:
        broken = {name for name, version in versions.items() if not _needs_are_there(name, version, versions)}
        if not broken - set(chosen):
            return gone
        gone |= broken - set(chosen)
        versions = {name: version for name, version in versions.items() if name not in gone}


def _needs_are_there(name: str, version: str, versions: dict[str, str]) -> bool:
    offer = find(DEBS, name, version)
    return offer is None or all(versions.get(need) == needed for need, needed in offer.needs)


def _check_options(packages: Packages, plan: AptPlan, options: frozenset[str]) -> None:
    changed = (*plan.remove, *plan.before)
    held = [name for name in changed if (there := packages.get(name)) is not None and there.held]
    if held and "--allow-change-held-packages" not in options:
        raise AptError(
            f"The following held packages will be changed:\n  {' '.join(held)}\n"
            "E: Held packages were changed and -y was used without --allow-change-held-packages.\n"
        )
    if plan.downgraded and "--allow-downgrades" not in options:
        raise AptError("E: Packages were downgraded and -y was used without --allow-downgrades.\n")


def heading(packages: Packages, plan: AptPlan) -> str:
    """What apt-get prints before it does anything, or instead of it."""
    held = [n for n in (*plan.remove, *plan.before) if (there := packages.get(n)) is not None and there.held]
    parts = (
        ("The following packages will be REMOVED:", plan.remove),
        ("The following NEW packages will be installed:", plan.fresh),
        ("The following held packages will be changed:", held),
        ("The following packages will be upgraded:", plan.upgraded),
        ("The following packages will be DOWNGRADED:", plan.downgraded),
    )
    text = "Reading package lists...\nBuilding dependency tree...\nReading state information...\n"
    text += "".join(f"{title}\n  {' '.join(names)}\n" for title, names in parts if names)
    down = f"{len(plan.downgraded)} downgraded, " if plan.downgraded else ""
    counts = f"{len(plan.upgraded)} upgraded, {len(plan.fresh)} newly installed, {down}{len(plan.remove)} to remove"
    return f"{text}{counts} and 0 not upgraded.\n"


def simulation(packages: Packages, plan: AptPlan) -> Reply:
    """The answer of `apt-get -s install`."""
    lines = [f"Remv {name} [{there.version}]" for name in plan.remove if (there := packages.get(name)) is not None]
    for offer in plan.install:
        old = f" [{plan.before[offer.name]}]" if offer.name in plan.before else ""
        lines.append(f"Inst {offer.name}{old} ({offer.version} {_ARCHIVE})")
    lines += [f"Conf {offer.name} ({offer.version} {_ARCHIVE})" for offer in plan.install]
    return Reply(0, heading(packages, plan) + "".join(f"{line}\n" for line in lines))
