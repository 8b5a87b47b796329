"""Who gets the change first, and who is watched beside them: cohorts that are alike in model, rack, firmware and age.

Assignment within a stratum is by chance, from a seed, so that what nobody thought of is alike on both sides too.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.errors import ConfigurationError
from fleet.measures import NodeTraits

_AGE_BANDS = ((90.0, "under 90 days"), (365.0, "under a year"), (1095.0, "under three years"))

_Key = tuple[str, ...]
# From the whole stratum to anything at all: what a control must share with its canary node, and what is given up.
_WIDENINGS: tuple[tuple[tuple[int, ...], str], ...] = (
    ((0, 1, 2, 3), ""),
    ((0, 1, 2), "age"),
    ((0, 2, 3), "rack"),
    ((0, 2), "rack and age"),
    ((0, 1), "firmware and age"),
    ((0,), "rack, firmware and age"),
    ((), "model, rack, firmware and age"),
)


@dataclass(frozen=True, slots=True)
class Stratum:
    """Canary nodes that are alike, and the controls found for them. `widened` names in what these differ."""

    model: str
    rack: str
    firmware: str
    age: str
    canary: tuple[str, ...]
    control: tuple[str, ...]
    widened: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cohorts:
    """`traits` are those of the chosen nodes. `notes` say where the choice is not what it should be."""

    canary: tuple[str, ...]
    control: tuple[str, ...]
    strata: tuple[Stratum, ...] = ()
    traits: tuple[NodeTraits, ...] = ()
    seed: int = 0
    notes: tuple[str, ...] = ()


def age_band(age_days: float | None) -> str:
    """In words; a node of unknown age is in a band of its own."""
    if age_days is None:
        return "unknown"
    return next((name for limit, name in _AGE_BANDS if age_days < limit), "three years and more")


def plan_cohorts(traits: Iterable[NodeTraits], size: int, seed: int, controls_per_canary: int = 1) -> Cohorts:
    """Choose `size` canary nodes that show as many models, firmwares and racks as they can, with matched controls.

    Strata that have a control for each of their canary nodes come first. The same traits (in any order) and seed give
    the same cohorts. Raises ConfigurationError if a node is there twice, or a size is below 1.
    """
    nodes = _checked(traits, size, controls_per_canary)
    order = _shuffled(nodes, seed)
    wanted = min(size, len(order) // (1 + controls_per_canary) or min(1, len(order)))
    canary = _spread(order, wanted, controls_per_canary)
    notes = () if wanted == size else (f"only {wanted} canary nodes of {size}: the fleet has {len(order)} nodes",)
    return _matched(canary, order, seed, controls_per_canary, notes)


def match_controls(
    canary: Sequence[str], traits: Iterable[NodeTraits], seed: int, controls_per_canary: int = 1
) -> Cohorts:
    """Controls for canary nodes that somebody else chose. Raises ConfigurationError for a node without traits."""
    nodes = _checked(traits, 1, controls_per_canary)
    unknown = sorted(set(canary) - {one.node for one in nodes})
    if unknown or len(set(canary)) < len(canary):
        raise ConfigurationError(f"canary nodes without traits, or named twice: {', '.join(unknown or canary)}")
    by_name = {one.node: one for one in nodes}
    return _matched([by_name[name] for name in canary], _shuffled(nodes, seed), seed, controls_per_canary, ())


def _checked(traits: Iterable[NodeTraits], size: int, controls: int) -> list[NodeTraits]:
    nodes = sorted(traits, key=lambda one: one.node)
    twice = [name for name, count in Counter(one.node for one in nodes).items() if count > 1]
    if twice:
        raise ConfigurationError(f"nodes that are there twice: {', '.join(twice)}")
    if size < 1 or controls < 1:
        raise ConfigurationError("a canary has at least one node, and a control for each")
    return nodes


def _shuffled(nodes: Sequence[NodeTraits], seed: int) -> list[NodeTraits]:
    order = list(nodes)
    random.Random(seed).shuffle(order)  # noqa: S311 - not a secret
    return order


def _key(one: NodeTraits) -> _Key:
    return (one.model, one.rack, one.firmware, age_band(one.age_days))


def _spread(order: Sequence[NodeTraits], wanted: int, controls: int) -> list[NodeTraits]:
    """One node after the other, from the stratum that is shown least so far and can still match it."""
    strata: defaultdict[_Key, list[NodeTraits]] = defaultdict(list)
    for one in order:
        strata[_key(one)].append(one)
    places = {key: place for place, key in enumerate(strata)}
    shown = [Counter[str]() for _ in range(4)]
    taken: Counter[_Key] = Counter()
    chosen: list[NodeTraits] = []
    while len(chosen) < wanted:
        open_keys = [key for key in strata if taken[key] < len(strata[key])]
        key = min(
            open_keys,
            key=lambda key: (
                (taken[key] + 1) * (1 + controls) > len(strata[key]),
                shown[0][key[0]] > 0,
                shown[2][key[2]] > 0,
                shown[1][key[1]],
                shown[3][key[3]] > 0,
                places[key],
            ),
        )
        chosen.append(strata[key][taken[key]])
        taken[key] += 1
        for count, value in zip(shown, key, strict=True):
            count[value] += 1
    return chosen


def _matched(
    canary: Sequence[NodeTraits], order: Sequence[NodeTraits], seed: int, controls: int, notes: tuple[str, ...]
) -> Cohorts:
    free = {one.node: one for one in order}
    for one in canary:
        free.pop(one.node, None)
    found: dict[str, list[str]] = {one.node: [] for one in canary}
    widened: defaultdict[_Key, set[str]] = defaultdict(set)
    for shared, given_up in _WIDENINGS:
        shelf: defaultdict[_Key, list[str]] = defaultdict(list)
        for name, one in free.items():
            shelf[tuple(_key(one)[i] for i in shared)].append(name)
        for one in [one for _ in range(controls) for one in canary]:
            place = shelf[tuple(_key(one)[i] for i in shared)]
            if len(found[one.node]) < controls and place:
                name = place.pop(0)
                found[one.node].append(name)
                del free[name]
                if given_up:
                    widened[_key(one)].add(given_up)
    return _cohorts(canary, order, seed, found, widened, notes)


def _cohorts(
    canary: Sequence[NodeTraits],
    order: Sequence[NodeTraits],
    seed: int,
    found: dict[str, list[str]],
    widened: dict[_Key, set[str]],
    notes: tuple[str, ...],
) -> Cohorts:
    members: defaultdict[_Key, list[str]] = defaultdict(list)
    for one in canary:
        members[_key(one)].append(one.node)
    strata = tuple(
        Stratum(
            model=key[0],
            rack=key[1],
            firmware=key[2],
            age=key[3],
            canary=tuple(names),
            control=tuple(name for one in names for name in found[one]),
            widened=tuple(sorted(widened.get(key, ()))),
        )
        for key, names in sorted(members.items())
    )
    control = tuple(name for stratum in strata for name in stratum.control)
    chosen = {*control, *(one.node for one in canary)}
    return Cohorts(
        canary=tuple(one.node for one in canary),
        control=control,
        strata=strata,
        traits=tuple(sorted((one for one in order if one.node in chosen), key=lambda one: one.node)),
        seed=seed,
        notes=(*notes, *_warnings(strata, found)),
    )


def _warnings(strata: Sequence[Stratum], found: dict[str, list[str]]) -> list[str]:
    notes = []
    alone = [name for name, controls in found.items() if not controls]
    if alone:
        notes.append(f"no control node is left for {', '.join(sorted(alone))}")
    for stratum in strata:
        if stratum.widened:
            where = (
                f"{stratum.model} in rack {stratum.rack or '(unknown)'} with firmware {stratum.firmware or '(unknown)'}"
            )
            notes.append(f"controls of {where}, age {stratum.age}, differ in {'; '.join(stratum.widened)}")
    return notes
