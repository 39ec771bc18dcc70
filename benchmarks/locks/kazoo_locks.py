"""Locks of `kazoo`, on ZooKeeper: for threads."""

from contextlib import ExitStack
from typing import Any

from kazoo.client import KazooClient

from benchmarks.locks.driving import NAME, Order, PlainLock, WrongAnswer
from benchmarks.locks.running import measure_plain
from benchmarks.transport.samples import Figures


class _Lock:
    """A node under the session of its client."""

    def __init__(self, client: Any) -> None:
        self._lock = client.Lock(f"/{NAME}")

    def acquire(self) -> None:
        if not self._lock.acquire():
            raise WrongAnswer("not acquired")

    def release(self) -> None:
        if not self._lock.release():
            raise WrongAnswer("not released")


def measure(order: Order, protocol: str) -> Figures:
    """Do what is ordered."""
    return measure_plain(order, protocol, _open)


def _open(stack: ExitStack, order: Order, port: int) -> list[PlainLock]:
    locks: list[PlainLock] = []
    for _ in range(order.connections):
        client: Any = KazooClient(f"127.0.0.1:{port}", timeout=order.ttl_s)
        client.start()
        stack.callback(client.close)
        stack.callback(client.stop)
        locks.append(_Lock(client))
    return locks
