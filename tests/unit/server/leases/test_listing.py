"""`leasehold.v1.Leases/List`: pages, filters, and what stays true while leases come and go."""

import asyncio
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from leasehold.errors import Status
from leasehold.keyspace.operations import Delete, Grant, Revoke
from leasehold.keyspace.ranges import SLICE
from leasehold.server.leases import listing
from leasehold.server.leases.listing import MAX_PAGE, MAX_ROLLS, ListFilter, Listing
from leasehold.store.lease_record import LeaseRecord
from leasehold.wire import leases_pb2 as pb
from tests.support.v1 import Office, in_office, in_office_with, refusal


@in_office
async def test_each_lease_has_term_remaining_keys_and_holder(office: Office) -> None:
    await office.grant(ttl_ms=1_500, id=-3, holder="anna")
    await office.grant(ttl_ms=20_000, id=2)
    for key in (b"a", b"b"):
        office.put(key, 2)
    await office.settled()
    await asyncio.sleep(0.25)
    first, second = await office.listed()
    assert (first.id, first.ttl_ms, first.keys, first.holder) == (-3, 1_500, 0, "anna")
    assert (second.id, second.ttl_ms, second.keys, second.holder) == (2, 20_000, 2, "")
    assert (first.remaining_ms, second.remaining_ms) == (1_250, 19_750)


@in_office
async def test_pages_are_in_the_order_of_ids_and_have_all_of_them_once(office: Office) -> None:
    ids = [number * 7_919 % 1_009 - 500 for number in range(700)]
    for lease in ids:
        office.store.apply(Grant(lease, 60.0))
    for size in (1, 69, 699, 700, 701):
        assert [each.id for each in await office.listed(page_size=size)] == sorted(ids)
    page = await office.page(page_size=69)
    assert len(page.leases) == 69


@in_office
async def test_a_page_is_never_longer_than_its_limit(office: Office) -> None:
    office.grant_many(range(1, MAX_PAGE + 2))
    assert len((await office.page(page_size=10**9)).leases) == MAX_PAGE
    assert len((await office.page()).leases) == listing.DEFAULT_PAGE
    error = await refusal(office.page(page_size=-1))
    assert error.status is Status.INVALID_ARGUMENT


@in_office
async def test_a_listing_of_nothing_is_one_empty_page(office: Office) -> None:
    page = await office.page()
    assert (list(page.leases), page.next_page_token) == ([], b"")
    assert page.header.revision == office.store.durable_revision


@in_office
async def test_leases_are_filtered_by_holder_and_by_key_prefix(office: Office) -> None:
    office.grant_many(range(1, 5), holder="anna")
    office.grant_many(range(5, 9), holder="bert")
    for key, lease in ((b"a/1", 1), (b"a/2", 6), (b"b/1", 2), (b"a", 3), (b"a/3", 6)):
        office.put(key, lease)

    async def ids(**request: object) -> list[int]:
        return [each.id for each in await office.listed(page_size=1, **request)]

    assert await ids(holder="anna") == [1, 2, 3, 4]
    assert await ids(key_prefix=b"a/") == [1, 6]
    assert await ids(key_prefix=b"a/", holder="bert") == [6]
    assert await ids(holder="nobody") == []
    assert await ids(key_prefix=b"\xff") == []


@in_office
async def test_what_is_looked_at_between_two_pauses_is_counted_in_keys(office: Office) -> None:
    """Not in leases: one may have a key, or very many."""
    office.grant_many(range(1, 41))
    for number in range(40 * 100):
        office.put(b"k%d" % number, 1 + number % 40)
    for number in range(10 * SLICE):
        office.put(b"m%d" % number, 1)
    looks = [0]
    looked_at = ListFilter.looks

    def counted(wanted: ListFilter, record: LeaseRecord) -> Iterator[tuple[int, bool]]:
        for keys, fits in looked_at(wanted, record):
            looks[-1] += keys
            yield keys, fits

    async def pause(*_: object) -> None:
        looks.append(0)

    with patch.object(ListFilter, "looks", counted), patch.object(Listing, "_pause", pause):
        assert await office.listed(key_prefix=b"z") == []
    assert sum(looks) == 40 * 100 + 10 * SLICE
    assert max(looks) < 2 * SLICE


@in_office
async def test_a_lease_is_looked_at_as_it_was_at_one_moment(office: Office) -> None:
    """If it always has a key under the prefix it is listed, though never the same for long."""
    office.grant_many(range(1, 2))
    for number in range(10 * SLICE):
        office.put(b"k%d" % number, 1)
    office.put(b"a/0", 1)
    looks = ListFilter("", b"a/").looks(office.store.leases.current(1))
    for count, (_, fits) in enumerate(looks, 1):
        if fits:
            return
        office.put(b"a/%d" % count, 1)
        office.store.apply(Delete(b"a/%d" % (count - 1)))
    raise AssertionError("it was not found")


