"""The places where a client finds its servers."""

import ssl
from collections.abc import Iterable
from typing import Final

from leasehold.rpc.addresses import Address, TcpAddress, UnixAddress, parse_address
from leasehold.rpc.dialing import UNIX_SERVER_NAME
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.request_heads import RequestHeads
from leasehold.rpc.sockets import check_scheme
from leasehold.rpc.tls import client_tls

Endpoints = str | Address | Iterable[str | Address]
"""One address, or several: the first one that works is used."""

_EXAMPLE: Final = "127.0.0.1:2379"


class Endpoint:
    """A server: where it is, whether with TLS, and how requests to it begin."""

    __slots__ = ("address", "heads", "tls")

    def __init__(
        self, address: Address, tls: ssl.SSLContext | None, user_agent: bytes, metadata: Fields
    ) -> None:
        check_scheme(address, tls)
        self.address = address
        self.tls = tls
        scheme = b"http" if tls is None else b"https"
        self.heads = RequestHeads(scheme, _authority(address), user_agent, metadata)

    def __str__(self) -> str:
        return str(self.address)


def _authority(address: Address) -> bytes:
    if isinstance(address, UnixAddress):
        return UNIX_SERVER_NAME.encode()
    host = address.host
    if not host.isascii():  # the host only: with its port, the last label may be too long
        host = host.encode("idna").decode()
    return str(TcpAddress(host, address.port)).encode()


def parse_endpoints(
    endpoints: Endpoints, tls: ssl.SSLContext | None, user_agent: str, metadata: Fields
) -> tuple[Endpoint, ...]:
    """Read the addresses of servers; `https://` without a context gets the usual one."""
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls is an ssl.SSLContext, as client_tls() makes it, or None, not {tls!r}")
    agent = _checked_agent(user_agent)
    if isinstance(endpoints, str | TcpAddress | UnixAddress):
        endpoints = (endpoints,)
    given: object = endpoints  # which may be anything
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TypeError(f"endpoints are texts such as {_EXAMPLE!r}, one or more, not {endpoints!r}")
    found = []
    for each in endpoints:
        address = each if isinstance(each, TcpAddress | UnixAddress) else parse_address(each)
        context = client_tls() if tls is None and address.is_tls else tls
        found.append(Endpoint(address, context, agent, metadata))
    if not found:
        raise ValueError(f"a channel needs at least one address, such as {_EXAMPLE}")
    return tuple(found)


def _checked_agent(user_agent: str) -> bytes:
    if not isinstance(user_agent, str):
        raise TypeError(f"a user agent is a text such as 'inventory/1.2', not {user_agent!r}")
    is_plain = user_agent.isascii() and user_agent.isprintable()
    if not is_plain or not user_agent or user_agent != user_agent.strip(" "):
        raise ValueError(f"a user agent is printable ASCII, such as inventory/1.2: {user_agent!r}")
    return user_agent.encode()
