"""One connection through a wire: bytes that arrive at one end are sent at the other, or wait.

Theory of operation. A connection has two ends, a socket to the client and a socket to the server,
and so two ways, *to the server* and *to the client*. A way *carries* unless the wire is cut that
way or the connection is held that way. Bytes that arrive while it does not carry wait in memory, in
order, and are sent as soon as it carries again, which is the effect of TCP's retransmissions. If
much waits, no more is read, so that the sender's own buffers fill up, and nothing is ever lost.

The socket to the server is opened when nothing is cut: a client that connects meanwhile gets an
accepted connection without answers. One that is closed before it reached the server never existed
there.

An end of the connection is relayed like bytes, and after them, with one exception. A client that
closes a connection *which does not carry to the server* leaves an **orphan**: its bytes still
arrive later, and the server is not notified that the client is gone, as if the client's machine had
crashed. The worst delayed request is one that the server has time to execute. Its answers are
dropped.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Literal, TypeAlias, cast

from leasehold.basics.addresses import TcpAddress

HELD_MAX_BYTES: Final = 1 << 20
"""Bytes that may wait in each direction of a connection; the rest stays in the sender's buffers."""

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, with a timeout of 0."""

Way: TypeAlias = Literal["to_server", "to_client"]


class RelayedConnection:
    """A connection of a client, and its continuation to the server. Use it on the loop only."""

    def __init__(
        self,
        server: TcpAddress,
        cut: AbstractSet[Way],
        on_end: Callable[["RelayedConnection"], None],
    ) -> None:
        """Make one. `cut` is shared with the wire, which calls `changed` after changing it."""
        self.client = _RelaySocket(self, "to_server")
        self.server = _RelaySocket(self, "to_client")
        self.client.other, self.server.other = self.server, self.client
        self.held: set[Way] = set()
        """The ways that are held; call `changed` after a change."""
        self.is_orphan = False
        self.is_over = False
        self._address = server
        self._cut = cut
        self._on_end = on_end
        self._dialing: asyncio.Task[None] | None = None

    def carries(self, way: Way) -> bool:
        """Whether arriving bytes are sent on."""
        return way not in self._cut and way not in self.held

    def waiting(self, way: Way) -> bytearray:
        """The waiting bytes."""
        return (self.client if way == "to_server" else self.server).waiting

    def changed(self) -> None:
        """Apply a change of `cut` or `held`."""
        if self._dialing is None and not self._cut and not self.is_over:
            self._dialing = asyncio.ensure_future(self._dial())
        for end in (self.client, self.server):
            if not self.is_over:
                end.flush()

    async def _dial(self) -> None:
        host, port = self._address.host, self._address.port
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, host, port)
        except OSError:
            self.end(reset=True)

    # Events of the ends.

    def ended(self, end: "_RelaySocket") -> None:
        """Called when an end will receive nothing more."""
        if self.is_over:
            return
        if end is self.client and self._dialing is None:
            self.end(reset=True)
        elif end is self.client and not self.carries(end.way):
            self.orphan()
        elif self.is_orphan:
            if end is self.server:
                self.end(reset=True)
        else:
            end.flush()

    def orphan(self) -> None:
        """Close the client's socket without notifying the server."""
        if self._dialing is None:
            self.end(reset=True)
        elif not self.is_orphan:
            self.is_orphan = True
            self.server.waiting.clear()
            self.server.regulate()
            self.client.close(reset=True)

    def passed_on_end(self, *, is_reset: bool) -> None:
        """Called when the end of one side was relayed to the other."""
        if is_reset or (self.client.has_passed_on and self.server.has_passed_on):
            self.end(reset=is_reset)

    def end(self, *, reset: bool) -> None:
        """Close both sockets. Waiting bytes are lost."""
        if self.is_over:
            return
        self.is_over = True
        if self._dialing is not None:
            self._dialing.cancel()
        self.client.close(reset=reset)
        self.server.close(reset=reset)
        self._on_end(self)


class _RelaySocket(asyncio.Protocol):
    """A socket, and the bytes received there that were not sent at the other end."""

    def __init__(self, connection: RelayedConnection, way: Way) -> None:
        self.other: _RelaySocket
        self.way = way
        """The direction of the bytes that are received here."""
        self.waiting = bytearray()
        self.has_passed_on = False
        """Whether the end of input was relayed to the other end."""
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._has_ended = False
        self._is_reset = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._connection.is_over:  # closed in the meantime
            self.close(reset=True)
        else:
            self._connection.changed()

    def data_received(self, data: bytes) -> None:
        if self._connection.is_orphan and self.way == "to_client":
            return
        self.waiting += data
        self.flush()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._connection.ended(self)
        return True  # the other way stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = self._is_reset = True
        self._connection.ended(self)

    def pause_writing(self) -> None:
        self._is_full = True
        self.other.regulate()

    def resume_writing(self) -> None:
        self._is_full = False
        self.other.regulate()

    def flush(self) -> None:
        """Send waiting bytes, if this way carries."""
        out = self.other._transport  # noqa: SLF001  of the same class
        if out is not None and self._connection.carries(self.way):
            if self.waiting and not out.is_closing():
                out.write(bytes(self.waiting))
            self.waiting.clear()
            if self._has_ended and not self._connection.is_orphan:
                self._pass_on_end(out)
        self.regulate()

    def _pass_on_end(self, out: asyncio.Transport) -> None:
        if not self._is_reset and not self.has_passed_on and not out.is_closing():
            with contextlib.suppress(OSError):  # it is gone as well, which is detected soon
                out.write_eof()
        self.has_passed_on = True
        self._connection.passed_on_end(is_reset=self._is_reset)

    def regulate(self) -> None:
        """Resume or pause reading."""
        if self._transport is None or self._transport.is_closing():
            return
        if self.other._is_full or len(self.waiting) >= HELD_MAX_BYTES:  # noqa: SLF001
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self, *, reset: bool) -> None:
        """Close the socket, if there is one: with a reset, or after all is sent."""
        if self._transport is None:
            return
        if reset:
            sock = self._transport.get_extra_info("socket")
            if not self._transport.is_closing():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
        else:
            self._transport.close()
