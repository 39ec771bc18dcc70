"""`leasehold.v1.Leases/Watch`: what is told, to whom, when, and what is not."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.server.leases import lease_watch
from leasehold.server.leases.lease_watch import (
    MAX_PREFIX_BYTES,
    MAX_WATCHED_IDS,
    VISITS_PER_TURN,
    LeaseWatchStream,
    WatcherRounds,
)
from leasehold.server.leases.request_checks import MAX_HOLDER_BYTES
from leasehold.store import lease_watchers
from leasehold.store.lease_watchers import (
    EVENTS_PER_MESSAGE,
    MAX_EVENT_KEY_BYTES,
    MAX_EVENT_KEYS,
    MESSAGE_BYTES,
    RENEWED_EVERY_S,
)
from leasehold.wire import leases_pb2 as pb
from tests.support.v1 import FakeStream, Office, in_office, in_office_with, turns

GRANTED, RENEWED = pb.LeaseEvent.GRANTED, pb.LeaseEvent.RENEWED
EXPIRED, REVOKED = pb.LeaseEvent.EXPIRED, pb.LeaseEvent.REVOKED


def told(stream: FakeStream) -> list[tuple[int, int]]:
    return [(event.kind, event.id) for event in stream.events]


def refused(office: Office, **request: Any) -> RpcError:
    with pytest.raises(RpcError) as error:
        office.watch(**request)
    return error.value


@contextmanager
def kept_at_most(events: int) -> Iterator[None]:
    with patch.object(lease_watchers, "MAX_EVENTS", events):
        yield


@in_office
async def test_created_comes_first_with_the_revision(office: Office) -> None:
    office.put(b"a")
    stream, _ = office.watch()
    await turns()
    (first,) = stream.said
    assert (first.created, first.header.revision) == (True, office.store.revision)


@in_office
async def test_granted_expired_and_revoked_are_told_apart(office: Office) -> None:
    stream, _ = office.watch()
    await office.grant(ttl_ms=1_000, id=1, holder="anna")
    await office.grant(ttl_ms=60_000, id=2)
    for key in (b"b", b"a"):
        office.put(key, 1)
    await office.settled()
    await asyncio.sleep(1.5)
    await office.revoke_all(2)
    await turns()
    assert told(stream) == [(GRANTED, 1), (GRANTED, 2), (EXPIRED, 1), (REVOKED, 2)]
    granted, _, expired, revoked = stream.events
    assert (granted.holder, granted.ttl_ms, granted.keys_count) == ("anna", 1_000, 0)
    assert (expired.holder, list(expired.keys), expired.keys_count) == ("anna", [b"a", b"b"], 2)
    assert expired.revision == office.store.revision
    assert (list(revoked.keys), revoked.keys_count) == ([], 0)


@in_office
async def test_there_is_no_history(office: Office) -> None:
    await office.grant(id=1)
    stream, _ = office.watch()
    await turns()
    assert told(stream) == []


@in_office
async def test_there_is_no_history_though_it_is_kept_for_somebody_else(office: Office) -> None:
    slow, handler = office.watch()
    await turns()
    slow.has_own_room = False
    office.grant_many(range(1, 6))
    await turns()
    stream, _ = office.watch()
    office.grant_many(range(6, 8))
    await turns()
    assert (told(stream), stream.lagged) == ([(GRANTED, 6), (GRANTED, 7)], [])
    slow.has_own_room = True
    handler.relieved()
    await turns()
    assert told(slow) == [(GRANTED, lease) for lease in range(1, 8)]


@in_office
async def test_the_keys_of_an_event_are_limited_and_counted(office: Office) -> None:
    stream, _ = office.watch(key_prefix=b"k2999")
    office.grant_many(range(1, 3))
    for number in range(3_000):  # so many go in steps
        office.put(b"k%04d" % number, 1)
    for number in range(MAX_EVENT_KEYS + 1):
        office.put(b"m%04d" % number, 2)
    await office.revoke_all(1, 2)
    await turns()
    (event,) = stream.events
    assert (event.kind, event.id, event.keys_count) == (REVOKED, 1, 3_000)
    assert list(event.keys) == [b"k%04d" % number for number in range(MAX_EVENT_KEYS)]


@in_office
async def test_renewals_are_told_only_if_asked_for_and_of_each_lease_some(office: Office) -> None:
    quiet, _ = office.watch()
    stream, _ = office.watch(renewals=True)
    office.grant_many(range(1, 3))
    await office.settled()
    for second in range(int(RENEWED_EVERY_S) + 1):
        await office.renew_all(1)
        if second == 1:
            office.store.leases.renew(2)  # as etcd's clients do
        await asyncio.sleep(1.0)
    await turns()
    assert told(quiet) == [(GRANTED, 1), (GRANTED, 2)]
    renewed = [event for event in stream.events if event.kind == RENEWED]
    assert [event.id for event in renewed] == [1, 2, 1]


@in_office
async def test_nobody_is_told_of_renewals_once_the_one_who_asked_is_gone(office: Office) -> None:
    _, handler = office.watch(renewals=True)
    told_of = [office.store.leases.on_renewed is not None]
    handler.gone()
    told_of.append(office.store.leases.on_renewed is not None)
    assert told_of == [True, False]
    assert not office.store.lease_watchers.any


@in_office
async def test_events_are_filtered_by_holder_lease_and_prefix(office: Office) -> None:
    watches = {
        "anna": office.watch(holder="anna")[0],
        "two": office.watch(ids=[2])[0],
        "two of anna": office.watch(ids=[2], holder="anna")[0],
        "prefix": office.watch(key_prefix=b"a/")[0],
        "renewals of bert": office.watch(holder="bert", renewals=True)[0],
        "prefix of bert": office.watch(key_prefix=b"a/", holder="bert")[0],
    }
    office.grant_many(range(1, 2), holder="anna")
    office.grant_many(range(2, 4), holder="bert")
    for key, lease in ((b"a/1", 1), (b"b/1", 2), (b"a/3", 3)):
        office.put(key, lease)
    await office.renew_all(1, 2, 3)
    await office.revoke_all(1, 2, 3)
    await turns()
    found = {name: told(stream) for name, stream in watches.items()}
    assert found == {
        "anna": [(GRANTED, 1), (REVOKED, 1)],
        "two": [(GRANTED, 2), (REVOKED, 2)],
        "two of anna": [],
        "prefix": [(REVOKED, 1), (REVOKED, 3)],
        "renewals of bert": [
            *((GRANTED, 2), (GRANTED, 3), (RENEWED, 2), (RENEWED, 3)),
            *((REVOKED, 2), (REVOKED, 3)),
        ],
        "prefix of bert": [(REVOKED, 3)],
    }


@in_office_with(by_hand=True)
async def test_an_event_leaves_when_it_is_on_disk(office: Office) -> None:
    stream, _ = office.watch()
    await turns()
    office.grant_many(range(1, 2))
    await turns()
    assert told(stream) == []
    batch = office.store.take_batch()
    assert batch is not None
    office.grant_many(range(2, 3))
    office.store.committed()
    await turns()
    assert told(stream) == [(GRANTED, 1)]
    office.commit()
    await turns()
    assert told(stream) == [(GRANTED, 1), (GRANTED, 2)]


@in_office_with(by_hand=True)
async def test_created_is_before_every_event_though_it_waits_for_the_disk(office: Office) -> None:
    office.grant_many(range(1, 2))
    office.commit()
    office.grant_many(range(2, 3))
    stream, _ = office.watch(renewals=True)
    await office.renew_all(1)  # which waits for no disk
    await turns()
    assert stream.said == []
    office.commit()
    await turns()
    assert stream.said[0].created
    assert told(stream) == [(RENEWED, 1)]


@in_office
async def test_one_that_does_not_read_is_told_how_much_it_missed(office: Office) -> None:
    slow, handler = office.watch()
    keen, _ = office.watch()
    await turns()
    slow.has_own_room = False
    with kept_at_most(40):
        for start in range(1, 101, 20):
            office.grant_many(range(start, start + 20))
            await turns()
    assert told(slow) == []
    slow.has_own_room = True
    handler.relieved()
    await turns()
    assert slow.lagged == [60]
    assert slow.said[1].lagged == 60, "it comes before what was kept"
    assert told(slow) == [(GRANTED, lease) for lease in range(61, 101)]
    office.grant_many(range(101, 102))
    await turns()
    assert told(slow)[-1] == (GRANTED, 101)
    assert (told(keen), keen.lagged) == ([(GRANTED, lease) for lease in range(1, 102)], [])


@in_office
async def test_what_a_watcher_has_missed_are_events_that_concern_it(office: Office) -> None:
    slow, handler = office.watch(holder="anna")
    idle, _ = office.watch(holder="bert")
    await turns()
    slow.has_own_room = False
    with kept_at_most(10):
        office.grant_many(range(1, 4), holder="anna")
        office.watch()  # for which the others are kept
        office.grant_many(range(10, 110))
        await turns()
        office.grant_many(range(4, 6), holder="anna")
    slow.has_own_room = True
    handler.relieved()
    await turns()
    assert (slow.lagged, told(slow)) == ([3], [(GRANTED, 4), (GRANTED, 5)])
    assert (idle.lagged, told(idle)) == ([], [])


@in_office_with(by_hand=True)
async def test_what_was_missed_is_told_when_that_is_on_disk(office: Office) -> None:
    stream, handler = office.watch()
    await turns()
    stream.has_own_room = False
    office.grant_many(range(1, 2))
    office.commit()
    await turns()
    with kept_at_most(2):
        office.grant_many(range(2, 6))
    stream.has_own_room = True
    handler.relieved()
    await turns()
    assert (stream.lagged, told(stream)) == ([], [])
    office.commit()
    await turns()
    assert (stream.lagged, told(stream)) == ([3], [(GRANTED, 4), (GRANTED, 5)])


@in_office_with(by_hand=True)
async def test_one_that_was_told_everything_is_visited_when_something_happens_only(
    office: Office,
) -> None:
    stream, _ = office.watch()
    office.watch(holder="anna")
    for lease in range(1, 6):
        office.grant_many(range(lease, lease + 1))
        await turns()
        office.commit()
        await turns()
    rounds = office.service._watching._rounds
    assert len(stream.events) == 5
    assert (rounds.behind, len(rounds._called), len(rounds._waiting)) == (0, 0, 0)


@in_office
async def test_one_that_does_not_read_is_visited_once_whatever_happens(office: Office) -> None:
    streams = [office.watch() for _ in range(3)]
    await turns()
    for stream, _ in streams:
        stream.has_own_room = False
    with patch.object(LeaseWatchStream, "visit", autospec=True, side_effect=_visit) as visited:
        for start in range(1, 2_001, 100):
            office.grant_many(range(start, start + 100))
            await turns()
        assert visited.call_count == len(streams)
        for stream, handler in streams:
            stream.has_own_room = True
            handler.relieved()
        await turns(10)
    for stream, _ in streams:
        assert told(stream) == [(GRANTED, lease) for lease in range(1, 2_001)]


_visit = LeaseWatchStream.visit


@in_office
async def test_events_are_kept_once_for_all_and_only_while_somebody_needs_them(
    office: Office,
) -> None:
    log = office.store.lease_watchers.log
    slow, handler = office.watch()
    others = [office.watch()[0] for _ in range(10)]
    await turns()
    slow.has_own_room = False
    office.grant_many(range(1, 3_001))
    await turns(20)
    assert {len(each.events) for each in others} == {3_000}
    assert len(log) == 3_000
    assert log._places == 3_000, "in one feed"
    handler.gone()
    await turns(2)
    assert 0 < len(log) < 3_000, "they are not dropped all at once"
    await turns(5)
    assert len(log) == 0


@in_office
async def test_an_event_for_very_many_is_told_to_some_in_each_turn(office: Office) -> None:
    opened = [office.watch()[0] for _ in range(3 * VISITS_PER_TURN)]
    await turns(5)
    office.grant_many(range(1, 2))
    await office.settled()
    seen = []
    while len([each for each in opened if each.events]) < len(opened):
        await turns(1)
        seen.append(sum(len(each.events) for each in opened))
    assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) <= VISITS_PER_TURN


@in_office
async def test_a_message_is_limited_in_number_and_in_bytes(office: Office) -> None:
    stream, _ = office.watch()
    office.grant_many(range(1, EVENTS_PER_MESSAGE + 3))
    for number in range(2):
        for key in range(20):
            office.put(b"%d/%02d" % (number, key) + b"k" * 3_000, 1 + number)
    await office.revoke_all(1, 2)
    await turns(10)
    messages = [list(response.events) for response in stream.said if response.events]
    assert [len(events) for events in messages] == [EVENTS_PER_MESSAGE, 4]
    office.grant_many(range(1_001, 1_004))
    for lease in range(1_001, 1_004):
        for key in range(20):
            office.put(b"%d/%02d" % (lease, key) + b"k" * 3_000, lease)
    await office.revoke_all(1_001, 1_002, 1_003)
    await turns(10)
    sizes = [response.ByteSize() for response in stream.said]
    assert max(sizes) <= MESSAGE_BYTES + MAX_EVENT_KEY_BYTES + 1_000
    assert [event.id for event in stream.said[-1].events] == [1_003]


@in_office
async def test_the_names_of_keys_in_an_event_are_limited_in_bytes(office: Office) -> None:
    stream, _ = office.watch()
    office.grant_many(range(1, 2))
    for number in range(4):
        office.put(b"%d" % number + b"k" * (MAX_EVENT_KEY_BYTES // 2 - 1), 1)
    await office.revoke_all(1)
    await turns()
    assert ([key[:1] for key in stream.events[-1].keys]) == [b"0", b"1"]
    assert stream.events[-1].keys_count == 4


@in_office
async def test_a_watcher_that_fails_costs_the_others_nothing(office: Office) -> None:
    bad, _ = office.watch()
    good, _ = office.watch()
    await turns()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    with patch.object(bad, "send_message", side_effect=RuntimeError("no")):
        office.grant_many(range(1, 2))
        await turns()
    assert told(good) == [(GRANTED, 1)]
    assert len(failures) == 1


@in_office
async def test_renewals_cannot_be_filtered_by_prefix(office: Office) -> None:
    error = refused(office, key_prefix=b"a", renewals=True)
    assert error.status is Status.INVALID_ARGUMENT
    assert "renewals and key_prefix cannot be used together" in error.message
    assert not office.store.lease_watchers.any


@in_office
async def test_one_stream_has_one_watch(office: Office) -> None:
    _, handler = office.watch()
    with pytest.raises(RpcError) as refused:
        handler.message_received(b"")
    assert refused.value.status is Status.INVALID_ARGUMENT


@in_office
async def test_what_a_watcher_names_is_limited(office: Office) -> None:
    for request in (
        {"ids": range(MAX_WATCHED_IDS + 1)},
        {"key_prefix": b"k" * (MAX_PREFIX_BYTES + 1)},
        {"holder": "h" * (MAX_HOLDER_BYTES + 1)},
    ):
        assert refused(office, **request).status is Status.INVALID_ARGUMENT


@in_office
async def test_the_number_of_watchers_is_limited(office: Office) -> None:
    office.service._watching.watchers = lease_watch.MAX_WATCHERS
    assert refused(office).status is Status.RESOURCE_EXHAUSTED


@in_office
async def test_what_all_watchers_name_together_is_limited(office: Office) -> None:
    with patch.object(lease_watch, "MAX_ALL_WATCHED_IDS", 10):
        _, handler = office.watch(ids=range(1, 7))
        office.watch(ids=range(1, 7))  # the same again costs nothing
        assert refused(office, ids=range(1, 6)).status is Status.RESOURCE_EXHAUSTED
        office.watch(ids=range(1, 5))
    with patch.object(lease_watch, "MAX_PREFIXES", 2):
        for prefix in (b"a", b"a", b"b"):
            office.watch(key_prefix=prefix)
        assert refused(office, key_prefix=b"c").status is Status.RESOURCE_EXHAUSTED
        handler.gone()


@in_office
async def test_those_who_are_gone_are_forgotten_in_slices(office: Office) -> None:
    index = office.store.lease_watchers
    ids = [range(start, start + MAX_WATCHED_IDS) for start in (1, 50_001)]
    listeners = [office.watch(ids=each, renewals=True)[1] for each in ids]
    for handler in listeners:
        handler.gone()
    assert index.named == 2 * MAX_WATCHED_IDS, "nothing is done in the step in which they go"
    assert not index.any
    left = []
    while index.named:
        await turns(1)
        left.append(len(index._changes._by_key))
    assert len(left) >= 2 * MAX_WATCHED_IDS // 1_000
    assert not any((index._changes, index._renewals, index._prefixed))


@in_office
async def test_one_that_is_gone_leaves_nothing_behind(office: Office) -> None:
    for request in (
        {},
        {"ids": [1, 2]},
        {"holder": "anna"},
        {"ids": [1], "holder": "anna", "renewals": True},
        {"key_prefix": b"a"},
        {"ids": [1], "key_prefix": b"ab"},
    ):
        stream, handler = office.watch(**request)
        office.grant_many(range(1, 2), holder="anna")
        handler.ended()
        handler.gone()
        handler.gone()
        await office.revoke_all(1)
        await turns()
        assert stream.said == []
    index = office.store.lease_watchers
    rounds = index.on_news.__self__  # type: ignore[attr-defined]
    assert isinstance(rounds, WatcherRounds)
    assert not any((index._changes, index._renewals, index._prefixed, index._retired))
    assert (index.named, index.prefixes, len(index.log)) == (0, 0, 0)
    assert (rounds.behind, len(rounds._called), len(rounds._waiting)) == (0, 0, 0)
    assert office.service._watching.watchers == 0


@in_office_with(by_hand=True)
async def test_one_that_goes_while_it_waits_for_the_disk_is_not_kept(office: Office) -> None:
    office.grant_many(range(1, 2))
    rounds = office.service._watching._rounds
    for _ in range(3):
        _, handler = office.watch()
        await turns()
        assert len(rounds._waiting) == 1
        handler.gone()
        assert len(rounds._waiting) == 0
