"""What a client is made to do, and what is noted of it: the same for every client."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle, repeat
from random import Random
from time import perf_counter, process_time
from typing import Final

from benchmarks.common.stats import quantile
from benchmarks.transport.echo import BODY
from benchmarks.transport.samples import CPU_US, P50_MS, P99_MS, RATE, Figures

WARM_UP_S: Final = 0.1
TIMEOUT_S: Final = 5.0
STREAM_TIMEOUT_S: Final = 60.0
STREAM_IN_FLIGHT: Final = 32
"""Messages on one stream that are not answered yet."""

PIECES: Final = 128
"""Large messages in one call."""

DRAWN: Final = 4_099
"""Timeouts are drawn before the clock starts, and used again and again."""


class WrongAnswer(Exception):
    """A client reported success, but the answer is wrong."""


def check(answer: object) -> None:
    """Raise an error unless the answer is an echo."""
    if answer != BODY:
        raise WrongAnswer(f"{answer!r} is not what was sent")


def timeouts_s(*, changing: bool) -> Iterator[float]:
    """How long calls may take: always the same, or what is left of a time that runs out."""
    if not changing:
        return repeat(TIMEOUT_S)
    rng = Random(0)
    return cycle([TIMEOUT_S - rng.randrange(1, 1_000_000) / 1e6 for _ in range(DRAWN)])


class Meter:
    """Notes latencies and processor time from one moment on."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.count = 0
        self.restart()

    def restart(self) -> None:
        """Forget what was before."""
        self.latencies_s.clear()
        self.count = 0
        self._cpu_s, self._began = process_time(), perf_counter()

    def figures(self) -> Figures:
        """What was noted until now."""
        took_s, cpu_s = perf_counter() - self._began, process_time() - self._cpu_s
        count = self.count or len(self.latencies_s)
        figures = {RATE: count / took_s, CPU_US: 1e6 * cpu_s / count}
        if self.latencies_s:
            figures[P50_MS] = 1e3 * quantile(self.latencies_s, 0.5)
            figures[P99_MS] = 1e3 * quantile(self.latencies_s, 0.99)
        return figures


async def drive(
    call: Callable[[float], Awaitable[bytes]], in_flight: int, seconds: float, *, changing: bool
) -> Figures:
    """Keep calls in flight, each from a task that makes one after the other."""
    chosen = timeouts_s(changing=changing)
    meter = Meter()

    async def caller(deadline: float) -> None:
        note, clock = meter.latencies_s.append, perf_counter
        began = clock()
        while began < deadline or not meter.latencies_s:
            check(await call(next(chosen)))
            now = clock()
            note(now - began)
            began = now

    async def all_callers(for_s: float) -> None:
        deadline = perf_counter() + for_s
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(caller(deadline))

    await all_callers(WARM_UP_S)
    meter.restart()
    await all_callers(seconds)
    return meter.figures()


async def converse(
    send: Callable[[bytes], Awaitable[None]],
    receive: Callable[[], Awaitable[object]],
    seconds: float,
) -> Figures:
    """Send a message for each that comes back, on one stream."""
    for _ in range(STREAM_IN_FLIGHT):
        await send(BODY)
    meter = Meter()
    for for_s in (WARM_UP_S, seconds):
        meter.restart()
        deadline = perf_counter() + for_s
        while perf_counter() < deadline or not meter.count:
            check(await receive())
            meter.count += 1
            await send(BODY)
    figures = meter.figures()
    for _ in range(STREAM_IN_FLIGHT):
        check(await receive())
    return figures


async def download(pieces: Callable[[], Awaitable[int]], seconds: float) -> Figures:
    """Have large messages come, call after call."""
    meter = Meter()
    for for_s in (WARM_UP_S, seconds):
        meter.restart()
        deadline = perf_counter() + for_s
        while perf_counter() < deadline or not meter.count:
            meter.count += await pieces()
    return meter.figures()
