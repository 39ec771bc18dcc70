"""`Grantor`: a landlord of one's own, with `LandlordLease`, `LeaseBatch` and `RenewalManager`."""

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    BatchResult,
    Duration,
    DurationLike,
    DurationPolicy,
    EndReason,
    Grantor,
    Landlord,
    LandlordLease,
    Lease,
    LeaseBatch,
    LeaseBatchError,
    LeaseDenied,
    RenewalManager,
    RenewalNotice,
    UnknownLease,
    lazy,
)
from leasehold.basics.durations import check_requested, seconds_of
from leasehold.testing import Simulation, VirtualClock

MAX_S = 10.0


class Library(Grantor[str]):
    """A landlord with no more than it must have: books, by number, in one dict."""

    def __init__(self) -> None:
        self.books: dict[Hashable, str] = {}
        self.calls: list[tuple[Hashable, ...]] = []

    @property
    def name(self) -> str:
        return "library"

    def grant(self, resource: str, duration: DurationLike = ANY) -> Lease:
        number = len(self.books) + 1
        self.books[number] = resource
        return LandlordLease(self, number, self._term(duration))

    def renew(self, cookie: Hashable, duration: DurationLike) -> Duration:
        self.calls.append(("renew", cookie))
        if cookie not in self.books:
            raise UnknownLease(cookie, EndReason.CANCELLED)
        if self.books[cookie] == "reserved":
            raise LeaseDenied("somebody waits for it", lease=cookie)
        return self._term(duration)

    def cancel(self, cookie: Hashable) -> None:
        self.calls.append(("cancel", cookie))
        if self.books.pop(cookie, None) is None:
            raise UnknownLease(cookie, EndReason.CANCELLED)

    def _term(self, duration: DurationLike) -> float:
        requested = check_requested(duration)
        return MAX_S if requested is ANY else min(seconds_of(requested), MAX_S)


class AsyncLibrary:
    """The same, with coroutine methods, and without a base class."""

    def __init__(self) -> None:
        self.name = "async library"
        self.inner = Library()

    async def grant(self, resource: str, duration: DurationLike = ANY) -> Lease:
        await asyncio.sleep(0)
        granted = self.inner.grant(resource, duration)
        return LandlordLease(self, granted.cookie, granted.term)

    async def renew(self, cookie: Hashable, duration: DurationLike) -> Duration:
        await asyncio.sleep(0)
        return self.inner.renew(cookie, duration)

    async def cancel(self, cookie: Hashable) -> None:
        await asyncio.sleep(0)
        self.inner.cancel(cookie)

    async def renew_all(self, wants: Iterable[tuple[Hashable, DurationLike]]) -> BatchResult:
        result = self.inner.renew_all(wants)
        assert isinstance(result, BatchResult)
        return result

    async def cancel_all(self, cookies: Iterable[Hashable]) -> BatchResult:
        result = self.inner.cancel_all(cookies)
        assert isinstance(result, BatchResult)
        return result


class LazyAsyncLibrary(Grantor[str]):
    """Coroutine methods, with the batches of the base class."""

    name = "lazy async library"

    def __init__(self) -> None:
        self.inner = Library()

    async def grant(self, resource: str, duration: DurationLike = ANY) -> Lease:
        granted = self.inner.grant(resource, duration)
        return LandlordLease(self, granted.cookie, granted.term)

    async def renew(self, cookie: Hashable, duration: DurationLike) -> Duration:
        await asyncio.sleep(0)
        return self.inner.renew(cookie, duration)

    async def cancel(self, cookie: Hashable) -> None:
        await asyncio.sleep(0)
        self.inner.cancel(cookie)


def _check_types() -> None:
    """All of these are grantors; for the type checker."""
    _plain: Grantor[str] = Library()
    _async: Grantor[str] = AsyncLibrary()
    _ours: Grantor[str] = Landlord[str](DurationPolicy(FOREVER, 10.0))


KINDS = [Library, AsyncLibrary, LazyAsyncLibrary]


async def _leases(library: Grantor[str], *books: str) -> list[Lease]:
    leases = []
    for book in books:
        granted = library.grant(book)
        leases.append(granted if isinstance(granted, Lease) else await granted)
    return leases


@pytest.mark.parametrize("kind", [*KINDS, lambda: Landlord(DurationPolicy(10.0, 10.0))])
def test_all_of_them_are_grantors(kind: Any) -> None:
    assert isinstance(kind(), Grantor)


def test_what_lacks_a_method_is_not_a_grantor_and_cannot_be_made() -> None:
    class Half(Grantor[str]):
        name = "half"

        def renew(self, cookie: Hashable, duration: DurationLike) -> Duration:
            return 1.0

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]
    assert not isinstance(object(), Grantor)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lease_renews_and_cancels_at_its_grantor(kind: Any) -> None:
    asyncio.run(_renew_and_cancel(kind()))


