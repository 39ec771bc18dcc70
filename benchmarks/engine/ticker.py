"""Pauses of the event loop: a task that repeatedly sleeps for a millisecond."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic, thread_time
from typing import Final, Self, TypeVar

from benchmarks.common.steadiness import work_s
from benchmarks.engine.samples import Pause, Sample
from benchmarks.lease_core.collector import CollectorMeter

TICK_S: Final = 0.001

T = TypeVar("T")


class Ticker:
    """Notes by how much its sleeps were too long, from entering to leaving."""

    def __init__(self) -> None:
        self._longest_s = self._busy_s = 0.0
        self._is_over = False

    async def __aenter__(self) -> Self:
        self._meter = CollectorMeter()
        self._task = asyncio.create_task(self._tick())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_over = True
        await self._task  # it has its turn after whatever came last
        self._meter.close()

    async def _tick(self) -> None:
        while not self._is_over:
            began_s, began_cpu_s = monotonic(), thread_time()
            await asyncio.sleep(TICK_S)
            self._longest_s = max(self._longest_s, monotonic() - began_s - TICK_S)
            self._busy_s = max(self._busy_s, thread_time() - began_cpu_s)

    @property
    def pause(self) -> Pause:
        """What it has seen."""
        return Pause(self._longest_s, self._busy_s, self._meter.longest_ns / 1e9)


async def sample(
    measure: Callable[[], Awaitable[T]], figures: Callable[[T], dict[str, float]], quiet_s: float
) -> Sample:
    """Measure one round: the machine's speed, a quiet loop, then what it is about.

    Figures are made of what that gives when it is over: to sort it would be a pause as well.
    """
    before_s = work_s()
    async with Ticker() as quiet:
        await asyncio.sleep(quiet_s)
    async with Ticker() as ticker:
        result = await measure()
    return Sample(figures(result), ticker.pause, quiet.pause, (before_s, work_s()))
