"""Locks of `etcd3`, for threads. Run in an environment that has it."""

import math
import threading
from contextlib import ExitStack
from typing import Any

import etcd3

from benchmarks.locks.driving import NAME, Order, PlainLock, WrongAnswer
from benchmarks.locks.running import measure_plain
from benchmarks.transport.samples import Figures


class _Lock:
    """A key under a lease of its own, which expires after a release."""

    def __init__(self, client: Any, ttl_s: float) -> None:
        self._lock = client.lock(NAME, ttl=math.ceil(ttl_s))

    def acquire(self) -> None:
        while not self._lock.acquire():  # it can miss a release, and asks again after 10 s
            pass

    def release(self) -> None:
        if not self._lock.release():
            raise WrongAnswer("not released")


def measure(order: Order, protocol: str) -> Figures:
    """Do what is ordered."""
    threading.excepthook = lambda _: None  # its watchers fail when a client is closed, each time
    return measure_plain(order, protocol, _open)


def _open(stack: ExitStack, order: Order, port: int) -> list[PlainLock]:
    clients = [
        stack.enter_context(etcd3.client(host="127.0.0.1", port=port))
        for _ in range(order.connections)
    ]
    return [_Lock(client, order.ttl_s) for client in clients]
