"""The node probe over SSH: pushed where it is missing, run, and its document cut out of what the login prints."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from fleet.errors import ConfigurationError, FleetError, NodeUnreachable, TransientError
from fleet.json_values import printable
from fleet.node_reading import NodeReading, read_node
from fleet.ports import CommandResult, FileHost
from node.build import build_probe

_BEGIN = "=====gpufleet-probe-begin====="
_END = "=====gpufleet-probe-end====="
_NO_PYTHON, _OLD_PYTHON, _NOT_THERE = 83, 84, 85
_PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8"
_MARGIN_SECONDS = 10.0  # for the login, the start of Python and the transfer, above the probe's own deadline

# One line each, as csh takes no newline in quotes. The file is hashed by the Python that then runs it.
_BOOT = (
    "import sys;old=sys.version_info<(3,8);"
    'old and sys.stderr.write("Python "+sys.version.split()[0]+"\\n");old and sys.exit(84);'
    "import hashlib,os,runpy;path,digest=sys.argv[1:3];"
    'found=os.path.exists(path) and hashlib.sha256(open(path,"rb").read()).hexdigest();'
    'found==digest or sys.exit(85);sys.argv[:3]=[path];runpy.run_path(path,run_name="__main__")'
)
_RUN = (
    'code=83; boot=$1; shift; for python in PYTHONS; do command -v "$python" >/dev/null 2>&1 || continue; '
    '"$python" -I -S -c "$boot" "$@"; code=$?; test $code -eq 84 || exit $code; done; exit $code'
).replace("PYTHONS", _PYTHONS)


@dataclass(frozen=True, slots=True)
class ProbeFile:
    """The zipapp and its SHA-256 in hexadecimal."""

    content: bytes
    digest: str


@lru_cache(maxsize=1)
def probe_file() -> ProbeFile:
    """Built once per process from the sources that are installed with it."""
    content = build_probe()
    return ProbeFile(content, hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What to read. No `sections` means all of them; `cursor` is the last kernel log position that was read."""

    sections: tuple[str, ...] = ()
    cursor: str | None = None
    deadline_seconds: float = 20.0
    root: str = "/"
    nvml: str | None = None  # path of libnvidia-ml, instead of the system's

    def arguments(self) -> tuple[str, ...]:
        given = {"--root": self.root, "--deadline": f"{self.deadline_seconds:g}", "--sections": ",".join(self.sections)}
        given |= {"--cursor": self.cursor or "", "--nvml": self.nvml or ""}
        return tuple(f"{name}={value}" for name, value in given.items() if value)


class Probe:
    """The probe on one node. `folder` is below the login's home, or absolute."""

    def __init__(
        self, host: FileHost, node: str, file: ProbeFile | None = None, folder: str = ".cache/gpufleet"
    ) -> None:
        self._host = host
        self._node = node
        self._file = file or probe_file()
        self._path = f"{folder}/probe-{self._file.digest[:16]}.pyz"

    def read(self, request: ProbeRequest | None = None) -> NodeReading:
        """One reading; the first on a node also pushes the probe.

        Raises NodeUnreachable, HostKeyChanged and CredentialsRejected as the host does; ConfigurationError where
        the node cannot run the probe (no Python, an old one, no place to write, a login that runs no commands), and
        TransientError where the probe ended without its whole document.
        """
        request = request or ProbeRequest()
        result = self._run(request)
        if result.code == _NOT_THERE:
            self._host.put(self._path, self._file.content, self._file.digest)
            result = self._run(request)
        return read_node(self._document(result))

    def _run(self, request: ProbeRequest) -> CommandResult:
        command = ("sh", "-c", _RUN, "sh", _BOOT, self._path, self._file.digest, *request.arguments())
        return self._host.run(command, request.deadline_seconds + _MARGIN_SECONDS)

    def _document(self, result: CommandResult) -> str:
        _, begun, rest = result.stdout.rpartition(_BEGIN)
        text, ended, _ = rest.partition(_END)
        if begun and ended:
            return text.strip()
        raise self._fault(result, bool(begun))

    def _fault(self, result: CommandResult, begun: bool) -> FleetError:
        said = str(printable(result.stderr.strip() or result.stdout.strip()))[-300:]
        shown = (said,) if said else ()
        if begun:
            return TransientError("the probe's document was cut off", node=self._node, evidence=shown)
        if result.code == _NO_PYTHON:
            text = "has no python3 on its PATH; the probe needs Python 3.8 or newer"
        elif result.code == _OLD_PYTHON:
            versions = ", ".join(line for line in result.stderr.splitlines() if line.startswith("Python ")) or "Python"
            text = f"{versions} is too old; the probe needs 3.8 or newer"
        elif result.code == _NOT_THERE:
            text = f"the probe was written to {self._path}, and is not there as it was sent"
        elif result.code == -1:
            return NodeUnreachable("the probe was ended by a signal (out of memory?)", node=self._node, evidence=shown)
        elif result.code == 0:
            text = f"the login runs no commands, it answers: {said or 'nothing'}"
        else:
            last = said.splitlines()[-1] if said else "nothing"
            text = f"the probe could not be run (exit status {result.code}): {last}"
        return ConfigurationError(text, node=self._node, evidence=shown)
