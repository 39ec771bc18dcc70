"""A relay to a server, for tests, which can be cut and mended."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, TypeVar

from leasehold.basics.addresses import TcpAddress, parse_address
from leasehold.basics.durations import check_seconds
from leasehold.testing.background_loop import Background
from leasehold.testing.relayed_connection import RelayedConnection, Way

if TYPE_CHECKING:
    from leasehold.engine.key import Octets

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

    def holds(self, octets: "Octets", direction: Direction = "both") -> bool:
        """Return whether these bytes are among those that wait.

        Without TLS, keys and values are sent as they are: so a test can check that a request for a
        key is in transit.
        """
        from leasehold.engine.key import octets_of  # noqa: PLC0415  it is long

        ways, sought = _ways_of(direction), octets_of(octets, "octets")
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

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
