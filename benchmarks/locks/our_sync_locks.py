"""Our locks, for threads."""

import logging
from contextlib import ExitStack
from functools import partial
from typing import Any

import leasehold.sync
from benchmarks.locks.driving import NAME, Order, PlainLock
from benchmarks.locks.running import measure_plain
from benchmarks.transport.samples import Figures


def measure(order: Order, protocol: str, **options: Any) -> Figures:
    """Do what is ordered."""
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it warns of etcd 3.5.1, and is right
    return measure_plain(order, protocol, partial(_open, options))


def _open(options: dict[str, Any], stack: ExitStack, order: Order, port: int) -> list[PlainLock]:
    address = f"127.0.0.1:{port}"
    clients = [
        stack.enter_context(leasehold.sync.connect(address, session_ttl=order.ttl_s))
        for _ in range(order.connections)
    ]
    return [client.lock(NAME, **options) for client in clients]
