"""The shell around connections: sockets in, bytes out, on asyncio or uvloop.

The first bytes decide what a connection speaks: HTTP/2 begins with a preface that nothing else
begins with, and everything else is taken for HTTP/1.1.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from leasehold.errors import Status
from leasehold.rpc.connection import Connection
from leasehold.rpc.frames import PREFACE
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.http1 import HTTP1, Page
from leasehold.rpc.routes import Methods

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""Output that the operating system has not taken: a peer that reads nothing is cut off beyond it.

From the transport's own high-water mark on, a connection is not read any more; what still comes out
of it are answers that waited for the disk, and events."""

MAX_LINGER_S: Final = 5.0
"""How long a connection that is to be closed may take to get rid of its output."""


@dataclass(slots=True)
class Site:
    """What all connections of a server share."""

    methods: Methods
    pages: dict[str, Page]
    gate: Gate
    enter: Callable[[], None]
    """Called first on each entry from the event loop."""
    connections: set["ServerProtocol"] = field(default_factory=set)
    _empty: asyncio.Event = field(default_factory=asyncio.Event)

    def arrived(self, connection: "ServerProtocol") -> None:
        """Learn of a new connection."""
        self.connections.add(connection)
        self._empty.clear()

    def left(self, connection: "ServerProtocol") -> None:
        """Learn that a connection is gone."""
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()

    async def all_gone(self) -> None:
        """Wait until there is no connection."""
        if self.connections:
            await self._empty.wait()


class ServerProtocol(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._transport: asyncio.Transport
        self._speaks: Connection | HTTP1 | None = None
        self._first = b""
        self._is_paused = False
        self._has_stopped = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._site.arrived(self)

    def data_received(self, data: bytes) -> None:
        """Take what came in."""
        self._site.enter()
        speaks = self._speaks
        if speaks is None:
            self._find_out(data)
            return
        speaks.receive(data)

    def _find_out(self, data: bytes) -> None:
        """Decide by the first bytes what is spoken here."""
        self._first += data
        if self._first.startswith(PREFACE):
            self._speaks = Connection(self._site.methods, self._site.gate, self._transmit)
            rest = self._first[len(PREFACE) :]
        elif PREFACE.startswith(self._first):
            return
        else:
            self._speaks = HTTP1(self._site.pages, self._transmit)
            rest = self._first
        self._first = b""
        self._speaks.receive(rest)

    def _transmit(self, data: bytes) -> None:
        transport = self._transport
        transport.write(data)
        if self._speaks is not None and self._speaks.is_closing:
            transport.close()  # once all of it is written
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(MAX_LINGER_S, transport.abort)
        elif self._is_paused and transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            logger.warning("a client that reads nothing is cut off")
            transport.abort()

    def pause_writing(self) -> None:
        """Read no requests while their answers are not taken."""
        self._is_paused = True
        if isinstance(self._speaks, Connection):
            self._speaks.pause()
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        self._is_paused = False
        if not (self._transport.is_closing() or self._has_stopped):
            self._transport.resume_reading()
        if isinstance(self._speaks, Connection):
            self._speaks.resume()

    def stop_listening(self) -> None:
        """Take no further calls; those that were taken are answered."""
        self._has_stopped = True
        self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._site.enter()
        self._site.left(self)
        if self._speaks is not None:
            self._speaks.lost()

    def good_bye(self, why: str) -> None:
        """Close the connection once everything is written that is to be; end what is open."""
        if isinstance(self._speaks, Connection):
            self._speaks.dismiss(RpcError(Status.UNAVAILABLE, why))
        self._transport.close()

    def cut_off(self) -> None:
        """Close the connection at once: what was not written must not be."""
        self._transport.abort()
