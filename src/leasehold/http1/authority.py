"""Authorities and origins: `Host`, `:authority` and `Origin`, compared as RFC 3986 and 6454 say."""

import ipaddress
import re
from typing import Final, NamedTuple

ANY: Final = "*"
"""In a list of origins or of hosts: matches all of them."""

MAX_PORT: Final = 65535

_AUTHORITY: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*)(?::([0-9]{0,5}))?"
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """A host in lower case, without brackets and without the dot of the DNS root, and a port."""

    host: str
    port: int | None


def parse_authority(text: str) -> Authority:
    """Read HOST, HOST:PORT or [IPV6]:PORT; the host may be empty. Raises `ValueError`."""
    found = _AUTHORITY.fullmatch(text)
    if found is None or int(found[2] or 0) > MAX_PORT:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    host = found[1].lower()
    if host.startswith("["):
        host = str(ipaddress.IPv6Address(host[1:-1]))
    return Authority(host.removesuffix("."), int(found[2]) if found[2] else None)


def is_ip_address(host: str) -> bool:
    """Return whether the host of an authority is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Origin(NamedTuple):
    """The origin of a web page: pages of one origin have the same scheme, host and port.

    The port is None only for schemes without a default port.
    """

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default = self.port == _DEFAULT_PORTS.get(self.scheme)
        return f"{self.scheme}://{host}" + ("" if is_default else f":{self.port}")


def origin_at(scheme: str, authority: Authority) -> Origin:
    """Return the origin of pages that are served with this scheme under the authority."""
    port = authority.port
    return Origin(scheme, authority.host, _DEFAULT_PORTS.get(scheme) if port is None else port)


def parse_origin(text: str) -> Origin:
    """Read SCHEME://HOST or SCHEME://HOST:PORT. Raises `ValueError`, also for `null`."""
    scheme, separator, rest = text.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise ValueError(f"{text!r} is not an origin: write SCHEME://HOST[:PORT]")
    authority = parse_authority(rest)
    if not authority.host:
        raise ValueError(f"{text!r} is an origin without a host: write SCHEME://HOST[:PORT]")
    return origin_at(scheme.lower(), authority)
