"""The part of a channel that belongs to its event loop: it makes calls on connections.

`CallDispatcher` gets a connection for a call, makes one attempt of a unary call, and ends calls at
their deadline. `Streaming` is a streaming call as an `async with` block.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from leasehold.basics.timers import Deadlines
from leasehold.errors import ConnectFailed, Status, fresh
from leasehold.grpc.call_context import Metadata
from leasehold.grpc.client_call import ClientCall, StreamingCall, UnaryCall
from leasehold.grpc.client_headers import MIN_TIMEOUT_S, path_of
from leasehold.grpc.client_protocol import ClientProtocol
from leasehold.grpc.connecting import Connect, Connector
from leasehold.grpc.endpoints import Endpoint
from leasehold.grpc.protocol import RpcError
from leasehold.http2.header_encoder import Fields
from leasehold.http2.limits import ConnectionLimits


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How the connections of a channel are made and kept alive."""

    limits: ConnectionLimits
    keepalive_s: float | None
    keepalive_timeout_s: float
    random: Random
    connect: Connect
    packs: bool
    reconnect_max_s: float


class CallDispatcher:
    """Gets connections for calls, and ends calls at their deadline."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        loop: asyncio.AbstractEventLoop,
        options: ConnectionOptions,
    ) -> None:
        self._loop = loop
        self.now = loop.time
        self._options = options
        self.packs = options.packs
        self.max_message_bytes = options.limits.max_message_bytes
        self.connector = Connector(
            endpoints,
            loop,
            self._make_connection,
            options.random,
            options.connect,
            options.reconnect_max_s,
        )
        self.deadlines: Deadlines[ClientCall | asyncio.Future[Any]] = Deadlines(loop, self._expire)
        self._pauses: set[asyncio.Future[None]] = set()

    def _make_connection(self, endpoint: Endpoint) -> ClientProtocol:
        options = self._options
        return ClientProtocol(
            endpoint,
            self.connector,
            options.limits,
            options.keepalive_s,
            options.keepalive_timeout_s,
        )

    async def attempt(
        self,
        connection: ClientProtocol,
        fields: Fields,
        message: bytes,
        until: float | None,
        timeout_s: float | None,
    ) -> bytes:
        """Make one attempt of a unary call on a connection. No state is left when it ends."""
        future: asyncio.Future[bytes] = self._loop.create_future()
        call = UnaryCall(fields, self.max_message_bytes, future)
        if self.packs:
            call.packs = True
        if until is None or timeout_s is None:
            tick = 0
        else:
            tick = self.deadlines.add(call, until, timeout_s)
        try:
            connection.begin(call, message)
            return await future
        finally:
            if tick:
                self.deadlines.discard(call, tick)
            if not call.is_over:
                call.cancel()

    async def connection(
        self, path: str, until: float | None, timeout_s: float | None, *, wait_for_ready: bool
    ) -> ClientProtocol:
        """Wait for a connection; it may be lost again. Raises `ConnectFailed` at the deadline."""
        if self.connector.connection is not None:
            return self.connector.connection
        waiter = self.connector.wait(wait_for_ready=wait_for_ready)
        try:
            if not await self._in_time(waiter, until, timeout_s):
                why = self.connector.last_error or "still connecting"
                raise _too_late(path, f"no connection within {timeout_s:g} s: {why}")
        finally:
            self.connector.give_back(waiter)
        return waiter.result()

    async def pause(
        self, path: str, pause_s: float, until: float | None, timeout_s: float | None, why: str
    ) -> None:
        """Wait before a failed call is retried."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        alarm = self._loop.call_later(pause_s, _wake, waiter)
        self._pauses.add(waiter)
        try:
            if not await self._in_time(waiter, until, timeout_s):
                raise _too_late(path, f"every attempt within {timeout_s:g} s failed: {why}")
        finally:
            self._pauses.discard(waiter)
            alarm.cancel()

    async def _in_time(
        self, waiter: "asyncio.Future[Any]", until: float | None, timeout_s: float | None
    ) -> bool:
        """Wait for something other than a call; return False if the deadline passes first."""
        if until is None or timeout_s is None:
            await waiter
            return True
        tick = self.deadlines.add(waiter, until, timeout_s)
        try:
            await waiter
        except TimeoutError:
            return False
        finally:
            self.deadlines.discard(waiter, tick)
        return True

    def _expire(self, late: "ClientCall | asyncio.Future[Any]", timeout_s: float) -> None:
        if isinstance(late, ClientCall):
            late.failed(_too_late(path_of(late.fields), f"no answer within {timeout_s:g} s"))
            late.cancel()
        elif not late.done():
            late.set_exception(TimeoutError())

    async def close(self, failure: RpcError) -> None:
        """Close all connections, and end every call with this failure."""
        self.deadlines.close()
        for waiter in self._pauses:
            if not waiter.done():
                waiter.set_exception(fresh(failure))
        await self.connector.close(failure)


class Streaming:
    """Begins a call when the block is entered, and cancels it on exit if it is not over."""

    __slots__ = (
        "_bind",
        "_call",
        "_dispatcher",
        "_metadata",
        "_path",
        "_tick",
        "_timeout_s",
        "_waits",
    )

    def __init__(
        self,
        bind: Callable[[], CallDispatcher],
        path: str,
        timeout_s: float | None,
        metadata: Metadata | None,
        *,
        wait_for_ready: bool,
    ) -> None:
        self._bind = bind
        self._path = path
        self._timeout_s = timeout_s
        self._metadata = metadata
        self._waits = wait_for_ready
        self._dispatcher: CallDispatcher | None = None
        self._call: StreamingCall | None = None
        self._tick = 0

    async def __aenter__(self) -> StreamingCall:
        """Begin the call, as soon as there is a connection."""
        if self._dispatcher is not None:
            raise RuntimeError("this call was already started: make another one")
        dispatcher = self._dispatcher = self._bind()
        timeout_s = left_s = self._timeout_s
        until = None if timeout_s is None else dispatcher.now() + timeout_s
        connection = dispatcher.connector.connection
        if connection is None:
            connection = await dispatcher.connection(
                self._path, until, timeout_s, wait_for_ready=self._waits
            )
            if until is not None:
                left_s = max(MIN_TIMEOUT_S, until - dispatcher.now())
            if not connection.is_ready:
                raise ConnectFailed(
                    f"the connection to {connection.endpoint} is gone: {connection.why}"
                )
        fields = connection.heads.get(self._path, left_s, self._metadata)
        call = self._call = StreamingCall(fields, dispatcher.max_message_bytes)
        call.packs = dispatcher.packs
        if until is not None and timeout_s is not None:
            self._tick = dispatcher.deadlines.add(call, until, timeout_s)
        connection.begin(call)
        return call

    async def __aexit__(self, *exc_info: object) -> None:
        """Cancel the call, if it is not over."""
        assert self._dispatcher is not None
        assert self._call is not None
        self._dispatcher.deadlines.discard(self._call, self._tick)
        self._call.failed(RpcError(Status.CANCELLED, "the block of the call was left"))
        self._call.cancel()


def _too_late(path: str, why: str) -> RpcError:
    return RpcError(Status.DEADLINE_EXCEEDED, f"{path}: {why}")


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
