"""What a fleet file points to: secrets, keys, and the files that say who is trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from adapters.known_hosts import KnownHosts
from adapters.operator_files import read_operator_text
from adapters.redfish.settings import BmcTls, tls_context
from adapters.ssh import read_key
from fleet.config import FleetSpec, SecretRef
from fleet.errors import ConfigurationError


def read_secret(ref: SecretRef, folder: Path, what: str) -> str:
    """The secret that `ref` points to. Raises ConfigurationError that says what is missing, never its value."""
    if ref.env is not None:
        value = os.environ.get(ref.env)
        if value is None:
            raise ConfigurationError(f"{what}: environment variable {ref.env} is not set")
        return _not_empty(value, f"{what}: environment variable {ref.env}")
    path = folder / str(ref.file)
    return _not_empty(read_operator_text(path, f"{what}, the file").rstrip("\n"), f"{what}: {path}")


def _not_empty(secret: str, where: str) -> str:
    """An empty one would be tried on every BMC, and refused logins lock accounts."""
    if not secret:
        raise ConfigurationError(f"{where} is empty")
    return secret


def key_path(ref: SecretRef, folder: Path) -> Path:
    """The file of ssh.key. By environment the variable holds the file's path, so that no key lies in an environment.

    Raises ConfigurationError where the variable is not set.
    """
    if ref.env is None:
        return folder / str(ref.file)
    value = os.environ.get(ref.env)
    if value is None:
        raise ConfigurationError(f"ssh.key: environment variable {ref.env} is not set (it names the key file)")
    return Path(value)


def check_references(spec: FleetSpec, folder: Path) -> None:
    """Look at everything that a fleet file points to, before an operation depends on it.

    `folder` is the fleet file's. Raises ConfigurationError that lists everything missing or unreadable.
    """
    faults = list(_faults(spec, folder))
    if faults:
        raise ConfigurationError("the fleet file points to what cannot be used:\n" + "\n".join(faults))


def _faults(spec: FleetSpec, folder: Path) -> Iterator[str]:
    ca = None if spec.bmc.tls.ca is None else str(folder / spec.bmc.tls.ca)
    checks: list[Callable[[], object]] = [
        lambda: read_secret(spec.bmc.password, folder, "bmc.password"),
        lambda: tls_context(BmcTls(ca=ca)),
        lambda: read_key(key_path(spec.ssh.key, folder)),
    ]
    if spec.ssh.verify_host_keys:
        checks.append(lambda: KnownHosts.read(folder / spec.ssh.known_hosts))
    checks += _of_metrics(spec, folder)
    for check in checks:
        try:
            check()
        except ConfigurationError as error:
            yield error.message
    for what, file in _signers(spec):
        if not (folder / file).is_file():
            yield f"{what}: no file {folder / file}; it holds PRINCIPAL KEYTYPE KEY lines, see ssh-keygen(1)"


def _of_metrics(spec: FleetSpec, folder: Path) -> list[Callable[[], object]]:
    """Checks of what `metrics` points to."""
    metrics = spec.metrics
    if metrics is None:
        return []
    checks: list[Callable[[], object]] = []
    for name, secret in (("bearer", metrics.bearer), ("password", metrics.password)):
        if secret is not None:
            ref = SecretRef(env=secret.env, file=secret.file)
            checks.append(lambda ref=ref, name=name: read_secret(ref, folder, f"metrics.{name}"))  # type: ignore[misc]
    if metrics.tls.ca is not None:
        checks.append(lambda: tls_context(BmcTls(ca=str(folder / str(metrics.tls.ca)))))
    return checks


def _signers(spec: FleetSpec) -> Iterator[tuple[str, str]]:
    """The allowed-signers files with the key that names them."""
    if spec.bundle_signers is not None:
        yield "bundle_signers", spec.bundle_signers
    named = {("gate.allowed_signers", spec.gate.allowed_signers)} | {
        (f"pools.{name}.gate.allowed_signers", pool.gate.allowed_signers)
        for name, pool in spec.pools.items()
        if pool.gate is not None
    }
    yield from sorted((what, file) for what, file in named if file is not None)
