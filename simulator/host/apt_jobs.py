"""What changes the packages of a simulated Ubuntu host, and the time that it takes: apt-get and dpkg --configure."""

from __future__ import annotations

from simulator.host.apt import INTERRUPTED, split_options
from simulator.host.apt_plan import AptError, AptPlan, heading, plan_install
from simulator.host.driver import Driver, is_open
from simulator.host.jobs import Phase, Program, one_phase
from simulator.host.packages import HALF_CONFIGURED, INSTALLED, UNPACKED
from simulator.host.releases import family, release_of
from simulator.host.state import HostState
from simulator.slurm.reply import Reply, failure

UPDATE_SECONDS, DOWNLOAD_SECONDS, UNPACK_SECONDS, BUILD_SECONDS, LAST_SECONDS = 8.0, 15.0, 15.0, 50.0, 10.0
_BUSY_UNTIL = 1800.0
_WAITS_FOR_MODULE = frozenset({"nvidia-driver"})


class AptJobs:
    """One at a time: dpkg's lock is held while a program runs."""

    def __init__(self, host: HostState, driver: Driver) -> None:
        self._host = host
        self._driver = driver
        self._holder: tuple[int, str] | None = None
        self._unpacked = False
        self._former = ""

    def run(self, words: list[str]) -> Program | Reply | None:
        """The program of a command, or what it says at once; None for what is none of apt's."""
        match words:
            case ["dpkg", "--configure", ("-a" | "--pending")]:
                return self._locked("dpkg") or self._configure("dpkg")
            case ["apt-get", *rest]:
                return self._apt_get(*split_options(rest))
            case _:
                return None

    def _apt_get(self, options: frozenset[str], words: list[str]) -> Program | Reply:
        verb, packages = (words or [""])[0], words[1:]
        if verb == "update":
            return one_phase(UPDATE_SECONDS, _updated)
        if verb not in ("install", "-f"):
            return failure(f"E: Invalid operation {verb}\n", 100)
        busy = self._locked("apt-get")
        if busy is not None:
            return busy
        if self._host.packages.interrupted:
            return failure(INTERRUPTED, 100)
        if not packages:
            return self._configure("apt-get")
        if not options & {"-y", "--yes", "--assume-yes", "-qy", "-yq"}:
            return failure("Do you want to continue? [Y/n] Abort.\n", 1)
        try:
            return self._install(plan_install(self._host.packages, packages, options))
        except AptError as error:
            return failure(str(error), 100)

    def lock_holder(self) -> tuple[int, str] | None:
        """The process that changes packages now, and its name."""
        host = self._host
        if host.machine.name in host.faults.apt_busy and host.machine.clock.now() < _BUSY_UNTIL:
            return (911, "unattended-upgr")
        return self._holder

    def _locked(self, who: str) -> Reply | None:
        """The refusal where somebody else changes packages."""
        holder = self.lock_holder()
        if holder is None:
            return None
        if who == "dpkg":
            return failure(f"dpkg: error: dpkg frontend lock was locked by another process with pid {holder[0]}\n", 2)
        lock = "/var/lib/dpkg/lock-frontend"
        return failure(
            f"E: Could not get lock {lock}. It is held by process {holder[0]} ({holder[1]})\n"
            "N: Be aware that removing the lock file is not a solution and may break your system.\n"
            f"E: Unable to acquire the dpkg frontend lock ({lock}), is another process using it?\n",
            100,
        )

    def _install(self, plan: AptPlan) -> Program | Reply:
        text = heading(self._host.packages, plan)
        if not plan.install and not plan.remove and not self._host.packages.unfinished():
            return Reply(0, text)
        self._take("apt-get")
        phases = (
            Phase(0.0, lambda: Reply(0, text)),
            Phase(DOWNLOAD_SECONDS, lambda: self._unpack(plan)),
            Phase(UNPACK_SECONDS, self._set_up),
            *self._build_phases(any(family(offer.name) == "nvidia-dkms" for offer in plan.install)),
        )
        return Program(phases, self._lost)

    def _configure(self, who: str) -> Program:
        self._take(who)
        self._unpacked = True
        packages = self._host.packages
        builds = any(family(name) == "nvidia-dkms" for name in packages.unfinished())
        packages.interrupted = False
        return Program((Phase(2.0, self._set_up), *self._build_phases(builds)), self._lost)

    def _build_phases(self, builds: bool) -> tuple[Phase, ...]:
        return Phase(BUILD_SECONDS if builds else 0.0, self._build), Phase(LAST_SECONDS, self._finish)

    def _take(self, who: str) -> None:
        self._holder = (self._host.next_pid(), who)
        self._unpacked = False
        self._former = self._host.user_space or ""

    def _unpack(self, plan: AptPlan) -> Reply:
        """New files take the place of old ones; from here on a cut leaves packages half done."""
        packages, lines = self._host.packages, ["Fetched all archives in 14s"]
        self._unpacked = True
        changed = {family(name) for name in (*plan.remove, *(offer.name for offer in plan.install))}
        for name in plan.remove:
            lines.append(f"Removing {name} ({packages.present()[name].version}) ...")
            packages.remove(name)
        if "nvidia-dkms" in changed:
            self._driver.drop_built()
        for offer in plan.install:
            over = f" over ({plan.before[offer.name]})" if offer.name in plan.before else ""
            lines.append(f"Unpacking {offer.name} ({offer.version}){over} ...")
            packages.unpack(offer.name, offer.version)
        self._host.tell_parts()
        return Reply(0, "".join(f"{line}\n" for line in lines))

    def _set_up(self) -> Reply:
        packages, lines = self._host.packages, []
        waiting = [name for name in packages.unfinished() if family(name) == "nvidia-dkms"]
        for name, package in packages.unfinished().items():
            if name in waiting or (waiting and family(name) in _WAITS_FOR_MODULE):
                continue
            lines.append(f"Setting up {name} ({package.version}) ...\n")
            packages.set_state(name, INSTALLED)
        for name in waiting:
            packages.set_state(name, HALF_CONFIGURED)
        return Reply(0, "".join(lines))

    def _build(self) -> Reply:
        """What the DKMS package does when it is set up; the driver's own package comes after it."""
        packages, text = self._host.packages, ""
        for name, package in packages.unfinished().items():
            if family(name) != "nvidia-dkms":
                continue
            text += f"Setting up {name} ({package.version}) ...\n"
            built, printed = self._driver.build(release_of(package.version), is_open(packages))
            text += printed
            self._host.tell_parts()
            if not built:
                return self._failed(name, text)
            packages.set_state(name, INSTALLED)
        for name, package in packages.unfinished().items():
            text += f"Setting up {name} ({package.version}) ...\n"
            packages.set_state(name, INSTALLED)
        return Reply(0, text)

    def _failed(self, name: str, text: str) -> Reply:
        packages = self._host.packages
        broken = [name]
        for other in packages.unfinished():
            if other != name:
                packages.set_state(other, UNPACKED)
                broken.append(other)
        script = f"installed {name} package post-installation script subprocess returned error exit status 10"
        text += f"dpkg: error processing package {name} (--configure):\n {script}\n"
        text += "Errors were encountered while processing:\n" + "".join(f" {each}\n" for each in broken)
        self._tell(False)
        self._holder = None
        return Reply(100, text, "E: Sub-process /usr/bin/dpkg returned an error code (1)\n")

    def _finish(self) -> Reply:
        self._tell(True)
        self._holder = None
        return Reply(0, "Processing triggers for libc-bin (2.35-0ubuntu3.8) ...\n")

    def _lost(self) -> None:
        """The host went away in the middle."""
        if self._unpacked:
            self._host.packages.interrupted = True
            self._tell(False)
        self._holder = None

    def _tell(self, ok: bool) -> None:
        release = self._host.user_space or ""
        self._host.truth("driver_install", version=release, **{"from": self._former}, ok=ok)


def _updated() -> Reply:
    lines = ("Hit:1 http://mirror.example.org/ubuntu jammy-updates InRelease", "Reading package lists... Done")
    return Reply(0, "".join(f"{line}\n" for line in lines))
