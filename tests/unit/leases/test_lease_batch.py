"""`LeaseBatch`: many leases of one landlord, each with its own outcome."""

import asyncio
import math
from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from leasehold import (
    ANY,
    FOREVER,
    ConnectionLost,
    DurationPolicy,
    EndReason,
    Landlord,
    Lease,
    LeaseBatch,
    LeaseBatchError,
    LeaseDenied,
    UnknownLease,
    lazy,
)
from leasehold.testing import VirtualClock


class Bulk(Lease):
    """A lease whose grantor answers batches as a test says."""

    calls: list[object]

    def __init__(self, cookie: Hashable, book: dict[str, Any], clock: VirtualClock) -> None:
        super().__init__(10.0, clock=clock)
        self._cookie = cookie
        self.book = book

    @property
    def grantor(self) -> Hashable:
        return "bulk"

    @property
    def cookie(self) -> Hashable:
        return self._cookie

    @property
    def batch_key(self) -> object:
        return id(self.book)

    async def ask_renew(self, requested: object) -> float:
        raise NotImplementedError

    async def ask_cancel(self) -> None:
        raise NotImplementedError

    async def ask_renew_all(self, wants: Sequence[tuple[Lease, object]]) -> Any:
        self.book["calls"].append([(lease.cookie, requested) for lease, requested in wants])
        if isinstance(self.book["answer"], BaseException):
            raise self.book["answer"]
        return self.book["answer"]

    async def ask_cancel_all(self, leases: Sequence[Lease]) -> Any:
        return await self.ask_renew_all([(lease, 0.0) for lease in leases])


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def landlord(clock: VirtualClock) -> Landlord[str]:
    return Landlord(DurationPolicy(FOREVER, 30.0), expiry=lazy(), clock=clock)


@pytest.fixture
def book() -> dict[str, Any]:
    return {"calls": [], "answer": None}


def run(coroutine: Any) -> Any:
    """Run a coroutine that waits for nothing."""
    return asyncio.run(coroutine)


def test_a_batch_renews_all_in_one_call_each_with_the_duration_wanted_for_it(
    book: dict[str, Any], clock: VirtualClock
) -> None:
    leases = [Bulk(number, book, clock) for number in range(4)]
    batch = LeaseBatch(dict(zip(leases, [5.0, ANY, FOREVER, 60], strict=True)))
    book["answer"] = [5.0, 30.0, FOREVER, 45.0]
    run(batch.renew_all())
    assert book["calls"] == [[(0, 5.0), (1, ANY), (2, FOREVER), (3, 60.0)]]
    assert [lease.remaining for lease in leases] == [5.0, 30.0, FOREVER, 45.0]
    assert list(batch) == leases


def test_those_that_failed_leave_the_batch_and_come_back_in_one_error(
    landlord: Landlord[str],
) -> None:
    leases = [landlord.grant("resource", 10.0) for _ in range(4)]
    batch = LeaseBatch(dict.fromkeys(leases, 50.0))
    for cancelled in (leases[1], leases[3]):
        landlord.cancel(cancelled.cookie)
    with pytest.raises(LeaseBatchError) as caught:
        run(batch.renew_all())
    failures = caught.value.failures
    assert set(failures) == {leases[1], leases[3]}
    for error in failures.values():
        assert isinstance(error, UnknownLease)
        assert error.reason is EndReason.CANCELLED
    assert list(batch) == [leases[0], leases[2]]
    assert [lease.remaining for lease in leases] == [50.0, 0.0, 50.0, 0.0]


def test_cancelling_a_batch_ends_all_and_empties_it(landlord: Landlord[str]) -> None:
    leases = [landlord.grant("resource", FOREVER) for _ in range(3)]
    batch = LeaseBatch(dict.fromkeys(leases, ANY))
    run(batch.cancel_all())
    assert (len(batch), len(landlord)) == (0, 0)
    assert [lease.remaining for lease in leases] == [0.0, 0.0, 0.0]


def test_cancelling_a_batch_brings_back_those_that_failed(landlord: Landlord[str]) -> None:
    leases = [landlord.grant("resource", 10.0) for _ in range(3)]
    batch = LeaseBatch(dict.fromkeys(leases, ANY))
    landlord.cancel(leases[0].cookie)
    with pytest.raises(LeaseBatchError) as caught:
        run(batch.cancel_all())
    assert list(caught.value.failures) == [leases[0]]
    assert (len(batch), len(landlord)) == (0, 0)


@pytest.mark.parametrize("verb", ["renew_all", "cancel_all"])
@pytest.mark.parametrize(
    "failure", [ConnectionLost("gone"), LeaseDenied("all"), asyncio.CancelledError()], ids=repr
)
def test_a_failure_of_the_whole_call_leaves_the_batch_as_it_was(
    verb: str, failure: BaseException, book: dict[str, Any], clock: VirtualClock
) -> None:
    leases = [Bulk(number, book, clock) for number in range(3)]
    wants: dict[Lease, Any] = dict(zip(leases, [50.0, ANY, FOREVER], strict=True))
    batch = LeaseBatch(wants)
    book["answer"] = failure
    with pytest.raises(type(failure)):
        run(getattr(batch, verb)())
    assert {lease: batch[lease] for lease in batch} == wants


@pytest.mark.parametrize(
    ("failure", "remaining"), [(ConnectionLost("gone"), 2.0), (LeaseDenied("all"), 10.0)], ids=repr
)
def test_a_failure_of_the_whole_call_is_a_failure_for_each_lease(
    failure: Exception, remaining: float, book: dict[str, Any], clock: VirtualClock
) -> None:
    shorter, longer = Bulk("shorter", book, clock), Bulk("longer", book, clock)
    batch = LeaseBatch({shorter: 2.0, longer: 50.0})
    book["answer"] = failure
    with pytest.raises(type(failure)):
        run(batch.renew_all())
    assert (shorter.remaining, longer.remaining) == (remaining, 10.0)


