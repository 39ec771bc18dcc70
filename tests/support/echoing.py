"""The plainest server and client there are, on both loops, for tests of what is below them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import pytest
import uvloop

DEADLINE_S: Final = 60.0

Run = Callable[[Coroutine[Any, Any, None]], None]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Echo(asyncio.Protocol):
    """Echoes its input, and reports new connections to a queue."""

    def __init__(self, made: "asyncio.Queue[Echo] | None" = None) -> None:
        self._made = made
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._made is not None:
            self._made.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Client(asyncio.Protocol):
    """Reads what comes back."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got.put_nowait(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    async def ask(self, question: bytes) -> bytes:
        self.transport.write(question)
        async with asyncio.timeout(DEADLINE_S):
            return await self.got.get()

    async def hang_up(self) -> None:
        self.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            await self.lost
