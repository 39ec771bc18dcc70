"""Our client, made to do what clients are measured by."""

import asyncio
import logging
from contextlib import AsyncExitStack
from functools import partial

import uvloop

import leasehold
from benchmarks.client.driving import GET, PUT, TTL_S, VALUE, Order, drive, keys
from benchmarks.transport.samples import Figures
from leasehold.client.client import Client
from leasehold.sessions.held_lease import HeldLease


def measure(order: Order, *, on_uvloop: bool) -> Figures:
    """Keep calls in flight."""
    logging.getLogger("leasehold").setLevel(logging.ERROR)  # it warns of etcd 3.5.1, and is right
    run = uvloop.run if on_uvloop else asyncio.run
    figures: Figures = run(_measure(order))
    return figures


async def _measure(order: Order) -> Figures:
    async with leasehold.connect(f"127.0.0.1:{order.port}") as client:
        names = keys(order.in_flight)
        if order.call == PUT:
            return await drive([partial(_put, client, key) for key in names], order)
        if order.call == GET:
            for key in names:
                await client.kv.put(key, VALUE)
            return await drive([partial(_get, client, key) for key in names], order)
        async with AsyncExitStack() as stack:
            leases = [await stack.enter_async_context(client.lease(TTL_S)) for _ in names]
            return await drive([partial(_renew, lease) for lease in leases], order)


async def _put(client: Client, key: bytes) -> bool:
    return (await client.kv.put(key, VALUE)).revision > 0


async def _get(client: Client, key: bytes) -> bool:
    found = await client.kv.get(key)
    return found is not None and found.value == VALUE


async def _renew(lease: HeldLease) -> bool:
    return await lease.renew() == TTL_S
