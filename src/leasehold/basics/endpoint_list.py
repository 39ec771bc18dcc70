"""`EndpointList`: the endpoints that an operator allows a server to connect to.

An entry is `HOST` (with any port), `HOST:PORT`, `unix:/PATH`, or `*` for every host and port. Unix
sockets are allowed only by their paths.

Entries and endpoints are compared in a normal form, and no name is resolved: a host that resolves
to the address of an allowed one is another host. The normal form is also the one to connect to, so
that no two parsers can disagree about a spelling.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress, parse_address

EVERYTHING: Final = "*"
_ANY_PORT: Final = 0
_EXAMPLE: Final = "db.example.org:2379"
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)


class _Entry(NamedTuple):
    host: str
    port: int


class EndpointList:
    """A list of endpoints; it allows only what is on it."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        """Parse the entries. ValueError: one of them is not an entry."""
        self.entries = tuple(entries)
        self._tcp: set[_Entry] = set()
        self._paths: set[str] = set()
        self._everything = False
        for entry in self.entries:
            self._add(entry)

    def _add(self, entry: str) -> None:
        if entry == EVERYTHING:
            self._everything = True
            return
        if EVERYTHING in entry and not entry.startswith("unix:"):
            raise ValueError(
                f"{entry!r} has a wildcard in a host name: write a whole name, such as {_EXAMPLE}, "
                "or * for every host"
            )
        address = _normal(parse_address(entry, default_port=_ANY_PORT), entry)
        if isinstance(address, UnixAddress):
            self._paths.add(address.path)
            return
        if address.is_tls is not None:
            raise ValueError(
                f"{entry!r} has a scheme: write HOST, HOST:PORT, unix:/PATH or *, such as "
                f"{_EXAMPLE}"
            )
        self._tcp.add(_Entry(address.host, address.port))

    def allows(self, endpoint: Address) -> bool:
        """Return whether an endpoint in its normal form is on the list."""
        if isinstance(endpoint, UnixAddress):
            return endpoint.path in self._paths
        if self._everything:
            return True
        either = _Entry(endpoint.host, endpoint.port), _Entry(endpoint.host, _ANY_PORT)
        return not self._tcp.isdisjoint(either)

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __repr__(self) -> str:
        return f"EndpointList({self.entries!r})"


def normal_endpoint(endpoint: str) -> Address:
    """Return an endpoint in its normal form. ValueError: it has none, or is not an endpoint."""
    return _normal(parse_address(endpoint), endpoint)


def _normal(address: Address, text: str) -> Address:
    if isinstance(address, UnixAddress):
        root, *parts = address.path.split("/")
        if root or not all(part not in ("", ".", "..") for part in parts):
            raise ValueError(
                f"{text!r} must have an absolute path without empty parts, '.' and '..'"
            )
        return address
    return TcpAddress(_normal_host(address.host, text), address.port, address.is_tls)


def _normal_host(host: str, text: str) -> str:
    name = host if ":" in host else host.encode("idna").decode().lower().removesuffix(".")
    try:
        number = ipaddress.ip_address(name)
    except ValueError:
        if _NUMBER.fullmatch(name.rpartition(".")[2]):  # 127.1, 0x7f000001: resolvers accept them
            raise ValueError(
                f"{text!r} must have a host name, or an IPv4 address of four decimal numbers"
            ) from None
        return name
    mapped = getattr(number, "ipv4_mapped", None)
    return str(mapped or number)
