"""What a simulated Ubuntu host answers about its packages: dpkg-query, dpkg, apt-mark, apt-cache, apt-get -s."""

from __future__ import annotations

import hashlib
import re

from simulator.host.apt_plan import AptError, plan_install, simulation
from simulator.host.packages import HALF_CONFIGURED, UNPACKED, Installed
from simulator.host.releases import DEBS, Offer, find, sort_key
from simulator.host.state import HostState
from simulator.slurm.reply import Reply, failure

REPOSITORY = "http://mirror.example.org/ubuntu jammy-updates/restricted amd64 Packages"
INTERRUPTED = "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem. \n"
_FIELD = re.compile(r"\$\{([^};]+)(?:;[^}]*)?\}")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}
_UNPACKED_TEXT = (
    "The following packages have been unpacked but not yet configured.\n"
    "They must be configured using dpkg --configure or the configure\n"
    "menu option in dselect for them to work:\n"
)
_HALF_TEXT = (
    "The following packages are only half configured, probably due to problems\n"
    "configuring them the first time.  The configuration should be retried using\n"
    "dpkg --configure <package> or the configure menu option in dselect:\n"
)


def split_options(words: list[str]) -> tuple[frozenset[str], list[str]]:
    """The options of an apt-get command line (`-o NAME=VALUE` as NAME=VALUE), and its other words."""
    options: set[str] = set()
    rest: list[str] = []
    place = iter(words)
    for word in place:
        if word in ("-o", "--option"):
            options.add(next(place, ""))
        elif word.startswith("-") and len(word) > 1:
            options.add(word)
        else:
            rest.append(word)
    return frozenset(options), rest


class AptQueries:
    """Commands that only ask, and `apt-mark`."""

    def __init__(self, host: HostState) -> None:
        self._host = host

    def run(self, words: list[str]) -> Reply | None:
        """None for what is no such command."""
        match words:
            case ["dpkg-query", ("-W" | "--show"), *rest]:
                return self._query(rest)
            case ["dpkg", ("--audit" | "-C")]:
                return self._audit()
            case ["dpkg", "--print-architecture"]:
                return Reply(0, "amd64\n")
            case ["apt-mark", "showhold"]:
                held = [name for name, package in self._host.packages.matching([]).items() if package.held]
                return Reply(0, "".join(f"{name}\n" for name in held))
            case ["apt-mark", ("hold" | "unhold") as verb, *names]:
                return self._mark(verb, names)
            case ["apt-cache", "policy", *names]:
                return Reply(0, "".join(map(self._policy, names)))
            case ["apt-cache", "show", *names]:
                return self._show(names)
            case ["apt-get", *rest]:
                return self._simulate(rest)
            case _:
                return None

    def _query(self, words: list[str]) -> Reply:
        wanted, patterns = "${binary:Package}\\t${Version}\\n", list(words)
        if words[:1] in (["-f"], ["--showformat"]):
            wanted, patterns = words[1], words[2:]
        elif words and words[0].startswith(("-f=", "--showformat=")):
            wanted, patterns = words[0].partition("=")[2], words[1:]
        found = self._host.packages.matching(patterns)
        missed = [pattern for pattern in patterns if not self._host.packages.matching([pattern])]
        errors = "".join(f"dpkg-query: no packages found matching {pattern}\n" for pattern in missed)
        text = "".join(_fill(wanted, name, package) for name, package in found.items())
        return Reply(1 if missed else 0, text, errors)

    def _audit(self) -> Reply:
        unfinished = self._host.packages.unfinished()
        text = ""
        for state, title in ((UNPACKED, _UNPACKED_TEXT), (HALF_CONFIGURED, _HALF_TEXT)):
            names = [name for name, package in unfinished.items() if package.state == state]
            if names:
                text += title + "".join(f" {name:<20} {_description(name)}\n" for name in names) + "\n"
        return Reply(0, text)

    def _mark(self, verb: str, names: list[str]) -> Reply:
        lines, unknown = [], []
        for name in names:
            if not self._host.packages.hold(name, verb == "hold"):
                unknown.append(f"E: Unable to locate package {name}\n" if name not in DEBS else f"E: {name}\n")
            else:
                lines.append(f"{name} set on hold.\n" if verb == "hold" else f"Canceled hold on {name}.\n")
        return Reply(100 if unknown else 0, "".join(lines), "".join(unknown))

    def _policy(self, name: str) -> str:
        there, offers = self._host.packages.get(name), DEBS.get(name, ())
        if there is None and not offers:
            return ""
        installed = None if there is None else there.version
        versions = {offer.version for offer in offers} | ({installed} if installed else set())
        newest = sorted(versions, key=sort_key, reverse=True)
        lines = [f"{name}:", f"  Installed: {installed or '(none)'}", f"  Candidate: {newest[0]}", "  Version table:"]
        for version in newest:
            offered = find(DEBS, name, version) is not None
            lines.append(f" {'***' if version == installed else '   '} {version} {500 if offered else 100}")
            lines += [f"        500 {REPOSITORY}"] if offered else []
            lines += ["        100 /var/lib/dpkg/status"] if version == installed else []
        return "".join(f"{line}\n" for line in lines)

    def _show(self, names: list[str]) -> Reply:
        found = []
        for word in names:
            name, _, version = word.partition("=")
            offer = find(DEBS, name, version or None)
            if offer is None:
                what = f"Version '{version}' for '{name}' was not found" if name in DEBS else "No packages found"
                return failure(f"E: {what}\n", 100)
            found.append(self._stanza(offer))
        return Reply(0, "\n".join(found))

    def _stanza(self, offer: Offer) -> str:
        digest = offer.sha256
        if self._host.machine.name in self._host.faults.wrong_digest:
            digest = hashlib.sha256(f"another {offer.name}".encode()).hexdigest()
        needs = ", ".join(f"{name} (= {version})" for name, version in offer.needs)
        fields = {
            "Package": offer.name,
            "Architecture": "amd64",
            "Version": offer.version,
            "Priority": "optional",
            "Section": "restricted/libs",
            "Origin": "Ubuntu",
            "Installed-Size": str(offer.size // 300),
            "Depends": needs,
            "Filename": f"pool/restricted/n/nvidia/{offer.name}_{offer.version}_amd64.deb",
            "Size": str(offer.size),
            "SHA256": digest,
            "Description-en": _description(offer.name),
        }
        return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)

    def _simulate(self, words: list[str]) -> Reply | None:
        """`apt-get -s install …`; None where it is not only a simulation."""
        options, rest = split_options(words)
        if not options & {"-s", "--simulate", "--dry-run", "--just-print"} or rest[:1] != ["install"]:
            return None
        if self._host.packages.interrupted:
            return failure(INTERRUPTED, 100)
        try:
            return simulation(self._host.packages, plan_install(self._host.packages, rest[1:], options))
        except AptError as error:
            return failure(str(error), 100)


def _fill(wanted: str, name: str, package: Installed) -> str:
    known = {
        "Package": name,
        "binary:Package": name,
        "Version": package.version,
        "Architecture": "amd64",
        "Status": package.status,
        "db:Status-Abbrev": package.abbreviation,
        "db:Status-Want": package.status.split()[0],
        "db:Status-Status": package.status.split()[-1],
    }
    text = _FIELD.sub(lambda found: known.get(found[1], ""), wanted)
    return re.sub(r"\\[tn\\]", lambda found: _ESCAPES[found[0]], text)


def _description(name: str) -> str:
    return f"NVIDIA {name.removeprefix('nvidia-').removeprefix('libnvidia-').partition('-')[0]}"
