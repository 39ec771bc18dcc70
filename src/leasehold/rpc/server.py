"""The shell around connections: sockets in, bytes out, on asyncio or uvloop.

The first bytes decide what a connection speaks: HTTP/2 begins with a preface that nothing else
begins with, and everything else is taken for HTTP/1.1.

Each connection looks after itself every `BEAT_S`: whether its peer has said what it is, has gone
silent, takes nothing of what it asked for, or has nothing to do here any more.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from leasehold.rpc.frames import PREFACE, PREFACE_LINE, ErrorCode
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.host import Host, LoopHost
from leasehold.rpc.http1 import HTTP1
from leasehold.rpc.limits import Limits
from leasehold.rpc.routes import Methods
from leasehold.rpc.server_connection import ServerConnection
from leasehold.rpc.turns import SLICE_BYTES, Turns
from leasehold.rpc.watchdog import Watchdog
from leasehold.rpc.web import Web

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 20_000
"""Connections at a time; more are closed as soon as they are made."""

MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""Output that the operating system has not taken: a peer that reads nothing is cut off beyond it.

From the transport's own high-water mark on, a connection is not read any more; what still comes out
of it are answers that waited for the disk, and events."""

DRAIN_LOOK_S: Final = 0.01
"""How often draining looks whether it is done."""

MAX_LINGER_S: Final = 5.0
"""How long a connection that is to be closed may take to get rid of its output."""


