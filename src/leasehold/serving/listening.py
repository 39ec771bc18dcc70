"""Listening sockets: TCP and Unix, with TLS or without.

A name such as localhost has several addresses. All of them are bound, on one port, so that a client
finds the server whichever address it tries first.

A Unix socket is a file, which outlives a process that was killed. A socket without a listening
process is replaced; one with a listening process is in use; any other file must not be removed. A
server holds a lock on the directory while it binds a socket, so that of two servers that start
together neither takes the other's socket for a dead one.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress
from leasehold.basics.sockets import PendingProtocol, Resolved, check_scheme, resolve
from leasehold.serving.accepting import Acceptor, ConnectionSlots

BACKLOG: Final = 1024
"""Connections that the system queues before we accept them."""

HANDSHAKE_S: Final = 10.0
"""How long a client may take for the TLS handshake."""

SHUTDOWN_S: Final = 5.0
"""How long a client may take for the TLS shutdown."""

SOCKET_MODE: Final = 0o600
"""The mode of a Unix socket: only its owner may connect."""

SAME_PORT_TRIES: Final = 16
"""How many free ports are tried until one is free on all addresses of a name."""

LOCK_S: Final = 2.0
"""How long other processes may take to bind a Unix socket in the same directory."""

_LOCK_POLL_S: Final = 0.01
_NOT_ON_THIS_MACHINE: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

Bound = tuple[socket.socket, Address]


class UnlimitedSlots:
    """Admits every connection."""

    def admit(self, peer: str, make_room: Callable[[], bool]) -> bool:
        return True

    def release(self) -> None:
        """Do nothing: connections are not counted."""

    def make_room(self) -> bool:
        """Return False: connections are not tracked here."""
        return False


class ListeningSockets:
    """Bound sockets. The system queues connections from now on; `start` accepts them."""

    def __init__(
        self,
        bound: list[Bound],
        factory: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None,
        handshake_s: float,
        shutdown_s: float,
        slots: ConnectionSlots,
    ) -> None:
        self.addresses = [address for _, address in bound]
        """The bound addresses: numbers for names, and the port that was chosen for 0."""
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
        """Accept connections, the queued ones first."""
        for sock in self._sockets:
            self._acceptors.append(
                Acceptor(
                    sock,
                    self._make_pending,
                    self._tls,
                    self._handshake_s,
                    self._shutdown_s,
                    self._slots,
                )
            )

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """Use another context for the next handshakes, if there is TLS at all."""
        if self._tls is not None:
            self._tls = tls
            for acceptor in self._acceptors:
                acceptor.tls = tls

    def _make_pending(self) -> PendingProtocol[asyncio.BaseProtocol]:
        return PendingProtocol(self._factory, self._is_admitted)

    def _is_admitted(self, _: asyncio.Transport) -> bool:
        return not self._is_closed  # a handshake may end later than that

    def close(self) -> None:
        """Accept no more connections, and remove the file of a Unix socket. Connections stay."""
        if self._is_closed:
            return
        self._is_closed = True
        for path, ours in self._files:  # before closing: then another may have its inode
            with contextlib.suppress(OSError):
                if os.path.samestat(path.lstat(), ours):
                    path.unlink()
        for acceptor in self._acceptors:
            acceptor.close()
        for sock in self._sockets[len(self._acceptors) :]:
            sock.close()

    async def wait_closed(self) -> None:
        """Wait until the addresses can be bound again. Connections may stay for longer."""
        # a loop closes them soon, without a notification
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
    slots: ConnectionSlots | None = None,
) -> ListeningSockets:
    """Bind an address; after `start`, each connection gets a protocol from `factory`.

    With TLS it gets one when the handshake is done. `mode` is that of a Unix socket's file. With
    `slots`, each connection takes one before its protocol is made, which has to return it.

    Raises `OSError` if the address cannot be bound: its `strerror` is one line for people.
    """
    check_scheme(address, tls)
    if isinstance(address, UnixAddress):
        bound: list[Bound] = [(await _bind_unix(address, mode), address)]
    else:
        bound = await _bind_tcp(address)
    return ListeningSockets(bound, factory, tls, handshake_s, shutdown_s, slots or UnlimitedSlots())


def _refusal(address: Address, error: OSError) -> OSError:
    """Return the same kind of error, with a text of one line."""
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
    """Bind all addresses of this machine, on the port of the first; raise if there is none."""
    bound: list[Bound] = []
    port, failure = address.port, None
    try:
        for each in found:
            wanted = replace(address, host=each[3][0], port=port)
            try:
                sock = _bind_one(each, port)
            except OSError as error:
                failure = _refusal(wanted, error)
                if error.errno in _NOT_ON_THIS_MACHINE:  # as for localhost without IPv6
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
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 is bound separately
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
        return await _bind_file(address.path, mode)
    except OSError as error:
        raise _refusal(address, error) from None


# Unix sockets.


async def _bind_file(path: str, mode: int) -> socket.socket:
    """Return a socket that listens at a path; raise `OSError` if that fails."""
    directory = await _lock(os.path.dirname(path) or ".")  # noqa: PTH120  as it was written
    try:
        return _bind_socket(path, mode)
    finally:
        os.close(directory)


async def _lock(directory: str) -> int:
    """Lock a directory against other servers; the lock is released when the result is closed."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        async with asyncio.timeout(LOCK_S):
            while not _try_lock(fd):  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(_LOCK_POLL_S)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, TimeoutError):
            why = f"another process has locked {directory} for more than {LOCK_S:g} s"
            raise BlockingIOError(errno.EWOULDBLOCK, why) from None
        raise
    return fd


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bind_socket(path: str, mode: int) -> socket.socket:
    _make_room(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(path)
        Path(path).chmod(mode)  # connections are refused until the next line
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _make_room(path: str) -> None:
    """Remove a socket without a listening process."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(
            errno.EEXIST, "the path exists and is not a socket: remove it, or use another path"
        )
    if _is_answered(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    Path(path).unlink()


def _is_answered(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # its backlog is full
            return True
    return True
