"""The order of version strings, family by family; what has no known order is never guessed.

Every string is taken apart into a name (the product), fields, a pre-release and marks that do not order
(key set, build id, date). Strings of different names or families are INCOMPARABLE.
"""

from __future__ import annotations

from enum import StrEnum

from fleet.version_text import Version, parse


class Relation(StrEnum):
    """Of the first string to the second."""

    OLDER = "older"
    EQUAL = "equal"
    NEWER = "newer"
    INCOMPARABLE = "incomparable"  # other product or family, or an order that nobody states
    EQUALITY_ONLY = "equality_only"  # they differ, and such ids have no order (build ids)
    MISSING = "missing"  # one of them is a placeholder: nothing is known
    OTHER_KEYS = "other_keys"  # same version, other signing key set: must match the board, never an upgrade
    OTHER_BUILD = "other_build"  # same version, other build id or date: neither newer nor older


_RANKS = {"dev": 0, "snapshot": 0, "alpha": 1, "beta": 2, "pre": 3, "preview": 3, "rc": 4}

# NVIDIA/Mellanox NICs, DPUs and switches put the device generation first: 20 ConnectX-6, 28 ConnectX-7 …
_NIC_DEVICES = frozenset({*map(str, range(12, 34, 2)), "35", "36", "40"})


def compare(a: str | None, b: str | None) -> Relation:
    """Where `a` stands to `b`. Antisymmetric; never raises."""
    left, right = parse(a), parse(b)
    if left is None or right is None:
        return Relation.MISSING
    if left.name != right.name or left.family != right.family:
        return Relation.EQUAL if left.text == right.text else Relation.INCOMPARABLE
    if left.unordered:
        return Relation.EQUAL if left.text == right.text else Relation.EQUALITY_ONLY
    relation = _compare_fields(left, right)
    if relation is not Relation.EQUAL:
        return relation
    relation = _compare_prerelease(left, right)
    return _compare_marks(left, right) if relation is Relation.EQUAL else relation


def is_same(a: str | None, b: str | None) -> bool | None:
    """Do both name the same release, as far as both tell? None where that cannot be known.

    A key set or build id that only one of them states does not make them differ; two different ones do. A driver's
    short form ("535.183", as NVML writes it) may be any release that begins with it.
    """
    if _short_form(parse(a), parse(b)):
        return None
    relation = compare(a, b)
    if relation is Relation.EQUAL:
        return True
    if relation in (Relation.OTHER_KEYS, Relation.OTHER_BUILD):
        left, right = parse(a), parse(b)
        assert left is not None
        assert right is not None
        return not any(x and y and x != y for x, y in zip(left.marks, right.marks, strict=True))
    if relation in (Relation.OLDER, Relation.NEWER, Relation.EQUALITY_ONLY):
        return False
    return None


def _short_form(left: Version | None, right: Version | None) -> bool:
    """Is one of them a driver's version of which the other one tells more?"""
    if left is None or right is None or left.family != "driver" or right.family != "driver":
        return False
    shared = min(len(left.fields), len(right.fields))
    return len(left.fields) != len(right.fields) and left.fields[:shared] == right.fields[:shared]


def is_upgrade(current: str | None, target: str | None) -> bool | None:
    """Is `target` newer than `current`? None where there is no order between them."""
    relation = compare(current, target)
    if relation in (Relation.MISSING, Relation.INCOMPARABLE, Relation.EQUALITY_ONLY):
        return None
    return relation is Relation.OLDER


def _compare_fields(left: Version, right: Version) -> Relation:
    ours, theirs = _align(left.fields, right.fields)
    if _other_device(left, right):
        return Relation.INCOMPARABLE
    wide = max(len(ours), len(theirs))
    filled = zip(ours + ("0",) * (wide - len(ours)), theirs + ("0",) * (wide - len(theirs)), strict=True)
    fixed_hex = len(ours) >= 3 and all(len(field) == 2 for field in ours + theirs)
    for x, y in filled:
        relation = _compare_field(x, y, fixed_hex)
        if relation is not Relation.EQUAL:
            far_apart = abs(len(ours) - len(theirs)) > 1
            return Relation.INCOMPARABLE if far_apart else relation
    return Relation.EQUAL