@dataclass(slots=True)
class Site:
    """What all connections of a server share."""

    methods: Methods
    web: Web
    gate: Gate
    enter: Callable[[], None]
    """Called first on each entry from the event loop."""
    limits: Limits = field(default_factory=Limits)
    max_connections: int = MAX_CONNECTIONS
    host: Host = field(default_factory=LoopHost)
    connections: set["ServerProtocol"] = field(default_factory=set)
    received_bytes: int = 0
    """What came in from clients, before it was read as anything."""
    sent_bytes: int = 0
    turns: Turns = field(init=False)
    _refused: int = 0
    _empty: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Have a line for those who send much."""
        self.turns = Turns(self.host, self.enter)

    def arrived(self, connection: "ServerProtocol") -> bool:
        """Learn of a new connection; False if there is no room for it."""
        if len(self.connections) >= self.max_connections:
            if not self._refused:
                logger.warning("all %d connections are taken: refusing more", self.max_connections)
            self._refused += 1
            return False
        self.connections.add(connection)
        self._empty.clear()
        return True

    def left(self, connection: "ServerProtocol") -> None:
        """Learn that a connection is gone."""
        self.connections.discard(connection)
        if self._refused and len(self.connections) < self.max_connections * 9 // 10:
            logger.warning("%d connections were refused; there is room again", self._refused)
            self._refused = 0
        if not self.connections:
            self._empty.set()

    async def drain(self, timeout_s: float) -> None:
        """Ask all clients to make no new calls, and wait until those that there are have ended.

        Calls that go on until somebody ends them are not waited for.
        """
        for connection in list(self.connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not all(each.is_drained for each in self.connections):  # noqa: ASYNC110
                    await asyncio.sleep(DRAIN_LOOK_S)

    async def all_gone(self) -> None:
        """Wait until there is no connection."""
        if self.connections:
            await self._empty.wait()


class ServerProtocol(asyncio.Protocol):
    """One connection of a client."""

    __slots__ = (
        "_backlog",
        "_first",
        "_has_enough",
        "_has_stopped",
        "_is_in_line",
        "_is_paused",
        "_linger",
        "_site",
        "_speaks",
        "_taken",
        "_transport",
        "_watchdog",
    )

    def __init__(self, site: Site) -> None:
        self._site = site
        self._transport: asyncio.Transport
        self._speaks: ServerConnection | HTTP1 | None = None
        self._first = b""
        self._backlog = b""
        """What has come in and waits for its turn, but for the first `_taken` octets."""
        self._taken = 0
        self._is_in_line = False
        self._is_paused = False
        self._has_stopped = False
        self._has_enough = False
        """Whether requests of HTTP/1.1 are sent faster than they can be answered."""
        self._linger: asyncio.TimerHandle | None = None
        """Set when the connection is to be closed."""
        self._watchdog: Watchdog | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        if self._site.arrived(self):
            self._watchdog = Watchdog(self._site.host, self._site.limits, self._complain)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came in."""
        if self._linger is not None:
            return
        site = self._site
        site.received_bytes += len(data)
        if len(data) > SLICE_BYTES or self._backlog:
            self._put_off(data)
            return
        site.enter()
        self._take(data)

    def _put_off(self, data: bytes) -> None:
        """Take a large piece slice by slice, in turn with others, and read no more meanwhile."""
        self._backlog = self._backlog[self._taken :] + data
        self._taken = 0
        self._set_reading()
        self._line_up()

    def _line_up(self) -> None:
        """Have the next slice taken, unless that is under way, or nothing may be taken now."""
        if self._backlog and not (self._is_in_line or self._is_paused or self._has_enough):
            self._is_in_line = True
            self._site.turns.add(self)

    def take_slice(self) -> bool:
        """Take the next slice of what has come in; whether another one is to be taken."""
        piece = self._backlog[self._taken : self._taken + SLICE_BYTES]
        self._taken += SLICE_BYTES
        if self._taken >= len(self._backlog) or self._linger is not None:
            self._backlog, self._taken = b"", 0
        try:
            if self._linger is None and piece:
                self._take(piece)
        except Exception:
            logger.exception("connection is closed: what came in could not be handled")
            self._transport.abort()
        self._is_in_line = bool(self._backlog) and not (self._is_paused or self._has_enough)
        if not self._backlog:
            self._set_reading()
        return self._is_in_line

    def _take(self, data: bytes) -> None:
        if self._speaks is None:
            self._find_out(data)
        else:
            self._speaks.receive(data)

    def _find_out(self, data: bytes) -> None:
        """Decide by the first bytes what is spoken here."""
        first = self._first = self._first + data
        if len(first) < len(PREFACE) and PREFACE.startswith(first):
            return
        self._first = b""
        if not first.startswith(PREFACE_LINE):
            self._speaks = self._http1()
        else:
            self._speaks = self._http2()
            if not first.startswith(PREFACE):
                self._complain(ErrorCode.PROTOCOL_ERROR, "a wrong preface")
                return
            first = first[len(PREFACE) :]
        if self._watchdog is not None:
            self._watchdog.watch(self._speaks, self._transport.get_write_buffer_size)
        self._speaks.receive(first)

    def _http1(self) -> HTTP1:
        site = self._site
        return HTTP1(
            site.web,
            self._transmit,
            gate=site.gate,
            limits=site.limits,
            host=site.host,
            throttle=self._set_throttle,
        )

    def _set_throttle(self, has_enough: bool) -> None:
        self._has_enough = has_enough
        self._set_reading()
        if not has_enough:
            self._site.host.call_soon(self._line_up)

    def _set_reading(self) -> None:
        """Read or do not, as it is right for everybody who has a say."""
        transport = self._transport
        if transport.is_closing():
            return
        is_to_read = not (self._is_paused or self._has_stopped or self._has_enough or self._backlog)
        if is_to_read and not transport.is_reading():
            transport.resume_reading()
        elif transport.is_reading() and not is_to_read:
            transport.pause_reading()

    def _http2(self) -> ServerConnection:
        site = self._site
        return ServerConnection(
            site.methods,
            site.gate,
            self._transmit,
            web=site.web,
            limits=site.limits,
            host=site.host,
        )

    def _complain(self, code: ErrorCode, why: str) -> None:
        """End a connection that has something wrong."""
        self._site.enter()
        if isinstance(self._speaks, ServerConnection):
            self._speaks.close(code, why)
            self._speaks.flush()
        elif code != ErrorCode.NO_ERROR:
            logger.warning("connection is closed: %s", why)
        self._end()

    def _end(self) -> None:
        """Close once everything is written, or soon; what still comes in is not looked at."""
        if self._linger is not None:
            return
        transport = self._transport
        self._linger = asyncio.get_running_loop().call_later(MAX_LINGER_S, transport.abort)
        if not (transport.is_closing() or transport.is_reading()):
            transport.resume_reading()  # or asyncio does not see the end of a TLS connection
        if isinstance(self._speaks, HTTP1) and self._speaks.lingers and transport.can_write_eof():
            transport.write_eof()  # closed at once, the answer would be lost to who still sends
        else:
            transport.close()

    def _transmit(self, data: bytes) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(data)
        self._site.sent_bytes += len(data)
        if self._speaks is not None and self._speaks.is_closing:
            self._end()
        elif self._is_paused and transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            logger.warning("connection is closed: its peer reads nothing")
            transport.abort()

    def pause_writing(self) -> None:
        """Read no requests while their answers are not taken."""
        self._is_paused = True
        if self._speaks is not None:
            self._speaks.pause()
        self._set_reading()

    def resume_writing(self) -> None:
        """Go on reading."""
        self._is_paused = False
        self._set_reading()
        if self._speaks is not None:  # not now: asyncio is still writing
            self._site.host.call_soon(self._speaks.resume)
            self._site.host.call_soon(self._line_up)

    def drain(self) -> None:
        """Ask the client to make no new calls."""
        if self._speaks is not None:
            self._speaks.drain()

    @property
    def is_drained(self) -> bool:
        """Whether the client has heard of it, and no call is under way that ends by itself."""
        speaks = self._speaks
        return speaks is None or (speaks.is_quiet and not speaks.is_pinged)

    def stop_listening(self) -> None:
        """Take no further calls; those that were taken are answered."""
        self._has_stopped = True
        if isinstance(self._speaks, ServerConnection):
            self._speaks.stop_taking()
        self._set_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._site.enter()
        self._site.left(self)
        self._backlog = b""
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._linger is not None:
            self._linger.cancel()
        if self._speaks is not None:
            self._speaks.lost()

    def good_bye(self, error: RpcError) -> None:
        """Close the connection once everything is written that is to be; end what is open."""
        speaks = self._speaks
        if isinstance(speaks, ServerConnection):
            speaks.dismiss(error)
            if not speaks.is_closing:  # the client has yet to take its answers
                self._transport.resume_reading()
                return
        elif speaks is not None:
            speaks.dismiss(error)
        self._end()

    def cut_off(self) -> None:
        """Close the connection at once: what was not written must not be."""
        self._transport.abort()
