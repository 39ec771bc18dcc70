"""Permits on any engine: they end with their lease, and are replaced and taken away at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from leasehold import Client, UnknownLease
from leasehold.locks.permit import Permit, names_of
from tests.engines.conftest import Place
from tests.support.asynchronous import asynchronous, longest_stall, until

LONG_S = 1000.0
ENOUGH_S = 3.0
"""A term that leaves a starved test the time for a few calls."""


@asynccontextmanager
async def client_of(place: Place) -> AsyncIterator[Client]:
    async with place.open() as engine, Client(engine) as client:
        yield client


def subject_of(place: Place, name: str = "anna") -> str:
    """Name a subject that no other test knows."""
    return place.prefix.decode() + name


async def is_over(client: Client, lease: int) -> bool:
    try:
        await client.lease_info(lease)
    except UnknownLease:
        return True
    return False


async def over(client: Client, lease: int) -> None:
    """Wait until a lease is over, which goes on behind the caller's back."""
    while not await is_over(client, lease):  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0.02)


async def until_not(look: Callable[[], Awaitable[object]]) -> None:
    """Wait until something is no more; the deadline is the test's."""
    while await look():  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0.02)


@asynchronous
async def test_a_subject_has_the_rights_that_were_granted_and_no_others(place: Place) -> None:
    async with client_of(place) as client:
        anna, permits = subject_of(place), client.permits
        permit = await permits.grant(anna, "hall", ["write", "read", "read"], LONG_S)
        assert permit.rights == {"read", "write"}
        assert permit == await permits.get(anna, "hall")
        for cache in (False, True, True):
            assert await permits.check(anna, "hall", "read", cache=cache)
            assert not await permits.check(anna, "hall", "dance", cache=cache)
            assert not await permits.check(anna, "hal", "read", cache=cache)
            assert not await permits.check(anna + "x", "hall", "read", cache=cache)
        assert await permits.get(anna, "attic") is None
        assert await permits.revoke(anna, "hall")


@asynchronous
async def test_a_permit_ends_with_its_lease_which_begins_with_it(place: Place) -> None:
    async with client_of(place) as client:
        anna, permits = subject_of(place), client.permits
        permit = await permits.grant(anna, "hall", {"read"}, ttl=ENOUGH_S)
        info = await client.lease_info(permit.lease, keys=True)
        assert info.keys == (names_of(anna, "hall").key,)
        await until_not(lambda: permits.check(anna, "hall", "read"))
        await until_not(lambda: permits.get(anna, "hall"))
        assert await is_over(client, permit.lease)
        assert not await permits.check(anna, "hall", "read")


async def keeps_its_rights(client: Client, anna: str, ttl_s: float) -> bool:
    """Keep a permit for longer than its term; False if a slow machine has not kept the lease."""
    permits = client.permits
    permit = await permits.grant(anna, "hall", {"read"}, ttl=ttl_s)
    loop = asyncio.get_running_loop()
    try:
        async with longest_stall() as stall, client.keep(permit.lease):
            until = loop.time() + 1.5 * ttl_s
            while loop.time() < until:
                if not await permits.check(anna, "hall", "read"):
                    await asyncio.sleep(0.05)  # a stall is noticed by then
                    assert stall.seconds > ttl_s / 3 or await is_over(client, permit.lease)
                    return False
                await asyncio.sleep(0.05)
    except UnknownLease:
        return False
    return True


@asynchronous
async def test_a_subject_that_keeps_the_lease_alive_keeps_its_rights(place: Place) -> None:
    async with client_of(place) as client:
        anna, permits = subject_of(place), client.permits
        ttl_s = 3 * max(0.3, client.engine.limits.ttl_unit)
        for slower in (1, 2, 4):
            if kept := await keeps_its_rights(client, anna, slower * ttl_s):
                break
        assert kept
        assert not await permits.check(anna, "hall", "read", cache=False)
        await until_not(lambda: permits.check(anna, "hall", "read"))


