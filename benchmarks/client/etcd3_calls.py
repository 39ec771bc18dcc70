"""`etcd3`, made to do what clients are measured by. Run in an environment that has it."""

from functools import partial
from typing import Any

import etcd3

from benchmarks.client.driving import (
    GET,
    PUT,
    TTL_S,
    VALUE,
    Order,
    drive_threads,
    keys,
)
from benchmarks.transport.samples import Figures


def measure(order: Order) -> Figures:
    """Keep calls in flight."""
    with etcd3.client(host="127.0.0.1", port=order.port) as client:
        names = keys(order.in_flight)
        if order.call == PUT:
            return drive_threads([partial(_put, client, key) for key in names], order)
        if order.call == GET:
            for key in names:
                client.put(key, VALUE)
            return drive_threads([partial(_get, client, key) for key in names], order)
        leases = [client.lease(TTL_S) for _ in names]
        figures = drive_threads([partial(_renew, lease) for lease in leases], order)
        for lease in leases:
            lease.revoke()
        return figures


def _put(client: Any, key: bytes) -> bool:
    return bool(client.put(key, VALUE).header.revision > 0)


def _get(client: Any, key: bytes) -> bool:
    found, _ = client.get(key)
    return bool(found == VALUE)


def _renew(lease: Any) -> bool:
    (answer,) = lease.refresh()
    return bool(answer.TTL == TTL_S)
