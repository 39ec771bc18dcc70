"""Many leases that end together: how late, how long in all, and the pauses of the loop.

A second callback takes every turn of the event loop that it can get; the time between two of its
turns is what a message that arrives meanwhile may have to wait.
"""

import asyncio
from dataclasses import dataclass
from time import monotonic, thread_time

from benchmarks.common.stats import quantile
from benchmarks.lease_core.collector import CollectorMeter, collector
from leasehold import FOREVER, DurationPolicy, EndReason, Landlord
from leasehold.leases.lease_clock import MAX_STEP_S

RUN_UP_S = 2.0
RUN_UP_PER_LEASE_S = 2e-5
"""Both together are allowed for setting the common end, which must be done before it comes."""

WATCH_BEFORE_S = MAX_STEP_S
"""So long before the end the watch over the loop begins.

Should the loop oversleep by more than that, lease time does not: the end comes later.
"""

QUIET_S = 0.5
"""How long the loop is watched with nothing to do: the noise of the machine."""

GRANTS_PER_TURN = 500


@dataclass(frozen=True, slots=True)
class MassExpiry:
    """One run. All in seconds."""

    total_s: float
    """From the common end to the last call of an owner."""
    cpu_s: float
    """Processor time for the same."""
    late_p50_s: float
    late_p99_s: float
    late_max_s: float
    pause_max_s: float
    busy_max_s: float
    """The longest turn of the loop in processor time: what the scheduler added left out."""
    quiet_pause_max_s: float
    """The longest pause while nothing was to be done."""
    collector_max_s: float
    """The longest single collection during the expiry."""
    lag_s: float
    """By how much lease time fell behind; an end waits for lease time."""


class _TurnWatch:
    """Notes the time between each two turns of the event loop that end after `since`."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._loop = asyncio.get_running_loop()
        self._last, self._last_cpu = monotonic(), thread_time()
        self._running = True
        self.pauses: list[float] = []
        self.busy: list[float] = []
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now, now_cpu = monotonic(), thread_time()
        if now >= self._since:
            self.pauses.append(now - self._last)
            self.busy.append(now_cpu - self._last_cpu)
        self._last, self._last_cpu = now, now_cpu
        if self._running:
            self._loop.call_soon(self._turn)

    def stop(self) -> None:
        self._running = False


def measure_mass_expiry(count: int, *, collector_on: bool) -> MassExpiry:
    """Grant `count` leases that end at one instant, and watch them go."""
    return asyncio.run(_measure(count, collector_on=collector_on))


async def _measure(count: int, *, collector_on: bool) -> MassExpiry:
    told: list[float] = []
    gone = asyncio.Event()

    def on_ended(_resource: None, _reason: EndReason) -> None:
        told.append(monotonic())
        if len(told) == count:
            gone.set()

    landlord = Landlord(DurationPolicy(maximum=FOREVER, default=FOREVER), on_ended=on_ended)
    cookies = []
    for number in range(count):
        cookies.append(landlord.grant(None, FOREVER).cookie)
        if number % GRANTS_PER_TURN == 0:
            await asyncio.sleep(0)
    quiet_pauses = await _watch_quiet_loop()
    lag_before_s = landlord.lag_s
    with collector(on=collector_on):
        end = await _set_common_end(landlord, cookies)
        await asyncio.sleep(max(0.0, end - monotonic() - WATCH_BEFORE_S))
        watch, meter = _TurnWatch(since=end), CollectorMeter()
        await gone.wait()
        watch.stop()
        meter.close()
    landlord.close()
    late = [at - end for at in told]
    assert min(late) >= 0.0, "a lease ended before its time"
    return MassExpiry(
        total_s=max(late),
        cpu_s=sum(watch.busy),
        late_p50_s=quantile(late, 0.50),
        late_p99_s=quantile(late, 0.99),
        late_max_s=max(late),
        pause_max_s=max(watch.pauses),
        busy_max_s=max(watch.busy),
        quiet_pause_max_s=max(quiet_pauses),
        collector_max_s=meter.longest_ns / 1e9,
        lag_s=landlord.lag_s - lag_before_s,
    )


async def _watch_quiet_loop() -> list[float]:
    watch = _TurnWatch(since=monotonic())
    await asyncio.sleep(QUIET_S)
    watch.stop()
    return watch.pauses


async def _set_common_end(landlord: Landlord[None], cookies: list[object]) -> float:
    """Set one end for all leases, which had none so far; return it on the monotonic clock."""
    budget_s = RUN_UP_S + len(cookies) * RUN_UP_PER_LEASE_S
    lease_end, end = landlord.now + budget_s, monotonic() + budget_s
    for number, cookie in enumerate(cookies):
        landlord.renew(cookie, lease_end - landlord.now)
        if number % GRANTS_PER_TURN == 0:
            await asyncio.sleep(0)
    assert monotonic() < end, "the renewals took longer than was allowed for them"
    return end
