"""The part of a driver change's preflight that looks at the host: kernels, Secure Boot, what is bound, space."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.driver_facts import DriverFacts, bound_drivers, has_nvswitch, kernels_of, kernels_that_matter
from fleet.driver_holders import foreign
from fleet.driver_preflight_shape import PreflightFinding, blocks, notes
from fleet.driver_settings import DriverSettings
from fleet.driver_target import InstallKind, RebootPolicy

_OTHER_DRIVERS = ("nouveau", "nova_core", "nova-core", "NovaCore", "nova_drm", "nvidiafb")


def host_findings(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    yield from _bound(facts)
    yield from _kernels(facts)
    yield from _secure_boot(facts)
    yield from _space(facts, settings)
    yield from _holders(facts, settings)
    yield from _two_drivers(facts)
    yield from _egress(facts, settings)


def _bound(facts: DriverFacts) -> Iterator[PreflightFinding]:
    """A GPU's bound driver decides; lspci's "Kernel modules" always names nvidia too."""
    reading = facts.reading
    advice = "put nouveau and nova_core on the blacklist, rebuild the initramfs, reboot; then plan again"
    for driver, addresses in bound_drivers(reading).items():
        if driver in _OTHER_DRIVERS:
            text = f"wrong kernel driver bound: {driver} has {', '.join(addresses[:8])}"
            yield blocks("kernel_driver.wrong", text, advice)
        elif driver == "vfio-pci":
            text = f"{', '.join(addresses[:8])} are given to virtual machines (vfio-pci)"
            yield blocks("kernel_driver.passthrough", text, "leave the node out")
    modules = reading.driver.modules or frozenset()
    loaded = sorted(modules & {"nouveau", "nova_core", "nova_drm"})
    if loaded and reading.pci is None and "nvidia" not in modules:
        yield blocks("kernel_driver.wrong", f"wrong kernel driver loaded: {', '.join(loaded)}", advice)
    elif loaded and "nvidia" in modules:
        yield notes("kernel_driver.loaded", f"{', '.join(loaded)} is loaded beside nvidia", advice)


def _kernels(facts: DriverFacts) -> Iterator[PreflightFinding]:
    kernels = kernels_that_matter(facts.reading)
    if not kernels:
        yield blocks("kernels.unknown", "the installed kernels could not be read", "read the node, then plan again")
    prebuilt = any("-modules-nvidia-" in pin.name for pin in facts.target.packages)
    for kernel in kernels:
        which = "running" if kernel.running else "next"
        if prebuilt:
            named = any(kernel.version in pin.name for pin in facts.target.packages)
            meta = any(pin.name.endswith(("-generic", "-server", "-virtual")) for pin in facts.target.packages)
            if not named and not meta:
                text = f"the target's prebuilt modules are not for the {which} kernel {kernel.version}"
                yield blocks("module.not_prebuilt", text, "add linux-modules-nvidia for that kernel")
        elif kernel.headers is False:
            text = f"the headers of the {which} kernel {kernel.version} are missing: DKMS cannot build for it"
            package = "kernel-devel" if facts.target.kind is InstallKind.DNF else "linux-headers"
            yield blocks("headers.missing", text, f"install {package}-{kernel.version}")
        elif kernel.headers is None:
            text = f"whether the {which} kernel {kernel.version} has its headers is not known"
            yield blocks("headers.unknown", text, "read the node again")
    for kernel in kernels_of(facts.reading):
        if kernel not in kernels and kernel.headers is False and not prebuilt:
            text = f"no headers of the older kernel {kernel.version}: it will have no driver"
            yield notes("headers.missing_older", text, "remove that kernel, or install its headers")
    running = next((kernel for kernel in kernels if kernel.running), None)
    if running is not None and len(kernels) > 1:
        text = f"{kernels[-1].version} is installed and {running.version} runs: a reboot changes the kernel too"
        yield notes("kernel.newer_installed", text, "the driver is checked for both")


def _secure_boot(facts: DriverFacts) -> Iterator[PreflightFinding]:
    secure_boot, signer = facts.reading.driver.secure_boot, facts.signer
    if secure_boot is False:
        return
    if secure_boot is None:
        text = "whether Secure Boot is on could not be read"
        yield notes("secure_boot.unknown", text, "if it is, an unsigned module will not load, and the node goes back")
    elif signer is None:
        text = "Secure Boot is on, and who signs the node's nvidia module is not known"
        yield blocks("secure_boot.signer_unknown", text, "see `modinfo -F signer nvidia` and `mokutil --list-enrolled`")
    elif not signer:
        text = "Secure Boot is on, and the node's nvidia module has no signature"
        yield blocks("secure_boot.unsigned", text, "set DKMS' signing key up and enrol it (mokutil --import)")
    elif facts.reading.driver.loaded is None:
        text = f"Secure Boot is on, and no module signed by {signer!r} is seen to load"
        yield notes("secure_boot.not_seen", text, "see that its key is enrolled (mokutil --list-enrolled)")


def _space(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    free = settings.free
    for place, need in (("/usr", free.usr_mib), ("/boot", free.boot_mib), ("/var", free.var_mib)):
        have = facts.free_mib.get(place)
        if have is None:
            yield notes("space.unknown", f"how much is free in {place} could not be read", "see `df`")
        elif have < need:
            text = f"{place} has {have} MiB free, {need} are needed"
            yield blocks("space.short", text, "remove old kernels and packages" if place == "/boot" else "make room")


def _holders(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    if facts.holders is None:
        yield notes("holders.unknown", "who holds the GPUs could not be read", "")
        return
    known = (*settings.holders, *settings.stop_if_holding)
    for holder in foreign(facts.holders, known):
        make = notes if facts.target.reboot is RebootPolicy.ALWAYS else blocks
        code = "holder.container" if holder.container else "holder.foreign"
        yield make(code, str(holder), "end it, or name its service in drivers.holders; nothing unknown is ever killed")


def _two_drivers(facts: DriverFacts) -> Iterator[PreflightFinding]:
    driver = facts.reading.driver
    if len(driver.library_versions) > 1:
        text = f"two drivers lie over one another: libraries of {', '.join(driver.library_versions)}"
        yield blocks("driver.two", text, "uninstall the one that is not wanted, by the way in which it came")
    if driver.loaded and driver.on_disk and driver.loaded != driver.on_disk:
        text = f"module {driver.loaded} is loaded and {driver.on_disk} is on disk: an earlier change waits for a reboot"
        yield notes("driver.half_changed", text, "the way back goes to what is on disk")
    manager = driver.fabric_manager
    if manager and driver.loaded and not manager.startswith(driver.loaded) and has_nvswitch(facts.reading) is not False:
        text = f"its fabric manager is {manager}, its driver {driver.loaded}"
        yield notes("fabric_manager.other", text, "both will be of the target's version")


def _egress(facts: DriverFacts, settings: DriverSettings) -> Iterator[PreflightFinding]:
    if settings.egress == "ignore":
        return
    make = blocks if settings.egress == "refuse" else notes
    for way in ("popularity_contest", "apport", "motd_news"):
        setting = (facts.reading.egress or {}).get(way, "absent").strip().lower()
        if setting not in ("absent", "off", "0", "no", "false"):
            yield make("egress.on", f"the node reports to outside: {way} is {setting!r}", "switch it off")
    simulation = facts.packages.simulation
    for name in sorted(simulation.installs if simulation else ()):
        if any(word in name for word in ("telemetry", "popularity-contest", "apport", "whoopsie", "ubuntu-report")):
            yield make("egress.package", f"the install would bring {name}, which reports to outside", "leave it out")
