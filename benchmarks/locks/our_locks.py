"""Our locks, on an event loop."""

import logging
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import leasehold
from benchmarks.locks.driving import NAME, AsyncLock, Order
from benchmarks.locks.running import measure_async
from benchmarks.transport.samples import Figures
from leasehold.locks.lock import Lock


class _Lock:
    """Acquiring goes straight to the lock: what is measured is not much more than a call."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.acquire = lock.acquire

    async def release(self) -> None:
        self._lock.release()


def measure(order: Order, protocol: str, **options: Any) -> Figures:
    """Do what is ordered."""
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it warns of etcd 3.5.1, and is right
    return measure_async(order, protocol, partial(_open, options))


async def _open(
    options: dict[str, Any], stack: AsyncExitStack, order: Order, port: int
) -> list[AsyncLock]:
    address = f"127.0.0.1:{port}"
    clients = [
        await stack.enter_async_context(leasehold.connect(address, session_ttl=order.ttl_s))
        for _ in range(order.connections)
    ]
    return [_Lock(client.lock(NAME, **options)) for client in clients]
