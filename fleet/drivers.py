"""Versions of NVIDIA drivers and of CUDA toolkits, as far as a text tells them.

"535" names a branch, "535.54.03" a release; "580.178" may be a release or the short form of one. So an order
between two of them is unknown where the shorter one is the beginning of the longer one.
Numbers are compared field by field: 535.104.05 is newer than 535.86.10, and 580.65.6 is 580.65.06.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DRIVER = re.compile(
    r"(?:(?<![0-9A-Za-z.])|(?<=^[rRvV])|(?<=[^0-9A-Za-z.][rRvV]))"
    r"([3-9][0-9]{2})(?:\.([0-9]{1,3})(?:\.([0-9]{1,3}))?)?(?![0-9])(?!\.[0-9])"
)
_CUDA = re.compile(
    r"(?:(?<![0-9A-Za-z.])|(?<=^[vV])|(?<=[^0-9A-Za-z.][vV])|(?<=cuda)|(?<=Cuda)|(?<=CUDA))"
    r"([1-9][0-9]?)(?:[.-]([0-9]{1,2})(?:\.([0-9]{1,3}))?)?(?![0-9A-Za-z])(?!\.[0-9])"
)
_LONGEST = 200  # characters that a version may stand in


@dataclass(frozen=True, slots=True)
class DriverVersion:
    """`parts` has one to three numbers; `text` writes them as they were read: "R535", "535.54.03"."""

    parts: tuple[int, ...]
    text: str

    @property
    def branch(self) -> int:
        """535 of 535.54.03: the driver branch R535."""
        return self.parts[0]

    def at_least(self, minimum: DriverVersion) -> bool | None:
        """Is this release not older than `minimum`? None where a branch or short form spans it."""
        return at_least(self.parts, minimum.parts)


@dataclass(frozen=True, slots=True)
class CudaVersion:
    """`parts` is the major version, and where known the minor version and the update or build; `text` writes them."""

    parts: tuple[int, ...]
    text: str

    @property
    def major(self) -> int:
        return self.parts[0]

    @property
    def compat_package(self) -> str:
        """The forward compatibility package of this toolkit, "cuda-compat-12-8"."""
        return f"cuda-compat-{self.major}-{self.parts[1] if len(self.parts) > 1 else '<minor>'}"


def parse_driver(text: str) -> DriverVersion | None:
    """The driver in "535", "R535", "535.54.03", "590.48.01-1ubuntu1" or "nvidia-driver-535-server".

    None where there is none, where two branches are named, or where the number has another shape (31.0.15.3758).
    """
    found = list(_DRIVER.finditer(text[:_LONGEST]))
    if len({match[1] for match in found}) != 1:
        return None
    match = max(found, key=lambda match: len(match[0]))
    parts = _numbers(match)
    return DriverVersion(parts, match[0] if len(parts) > 1 else f"R{parts[0]}")


def parse_cuda(text: str) -> CudaVersion | None:
    """The toolkit in "12.2", "12.2.140", "13", "V12.2.140", "CUDA 12.2", "cuda-toolkit-12-2"; else None."""
    found = _CUDA.search(text[:_LONGEST])
    if found is None:
        return None
    parts = _numbers(found)
    return CudaVersion(parts, ".".join(str(part) for part in parts))


def _numbers(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(group) for group in match.groups() if group is not None)


def at_least(parts: tuple[int, ...], minimum: tuple[int, ...]) -> bool | None:
    """Is `parts` equal to or after `minimum`, or inside it? None where `parts` is only the beginning of it."""
    if parts[: len(minimum)] == minimum:
        return True
    if minimum[: len(parts)] == parts:
        return None if any(minimum[len(parts) :]) else True
    return parts > minimum


def at_most(parts: tuple[int, ...], last: tuple[int, ...]) -> bool | None:
    """Is `parts` before `last`, or inside it? None where `parts` is only the beginning of it."""
    if parts[: len(last)] == last:
        return True
    return None if last[: len(parts)] == parts else parts < last


def is_newer(driver: str, than: str) -> bool | None:
    """Is `driver` a later release than `than`? None where either is no version, or one is the other's branch."""
    left, right = parse_driver(driver), parse_driver(than)
    if left is None or right is None:
        return None
    shared = min(len(left.parts), len(right.parts))
    if left.parts[:shared] != right.parts[:shared]:
        return left.parts > right.parts
    return False if len(left.parts) == len(right.parts) else None


def fabric_manager_matches(driver: str, fabric_manager: str) -> bool | None:
    """Are both exactly the same release, whatever their packages are called? None where one does not tell.

    Two releases of one branch do not fit: CUDA ends with error 802 on NVSwitch systems
    (github.com/NVIDIA/gpu-operator/issues/544).
    """
    left, right = parse_driver(driver), parse_driver(fabric_manager)
    if left is None or right is None:
        return None
    shared = min(len(left.parts), len(right.parts))
    if left.parts[:shared] != right.parts[:shared]:
        return False
    return True if len(left.parts) == len(right.parts) > 1 else None


def is_of(driver: str | None, wanted: str) -> bool:
    """Whether `driver` is the version `wanted`, or of the branch `wanted` ("570", "R570"). Unknown is of none."""
    branch = wanted.strip().removeprefix("R").removesuffix(".")
    return driver is not None and (driver == branch or driver.startswith(f"{branch}."))
