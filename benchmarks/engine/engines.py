"""Engines to measure, and how they are filled."""

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.engine.samples import MEMORY
from leasehold.engine.embedded import open_engine
from leasehold.engine.interface import Engine
from leasehold.keyspace.operations import Put
from leasehold.store.housekeeping import AutoCompaction

MEMORY_PATH: Final = "memory:"
VALUE: Final = bytes(range(100))
PREFIX: Final = b"key/"
KEYS_PER_TXN: Final = 100
LOADING_IN_FLIGHT: Final = 32
CALLS_IN_FLIGHT: Final = 1_000
"""While single puts and grants are made in great numbers."""

LONG_TTL_S: Final = 86_400.0
KEEP_ALL: Final = AutoCompaction(age=None, revisions=None)

TURN_S: Final = 0.002
"""What all callers together do in one turn of the loop if their calls wait for nothing."""


def key_of(number: int, prefix: bytes = PREFIX) -> bytes:
    """A short key; they are in the order of their numbers."""
    return b"%s%07d" % (prefix, number)


@asynccontextmanager
async def opened(where: str, base: Path) -> AsyncIterator[Engine]:
    """Open an empty engine: in memory, or in a new directory within `base`."""
    path = MEMORY_PATH if where == MEMORY else tempfile.mkdtemp(dir=base)
    async with open_engine(path) as engine:
        yield engine


async def in_flight(callers: int, call: Callable[[int], Awaitable[object]], calls: int) -> None:
    """Make calls, numbered from 0, with a fixed number in flight."""
    numbers = iter(range(calls))

    async def caller() -> None:
        for number in numbers:
            await call(number)

    await asyncio.gather(*(caller() for _ in range(min(callers, calls))))


async def calls_per_s(
    callers: int, call: Callable[[], Awaitable[object]], seconds: float, *, waits: bool
) -> float:
    """Make calls for some time, a fixed number in flight, and count those that were answered.

    A call `waits` if it always lets others have a turn, as one does that changes something.
    """
    began_s = monotonic()
    until_s = began_s + seconds
    share_s = math.inf if waits else TURN_S / callers
    answered = count()

    async def caller() -> None:
        turn_s = now_s = began_s
        while now_s < until_s:
            await call()
            next(answered)
            now_s = monotonic()
            if now_s - turn_s > share_s:
                await asyncio.sleep(0)
                turn_s = monotonic()

    await asyncio.gather(*(caller() for _ in range(callers)))
    return next(answered) / (monotonic() - began_s)


async def put_keys(
    engine: Engine, keys: Sequence[bytes], leases: Sequence[int] | None = None
) -> None:
    """Put many keys, in transactions; each under its lease, if there are any."""

    async def put_some(number: int) -> None:
        start = number * KEYS_PER_TXN
        some = keys[start : start + KEYS_PER_TXN]
        under = [0] * len(some) if leases is None else leases[start : start + KEYS_PER_TXN]
        puts = [Put(key, VALUE, lease) for key, lease in zip(some, under, strict=True)]
        await engine.txn(success=puts)

    await in_flight(LOADING_IN_FLIGHT, put_some, -(-len(keys) // KEYS_PER_TXN))


async def load_keys(engine: Engine, keys: int, prefix: bytes = PREFIX) -> None:
    """Put keys with the numbers from 0 on."""
    await put_keys(engine, [key_of(number, prefix) for number in range(keys)])


async def put_revisions(engine: Engine, revisions: int, keys: int) -> None:
    """Put keys one by one, a revision each, each key again and again."""

    async def put_one(number: int) -> None:
        await engine.put(key_of(number % keys), VALUE)

    await in_flight(CALLS_IN_FLIGHT, put_one, revisions)


async def grant_leases(engine: Engine, leases: int, ttl_s: float = LONG_TTL_S) -> list[int]:
    """Grant leases, and return their ids."""
    ids: list[int] = []

    async def grant_one(_number: int) -> None:
        ids.append((await engine.grant(ttl_s)).id)

    await in_flight(CALLS_IN_FLIGHT, grant_one, leases)
    return ids


def pieces(total: int, size: int) -> Iterator[int]:
    """Cut a number into pieces of at most `size`."""
    for start in range(0, total, size):
        yield min(size, total - start)


def tune() -> None:
    """Set the interpreter up as our server does it."""
    from leasehold.server.app import tune_interpreter  # noqa: PLC0415  long, and rarely needed

    tune_interpreter()
