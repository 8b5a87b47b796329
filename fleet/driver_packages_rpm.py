"""What rpm and dnf print."""

from __future__ import annotations

import re

from fleet.driver_packages import InstalledPackage, OfferedPackage

RPM_FORMAT = r"%{NAME}\t%{EVR}\t%{ARCH}\n"
_LISTED = re.compile(r"^(\S+)\.(x86_64|aarch64|noarch|i686|sbsa|src)$")
_ENVRA = re.compile(r"^(?:(\d+):)?(.+)-(?:(\d+):)?([^-]+-[^-]+?)(?:\.(?:x86_64|aarch64|noarch|i686|\*))?$")


def read_rpms(text: str) -> tuple[InstalledPackage, ...]:
    """`rpm -qa --qf RPM_FORMAT`. Lines of another shape ("package … is not installed") tell of none."""
    found = []
    for line in text.replace("\r", "").splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and all(fields):
            found.append(InstalledPackage(fields[0], fields[1].removeprefix("(none):"), fields[2].strip()))
    return tuple(found)


def read_available(text: str) -> tuple[OfferedPackage, ...]:
    """`dnf list --available`: rows of name.arch, version and repository; a long name may have a line of its own."""
    found: list[OfferedPackage] = []
    row: list[str] = []
    for line in text.replace("\r", "").splitlines():
        words = line.split()
        if words and _LISTED.match(words[0]):
            row = []
        elif not row:
            continue
        row.extend(words)
        if len(row) >= 3:
            name = _LISTED.match(row[0])
            if name is not None and re.match(r"^(?:\d+:)?\d", row[1]):
                found.append(OfferedPackage(name[1], row[1], (row[2],)))
            row = []
    return tuple(found)


def read_version_locks(text: str) -> tuple[str, ...]:
    """The package names of `dnf versionlock list`, in dnf 4's NEVRA lines and dnf 5's "Package name:" blocks."""
    names = []
    for line in text.replace("\r", "").splitlines():
        plain = line.strip()
        if plain.lower().startswith("package name:"):
            names.append(plain.partition(":")[2].strip())
        elif plain and " " not in plain and not plain.startswith(("#", "!")):
            match = _ENVRA.match(plain)
            names.append(match[2] if match else plain)
    return tuple(dict.fromkeys(name for name in names if name))
