"""The asyncio protocol of a server's connections, on asyncio or uvloop.

The first bytes decide the protocol of a connection: HTTP/2 begins with a preface that nothing else
begins with, and everything else is taken for HTTP/1.1.

A watchdog checks each connection periodically: whether its peer has completed its greeting, has
gone silent, does not read what it requested, or has been idle for too long.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from leasehold.basics.event_loop import EventLoop, LoopTimer, RunningLoop
from leasehold.grpc.call_context import Peer
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import HttpHandler
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Methods
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http1.http1_connection import Http1Connection
from leasehold.http2.frames import PREFACE, PREFACE_LINE, ErrorCode
from leasehold.http2.inbound import ReceiveAccount
from leasehold.http2.limits import ConnectionLimits
from leasehold.serving.admission import MAX_CONNECTIONS, Admission
from leasehold.serving.limited_log import LimitedLog
from leasehold.serving.turns import SLICE_BYTES, Turns
from leasehold.serving.watchdog import Watchdog

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""Output that the operating system has not taken: a peer that reads nothing is cut off above it.

From the transport's own high-water mark on, a connection is not read any more; its only further
output are answers that waited for the disk, and events."""

DRAIN_LOOK_S: Final = 0.01
"""How often `drain` checks whether it is done."""

MAX_LINGER_S: Final = 5.0
"""How long a connection that is being closed may take to write its output."""

PART_S: Final = 1.0
"""How long an idle connection stays open after its GOAWAY: a call may have been sent before."""


