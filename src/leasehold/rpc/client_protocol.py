"""The shell around a client's connection: bytes in, bytes out, on asyncio or uvloop.

Theory of operation. A line takes calls from the server's first SETTINGS (`ready`) until it is
*retired*: the server has said good-bye, something was wrong, or it is lost. Calls that are under
way then come to their end here, if they can; with the last of them the connection is closed. It is
*gone* when nothing is left of it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from leasehold.errors import ConnectFailed
from leasehold.rpc.client_call import ClientCall, Failure
from leasehold.rpc.client_connection import ClientConnection
from leasehold.rpc.dialing import plain_words
from leasehold.rpc.endpoints import Endpoint
from leasehold.rpc.frames import ErrorCode
from leasehold.rpc.keepalive import KeepAlive
from leasehold.rpc.limits import Limits

LINGER_S: Final = 1.0
"""How long a connection that is to be closed may take to get rid of its output."""

_HTTP1: Final = b"HTTP/1"
_TLS_ALERT: Final = b"\x15\x03"


class LineOwner(Protocol):
    """Who is told what becomes of a line."""

    def retired(self, line: "ClientProtocol") -> None:
        """Learn that a line takes no new calls."""
        ...

    def gone(self, line: "ClientProtocol") -> None:
        """Learn that nothing is left of a line."""
        ...


class ClientProtocol(asyncio.Protocol):
    """One connection to a server."""

    def __init__(
        self,
        endpoint: Endpoint,
        owner: LineOwner,
        limits: Limits,
        keepalive_s: float | None,
        keepalive_timeout_s: float,
    ) -> None:
        self.endpoint = endpoint
        self.heads = endpoint.heads
        self._owner = owner
        self._loop = loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when calls can be made; or `ConnectFailed`."""
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done when the connection is gone."""
        self.since = loop.time()
        """When it was made."""
        self._transport: asyncio.Transport
        self._linger: asyncio.TimerHandle | None = None
        self._is_flush_scheduled = False
        self._has_retired = False
        self.connection = ClientConnection(
            self._transmit,
            loop.time,
            limits=limits,
            schedule_flush=self._schedule_flush,
            on_change=self._changed,
        )
        self.keepalive = KeepAlive(
            loop, self.connection, keepalive_s, keepalive_timeout_s, self._is_silent
        )

    @property
    def is_ready(self) -> bool:
        """Whether calls can be made here."""
        return self.connection.is_ready

    @property
    def why(self) -> str:
        """Why it takes no calls, as far as that is known."""
        return self.connection.why or "the server closed the connection"

    # Calls.

    def begin(self, call: ClientCall, message: bytes | None = None) -> None:
        """Make a call, with its only message if it has no more."""
        connection = self.connection
        if not connection.has_streams:
            self.keepalive.wake()
        connection.begin(call, message)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self.connection.flush()

    def data_received(self, data: bytes) -> None:
        """Take what came in."""
        connection = self.connection
        self.keepalive.heard_at = self._loop.time()
        if not connection.has_greeted and (stranger := _stranger(data)):
            self._fail_ready(stranger)
            self._end(ErrorCode.PROTOCOL_ERROR, stranger)
            return
        connection.receive(data)
        if connection.is_draining:
            self._wind_up()

    def pause_writing(self) -> None:
        """Send no more messages: the server does not take them."""
        self.connection.pause()

    def resume_writing(self) -> None:
        """Send messages again."""
        self.connection.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.keepalive.stop()
        if self._linger is not None:
            self._linger.cancel()
        why = "the server closed the connection" if exc is None else plain_words(exc)
        self._lost(why)
        self._fail_ready(why)
        self._owner.gone(self)
        self.gone.set_result(None)

    # What goes out.

    def _transmit(self, data: bytes) -> None:
        self._transport.write(data)

    def _schedule_flush(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        connection = self.connection
        if not self._transport.is_closing():
            connection.flush()
        if connection.is_draining:
            self._wind_up()

    # How it ends.

    def _changed(self) -> None:
        if self.connection.is_ready:
            if not self.ready.done():
                self.ready.set_result(None)
        elif not self._has_retired:
            self._has_retired = True
            self._owner.retired(self)

    def _is_silent(self, why: str) -> None:
        self._lost(why)
        self._transport.abort()

    def _lost(self, why: str) -> None:
        connection = self.connection
        connection.why = connection.why or why  # only calls need the endpoint in the text
        connection.lost(f"the connection to {self.endpoint} was lost: {why}")

    def dismiss(self, failure: Failure) -> None:
        """End every call with a failure, and the connection in good order, soon."""
        self.connection.dismiss(failure)
        self._wind_up()

    def abort(self) -> None:
        """End at once."""
        self.ready.cancel()
        self._transport.abort()

    def _end(self, code: ErrorCode, why: str) -> None:
        self.connection.close(code, why)
        self._wind_up()

    def _wind_up(self) -> None:
        """Close a connection that takes no new calls, if it has no old ones either."""
        connection = self.connection
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
            self.ready.exception()  # nobody need have waited for it


def _stranger(data: bytes) -> str | None:
    """Describe a server whose first octets show that it does not speak HTTP/2; else None.

    The first frame of HTTP/2 is a SETTINGS frame, whose length is below 2^16.
    """
    if data.startswith(_HTTP1):
        line = data.partition(b"\r\n")[0][:_SHOWN_BYTES].decode(errors="replace")
        return f"the server speaks HTTP/1.1, not HTTP/2 ({line})"
    if data.startswith(_TLS_ALERT):
        return "the server speaks TLS there, and was spoken to without"
    if data and data[0]:
        line = data.partition(b"\n")[0].rstrip(b"\r")[:_SHOWN_BYTES].decode(errors="replace")
        said = f"it sent {line!r}"
        return f"the server does not speak HTTP/2 (gRPC): {said}; is it the right port?"
    return None


_SHOWN_BYTES: Final = 80

MakeLine = Callable[[Endpoint], ClientProtocol]
"""How a line is made once there is a connection for it."""
