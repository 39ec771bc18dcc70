"""Sockets that wait for clients: TCP and Unix, with TLS or without.

A name such as localhost has several addresses. All of them are bound, on one port: a client that
tries another of them first finds the server as well.
"""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from leasehold.rpc.accepting import Acceptor, Slots
from leasehold.rpc.addresses import Address, TcpAddress, UnixAddress
from leasehold.rpc.socket_files import bind_file
from leasehold.rpc.sockets import Door, Resolved, check_scheme, resolve

BACKLOG: Final = 1024
"""Connections that the system takes for us before we do."""

HANDSHAKE_S: Final = 10.0
"""How long a client may take for the handshake of TLS."""

SHUTDOWN_S: Final = 5.0
"""How long a client may take to say good-bye, in TLS."""

SOCKET_MODE: Final = 0o600
"""Who may connect to a Unix socket: its owner."""

SAME_PORT_TRIES: Final = 16
"""How many free ports are tried until one is free on all addresses of a name."""

_NOT_ON_THIS_MACHINE: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

Bound = tuple[socket.socket, Address]


class Unlimited:
    """Slots for every connection."""

    def admit(self, peer: str, make_room: Callable[[], bool]) -> bool:
        """Admit it."""
        return True

    def release(self) -> None:
        """Do nothing: they are not counted."""

    def make_room(self) -> bool:
        """Return False: no connection is known here."""
        return False


class Listening:
    """Bound sockets. The system takes connections from now on; `start` lets them in."""

    def __init__(
        self,
        bound: list[Bound],
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None,
        handshake_s: float,
        shutdown_s: float,
        slots: Slots,
    ) -> None:
        self.addresses = [address for _, address in bound]
        """What was really bound: numbers for names, and the port that was chosen for 0."""
        self._sockets = [sock for sock, _ in bound]
        self._files = [
            (Path(address.path).absolute(), os.lstat(address.path))
            for address in self.addresses
            if isinstance(address, UnixAddress)
        ]
        self._factory = factory
        self._tls = tls
        self._handshake_s = handshake_s
        self._shutdown_s = shutdown_s
        self._slots = slots
        self._acceptors: list[Acceptor] = []
        self._is_closed = False

    async def start(self) -> None:
        """Let clients in, those first that have waited for it."""
        for sock in self._sockets:
            self._acceptors.append(
                Acceptor(
                    sock, self._door, self._tls, self._handshake_s, self._shutdown_s, self._slots
                )
            )

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another context for the next handshakes, if there is TLS at all."""
        if self._tls is not None:
            self._tls = tls
            for acceptor in self._acceptors:
                acceptor.tls = tls

    def _door(self) -> Door[asyncio.BaseProtocol]:
        return Door(self._factory, self._may_enter)

    def _may_enter(self, _: asyncio.Transport) -> bool:
        return not self._is_closed  # a handshake may end later than that

    def close(self) -> None:
        """Let nobody in any more, and remove the file of a Unix socket. Connections stay."""
        if self._is_closed:
            return
        self._is_closed = True
        for path, ours in self._files:  # not after closing: then another may have its number
            with contextlib.suppress(OSError):
                if os.path.samestat(path.lstat(), ours):
                    path.unlink()
        for acceptor in self._acceptors:
            acceptor.close()
        for sock in self._sockets[len(self._acceptors) :]:
            sock.close()

    async def wait_closed(self) -> None:
        """Wait until the addresses can be taken again. Connections may be there for longer."""
        # a loop closes them soon, and does not say so
        while any(sock.fileno() >= 0 for sock in self._sockets):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def listen(
    factory: Callable[[], asyncio.BaseProtocol],
    address: Address,
    tls: ssl.SSLContext | None = None,
    *,
    handshake_s: float = HANDSHAKE_S,
    shutdown_s: float = SHUTDOWN_S,
    mode: int = SOCKET_MODE,
    slots: Slots | None = None,
) -> Listening:
    """Bind an address; after `start`, each connection gets a protocol from `factory`.

    With TLS it gets one when the handshake is done. `mode` is that of a Unix socket's file. With
    `slots`, each connection takes one before its protocol is made, which has to return it.

    Raises `OSError` if the address cannot be had: its `strerror` is one line for people.
    """
    check_scheme(address, tls)
    if isinstance(address, UnixAddress):
        bound: list[Bound] = [(await _bind_unix(address, mode), address)]
    else:
        bound = await _bind_tcp(address)
    return Listening(bound, factory, tls, handshake_s, shutdown_s, slots or Unlimited())


def _refusal(address: Address, error: OSError) -> OSError:
    """Say it in one line, as the same kind of error."""
    return type(error)(error.errno, f"cannot listen on {address}: {error.strerror or error}")


async def _bind_tcp(address: TcpAddress) -> list[Bound]:
    try:
        found = await resolve(address)
    except OSError as error:
        raise _refusal(address, error) from None
    for _ in range(SAME_PORT_TRIES):
        try:
            return _bind_all(address, found)
        except OSError as error:
            failure = error
            is_worth_another = address.port == 0 and error.errno == errno.EADDRINUSE
            if not is_worth_another:
                break
    raise failure


def _bind_all(address: TcpAddress, found: list[Resolved]) -> list[Bound]:
    """Bind all that this machine has, on the port of the first; raise if there is none."""
    bound: list[Bound] = []
    port, failure = address.port, None
    try:
        for each in found:
            wanted = replace(address, host=each[3][0], port=port)
            try:
                sock = _bind_one(each, port)
            except OSError as error:
                failure = _refusal(wanted, error)
                if error.errno in _NOT_ON_THIS_MACHINE:  # IPv6 is off, say, and localhost has it
                    continue
                raise failure from None
            port = sock.getsockname()[1]
            bound.append((sock, replace(wanted, port=port)))
    except BaseException:
        _close_all(bound)
        raise
    if failure is not None and not bound:
        raise failure
    return bound


def _bind_one(found: Resolved, port: int) -> socket.socket:
    family, kind, protocol, (host, _, *rest) = found
    sock = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only if it is named
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 is bound by itself
        sock.bind((host, port, *rest))
        sock.listen(BACKLOG)  # else a second one could bind it too, and would fail only later
    except BaseException:
        sock.close()
        raise
    return sock


def _close_all(bound: Iterable[Bound]) -> None:
    for sock, _ in bound:
        sock.close()


async def _bind_unix(address: UnixAddress, mode: int) -> socket.socket:
    try:
        return await bind_file(address.path, mode, BACKLOG)
    except OSError as error:
        raise _refusal(address, error) from None
