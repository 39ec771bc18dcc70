"""One alarm for the deadlines of all calls."""

import asyncio
import gc
from collections.abc import Callable
from typing import cast

import pytest

from leasehold.basics.timers import TICKS_PER_S, Deadlines
from leasehold.testing.loop import HostLoop
from leasehold.testing.simulation import run_virtual

TICK_S = 1 / TICKS_PER_S


class Late:
    """Notes who was too late, and when."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.told: list[tuple[object, float, float]] = []
        self.deadlines: Deadlines[object] = Deadlines(self.loop, self._expire)
        self.on_expiry: Callable[[object], None] = lambda _: None

    def _expire(self, entry: object, timeout_s: float) -> None:
        self.told.append((entry, timeout_s, self.loop.time()))
        self.on_expiry(entry)

    def add(self, entry: object, timeout_s: float) -> int:
        return self.deadlines.add(entry, self.loop.time() + timeout_s, timeout_s)

    @property
    def names(self) -> list[object]:
        return [entry for entry, _, _ in self.told]


def alarms() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HostLoop)
    return sum(not entry[3].cancelled() for entry in loop._timers)


@pytest.mark.parametrize("timeout_s", [0.001, 0.01, 0.0149, 0.5, 1.0, 3600.0])
def test_it_is_told_at_the_deadline_within_a_tick_and_never_early(timeout_s: float) -> None:
    async def main() -> None:
        late = Late()
        begun = late.loop.time()
        late.add("call", timeout_s)
        await asyncio.sleep(timeout_s + 2 * TICK_S)
        ((entry, told_s, at),) = late.told
        assert (entry, told_s) == ("call", timeout_s)
        assert timeout_s <= at - begun <= timeout_s + TICK_S + 1e-6
        assert (len(late.deadlines), alarms()) == (0, 0)

    run_virtual(main)


@pytest.mark.parametrize("tick", [29, 57, 58, 113, 435])
def test_an_alarm_whose_time_is_rounded_to_just_below_its_tick_goes_off_once(tick: int) -> None:
    at = tick / TICKS_PER_S
    assert int(at * TICKS_PER_S) == tick - 1, "this shows nothing"
    expired: list[str] = []
    loop = StillLoop(at)
    deadlines: Deadlines[str] = Deadlines(
        cast(asyncio.AbstractEventLoop, loop), lambda entry, _: expired.append(entry)
    )
    assert deadlines.add("call", at - TICK_S / 2, 1.0) == tick
    while loop.alarms:
        assert loop.rang < 2, "it goes off again and again"
        loop.ring()
    assert expired == ["call"]


class StillLoop:
    """A loop whose clock stands at the time that an alarm is set for."""

    def __init__(self, now: float) -> None:
        self._now = now
        self.alarms: list[Callable[[], None]] = []
        self.rang = 0

    def time(self) -> float:
        return self._now

    def call_at(self, _when: float, callback: Callable[[], None]) -> None:
        self.alarms.append(callback)

    def ring(self) -> None:
        self.rang += 1
        self.alarms.pop(0)()


def test_they_are_told_in_their_order_with_one_alarm() -> None:
    async def main() -> None:
        late = Late()
        for timeout_s in (3.0, 1.0, 2.0, 0.5, 4.0):
            late.add(timeout_s, timeout_s)
            assert alarms() == 1
        await asyncio.sleep(5)
        assert late.names == [0.5, 1.0, 2.0, 3.0, 4.0]

    run_virtual(main)


def test_what_was_taken_back_is_not_told() -> None:
    async def main() -> None:
        late = Late()
        ticks = {name: late.add(name, 1.0) for name in "abc"}
        late.deadlines.discard("b", ticks["b"])
        late.deadlines.discard("b", ticks["b"])
        await asyncio.sleep(2)
        assert sorted(map(str, late.names)) == ["a", "c"]
        late.deadlines.discard("a", ticks["a"])

    run_virtual(main)


def test_what_is_set_in_the_past_is_told_soon() -> None:
    async def main() -> None:
        late = Late()
        late.add("far", 50.0)
        late.add("gone", -1.0)
        await asyncio.sleep(TICK_S)
        assert late.names == ["gone"]
        late.deadlines.close()

    run_virtual(main)


def test_whoever_is_told_may_set_and_take_back_others() -> None:
    async def main() -> None:
        late = Late()
        other = late.add("other", 1.0)
        late.add("first", 0.5)

        def change(entry: object) -> None:
            if entry == "first":
                late.deadlines.discard("other", other)
                late.add("new", 0.1)

        late.on_expiry = change
        await asyncio.sleep(3)
        assert late.names == ["first", "new"]

    run_virtual(main)


def test_closing_leaves_no_alarm() -> None:
    async def main() -> None:
        late = Late()
        tick = late.add("call", 1.0)
        late.deadlines.close()
        late.deadlines.discard("call", tick)
        assert (len(late.deadlines), alarms()) == (0, 0)
        await asyncio.sleep(2)
        assert late.told == []

    run_virtual(main)


def test_many_short_calls_with_long_time_outs_leave_nothing_behind() -> None:
    async def main() -> None:
        late = Late()
        gc.collect()
        before = len(gc.get_objects())
        for index in range(250_000):
            tick = late.add(index, 5.0)
            late.deadlines.discard(index, tick)
            if not index % 500:
                assert alarms() == 1
                await asyncio.sleep(TICK_S)
        gc.collect()
        assert len(late.deadlines._buckets) == 0
        assert len(gc.get_objects()) - before < 100
        late.deadlines.close()

    run_virtual(main)


def test_an_alarm_that_finds_nothing_due_is_set_for_the_next() -> None:
    async def main() -> None:
        late = Late()
        early = late.add("early", 1.0)
        late.add("later", 10.0)
        late.deadlines.discard("early", early)
        await asyncio.sleep(9.9)
        assert (late.names, alarms()) == ([], 1)
        await asyncio.sleep(0.2)
        assert late.names == ["later"]

    run_virtual(main)
