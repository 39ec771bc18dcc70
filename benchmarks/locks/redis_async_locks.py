"""Locks of `redis-py`, for asyncio."""

from contextlib import AsyncExitStack
from typing import Any

import redis.asyncio

from benchmarks.locks.driving import NAME, AsyncLock, Order, WrongAnswer
from benchmarks.locks.running import measure_async
from benchmarks.transport.samples import Figures


class _Lock:
    """Polls every 0.1 s while the lock is held, as by default."""

    def __init__(self, client: Any, ttl_s: float) -> None:
        self._lock = client.lock(NAME, timeout=ttl_s)

    async def acquire(self) -> None:
        if not await self._lock.acquire():
            raise WrongAnswer("not acquired")

    async def release(self) -> None:
        await self._lock.release()


def measure(order: Order, protocol: str) -> Figures:
    """Do what is ordered."""
    return measure_async(order, protocol, _open)


async def _open(stack: AsyncExitStack, order: Order, port: int) -> list[AsyncLock]:
    clients = [
        await stack.enter_async_context(redis.asyncio.Redis(port=port))
        for _ in range(order.connections)
    ]
    return [_Lock(client, order.ttl_s) for client in clients]
