"""What ends all leases at once, and what callbacks and checks of users must not break."""

import asyncio

import pytest

import leasehold
from leasehold import Client, HeldLease, HistoryLost, LeaseLost
from leasehold.testing import Host, LocalServer
from tests.support.scripted_engine import ScriptedEngine, play

pytestmark = pytest.mark.filterwarnings("ignore:lease .* was garbage-collected:ResourceWarning")
"""Many scenes leave the end of their leases to the client, which is closed after them."""

TTL_S = 9.0


def test_a_lost_history_loses_every_lease_at_once() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        leases = [await client.lease(TTL_S) for _ in range(3)]
        engine.on_history_lost(HistoryLost("another cluster answers"))
        for lease in leases:
            assert lease.lost
            assert not lease.is_held
            with pytest.raises(LeaseLost, match="another cluster answers"):
                lease.check()
        before = len(engine.calls)
        await asyncio.sleep(2 * TTL_S)
        assert len(engine.calls) == before, "nobody renews what is gone"

    play(scene)


@pytest.mark.parametrize("error", [ValueError("mine"), asyncio.CancelledError()])
def test_a_callback_that_raises_keeps_no_other_lease_from_its_renewal(error: BaseException) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        def fail(_lease: HeldLease, _error: BaseException | None) -> None:
            raise error

        leases = [await client.lease(TTL_S, on_jeopardy=fail) for _ in range(10)]
        engine.is_silent = True
        await asyncio.wait_for(leases[0].jeopardy.wait(), TTL_S)
        engine.is_silent = False
        await asyncio.sleep(10 * TTL_S)
        for lease in leases:
            lease.check()

    play(scene)


def test_a_lease_is_kept_by_a_client_once() -> None:
    """A second object for it would take the place of the first one, which would never be told."""

    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        with pytest.raises(ValueError, match="is already kept alive by this client"):
            await client.keep(lease.id)
        await asyncio.sleep(10 * TTL_S)
        lease.check()
        assert engine.alive() == {lease.id}

    play(scene)


@pytest.mark.slow
def test_slow_checks_of_many_leases_do_not_wait_for_each_other() -> None:
    async def scene(client: Client, _engine: ScriptedEngine, _host: Host) -> None:
        async def is_well() -> bool:
            await asyncio.sleep(TTL_S / 4)
            return True

        leases = [await client.lease(TTL_S, while_healthy=is_well) for _ in range(200)]
        await asyncio.sleep(5 * TTL_S)
        assert sum(lease.is_held for lease in leases) == len(leases)

    play(scene)


def test_a_renewal_by_hand_waits_no_longer_than_the_lease_can_be_relied_on() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        lease = await client.lease(TTL_S)
        engine.is_silent = True
        asked_at = host.clock.boottime()
        with pytest.raises(LeaseLost):
            await lease.renew()
        assert host.clock.boottime() - asked_at <= TTL_S

    play(scene)


def test_a_block_that_outlasts_its_lease_raises_if_it_is_too_fast_to_be_cancelled() -> None:
    async def scene(client: Client, engine: ScriptedEngine, host: Host) -> None:
        async def body() -> None:
            async with client.lease(TTL_S, cancel_on_loss=True):
                engine.is_silent = True
                host.stall(2 * TTL_S)

        with pytest.raises(LeaseLost):
            await body()

    play(scene)


def test_a_first_watch_does_not_wait_in_silence_on_a_server_that_has_lost_its_history() -> None:
    async def main() -> None:
        with LocalServer() as server:
            async with server.connect() as client:
                await client.kv.put("a", "1")
                server.wipe()
                with pytest.raises(HistoryLost):
                    async with client.kv.watch("a") as watch:
                        await anext(watch)

    asyncio.run(main())


def test_a_connection_can_be_made_twice_from_one_call() -> None:
    async def main() -> None:
        with LocalServer() as server:
            pending = leasehold.connect(server.endpoint)
            first, second = await pending, await pending
            await first.close()
            await second.kv.put("a", "1")
            await second.close()

    asyncio.run(main())


def test_a_renewal_by_hand_and_entering_a_watch_have_a_limit() -> None:
    async def main() -> None:
        with LocalServer() as server:
            async with server.connect() as client, client.lease(30.0) as lease:
                with server.frozen():
                    with pytest.raises(TimeoutError, match=r"no answer within 0\.2 s"):
                        await lease.renew(timeout=0.2)
                    with pytest.raises(
                        TimeoutError, match=r"has not confirmed the watch after 0\.2 s"
                    ):
                        async with client.kv.watch("a", timeout=0.2):
                            pass
                    with pytest.raises(ValueError, match="timeout"):
                        client.kv.watch("a", timeout=-1)
                lease.check()

    asyncio.run(main())
