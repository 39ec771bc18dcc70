"""Locks of `redis-py`, for threads."""

from contextlib import ExitStack
from typing import Any

import redis

from benchmarks.locks.driving import NAME, Order, PlainLock, WrongAnswer
from benchmarks.locks.running import measure_plain
from benchmarks.transport.samples import Figures


class _Lock:
    """Polls every 0.1 s while the lock is held, as by default."""

    def __init__(self, client: Any, ttl_s: float) -> None:
        self._lock = client.lock(NAME, timeout=ttl_s)

    def acquire(self) -> None:
        if not self._lock.acquire():
            raise WrongAnswer("not acquired")

    def release(self) -> None:
        self._lock.release()


def measure(order: Order, protocol: str) -> Figures:
    """Do what is ordered."""
    return measure_plain(order, protocol, _open)


def _open(stack: ExitStack, order: Order, port: int) -> list[PlainLock]:
    clients = [stack.enter_context(redis.Redis(port=port)) for _ in range(order.connections)]
    return [_Lock(client, order.ttl_s) for client in clients]