@asynchronous
async def test_a_permit_under_a_lease_of_the_subject_ends_with_it(place: Place) -> None:
    async with client_of(place) as client:
        anna, permits = subject_of(place), client.permits
        async with client.lease(LONG_S) as lease:
            held = await permits.grant(anna, "hall", {"read"}, lease=lease)
            by_id = await permits.grant(anna, "attic", {"read"}, lease=lease.id)
            assert held.lease == by_id.lease == lease.id
            assert not held.own_lease
            assert (await client.lease_info(lease)).key_count == 2, "nothing else is left there"
            assert await permits.revoke(anna, "hall")
            lease.check()
            assert not await is_over(client, lease.id), "it is the subject's"
            assert await permits.check(anna, "attic", "read")
        await until_not(lambda: permits.check(anna, "attic", "read"))
        with pytest.raises(UnknownLease):
            await permits.grant(anna, "hall", {"read"}, lease=lease.id)
        assert not await permits.list(anna)


@asynchronous
async def test_granting_again_replaces_the_rights_and_ends_the_lease_of_before(
    place: Place,
) -> None:
    async with client_of(place) as client:
        anna, permits = subject_of(place), client.permits
        first = await permits.grant(anna, "hall", {"read"}, ttl=LONG_S)
        second = await permits.grant(anna, "hall", {"write"}, ttl=LONG_S)
        assert not await permits.check(anna, "hall", "read")
        assert await permits.check(anna, "hall", "write")
        await over(client, first.lease)
        assert not await is_over(client, second.lease)
        third = await permits.grant(anna, "hall", {"dance"}, lease=second.lease)
        assert third.lease == second.lease
        assert third.own_lease, "it was begun for the permit"
        assert await permits.revoke(anna, "hall")
        await over(client, second.lease)
        assert not await permits.revoke(anna, "hall")


@asynchronous
async def test_a_lease_with_another_use_is_not_ended(place: Place) -> None:
    async with client_of(place) as client:
        anna, permits = subject_of(place), client.permits
        first = await permits.grant(anna, "hall", {"read"}, ttl=LONG_S)
        await permits.grant(anna, "attic", {"read"}, lease=first.lease)
        await permits.grant(anna, "hall", {"read"}, ttl=LONG_S)
        assert not await is_over(client, first.lease)
        assert await permits.check(anna, "attic", "read")
        assert await permits.revoke(anna, "hall")
        assert await permits.revoke(anna, "attic")
        await client.revoke(first.lease)


@asynchronous
async def test_a_revocation_reaches_what_is_cached_at_once(place: Place) -> None:
    async with client_of(place) as client:
        anna, permits = subject_of(place), client.permits
        names = names_of(anna, "hall")
        await permits.grant(anna, "hall", {"read"}, ttl=LONG_S)
        assert await permits.check(anna, "hall", "read")
        assert permits.cache.get(names) is not None
        await client.kv.delete(names.key)  # as another client would, or etcdctl
        await until(lambda: permits.cache.get(names) is None)
        assert not await permits.check(anna, "hall", "read")
        await permits.grant(anna, "hall", {"read"}, ttl=LONG_S)
        assert await permits.check(anna, "hall", "read")
        assert await permits.revoke(anna, "hall")
        assert not await permits.check(anna, "hall", "read"), "who revokes need not be told"


@asynchronous
async def test_permits_are_listed_by_subject_and_by_resource(place: Place) -> None:
    async with client_of(place) as client:
        anna, bert, permits = subject_of(place), subject_of(place, "bert"), client.permits
        hall, attic = subject_of(place, "hall"), "a/b%2F\0é"
        granted: list[Permit] = []
        async with client.lease(LONG_S) as lease:
            for subject in (bert, anna):
                for resource in (hall, attic):
                    granted.append(  # noqa: PERF401
                        await permits.grant(subject, resource, {"read"}, lease=lease)
                    )
            granted.sort(key=lambda each: (each.subject, each.resource))
            assert await permits.list(anna) == granted[:2]
            assert await permits.list(resource=hall) == [granted[1], granted[3]]
            assert await permits.list(bert, attic) == [granted[2]]
            assert [each for each in await permits.list() if each in granted] == granted
            assert await permits.list(subject_of(place, "nobody")) == []
