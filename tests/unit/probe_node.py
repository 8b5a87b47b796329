"""A node's file system for the probe: /proc, /sys and /etc as files, commands as shell scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from adapters.probe import probe_file
from fleet.node_reading import NodeReading, read_node

KERNEL = "6.8.0-45-generic"
BOOT = "7c0e1f7e-56a5-4b0b-8f2f-3a1d4c5b6a79"


class FakeNode:
    """Everything below `root`; a path is given as it is on a node."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        self.app = folder / "probe.pyz"
        self.app.write_bytes(probe_file().content)
        folder.chmod(0o700)
        self.file("/proc/sys/kernel/osrelease", f"{KERNEL}\n")
        self.file("/proc/sys/kernel/hostname", "gpu-0001\n")
        self.file("/proc/sys/kernel/random/boot_id", f"{BOOT}\n")

    def file(self, path: str, text: str | bytes = "") -> Path:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)
        return place

    def files(self, folder: str, values: Mapping[str, str]) -> None:
        for name, text in values.items():
            self.file(f"{folder}/{name}", f"{text}\n")

    def link(self, path: str, target: str) -> None:
        """`target` as it stands in the link; an absolute one is taken below the root."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(self.root / target.lstrip("/") if target.startswith("/") else target)

    def command(self, name: str, script: str) -> None:
        self.file(f"/usr/bin/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)

    def run(self, *arguments: str, nvml: Path | None = None) -> subprocess.CompletedProcess[str]:
        """The probe as a node runs it; without `nvml` there is no such library."""
        library = nvml or self.root / "no-libnvidia-ml.so.1"
        command = [sys.executable, "-I", "-S", str(self.app), f"--root={self.root}", f"--nvml={library}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def document(self, *arguments: str, nvml: Path | None = None) -> dict[str, dict[str, dict[str, object]]]:
        loaded: dict[str, dict[str, dict[str, object]]] = json.loads(self.text(*arguments, nvml=nvml))
        return loaded

    def reading(self, *arguments: str, nvml: Path | None = None) -> NodeReading:
        return read_node(self.text(*arguments, nvml=nvml))

    def text(self, *arguments: str, nvml: Path | None = None) -> str:
        done = self.run(*arguments, nvml=nvml)
        assert done.returncode == 0, done.stderr
        before, begin, rest = done.stdout.partition("=====gpufleet-probe-begin=====\n")
        text, end, after = rest.partition("\n=====gpufleet-probe-end=====\n")
        assert (before.strip(), after, bool(begin), bool(end)) == ("", "", True, True)
        assert "\n" not in text
        return text
