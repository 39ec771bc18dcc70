"""Which errors guards and denials raise, and what they say."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leasehold import LockDenied, LockLost, NotHeld
from leasehold.errors import Closed, HistoryLost
from tests.support.faulty_engine import Participant, World, play

RECIPES: dict[str, Callable[[Participant, float | None], Awaitable[Any]]] = {
    "lock": lambda client, timeout: client.lock("x").acquire(timeout=timeout),
    "write": lambda client, timeout: client.rwlock("x").write(timeout),
    "semaphore": lambda client, timeout: client.semaphore("x", 1).acquire(timeout),
    "election": lambda client, timeout: client.election("x").campaign("me", timeout),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_check_after_the_end_of_the_client_raises_lock_lost(recipe: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        guard = await RECIPES[recipe](client, None)
        await client.close()
        with pytest.raises(LockLost, match="the client was closed") as caught:
            guard.check()
        assert isinstance(caught.value.__cause__, Closed | None)

    play(scene)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_check_in_another_keyspace_raises_lock_lost(
    recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        guard = await RECIPES[recipe](client, None)

        def check() -> None:
            raise HistoryLost("another cluster answers")

        with monkeypatch.context() as patch:
            patch.setattr(client.engine, "check", check)
            with pytest.raises(LockLost, match="another cluster answers") as caught:
                guard.check()
        assert isinstance(caught.value.__cause__, HistoryLost)
        guard.release()
        with pytest.raises(NotHeld):
            guard.check()

    play(scene)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("wait_s", [0, 2.0])
def test_a_denial_says_that_this_client_is_the_holder(recipe: str, wait_s: float) -> None:
    async def scene(world: World) -> None:
        client, other = world.client("anna"), world.client("bert")
        guard = await RECIPES[recipe](client, None)
        with pytest.raises(LockDenied, match=r"\(this client, through another guard\)") as own:
            await RECIPES[recipe](client, wait_s)
        assert own.value.is_own
        with pytest.raises(LockDenied) as foreign:
            await RECIPES[recipe](other, wait_s)
        assert not foreign.value.is_own
        assert "this client" not in str(foreign.value)
        assert ("still held by" in str(foreign.value)) == (wait_s > 0)
        guard.release()
        await asyncio.sleep(1.0)

    play(scene)
