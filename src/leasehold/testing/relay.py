"""A relay to a server, for tests, which can be cut and mended.

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
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, TypeVar, cast

from leasehold.basics.addresses import TcpAddress, parse_address
from leasehold.basics.durations import check_seconds
from leasehold.testing.background_loop import Background

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


if TYPE_CHECKING:
    from leasehold.engine.key import BytesOrText

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"

CONNECTIONS_MAX: Final = 1000
"""Connections through one wire, including abandoned ones; further ones are reset."""

Direction: TypeAlias = Literal["both", "to_server", "to_client"]

_WAYS: Final[dict[Direction, tuple[Way, ...]]] = {
    "both": ("to_server", "to_client"),
    "to_server": ("to_server",),
    "to_client": ("to_client",),
}

T = TypeVar("T")


class Wire:
    """A port of 127.0.0.1 that is relayed to a server of any kind, given by its HOST:PORT.

    with Wire("127.0.0.1:2379") as wire, leasehold.sync.connect(wire.endpoint) as client:
        wire.cut(seconds=3.0)

    Bytes pass unchanged in both directions, unless the wire is cut or held. Give each client its
    own wire, and for a cluster one to each member. It may be used from any thread; when a method
    returns, its effect is complete.
    """

    def __init__(self, endpoint: str, *, background: Background | None = None) -> None:
        """Relay to `endpoint`, in its own thread or in `background`."""
        address = parse_address(endpoint)
        if not isinstance(address, TcpAddress):
            raise ValueError(
                f"endpoint must be HOST:PORT, such as 127.0.0.1:2379, not {endpoint!r}"
            )
        self._address = address
        self._cut: set[Way] = set()
        self._connections: set[RelayedConnection] = set()
        self._mending: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._owns_thread = background is None
        self._there = Background("leasehold wire") if background is None else background
        self._listening, self._port = self._there.ask(self._listen())

    @property
    def endpoint(self) -> str:
        """The address for the client, as `leasehold.connect` takes it."""
        return str(TcpAddress(HOST, self._port, self._address.is_tls))

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._is_closed

    # A partition.

    def cut(
        self,
        direction: Direction = "both",
        *,
        seconds: float | timedelta | None = None,
        reset: bool = False,
    ) -> None:
        """Let nothing through, or nothing in one direction, for some seconds or until `mend`.

        Connections stay open, new ones are accepted, and all are silent. Bytes sent meanwhile wait,
        in order, and arrive late; with `reset`, connections are reset when the seconds are over.
        With "to_client" requests are executed and answers held back.

        A direction that is cut stays so if the other is cut later; the last `seconds` counts.
        """
        ways = _ways_of(direction)
        limit_s = None if seconds is None else check_seconds(seconds, "seconds")
        if reset and limit_s is None:
            raise ValueError(
                "reset needs seconds, after which the connections are reset: give seconds, or "
                "call mend(reset=True)"
            )
        self._do(lambda: self._cut_on_loop(ways, limit_s, reset=reset))

    def mend(self, *, reset: bool = False) -> None:
        """Let everything through again: first the waiting bytes, also of clients that gave up.

        With `reset` the waiting bytes are dropped: connections are reset, and can be made anew.
        """
        self._do(lambda: self._mend_on_loop(reset=reset))

    def reset(self) -> None:
        """Reset all existing connections, at both ends. Waiting bytes are lost."""
        self._do(self._reset_on_loop)

    # Delayed requests.

    def hold_current(self, direction: Direction = "both") -> None:
        """Let nothing through on the existing connections. New ones work."""
        ways = _ways_of(direction)
        self._do(lambda: self._hold_on_loop(ways))

    def hang_up_held(self) -> None:
        """Reset held connections at the client's end only.

        Bytes that the client had sent stay held, and arrive when they are released. The server is
        not notified.
        """
        self._do(self._hang_up_on_loop)

    def release_held(self) -> None:
        """Let held bytes through, also of connections that the client has closed."""
        self._do(self._release_on_loop)

    def held_bytes(self, direction: Direction = "both") -> int:
        """Return how many bytes wait, because of a cut or on held connections."""
        ways = _ways_of(direction)
        return self._do(lambda: sum(len(each) for each in self._waiting(ways)))

    def holds(self, data: "BytesOrText", direction: Direction = "both") -> bool:
        """Return whether these bytes are among those that wait.

        Without TLS, keys and values are sent as they are: so a test can check that a request for a
        key is in transit.
        """
        from leasehold.engine.key import to_bytes  # noqa: PLC0415  it is long

        ways, sought = _ways_of(direction), to_bytes(data, "data")
        return self._do(lambda: any(sought in each for each in self._waiting(ways)))

    # The end.

    def close(self) -> None:
        """Close the wire: connections are reset, and new ones refused."""
        if self._is_closed:
            return
        self._is_closed = True
        self._there.call(self._close_on_loop)
        if self._owns_thread:
            self._there.close()

    def let_go(self) -> None:
        """Close it soon, without waiting. For one that shares its thread."""
        self._is_closed = True
        self._there.post(self._close_on_loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        how = ", closed" if self._is_closed else f", cut {sorted(self._cut)}" if self._cut else ""
        return f"<Wire {self.endpoint} to {self._address}{how}>"

    # In the thread.

    def _do(self, function: Callable[[], T]) -> T:
        if self._is_closed:
            raise RuntimeError(f"{self!r} is closed: make another one")
        return self._there.call(function)

    async def _listen(self) -> tuple[asyncio.Server, int]:
        server = await asyncio.get_running_loop().create_server(self._accept, HOST, 0)
        port: int = server.sockets[0].getsockname()[1]
        return server, port

    def _accept(self) -> asyncio.Protocol:
        connection = RelayedConnection(self._address, self._cut, self._connections.discard)
        if len(self._connections) < CONNECTIONS_MAX:
            self._connections.add(connection)
        else:
            logger.warning(
                "%r already has %d connections: a new one is reset", self, CONNECTIONS_MAX
            )
            connection.end(reset=True)
        return connection.client

    def _cut_on_loop(self, ways: tuple[Way, ...], limit_s: float | None, *, reset: bool) -> None:
        self._cut.update(ways)
        self._stop_mending()
        if limit_s is not None:
            loop = asyncio.get_running_loop()
            self._mending = loop.call_later(limit_s, lambda: self._mend_on_loop(reset=reset))

    def _mend_on_loop(self, *, reset: bool) -> None:
        if reset:
            self._reset_on_loop()
        self._cut.clear()
        self._stop_mending()
        self._changed()

    def _stop_mending(self) -> None:
        if self._mending is not None:
            self._mending.cancel()
            self._mending = None

    def _reset_on_loop(self) -> None:
        for connection in list(self._connections):
            connection.end(reset=True)

    def _hold_on_loop(self, ways: tuple[Way, ...]) -> None:
        for connection in self._connections:
            connection.held.update(ways)

    def _hang_up_on_loop(self) -> None:
        for connection in [each for each in self._connections if each.held]:
            connection.orphan()

    def _release_on_loop(self) -> None:
        for connection in self._connections:
            connection.held.clear()
        self._changed()

    def _waiting(self, ways: tuple[Way, ...]) -> Iterator[bytearray]:
        return (connection.waiting(way) for connection in self._connections for way in ways)

    def _changed(self) -> None:
        for connection in list(self._connections):
            connection.changed()

    def _close_on_loop(self) -> None:
        self._listening.close()
        self._stop_mending()
        self._reset_on_loop()


def _ways_of(direction: Direction) -> tuple[Way, ...]:
    if not isinstance(direction, str):
        raise TypeError(f"direction must be 'both', 'to_server' or 'to_client', not {direction!r}")
    try:
        return _WAYS[direction]
    except KeyError:
        raise ValueError(
            f"direction must be 'both', 'to_server' or 'to_client', not {direction!r}"
        ) from None
