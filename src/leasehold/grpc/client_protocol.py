"""The asyncio protocol around a client's connection, for asyncio or uvloop.

Theory of operation. A connection accepts calls from the server's first SETTINGS (`ready`) until it
is *retired*: the server has sent GOAWAY, an error occurred, or the connection is lost. Calls that
are under way then finish here, if they can; after the last of them the connection is closed. It is
*gone* when the transport is closed.

A server that is silent is pinged, but only while calls are under way: many servers hang up on
clients that ping without a reason. There is one timer for a connection, and none while nothing is
under way. It is not moved when data is received; it checks when it fires.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from leasehold.errors import ConnectFailed
from leasehold.grpc.client_call import ClientCall, Failure
from leasehold.grpc.client_connection import ClientConnection
from leasehold.grpc.endpoints import Endpoint, plain_words
from leasehold.http2.frames import ErrorCode
from leasehold.http2.limits import ConnectionLimits
from leasehold.http2.outbound import DeferredFlush

LATE_S: Final = 1.0
"""A timer that fires this late ran in a process that was suspended: data received meanwhile may not
have been read yet."""


class KeepAlive:
    """Calls `lost` with the reason if a server does not answer; the reader sets `heard_at`."""

    __slots__ = (
        "_after_s",
        "_alarm",
        "_alarm_at",
        "_busy_since",
        "_connection",
        "_loop",
        "_lost",
        "_pinged_at",
        "_timeout_s",
        "heard_at",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: ClientConnection,
        after_s: float | None,
        timeout_s: float,
        lost: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._after_s = after_s
        self._timeout_s = timeout_s
        self._lost = lost
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._pinged_at: float | None = None
        self.heard_at = self._busy_since = loop.time()
        """When data was last received."""

    def wake(self) -> None:
        """Called when a call begins while there is no other."""
        if self._after_s is None:
            return
        if self.heard_at >= self._busy_since:  # else callers time out, one after the other
            self._busy_since = self._loop.time()
        if self._alarm is None:
            self._pinged_at = None
            self._set_alarm(self._busy_since + self._after_s)

    def stop(self) -> None:
        """Stop pinging: the connection is gone."""
        self._after_s = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self, at: float) -> None:
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._go_off)

    def _go_off(self) -> None:
        self._alarm = None
        if self._after_s is None or not self._connection.has_streams:
            return
        now = self._loop.time()
        if self._pinged_at is not None and self.heard_at >= self._pinged_at:
            self._pinged_at = None
        if self._pinged_at is not None:
            self._answer_is_due(self._pinged_at, now)
            return
        ping_at = max(self.heard_at, self._busy_since) + self._after_s
        if now < ping_at:
            self._set_alarm(ping_at)
            return
        self._pinged_at = now
        self._set_alarm(now + self._timeout_s)
        self._connection.ping()

    def _answer_is_due(self, pinged_at: float, now: float) -> None:
        if now > self._alarm_at + LATE_S:
            self._pinged_at = now
            self._set_alarm(now + self._timeout_s)
        elif now < pinged_at + self._timeout_s:
            self._set_alarm(pinged_at + self._timeout_s)
        else:
            self._lost(f"no answer to a ping for {self._timeout_s:g} s")


if TYPE_CHECKING:
    from leasehold.grpc.connecting import Connector

LINGER_S: Final = 1.0
"""How long a connection that is being closed may take to write its output."""

_HTTP1: Final = b"HTTP/1"
_TLS_ALERT: Final = b"\x15\x03"


class ClientProtocol(asyncio.Protocol):
    """One connection to a server."""

    def __init__(
        self,
        endpoint: Endpoint,
        owner: "Connector",
        limits: ConnectionLimits,
        keepalive_s: float | None,
        keepalive_timeout_s: float,
    ) -> None:
        self.endpoint = endpoint
        self.heads = endpoint.heads
        self._owner = owner
        self._loop = loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when calls can be made; fails with `ConnectFailed`."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the connection is gone."""
        self.since = loop.time()
        """When the connection was made."""
        self._transport: asyncio.Transport
        self._linger: asyncio.TimerHandle | None = None
        self._has_retired = False
        self.http2 = ClientConnection(
            self._transmit,
            loop.time,
            limits=limits,
            schedule_flush=DeferredFlush(loop.call_soon, self._flush).schedule,
            on_change=self._changed,
        )
        self.keepalive = KeepAlive(
            loop, self.http2, keepalive_s, keepalive_timeout_s, self._is_silent
        )

    @property
    def is_ready(self) -> bool:
        """Whether calls can be made here."""
        return self.http2.is_ready

    @property
    def why(self) -> str:
        """Why it accepts no calls, if the reason is known."""
        return self.http2.why or "the server closed the connection"

    # Calls.

    def begin(self, call: ClientCall, message: bytes | None = None) -> None:
        """Start a call, with its only message if it is unary."""
        connection = self.http2
        if not connection.has_streams:
            self.keepalive.wake()
        connection.begin(call, message)

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self.http2.flush()

    def data_received(self, data: bytes) -> None:
        """Handle received data."""
        connection = self.http2
        self.keepalive.heard_at = self._loop.time()
        if not connection.has_greeted and (stranger := _stranger(data)):
            self._fail_ready(stranger)
            self._end(ErrorCode.PROTOCOL_ERROR, stranger)
            return
        connection.receive(data)
        if connection.is_draining:
            self._wind_up()

    def pause_writing(self) -> None:
        """Send no more messages: the server does not read them."""
        self.http2.pause()

    def resume_writing(self) -> None:
        """Send messages again."""
        self.http2.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all calls, and call the owner."""
        self.keepalive.stop()
        if self._linger is not None:
            self._linger.cancel()
        why = "the server closed the connection" if exc is None else plain_words(exc)
        self._lost(why)
        self._fail_ready(why)
        self._owner.gone(self)
        self.gone.set_result(None)

    # Output.

    def _transmit(self, data: bytes) -> None:
        self._transport.write(data)

    def _flush(self) -> None:
        connection = self.http2
        if not self._transport.is_closing():
            connection.flush()
        if connection.is_draining:
            self._wind_up()

    # Closing.

    def _changed(self) -> None:
        if self.http2.is_ready:
            if not self.ready.done():
                self.ready.set_result(None)
        elif not self._has_retired:
            self._has_retired = True
            self._owner.retired(self)

    def _is_silent(self, why: str) -> None:
        self._lost(why)
        self._transport.abort()

    def _lost(self, why: str) -> None:
        connection = self.http2
        connection.why = connection.why or why  # only calls need the endpoint in the text
        connection.lost(f"the connection to {self.endpoint} was lost: {why}")

    def dismiss(self, failure: Failure) -> None:
        """End every call with a failure, and close the connection gracefully, soon."""
        self.http2.dismiss(failure)
        self._wind_up()

    def abort(self) -> None:
        """Close immediately."""
        self.ready.cancel()
        self._transport.abort()

    def _end(self, code: ErrorCode, why: str) -> None:
        self.http2.close(code, why)
        self._wind_up()

    def _wind_up(self) -> None:
        """Close a connection that accepts no new calls, if it has no calls left."""
        connection = self.http2
        if connection.has_streams and not connection.is_closing:
            return
        self._fail_ready(connection.why or "the server accepts no calls")
        if self._linger is None and not self._transport.is_closing():
            connection.close()
            connection.flush()
            self._transport.close()
            self._linger = self._loop.call_later(LINGER_S, self._transport.abort)

    def _fail_ready(self, why: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectFailed(f"cannot connect to {self.endpoint}: {why}"))
            self.ready.exception()  # marks the exception as retrieved: there may be no waiter


def _stranger(data: bytes) -> str | None:
    """Describe a server whose first bytes show that it does not speak HTTP/2; else return None.

    The first frame of HTTP/2 is a SETTINGS frame, whose length is below 2^16.
    """
    if data.startswith(_HTTP1):
        line = data.partition(b"\r\n")[0][:_SHOWN_BYTES].decode(errors="replace")
        return f"the server speaks HTTP/1.1, not HTTP/2 ({line})"
    if data.startswith(_TLS_ALERT):
        return "the server uses TLS on this port: use https://"
    if data and data[0]:
        line = data.partition(b"\n")[0].rstrip(b"\r")[:_SHOWN_BYTES].decode(errors="replace")
        received = f"it sent {line!r}"
        return f"the server does not speak HTTP/2 (gRPC): {received}; is it the right port?"
    return None


_SHOWN_BYTES: Final = 80

MakeConnection = Callable[[Endpoint], ClientProtocol]
"""Makes the protocol object for a new connection."""
