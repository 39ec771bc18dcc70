"""Our client for blocking code, made to do what clients are measured by."""

import logging
from contextlib import ExitStack
from functools import partial
from typing import Any

import leasehold.sync
from benchmarks.client.driving import GET, PUT, TTL_S, VALUE, Order, drive_threads, keys
from benchmarks.transport.samples import Figures


def measure(order: Order) -> Figures:
    """Keep calls in flight."""
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it warns of etcd 3.5.1, and is right
    with leasehold.sync.connect(f"127.0.0.1:{order.port}") as client:
        names = keys(order.in_flight)
        if order.call == PUT:
            return drive_threads([partial(_put, client, key) for key in names], order)
        if order.call == GET:
            for key in names:
                client.kv.put(key, VALUE)
            return drive_threads([partial(_get, client, key) for key in names], order)
        with ExitStack() as stack:
            leases = [stack.enter_context(client.lease(TTL_S)) for _ in names]
            return drive_threads([partial(_renew, lease) for lease in leases], order)


def _put(client: Any, key: bytes) -> bool:
    return bool(client.kv.put(key, VALUE).revision > 0)


def _get(client: Any, key: bytes) -> bool:
    found = client.kv.get(key)
    return found is not None and found.value == VALUE


def _renew(lease: Any) -> bool:
    return bool(lease.renew() == TTL_S)
