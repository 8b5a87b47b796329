"""The probe's command line: reads every section side by side and prints one framed document."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import time
from typing import TYPE_CHECKING

from . import VERSION
from .driver import read_driver
from .files import Root
from .gpus import read_gpu_section
from .kernel_log import read_kernel_log
from .links import read_network, read_pci
from .packages import read_packages
from .system import read_disks, read_memory, read_system
from .workers import Collected, collect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .workers import Reader

BEGIN = "=====gpufleet-probe-begin====="
END = "=====gpufleet-probe-end====="
_RESERVE_SECONDS = 0.5
_SECTIONS = ("gpus", "driver", "packages", "system", "memory", "disks", "pci", "network", "kernel_log")


def main(arguments: Sequence[str]) -> int:
    """Print the document; 0 whatever was found, 2 for a wrong command line."""
    options = _parser().parse_args(arguments)
    wanted = options.sections.split(",") if options.sections else list(_SECTIONS)
    strange = sorted(set(wanted) - set(_SECTIONS))
    if strange:
        sys.stderr.write(f"no section {', '.join(strange)}; there are {', '.join(_SECTIONS)}\n")
        return 2
    started = time.monotonic()
    seconds = max(0.5, options.deadline - _RESERVE_SECONDS)
    collected = collect({name: _reader(name, options, seconds) for name in wanted}, seconds)
    document = {
        "version": VERSION,
        "at": time.time(),
        "sections": {name: _section(collected[name]) for name in wanted},
        "probe": {
            "python": platform.python_version(),
            "root": options.root,
            "deadline_seconds": options.deadline,
            "wall_seconds": round(time.monotonic() - started, 3),
            "cpu_seconds": round(_cpu_seconds(), 3),
            "user": os.geteuid(),
        },
    }
    text = json.dumps(document, separators=(",", ":"))
    sys.stdout.write(f"\n{BEGIN}\n{text}\n{END}\n")
    sys.stdout.flush()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="probe", description=__doc__, allow_abbrev=False)
    parser.add_argument("--root", default="/", help="read /sys, /proc and /etc, and look for commands, below DIR")
    parser.add_argument("--deadline", type=float, default=20.0, help="seconds after which what is there is printed")
    parser.add_argument("--sections", default="", help=f"some of {','.join(_SECTIONS)}; all by default")
    parser.add_argument("--cursor", default=None, help="kernel log lines after this position only")
    parser.add_argument("--nvml", default=None, help="path of libnvidia-ml, instead of the system's")
    return parser


def _reader(name: str, options: argparse.Namespace, seconds: float) -> Reader:
    root = Root(options.root)
    limit = max(0.3, seconds - 0.5)
    readers: dict[str, Reader] = {
        "gpus": lambda: read_gpu_section(root, options.nvml or None, limit),
        "driver": lambda: read_driver(root, limit * 0.5),
        "packages": lambda: read_packages(root, limit * 0.5),
        "system": lambda: read_system(root),
        "memory": lambda: read_memory(root),
        "disks": lambda: read_disks(root),
        "pci": lambda: read_pci(root),
        "network": lambda: read_network(root),
        "kernel_log": lambda: read_kernel_log(root, options.cursor, limit * 0.8),
    }
    return readers[name]


def _section(collected: Collected) -> dict[str, object]:
    """The section's values; {"unknown": why} where nothing was read, `unfinished` where a part was."""
    values = dict(collected.pairs)
    if collected.fault is None:
        return values
    return {**values, "unfinished": collected.fault} if values else {"unknown": collected.fault}


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
