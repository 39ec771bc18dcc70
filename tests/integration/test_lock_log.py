"""The scenarios of a lock service, by what its log says: the application's side, and the client's.

Two of them go step by step, with exact logs; the third is random, and proves what locks are for.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from leasehold import Client, Lock, LockDenied, LockEvent, LockLost, NotHeld
from leasehold.testing import LocalServer, seeds
from tests.support.asynchronous import asynchronous
from tests.support.faulty_engine import World, play

LOCKS = 5
ROUNDS = 20
REQUESTS = 10
"""In each round."""

HEARD_S = 10.0
"""How long it may take until a holder hears of something."""


class Log:
    """What has happened: to applications in one order, and to each client in its own."""

    def __init__(self) -> None:
        self.applications: list[str] = []
        self.clients: dict[int, list[str]] = defaultdict(list)
        self.grants = 0

    def listen(self, number: int, client: Client) -> None:
        """Write down what happens to a client."""
        client.on_lock_event(lambda event: self._write(number, event))

    def _write(self, number: int, event: LockEvent) -> None:
        said = " ".join(filter(None, (event.kind, event.lock)))
        if event.holder:
            said += f" ({event.holder})"
        if event.side == "application":
            self.applications.append(f"{number}: {said}")
            self.grants += event.kind == "granted"
        else:
            self.clients[number].append(said)

    def take(self) -> tuple[list[str], dict[int, list[str]]]:
        """Give what was written since the last time."""
        taken = self.applications, dict(self.clients)
        self.applications, self.clients = [], defaultdict(list)
        return taken


@pytest.mark.parametrize("seed", range(5))
def test_basic_function(seed: int) -> None:
    async def scene(world: World) -> None:
        clients: list[Client] = [world.client(f"client {n}") for n in range(5)]
        await _basic_function(clients)

    play(scene, seed)


@asynchronous
async def test_basic_function_over_a_network() -> None:
    with LocalServer() as server:
        clients = [await server.connect(name=f"client {n}", session_ttl=60.0) for n in range(5)]
        await _basic_function(clients)
        for client in clients:
            await client.close()


async def _basic_function(clients: Sequence[Client]) -> None:
    log = Log()
    for number, client in enumerate(clients):
        log.listen(number, client)

    def lock(number: int, name: str) -> Lock:
        return clients[number].lock(name, timeout=0, recall_timeout=HEARD_S)

    # An application may ask for what it has: it then has to release it as often.
    file1 = clients[0].lock("file1", timeout=0, reentrant=True)

    # Client 0 asks for file1, which nobody has.
    await file1.acquire()
    assert log.take() == (
        ["0: asked file1", "0: granted file1"],
        {0: ["asked file1", "granted file1"]},
    )

    # Client 1 asks for file2.
    file2 = lock(1, "file2")
    await file2.acquire()
    assert log.take() == (
        ["1: asked file2", "1: granted file2"],
        {1: ["asked file2", "granted file2"]},
    )

    # Client 4 releases file2, which it does not have.
    with pytest.raises(NotHeld):
        lock(4, "file2").release()
    assert log.take() == (["4: release of a lock not held file2"], {})

    # Client 4 asks for file2, which client 1 has in use.
    with pytest.raises(LockDenied):
        await lock(4, "file2").acquire()
    assert log.take() == (
        ["4: asked file2", "4: denied file2 (client 1)"],
        {
            1: ["refused file2 (client 4)"],
            4: [
                "asked file2 (client 1)",
                "recall refused file2 (client 1)",
                "denied file2 (client 1)",
            ],
        },
    )

    # Client 0 asks for file1, which it has.
    await file1.acquire()
    assert log.take() == (["0: asked file1", "0: from cache file1", "0: granted file1"], {})

    # Client 2 asks for file1, which client 0 has in use.
    with pytest.raises(LockDenied):
        await lock(2, "file1").acquire()
    assert log.take() == (
        ["2: asked file1", "2: denied file1 (client 0)"],
        {
            0: ["refused file1 (client 2)"],
            2: [
                "asked file1 (client 0)",
                "recall refused file1 (client 0)",
                "denied file1 (client 0)",
            ],
        },
    )

    # Client 0 releases file1, and keeps it: it knows that client 2 waits no more.
    await _until_alone(clients[0], b"file1")
    file1.release()
    file1.release()
    assert log.take() == (["0: released file1", "0: released file1"], {})

    # Client 3 asks for file1, which was just released: client 0 gives it up.
    file1 = lock(3, "file1")
    await file1.acquire()
    assert log.take() == (
        ["3: asked file1", "3: granted file1"],
        {
            0: ["gave up file1 (client 3)"],
            3: ["asked file1 (client 0)", "recall accepted file1 (client 0)", "granted file1"],
        },
    )

    # Client 1 releases file2.
    await _until_alone(clients[1], b"file2")
    file2.release()
    assert log.take() == (["1: released file2"], {})
    file1.release()


async def _until_alone(client: Client, name: bytes) -> None:
    """Wait until a holder has heard that nobody is in line behind it."""
    ownership = client._locks.locks[name].ownership
    assert ownership is not None
    async with asyncio.timeout(HEARD_S):
        while ownership.has_waiters:  # noqa: ASYNC110  there is no event to await
            await asyncio.sleep(0.001)


@asynchronous
async def test_network_partition() -> None:
    log, told = Log(), []
    with LocalServer() as server:
        async with (
            server.connect(name="client 0", session_ttl=9.0) as first,
            server.connect(name="client 1", session_ttl=60.0) as second,
        ):
            log.listen(0, first)
            log.listen(1, second)
            theirs = second.lock("file1", timeout=0, recall_timeout=0.2)

            # Client 0 has the lock, and it is renewed.
            lock = first.lock("file1", on_loss=lambda guard, _: told.append(guard))
            guard = await lock.acquire()
            while "auto-renewed file1" not in log.clients[0]:  # noqa: ASYNC110  there is no event to await
                await asyncio.sleep(0.01)
            assert log.take() == (
                ["0: asked file1", "0: granted file1"],
                {0: ["asked file1", "granted file1", "auto-renewed file1"]},
            )

            # It is cut off. While its lease lives, client 1 is denied.
            server.disconnect(first, 60.0)
            with pytest.raises(LockDenied):
                await theirs.acquire()
            assert log.take() == (
                ["1: asked file1", "1: denied file1 (client 0)"],
                {
                    1: [
                        "asked file1 (client 0)",
                        "recall unanswered file1 (client 0)",
                        "denied file1 (client 0)",
                    ]
                },
            )
            guard.check()

            # Client 0 finds out by itself, and before anybody else has the lock.
            await guard.lost.wait()
            assert told == [guard]
            with pytest.raises(LockLost):
                guard.check()
            assert log.take() == (
                [],
                {0: ["disconnected file1", "renewal timed out file1", "lost file1"]},
            )

            # When its lease is over, client 1 has the lock; and then from its cache.
            while await theirs.holder() is not None:  # noqa: ASYNC110  there is no event to await
                await asyncio.sleep(0.01)
            held = await theirs.acquire()
            assert held.token > guard.token
            held.release()
            held = await theirs.acquire()
            assert log.take() == (
                [
                    "1: asked file1",
                    "1: granted file1",
                    "1: released file1",
                    "1: asked file1",
                    "1: from cache file1",
                    "1: granted file1",
                ],
                {1: ["asked file1", "granted file1"]},
            )

            # Client 0 is back, and finds it in use.
            server.reconnect(first)
            with pytest.raises(LockDenied):
                await lock.acquire(timeout=0)
            applications, clients = log.take()
            assert applications == ["0: asked file1", "0: denied file1 (client 1)"]
            assert clients[1] == ["refused file1 (client 0)"]
            held.release()


class Storage:
    """Something outside the lock service, that is read and written, with a pause between."""

    def __init__(self) -> None:
        self.counters = [0] * LOCKS

    async def add_one(self, number: int, pause_s: float) -> None:
        """Add one, unguarded."""
        seen = self.counters[number]
        await asyncio.sleep(pause_s)
        self.counters[number] = seen + 1


async def random_run(
    clients: Sequence[Client], random: Random, hold_s: float, *, with_locks: bool = True
) -> Storage:
    """Make random requests, in rounds."""
    storage = Storage()

    async def request() -> None:
        client, number = random.choice(clients), random.randrange(LOCKS)
        pause_s = random.uniform(0.0, hold_s)
        if with_locks:
            async with client.lock(f"file{number}"):
                await storage.add_one(number, pause_s)
        else:
            await storage.add_one(number, pause_s)

    for _ in range(ROUNDS):
        await asyncio.gather(*(request() for _ in range(REQUESTS)))
    return storage


async def check_random_run(clients: Sequence[Client], random: Random, hold_s: float) -> None:
    """Make one, and count in every way there is."""
    log = Log()
    for number, client in enumerate(clients):
        log.listen(number, client)
    storage = await random_run(clients, random, hold_s)
    names = [f"file{number}" for number in range(LOCKS)]
    counts = (await random.choice(clients).count_acquisitions(*names)).counts
    assert list(counts.values()) == storage.counters
    assert sum(storage.counters) == sum(counts.values()) == log.grants == ROUNDS * REQUESTS


@pytest.mark.parametrize("seed", seeds(10))
def test_random_run(seed: int) -> None:
    async def scene(world: World) -> None:
        random = Random(seed)
        clients: list[Any] = [world.client(f"client {n}") for n in range(random.randint(2, 10))]
        for client in clients:
            client.engine.delay_s = random.uniform(0.0, 0.05)
        await check_random_run(clients, random, hold_s=0.5)

    play(scene, seed)


@pytest.mark.parametrize("seed", seeds(3))
def test_without_locks_the_random_run_loses_something(seed: int) -> None:
    async def scene(world: World) -> None:
        storage = await random_run([world.client("a")], Random(seed), 0.5, with_locks=False)
        assert sum(storage.counters) < ROUNDS * REQUESTS

    play(scene, seed)


@asynchronous
async def test_random_run_over_a_network() -> None:
    with LocalServer() as server:
        clients = [await server.connect(name=f"client {n}", session_ttl=60.0) for n in range(5)]
        await check_random_run(clients, Random(1), hold_s=0.005)
        for client in clients:
            await client.close()
