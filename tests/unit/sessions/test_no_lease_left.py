"""Whatever goes wrong, no lease is left behind that can be helped; and nobody waits for long."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from leasehold import Client
from leasehold.basics.lease_ids import shown_lease
from leasehold.basics.timers import task_limits
from leasehold.errors import (
    CallFailed,
    Closed,
    ConnectFailed,
    ConnectionLost,
    Forked,
    LeaseholdError,
    LeaseLost,
    NoSpace,
    UnknownLease,
)
from leasehold.sessions import lease_keeper
from leasehold.testing import Host
from tests.support.faulty_engine import World
from tests.support.faulty_engine import play as play_world
from tests.support.interrupted import Interrupted
from tests.support.scripted_engine import ScriptedEngine, play

pytestmark = pytest.mark.filterwarnings("ignore:lease .* was garbage-collected:ResourceWarning")
"""Many scenes leave the end of their leases to the client, which is closed after them."""

TTL_S = 9.0
GRAIN_S = 0.01


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_cancelled_at_any_wait_a_block_leaves_no_lease(delay_s: float) -> None:
    cancelled = [0]

    def scene_of(cancel_at: int) -> Callable[[Client, ScriptedEngine, Host], Awaitable[None]]:
        async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
            engine.delay_s = delay_s

            async def work() -> None:
                async with client.lease(TTL_S) as lease:
                    await asyncio.sleep(TTL_S)
                    await client.kv.put("a", "b", lease=lease)

            interrupted = Interrupted(work(), cancel_at)
            task = asyncio.ensure_future(_run(interrupted))
            await asyncio.wait([task])
            cancelled[0] += task.cancelled()
            await asyncio.sleep(3 * delay_s + GRAIN_S)
            assert not engine.alive(), f"a lease is left, cancelled at wait {cancel_at}"
            waits.append(interrupted.waits)

        return scene

    waits: list[int] = []
    for cancel_at in range(1, 30):
        play(scene_of(cancel_at))
        if waits[-1] < cancel_at:
            break
    else:
        pytest.fail("it waits for ever")
    assert cancelled[0] == len(waits) - 1 >= 4, "grant, body, put and end"


async def _run(interrupted: Interrupted) -> None:
    await interrupted


@pytest.mark.parametrize("trouble", ["timeout", "connection lost", "failed"])
def test_a_grant_without_an_answer_is_taken_back(trouble: str) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        engine.is_silent = trouble == "timeout"
        engine.loses_answers = trouble == "connection lost"
        expected: type[Exception] = ConnectionLost
        if trouble == "timeout":
            expected = TimeoutError
        elif trouble == "failed":
            engine.delay_s, expected = 0.2, CallFailed
            asyncio.get_running_loop().call_later(0.05, setattr, engine, "failure", CallFailed("?"))
        with pytest.raises(expected):
            await client.lease(TTL_S, timeout=1.0)
        engine.recover()
        await asyncio.sleep(GRAIN_S)
        assert not engine.alive()
        assert {call.leases for call in engine.calls} == {engine.calls[0].leases}

    play(scene)


@pytest.mark.parametrize("error", [NoSpace(2_000, 1_000), ConnectFailed("no server")])
def test_a_grant_that_was_not_executed_is_not_revoked(error: LeaseholdError) -> None:
    async def scene(world: World) -> None:
        client = world.client("a")
        client.engine.trouble_with("grant", 1, error)
        (await client.lock("x").acquire()).release()
        await asyncio.sleep(TTL_S / 2)
        assert client.engine.calls.count("grant") == 2
        assert client.engine.calls.count("revoke") == 0

    play_world(scene)


def test_a_grant_that_comes_late_over_a_lost_connection_is_taken_back_all_the_same() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        engine.failure = ConnectionLost("the connection was lost")
        with pytest.raises(ConnectionLost):
            await client.lease(TTL_S)
        engine.recover()
        (lease,) = engine.calls[0].leases
        await asyncio.sleep(GRAIN_S)
        assert engine.times_of("revoke"), "it was looked for at once"
        engine._ends[lease] = (TTL_S, host.clock.boottime() + TTL_S)  # only now is it read
        await asyncio.sleep(2.0)
        assert not engine.alive()

    play(scene)


def test_a_revocation_that_fails_is_tried_again() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(60.0)
        engine.failure = ConnectionLost("the connection was lost")
        ended = asyncio.create_task(lease.end())
        await asyncio.sleep(1.0)
        assert engine.alive() == {lease.id}
        engine.recover()
        await ended
        assert not engine.alive()

    play(scene)


def test_leaving_with_the_server_gone_does_not_hang_is_logged_and_goes_on_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        async with client.lease(60.0) as lease:
            engine.failure = ConnectionLost("the connection was lost")
            left_at = host.clock.boottime()
        assert host.clock.boottime() - left_at == pytest.approx(lease_keeper.END_S, abs=GRAIN_S)
        assert not lease.lost
        assert not lease.is_held
        assert f"lease {shown_lease(lease.id)} is not revoked yet" in caplog.text
        await asyncio.sleep(5.0)
        engine.recover()
        await asyncio.sleep(lease_keeper.REVOKE_RETRIES[-1] + GRAIN_S)
        assert not engine.alive()

    with caplog.at_level(logging.WARNING):
        play(scene)


@pytest.mark.parametrize("leases", [1, 300])
def test_closing_with_the_server_gone_does_not_hang_whatever_the_number_of_leases(
    leases: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        for _ in range(leases):
            await client.lease(60.0)
        engine.is_deaf = True
        began_at = host.clock.boottime()
        await client.close()
        assert host.clock.boottime() - began_at <= 2 * lease_keeper.END_S
        engine._ends.clear()

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert "not revoked and will expire" in caplog.text


def test_closing_ends_all_leases() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        engine.delay_s = 0.1
        leases = [asyncio.create_task(_hold(client)) for _ in range(300)]
        await asyncio.sleep(0.2)
        assert len(engine.alive()) == 300
        await client.close()
        assert not engine.alive()
        for each in leases:
            each.cancel()
        await asyncio.wait(leases)

    play(scene)


async def _hold(client: Client) -> None:
    async with client.lease(TTL_S):
        await asyncio.sleep(1000.0)


def test_closing_takes_back_a_grant_under_way() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        engine.delay_s = 0.5
        granting = asyncio.create_task(_hold(client))
        await asyncio.sleep(0.3)
        await client.close()
        with pytest.raises((Closed, LeaseLost)):
            await granting
        assert not engine.alive()

    play(scene)


def test_closing_waits_for_what_is_being_ended_already() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        engine.delay_s = 1.0
        granting = asyncio.create_task(_hold(client))
        await asyncio.sleep(0.9)
        granting.cancel()
        await asyncio.wait([granting])
        await client.close()
        assert not engine.alive()

    play(scene)


def test_a_close_that_is_cancelled_goes_on() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        await client.lease(TTL_S)
        engine.delay_s = 1.0
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0.1)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        await client.close()  # waits for the same end
        assert engine.is_closed
        assert not engine.alive()

    play(scene)


def test_a_child_process_ends_no_lease_of_its_parent() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        engine.refusal = Forked(1)
        with pytest.raises(LeaseLost, match="opened in process 1") as lost:
            lease.check()
        assert isinstance(lost.value.__cause__, Forked)
        with pytest.raises(Forked):
            await client.lease(TTL_S)
        await lease.end()
        assert engine.alive() == {lease.id}
        engine.refusal = None
        await engine.revoke(lease.id)

    play(scene)


def test_a_body_that_fails_ends_its_lease() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        with pytest.raises(KeyError):
            async with client.lease(TTL_S):
                raise KeyError("what")
        assert not engine.alive()

    play(scene)


# What a lost lease is refused for.


def test_a_put_with_a_lost_lease_is_refused_before_it_is_sent() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(TTL_S)
        await client.kv.put("a", "1", lease=lease)
        host.stop(TTL_S)
        await asyncio.sleep(0)
        assert not lease.lost, "the signal was faster: this shows nothing"
        with pytest.raises(LeaseLost):
            await client.kv.put("a", "2", lease=lease)
        assert engine.puts == [(b"a", lease.id)]

    play(scene)


def test_timeouts_say_why() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        engine.is_deaf, engine.said = True, "nobody listens"
        with pytest.raises(TimeoutError, match="within 2 s: nobody listens"):
            await client.lease(TTL_S, timeout=2.0)
        with pytest.raises(TimeoutError, match="within 3 s: nobody listens"):
            await client.kv.put("a", "b", timeout=3.0)
        with pytest.raises(TimeoutError, match="no answer within 1 s"):
            await client.revoke(5, timeout=1.0)
        engine.recover()

    play(scene)


def test_a_lease_of_this_client_or_any_number_can_be_revoked_and_none_is_refused() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        await client.revoke(lease)
        assert not engine.alive()
        assert not lease.lost
        granted = await engine.grant(TTL_S, lease=77)
        assert (await client.lease_info(77)).ttl == granted.ttl
        await client.revoke(77)
        with pytest.raises(UnknownLease):
            await client.revoke(77)
        for bad in (None, True, "77"):
            wrong: Any = bad
            with pytest.raises(TypeError):
                await client.revoke(wrong)
            with pytest.raises(TypeError):
                await client.lease_info(wrong)

    play(scene)


def test_the_call_that_ends_a_lease_sends_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s: list[float | None] = []
    revoke = ScriptedEngine.revoke

    async def noted(engine: ScriptedEngine, lease: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        limits_s.append(task_limits.get(task))
        await revoke(engine, lease)

    monkeypatch.setattr(ScriptedEngine, "revoke", noted)

    async def scene(_client: Client, engine: ScriptedEngine, _host: Host) -> None:
        assert await lease_keeper.end_one(engine, 7, 3.0, Random(1))

    play(scene)
    assert limits_s == [3.0]
