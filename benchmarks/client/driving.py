"""What a client is made to do, and what is noted of it: the same for every client.

This is run in the environments of other clients too, so it needs nothing but Python.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from time import perf_counter, process_time
from typing import Final

from benchmarks.common.processes import cpu_s_of
from benchmarks.common.stats import quantile
from benchmarks.transport.samples import CPU_US, OTHER_CPU_US, P50_MS, P99_MS, RATE, Figures

PUT, GET, RENEW = "put", "get", "renew"
CALLS: Final = (PUT, GET, RENEW)

WARM_UP_S: Final = 0.1
VALUE: Final = b"v" * 64
TTL_S: Final = 60
"""Of leases that are renewed: long, because only the measured calls renew them."""

AsyncCall = Callable[[], Awaitable[bool]]
"""Makes one call, and returns whether the answer is correct."""
PlainCall = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Order:
    """One sample: which call, how many in flight, for how long, and where the server is."""

    call: str
    in_flight: int
    seconds: float
    port: int
    server_pid: int


class WrongAnswer(Exception):
    """A client reported success, but the answer is wrong."""


def keys(count: int) -> list[bytes]:
    """A key for each caller."""
    return [b"bench/%04d" % number for number in range(count)]


class Meter:
    """Notes latencies, and the processor time of both ends, from one moment on."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self.latencies_s: list[float] = []
        self.restart()

    def restart(self) -> None:
        """Forget what was before."""
        self.latencies_s.clear()
        self._server_s = cpu_s_of(self._server_pid)
        self._cpu_s, self._began = process_time(), perf_counter()

    def figures(self) -> Figures:
        """What was noted until now."""
        took_s, cpu_s = perf_counter() - self._began, process_time() - self._cpu_s
        server_s, done = cpu_s_of(self._server_pid) - self._server_s, len(self.latencies_s)
        return {
            RATE: done / took_s,
            CPU_US: 1e6 * cpu_s / done,
            OTHER_CPU_US: 1e6 * server_s / done,
            P50_MS: 1e3 * quantile(self.latencies_s, 0.5),
            P99_MS: 1e3 * quantile(self.latencies_s, 0.99),
        }


async def drive(calls: Sequence[AsyncCall], order: Order) -> Figures:
    """Keep calls in flight, each from a task that makes one after the other, and one at least."""
    meter = Meter(order.server_pid)

    async def caller(call: AsyncCall, deadline: float) -> None:
        note, clock = meter.latencies_s.append, perf_counter
        began, is_over = clock(), False
        while not is_over:
            if not await call():
                raise WrongAnswer(order.call)
            now = clock()
            note(now - began)
            began, is_over = now, now >= deadline

    for for_s in (WARM_UP_S, order.seconds):
        meter.restart()
        deadline = perf_counter() + for_s
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(caller(call, deadline))
    return meter.figures()


def drive_threads(calls: Sequence[PlainCall], order: Order) -> Figures:
    """Keep calls in flight, each from a thread that makes one after the other, and one at least."""
    meter = Meter(order.server_pid)
    failures: list[BaseException] = []

    def caller(call: PlainCall, deadline: float) -> None:
        note, clock = meter.latencies_s.append, perf_counter
        began, is_over = clock(), False
        try:
            while not is_over:
                if not call():
                    raise WrongAnswer(order.call)
                now = clock()
                note(now - began)
                began, is_over = now, now >= deadline
        except Exception as error:  # noqa: BLE001  raised by the caller
            failures.append(error)

    for for_s in (WARM_UP_S, order.seconds):
        meter.restart()
        deadline = perf_counter() + for_s
        threads = [Thread(target=caller, args=(call, deadline)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
    return meter.figures()
