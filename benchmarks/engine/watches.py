"""Watches: how soon the last of many has a change, and the cost of a put with many others.

Each number of watches has an engine of its own, all in one process and all but one idle; a round
visits all of them, the one without watches first.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from benchmarks.common.budget import rounds_within
from benchmarks.engine.engines import VALUE, calls_per_s, key_of, opened, tune
from benchmarks.engine.samples import Cell, Cells, Sample
from benchmarks.engine.scale import Scale
from benchmarks.engine.ticker import sample
from leasehold.engine.interface import Engine, Watch, prefix_end
from leasehold.errors import Closed

FAN_OUT, BESIDE = "one change, all watches match", "put, one watch matches"
LAST_S, PUT_S = "last_s", "put_s"

IN_FLIGHT: Final = 64
CHANGES: Final = 20
"""Changes in one sample of a fan-out; fewer where there are many watches."""

TOLD_AT_MOST: Final = 40_000
WAIT_S: Final = 60.0
QUIET_S: Final = 0.1
SHARED: Final = b"shared"


class Audience:
    """Watches with a reader each, and the number of events."""

    def __init__(self) -> None:
        self.told = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._until = 0
        self._reached = asyncio.Event()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, watch: Watch) -> None:
        """Read a watch until its engine is closed."""
        self._tasks.append(asyncio.create_task(self._read(watch)))

    async def _read(self, watch: Watch) -> None:
        try:
            async for events in watch:
                self.told += len(events.events)
                if self.told >= self._until:
                    self._reached.set()
        except Closed:
            return

    async def wait_for(self, times: int) -> None:
        """Wait until they have received this many events in total."""
        self._until = times
        self._reached.clear()
        if self.told < times:
            async with asyncio.timeout(WAIT_S):
                await self._reached.wait()
        assert self.told == times, f"told {self.told} times, not {times}"

    async def gone(self) -> None:
        """Wait until all readers have ended."""
        await asyncio.gather(*self._tasks)


def measure_watches(
    where: str, base: Path, scale: Scale, only: Sequence[Cell] | None = None, *, tuned: bool = False
) -> Cells:
    """Measure with all numbers of watches, or only some of it."""
    fans = [Cell(FAN_OUT, where, number, tuned) for number in scale.watches]
    others = [Cell(BESIDE, where, number, tuned) for number in (0, *scale.watches)]
    wanted = [*fans, *others] if only is None else list(only)
    return asyncio.run(_measure(base, scale, wanted))


async def _measure(base: Path, scale: Scale, wanted: Sequence[Cell]) -> Cells:
    found: Cells = {cell: [] for cell in wanted}
    async with AsyncExitStack() as stack:
        audiences: dict[Cell, tuple[Engine, Audience]] = {}
        for cell in wanted:
            audience = Audience()
            stack.push_async_callback(audience.gone)
            engine = await stack.enter_async_context(opened(cell.where, base))
            audiences[cell] = engine, audience
            _seat(engine, audience, cell)
        await asyncio.sleep(0)  # all readers wait now
        if any(cell.tuned for cell in wanted):
            tune()
        for _ in rounds_within(scale.rounds, scale.watches_s):
            for cell, (engine, audience) in audiences.items():
                found[cell].append(await _sample(engine, audience, cell.what, scale.seconds))
    return found


def _seat(engine: Engine, audience: Audience, cell: Cell) -> None:
    """Make the watches: all of one key, or each of another one, by turns a key and a prefix."""
    for number in range(cell.count):
        if cell.what == FAN_OUT:
            audience.add(engine.watch(SHARED))
        elif number % 2:
            prefix = key_of(number) + b"/"
            audience.add(engine.watch(prefix, prefix_end(prefix)))
        else:
            audience.add(engine.watch(key_of(number)))


async def _sample(engine: Engine, audience: Audience, what: str, seconds: float) -> Sample:
    if what == FAN_OUT:
        fan_out = partial(_fan_out, engine, audience)
        return await sample(fan_out, lambda last_s: {LAST_S: last_s}, QUIET_S)
    beside = partial(_beside, engine, audience, seconds)
    return await sample(beside, lambda put_s: {PUT_S: put_s}, QUIET_S)


async def _fan_out(engine: Engine, audience: Audience) -> float:
    """Change the key that all watch, a few times; the mean time until the last received it."""
    watches = len(audience)
    changes = max(1, min(CHANGES, TOLD_AT_MOST // watches))
    spent_s = 0.0
    for _ in range(changes):
        told = audience.told
        began_s = monotonic()
        await engine.put(SHARED, VALUE)
        await audience.wait_for(told + watches)
        spent_s += monotonic() - began_s
    return spent_s / changes


async def _beside(engine: Engine, audience: Audience, seconds: float) -> float:
    """Put a key that one of them watches, many at a time; real time for each."""
    first, last = 0, 0

    async def call() -> None:
        nonlocal first, last
        last = (await engine.put(key_of(0), VALUE)).revision
        first = first or last

    told = audience.told
    rate = await calls_per_s(IN_FLIGHT, call, seconds, waits=True)
    if len(audience):
        await audience.wait_for(told + last - first + 1)
    return 1.0 / rate
