"""Locks of `aetcd`. Run in an environment that has it."""

import math
from contextlib import AsyncExitStack
from typing import Any

import aetcd

from benchmarks.locks.driving import NAME, AsyncLock, Order, WrongAnswer
from benchmarks.locks.running import measure_async
from benchmarks.transport.samples import Figures


class _Lock:
    """A key under a lease of its own, which expires after a release."""

    def __init__(self, client: Any, ttl_s: float) -> None:
        self._lock = client.lock(NAME.encode(), ttl=math.ceil(ttl_s))

    async def acquire(self) -> None:
        if not await self._lock.acquire(timeout=None):
            raise WrongAnswer("not acquired")

    async def release(self) -> None:
        if not await self._lock.release():
            raise WrongAnswer("not released")


def measure(order: Order, protocol: str) -> Figures:
    """Do what is ordered."""
    return measure_async(order, protocol, _open)


async def _open(stack: AsyncExitStack, order: Order, port: int) -> list[AsyncLock]:
    clients = [
        await stack.enter_async_context(aetcd.Client(host="127.0.0.1", port=port))
        for _ in range(order.connections)
    ]
    return [_Lock(client, order.ttl_s) for client in clients]
