"""The pinned SSH host keys: OpenSSH's known_hosts format, looked up without a scan per host."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from fnmatch import fnmatchcase
from pathlib import Path

from adapters.operator_files import read_operator_bytes
from fleet.errors import ConfigurationError, HostKeyChanged

_Key = tuple[str, bytes]  # type and blob


class KnownHosts:
    """Reads plain, pattern and hashed entries; `@revoked` keys are refused, `@cert-authority` is not used.

    Source of the format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
    """

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._plain: dict[str, list[_Key]] = {}
        self._scanned: list[tuple[str, _Key]] = []
        self._revoked: set[bytes] = set()
        for number, line in enumerate(text.splitlines(), 1):
            fields = line.split()
            if fields and not fields[0].startswith("#"):
                self._add(fields, number)

    @classmethod
    def read(cls, path: Path) -> KnownHosts:
        """Raises ConfigurationError where the file cannot be read."""
        try:
            content = read_operator_bytes(path, "the known host keys in")
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{error.message}; make it with `ssh-keyscan -p PORT HOST` and compare the fingerprints"
            ) from error
        return cls(content.decode("utf-8", errors="replace"), str(path))

    def types(self, host: str, port: int) -> tuple[str, ...]:
        """Types of the keys pinned for this host, so that the server is asked for one of them."""
        return tuple(dict.fromkeys(kind for kind, _ in self._keys(host, port)))

    def check(self, host: str, port: int, kind: str, blob: bytes, node: str) -> None:
        """Raises HostKeyChanged for another or a revoked key, ConfigurationError for an unknown host."""
        shown = f"{kind} {fingerprint(blob)}"
        if blob in self._revoked:
            raise HostKeyChanged(f"offers the revoked host key {shown} (see {self._source})", node=node)
        pinned = self._keys(host, port)
        if (kind, blob) in pinned:
            return
        name = _address(host, port)
        if not pinned:
            raise ConfigurationError(
                f"no host key of {name} is in {self._source}; it offers {shown}. Compare that with the "
                f"host's console, then add it: ssh-keyscan -p {port} {host} >> {self._source}",
                node=node,
            )
        raise HostKeyChanged(
            f"the host key of {name} is {shown}, not the one in {self._source}. If the host was reinstalled, "
            f"remove the old key (ssh-keygen -R '{name}' -f {self._source}) and pin the new one",
            node=node,
            evidence=tuple(f"pinned: {old} {fingerprint(key)}" for old, key in pinned),
        )

    def _add(self, fields: list[str], number: int) -> None:
        mark = fields.pop(0) if fields[0].startswith("@") else ""
        if mark == "@cert-authority":
            return
        try:
            names, kind, blob = fields[0], fields[1], base64.b64decode(fields[2], validate=True)
        except (IndexError, binascii.Error) as error:
            raise ConfigurationError(f"{self._source}:{number}: not a known_hosts entry; mend or remove it") from error
        if mark == "@revoked":
            self._revoked.add(blob)
            return
        for name in names.lower().split(",") if not names.startswith("|1|") else [names]:
            if name.startswith(("|1|", "!")) or "*" in name or "?" in name:
                self._scanned.append((names, (kind, blob)))
                break
            self._plain.setdefault(name, []).append((kind, blob))

    def _keys(self, host: str, port: int) -> list[_Key]:
        name = _address(host.lower(), port)
        found = list(self._plain.get(name, ()))
        return found + [key for names, key in self._scanned if _matches(names, name)]


def fingerprint(blob: bytes) -> str:
    """As `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _address(host: str, port: int) -> str:
    return host if port == 22 else f"[{host}]:{port}"


def _matches(names: str, name: str) -> bool:
    if names.startswith("|1|"):
        _, _, salt, digest = names.split("|", 3)
        wanted = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
        return hmac.compare_digest(wanted, base64.b64decode(digest))
    patterns = [pattern.replace("[", "[[]") for pattern in names.lower().split(",")]
    if any(fnmatchcase(name, pattern[1:]) for pattern in patterns if pattern.startswith("!")):
        return False
    return any(fnmatchcase(name, pattern) for pattern in patterns if not pattern.startswith("!"))
