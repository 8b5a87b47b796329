"""Addresses and rack units as people write them, brought into the fleet file's form.

Every function raises ValueError that says in words what is wrong; a text with credentials is never repeated.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import urlsplit

MAX_UNIT = 60
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_DEFAULT_PORTS = {"https": 443, "http": 80}


def bmc_url(given: str) -> str:
    """`https://HOST[:PORT][/PREFIX]`; a bare host gets https, a trailing slash or /redfish/v1 goes."""
    _check_no_login(given)
    url = given if "://" in given else f"https://{_bracketed(given)}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{given!r} is no address; write https://HOST or https://HOST:PORT") from None
    if parts.scheme not in _DEFAULT_PORTS or parts.query or parts.fragment or re.search(r"\s", url):
        raise ValueError(f"{given!r} is no BMC's address; write https://HOST or https://HOST:PORT")
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError(f"the port of {given!r} does not exist; 1 to 65535")
    host = check_host(parts.hostname or "")
    place = f"[{host}]" if ":" in host else host
    path = re.sub(r"/redfish(/v1)?$", "", parts.path.rstrip("/"))
    return f"{parts.scheme}://{place}{'' if port is None else f':{port}'}{path}"


def ssh_address(given: str) -> str:
    """`HOST` or `HOST:PORT`."""
    _check_no_login(given)
    host, colon, port = given.removeprefix("ssh://").rstrip("/").partition(":")
    if ":" in port or host.startswith("["):
        raise ValueError(f"{given!r}: an IPv6 address cannot stand here; give the host's name")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 2**16):
        raise ValueError(f"the port of {given!r} does not exist; 1 to 65535")
    return check_host(host) + (f":{int(port)}" if colon else "")


def check_host(host: str) -> str:
    """A host name or an address that one machine can have."""
    if ":" in host:
        try:
            return _of_a_machine(IPv6Address(host.partition("%")[0]), host)
        except AddressValueError:
            raise ValueError(f"{host!r} is no IPv6 address") from None
    labels = host.rstrip(".").split(".")
    if host.isdigit() or (len(labels) > 2 and sum(label.isdigit() for label in labels) >= len(labels) - 1):
        try:
            return _of_a_machine(IPv4Address(host), host)
        except AddressValueError:
            raise ValueError(f"{host!r} is no IPv4 address") from None
    if len(host) > 253 or labels[-1].isdigit() or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{host!r} is no host name and no address")
    return host


def rack_unit(given: str) -> int:
    """The lowest unit of a place, from `12`, `12.0`, `U12` or `12U`."""
    match = re.fullmatch(r"(?:[Uu]\s?)?([0-9]{1,6})(?:[.,]([0-9]+))?\s?[Uu]?", given)
    if match is None:
        raise ValueError(f"{given!r} is no rack unit; write a number from 1 to {MAX_UNIT}")
    if match[2] and int(match[2][:9]):
        raise ValueError(f"{given!r}: half units cannot be said; write the lower whole one")
    if not 1 <= int(match[1]) <= MAX_UNIT:
        raise ValueError(f"there is no unit {given}; 1 to {MAX_UNIT}")
    return int(match[1])


def address_key(kind: str, address: str) -> str:
    """What two spellings of one address (`kind` is bmc or ssh) have in common."""
    if kind == "ssh":
        return address.casefold() if ":" in address else f"{address.casefold()}:22"
    parts = urlsplit(address.strip().rstrip("/"))
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return address.casefold()
    return f"{(parts.hostname or '').rstrip('.')}:{port}{parts.path.casefold()}"


def host_of(url: str) -> str:
    """The host of a BMC's URL, lower case, without its port."""
    try:
        return (urlsplit(url).hostname or url).casefold().rstrip(".")
    except ValueError:
        return url.casefold()


def _check_no_login(given: str) -> None:
    if "@" in given:
        raise ValueError("an address must not hold a user or a password; they have their place in the fleet file")


def _bracketed(given: str) -> str:
    """A bare IPv6 address in brackets, as a URL wants it."""
    return f"[{given}]" if given.count(":") > 1 and not given.startswith("[") else given


def _of_a_machine(address: IPv4Address | IPv6Address, given: str) -> str:
    broadcast = isinstance(address, IPv4Address) and address == IPv4Address("255.255.255.255")
    if address.is_unspecified or address.is_multicast or broadcast:
        raise ValueError(f"{given} is not the address of one machine")
    return given
