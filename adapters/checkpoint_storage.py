"""Checkpoint folders, listed by one bounded command on a host that has them mounted."""

from __future__ import annotations

import base64
import json
import zlib
from functools import lru_cache
from importlib.resources import files

from adapters.checkpoint_listing import BEGIN, END
from fleet.checkpoint_readers.listing import Listing, read_listing
from fleet.errors import ConfigurationError, FleetError, NodeUnreachable, TransientError
from fleet.json_values import number_at
from fleet.ports import Clock, CommandResult, Host

_NO_PYTHON = 83
_MARGIN_SECONDS = 15.0  # for the login, the start of Python and the transfer
# One line each, as csh takes no newline in quotes.
_BOOT = "import base64,sys,zlib;exec(zlib.decompress(base64.b64decode(sys.argv.pop(1))))"
_RUN = (
    "for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do "
    '"$python" -I -S -c "import sys;sys.exit(sys.version_info<(3,8))" >/dev/null 2>&1 && '
    'exec "$python" -I -S -c "$@"; done; exit 83'
)


@lru_cache(maxsize=1)
def _script() -> str:
    source = files("adapters").joinpath("checkpoint_listing.py").read_bytes()
    return base64.b64encode(zlib.compress(source, 9)).decode()


class CheckpointStorage:
    """The storage as `host` sees it: over SSH, or a mounted path where the host is this machine.

    `clock_folder` is a folder of ours on that storage in which an empty file may be made for a moment, to measure the
    storage's clock. Without it the clock is known only for file systems that are local to the host.
    """

    def __init__(self, host: Host, clock: Clock, clock_folder: str = "") -> None:
        self._host = host
        self._clock = clock
        self._clock_folder = clock_folder

    def read_tree(self, root: str, seconds: float = 20.0) -> Listing:
        """What is below `root`, which may be a folder or one file; within `seconds` what was not read is named.

        A tree that is missing, forbidden, stale or unmounted is a listing with a problem. Raises NodeUnreachable where
        the host does not answer in time (a dead mount looks like that too), TransientError where its answer was cut
        off, ConfigurationError where it has no Python 3.8 or newer, and whatever else the host raises.
        """
        if not root.startswith("/") or not root.isprintable():
            return Listing(root, problem="is no absolute path")
        before = self._clock.now().timestamp()
        command = ("sh", "-c", _RUN, "sh", _BOOT, _script(), root, f"{seconds:g}", self._clock_folder)
        result = self._host.run(command, seconds + _MARGIN_SECONDS)
        after = self._clock.now().timestamp()
        text = _document(result)
        offset = _offset(text, before, after)
        return read_listing(text, root) if offset is None else read_listing(text, root, *offset)


def _document(result: CommandResult) -> str:
    _, begun, rest = result.stdout.rpartition(BEGIN)
    text, ended, _ = rest.partition(END)
    if begun and ended:
        return text
    raise _fault(result, bool(begun))


def _fault(result: CommandResult, begun: bool) -> FleetError:
    said = (result.stderr.strip() or result.stdout.strip())[-300:]
    shown = (said,) if said else ()
    if begun:
        return TransientError("the listing of a checkpoint folder was cut off", evidence=shown)
    if result.code == _NO_PYTHON:
        return ConfigurationError("the host that lists checkpoints has no Python 3.8 or newer", evidence=shown)
    if result.code < 0:
        return NodeUnreachable("the listing of a checkpoint folder was ended by a signal", evidence=shown)
    return ConfigurationError(f"checkpoint folders cannot be listed (exit status {result.code})", evidence=shown)


def _offset(text: str, before: float, after: float) -> tuple[float, float] | None:
    """The storage's clock minus ours, and by how much that may be wrong; None where it cannot be told.

    The host read its clock after `before` and again before `after`: both bound how far it is ahead of ours.
    """
    try:
        document: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    ahead, started, ended = (number_at(document, key) for key in ("ahead", "started", "ended"))
    if ahead is None or started is None or ended is None:
        return None
    least, most = ended - after, started - before
    if least > most:
        return None
    return ahead + (least + most) / 2, (most - least) / 2
