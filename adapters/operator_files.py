"""Files that a person keeps: the fleet file, baselines, manifests, keys, lists.

Only regular files are read. A pipe or a device would be waited for, perhaps for ever, or never end; what may come from
standard input says so and reads it itself.
"""

from __future__ import annotations

import stat
from pathlib import Path

from fleet.errors import ConfigurationError

LARGEST_BYTES = 256 * 2**20

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


class NoSuchFile(ConfigurationError):
    """There is nothing at this path."""


def read_operator_bytes(path: Path, what: str) -> bytes:
    """The content of the file; `what` names it in messages: "the baseline".

    Raises NoSuchFile, ConfigurationError where it cannot be read, is no regular file or has more than 256 MiB.
    """
    try:
        check_operator_file(path, what)
        with path.open("rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigurationError(f"cannot read {what} {path}: {error.strerror}") from error


def check_operator_file(path: Path, what: str) -> None:
    """For a file that a library reads itself. Raises as `read_operator_bytes`."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise NoSuchFile(f"cannot read {what} {path}: {error.strerror}") from error
    except OSError as error:
        raise ConfigurationError(f"cannot read {what} {path}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"cannot read {what} {path}: it is {_kind(found.st_mode)}, no regular file")
    if found.st_size > LARGEST_BYTES:
        raise ConfigurationError(f"cannot read {what} {path}: it has more than {LARGEST_BYTES >> 20} MiB")


def read_operator_text(path: Path, what: str) -> str:
    """Its text, lines ending in a newline. Raises as `read_operator_bytes`, and ConfigurationError for no UTF-8."""
    try:
        text = read_operator_bytes(path, what).decode("utf-8")
    except UnicodeDecodeError as error:  # its text, and what it holds, may be a secret's
        raise ConfigurationError(f"{what} {path} is not UTF-8 text (byte {error.start})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _kind(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
