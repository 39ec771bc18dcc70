"""Opening clients and driving their locks, on the server itself or through a relay that counts.

This is run in the environments of other clients too, so it needs nothing but Python.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from functools import partial

from benchmarks.locks.counting import count, count_async
from benchmarks.locks.driving import (
    AsyncLock,
    Order,
    PlainLock,
    drive,
    drive_threads,
    pairs,
    plain_pairs,
)
from benchmarks.locks.relay import relaying
from benchmarks.transport.samples import Figures

OpenAsync = Callable[[AsyncExitStack, Order, int], Awaitable[list[AsyncLock]]]
"""Returns the lock of each client, with connections to a port."""
OpenPlain = Callable[[ExitStack, Order, int], list[PlainLock]]


def measure_async(order: Order, protocol: str, opening: OpenAsync) -> Figures:
    """Do what is ordered, on an event loop."""
    return asyncio.run(_measure(order, protocol, opening))


async def _measure(order: Order, protocol: str, opening: OpenAsync) -> Figures:
    if not order.is_counted:
        async with AsyncExitStack() as stack:
            return await drive(await opening(stack, order, order.port), order)
    with relaying(order.port, protocol) as relay:
        async with AsyncExitStack() as stack:
            (lock,) = await opening(stack, order, relay.port)
            return await count_async(relay, order.pairs, partial(pairs, lock))


def measure_plain(order: Order, protocol: str, opening: OpenPlain) -> Figures:
    """Do what is ordered, in threads."""
    if not order.is_counted:
        with ExitStack() as stack:
            return drive_threads(opening(stack, order, order.port), order)
    with relaying(order.port, protocol) as relay, ExitStack() as stack:
        (lock,) = opening(stack, order, relay.port)
        thread = stack.enter_context(ThreadPoolExecutor(1))
        work = partial(count, relay, order.pairs, partial(plain_pairs, lock))
        return thread.submit(work).result()
