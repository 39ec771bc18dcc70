"""Attempts to connect, one after the other, and beside each other: in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from leasehold.errors import ConnectFailed
from leasehold.grpc.channel import Channel
from leasehold.grpc.connecting import GREETING_S, HEAD_START_S, RaceLost, RaceWon, race
from leasehold.testing.simulation import run_virtual
from tests.support.raw_server import PATH, Net, echoing

Attempt = Callable[[], Coroutine[Any, Any, str]]


def now() -> float:
    return asyncio.get_running_loop().time()


class Course:
    """Attempts that take a given time, and what becomes of them."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, float]] = []
        self.cancelled: list[str] = []
        self.discarded: list[str] = []
        self._since = now()

    def attempt(self, name: str, seconds: float, *, works: bool = True) -> Attempt:
        async def run() -> str:
            self.begun.append((name, round(now() - self._since, 3)))
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            if not works:
                raise ConnectFailed(name)
            return name

        return run

    async def race(self, *attempts: Attempt) -> RaceWon[str] | RaceLost:
        return await race(attempts, 1.0, self.discarded.append)


def test_the_first_that_works_is_alone() -> None:
    async def main() -> None:
        course = Course()
        won = await course.race(course.attempt("a", 0.9), course.attempt("b", 0))
        assert won == RaceWon(0, "a")
        assert course.begun == [("a", 0)]

    run_virtual(main)


def test_one_that_fails_is_followed_at_once() -> None:
    async def main() -> None:
        course = Course()
        won = await course.race(course.attempt("a", 0.1, works=False), course.attempt("b", 0.1))
        assert won == RaceWon(1, "b")
        assert course.begun == [("a", 0), ("b", 0.1)]

    run_virtual(main)


def test_one_that_is_slow_is_not_waited_for_and_not_given_up_either() -> None:
    async def main() -> None:
        course = Course()
        slow = course.attempt("slow", 2.5)
        won = await course.race(slow, course.attempt("b", 5), course.attempt("c", 5))
        assert won == RaceWon(0, "slow")
        assert course.begun == [("slow", 0), ("b", 1), ("c", 2)]
        assert course.cancelled == ["b", "c"]

    run_virtual(main)


def test_when_none_works_every_reason_is_told_in_order() -> None:
    async def main() -> None:
        course = Course()
        lost = await course.race(
            course.attempt("a", 3, works=False), course.attempt("b", 0, works=False)
        )
        assert isinstance(lost, RaceLost)
        assert [str(each) for each in lost.failures] == ["a", "b"]

    run_virtual(main)


def test_what_works_too_late_is_discarded() -> None:
    async def main() -> None:
        course = Course()
        won = await course.race(course.attempt("a", 2), course.attempt("b", 1))
        assert won == RaceWon(0, "a")
        assert course.discarded == ["b"]

    run_virtual(main)


def test_another_error_ends_the_race_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        course = Course()

        async def broken() -> str:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await course.race(course.attempt("a", 5), broken)
        assert course.cancelled == ["a"]
        assert len(asyncio.all_tasks()) == 1

    run_virtual(main)


def test_who_gives_up_the_race_gives_up_all_of_it() -> None:
    async def main() -> None:
        course = Course()
        racing = asyncio.ensure_future(course.race(*[course.attempt(name, 9) for name in "ab"]))
        await asyncio.sleep(1.5)
        racing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await racing
        assert sorted(course.cancelled) == ["a", "b"]

    run_virtual(main)


# A channel.


def channel_to(net: Net, *addresses: str) -> Channel:
    return Channel(addresses, connect=net.connect, random=Random(1))


def serving() -> Net:
    net = Net()
    net.serve = echoing
    return net


def test_a_server_that_lets_in_and_says_nothing_does_not_hold_up_the_next() -> None:
    async def main() -> None:
        net = serving()
        net.silent |= {"a:1", "b:1"}
        async with channel_to(net, "a:1", "b:1", "c:1") as channel:
            begun = now()
            assert await channel.unary(PATH, b"x") == b"x"
            assert now() - begun == pytest.approx(2 * HEAD_START_S)
            assert str(channel.address) == "c:1"
            await asyncio.sleep(1)
            assert len(channel._dispatcher.connector._connections) == 1  # type: ignore[union-attr]
            assert [each.is_closing() for each in net.transports] == [True, True, False]

    run_virtual(main)


def test_where_all_are_silent_each_has_its_whole_time() -> None:
    async def main() -> None:
        net = serving()
        net.silent |= {"a:1", "b:1"}
        async with channel_to(net, "a:1", "b:1") as channel:
            begun = now()
            silent = r"a:1: no HTTP/2 SETTINGS.*; .*b:1: no HTTP/2 SETTINGS"
            with pytest.raises(ConnectFailed, match=silent):
                await channel.unary(PATH, b"x")
            assert now() - begun == pytest.approx(GREETING_S + HEAD_START_S)
            assert not channel._dispatcher.connector._connections  # type: ignore[union-attr]

    run_virtual(main)


def test_after_a_race_the_next_round_begins_behind_the_winner() -> None:
    async def main() -> None:
        net = serving()
        net.silent.add("a:1")
        async with channel_to(net, "a:1", "b:1", "c:1") as channel:
            await channel.ready()
            await asyncio.sleep(5)
            del net.dialed[:]
            channel.hang_up("a test wants that")
            await channel.ready()
            assert net.dialed == ["c:1"]

    run_virtual(main)
