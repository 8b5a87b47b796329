"""Raw output that verdicts were made from: gzip files in a folder beside the ledger, each named by its SHA-256."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from contextlib import suppress
from pathlib import Path

from fleet.errors import ConfigurationError

_DIGEST = re.compile(r"[0-9a-f]{64}")


class EvidenceFolder:
    """Texts that are kept for good; one that is there already is not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, text: str) -> str:
        """Keep the text; returns the SHA-256 of its UTF-8 bytes. Raises ConfigurationError where it cannot be written.

        A lone surrogate, which UTF-8 cannot say, is kept as "?".
        """
        content = text.encode("utf-8", errors="replace")
        digest = hashlib.sha256(content).hexdigest()
        path = self.path(digest)
        try:
            if not path.exists():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(path, gzip.compress(content, mtime=0))
        except OSError as error:
            raise ConfigurationError(f"cannot keep evidence in {self._folder}: {error.strerror}") from error
        return digest

    def read(self, digest: str) -> str | None:
        """The text; None where there is none. Raises ConfigurationError where it is not what was kept."""
        path = self.path(digest)
        try:
            content = gzip.decompress(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigurationError(f"cannot read evidence {digest[:12]}: {error}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise ConfigurationError(f"evidence {digest[:12]} is not what was kept: {path} was changed")
        return content.decode("utf-8")

    def path(self, digest: str) -> Path:
        """Where the text is kept. Raises ValueError for what is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest!r} is no SHA-256 in hexadecimal")
        return self._folder / digest[:2] / f"{digest}.gz"


def evidence_folder(ledger_url: str, folder: Path) -> Path:
    """Beside an SQLite ledger's file (`ledger_url` as SQLAlchemy takes it, absolute); else below `folder`."""
    prefix = "sqlite:///"
    place = Path(ledger_url.removeprefix(prefix).partition("?")[0]).parent if ledger_url.startswith(prefix) else folder
    return place / "evidence"


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and on the disk before it has its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{id(content)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
