"""What both ends of a socket need: to find out its address, and to decide who comes in."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from leasehold.rpc.addresses import Address, TcpAddress

P = TypeVar("P", bound=asyncio.BaseProtocol)
Resolved = tuple[socket.AddressFamily, int, int, tuple[str, int] | tuple[str, int, int, int]]
"""Family, type and protocol of a socket, and the address to bind it or to connect it to."""


class Door(asyncio.Protocol, Generic[P]):
    """Stands in for a protocol until its connection is made, with the handshake of TLS behind it.

    Only then is the protocol made, if `may_enter`; else the connection is cut off.
    """

    def __init__(
        self, factory: Callable[[], P], may_enter: Callable[[asyncio.Transport], bool]
    ) -> None:
        self._factory = factory
        self._may_enter = may_enter
        self.protocol: P | None = None
        """Who has the connection; None if it did not come in."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand over, or cut off."""
        transport = cast(asyncio.Transport, transport)
        if not self._may_enter(transport):
            transport.abort()
            return
        self.protocol = self._factory()
        transport.set_protocol(self.protocol)
        self.protocol.connection_made(transport)


def check_scheme(address: Address, tls: ssl.SSLContext | None) -> None:
    """Refuse to do other than what `http://` or `https://` says."""
    if address.is_tls is True and tls is None:
        raise ValueError(
            f"{address} asks for TLS, and there is none: give certificates, or http://"
        )
    if address.is_tls is False and tls is not None:
        raise ValueError(f"{address} asks for no TLS, and there is some: write https://")


async def resolve(address: TcpAddress) -> list[Resolved]:
    """Find all addresses of a host, each once; `socket.gaierror` if there are none."""
    host, port = address.host, address.port
    kind, protocol = socket.SOCK_STREAM, socket.IPPROTO_TCP
    try:  # a number asks nobody, so no thread need wait for the answer
        found = socket.getaddrinfo(
            host, port, type=kind, proto=protocol, flags=socket.AI_NUMERICHOST
        )
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=kind, proto=protocol)
    each = ((family, kind, protocol, where) for family, kind, protocol, _, where in found)
    return list(dict.fromkeys(cast("list[Resolved]", list(each))))
