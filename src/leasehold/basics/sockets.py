"""Functions for both ends of a socket: addresses, keep-alive, and admission of connections."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from leasehold.basics.addresses import Address, TcpAddress

KEEPALIVE_IDLE_S: Final = 60
"""Silence on a TCP connection after which the system sends keep-alive probes."""

KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 6
"""Probes without an answer after which the connection is dropped."""

_GONE_S: Final = KEEPALIVE_IDLE_S + KEEPALIVE_INTERVAL_S * KEEPALIVE_PROBES
_KEEP_ALIVE: Final = {
    "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
    "TCP_KEEPALIVE": KEEPALIVE_IDLE_S,  # macOS calls it so
    "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
    "TCP_KEEPCNT": KEEPALIVE_PROBES,
    "TCP_USER_TIMEOUT": 1000 * _GONE_S,  # also for sent data that is not acknowledged
}

P = TypeVar("P", bound=asyncio.BaseProtocol)
Resolved = tuple[socket.AddressFamily, int, int, tuple[str, int] | tuple[str, int, int, int]]
"""Family, type and protocol of a socket, and the address to bind it or to connect it to."""


class PendingProtocol(asyncio.Protocol, Generic[P]):
    """Stands in for a protocol until its connection is made, including the TLS handshake.

    Only then is the protocol created, if `is_admitted`; else the connection is aborted.
    """

    def __init__(
        self, factory: Callable[[], P], is_admitted: Callable[[asyncio.Transport], bool]
    ) -> None:
        self._factory = factory
        self._is_admitted = is_admitted
        self.protocol: P | None = None
        """The protocol that has the connection; None if it was not admitted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand the connection over, or abort it."""
        transport = cast(asyncio.Transport, transport)
        if not self._is_admitted(transport):
            transport.abort()
            return
        self.protocol = self._factory()
        transport.set_protocol(self.protocol)
        self.protocol.connection_made(transport)


def keep_alive(sock: socket.socket) -> None:
    """Have the system detect a lost peer on a TCP connection that nothing is sent on.

    HTTP/1.1 has no pings: a watcher whose machine has lost its power would stay for ever.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():  # not every system has all of them
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


UNIX_PEER: Final = "a Unix socket"
"""The peer of a Unix socket, which has no address."""


def peer_of(address: object) -> str:
    """Format the address of a peer, as returned by a socket, for the log."""
    match address:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case _:  # the peer of a Unix socket has no name
            return UNIX_PEER


def check_scheme(address: Address, tls: ssl.SSLContext | None) -> None:
    """Raise if `http://` or `https://` contradicts `tls`."""
    if address.is_tls is True and tls is None:
        raise ValueError(
            f"{address} requires TLS, but no certificates were given: give certificates, or use "
            "http://"
        )
    if address.is_tls is False and tls is not None:
        raise ValueError(f"{address} was given together with a TLS context: use https://")


async def resolve(address: TcpAddress) -> list[Resolved]:
    """Return all addresses of a host, each once; raise `socket.gaierror` if there are none."""
    host, port = address.host, address.port
    kind, protocol = socket.SOCK_STREAM, socket.IPPROTO_TCP
    try:  # a numeric host needs no lookup, hence no thread
        found = socket.getaddrinfo(
            host, port, type=kind, proto=protocol, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=kind, proto=protocol)
    each = ((family, kind, protocol, where) for family, kind, protocol, _, where in found)
    return list(dict.fromkeys(cast("list[Resolved]", list(each))))
