"""What a node's package manager tells of the driver, whichever it is: the shapes, and which fault a job ended with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """`whole` is False where its installation was cut off (unpacked, half-configured, triggers awaited …)."""

    name: str
    version: str
    architecture: str = ""
    hold: bool = False
    whole: bool = True


@dataclass(frozen=True, slots=True)
class OfferedPackage:
    """A version that a repository offers. `sources` are its repositories; without any it is only installed."""

    name: str
    version: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PackageRecord:
    """What the repository's index says of one package file."""

    name: str
    version: str
    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """What an install would do: name → version that comes, names that go. `refusal` is why it would not be done."""

    installs: dict[str, str] = field(default_factory=dict)
    removes: tuple[str, ...] = ()
    refusal: str = ""
    unauthenticated: bool = False


class JobFault(StrEnum):
    """Why a package manager's job did not do its work; each has another answer."""

    LOCKED = "locked"  # another one holds the lock: wait, and name it
    INTERRUPTED = "interrupted"  # an earlier run was cut off: finish that first
    UNSIGNED = "unsigned"  # the repository or the package has no good signature
    DIGEST = "digest"  # a file or an index is not what its digest says
    NOT_OFFERED = "not_offered"  # no repository has this version
    NO_SPACE = "no_space"
    NETWORK = "network"  # may pass
    MODULE_NOT_BUILT = "module_not_built"  # DKMS failed, or headers are missing
    CONFLICT = "conflict"  # dependencies cannot be met
    OTHER = "other"


_FAULTS: tuple[tuple[JobFault, re.Pattern[str]], ...] = (
    (
        JobFault.DIGEST,
        re.compile(
            r"hash sum mismatch|File has unexpected size|checksum (?:doesn't match|error)|digest.{0,40}(?:mismatch|BAD)"
            r"|wrong digest|sha256.{0,20}mismatch|integrity check failed",
            re.I,
        ),
    ),
    (
        JobFault.UNSIGNED,
        re.compile(
            r"is not signed|no longer signed|NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|KEYEXPIRED|GPG error|GPG check FAILED"
            r"|unauthenticated packages|cannot be authenticated|not be authenticated|is not trusted|OpenPGP signature"
            r"|public key .{0,80}not (?:installed|available)|signature verification (?:failed|error)"
            r"|signatures? (?:were|was) invalid",
            re.I,
        ),
    ),
    (
        JobFault.LOCKED,
        re.compile(
            r"/var/lib/(?:dpkg|apt|rpm)/\S*lock\S*|/var/cache/apt/\S*lock|frontend lock (?:is|was) locked"
            r"|waiting for process with pid|can't create transaction lock|database lock",
            re.I,
        ),
    ),
    (JobFault.INTERRUPTED, re.compile(r"dpkg was interrupted|dpkg --configure -a|complete-transaction", re.I)),
    (
        JobFault.NO_SPACE,
        re.compile(
            r"no space left on device|not enough free space|don't have enough free space|at least \S+ more space", re.I
        ),
    ),
    (
        JobFault.MODULE_NOT_BUILT,
        re.compile(
            r"bad return status for module build|kernel headers? .{0,80}(?:cannot|could not|not) be? ?found"
            r"|unable to (?:build|load) the kernel module|unable to find the kernel source"
            r"|dkms.{0,80}(?:failed|error)|ERROR: An error occurred while performing the step: \"(?:Building|Checking)",
            re.I,
        ),
    ),
    (  # a repository that did not answer, passed over by dnf: what it alone offers is then not found
        JobFault.NETWORK,
        re.compile(
            r"failed to download metadata for repo[\s\S]*(?:unable to find a match|no match for argument)", re.I
        ),
    ),
    (
        JobFault.NOT_OFFERED,
        re.compile(
            r"unable to locate package|version '[^']*' for '[^']*' was not found|no match for argument"
            r"|has no installation candidate|unable to find a match|no package \S+ available|couldn't find any package",
            re.I,
        ),
    ),
    (
        JobFault.NETWORK,
        re.compile(
            r"temporary failure resolving|could not (?:resolve|connect)|connection (?:failed|timed out|refused|reset)"
            r"|failed to fetch|curl error|all mirrors were tried|cannot initiate the connection|timeout was reached"
            r"|network is unreachable|50[0234]\s+(?:Bad Gateway|Service|Gateway|Internal)|status code: [45]\d\d"
            r"|failed to download metadata",
            re.I,
        ),
    ),
    (
        JobFault.CONFLICT,
        re.compile(r"unmet dependencies|held broken packages|pkgProblemResolver|conflicting requests|Depends: ", re.I),
    ),
)
_HOLDER = (
    re.compile(r"(?:process|pid|Prozess|processus|proceso)\s+(\d+)(?:\s+\(([^)\n]{1,64})\))?", re.I),
    re.compile(r"(\d{2,})\s+\(([^)\n]{1,64})\)"),
)


def job_fault(text: str) -> JobFault:
    """Which fault the output of a failed job shows; OTHER for what is not known."""
    return next((fault for fault, pattern in _FAULTS if pattern.search(text)), JobFault.OTHER)


def fault_line(text: str) -> str:
    """The line that shows the fault; the last words where no fault is known."""
    fault = job_fault(text)
    patterns = [pattern for one, pattern in _FAULTS if one is fault]
    line = next((line for line in text.splitlines() if any(pattern.search(line) for pattern in patterns)), "")
    return line.strip()[:300] or last_words(text)


def lock_holder(text: str) -> str:
    """Who holds the package manager's lock, as "process 4121 (unattended-upgr)"; "" where it is not said."""
    for line in text.splitlines():
        if not _FAULTS[2][1].search(line):
            continue
        for pattern in _HOLDER:
            found = pattern.search(line)
            if found is not None:
                return f"process {found[1]}" + (f" ({found[2]})" if found[2] else "")
    return ""


def last_words(text: str, count: int = 3) -> str:
    """The last lines that say something: errors where there are some, else what came last."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?:E|Err|Error|dpkg|rpm|ERROR|FATAL|modprobe)\b.{0,3}:", line)]
    return "; ".join(line[:200] for line in (errors or lines)[-count:])
