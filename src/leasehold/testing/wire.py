"""A wire to a server, for tests: one that can be cut, and mended."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, TypeVar

from leasehold.core.duration import check_seconds
from leasehold.rpc.addresses import TcpAddress, parse_address
from leasehold.testing.background import Background
from leasehold.testing.strand import Strand, Way

if TYPE_CHECKING:
    from leasehold.client.texts import Octets

logger = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"

CONNECTIONS_MAX: Final = 1000
"""Connections through one wire, with those that nobody has any more; others are reset."""

Direction: TypeAlias = Literal["both", "to_server", "to_client"]

_WAYS: Final[dict[Direction, tuple[Way, ...]]] = {
    "both": ("to_server", "to_client"),
    "to_server": ("to_server",),
    "to_client": ("to_client",),
}

T = TypeVar("T")


class Wire:
    """A port of 127.0.0.1 that leads to a server: any one, of any kind, by its HOST:PORT.

    with Wire("127.0.0.1:2379") as wire, leasehold.sync.connect(wire.endpoint) as client:
        wire.cut(seconds=3.0)

    What a client sends and is sent passes unchanged, until the wire is told otherwise. Give each
    client a wire of its own, and for a cluster one to each member. It may be used from any thread;
    when a method returns, what it says is so.
    """

    def __init__(self, endpoint: str, *, background: Background | None = None) -> None:
        """Lead to `endpoint`, and do so in a thread of its own, or where it is told."""
        address = parse_address(endpoint)
        if not isinstance(address, TcpAddress):
            raise ValueError(f"a wire leads to HOST:PORT, such as 127.0.0.1:2379, not {endpoint!r}")
        self._address = address
        self._cut: set[Way] = set()
        self._strands: set[Strand] = set()
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
        """Whether it leads nowhere any more."""
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

        Connections stay, new ones are taken, and all are silent. What is sent meanwhile waits, in
        order, and arrives late; with `reset`, connections are reset when the seconds are over.
        With "to_client" requests are executed and answers held back.

        A direction that is cut stays so if the other is cut later; the last `seconds` counts.
        """
        ways = _ways_of(direction)
        limit_s = None if seconds is None else check_seconds(seconds, "seconds")
        if reset and limit_s is None:
            raise ValueError(
                "reset is for when the seconds are over: give some, or mend(reset=True)"
            )
        self._do(lambda: self._cut_on_loop(ways, limit_s, reset=reset))

    def mend(self, *, reset: bool = False) -> None:
        """Let everything through again: first what waits, of clients that gave up as well.

        With `reset` nothing of that: connections are reset, and can be made anew.
        """
        self._do(lambda: self._mend_on_loop(reset=reset))

    def reset(self) -> None:
        """Reset all connections that there are, at both ends. What waits is lost."""
        self._do(self._reset_on_loop)

    # Stragglers.

    def hold_current(self, direction: Direction = "both") -> None:
        """Let nothing through on the connections that there are. New ones work."""
        ways = _ways_of(direction)
        self._do(lambda: self._hold_on_loop(ways))

    def hang_up_held(self) -> None:
        """Reset held connections at the client's end only: it learns that they are lost.

        What it had sent stays held, and arrives when it is released. The server learns nothing.
        """
        self._do(self._hang_up_on_loop)

    def release_held(self) -> None:
        """Let through what is held, also of connections that the client has no more."""
        self._do(self._release_on_loop)

    def held_bytes(self, direction: Direction = "both") -> int:
        """Tell how much waits, by a cut or on held connections."""
        ways = _ways_of(direction)
        return self._do(lambda: sum(len(each) for each in self._waiting(ways)))

    def holds(self, octets: "Octets", direction: Direction = "both") -> bool:
        """Tell whether these bytes are among those that wait.

        Keys and values are sent as they are, if there is no TLS: so it can be known that a request
        for a key is under way.
        """
        from leasehold.client.texts import octets_of  # noqa: PLC0415  it is long

        ways, sought = _ways_of(direction), octets_of(octets, "octets")
        return self._do(lambda: any(sought in each for each in self._waiting(ways)))

    # The end.

    def close(self) -> None:
        """Lead nowhere: connections are reset, and new ones refused."""
        if self._is_closed:
            return
        self._is_closed = True
        self._there.call(self._close_on_loop)
        if self._owns_thread:
            self._there.close()

    def let_go(self) -> None:
        """Close it soon, and wait for nothing. For one that shares its thread."""
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
            raise RuntimeError(f"{self!r} leads nowhere any more: make another one")
        return self._there.call(function)

    async def _listen(self) -> tuple[asyncio.Server, int]:
        server = await asyncio.get_running_loop().create_server(self._accept, HOST, 0)
        port: int = server.sockets[0].getsockname()[1]
        return server, port

    def _accept(self) -> asyncio.Protocol:
        strand = Strand(self._address, self._cut, self._strands.discard)
        if len(self._strands) < CONNECTIONS_MAX:
            self._strands.add(strand)
        else:
            logger.warning("%r has %d connections: one more is reset", self, CONNECTIONS_MAX)
            strand.end(reset=True)
        return strand.client

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
        for strand in list(self._strands):
            strand.end(reset=True)

    def _hold_on_loop(self, ways: tuple[Way, ...]) -> None:
        for strand in self._strands:
            strand.held.update(ways)

    def _hang_up_on_loop(self) -> None:
        for strand in [each for each in self._strands if each.held]:
            strand.orphan()

    def _release_on_loop(self) -> None:
        for strand in self._strands:
            strand.held.clear()
        self._changed()

    def _waiting(self, ways: tuple[Way, ...]) -> Iterator[bytearray]:
        return (strand.waiting(way) for strand in self._strands for way in ways)

    def _changed(self) -> None:
        for strand in list(self._strands):
            strand.changed()

    def _close_on_loop(self) -> None:
        self._listening.close()
        self._stop_mending()
        self._reset_on_loop()


def _ways_of(direction: Direction) -> tuple[Way, ...]:
    if not isinstance(direction, str):
        raise TypeError(f"a direction is 'both', 'to_server' or 'to_client', not {direction!r}")
    try:
        return _WAYS[direction]
    except KeyError:
        raise ValueError(
            f"a direction is 'both', 'to_server' or 'to_client', not {direction!r}"
        ) from None
