"""Leases on any engine: terms, keys that go with them, renewals in numbers, and their ends."""

import asyncio

import pytest

from leasehold import LeaseExists, UnknownLease
from leasehold.engine.interface import Engine
from tests.engines.conftest import Place
from tests.support.asynchronous import asynchronous

LONG_S = 1000.0
SHORT_S = 0.3
"""A term that some engine raises to its own shortest one."""
ENOUGH_S = 3.0
"""A term that leaves a starved test the time for a few calls."""


async def ended(engine: Engine, lease: int) -> None:
    """Wait until the engine has ended a lease; the deadline is the test's."""
    while True:
        try:
            await engine.time_to_live(lease)
        except UnknownLease:
            return
        await asyncio.sleep(0.02)


async def left_at_most(engine: Engine, lease: int, wanted: float) -> float:
    """Wait until a lease has so little left; give how much that is."""
    while True:
        left = (await engine.time_to_live(lease)).remaining
        if left <= wanted:
            return left
        await asyncio.sleep(0.02)


@asynchronous
async def test_a_lease_takes_its_keys_with_it_at_one_revision(place: Place) -> None:
    async with place.open() as engine:
        lease = await engine.grant(ENOUGH_S)
        await engine.put(place.key(b"a"), b"", lease=lease.id)
        last = await engine.put(place.key(b"b"), b"", lease=lease.id)
        async with engine.watch(place.prefix, place.end, start=last.revision + 1) as watch:
            told = await anext(watch)
            assert [(event.key, event.is_delete) for event in told.events] == [
                (place.key(b"a"), True),
                (place.key(b"b"), True),
            ]
        for call in (
            engine.renew(lease.id),
            engine.time_to_live(lease.id),
            engine.put(place.key(b"a"), b"", lease=lease.id),
            engine.revoke(lease.id),
        ):
            with pytest.raises(UnknownLease) as unknown:
                await call
            assert unknown.value.lease == lease.id


@asynchronous
async def test_a_term_is_never_shorter_than_asked_for_and_is_in_units(place: Place) -> None:
    async with place.open() as engine:
        limits = engine.limits
        for ttl in (limits.min_ttl / 2, limits.min_ttl, 7.0004, LONG_S):
            lease = await engine.grant(ttl)
            assert lease.ttl >= max(ttl, limits.min_ttl)
            assert lease.ttl < max(ttl, limits.min_ttl) + limits.ttl_unit
            assert lease.ttl / limits.ttl_unit == pytest.approx(round(lease.ttl / limits.ttl_unit))


@asynchronous
async def test_no_lease_ends_before_its_term(place: Place) -> None:
    async with place.open() as engine:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        lease = await engine.grant(SHORT_S)
        await ended(engine, lease.id)
        assert loop.time() - asked_at >= lease.ttl


@asynchronous
async def test_leases_are_granted_renewed_and_revoked(place: Place) -> None:
    async with place.open() as engine:
        lease = await engine.grant(LONG_S)
        assert (lease.ttl, lease.remaining, lease.keys, lease.key_count) == (
            LONG_S,
            LONG_S,
            None,
            0,
        )
        before = (await engine.put(place.key(b"a"), b"", lease=lease.id)).revision
        with pytest.raises(LeaseExists) as refused:
            await engine.grant(10, lease=lease.id)
        assert refused.value.lease == lease.id
        assert await engine.renew(lease.id) == LONG_S
        assert await engine.revoke(lease.id) == before + 1
        assert (await engine.range(place.key(b"a"))).total == 0
        with pytest.raises(UnknownLease):
            await engine.revoke(lease.id)
        with pytest.raises(UnknownLease):
            await engine.renew(lease.id)


@asynchronous
async def test_ending_a_lease_without_keys_keeps_the_revision(place: Place) -> None:
    async with place.open() as engine:
        before = (await engine.put(place.key(b"a"), b"")).revision
        lease = await engine.grant(LONG_S)
        assert await engine.revoke(lease.id) == before


@pytest.mark.parametrize("lease", [5, -5, (1 << 63) - 1, -(1 << 63)])
@asynchronous
async def test_an_id_may_be_chosen_and_have_any_sign(place: Place, lease: int) -> None:
    async with place.open() as engine:
        assert (await engine.grant(LONG_S, lease=lease)).id == lease
        try:
            await engine.put(place.key(b"a"), b"", lease=lease)
            assert (await engine.range(place.key(b"a"))).pairs[0].lease == lease
            assert await engine.renew(lease) == LONG_S
        finally:
            await engine.revoke(lease)