@in_office
async def test_leases_that_stay_are_listed_once_whatever_comes_and_goes(office: Office) -> None:
    stays, goes = range(0, 1_000, 10), range(5, 1_000, 10)
    office.grant_many(range(10, 1_000, 10))
    office.grant_many(goes)
    seen: list[int] = []
    page = await office.page(page_size=30)
    pages = 0
    while True:
        seen += [each.id for each in page.leases]
        if not page.next_page_token:
            break
        office.store.apply(Revoke(goes[pages * 7 % len(goes)]))
        office.store.apply(Grant(1_001 + pages, 60.0))
        page = await office.page(page_size=30, page_token=page.next_page_token)
        pages += 1
    assert len(seen) == len(set(seen))
    assert set(stays[1:]) <= set(seen)
    assert seen == sorted(seen)


@in_office
async def test_a_page_goes_on_though_what_was_kept_of_the_listing_is_gone(office: Office) -> None:
    office.grant_many(range(1, 21), holder="anna")
    page = await office.page(page_size=5, holder="anna")
    for number in range(MAX_ROLLS + 1):
        office.grant_many(range(100 + 2 * number, 102 + 2 * number), holder=f"other{number}")
        await office.page(page_size=1, holder=f"other{number}")
    assert ("anna", b"") not in office.service._listing._rolls
    assert len(office.service._listing._rolls) <= MAX_ROLLS
    page = await office.page(page_size=5, page_token=page.next_page_token, holder="anna")
    assert [each.id for each in page.leases] == [6, 7, 8, 9, 10]


@in_office
async def test_nothing_is_kept_of_a_listing_that_has_come_to_its_end(office: Office) -> None:
    office.grant_many(range(1, 21))
    await office.listed(page_size=5)
    assert not office.service._listing._rolls


@in_office
async def test_a_token_is_good_after_a_restart(office: Office) -> None:
    office.grant_many(range(1, 11))
    page = await office.page(page_size=4)
    office.service._listing._run += 1
    office.service._listing._rolls.clear()
    page = await office.page(page_size=10, page_token=page.next_page_token)
    assert [each.id for each in page.leases] == [5, 6, 7, 8, 9, 10]


@in_office
async def test_a_lease_of_the_same_id_but_another_holder_is_not_listed(office: Office) -> None:
    office.grant_many(range(1, 5), holder="anna")
    page = await office.page(page_size=2, holder="anna")
    office.store.apply(Revoke(3))
    office.store.apply(Grant(3, 60.0, "bert"))
    page = await office.page(page_size=2, holder="anna", page_token=page.next_page_token)
    assert [each.id for each in page.leases] == [4]


@in_office
async def test_a_lease_whose_time_is_over_is_not_listed(office: Office) -> None:
    await office.grant(ttl_ms=1_000, id=1)
    await office.grant(ttl_ms=60_000, id=2)
    await office.settled()
    office.store.leases.table.clock.now += 1.5  # the expiry step has yet to run
    assert [each.id for each in await office.listed()] == [2]


@pytest.mark.parametrize("token", [b"x", b"\0" * 32, b"\0" * 28 + b"abcd"])
def test_a_token_that_never_was_is_refused(token: bytes) -> None:
    @in_office
    async def run(office: Office) -> None:
        error = await refusal(office.page(page_token=token))
        assert error.status is Status.INVALID_ARGUMENT
        assert "page_token is not valid" in error.message

    run()


@in_office
async def test_a_token_goes_with_the_filters_of_its_listing(office: Office) -> None:
    office.grant_many(range(1, 5), holder="anna")
    token = (await office.page(page_size=2, holder="anna")).next_page_token
    error = await refusal(office.page(page_token=token))
    assert error.status is Status.INVALID_ARGUMENT
    assert "other filters" in error.message


@in_office_with(by_hand=True)
async def test_a_page_is_shown_when_what_it_shows_is_on_disk(office: Office) -> None:
    office.grant_many(range(1, 3))
    office.commit()
    _, position = await office.call("List", pb.ListRequest())
    assert position <= office.store.durable
    office.put(b"a", 1)
    _, position = await office.call("List", pb.ListRequest())
    assert position == office.store.durable + 1


@in_office
async def test_others_have_their_turn_during_a_listing(office: Office) -> None:
    office.grant_many(range(1, 5_001))
    await office.settled()
    looks = iter(range(10**9))
    office.store.leases.monotonic = lambda: float(next(looks))
    listing_task = asyncio.get_running_loop().create_task(office.page(page_size=5_000))
    turns = 0
    while not listing_task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 20
    assert len((await listing_task).leases) == 5_000
