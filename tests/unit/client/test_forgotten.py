"""Clients, leases and watches that are garbage-collected open are reported; none is ended early."""

import asyncio
import gc
import logging
from typing import Any

import pytest

import leasehold
from leasehold import Client, HeldLease, UnknownLease
from leasehold.basics.lease_ids import shown_lease
from leasehold.testing import Host
from tests.support.asynchronous import asynchronous
from tests.support.faulty_engine import World
from tests.support.faulty_engine import play as play_world
from tests.support.scripted_engine import ScriptedEngine, play

TTL_S = 10.0

CLIENT = "client 'me' was garbage-collected without being closed"
WATCH = "a watch of b'a' was garbage-collected without being cancelled"


class Loop:
    """Refers to itself, and to something else."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.itself = self


async def _collected() -> None:
    """Collect what was forgotten, and let the loop take what finalizers have posted."""
    gc.collect()
    await asyncio.sleep(0.01)


def _lease_text(lease: int) -> str:
    return f"lease {shown_lease(lease)} was garbage-collected without being ended or released"


# Clients.


@asynchronous
async def test_a_client_that_is_forgotten_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    client = await leasehold.open("memory:", name="me")
    engine = client.engine
    del client
    with pytest.warns(ResourceWarning, match=CLIENT):
        await _collected()
    assert f"{CLIENT}; its resources stay open until its event loop ends" in caplog.messages
    await engine.close()


@asynchronous
async def test_what_was_made_by_a_forgotten_client_goes_on() -> None:
    client = await leasehold.open("memory:", name="me")
    engine, kv = client.engine, client.kv
    lock = client.lock("x")
    lease = await client.lease(TTL_S)
    del client
    with pytest.warns(ResourceWarning, match=CLIENT):
        await _collected()
    await kv.put("a", "1", lease=lease)
    async with lock as guard:
        guard.check()
    lease.check()
    await lease.end()
    await engine.close()


@asynchronous
async def test_a_client_that_was_closed_or_was_never_made_is_not_reported() -> None:
    async with leasehold.open("memory:"):
        pass
    client = await leasehold.open("memory:")
    engine = client.engine
    await engine.close()
    del client
    with pytest.raises(ValueError, match="session_ttl"):
        Client(engine, session_ttl=0.001)
    with pytest.raises(TypeError, match=r"an Engine, got '127.*use leasehold.connect\(\)"):
        Client("127.0.0.1:2379")  # type: ignore[arg-type]
    await _collected()  # warnings are errors


# Leases.


def test_a_lease_that_is_forgotten_is_reported_and_renewed_until_the_client_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        number = (await client.lease(TTL_S)).id
        with pytest.warns(ResourceWarning, match=_lease_text(number)):
            await _collected()
        said = f"{_lease_text(number)}; it is renewed until its client is closed"
        assert said in caplog.messages
        await asyncio.sleep(100 * TTL_S)
        assert engine.alive() == {number}, "a program may use the id, or rely on the keys"
        await client.close()
        assert not engine.alive()

    with caplog.at_level(logging.WARNING):
        play(scene)


def test_a_lease_that_was_detached_is_not_reported_and_is_renewed_until_the_client_is_closed() -> (
    None
):
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        number = (await client.lease(TTL_S)).detach()
        await _collected()  # warnings are errors
        await asyncio.sleep(100 * TTL_S)
        assert engine.alive() == {number}
        await client.close()
        assert not engine.alive()

    play(scene)


def test_a_lease_that_was_detached_can_be_ended() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        assert lease.detach() == lease.id
        lease.check()
        await lease.end()
        assert not engine.alive()

    play(scene)


def test_a_kept_lease_that_is_forgotten_is_reported() -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        number = (await client.engine.grant(TTL_S)).id
        await client.keep(number)
        with pytest.warns(ResourceWarning, match=_lease_text(number)):
            await _collected()
        await asyncio.sleep(10 * TTL_S)
        await client.revoke(number)

    play_world(scene)


@pytest.mark.parametrize("end", ["end", "release", "block", "close", "lost"])
def test_a_lease_that_is_over_is_not_reported(end: str) -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        match end:
            case "end":
                await lease.end()
            case "release":
                lease.release()
                await engine.revoke(lease.id)
            case "block":
                async with lease:
                    await _collected()
            case "close":
                await client.close()
            case "lost":
                await engine.revoke(lease.id)
                await asyncio.sleep(TTL_S)
                assert lease.lost
        del lease
        await _collected()  # warnings are errors

    play(scene)


def test_a_lease_in_a_block_without_a_name_is_not_forgotten() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        async with client.lease(TTL_S):
            await _collected()
            assert engine.alive()

    play(scene)


def test_a_lease_whose_end_comes_before_the_report_is_not_reported() -> None:
    """The finalizer has posted its report when the client is closed."""

    async def scene(client: Client, _engine: ScriptedEngine, _host: Host) -> None:
        lease = await client.lease(TTL_S)
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)
        del lease
        await closing
        await _collected()

    play(scene)


def test_callbacks_of_a_forgotten_lease_are_called() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        told: list[tuple[int, bool]] = []

        def on_loss(lease: HeldLease, _error: BaseException | None) -> None:
            told.append((lease.id, lease.is_held))

        number = (await client.lease(TTL_S, on_loss=on_loss)).id
        with pytest.warns(ResourceWarning, match=_lease_text(number)):
            await _collected()
        await engine.revoke(number)
        await asyncio.sleep(TTL_S)
        assert told == [(number, False)]

    play(scene)


def test_a_callback_gets_the_lease_that_its_holder_has() -> None:
    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        told: list[HeldLease] = []
        lease = await client.lease(TTL_S, on_loss=lambda lease, _error: told.append(lease))
        await engine.revoke(lease.id)
        await asyncio.sleep(TTL_S)
        assert told[0] is lease
        assert isinstance(lease, HeldLease)

    play(scene)


def test_a_lease_that_a_finalizer_revives_is_held() -> None:
    """All finalizers of a cycle run, also if one of them keeps its objects."""

    async def scene(client: Client, engine: ScriptedEngine, _host: Host) -> None:
        revived: list[HeldLease] = []

        class Reviving:
            def __init__(self, lease: HeldLease) -> None:
                self.lease = lease
                self.itself = self

            def __del__(self) -> None:
                revived.append(self.lease)

        cycle = Reviving(await client.lease(TTL_S))
        del cycle
        with pytest.warns(ResourceWarning, match="garbage-collected"):
            await _collected()
        await asyncio.sleep(10 * TTL_S)
        [lease] = revived
        lease.check()
        assert engine.alive() == {lease.id}
        await lease.end()
        with pytest.raises(UnknownLease):
            await engine.revoke(lease.id)

    play(scene)


# Watches.


def _watchers(client: Client) -> int:
    return len(client.engine._runtime.store.watchers)  # type: ignore[attr-defined]


@asynchronous
async def test_a_watch_that_is_forgotten_is_cancelled_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with leasehold.open("memory:") as client:
        watch = client.kv.watch("a")
        await watch.ready()
        await _collected()
        assert _watchers(client) == 1
        del watch
        with pytest.warns(ResourceWarning, match=WATCH):
            await _collected()
        assert f"{WATCH}; it is cancelled now" in caplog.messages
        assert _watchers(client) == 0


@asynchronous
async def test_a_watch_is_not_forgotten_while_it_is_waited_for() -> None:
    async with leasehold.open("memory:") as client:
        waiting = asyncio.ensure_future(_first(client))
        await asyncio.sleep(0)
        await _collected()
        revision = (await client.kv.put("a", "1")).revision
        assert await waiting == revision
        await _collected()


async def _first(client: Client) -> int:
    async for events in client.kv.watch("a"):
        return events.revision
    raise AssertionError("it has ended")


@asynchronous
async def test_a_step_of_a_watch_without_a_name_is_answered() -> None:
    async with leasehold.open("memory:") as client:
        step = asyncio.ensure_future(_step(client))
        await asyncio.sleep(0)
        await _collected()
        revision = (await client.kv.put("a", "1")).revision
        with pytest.warns(ResourceWarning, match=WATCH):
            told = await _collected_after(step)
        assert told == revision


async def _collected_after(step: "asyncio.Future[int]") -> int:
    told = await step
    await _collected()
    return told


async def _step(client: Client) -> int:
    return (await client.kv.watch("a").__anext__()).revision


@pytest.mark.parametrize("end", ["cancel", "block", "close", "compacted"])
@asynchronous
async def test_a_watch_that_is_over_is_not_reported(end: str) -> None:
    async with leasehold.open("memory:") as client:
        for number in range(5):
            await client.kv.put("a", str(number))
        await client.kv.compact(4)
        watch = client.kv.watch("a", start=2 if end == "compacted" else 0)
        match end:
            case "cancel":
                watch.cancel()
            case "block":
                async with watch:
                    pass
            case "close":
                await client.close()
            case "compacted":
                with pytest.raises(leasehold.Compacted):
                    await anext(watch)
        del watch
        await _collected()  # warnings are errors


@asynchronous
async def test_a_watch_that_a_finalizer_revives_has_ended() -> None:
    async with leasehold.open("memory:") as client:
        revived: list[leasehold.Watch] = []

        class Reviving:
            def __init__(self) -> None:
                self.watch = client.kv.watch("a")
                self.itself = self

            def __del__(self) -> None:
                revived.append(self.watch)

        Reviving()
        with pytest.warns(ResourceWarning, match=WATCH):
            await _collected()
        with pytest.raises(leasehold.Closed, match="cancelled"):
            await anext(revived[0])
        revived[0].cancel()


# Finalizers, of each kind.


async def _watch(client: Client) -> leasehold.Watch:
    return client.kv.watch("a")


MAKE: dict[str, Any] = {
    "client": lambda _client: leasehold.open("memory:", name="me"),
    "lease": lambda client: client.lease(TTL_S),
    "watch": _watch,
}


@pytest.mark.parametrize("kind", MAKE)
@asynchronous
async def test_what_is_in_a_cycle_is_reported(kind: str) -> None:
    async with leasehold.open("memory:") as client:
        cycle = Loop(await MAKE[kind](client))
        engine = getattr(cycle.held, "engine", None)
        del cycle
        with pytest.warns(ResourceWarning, match="garbage-collected"):
            await _collected()
        if engine is not None:
            await engine.close()


@pytest.mark.parametrize("kind", MAKE)
@asynchronous
async def test_a_finalizer_may_run_in_another_thread(kind: str) -> None:
    async with leasehold.open("memory:") as client:
        held = [await MAKE[kind](client)]
        engine = getattr(held[0], "engine", None)
        with pytest.warns(ResourceWarning, match="garbage-collected"):
            await _cleared_elsewhere(held)
        if engine is not None:
            await engine.close()


async def _cleared_elsewhere(held: list[Any]) -> None:
    await asyncio.to_thread(held.clear)
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", MAKE)
def test_a_finalizer_after_the_loop_was_closed_does_nothing(kind: str) -> None:
    async def main() -> Any:
        client = await leasehold.open("memory:")
        return client, await MAKE[kind](client)

    held = asyncio.run(main())
    del held
    gc.collect()
