"""The endpoints of a client: the addresses of its servers, and connecting to one of them.

`parse_endpoints` checks the addresses. `dial` connects a socket, does the TLS handshake, and
describes in plain words why that failed.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Final, cast

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress, parse_address
from leasehold.basics.sockets import P, PendingProtocol, Resolved, check_scheme, resolve
from leasehold.basics.tls import HTTP2, client_tls, reason_of, words_of
from leasehold.errors import ConnectFailed
from leasehold.grpc.client_headers import RequestHeads
from leasehold.http2.header_encoder import Fields

Endpoints = str | Address | Iterable[str | Address]
"""One address, or several: the first one that works is used."""

CONNECT_S: Final = 5.0
"""How long connecting may take, including the TLS handshake."""

UNIX_SERVER_NAME: Final = "localhost"
"""The name in the certificate of a server behind a Unix socket, as in gRPC."""

_EXAMPLE: Final = "127.0.0.1:2379"


class Endpoint:
    """The endpoint of a server: its address, its TLS context, and the headers of its requests."""

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
    """Parse the addresses of servers; `https://` without a context gets the default one."""
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls must be an ssl.SSLContext such as client_tls(), or None; not {tls!r}")
    agent = _checked_agent(user_agent)
    if isinstance(endpoints, str | TcpAddress | UnixAddress):
        endpoints = (endpoints,)
    given: object = endpoints  # it may be anything
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TypeError(
            f"endpoints must be one or more str such as {_EXAMPLE!r}, not {endpoints!r}"
        )
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
        raise TypeError(f"user agent must be a str such as 'inventory/1.2', not {user_agent!r}")
    is_plain = user_agent.isascii() and user_agent.isprintable()
    if not is_plain or not user_agent or user_agent != user_agent.strip(" "):
        raise ValueError(
            f"user agent must be printable ASCII such as inventory/1.2, not {user_agent!r}"
        )
    return user_agent.encode()


# Connecting.


async def dial(
    factory: Callable[[], P],
    address: Address,
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
    timeout_s: float = CONNECT_S,
) -> tuple[asyncio.Transport, P]:
    """Connect to a server, which with TLS must choose HTTP/2, and only then call `factory`.

    The certificate must be for `server_name`; if that is None, for the host of the address.

    Raises `ConnectFailed`. With TLS 1.3, a server that requires a client certificate rejects the
    client only after the connection is made: `connection_lost` gets that error, and `plain_words`
    describes it.
    """
    check_scheme(address, tls)
    if not timeout_s > 0:
        raise ValueError(f"timeout_s must be more than 0, got {timeout_s!r}")
    name = None if tls is None else _checked_name(tls, address, server_name)
    until = asyncio.get_running_loop().time() + timeout_s
    no_answer = f"no answer within {timeout_s:g} s"
    try:
        async with asyncio.timeout_at(until):
            sock = await _connect(address, until)
    except OSError as error:
        failed = _failed(address, no_answer if _is_late(error) else plain_words(error))
        failed.is_refused = isinstance(error, ConnectionRefusedError)
        raise failed from error
    try:
        async with asyncio.timeout_at(until):
            transport, pending = await _shake_hands(factory, sock, tls, name, timeout_s)
    except OSError as error:
        why = f"{no_answer} to the TLS handshake" if _is_late(error) else _in_handshake(error)
        raise _failed(address, why) from error
    if pending.protocol is None:
        raise _failed(address, NO_HTTP2)
    return transport, pending.protocol


def _failed(address: Address, why: str) -> ConnectFailed:
    return ConnectFailed(f"cannot connect to {address}: {why}")


def _is_late(error: OSError) -> bool:
    return isinstance(error, TimeoutError) and error.errno is None  # ours, not the system's


def _checked_name(tls: ssl.SSLContext, address: Address, server_name: str | None) -> str:
    """Return the name that the certificate must have; refuse one that none can have."""
    if server_name is None:
        if isinstance(address, UnixAddress):
            server_name = UNIX_SERVER_NAME
        else:
            server_name = address.host.partition("%")[0]
    try:
        tls.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=server_name)
    except ValueError as error:
        raise ValueError(
            f"{server_name!r} is not a valid server name, such as localhost: {error}"
        ) from None
    return server_name


# The socket.


async def _connect(address: Address, until: float) -> socket.socket:
    if isinstance(address, UnixAddress):
        return _connect_unix(address)
    return await _connect_tcp(address, until)


def _connect_unix(address: UnixAddress) -> socket.socket:
    """Connect without waiting, as Unix sockets do."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(address.path)
    except BlockingIOError:
        sock.close()
        raise OSError("the listen backlog of the server is full") from None
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_tcp(address: TcpAddress, until: float) -> socket.socket:
    """Try all addresses of a host; each but the last gets only its share of the time."""
    loop = asyncio.get_running_loop()
    found = await resolve(address)
    failures: list[OSError] = []
    for tried, each in enumerate(found):
        share_s = (until - loop.time()) / (len(found) - tried)
        try:
            async with asyncio.timeout(share_s):
                return await _connect_one(each)
        except OSError as error:
            failures.append(error)
    reasons = dict.fromkeys(plain_words(each) for each in failures if not _is_late(each))
    if not reasons:
        raise TimeoutError
    if len(reasons) == 1 and not any(map(_is_late, failures)):
        raise failures[-1]
    raise OSError("; ".join(reasons)) from failures[-1]


