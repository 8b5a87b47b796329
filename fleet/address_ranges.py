"""Which addresses a person means by a range: a network, two ends, a hostlist."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from fleet.errors import ConfigurationError
from fleet.hostlist import expand
from fleet.inventory_addresses import check_host

MAX_ADDRESSES = 65_536
"""A /16; a larger range is taken for a typing error."""


def addresses_in(text: str) -> tuple[str, ...]:
    """The hosts of e.g. `10.0.0.0/24`, `10.0.0.1-10.0.0.9`, `10.0.0.1-9`, `10.0.0.[1-9]`, `bmc[001-016].lab`.

    Several are separated by commas or blanks; duplicates are dropped, the order stays. The network's own address and
    its broadcast are left out. Raises ConfigurationError for what is no range, and for more than MAX_ADDRESSES.
    """
    found: dict[str, None] = {}
    for part in re.split(r"[,\s]+(?![^\[]*\])", text.strip()):
        if part:
            found |= dict.fromkeys(_part(part))
        if len(found) > MAX_ADDRESSES:
            raise ConfigurationError(f"{text[:80]!r} is more than {MAX_ADDRESSES} addresses; give smaller ranges")
    if not found:
        raise ConfigurationError("no addresses given; write e.g. 10.0.0.0/24, 10.0.0.1-10.0.0.9 or 10.0.0.[1-9]")
    return tuple(found)


def _part(part: str) -> tuple[str, ...]:
    ends = re.fullmatch(r"([0-9.]+|[0-9A-Fa-f:]+)-([0-9A-Fa-f.:]+)", part)
    try:
        if "/" in part:
            return _network(part)
        if ends is not None:
            return _between(ends[1], ends[2])
        return tuple(check_host(host) for host in expand(part))
    except ValueError as error:
        raise ConfigurationError(f"{part[:80]!r} is no range of addresses: {error}") from error


def _network(part: str) -> tuple[str, ...]:
    network = ip_network(part, strict=False)
    if network.num_addresses > MAX_ADDRESSES + 2:
        raise ValueError(f"it has {network.num_addresses} addresses, more than {MAX_ADDRESSES}")
    return tuple(str(address) for address in network.hosts())


def _between(low: str, high: str) -> tuple[str, ...]:
    first = ip_address(low)
    if isinstance(first, IPv4Address) and high.isdigit():
        high = f"{low.rpartition('.')[0]}.{int(high[:4])}"
    last = ip_address(high)
    if first.version != last.version or int(last) < int(first):
        raise ValueError("its end is before its beginning")
    if int(last) - int(first) >= MAX_ADDRESSES:
        raise ValueError(f"it has more than {MAX_ADDRESSES} addresses")
    kind = IPv4Address if isinstance(first, IPv4Address) else IPv6Address
    return tuple(str(kind(number)) for number in range(int(first), int(last) + 1))
