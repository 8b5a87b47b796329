"""What dpkg and apt print, read by shape and not by words, as a login may speak any language."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleet.driver_packages import InstalledPackage, OfferedPackage, PackageRecord, Simulation, job_fault, last_words
from fleet.driver_packages import JobFault as Fault

DPKG_FORMAT = r"${Package}\t${Version}\t${db:Status-Abbrev}\t${Architecture}\n"
_TABLE_VERSION = re.compile(r"^ (?:\*\*\*|   ) (\S+) +-?[0-9]+")
_TABLE_SOURCE = re.compile(r"^ {6,}-?[0-9]+ (\S.*)$")
_INST = re.compile(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+)")
_REMV = re.compile(r"^(?:Remv|Purg) (\S+)")
_STATUS_FILE = "/var/lib/dpkg/status"
_FIELD = re.compile(r"^([A-Za-z][A-Za-z0-9-]*):[ \t]*(.*)$")


def read_installed(text: str) -> tuple[InstalledPackage, ...]:
    """`dpkg-query -W` in DPKG_FORMAT. Packages that only left their settings behind are not installed.

    The abbreviated status has the wanted state (i, h, r, p, u) and the state (i, U, F, H, W, t, n, c), and R where it
    must be reinstalled. Source: dpkg-query(1), db:Status-Abbrev.
    """
    found = []
    for line in text.replace("\r", "").splitlines():
        fields = line.split("\t")
        if len(fields) < 3 or not fields[0] or len(fields[2]) < 2:
            continue
        wanted, state, damaged = fields[2][0], fields[2][1], fields[2][2:].strip()
        if state in "nc" or not fields[1]:
            continue
        whole = state == "i" and not damaged
        architecture = fields[3].strip() if len(fields) > 3 else ""
        found.append(InstalledPackage(fields[0], fields[1], architecture, wanted == "h", whole))
    return tuple(found)


def read_audit(text: str) -> tuple[str, ...]:
    """The packages that `dpkg --audit` names; the text's first line where it has words and names none."""
    lines = text.replace("\r", "").splitlines()
    named = [line.split()[0] for line in lines if re.match(r"^ [a-z0-9]", line)]
    said = [line.strip() for line in lines if line.strip()]
    return tuple(dict.fromkeys(named)) or tuple(said[:1])


def read_names(text: str) -> tuple[str, ...]:
    """One package name a line (`apt-mark showhold`)."""
    return tuple(line.strip() for line in text.splitlines() if re.fullmatch(r"\s*[A-Za-z0-9][\w+.:-]*\s*", line))


def read_policy(text: str) -> tuple[OfferedPackage, ...]:
    """`apt-cache policy PKG…`: every version in the tables, the newest first, with its repositories."""
    found: list[OfferedPackage] = []
    name = version = ""
    sources: list[str] = []
    for line in (*text.replace("\r", "").splitlines(), "end:"):
        table, source = _TABLE_VERSION.match(line), _TABLE_SOURCE.match(line)
        header = line[:1] not in (" ", "") and line.endswith(":")
        if (table or header) and name and version:
            found.append(OfferedPackage(name, version, tuple(sources)))
            version = ""
        if header:
            name = line[:-1].strip()
        elif table:
            version, sources = table[1], []
        elif source and version and not source[1].startswith("/") and _STATUS_FILE not in source[1]:
            sources.append(source[1])
    return tuple(found)


def read_records(text: str) -> tuple[PackageRecord, ...]:
    """`apt-cache show PKG=VERSION…`."""
    return tuple(_records(text.replace("\r", "")))


def _records(text: str) -> Iterator[PackageRecord]:
    for block in re.split(r"\n[ \t]*\n", text):
        fields = {m[1].lower(): m[2].strip() for line in block.splitlines() if (m := _FIELD.match(line))}
        if "package" in fields and "version" in fields:
            digest, size = fields.get("sha256", "").lower(), fields.get("size", "")
            yield PackageRecord(
                fields["package"],
                fields["version"],
                digest if re.fullmatch(r"[0-9a-f]{64}", digest) else None,
                int(size) if re.fullmatch(r"[0-9]{1,15}", size) else None,
            )


def read_simulation(code: int, out: str, err: str) -> Simulation:
    """`apt-get -s install`: its Inst and Remv lines, or why it refuses."""
    installs = {match[1].partition(":")[0]: match[2] for line in out.splitlines() if (match := _INST.match(line))}
    removes = tuple(match[1].partition(":")[0] for line in out.splitlines() if (match := _REMV.match(line)))
    text = f"{out}\n{err}"
    refusal = (last_words(err) or last_words(out) or f"apt-get ended with {code}") if code else ""
    return Simulation(installs, removes, refusal, job_fault(text) is Fault.UNSIGNED)
