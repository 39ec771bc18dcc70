"""Time limits of calls: in time, never early, and nobody else's cancellation is taken for one."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, cast

import pytest

from leasehold.engine.interface import Engine
from leasehold.engine.time_limits import CallTimeouts
from leasehold.testing import run_virtual

TICK_S = 0.01
"""A limit is kept to within this."""


class Troubled:
    """Just what is asked of an engine here."""

    trouble = ""

    def check(self) -> None:
        """Have nothing against a call."""


def patience(timeout: float = 10.0, trouble: str = "") -> CallTimeouts:
    engine = Troubled()
    engine.trouble = trouble
    return CallTimeouts(cast(Engine, engine), timeout)


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def run(main: Coroutine[Any, Any, None]) -> None:
    async def given() -> None:
        await main

    run_virtual(given)


def test_an_answer_in_time_is_given_as_it_is() -> None:
    async def answer() -> int:
        await asyncio.sleep(9.9)
        return 7

    async def main() -> None:
        assert await patience().wait(answer(), None) == 7

    run(main())


@pytest.mark.parametrize("timeout", [3.0, 3, timedelta(seconds=3), None])
def test_a_limit_is_kept_to_within_a_tick_and_never_early(
    timeout: float | timedelta | None,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError, match=r"^no answer within 3 s$"):
            await patience(3.0).wait(never(), timeout)
        assert 3.0 <= loop.time() - began <= 3.0 + 2 * TICK_S

    run(main())


def test_the_error_says_what_keeps_the_engine_from_answering() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError, match=r"^no answer within 2\.5 s: nobody is there$"):
            await patience(2.5, "nobody is there").wait(never(), None)

    run(main())


def test_each_of_many_calls_has_its_own_limit() -> None:
    async def main() -> None:
        shared, loop = patience(), asyncio.get_running_loop()
        began = loop.time()

        async def late_s(seconds: float) -> float:
            with pytest.raises(TimeoutError):
                await shared.wait(never(), seconds)
            return loop.time() - began - seconds

        late = await asyncio.gather(*(late_s(n / 7) for n in range(50, 0, -1)))
        assert all(0.0 <= each <= 2 * TICK_S for each in late)

    run(main())


def test_a_call_that_is_too_late_is_ended() -> None:
    async def main() -> None:
        ended = []

        async def call() -> None:
            try:
                await never()
            finally:
                ended.append(True)

        with pytest.raises(TimeoutError):
            await patience(1.0).wait(call(), None)
        assert ended

    run(main())


def test_a_task_that_met_a_limit_is_not_cancelled_for_anybody_else() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await patience(1.0).wait(never(), None)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(1.0)
        async with asyncio.timeout(5.0):  # counts how often the task was cancelled
            await asyncio.sleep(1.0)

    run(main())


def test_who_is_cancelled_hears_that_and_nothing_of_a_limit() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(patience(5.0).wait(never(), None))
        await asyncio.sleep(1.0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()

    run(main())


def test_who_is_cancelled_while_the_limit_ends_the_call_is_cancelled() -> None:
    async def slow_to_end() -> None:
        try:
            await never()
        finally:
            await asyncio.sleep(1.0)

    async def main() -> None:
        waiting = asyncio.create_task(patience(5.0).wait(slow_to_end(), None))
        await asyncio.sleep(5.5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert waiting.cancelled()

    run(main())


def test_a_call_of_who_is_being_cancelled_has_its_limit_all_the_same() -> None:
    told: list[TimeoutError] = []

    async def clean_up_at_the_end() -> None:
        try:
            await never()
        finally:
            with pytest.raises(TimeoutError) as caught:
                await patience(1.0).wait(never(), None)
            told.append(caught.value)

    async def main() -> None:
        ending = asyncio.create_task(clean_up_at_the_end())
        await asyncio.sleep(1.0)
        ending.cancel()
        await asyncio.wait([ending])
        assert ending.cancelled()
        assert str(told[0]) == "no answer within 1 s"

    run(main())


def test_an_answer_that_comes_while_the_limit_ends_the_call_is_given() -> None:
    async def just_too_late() -> int:
        try:
            await never()
        except asyncio.CancelledError:
            return 7
        raise AssertionError

    async def main() -> None:
        assert await patience(1.0).wait(just_too_late(), None) == 7
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main())


def test_a_shorter_limit_of_the_caller_counts_as_the_callers() -> None:
    async def main() -> None:
        outer = asyncio.timeout(1.0)
        with pytest.raises(TimeoutError) as told:
            async with outer:
                await patience(5.0).wait(never(), None)
        assert outer.expired()
        assert str(told.value) == ""

    run(main())


def test_an_error_of_the_call_itself_is_left_alone_also_a_timeout() -> None:
    async def main() -> None:
        async def call() -> None:
            raise TimeoutError("the server says so")

        with pytest.raises(TimeoutError, match=r"^the server says so$"):
            await patience().wait(call(), None)

    run(main())


def test_an_error_that_a_call_ends_with_because_it_is_too_late_is_told() -> None:
    async def main() -> None:
        async def call() -> None:
            try:
                await never()
            except asyncio.CancelledError:
                raise OSError("it went wrong while it was ended") from None

        with pytest.raises(OSError, match="it went wrong"):
            await patience(1.0).wait(call(), None)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(main())


@pytest.mark.parametrize(
    ("timeout", "error"), [(0, ValueError), (-1.0, ValueError), ("", TypeError)]
)
def test_a_call_with_a_wrong_limit_is_not_made(timeout: Any, error: type[Exception]) -> None:
    async def main() -> None:
        with pytest.raises(error, match="timeout must"):
            await patience().wait(never(), timeout)  # and no warning that nobody awaited it

    run(main())


def test_nothing_is_left_in_the_loop_after_the_end() -> None:
    async def main() -> None:
        closed, loop = patience(), asyncio.get_running_loop()
        await closed.wait(asyncio.sleep(0.1), None)
        closed.close()
        timers = [each for each in loop._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
        assert timers == []

    asyncio.run(main())


def test_who_still_waits_at_the_end_keeps_the_limit() -> None:
    async def main() -> None:
        closed = patience(5.0)
        waiting = asyncio.create_task(closed.wait(never(), None))
        await asyncio.sleep(1.0)
        closed.close()
        with pytest.raises(TimeoutError):
            await waiting

    run(main())


def test_it_belongs_to_the_loop_of_its_first_call() -> None:
    one = patience(0.02)
    with pytest.raises(TimeoutError):
        asyncio.run(one.wait(never(), None))
    with pytest.raises(RuntimeError, match="belongs to the event loop"):
        asyncio.run(one.wait(never(), None))
