"""A simulated RHEL 9 host's packages: rpm's and dnf's questions and changes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simulator.host.apt import split_options
from simulator.host.driver import Driver, is_open
from simulator.host.jobs import Phase, Program, one_phase
from simulator.host.packages import Installed
from simulator.host.releases import RPMS, Offer, release_of, sort_key
from simulator.host.state import DNF, HostState
from simulator.slurm.reply import Reply, failure

_FIELD = re.compile(r"%\{([A-Za-z]+)\}")
_ARCH = "x86_64"
DOWNLOAD_SECONDS, BUILD_SECONDS, LAST_SECONDS = 20.0, 60.0, 10.0


@dataclass(frozen=True, slots=True)
class _Change:
    offers: tuple[Offer, ...]
    verb: str


class Dnf:
    """rpm and dnf; on a host without them, nothing."""

    def __init__(self, host: HostState, driver: Driver) -> None:
        self._host = host
        self._driver = driver
        self._locks: dict[str, str] = {}
        self._busy: int | None = None
        self._former = ""
        self._changing = False

    def run(self, words: list[str]) -> Program | Reply | None:
        """The answer, or the program; None for another command, or on a host that has no dnf."""
        if self._host.manager != DNF:
            return None
        match words:
            case ["rpm", ("-q" | "-qa") as verb, ("--qf" | "--queryformat"), wanted, *patterns]:
                return self._query(verb, wanted, patterns)
            case ["rpm", ("-Va" | "-V"), *_]:
                return Reply(0)
            case ["dnf", *rest]:
                return self._dnf(rest)
            case _:
                return None

    def _query(self, verb: str, wanted: str, patterns: list[str]) -> Reply:
        packages = self._host.packages
        if verb == "-qa":
            return Reply(0, "".join(_fill(wanted, n, p) for n, p in packages.matching(patterns).items()))
        text, missed = "", False
        for name in patterns:
            package = packages.get(name)
            missed = missed or package is None
            text += f"package {name} is not installed\n" if package is None else _fill(wanted, name, package)
        return Reply(int(missed), text)

    def _dnf(self, words: list[str]) -> Program | Reply:
        options, rest = split_options(words)
        match rest:
            case ["list", *names]:
                return self._list(names, options)
            case ["versionlock", "list"]:
                return Reply(0, "".join(f"{lock}\n" for lock in self._locks.values()))
            case ["versionlock", ("add" | "delete") as verb, *names]:
                return self._lock(verb, names)
            case ["makecache", *_]:
                return one_phase(8.0, lambda: Reply(0, "Metadata cache created.\n"))
            case [("install" | "downgrade" | "upgrade") as verb, *names]:
                return self._change(verb, names, options)
            case _:
                return failure(f"No such command: {' '.join(rest)[:40]}.\n")

    def _list(self, names: list[str], options: frozenset[str]) -> Reply:
        offers = [
            offer
            for name in names
            for offer in (RPMS.get(name, ()) if "--showduplicates" in options else RPMS.get(name, ())[:1])
        ]
        if not offers:
            return failure("Error: No matching Packages to list\n")
        rows = [
            f"{f'{offer.name}.{_ARCH}':<44}{offer.version:<32}cuda-rhel9-{_ARCH}\n"
            for offer in sorted(offers, key=lambda offer: (offer.name, sort_key(offer.version)))
        ]
        return Reply(0, "Available Packages\n" + "".join(rows))

    def _lock(self, verb: str, names: list[str]) -> Reply:
        lines = []
        for word in names:
            name = self._named(word)
            package = None if name is None else self._host.packages.get(name)
            if name is None or package is None:
                return failure(f"Package {word} is not installed.\n")
            epoch, _, rest = package.version.rpartition(":")
            text = f"{name}-{epoch or '0'}:{rest}.*"
            if verb == "add":
                self._locks[name] = text
            elif self._locks.pop(name, None) is None:
                return failure(f"Error: No package found for: {word}\n")
            package.held = verb == "add"
            lines.append(f"{'Adding versionlock on' if verb == 'add' else 'Deleting versionlock for'}: {text}")
        return Reply(0, "".join(f"{line}\n" for line in lines))

    def _named(self, word: str) -> str | None:
        """The package of NAME, NAME-VERSION or NAME-EPOCH:VERSION-RELEASE."""
        return next((name for name in sorted(RPMS, key=len, reverse=True) if _begins(word, name)), None)

    def _change(self, verb: str, words: list[str], options: frozenset[str]) -> Program | Reply:
        if self._busy is not None:
            return failure(f"Waiting for process with pid {self._busy} to finish.\n", 200)
        if not options & {"-y", "--assumeyes"}:
            return failure("Is this ok [y/N]: Operation aborted.\n")
        offers, text = [], ""
        for word in words:
            offer = self._offer(word)
            if offer is None or self._locked_out(offer):
                return failure(f"No match for argument: {word}\nError: Unable to find a match: {word}\n")
            there = self._host.packages.get(offer.name)
            order = 0 if there is None else _compare(offer.version, there.version)
            if there is not None and (order == 0 or (order < 0) != (verb == "downgrade")):
                text += f"Package {offer.name}-{there.version}.{_ARCH} is already installed.\n"
            else:
                offers.append(offer)
        if not offers:
            return Reply(0, f"{text}Dependencies resolved.\nNothing to do.\nComplete!\n")
        return self._transaction(_Change(tuple(offers), verb), text)

    def _locked_out(self, offer: Offer) -> bool:
        there = self._host.packages.get(offer.name)
        return offer.name in self._locks and there is not None and there.version != offer.version

    def _offer(self, word: str) -> Offer | None:
        name = self._named(word)
        if name is None:
            return None
        asked = word.removesuffix(f".{_ARCH}")[len(name) :].lstrip("-")
        fits = (
            o
            for o in RPMS[name]
            if not asked or asked in (o.version, o.version.partition(":")[2], release_of(o.version))
        )
        return next(fits, None)

    def _transaction(self, change: _Change, text: str) -> Program:
        self._busy, self._changing = self._host.next_pid(), False
        self._former = self._host.user_space or ""
        builds = any("dkms" in offer.name for offer in change.offers)
        return Program(
            (
                Phase(DOWNLOAD_SECONDS, lambda: self._write(change, text)),
                Phase(BUILD_SECONDS if builds else 0.0, self._build if builds else lambda: Reply(0)),
                Phase(LAST_SECONDS, self._finish),
            ),
            self._lost,
        )

    def _write(self, change: _Change, text: str) -> Reply:
        packages = self._host.packages
        self._changing = True
        title = {"install": "Installing", "upgrade": "Upgrading", "downgrade": "Downgrading"}[change.verb]
        lines = ["Dependencies resolved.", "Running transaction"]
        for offer in change.offers:
            if "dkms" in offer.name:
                self._driver.drop_built()
            packages.unpack(offer.name, offer.version)
            packages.set_state(offer.name, "i")
            lines.append(f"  {title:<12}: {offer.name}-{offer.version}.{_ARCH}")
        self._host.tell_parts()
        return Reply(0, text + "".join(f"{line}\n" for line in lines))

    def _build(self) -> Reply:
        """A scriptlet that fails does not fail dnf: it ends well, and the module is not there."""
        release = self._host.packages.release("kmod-nvidia-latest-dkms") or ""
        built, printed = self._driver.build(release, is_open(self._host.packages))
        self._host.tell_parts()
        warning = "" if built else "warning: %post(kmod-nvidia-latest-dkms) scriptlet failed, exit status 10\n"
        return Reply(0, printed + warning)

    def _finish(self) -> Reply:
        self._busy = None
        self._tell(self._host.on_disk is not None)
        return Reply(0, "Complete!\n")

    def _lost(self) -> None:
        """The host went away in the middle: files may be the new ones, and no module was built for them."""
        self._busy = None
        if self._changing:
            self._tell(False)

    def _tell(self, ok: bool) -> None:
        release = self._host.user_space or ""
        self._host.truth("driver_install", version=release, **{"from": self._former}, ok=ok)


def _begins(word: str, name: str) -> bool:
    """Is the word this package's name, alone or with a version behind it?"""
    rest = word.removesuffix(f".{_ARCH}")[len(name) :]
    return word.startswith(name) and (not rest or re.match(r"-\d", rest) is not None)


def _compare(left: str, right: str) -> int:
    first, second = sort_key(release_of(left)), sort_key(release_of(right))
    return (first > second) - (first < second)


def _fill(wanted: str, name: str, package: Installed) -> str:
    epoch, _, rest = package.version.rpartition(":")
    version, _, release = rest.partition("-")
    known = {
        "NAME": name,
        "EVR": package.version,
        "ARCH": _ARCH,
        "EPOCH": epoch or "(none)",
        "VERSION": version,
        "RELEASE": release,
    }
    text = _FIELD.sub(lambda found: known.get(found[1].upper(), "(unknown)"), wanted)
    return text.replace("\\t", "\t").replace("\\n", "\n")
