"""`aetcd`, made to do what clients are measured by. Run in an environment that has it."""

import asyncio
from functools import partial
from typing import Any

import aetcd

from benchmarks.client.driving import GET, PUT, TTL_S, VALUE, Order, drive, keys
from benchmarks.transport.samples import Figures


def measure(order: Order) -> Figures:
    """Keep calls in flight."""
    return asyncio.run(_measure(order))


async def _measure(order: Order) -> Figures:
    async with aetcd.Client(host="127.0.0.1", port=order.port) as client:
        names = keys(order.in_flight)
        if order.call == PUT:
            return await drive([partial(_put, client, key) for key in names], order)
        if order.call == GET:
            for key in names:
                await client.put(key, VALUE)
            return await drive([partial(_get, client, key) for key in names], order)
        leases = [await client.lease(TTL_S) for _ in names]
        figures = await drive([partial(_renew, lease) for lease in leases], order)
        for lease in leases:
            await lease.revoke()
        return figures


async def _put(client: Any, key: bytes) -> bool:
    return bool((await client.put(key, VALUE)).header.revision > 0)


async def _get(client: Any, key: bytes) -> bool:
    found = await client.get(key)
    return found is not None and found.value == VALUE


async def _renew(lease: Any) -> bool:
    return bool((await lease.refresh()).TTL == TTL_S)