@asynchronous
async def test_renewals_fail_each_for_itself(place: Place) -> None:
    async with place.open() as engine:
        ids = [(await engine.grant(LONG_S + number)).id for number in range(20)]
        gone = ids[3]
        await engine.revoke(gone)
        renewed = await engine.renew_all([*ids, ids[0], 77])
        assert dict(renewed.terms) == {
            lease: LONG_S + number for number, lease in enumerate(ids) if lease != gone
        }
        assert set(renewed.failures) == {gone, 77}
        for lease, error in renewed.failures.items():
            assert isinstance(error, UnknownLease)
            assert error.lease == lease
        assert await engine.renew_all([]) == ({}, {})


@asynchronous
async def test_a_renewal_begins_a_new_full_term(place: Place) -> None:
    async with place.open() as engine:
        lease = await engine.grant(LONG_S)
        unit = max(engine.limits.ttl_unit, 0.05)
        left = await left_at_most(engine, lease.id, LONG_S - 2 * unit)
        await engine.renew(lease.id)
        assert left < (await engine.time_to_live(lease.id)).remaining <= LONG_S


@asynchronous
async def test_the_time_to_live_and_the_keys_of_a_lease_are_told(place: Place) -> None:
    async with place.open() as engine:
        lease = await engine.grant(LONG_S)
        names = [place.key(name) for name in (b"b", b"a", b"c")]
        for name in names:
            await engine.put(name, b"", lease=lease.id)
        await engine.delete(names[2])
        info = await engine.time_to_live(lease.id, keys=True)
        assert (info.id, info.ttl, info.key_count) == (lease.id, LONG_S, 2)
        assert info.keys == (names[1], names[0])
        assert 0 < LONG_S - info.remaining < 30
        assert (await engine.time_to_live(lease.id)).keys is None
        with pytest.raises(UnknownLease):
            await engine.time_to_live(77)
        await engine.revoke(lease.id)


@asynchronous
async def test_a_key_has_one_lease_the_last_it_was_given(place: Place) -> None:
    async with place.open() as engine:
        first, second = await engine.grant(LONG_S), await engine.grant(LONG_S)
        key = place.key(b"a")
        await engine.put(key, b"", lease=first.id)
        await engine.put(key, b"", lease=second.id)
        await engine.revoke(first.id)
        assert (await engine.range(key)).pairs[0].lease == second.id
        await engine.revoke(second.id)
        assert (await engine.range(key)).total == 0


@asynchronous
async def test_leases_are_listed_those_first_that_end_first(place: Place) -> None:
    async with place.open() as engine:
        terms = [LONG_S, LONG_S / 4, LONG_S / 2]
        ours = {(await engine.grant(term)).id: term for term in terms}
        last = list(ours)[-1]
        await engine.put(place.key(b"a"), b"", lease=last)
        found = [each for each in await engine.leases() if each.id in ours]
        assert [each.ttl for each in found] == sorted(terms)
        assert all(each.keys is None and each.remaining <= each.ttl for each in found)
        assert {each.id: each.key_count for each in found if each.key_count} == {last: 1}
        await engine.revoke(last)
        assert last not in {each.id for each in await engine.leases()}


@pytest.mark.parametrize("ttl", [0, -1, 10**10, float("nan"), float("inf")])
@asynchronous
async def test_a_term_that_makes_no_sense_is_refused(place: Place, ttl: float) -> None:
    async with place.open() as engine:
        with pytest.raises(ValueError, match=r"ttl must be more than 0 and at most 9000000000"):
            await engine.grant(ttl)


@asynchronous
async def test_many_leases_are_renewed_together(place: Place) -> None:
    async with place.open() as engine:
        granted = await asyncio.gather(*[engine.grant(LONG_S) for _ in range(300)])
        ids = [lease.id for lease in granted]
        both = await asyncio.gather(engine.renew_all(ids), engine.renew_all(ids))
        for renewed in both:
            assert dict(renewed.terms) == dict.fromkeys(ids, LONG_S)
            assert not renewed.failures
        await asyncio.gather(*map(engine.revoke, ids))