async def _renew_and_cancel(library: Grantor[str]) -> None:
    (lease,) = await _leases(library, "Emma")
    assert (lease.grantor, lease.cookie, lease.term) == (library.name, 1, MAX_S)
    assert await lease.renew(5.0) == 5.0
    assert 4.0 < seconds_of(lease.remaining) <= 5.0
    await lease.cancel()
    assert lease.remaining == 0.0
    with pytest.raises(UnknownLease, match="cancelled"):
        await lease.renew()


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_goes_to_renew_all_and_pairs_each_failure_with_its_lease(kind: Any) -> None:
    asyncio.run(_renew_a_batch(kind()))


async def _renew_a_batch(library: Grantor[str]) -> None:
    good, gone, denied = await _leases(library, "Emma", "Persuasion", "reserved")
    await gone.cancel()
    batch = LeaseBatch({good: 5.0, gone: 5.0, denied: 5.0})
    with pytest.raises(LeaseBatchError) as caught:
        await batch.renew_all()
    assert {lease: type(error) for lease, error in caught.value.failures.items()} == {
        gone: UnknownLease,
        denied: LeaseDenied,
    }
    assert (good.term, list(batch)) == (5.0, [good])
    await batch.cancel_all()
    assert (good.remaining, len(batch)) == (0.0, 0)


def test_the_batches_of_the_base_class_are_plain_for_plain_methods() -> None:
    library = Library()
    library.grant("Emma")
    result = library.renew_all([(1, 5.0), (2, 5.0)])
    assert isinstance(result, BatchResult)
    assert result.outcomes[0] == 5.0
    assert [cookie for cookie, _ in result.failures] == [2]
    result = library.cancel_all([1, 1])
    assert isinstance(result, BatchResult)
    assert result.outcomes[0] == 0.0
    assert [cookie for cookie, _ in result.failures] == [1]


def test_leases_of_one_grantor_can_be_batched_and_those_of_two_cannot() -> None:
    @dataclass
    class Unhashable(Library):
        """A landlord that compares by value, so it cannot be hashed."""

        books: dict[Hashable, str] = field(default_factory=dict)

    one, other = Unhashable(), Unhashable()
    assert one.grant("a").can_batch(one.grant("b"))
    assert not one.grant("a").can_batch(other.grant("b"))


def test_a_renewal_manager_keeps_the_leases_of_any_grantor_until_they_are_refused() -> None:
    library = Library()
    notices: list[RenewalNotice] = []
    with Simulation(1) as sim:
        host = sim.host("library")

        def keep() -> tuple[RenewalManager, list[LandlordLease]]:
            manager = RenewalManager(clock=host.clock)
            cookies = [library.grant(str(n)).cookie for n in range(3)]
            leases = [LandlordLease(library, each, MAX_S, clock=host.clock) for each in cookies]
            for lease in leases:
                manager.renew_until(lease, FOREVER, MAX_S, notices.append)
            return manager, leases

        manager, leases = host.call(keep)
        sim.run_until(lambda: len(library.calls) >= 9, within=10 * MAX_S)
        assert all(lease.remaining for lease in leases)
        assert not notices
        library.books[1] = "reserved"
        sim.run_until(lambda: notices, within=2 * MAX_S)
        host.call(manager.close)
    assert [notice.lease for notice in notices] == leases[:1]
    assert isinstance(notices[0].error, LeaseDenied)


def test_a_lease_uses_the_clock_of_its_landlord_if_that_has_one() -> None:
    clock = VirtualClock()
    landlord: Landlord[str] = Landlord(
        DurationPolicy(10.0, 10.0), expiry=lazy(), clock=clock, lease_factory=LandlordLease
    )
    lease = landlord.grant("desk")
    clock.advance(4.0)
    assert lease.remaining == 6.0
    own = LandlordLease(Library(), 1, 10.0, clock=clock, margin=0.1)
    assert own.remaining == 9.0


def test_the_manager_of_a_simulation_renews_at_a_grantor_in_virtual_time() -> None:
    with Simulation(1) as sim:
        host = sim.host("library")
        library = Library()
        library.grant("Emma")

        def keep() -> RenewalManager:
            lease = LandlordLease(library, 1, MAX_S, clock=host.clock)
            manager = RenewalManager(clock=host.clock)
            manager.renew_until(lease, FOREVER, MAX_S)
            return manager

        manager = host.call(keep)
        sim.run_for(100 * MAX_S)
        assert len(manager) == 1
        assert len(library.calls) > 50
        host.call(manager.close)
