"""Calls that return something to be awaited, and are not: each is reported."""

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
import leasehold.sync
from leasehold import Client
from leasehold.errors import Closed
from tests.support.faulty_engine import World, play

CALLS: dict[str, Callable[[Client], Any]] = {
    "client.lease()": lambda client: client.lease(10),
    "client.keep()": lambda client: client.keep(7),
    "read() of rwlock 'x'": lambda client: client.rwlock("x").read(),
    "write() of rwlock 'x'": lambda client: client.rwlock("x").write(),
    "acquire() of semaphore 'x'": lambda client: client.semaphore("x", 1).acquire(),
    "campaign() of election 'x'": lambda client: client.election("x").campaign("me"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_is_never_awaited_is_reported(call: str) -> None:
    async def scene(world: World) -> None:
        client = world.client("me")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            CALLS[call](client)
            gc.collect()
        assert [str(each.message) for each in caught] == [
            f"{call} was never awaited, nor entered with `async with`"
        ]

    play(scene)


@pytest.mark.parametrize("call", [leasehold.connect, leasehold.open])
def test_a_client_that_is_never_awaited_is_reported(call: Callable[[str], object]) -> None:
    where = "127.0.0.1:1" if call is leasehold.connect else "memory:"
    name = "connect" if call is leasehold.connect else "open"
    with pytest.warns(RuntimeWarning, match=rf"leasehold\.{name}\(\) was never awaited"):
        call(where)


def test_blocking_calls_that_are_refused_are_not_reported() -> None:
    client = leasehold.sync.open("memory:")
    client.close()
    for call in (
        lambda: client.lease(10),
        lambda: client.keep(7),
        lambda: client.rwlock("x").read(),
        lambda: client.semaphore("x", 1).acquire(),
        lambda: client.election("x").campaign("me"),
    ):
        with pytest.raises(Closed):
            call()
    gc.collect()  # warnings are errors
