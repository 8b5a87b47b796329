"""Where a BMC is and how it is entered."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from adapters.operator_files import check_operator_file
from fleet.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class BmcLogin:
    """An account of the BMC. The password never appears in a text of this object."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BmcTls:
    """`ca` is a PEM file; None is the system's store. `verify=False` is a person's choice, no default."""

    verify: bool = True
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class BmcAddress:
    """`origin` is scheme, host and port; `prefix` a path before /redfish (a gateway, a static tree)."""

    origin: str
    prefix: str

    def path(self, uri: str) -> str:
        """The path for an @odata.id, a target or a Location. Raises ConfigurationError for another host."""
        try:
            parts = urlsplit(uri)
        except ValueError as error:
            raise ConfigurationError(f"the BMC gives an address that is none: {uri!r}") from error
        if parts.netloc and f"{parts.scheme}://{parts.netloc}".casefold() != self.origin.casefold():
            raise ConfigurationError(f"the BMC points to another host ({parts.scheme}://{parts.netloc}); not followed")
        path = parts.path if parts.path.startswith("/") else f"/{parts.path}"
        query = f"?{parts.query}" if parts.query else ""
        inside = path if not self.prefix or path.startswith(f"{self.prefix}/") else f"{self.prefix}{path}"
        return inside + query


def parse_address(url: str) -> BmcAddress:
    """Read a BMC's URL; a trailing /redfish/v1 is cut. Raises ConfigurationError that shows one."""
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        valid = False
    if not valid:
        raise ConfigurationError(f"{url!r} is not the URL of a BMC; write https://HOST or https://HOST:PORT")
    if parts.username or parts.password:
        raise ConfigurationError("a URL must not hold credentials; give the user and the password apart from it")
    prefix = parts.path.rstrip("/")
    prefix = prefix.removesuffix("/redfish/v1").removesuffix("/redfish")
    return BmcAddress(origin=f"{parts.scheme}://{parts.netloc}", prefix=prefix)


@lru_cache(maxsize=16)
def tls_context(tls: BmcTls) -> ssl.SSLContext:
    """One context for all BMCs with the same settings: loading a CA store costs more than a whole inventory.

    Raises ConfigurationError for a CA file that cannot be read.
    """
    if tls.ca is not None:
        check_operator_file(Path(tls.ca), "the CA file")
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"cannot read the CA file {tls.ca}: {error}; give a PEM file") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
