"""Events of locks: their times and names, and `logging`."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from leasehold import LockEvent
from tests.support.faulty_engine import World, play

TTL_S = 10.0


def test_an_event_has_a_time_and_always_names_the_lock() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        events: list[LockEvent] = []
        a.on_lock_event(events.append)
        async with a.lock("x"), a.lock("y"):
            await asyncio.sleep(TTL_S / 2)  # it is renewed
        assert all(event.lock in ("x", "y") for event in events)
        renewed = [event.lock for event in events if event.kind == "auto-renewed"]
        assert renewed == ["x", "y"]
        times = [event.at for event in events]
        assert times == sorted(times)
        assert times[0].tzinfo is UTC
        assert times[-1].timestamp() == pytest.approx(a._locks.context.keeper.clock.wall())

    play(scene)


def test_events_go_to_a_logger_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x"):
            pass
        async with a.lock("x"):  # from the cache
            pass

    with caplog.at_level(logging.DEBUG, "leasehold.locks.events"):
        play(scene)
    said = [record.getMessage() for record in caplog.records if "locks.events" in record.name]
    assert said[0] == "application asked 'x'"
    assert any(text.startswith("application from cache 'x' token") for text in said)
    assert any(text.startswith("application released 'x' token") for text in said)


def test_a_logger_that_is_turned_on_later_is_noticed_with_the_next_renewal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        async with a.lock("x"):
            states = [a._locks.log.is_on]
            with caplog.at_level(logging.DEBUG, "leasehold.locks.events"):
                await asyncio.sleep(TTL_S / 2)
                states.append(a._locks.log.is_on)
            await asyncio.sleep(TTL_S / 2)
            states.append(a._locks.log.is_on)
            assert states == [False, True, False]

    play(scene)


def test_an_event_as_text() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        events: list[LockEvent] = []
        a.on_lock_event(events.append)
        async with a.lock("x") as guard:
            pass
        assert str(events[0]) == "application asked 'x'"
        assert str(events[-1]) == f"application released 'x' token {guard.token}"
        assert isinstance(events[-1].at, datetime)

    play(scene)
