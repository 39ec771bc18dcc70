"""Leases that are kept for a while, or while their holder is well; bodies that end with them."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from leasehold import Client, LeaseLost
from leasehold.basics.durations import seconds_of
from leasehold.basics.lease_ids import shown_lease
from leasehold.errors import CallFailed, Unhealthy
from leasehold.sessions.kept_lease import _HealthCheck
from leasehold.testing import Host
from tests.support.asynchronous import asynchronous
from tests.support.scripted_engine import ScriptedEngine, play

pytestmark = pytest.mark.filterwarnings("ignore:lease .* was garbage-collected:ResourceWarning")
"""Many scenes leave the end of their leases to the client, which is closed after them."""

TTL_S = 9.0
TRUSTED_S = 8.1
GRAIN_S = 0.01

# For a while.


@pytest.mark.parametrize("renew_for", [2.0, 9.0, 25.0, timedelta(seconds=100)])
def test_renew_for_bounds_a_lease_and_ends_it_at_its_bound(renew_for: Any) -> None:
    bound_s = renew_for.total_seconds() if isinstance(renew_for, timedelta) else renew_for

    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        told: list[BaseException | None] = []
        lease = await client.lease(
            TTL_S, renew_for=renew_for, on_loss=lambda _, error: told.append(error)
        )
        began_at = host.clock.boottime()
        await asyncio.sleep(bound_s - GRAIN_S)
        lease.check()
        assert lease.remaining == pytest.approx(GRAIN_S)
        await lease.lost.wait()
        assert host.clock.boottime() - began_at == pytest.approx(bound_s, abs=GRAIN_S / 2)
        await asyncio.sleep(GRAIN_S)
        assert not engine.alive()
        assert told == [None]
        with pytest.raises(LeaseLost, match=f"kept for {bound_s:g} s"):
            lease.check()

    play(scene)


def test_renew_for_counts_real_time_even_if_the_process_stands_still() -> None:
    async def scene(client: Client, _engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(100.0, renew_for=5.0)
        host.suspend(6.0)
        await asyncio.sleep(0)
        assert not lease.lost, "the signal was faster: this shows nothing"
        with pytest.raises(LeaseLost, match="kept for 5 s"):
            lease.check()

    play(scene)


def test_a_bounded_lease_is_renewed_until_its_bound_like_any_other() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S, renew_for=30.0)
        for _ in range(29):
            await asyncio.sleep(1.0)
            lease.check()
        assert len(engine.times_of("renew")) == 8, "at 3, 6, .. 24: that one lasts"

    play(scene)


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), None, True, "long"])
def test_what_is_no_length_of_time_is_refused_before_anything_is_sent(bad: Any) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        with pytest.raises((TypeError, ValueError)):
            client.lease(bad)
        with pytest.raises((TypeError, ValueError)):
            client.lease(TTL_S, renew_for=bad)
        if bad is not None:
            with pytest.raises((TypeError, ValueError)):
                await client.lease(TTL_S, timeout=bad)
        assert engine.calls == []

    play(scene)


# While its holder is well.


async def _soon(answer: object) -> Any:
    await asyncio.sleep(0.1)
    return answer


def _raise() -> bool:
    raise RuntimeError("no heartbeat")


def _raise_later() -> Awaitable[bool]:
    async def fail() -> bool:
        await asyncio.sleep(0.1)
        raise RuntimeError("no heartbeat")

    return fail()


@pytest.mark.parametrize(
    "sick",
    [lambda: False, lambda: None, _raise, lambda: _soon(False), lambda: _soon(0), _raise_later],
    ids=["no", "None", "raises", "async no", "async 0", "async raises"],
)
def test_a_check_that_does_not_hold_stops_renewals_until_it_holds_again(
    sick: Callable[[], Any],
) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        check: list[Callable[[], Any]] = [lambda: True]

        def ask() -> Any:
            return check[0]()

        errors: list[BaseException | None] = []
        lease = await client.lease(
            TTL_S,
            while_healthy=ask,
            on_jeopardy=lambda _, error: errors.append(error),
            on_loss=lambda _, error: errors.append(error),
        )
        await asyncio.sleep(2 * TTL_S)
        lease.check()
        check[0] = sick
        renewals = len(engine.times_of("renew"))
        await lease.jeopardy.wait()
        assert len(engine.times_of("renew")) == renewals
        check[0] = lambda: _soon(True)
        await asyncio.sleep(TTL_S)
        assert len(errors) == 1
        assert not lease.jeopardy
        lease.check()
        check[0] = sick
        await lease.lost.wait()
        assert f"health check of lease {shown_lease(lease.id)}" in str(errors[-1])
        await asyncio.sleep(GRAIN_S)
        assert not engine.alive(), "its end is not waited for"
        assert engine.given_up == [], "the server is not to blame"

    play(scene)


@pytest.mark.parametrize("slow", [1, 100])
def test_a_slow_check_delays_no_other_lease(slow: int) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        hanging = asyncio.Event()

        async def hang() -> bool:
            await hanging.wait()
            return True

        stuck = [await client.lease(TTL_S, while_healthy=hang) for _ in range(slow)]
        others = [await client.lease(TTL_S) for _ in range(3)]
        for _ in range(60):
            await asyncio.sleep(0.5)
            for lease in others:
                assert seconds_of(lease.remaining) > TTL_S / 3
        assert all(lease.lost for lease in stuck)
        assert engine.given_up == []
        hanging.set()

    play(scene)


def test_a_check_may_take_as_long_as_the_term_lets_it() -> None:
    async def scene(client: Client, _engine: ScriptedEngine, _host: Host) -> None:
        async def check() -> bool:
            await asyncio.sleep(0.4 * TTL_S)
            return True

        lease = await client.lease(TTL_S, while_healthy=check)
        for _ in range(100):
            await asyncio.sleep(1.0)
            lease.check()

    play(scene)


def test_a_check_is_not_asked_after_the_end_and_one_under_way_is_cancelled() -> None:
    async def scene(client: Client, _engine: ScriptedEngine, _host: Host) -> None:
        asked: list[str] = []

        async def check() -> bool:
            asked.append("begun")
            try:
                await asyncio.sleep(1000.0)
            except asyncio.CancelledError:
                asked.append("cancelled")
                raise
            return True

        async with client.lease(TTL_S, while_healthy=check):
            await asyncio.sleep(TTL_S / 2)
        await asyncio.sleep(10 * TTL_S)
        assert asked == ["begun", "cancelled"]

    play(scene)


@asynchronous
async def test_a_check_of_a_lease_that_ends_before_its_first_step_leaves_no_coroutine() -> None:
    async def check() -> bool:
        return True

    health = _HealthCheck(1, check)
    checking = asyncio.ensure_future(health.check(TTL_S))
    asyncio.get_running_loop().call_soon(health.close)
    with pytest.raises(Unhealthy, match="the health check was cancelled"):
        await checking


@pytest.mark.parametrize("name", ["while_healthy", "on_jeopardy", "on_loss"])
def test_what_cannot_be_called_is_refused(name: str) -> None:
    async def scene(client: Client, _engine: ScriptedEngine, _host: Host) -> None:
        options: dict[str, Any] = {name: 5}
        with pytest.raises(TypeError, match=name):
            client.lease(TTL_S, **options)

    play(scene)


# Bodies that end with their lease.


def _lose(engine: ScriptedEngine) -> None:
    engine.failure = CallFailed("not now")


def test_cancel_on_loss_cancels_the_body_at_the_loss_and_raises_lease_lost() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        reached = []

        async def hold() -> None:
            async with client.lease(TTL_S, cancel_on_loss=True):
                _lose(engine)
                reached.append("body")
                await asyncio.sleep(1000.0)
                reached.append("too far")

        began_at = host.clock.boottime()
        with pytest.raises(LeaseLost, match="not now") as raised:
            await hold()
        assert host.clock.boottime() - began_at == pytest.approx(TRUSTED_S, abs=GRAIN_S)
        assert reached == ["body"]
        assert isinstance(raised.value.__cause__, CallFailed)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(1.0)  # no cancellation is left over

    play(scene)


def test_the_end_of_renew_for_cancels_the_body_as_well() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        began_at = host.clock.boottime()
        with pytest.raises(LeaseLost, match="kept for 20 s"):
            async with client.lease(TTL_S, cancel_on_loss=True, renew_for=20.0):
                await asyncio.sleep(1000.0)
        assert host.clock.boottime() - began_at == pytest.approx(20.0, abs=GRAIN_S)
        await asyncio.sleep(GRAIN_S)
        assert not engine.alive()

    play(scene)


def test_without_cancel_on_loss_the_body_goes_on() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        async with client.lease(TTL_S) as lease:
            _lose(engine)
            await asyncio.sleep(3 * TTL_S)
            assert lease.lost

    play(scene)


def test_a_cancellation_from_outside_wins_over_the_loss() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        async def hold() -> None:
            async with client.lease(
                TTL_S, cancel_on_loss=True, on_loss=lambda *_: holder.cancel()
            ) as lease:
                _lose(engine)
                await asyncio.sleep(1000.0)
                assert lease.lost

        holder = asyncio.create_task(hold())
        await asyncio.wait([holder])
        assert holder.cancelled()

    play(scene)


def test_an_outer_timeout_at_the_same_time_is_a_timeout() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        async def hold() -> None:
            async with client.lease(TTL_S, cancel_on_loss=True):
                _lose(engine)
                try:
                    await asyncio.sleep(1000.0)
                finally:
                    await asyncio.sleep(TTL_S)  # the limit comes while the body cleans up

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(TTL_S):
                await hold()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    play(scene)


def test_a_body_that_is_cancelled_already_can_hold_a_lease() -> None:
    """As in the clean-up of a task that was cancelled: its count does not begin with 0."""

    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        async def clean_up() -> str:
            try:
                await asyncio.sleep(1000.0)
            except asyncio.CancelledError:
                try:
                    async with client.lease(TTL_S, cancel_on_loss=True):
                        _lose(engine)
                        await asyncio.sleep(1000.0)
                except LeaseLost:
                    return "lost"
            return "?"

        task = asyncio.create_task(clean_up())
        await asyncio.sleep(1.0)
        task.cancel()
        assert await task == "lost"

    play(scene)


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_a_body_that_takes_its_cancellation_ends_as_it_likes(ends: str) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        async def hold() -> None:
            async with client.lease(TTL_S, cancel_on_loss=True):
                _lose(engine)
                try:
                    await asyncio.sleep(1000.0)
                except asyncio.CancelledError:
                    if ends == "raises":
                        raise KeyError("its own") from None

        if ends == "raises":
            with pytest.raises(KeyError):
                await hold()
        else:
            await hold()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    play(scene)


def test_a_lease_that_is_lost_or_ended_cannot_be_entered() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        ended = await client.lease(TTL_S)
        await ended.end()
        with pytest.raises(LeaseLost):
            async with ended:
                pytest.fail("a body has run without its lease")
        lost = await client.lease(TTL_S, cancel_on_loss=True)
        _lose(engine)
        await lost.lost.wait()
        with pytest.raises(LeaseLost):
            async with lost:
                pytest.fail("a body has run without its lease")

    play(scene)
