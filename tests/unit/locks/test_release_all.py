"""`Lock.release_all`: as often as it was acquired, in one call."""

import pytest

import leasehold.sync
from leasehold import LockLost, NotHeld
from tests.support.faulty_engine import World, play


def test_a_handle_is_released_as_often_as_it_was_acquired() -> None:
    async def scene(world: World) -> None:
        a, b = world.client("a"), world.client("b")
        lock = a.lock("x", reentrant=True)
        guards = [await lock.acquire() for _ in range(12)]
        guards[3].release()
        assert lock.release_all() == 11
        assert all(guard.is_released for guard in guards)
        assert lock.release_all() == 0
        with pytest.raises(NotHeld):
            lock.release()
        async with b.lock("x", timeout=0):
            pass

    play(scene)


def test_all_are_released_before_a_loss_is_raised() -> None:
    async def scene(world: World) -> None:
        a = world.client("a")
        lock = a.lock("x", reentrant=True)
        guards = [await lock.acquire() for _ in range(3)]
        await world.engine.delete(guards[0].key)
        await guards[0].lost.wait()
        with pytest.raises(LockLost):
            lock.release_all()
        assert all(guard.is_released for guard in guards)

    play(scene)


def test_the_blocking_handle_does_the_same() -> None:
    with leasehold.sync.open("memory:") as client:
        lock = client.lock("x", reentrant=True)
        guards = [lock.acquire() for _ in range(3)]
        assert lock.release_all() == 3
        assert all(guard.is_released for guard in guards)
        assert lock.release_all() == 0