def _align(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Dell writes the last field of NVIDIA NIC firmware in two: 28.37.10.14 is 28.37.1014."""

    def joined(long: tuple[str, ...], short: tuple[str, ...]) -> tuple[str, ...]:
        fits = len(long) == 4 and len(short) == 3 and len(short[2]) == 4 and len(long[2] + long[3]) == 4
        return (*long[:2], long[2] + long[3]) if fits else long

    return joined(ours, theirs), joined(theirs, ours)


def _other_device(left: Version, right: Version) -> bool:
    """Does the first field say another device, board position or chip, rather than another release?"""
    ours, theirs = left.fields, right.fields
    if left.family == "vbios":  # 96.00 GH100, 97.00 GB100, 95.02 AD102: the chip
        return ours[:2] != theirs[:2]
    if ours[0] == theirs[0]:
        return False
    nic = all(len(f) == 4 or (len(f) == 3 and len(f[2]) == 4) for f in (ours, theirs))
    if nic and ours[0] in _NIC_DEVICES and theirs[0] in _NIC_DEVICES:
        return True
    # the PCIe switches of HGX boards count their position first: 0.0.7 and 1.0.7 are neighbours
    slot = all(len(f) == 3 and len(f[0]) == 1 and f[1] == "0" and not left.prerelease for f in (ours, theirs))
    return slot and not left.name


def _compare_field(x: str, y: str, fixed_hex: bool) -> Relation:
    """Fields are numbers, or numbers with letters: hexadecimal (0.1C) or a letter after (3.3a).

    Where the two readings disagree, only what the writing itself shows decides.
    """
    if x == y or x.lstrip("0").lower() == y.lstrip("0").lower():
        return Relation.EQUAL
    as_hex, as_letter = _by_hex(x, y), _by_letter(x, y)
    if fixed_hex and as_hex is not None:
        return as_hex
    if as_hex is as_letter or as_hex is None:
        return as_letter or Relation.INCOMPARABLE
    if as_letter is None:
        return as_hex if len(x) == len(y) > 1 else Relation.INCOMPARABLE
    upper = (x + y) == (x + y).upper()
    if len(x) == len(y):
        return as_hex if upper else Relation.INCOMPARABLE
    return Relation.INCOMPARABLE if upper else as_letter


def _by_hex(x: str, y: str) -> Relation | None:
    try:
        return _order(int(x, 16), int(y, 16))
    except ValueError:
        return None


def _by_letter(x: str, y: str) -> Relation | None:
    ours, theirs = _number_and_letters(x), _number_and_letters(y)
    if ours is None or theirs is None or (ours[0] is None) is not (theirs[0] is None):
        return None
    if ours[0] is None or theirs[0] is None:
        return _order(ours[1], theirs[1])
    return _order((ours[0], *ours[1:]), (theirs[0], *theirs[1:]))


def _number_and_letters(field: str) -> tuple[int | None, str, int] | None:
    digits = field[: len(field) - len(field.lstrip("0123456789"))]
    rest = field[len(digits) :].lower()
    letters = rest.rstrip("0123456789")
    if not letters.isalpha() and letters:
        return None
    return (int(digits) if digits else None, letters, int(rest[len(letters) :] or 0))


def _compare_prerelease(left: Version, right: Version) -> Relation:
    def rank(version: Version) -> tuple[int, int]:
        word, number = version.prerelease or ("", 0)
        return (_RANKS.get(word, 5), number)

    return _order(rank(left), rank(right))


def _compare_marks(left: Version, right: Version) -> Relation:
    if left.keys != right.keys:
        return Relation.OTHER_KEYS
    dates_differ = left.date and right.date and left.date != right.date
    return Relation.OTHER_BUILD if left.build != right.build or dates_differ else Relation.EQUAL


def _order(x: object, y: object) -> Relation:
    if x == y:
        return Relation.EQUAL
    older = x < y  # type: ignore[operator]
    return Relation.OLDER if older else Relation.NEWER
