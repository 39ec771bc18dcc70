"""Addresses of servers: a host and a port, or a Unix socket; and their text forms.

    127.0.0.1:2379    localhost:2379    [::1]:2379       TCP
    http://127.0.0.1:2379    https://[::1]:2379          TCP, and whether with TLS, as etcd has it
    unix:/run/leasehold.sock    unix:leasehold.sock      a Unix socket

An address is a value: nothing is looked up here.
"""

import ipaddress
import os
from dataclasses import dataclass
from typing import Final

MAX_PORT: Final = 65535

MAX_UNIX_PATH_BYTES: Final = 107
"""The maximum length of a socket path on Linux, without the null byte at its end."""

EXAMPLE_PORT: Final = 2379
_EXAMPLE: Final = f"127.0.0.1:{EXAMPLE_PORT}"
_UNIX: Final = "unix:"
_SCHEMES: Final = {"http": False, "https": True}
_NEVER_IN_A_HOST: Final = frozenset("/?#@\\[]:% \t")


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host, by name or number, and a port; 0 lets the system choose one, for listening."""

    host: str
    port: int
    is_tls: bool | None = None
    """Whether `https://` (True) or `http://` (False) was written; None if neither was."""

    def __post_init__(self) -> None:
        _check_host(self.host)
        if not 0 <= self.port <= MAX_PORT:
            raise ValueError(
                f"port must be from 0 to {MAX_PORT}, got {self.port}; an address is written like "
                f"{_EXAMPLE}"
            )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "" if self.is_tls is None else "https://" if self.is_tls else "http://"
        return f"{scheme}{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket; a relative one starts at the working directory."""

    path: str

    def __post_init__(self) -> None:
        if not self.path or "\0" in self.path:
            raise ValueError(
                f"{str(self)!r} has no path: write unix:PATH, such as unix:/run/x.sock"
            )
        size_bytes = len(os.fsencode(self.path))
        if size_bytes > MAX_UNIX_PATH_BYTES:
            raise ValueError(
                f"path of a Unix socket must have at most {MAX_UNIX_PATH_BYTES} bytes, got "
                f"{size_bytes}: {self.path!r}; use a shorter path or a relative one"
            )

    @property
    def is_tls(self) -> None:
        """None: the text form of a Unix socket does not include whether there is TLS."""
        return

    def __str__(self) -> str:
        slashes = "//" if self.path.startswith("//") else ""  # else they would be read as those
        return f"{_UNIX}{slashes}{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str, default_port: int | None = None) -> Address:
    """Parse an address; one without a port gets `default_port`, or is refused if that is None.

    Raises `ValueError`, which names the text and the correct form.
    """
    if not isinstance(text, str):
        raise TypeError(f"address must be a str such as {_EXAMPLE!r}, not {text!r}")
    if text.startswith(_UNIX):
        return _unix(text)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _tcp(text, text, default_port, None)
    if scheme.lower() not in _SCHEMES:
        raise ValueError(
            f"{text!r} has the unknown scheme {scheme}://: write HOST:PORT, http://HOST:PORT, "
            f"https://HOST:PORT or unix:PATH, such as {_EXAMPLE}"
        )
    return _tcp(text, rest.removesuffix("/"), default_port, _SCHEMES[scheme.lower()])


def _unix(text: str) -> UnixAddress:
    path = text.removeprefix(_UNIX)
    if path.startswith("//"):  # as gRPC has it: unix:///absolute
        path = path.removeprefix("//")
        if not path.startswith("/"):
            raise ValueError(
                f"{text!r} has a host: write unix:{path} for a path from the working directory, or "
                f"unix:/{path} for an absolute one"
            )
    return UnixAddress(path)


def _tcp(text: str, rest: str, default_port: int | None, is_tls: bool | None) -> TcpAddress:
    """Parse `HOST:PORT`, the `rest` of `text`."""
    host, port = _split(text, rest)
    if port is None:
        if default_port is None:
            if host.isascii() and host.isdecimal() and not _is_too_high(host):
                raise ValueError(f"{text!r} has no host: write HOST:PORT, such as 127.0.0.1:{host}")
            raise ValueError(f"{text!r} has no port: write HOST:PORT, such as {_EXAMPLE}")
        port = str(default_port)
    if not (port.isascii() and port.isdecimal()) or _is_too_high(port):
        raise _bad_port(text)
    try:
        return TcpAddress(host, int(port), is_tls)
    except ValueError as error:
        raise ValueError(f"{text!r} is not HOST:PORT: {error}") from None


def _is_too_high(port: str) -> bool:
    return len(port) > len(str(MAX_PORT)) or int(port) > MAX_PORT


def _bad_port(text: str) -> ValueError:
    return ValueError(
        f"{text!r} is not HOST:PORT with a port of 0 to {MAX_PORT}, such as {_EXAMPLE}"
    )


def _split(text: str, rest: str) -> tuple[str, str | None]:
    if rest.startswith("["):
        host, bracket, after = rest[1:].partition("]")
        if not bracket or not _is_ipv6(host) or (after and not after.startswith(":")):
            raise ValueError(
                f"{text!r} is not [IPv6]:PORT, such as [::1]:{EXAMPLE_PORT}; an IPv4 address or a "
                f"name has no brackets, such as {_EXAMPLE}"
            )
        return host, after[1:] if after else None
    host, colon, port = rest.rpartition(":")
    if not colon:
        return rest, None
    if ":" in host:
        _refuse_ambiguous(text, rest)
    return host, port


def _refuse_ambiguous(text: str, rest: str) -> None:
    """Raise `ValueError` with the correct form of an IPv6 address, or with what is wrong."""
    host, _, port = rest.rpartition(":")
    if port.isdecimal() and _is_ipv6(host):
        meant = f"[{host}]:{port}"
    elif _is_ipv6(rest):
        meant = f"[{rest}]:{EXAMPLE_PORT}"
    else:
        raise ValueError(f"{text!r} has too many colons: write HOST:PORT, such as {_EXAMPLE}")
    raise ValueError(f"{text!r} is ambiguous: write {meant}, or {_EXAMPLE} for IPv4")


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _check_host(host: str) -> None:
    """Refuse a host that should not be passed to a resolver."""
    if not host:
        raise ValueError(f"the host is empty: name one, such as {_EXAMPLE}, or localhost")
    if _is_ipv6(host):
        return
    try:
        host.encode("idna")
    except UnicodeError:
        is_name = False
    else:
        is_name = host.isprintable() and not _NEVER_IN_A_HOST.intersection(host)
    if not is_name:
        raise ValueError(
            f"{host!r} is not a host name or an IP address, such as localhost or 127.0.0.1"
        )


def is_local(address: Address) -> bool:
    """Return whether only this machine can reach an address. The only local name is localhost."""
    if isinstance(address, UnixAddress) or address.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False
