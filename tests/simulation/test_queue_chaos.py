"""Places in line while all goes wrong: lost calls, stragglers, cut-offs, compactions, impatience.

Whoever holds something, by its own clock, holds it alone, or with those it may; and in the end
nothing is left, and the next one gets in.
"""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from leasehold import Compacted, LockDenied, LockLost, SessionExpired, Token
from leasehold.basics.pending import Pending
from leasehold.locks.queued_locks import QueueGuard
from leasehold.testing import seeds
from tests.support.faulty_engine import LOSSES, Participant, World, play

CLIENTS = 4
RUN_S = 60.0
TTL_S = 5.0
LIMIT = 2
PARTIES = 3

EXPECTED = (LockDenied, SessionExpired, LockLost, TimeoutError, OSError)
"""What may come of it, and is told."""


class Chaos:
    """Troubles a world until it is told to stop."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.clients = [world.client(f"c{number}", session_ttl=TTL_S) for number in range(CLIENTS)]
        self.task = asyncio.ensure_future(self._trouble())

    async def _trouble(self) -> None:
        random = self.random
        while True:
            await asyncio.sleep(random.expovariate(2.0))
            engine = random.choice(self.clients).engine
            match random.randrange(6):
                case 0 | 1 | 2:
                    engine.trouble_with("txn", random.randint(1, 3), random.choice(LOSSES))
                case 3:
                    engine.delay_s = random.choice([0.0, 0.0, 0.05, 0.5])
                case 4:
                    engine.break_watches(Compacted(1, 2))
                case _:
                    self._cut_off(engine, random.uniform(0.5, 1.5 * TTL_S))

    def _cut_off(self, engine: Any, seconds: float) -> None:
        if self.random.random() < 0.3:
            engine.is_cut_off = True
            asyncio.get_running_loop().call_later(seconds, setattr, engine, "is_cut_off", False)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.sleep(2 * TTL_S)
        for client in self.clients:
            client.engine.is_cut_off = False
            client.engine.delay_s = 0.0


class Room:
    """Who is in, and who may be in together."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.inside: dict[QueueGuard, str] = {}
        self.entries = 0

    def enter(self, guard: QueueGuard, role: str) -> None:
        self.entries += 1
        self.inside[guard] = role
        held = [each for guard, each in self.inside.items() if guard.is_held]
        if self.kind == "semaphore":
            assert len(held) <= LIMIT, held
        elif "write" in held or self.kind == "election":
            assert len(held) <= 1, held

    def leave(self, guard: QueueGuard) -> None:
        del self.inside[guard]


def acquire(kind: str, role: str, client: Participant, timeout: float | None) -> Pending[Any]:
    if kind == "semaphore":
        return client.semaphore("x", LIMIT).acquire(timeout)
    if kind == "election":
        return client.election("x").campaign("me", timeout)
    lock = client.rwlock("x")
    return lock.write(timeout) if role == "write" else lock.read(timeout)


@pytest.mark.parametrize("kind", ["rwlock", "semaphore", "election"])
@pytest.mark.parametrize("seed", seeds(3))
def test_nobody_is_in_who_may_not_be(kind: str, seed: int) -> None:
    async def scene(world: World) -> None:
        random = Random(seed)
        chaos, room = Chaos(world, random), Room(kind)

        async def visit(client: Participant) -> None:
            role = random.choice(["read", "read", "write"])
            timeout = random.choice([None, 0, 0.2, 3.0])
            guard: QueueGuard = await acquire(kind, role, client, timeout)
            room.enter(guard, role)
            try:
                async with guard:
                    await asyncio.sleep(random.expovariate(4.0))
                    guard.check()
            finally:
                room.leave(guard)

        async def work(client: Participant) -> None:
            while True:
                task = asyncio.ensure_future(visit(client))
                patience_s = random.choice([None, None, random.expovariate(1.0)])
                try:
                    await asyncio.wait([task], timeout=patience_s)
                finally:
                    task.cancel()
                await asyncio.wait([task])
                if not task.cancelled() and (error := task.exception()) is not None:
                    assert isinstance(error, EXPECTED), error
                await asyncio.sleep(random.expovariate(8.0))

        workers = [asyncio.ensure_future(work(client)) for client in chaos.clients * 2]
        await asyncio.wait(workers, timeout=RUN_S, return_when=asyncio.FIRST_EXCEPTION)
        for worker in workers:
            worker.cancel()
        done = await asyncio.gather(*workers, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done), done
        await chaos.stop()
        await world.until(lambda: not world.pairs(b"x/"))
        assert room.entries > RUN_S / 10, "almost nobody got in"
        (await acquire(kind, "write", chaos.clients[0], 1.0)).release()

    play(scene, seed)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_barrier_opens_for_its_parties_and_nobody_else(seed: int) -> None:
    async def scene(world: World) -> None:
        random = Random(seed)
        chaos = Chaos(world, random)
        passed: Counter[Token] = Counter()
        in_doubt = 0

        async def work(client: Participant) -> None:
            nonlocal in_doubt
            while True:
                timeout = random.choice([None, 0, 0.5, 5.0])
                try:
                    passed[await client.barrier("x", PARTIES).wait(timeout)] += 1
                except (SessionExpired, OSError) as error:
                    in_doubt += not str(error).startswith("barrier 'x': only")
                await asyncio.sleep(random.expovariate(2.0))

        workers = [asyncio.ensure_future(work(client)) for client in chaos.clients * 2]
        await asyncio.wait(workers, timeout=RUN_S, return_when=asyncio.FIRST_EXCEPTION)
        for worker in workers:
            worker.cancel()
        done = await asyncio.gather(*workers, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in done), done
        await chaos.stop()
        assert len(passed) > RUN_S / 20, "it has hardly opened"
        assert all(count <= PARTIES for count in passed.values()), "too many have passed at once"
        missing = PARTIES * len(passed) - passed.total()
        assert missing <= in_doubt + len(workers), "who was told that it has not passed was counted"
        await world.until(lambda: all(pair.key.endswith(b"opened") for pair in world.pairs()))

    play(scene, seed)