async def _connect_one(found: Resolved) -> socket.socket:
    family, kind, protocol, where = found
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


# The handshake.


async def _shake_hands(
    factory: Callable[[], P],
    sock: socket.socket,
    tls: ssl.SSLContext | None,
    name: str | None,
    timeout_s: float,
) -> tuple[asyncio.Transport, PendingProtocol[P]]:
    loop = asyncio.get_running_loop()
    is_unix = sock.family == socket.AF_UNIX
    create = loop.create_unix_connection if is_unix else loop.create_connection
    return await create(
        lambda: PendingProtocol(factory, _speaks_http2),
        sock=sock,
        ssl=tls,
        server_hostname=name,
        ssl_handshake_timeout=None if tls is None else 2 * timeout_s,  # our timeout comes first
    )


def _speaks_http2(transport: asyncio.Transport) -> bool:
    ssl_object = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
    return ssl_object is None or ssl_object.selected_alpn_protocol() == HTTP2


# Error texts.

NO_HTTP2: Final = "the server does not support HTTP/2 over TLS (no h2 in ALPN)"
_NO_TLS: Final = "the server does not use TLS on this port"
_OLD_TLS: Final = "the server does not support TLS 1.2 or newer"
_HUNG_UP: Final = (
    "the server closed the connection during the TLS handshake: it may require a client "
    "certificate, or not use TLS on this port"
)
_NOT_TRUSTED: Final = "the certificate is not signed by a trusted authority"

_TLS_REASONS: Final = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _OLD_TLS,
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD_TLS,
    "TLSV1_ALERT_NO_APPLICATION_PROTOCOL": NO_HTTP2,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "a client certificate is required",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client certificate is missing or was refused",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the server refused the handshake: it may require a client certificate or other ciphers"
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client certificate has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not trust the CA of the client certificate",
    "TLSV1_UNRECOGNIZED_NAME": "the server does not have that name",
}

_VERIFICATION: Final = {
    9: "the certificate is not valid yet",
    10: "the certificate has expired",
    18: _NOT_TRUSTED,
    19: _NOT_TRUSTED,
    20: _NOT_TRUSTED,
    21: _NOT_TRUSTED,
}
"""OpenSSL's certificate errors by number (X509_V_ERR_...)."""

_OTHER_NAME: Final = (62, 64)


def plain_words(error: BaseException) -> str:
    """Describe for people why a connection was not made, or was lost."""
    match error:
        case ssl.SSLCertVerificationError():
            return _about_certificate(error)
        case ssl.SSLError():
            return _TLS_REASONS.get(reason_of(error), f"TLS failed: {words_of(error)}")
        case socket.gaierror():
            return f"the host cannot be found: {error.strerror}"
        case OSError():
            why = os.strerror(error.errno) if error.errno else str(error)  # loops have other texts
            return why or "the connection was closed"
        case _:
            return str(error) or type(error).__name__


def _in_handshake(error: OSError) -> str:
    if isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return _HUNG_UP
    return plain_words(error)


def _about_certificate(error: ssl.SSLCertVerificationError) -> str:
    message = error.verify_message.rstrip(".")
    if error.verify_code in _OTHER_NAME:
        return f"the certificate is not valid for the name {message.rpartition(' for ')[2]}"
    return _VERIFICATION.get(error.verify_code, f"the certificate is not valid: {message}")
