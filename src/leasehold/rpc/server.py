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

from leasehold.rpc.admission import MAX_CONNECTIONS, Admission
from leasehold.rpc.frames import PREFACE, PREFACE_LINE, ErrorCode
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.host import Alarm, Host, LoopHost
from leasehold.rpc.http1 import HTTP1
from leasehold.rpc.limited_log import LimitedLog
from leasehold.rpc.limits import Limits
from leasehold.rpc.receive_account import ReceiveAccount
from leasehold.rpc.routes import Methods
from leasehold.rpc.server_connection import ServerConnection
from leasehold.rpc.sockets import peer_of
from leasehold.rpc.turns import SLICE_BYTES, Turns
from leasehold.rpc.watchdog import Watchdog
from leasehold.rpc.web import Web

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""Output that the operating system has not taken: a peer that reads nothing is cut off beyond it.

From the transport's own high-water mark on, a connection is not read any more; what still comes out
of it are answers that waited for the disk, and events."""

DRAIN_LOOK_S: Final = 0.01
"""How often draining looks whether it is done."""

MAX_LINGER_S: Final = 5.0
"""How long a connection that is to be closed may take to get rid of its output."""

PART_S: Final = 1.0
"""How long an idle connection stays open after its GOAWAY: a call may be on its way."""


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
    """Read when the site is made; then `admission` has it."""
    host: Host = field(default_factory=LoopHost)
    connections: set["ServerProtocol"] = field(default_factory=set)
    received_bytes: int = 0
    """What came in from clients, before it was read as anything."""
    sent_bytes: int = 0
    turns: Turns = field(init=False)
    log: LimitedLog = field(init=False)
    admission: Admission = field(init=False)
    account: ReceiveAccount = field(init=False)
    """What all connections hold of messages that are not complete."""
    _empty: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Make what connections share."""
        self.turns = Turns(self.host, self.enter)
        self.account = ReceiveAccount(self.limits)
        self.log = LimitedLog(logger, self.host)
        self.admission = Admission(self.connections, self.max_connections, self.host, self.log)

    def arrived(self, connection: "ServerProtocol") -> None:
        """Note a new connection, which has a slot."""
        self.connections.add(connection)
        self._empty.clear()

    def left(self, connection: "ServerProtocol") -> None:
        """Note that a connection is gone, and return its slot."""
        if connection not in self.connections:
            return  # it was refused
        self.connections.discard(connection)
        self.admission.left(connection)
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
    """One connection of a client. With `has_slot` it was admitted before it was made."""

    __slots__ = (
        "_backlog",
        "_first",
        "_has_enough",
        "_has_slot",
        "_has_stopped",
        "_is_in_line",
        "_is_paused",
        "_linger",
        "_parting",
        "_peer",
        "_site",
        "_speaks",
        "_taken",
        "_transport",
        "_watchdog",
    )

    def __init__(self, site: Site, *, has_slot: bool = False) -> None:
        self._site = site
        self._has_slot = has_slot
        self._peer: object = None
        self._parting: Alarm | None = None
        """Set when the connection has to make room for another one."""
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
        site = self._site
        self._transport = cast(asyncio.Transport, transport)
        self._peer = transport.get_extra_info("peername")
        if self._has_slot or site.admission.admit(self.peer):
            site.arrived(self)
            self._watchdog = Watchdog(site.host, site.limits, self._complain)
        else:
            self._transport.abort()

    @property
    def peer(self) -> str:
        """The address of the client, for the log."""
        return peer_of(self._peer)

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
            logger.exception("closing the connection from %s: its input failed", self.peer)
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
            account=site.account,
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
            report=self._report,
            account=site.account,
        )

    def _complain(self, code: ErrorCode, why: str) -> None:
        """End a connection that has something wrong."""
        self._site.enter()
        if isinstance(self._speaks, ServerConnection):
            self._speaks.close(code, why)
            self._speaks.flush()
        elif code != ErrorCode.NO_ERROR:
            self._report(f"is closed: {why}")
        self._end()

    def _report(self, what: str) -> None:
        """Log what is wrong with the connection, at a limited rate."""
        self._site.log.warning("connection from %s %s", self.peer, what)

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
            self._report("is closed: the client reads nothing")
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
        for alarm in (self._linger, self._parting):
            if alarm is not None:
                alarm.cancel()
        if self._speaks is not None:
            self._speaks.lost()

    # How it makes room for another one.

    @property
    def idle_since(self) -> float | None:
        """When its last call began or ended; None while it has a stream, or is being closed."""
        speaks = self._speaks
        if self._watchdog is None or self._linger is not None or self._parting is not None:
            return None
        if speaks is not None and (speaks.has_streams or self._backlog or speaks.is_receiving):
            return None
        return self._watchdog.idle_since

    def part(self) -> None:
        """Close the connection in good order: its slot is given to another one."""
        speaks = self._speaks
        if isinstance(speaks, ServerConnection):
            self._parting = self._site.host.call_later(PART_S, self._end_parting)
            speaks.drain()
            speaks.flush()
        else:
            self._end()

    def _end_parting(self) -> None:
        """Close, unless there is a call after all: then close at its end."""
        if isinstance(self._speaks, ServerConnection):
            self._site.enter()
            self._speaks.part()

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
