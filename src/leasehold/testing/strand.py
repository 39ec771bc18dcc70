"""One connection through a wire: what comes in at one end goes out at the other, or waits.

Theory of operation. A strand has two ends, a socket to the client and a socket to the server, and
so two ways, *to the server* and *to the client*. A way *carries* unless the wire is cut that way
or the strand is held that way. What comes in while it does not carry waits in memory, in order,
and goes out as soon as it carries again, which is what TCP's retransmissions come to. If much
waits, no more is read, so that the sender's own buffers fill up, and nothing is ever lost.

The socket to the server is made when nothing is cut: a client that connects meanwhile gets an
accepted connection on which nobody answers. One that is given up before it reached the server was
never there.

An end of the connection goes the same way as bytes, and after them, with one exception. A client
that gives up a connection *which does not carry to the server* leaves an **orphan**: what it has
sent still arrives later, and the server does not learn that there is nobody to answer, as if the
client's machine had gone. The worst straggler is one that the server has time to execute. What it
answers goes nowhere.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Literal, TypeAlias, cast

from leasehold.rpc.addresses import TcpAddress

HELD_MAX_BYTES: Final = 1 << 20
"""What may wait in each direction of a connection; the rest waits in the sender's buffers."""

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""

Way: TypeAlias = Literal["to_server", "to_client"]


class Strand:
    """A connection of a client, and its continuation to the server. For the loop only."""

    def __init__(
        self, server: TcpAddress, cut: AbstractSet[Way], on_end: Callable[["Strand"], None]
    ) -> None:
        """Make one; `cut` is the wire's, which it changes, and calls `changed` then."""
        self.client = _End(self, "to_server")
        self.server = _End(self, "to_client")
        self.client.other, self.server.other = self.server, self.client
        self.held: set[Way] = set()
        """The ways that are held; `changed` is to be called after a change."""
        self.is_orphan = False
        self.is_over = False
        self._address = server
        self._cut = cut
        self._on_end = on_end
        self._dialing: asyncio.Task[None] | None = None

    def carries(self, way: Way) -> bool:
        """Whether what comes in goes out."""
        return way not in self._cut and way not in self.held

    def waiting(self, way: Way) -> bytearray:
        """What waits."""
        return (self.client if way == "to_server" else self.server).waiting

    def changed(self) -> None:
        """Do what may be done, now that it is cut or held otherwise."""
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

    # What the ends tell.

    def ended(self, end: "_End") -> None:
        """Learn that nothing more comes in at an end."""
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
        """Let the client go, and not tell the server."""
        if self._dialing is None:
            self.end(reset=True)
        elif not self.is_orphan:
            self.is_orphan = True
            self.server.waiting.clear()
            self.server.regulate()
            self.client.close(reset=True)

    def passed_on_end(self, *, is_reset: bool) -> None:
        """Learn that one end has been told of the end of the other."""
        if is_reset or (self.client.has_passed_on and self.server.has_passed_on):
            self.end(reset=is_reset)

    def end(self, *, reset: bool) -> None:
        """Close both sockets. What waits is lost."""
        if self.is_over:
            return
        self.is_over = True
        if self._dialing is not None:
            self._dialing.cancel()
        self.client.close(reset=reset)
        self.server.close(reset=reset)
        self._on_end(self)


class _End(asyncio.Protocol):
    """A socket, and what came in there and has not gone out at the other end."""

    def __init__(self, strand: Strand, way: Way) -> None:
        self.other: _End
        self.way = way
        """Where to goes what comes in here."""
        self.waiting = bytearray()
        self.has_passed_on = False
        """Whether the other end was told that nothing more comes."""
        self._strand = strand
        self._transport: asyncio.Transport | None = None
        self._is_full = False
        self._has_ended = False
        self._is_reset = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._strand.is_over:  # which it was in the meantime
            self.close(reset=True)
        else:
            self._strand.changed()

    def data_received(self, data: bytes) -> None:
        if self._strand.is_orphan and self.way == "to_client":
            return
        self.waiting += data
        self.flush()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._strand.ended(self)
        return True  # the other way goes on

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = self._is_reset = True
        self._strand.ended(self)

    def pause_writing(self) -> None:
        self._is_full = True
        self.other.regulate()

    def resume_writing(self) -> None:
        self._is_full = False
        self.other.regulate()

    def flush(self) -> None:
        """Pass on what waits, if this way carries."""
        out = self.other._transport  # noqa: SLF001  of the same class
        if out is not None and self._strand.carries(self.way):
            if self.waiting and not out.is_closing():
                out.write(bytes(self.waiting))
            self.waiting.clear()
            if self._has_ended and not self._strand.is_orphan:
                self._pass_on_end(out)
        self.regulate()

    def _pass_on_end(self, out: asyncio.Transport) -> None:
        if not self._is_reset and not self.has_passed_on and not out.is_closing():
            with contextlib.suppress(OSError):  # it has gone as well, and that is seen soon
                out.write_eof()
        self.has_passed_on = True
        self._strand.passed_on_end(is_reset=self._is_reset)

    def regulate(self) -> None:
        """Read more, or no more for now."""
        if self._transport is None or self._transport.is_closing():
            return
        if self.other._is_full or len(self.waiting) >= HELD_MAX_BYTES:  # noqa: SLF001
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self, *, reset: bool) -> None:
        """Close the socket, if there is one: with a reset, or when all is sent."""
        if self._transport is None:
            return
        if reset:
            sock = self._transport.get_extra_info("socket")
            if not self._transport.is_closing():
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
        else:
            self._transport.close()
