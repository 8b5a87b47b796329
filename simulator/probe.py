"""The node probe on a simulated host: the file is taken as a real host takes it, and its answer is the host's state.

What runs is not the probe's Python but its result: the document that docs/probe.md describes.
"""

from __future__ import annotations

import hashlib
import json

from simulator.host.document import Document
from simulator.host.state import HostState
from simulator.slurm.reply import Reply, failure

_BEGIN, _END = "=====gpufleet-probe-begin=====", "=====gpufleet-probe-end====="
_NOT_THERE = 85


class ProbeAnswers:
    """The files that were sent to one host, and what the probe among them says."""

    def __init__(self, host: HostState, document: Document) -> None:
        self._host = host
        self._document = document
        self._files: dict[str, bytes] = {}

    def wants_input(self, words: list[str]) -> bool:
        """Whether the command takes a file on its standard input."""
        return words[:2] == ["sh", "-c"] and len(words) > 2 and 'cat > "$1"' in words[2]

    def run(self, words: list[str], stdin: bytes, boot_id: str) -> Reply | None:
        """What `sh -c SCRIPT sh ARGUMENTS…` answers; None for a script that is none of the probe's."""
        if words[:2] != ["sh", "-c"] or len(words) < 5 or words[3].startswith("gpufleet-"):
            return None
        script, arguments = words[2], words[4:]
        if 'mkdir -p "$1"' in script:
            return Reply(0)
        if 'cat > "$1"' in script:
            self._files[arguments[0]] = stdin
            return Reply(0)
        if "sha256sum" in script and len(arguments) >= 3:
            return self._move(*arguments[:3])
        if 'command -v "$python"' in script and len(arguments) >= 3:
            return self._probe(arguments[1], arguments[2], boot_id, arguments[3:])
        return None

    def _move(self, arrived: str, path: str, digest: str) -> Reply:
        content = self._files.pop(arrived, b"")
        got = hashlib.sha256(content).hexdigest()
        if got != digest:
            return failure(f"sha256 {got}, wanted {digest}\n", 65)
        self._files[path] = content
        return Reply(0)

    def _probe(self, path: str, digest: str, boot_id: str, options: list[str]) -> Reply:
        if hashlib.sha256(self._files.get(path, b"")).hexdigest() != digest:
            return Reply(_NOT_THERE)
        given = next((option for option in options if option.startswith("--cursor=kmsg:")), "")
        boot, _, position = given.removeprefix("--cursor=kmsg:").rpartition(":")
        sections = self._document.sections(boot_id)
        sections["kernel_log"] = self._log_since(int(position) if position.isdigit() else 0, boot_id, boot == boot_id)
        probe = {"python": "3.10.12", "wall_seconds": 0.41, "cpu_seconds": 0.22, "user": 0}
        at = self._host.machine.clock.wall().timestamp()
        document = {"version": 1, "at": at, "sections": sections, "probe": probe}
        return Reply(0, f"{_BEGIN}\n{json.dumps(document, separators=(',', ':'))}\n{_END}\n")

    def _log_since(self, first: int, boot_id: str, continued: bool) -> dict[str, object]:
        lines = self._host.kernel_log
        cursor = f"kmsg:{boot_id}:{len(lines)}"
        return {"source": "kmsg", "cursor": cursor, "continued": continued, "lines": lines[first:]}
