"""Calls in a second, at several numbers of keys, measured in turns.

Theory of operation. Each number of keys, in each place, has a process of its own, all of them alive
through the whole run and all but one asleep. A round visits all of them, so that what disturbs the
machine for a while disturbs all of them, and a ratio compares neighbours in time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.common.children import Child
from benchmarks.common.progress import tell
from benchmarks.common.tables import count
from benchmarks.engine.engines import VALUE, calls_per_s, key_of, load_keys, opened, tune
from benchmarks.engine.samples import PLACES, Cell, Cells, Sample
from benchmarks.engine.scale import Scale
from benchmarks.engine.ticker import sample
from leasehold.engine.interface import Engine
from leasehold.keyspace.operations import Compare, Put, Relation, Target

PUT, TXN, GET, PAGE = "put", "compare and put", "range of 1 key", "range of 100 keys"
CALLS: Final = (PUT, TXN, GET, PAGE)
CHANGING: Final = (PUT, TXN)
ALONE, MANY = 1, 64
IN_FLIGHT: Final = (ALONE, MANY)
PAGE_KEYS: Final = 100
RATE: Final = "calls_per_s"

DRAWN: Final = 4_099
"""Keys are drawn before the clock starts, and used again and again; a prime, so not in step."""

SETTLE_S: Final = 0.02
QUIET_S: Final = 0.1


def name_of(call: str, in_flight: int) -> str:
    """What a cell is called."""
    return f"{call}, {in_flight} in flight"


NAMES: Final = {name_of(call, many): (call, many) for call in CALLS for many in IN_FLIGHT}


def measure_calls(
    base: Path, scale: Scale, only: Sequence[Cell] | None = None, *, tuned: bool = False
) -> Cells:
    """Measure all calls at all sizes, or only some."""
    wanted = list(_all(scale, tuned=tuned)) if only is None else only
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in wanted:
        groups.setdefault((cell.where, cell.count), []).append(cell)
    found: Cells = {cell: [] for cell in wanted}
    with ExitStack() as stack:
        children = {}
        for where, size in groups:
            tell(f"calls: {count(size)} keys {where}")
            child = Child(_session, where, base, size, scale.seconds, tuned=tuned)
            stack.callback(child.end)
            child.receive(scale.limit_s)
            children[where, size] = child
        for number in rounds_within(scale.rounds, scale.calls_s):
            tell(f"calls: round {number + 1} of {scale.rounds}")
            for group, cells in groups.items():
                children[group].send([cell.what for cell in cells])
                samples: list[Sample] = children[group].receive(scale.limit_s)
                for cell, taken in zip(cells, samples, strict=True):
                    found[cell].append(taken)
    return found


def _all(scale: Scale, *, tuned: bool) -> Iterator[Cell]:
    for size in scale.sizes:
        for where in PLACES:
            for name in NAMES:
                yield Cell(name, where, size, tuned)


def _session(
    connection: Connection, where: str, base: Path, size: int, seconds: float, *, tuned: bool
) -> None:
    asyncio.run(_serve(connection, where, base, size, seconds, tuned=tuned))


async def _serve(
    connection: Connection, where: str, base: Path, size: int, seconds: float, *, tuned: bool
) -> None:
    async with opened(where, base) as engine:
        await load_keys(engine, size)
        if tuned:
            tune()
        connection.send(None)
        while True:
            names: list[str] = connection.recv()
            await asyncio.sleep(SETTLE_S)  # the wait was a stall, and the engine has to see it
            connection.send([await measure_call(engine, size, name, seconds) for name in names])


async def measure_call(engine: Engine, size: int, name: str, seconds: float) -> Sample:
    """Make calls of one kind for some time."""
    call, in_flight = NAMES[name]
    make = _MAKERS[call](engine, size)
    measure = partial(calls_per_s, in_flight, make, seconds, waits=call in CHANGING)
    return await sample(measure, lambda rate: {RATE: rate}, QUIET_S)


Call = Callable[[], Awaitable[object]]


def _drawn(size: int) -> Iterator[bytes]:
    rng = Random(size)
    return cycle([key_of(rng.randrange(size)) for _ in range(DRAWN)])


def _make_put(engine: Engine, size: int) -> Call:
    keys = _drawn(size)
    return lambda: engine.put(next(keys), VALUE)


def _make_txn(engine: Engine, size: int) -> Call:
    keys = _drawn(size)

    async def call() -> None:
        key = next(keys)
        is_there = Compare(key, Target.VERSION, Relation.GREATER, 0)
        done = await engine.txn([is_there], [Put(key, VALUE)])
        assert done.succeeded, f"{key!r} is not there"

    return call


def _make_get(engine: Engine, size: int) -> Call:
    keys = _drawn(size)

    async def call() -> None:
        found = await engine.range(next(keys))
        assert len(found.pairs) == 1, "a key is not there"

    return call


def _make_page(engine: Engine, size: int) -> Call:
    rng = Random(size)
    length = min(size, PAGE_KEYS)
    starts = [rng.randrange(size - length + 1) for _ in range(DRAWN)]
    ranges = cycle([(key_of(start), key_of(start + length)) for start in starts])

    async def call() -> None:
        found = await engine.range(*next(ranges))
        assert len(found.pairs) == length, "a key is not there"

    return call


_MAKERS: Final = {PUT: _make_put, TXN: _make_txn, GET: _make_get, PAGE: _make_page}