@dataclass(slots=True)
class SharedState:
    """The state that all connections of a server share."""

    methods: Methods
    web: HttpHandler
    gate: DurabilityGate
    enter: Callable[[], None]
    """Called first on each entry from the event loop."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_connections: int = MAX_CONNECTIONS
    """Read when the site is made; then `admission` has it."""
    loop: EventLoop = field(default_factory=RunningLoop)
    connections: set["ServerProtocol"] = field(default_factory=set)
    received_bytes: int = 0
    """The total bytes received from clients, before parsing."""
    sent_bytes: int = 0
    turns: Turns = field(init=False)
    log: LimitedLog = field(init=False)
    admission: Admission = field(init=False)
    account: ReceiveAccount = field(init=False)
    """The incomplete messages that all connections hold."""
    _empty: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Make the shared objects."""
        self.turns = Turns(self.loop, self.enter)
        self.account = ReceiveAccount(self.limits)
        self.log = LimitedLog(logger, self.loop)
        self.admission = Admission(self.connections, self.max_connections, self.loop, self.log)

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
        """Ask all clients to make no new calls, and wait until the current ones have ended.

        It does not wait for calls without `ends_by_itself`.
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
        "_speaks",
        "_state",
        "_taken",
        "_transport",
        "_watchdog",
    )

    def __init__(self, state: SharedState, *, has_slot: bool = False) -> None:
        self._state = state
        self._has_slot = has_slot
        self._peer = Peer()
        self._parting: LoopTimer | None = None
        """Set when the connection has to make room for another one."""
        self._transport: asyncio.Transport
        self._speaks: ServerConnection | Http1Connection | None = None
        self._first = b""
        self._backlog = b""
        """Received data that waits for its turn, except the first `_taken` bytes."""
        self._taken = 0
        self._is_in_line = False
        self._is_paused = False
        self._has_stopped = False
        self._has_enough = False
        """Whether HTTP/1.1 requests are sent faster than they can be answered."""
        self._linger: asyncio.TimerHandle | None = None
        """Set when the connection is to be closed."""
        self._watchdog: Watchdog | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection, or refuse it."""
        state = self._state
        self._transport = cast(asyncio.Transport, transport)
        self._peer = Peer(transport)
        if self._has_slot or state.admission.admit(self._peer.address):
            state.arrived(self)
            self._watchdog = Watchdog(state.loop, state.limits, self._complain)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
        if self._linger is not None:
            return
        state = self._state
        state.received_bytes += len(data)
        if len(data) > SLICE_BYTES or self._backlog:
            self._put_off(data)
            return
        state.enter()
        self._take(data)

    def _put_off(self, data: bytes) -> None:
        """Handle a large piece slice by slice, in turn with others, and read no more meanwhile."""
        self._backlog = self._backlog[self._taken :] + data
        self._taken = 0
        self._set_reading()
        self._line_up()

    def _line_up(self) -> None:
        """Queue the next slice, unless it is queued, or must not be handled now."""
        if self._backlog and not (self._is_in_line or self._is_paused or self._has_enough):
            self._is_in_line = True
            self._state.turns.add(self)

    def take_slice(self) -> bool:
        """Handle the next slice of received data; return whether there is another one."""
        piece = self._backlog[self._taken : self._taken + SLICE_BYTES]
        self._taken += SLICE_BYTES
        if self._taken >= len(self._backlog) or self._linger is not None:
            self._backlog, self._taken = b"", 0
        try:
            if self._linger is None and piece:
                self._take(piece)
        except Exception:
            logger.exception("closing the connection from %s: its input failed", self._peer.address)
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
        """Choose HTTP/1.1 or HTTP/2 by the first bytes."""
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

    def _http1(self) -> Http1Connection:
        state = self._state
        return Http1Connection(
            state.web,
            self._transmit,
            gate=state.gate,
            limits=state.limits,
            loop=state.loop,
            throttle=self._set_throttle,
            account=state.account,
            peer=self._peer,
        )

    def _set_throttle(self, has_enough: bool) -> None:
        self._has_enough = has_enough
        self._set_reading()
        if not has_enough:
            self._state.loop.call_soon(self._line_up)

    def _set_reading(self) -> None:
        """Resume reading, or pause it while paused, stopped, throttled, or with a backlog."""
        transport = self._transport
        if transport.is_closing():
            return
        is_to_read = not (self._is_paused or self._has_stopped or self._has_enough or self._backlog)
        if is_to_read and not transport.is_reading():
            transport.resume_reading()
        elif transport.is_reading() and not is_to_read:
            transport.pause_reading()

    def _http2(self) -> ServerConnection:
        state = self._state
        return ServerConnection(
            state.methods,
            state.gate,
            self._transmit,
            web=state.web,
            limits=state.limits,
            loop=state.loop,
            report=self._report,
            account=state.account,
            peer=self._peer,
        )

    def _complain(self, code: ErrorCode, why: str) -> None:
        """Close a connection with an error."""
        self._state.enter()
        if isinstance(self._speaks, ServerConnection):
            self._speaks.close(code, why)
            self._speaks.flush()
        elif code != ErrorCode.NO_ERROR:
            self._report(f"is closed: {why}")
        self._end()

    def _report(self, what: str) -> None:
        """Log an error of the connection, at a limited rate."""
        self._state.log.warning("connection from %s %s", self._peer.address, what)

    def _end(self) -> None:
        """Close once everything is written, or after a time limit; further input is ignored."""
        if self._linger is not None:
            return
        transport = self._transport
        self._linger = asyncio.get_running_loop().call_later(MAX_LINGER_S, transport.abort)
        if not (transport.is_closing() or transport.is_reading()):
            transport.resume_reading()  # or asyncio does not see the end of a TLS connection
        if (
            isinstance(self._speaks, Http1Connection)
            and self._speaks.lingers
            and transport.can_write_eof()
        ):
            transport.write_eof()  # close() would lose the answer if the client still sends
        else:
            transport.close()

    def _transmit(self, data: bytes) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(data)
        self._state.sent_bytes += len(data)
        if self._speaks is not None and self._speaks.is_closing:
            self._end()
        elif self._is_paused and transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._report("is closed: the client reads nothing")
            transport.abort()

    def pause_writing(self) -> None:
        """Read no requests while their answers are not read by the client."""
        self._is_paused = True
        if self._speaks is not None:
            self._speaks.pause()
        self._set_reading()

    def resume_writing(self) -> None:
        """Resume reading."""
        self._is_paused = False
        self._set_reading()
        if self._speaks is not None:  # not now: asyncio is still writing
            self._state.loop.call_soon(self._speaks.resume)
            self._state.loop.call_soon(self._line_up)

    def drain(self) -> None:
        """Ask the client to make no new calls."""
        if self._speaks is not None:
            self._speaks.drain()

    @property
    def is_drained(self) -> bool:
        """Whether the client has acknowledged that, and no call with `ends_by_itself` is open."""
        speaks = self._speaks
        return speaks is None or (speaks.is_quiet and not speaks.is_pinged)

    def stop_listening(self) -> None:
        """Accept no further calls; those that were accepted are answered."""
        self._has_stopped = True
        if isinstance(self._speaks, ServerConnection):
            self._speaks.stop_taking()
        self._set_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop all state of the connection."""
        self._state.enter()
        self._state.left(self)
        self._backlog = b""
        if self._watchdog is not None:
            self._watchdog.stop()
        for alarm in (self._linger, self._parting):
            if alarm is not None:
                alarm.cancel()
        if self._speaks is not None:
            self._speaks.lost()

    # Making room for another connection.

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
        """Close the connection gracefully: its slot is given to another one."""
        speaks = self._speaks
        if isinstance(speaks, ServerConnection):
            self._parting = self._state.loop.call_later(PART_S, self._end_parting)
            speaks.drain()
            speaks.flush()
        else:
            self._end()

    def _end_parting(self) -> None:
        """Close, or if there is a call after all, close at its end."""
        if isinstance(self._speaks, ServerConnection):
            self._state.enter()
            self._speaks.part()

    def good_bye(self, error: RpcError) -> None:
        """End current calls with this error, and close once everything is written."""
        speaks = self._speaks
        if isinstance(speaks, ServerConnection):
            speaks.dismiss(error)
            if not speaks.is_closing:  # the client has not read its answers yet
                self._transport.resume_reading()
                return
        elif speaks is not None:
            speaks.dismiss(error)
        self._end()

    def cut_off(self) -> None:
        """Close the connection immediately: unwritten output must not be sent."""
        self._transport.abort()
