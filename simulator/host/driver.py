"""The kernel's side of a host's driver: modules that are loaded and unloaded, DKMS, and what the kernel says of it."""

from __future__ import annotations

from collections.abc import Callable

from simulator.host.packages import Packages
from simulator.host.state import DNF, RUNFILE, HostState, Module, Process
from simulator.slurm.reply import Reply, failure

UNLOAD_SECONDS, LOAD_SECONDS = 2.0, 8.0
_DEPENDS = {
    "nvidia_uvm": "nvidia",
    "nvidia_modeset": "nvidia",
    "nvidia_drm": "nvidia_modeset",
    "nvidia_peermem": "nvidia",
}
_MODULES = ("nvidia", *_DEPENDS)


class Driver:
    """`holders` tells who has the GPUs' devices open."""

    def __init__(self, host: HostState, holders: Callable[[], list[Process]]) -> None:
        self._host = host
        self._holders = holders
        self.fabric_ready = True
        self._fresh = False  # was it built and not loaded since?

    @property
    def dkms_name(self) -> str:
        """What DKMS calls the module: Ubuntu's server packages have a name of their own."""
        host = self._host
        server = host.manager not in (DNF, RUNFILE) and "-server" in (host.packages.name_of("nvidia-dkms") or "-server")
        return "nvidia-srv" if server else "nvidia"

    def refcount(self, module: str = "nvidia") -> int:
        """As /sys/module/NAME/refcnt: modules that need it, and open files."""
        needed = sum(_DEPENDS.get(other) == module for other in self._host.modules)
        users = self._holders() if module == "nvidia" else [p for p in self._holders() if p.cuda]
        return needed + (sum(len(user.devices) for user in users) if module in ("nvidia", "nvidia_uvm") else 0)

    def remove(self, names: list[str]) -> Reply:
        """`modprobe -r`: one after the other, up to the first that is in use."""
        host = self._host
        for name in names:
            plain = name.replace("-", "_")
            if plain not in _MODULES:
                return failure(f"modprobe: FATAL: Module {name} not found.\n")
            if plain not in host.modules:
                continue
            if self._needed(plain):
                return failure(f"modprobe: FATAL: Module {plain} is in use.\n")
            host.modules.remove(plain)
            if plain == "nvidia":
                self._unloaded()
        return Reply(0)

    def _needed(self, name: str) -> bool:
        if name in ("nvidia_modeset", "nvidia_drm", "nvidia_peermem"):
            return any(_DEPENDS.get(other) == name for other in self._host.modules)
        return self.refcount(name) > 0

    def _unloaded(self) -> None:
        host = self._host
        release = host.loaded.release if host.loaded else ""
        self.fabric_ready = False
        with host.settings_change("driver"):
            for gpu in host.settings.gpus:
                gpu.module_gone()
        host.loaded = None
        host.truth("driver_unload", version=release)
        host.tell_parts()

    def load(self, name: str) -> Reply:
        """`modprobe NAME`, with what it needs."""
        host, plain = self._host, name.replace("-", "_")
        if plain not in _MODULES:
            return failure(f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{host.kernel}\n")
        if plain in host.modules:
            return Reply(0)
        if host.on_disk is None:
            return failure(f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{host.kernel}\n")
        needed = _DEPENDS.get(plain)
        if needed is not None and needed not in host.modules:
            answer = self.load(needed)
            if answer.code:
                return answer
        if plain == "nvidia":
            refused = self._insert(host.on_disk)
            if refused is not None:
                return refused
        elif host.loaded is not None and host.on_disk.release != host.loaded.release:
            host.log(f"{plain}: disagrees about version of symbol nvidia_register_module")
            return failure(f"modprobe: ERROR: could not insert '{plain}': Invalid argument\n")
        host.modules.append(plain)
        return Reply(0)

    def _insert(self, module: Module) -> Reply | None:
        host, name = self._host, self._host.machine.name
        if name in host.faults.secure_boot and module.release != host.faults.installed:
            host.log("Loading of module with unavailable key is rejected")
            return failure("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n")
        if host.faults.refuses_to_load(name, module.release):
            host.log("NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x55:2477)")
            host.log("NVRM: GPU 0000:18:00.0: rm_init_adapter failed, device minor number 0")
            host.truth("driver_refused", version=module.release)
            return failure("modprobe: ERROR: could not insert 'nvidia': No such device\n")
        self._inserted(module)
        return None

    def _inserted(self, module: Module) -> None:
        host = self._host
        host.loaded = Module(module.release, module.open)
        kind = "NVIDIA UNIX Open Kernel Module" if module.open else "NVIDIA UNIX x86_64 Kernel Module"
        host.log(f"NVRM: loading {kind}  {module.release}  Release Build")
        lost = host.faults.flaw(module.release).settings_lost if self._fresh else ()
        self._fresh = False
        with host.settings_change("driver"):
            for gpu in host.settings.gpus:
                for setting in lost:
                    gpu.lose(setting)
        host.truth("driver_load", version=module.release)
        host.tell_parts()

    def boot(self) -> None:
        """What udev does in a boot: the modules are loaded where they can be."""
        host = self._host
        was = host.loaded
        host.modules.clear()
        self.fabric_ready = False
        with host.settings_change("boot"):
            for gpu in host.settings.gpus:
                gpu.module_gone()
                gpu.reset()
        host.loaded = None
        for name in ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"):
            self.load(name)
        if was is not None and host.loaded is None:
            host.truth("driver_unload", version=was.release)
        host.tell_parts()

    def drop_built(self) -> None:
        """The sources leave DKMS, and with them the modules that it built."""
        self._host.dkms_tree = None
        self._host.built.clear()

    def build(self, release: str, open_module: bool) -> tuple[bool, str]:
        """DKMS builds `release` for every kernel with headers. Whether it went well, and what was printed."""
        host, name = self._host, self.dkms_name
        host.dkms_tree, self._fresh = release, True
        lines = [f"Loading new {name}-{release} DKMS files..."]
        for kernel, headers in host.kernels.items():
            lines.append(f"Building for {kernel}\nBuilding for architecture x86_64")
            if not headers:
                lines.append(f"Module build for kernel {kernel} was skipped since the")
                lines.append("kernel headers for this kernel does not seem to be installed.")
                continue
            if host.faults.fails_to_build(host.machine.name, release):
                lines.append(f"Building initial module for {kernel}")
                lines.append(f"Error! Bad return status for module build on kernel: {kernel} (x86_64)")
                lines.append(f"Consult /var/lib/dkms/{name}/{release}/build/make.log for more information.")
                return False, "".join(f"{line}\n" for line in lines)
            host.built[kernel] = Module(release, open_module)
            lines.append(f"Building initial module for {kernel}\nDone.")
        return True, "".join(f"{line}\n" for line in lines)

    def dkms_status(self) -> Reply:
        host, name = self._host, self.dkms_name
        if host.dkms_tree is None:
            return Reply(0)
        lines = [
            f"{name}/{module.release}, {kernel}, x86_64: installed\n" for kernel, module in sorted(host.built.items())
        ]
        return Reply(0, "".join(lines) or f"{name}/{host.dkms_tree}: added\n")

    def modinfo(self, words: list[str]) -> Reply:
        """`modinfo [-F FIELD] [-k KERNEL] nvidia`."""
        given = dict(zip(words[:-1:2], words[1::2], strict=False))
        module = self._host.built.get(given.get("-k", self._host.kernel))
        if module is None or words[-1] != "nvidia":
            return failure(f"modinfo: ERROR: Module {words[-1]} not found.\n")
        kernel = given.get("-k", self._host.kernel)
        fields = {
            "filename": f"/lib/modules/{kernel}/updates/dkms/nvidia.ko",
            "version": module.release,
            "license": "Dual MIT/GPL" if module.open else "NVIDIA",
            "signer": f"{self._host.machine.name} Secure Boot Module Signature key",
            "vermagic": f"{kernel} SMP mod_unload modversions ",
        }
        if "-F" in given:
            value = fields.get(given["-F"])
            return Reply(0, "" if value is None else f"{value}\n")
        return Reply(0, "".join(f"{name + ':':<16}{value}\n" for name, value in fields.items()))


def is_open(packages: Packages) -> bool:
    """Are the packages those of the open kernel modules?"""
    name = packages.name_of("nvidia-dkms", "kmod-nvidia-open-dkms") or ""
    return "open" in name
