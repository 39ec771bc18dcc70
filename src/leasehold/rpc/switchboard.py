"""What a channel has in its event loop: the line that takes calls, and everybody's deadlines."""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any

from leasehold.errors import Status
from leasehold.rpc.client_call import ClientCall, UnaryCall
from leasehold.rpc.client_protocol import ClientProtocol
from leasehold.rpc.connecting import Connect, Connector
from leasehold.rpc.deadlines import Deadlines
from leasehold.rpc.endpoints import Endpoint
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.header_encoder import Fields
from leasehold.rpc.limits import Limits
from leasehold.rpc.request_heads import path_of
from leasehold.stored_errors import fresh


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How the connections of a channel are made and kept."""

    limits: Limits
    keepalive_s: float | None
    keepalive_timeout_s: float
    random: Random
    connect: Connect
    packs: bool
    reconnect_max_s: float


class Switchboard:
    """Gets lines for calls, and ends what is too late."""

    def __init__(
        self,
        endpoints: tuple[Endpoint, ...],
        loop: asyncio.AbstractEventLoop,
        conditions: Conditions,
    ) -> None:
        self._loop = loop
        self.now = loop.time
        self._conditions = conditions
        self.packs = conditions.packs
        self.max_message_bytes = conditions.limits.max_message_bytes
        self.connector = Connector(
            endpoints,
            loop,
            self._make_line,
            conditions.random,
            conditions.connect,
            conditions.reconnect_max_s,
        )
        self.deadlines: Deadlines[ClientCall | asyncio.Future[Any]] = Deadlines(loop, self._expire)
        self._pauses: set[asyncio.Future[None]] = set()

    def _make_line(self, endpoint: Endpoint) -> ClientProtocol:
        conditions = self._conditions
        return ClientProtocol(
            endpoint,
            self.connector,
            conditions.limits,
            conditions.keepalive_s,
            conditions.keepalive_timeout_s,
        )

    async def attempt(
        self,
        line: ClientProtocol,
        fields: Fields,
        message: bytes,
        until: float | None,
        timeout_s: float | None,
    ) -> bytes:
        """Make a unary call on a line, once. However this ends, nothing is left of it."""
        future: asyncio.Future[bytes] = self._loop.create_future()
        call = UnaryCall(fields, self.max_message_bytes, future)
        if self.packs:
            call.packs = True
        if until is None or timeout_s is None:
            tick = 0
        else:
            tick = self.deadlines.add(call, until, timeout_s)
        try:
            line.begin(call, message)
            return await future
        finally:
            if tick:
                self.deadlines.discard(call, tick)
            if not call.is_over:
                call.cancel()

    async def line(
        self, path: str, until: float | None, timeout_s: float | None, *, wait_for_ready: bool
    ) -> ClientProtocol:
        """Wait for a line; it may be lost again already. Raises `ConnectFailed`, if too late."""
        if self.connector.line is not None:
            return self.connector.line
        waiter = self.connector.wait(wait_for_ready=wait_for_ready)
        try:
            if not await self._in_time(waiter, until, timeout_s):
                why = self.connector.last_error or "it is not made yet"
                raise _too_late(path, f"no connection within {timeout_s:g} s: {why}")
        finally:
            self.connector.give_back(waiter)
        return waiter.result()

    async def pause(
        self, path: str, pause_s: float, until: float | None, timeout_s: float | None, why: str
    ) -> None:
        """Wait for a while, before a call is made again that has failed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        alarm = self._loop.call_later(pause_s, _wake, waiter)
        self._pauses.add(waiter)
        try:
            if not await self._in_time(waiter, until, timeout_s):
                raise _too_late(path, f"it was not taken within {timeout_s:g} s: {why}")
        finally:
            self._pauses.discard(waiter)
            alarm.cancel()

    async def _in_time(
        self, waiter: "asyncio.Future[Any]", until: float | None, timeout_s: float | None
    ) -> bool:
        """Wait for something that is not a call; False if it is too late."""
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
        """End everything, and every call with a failure."""
        self.deadlines.close()
        for waiter in self._pauses:
            if not waiter.done():
                waiter.set_exception(fresh(failure))
        await self.connector.close(failure)


def _too_late(path: str, why: str) -> RpcError:
    return RpcError(Status.DEADLINE_EXCEEDED, f"{path}: {why}")


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
