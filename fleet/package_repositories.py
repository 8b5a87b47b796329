"""What a refresh of package indexes complains of, and which repository each complaint is about.

apt names a repository as its sources list does (address, distribution) or by the address of a file below it; dnf 4
names its id. Sources: apt-secure(8), apt-transport-http(1) and outputs of apt 1.6 to 3.0; dnf's and dnf5's issues on
`skip_if_unavailable`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fleet.driver_packages import JobFault, OfferedPackage, fault_line, job_fault

_COMPLAINT = re.compile(
    r"(?:E:|Err:|W: (?:GPG|Failed|An error|The repository)|Errors? during|Error:|Ignoring repositories:|>>> )"
)
_AFTERMATH = re.compile(r"Some index files failed to download|Ignoring repositories:")
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*:/[^\s'\"<>]*", re.I)
_PART = re.compile(r"\s+([^\s/]+)(?:/\S*)?\s+(?:InRelease|Release|(?:\S+ )?(?:Packages|Sources|Translation|Contents))")
_DNF_ID = re.compile(r"\brepo(?:sitory)?:? '([^'\s]+)'|\bfor repo: (\S+)")
_SIGNATURE = re.compile(r"NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|KEYEXPIRED|GPG|OpenPGP|signature", re.I)
_LISTS = "/var/lib/apt/lists/"
_LONGEST = 600


@dataclass(frozen=True, slots=True)
class RepositoryFault:
    """`address` is a repository's, or that of a file of it; `suite` its distribution ("noble"); `name` dnf's id of it.

    "" is not told. Where neither address nor name is told, any repository may be meant.
    """

    fault: JobFault
    line: str
    address: str = ""
    suite: str = ""
    name: str = ""

    @property
    def passes(self) -> bool:
        """Whether it may pass by itself: nobody answered, or not with what was asked for."""
        return self.fault is JobFault.NETWORK

    def concerns(self, sources: Collection[str]) -> bool:
        """Is one of `sources` (of OfferedPackage) the repository that is meant? Without any it may be."""
        if not sources or not (self.name or self.address):
            return True
        if self.name:
            return self.name in {source.strip() for source in sources}
        return any(self._is(source) for source in sources)

    def _is(self, source: str) -> bool:
        found = _ADDRESS.search(source)
        if found is None:
            return False
        rest = source[found.end() :].split()
        base, suite = _plain(found[0]), _suite(rest[0]) if len(rest) > 1 else ""
        if _LISTS in self.address:
            return _is_list_of(self.address.rpartition("/")[2], base, suite)
        ours = _plain(self.address)
        below = f"{ours}/".startswith(f"{base}/") or f"{base}/".startswith(f"{ours}/")
        return below and (self.suite == suite or not self.suite or not suite)


def complaints(text: str) -> tuple[str, ...]:
    """The lines of a refresh that complain, each with the indented lines below it. apt ends with 0 on some of them."""
    found: list[str] = []
    inside = False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").splitlines():
        if line[:1] in (" ", "\t"):
            if inside:
                found[-1] = f"{found[-1]} {line.strip()}"[:_LONGEST]
            continue
        inside = _COMPLAINT.match(line) is not None
        if inside:
            found.append(line.strip()[:_LONGEST])
    return tuple(found)


def refresh_faults(text: str) -> tuple[RepositoryFault, ...]:
    """One fault for each repository that `text` complains of, by its gravest line. Never raises.

    A repository that does not answer is also called unsigned by apt; that is its address's fault and not its key's.
    """
    lines = complaints(text)
    if not lines:
        return (RepositoryFault(job_fault(text), fault_line(text)),) if text.strip() else ()
    found: dict[tuple[str, str, str], RepositoryFault] = {}
    for line in [line for line in lines if not _AFTERMATH.search(line)] or lines:
        fault = _fault(line)
        key = (_plain(fault.address.partition("/dists/")[0]), fault.suite, fault.name)
        known = found.get(key)
        if known is None or _grade(fault) < _grade(known):
            found[key] = fault
    return tuple(found.values())


def sources_of(
    offered: Iterable[OfferedPackage], wanted: Collection[tuple[str, str]], needed: Collection[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """The repositories that offer one of the `wanted` names at its version.

    Empty where one of `needed` is offered by none: its repository may be any, also one that does not answer now.
    """
    found: dict[str, None] = {}
    known: set[tuple[str, str]] = set()
    for one in offered:
        if (one.name, one.version) in wanted and one.sources:
            known.add((one.name, one.version))
            found |= dict.fromkeys(one.sources)
    return tuple(found) if known.issuperset(needed) else ()


def _fault(line: str) -> RepositoryFault:
    named = _DNF_ID.search(line)
    if named is not None:
        return RepositoryFault(job_fault(line), line, name=named[1] or named[2])
    address = _ADDRESS.search(line)
    if address is None:
        return RepositoryFault(job_fault(line), line)
    text = address[0].rstrip(".,:;)]")
    _, dists, below = text.partition("/dists/")
    part = _PART.match(line[address.end() :])
    suite = below.partition("/")[0] if dists else _suite(part[1]) if part is not None else ""
    return RepositoryFault(job_fault(line), line, text, suite)


def _grade(fault: RepositoryFault) -> int:
    """The smallest is the gravest."""
    if fault.fault is JobFault.UNSIGNED:
        return 1 if _SIGNATURE.search(fault.line) else 4
    return {JobFault.DIGEST: 0, JobFault.NO_SPACE: 2, JobFault.NETWORK: 3}.get(fault.fault, 5)


def _suite(word: str) -> str:
    """The distribution of "noble-updates/restricted"; "" for the "./" of a flat repository."""
    return word.partition("/")[0].strip(".")


def _plain(address: str) -> str:
    """Without a login, with one slash after file:, and without one at the end; host names are in small letters."""
    scheme, colon, rest = address.partition(":")
    if not rest.startswith("//") or scheme.lower() == "file":
        return f"{scheme.lower()}{colon}/{rest.strip('/')}" if rest.startswith("/") else address.rstrip("/")
    host, slash, path = rest[2:].partition("/")
    return f"{scheme.lower()}://{host.rpartition('@')[2].lower()}{slash}{path}".rstrip("/")


def _is_list_of(name: str, base: str, suite: str) -> bool:
    """Is `name` a file in apt's lists of the repository? Its name is the address with _ for each slash."""
    place = base.partition(":")[2].strip("/")
    begin = place.replace("_", "%5f").replace("/", "_")
    begin = begin if "://" in base else f"_{begin}"
    return name.startswith(f"{begin}_dists_{suite.replace('_', '%5f')}_" if suite else f"{begin}_")