@pytest.mark.parametrize("answer", [[], [5.0], [5.0, 5.0, 5.0]])
def test_an_answer_with_another_number_of_outcomes_is_a_failure_of_the_whole_call(
    answer: list[float], book: dict[str, Any], clock: VirtualClock
) -> None:
    leases = [Bulk(number, book, clock) for number in range(2)]
    batch = LeaseBatch(dict.fromkeys(leases, ANY))
    book["answer"] = answer
    with pytest.raises(ValueError, match=f"got {len(answer)} outcomes for 2 leases"):
        run(batch.renew_all())
    assert len(batch) == 2


@pytest.mark.parametrize("answer", [None, ANY, -1.0, math.nan, "5"])
def test_an_outcome_that_is_no_length_of_time_is_the_failure_of_its_lease_alone(
    answer: Any, book: dict[str, Any], clock: VirtualClock
) -> None:
    good, bad = Bulk("good", book, clock), Bulk("bad", book, clock)
    batch = LeaseBatch({good: ANY, bad: ANY})
    book["answer"] = [50.0, answer]
    with pytest.raises(LeaseBatchError, match="the granted duration") as caught:
        run(batch.renew_all())
    assert list(caught.value.failures) == [bad]
    assert (good.remaining, bad.remaining) == (50.0, 10.0)


def test_a_batch_counts_from_when_it_was_sent(book: dict[str, Any], clock: VirtualClock) -> None:
    class Slow(Bulk):
        async def ask_renew_all(self, wants: Any) -> Any:
            clock.advance(3.0)
            return await super().ask_renew_all(wants)

    lease = Slow("slow", book, clock)
    book["answer"] = [10.0]
    run(LeaseBatch({lease: 10.0}).renew_all())
    assert lease.remaining == 7.0


def test_an_empty_batch_asks_nobody() -> None:
    batch = LeaseBatch()
    run(batch.renew_all())
    run(batch.cancel_all())
    assert len(batch) == 0


def test_a_lease_of_another_landlord_is_refused(
    landlord: Landlord[str], clock: VirtualClock
) -> None:
    other: Landlord[str] = Landlord(DurationPolicy(60.0, 30.0), expiry=lazy(), clock=clock)
    mine, theirs = landlord.grant("mine"), other.grant("theirs")
    batch = LeaseBatch({mine: 5.0})
    assert batch.can_hold(landlord.grant("another"))
    assert not batch.can_hold(theirs)
    with pytest.raises(ValueError, match=r"cannot be renewed in one call") as caught:
        batch.add(theirs, 5.0)
    assert repr(theirs) in str(caught.value)
    assert list(batch) == [mine]
    batch.remove(mine)
    batch.add(theirs)
    assert list(batch) == [theirs]


@pytest.mark.parametrize("bad", [None, "lease", 5])
def test_what_is_no_lease_is_refused_by_value(bad: Any) -> None:
    batch = LeaseBatch()
    with pytest.raises(TypeError, match=f"a batch holds leases, not {bad!r}"):
        batch.add(bad)
    assert len(batch) == 0


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (None, TypeError),
        (True, TypeError),
        (-1.0, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
    ],
)
def test_a_bad_duration_is_refused_and_changes_nothing(
    landlord: Landlord[str], bad: Any, kind: type[Exception]
) -> None:
    lease = landlord.grant("resource")
    batch = LeaseBatch({lease: 5.0})
    for other in (lease, landlord.grant("another")):
        with pytest.raises(kind, match="duration must "):
            batch.add(other, bad)
    assert {each: batch[each] for each in batch} == {lease: 5.0}


def test_adding_a_lease_again_changes_the_duration_and_keeps_the_object_added_last(
    landlord: Landlord[str],
) -> None:
    lease = landlord.grant("resource")
    twin = landlord.lease_from_bytes(lease.to_bytes("duration"))
    batch = LeaseBatch({lease: 5.0})
    batch.add(twin, 7)
    assert len(batch) == 1
    assert batch[lease] == 7.0
    assert next(iter(batch)) is twin


def test_the_choice_is_left_to_the_landlord_unless_told_otherwise(landlord: Landlord[str]) -> None:
    lease = landlord.grant("resource")
    batch = LeaseBatch()
    batch.add(lease)
    assert batch[lease] is ANY


def test_a_lease_that_is_taken_out_is_left_alone(landlord: Landlord[str]) -> None:
    one, other = landlord.grant("one", 10.0), landlord.grant("other", 10.0)
    batch = LeaseBatch({one: 50.0, other: 50.0})
    batch.remove(one)
    assert one not in batch
    run(batch.renew_all())
    assert (one.remaining, other.remaining) == (10.0, 50.0)
    with pytest.raises(KeyError):
        batch.remove(one)


def test_a_wanted_duration_of_zero_ends_that_lease(landlord: Landlord[str]) -> None:
    one, other = landlord.grant("one", 10.0), landlord.grant("other", 10.0)
    run(LeaseBatch({one: 0, other: 50.0}).renew_all())
    assert (one.remaining, other.remaining, len(landlord)) == (0.0, 50.0, 1)


def test_a_batch_shows_its_size(landlord: Landlord[str]) -> None:
    assert repr(LeaseBatch({landlord.grant("resource"): ANY})) == "<LeaseBatch of 1>"
