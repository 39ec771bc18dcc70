"""`leasehold.v1.Leases/Watch`: what is told, to whom, when, and what is not."""

import asyncio

import pytest

from leasehold.engine.lease_watchers import RENEWED_EVERY_S
from leasehold.errors import Status
from leasehold.rpc.grpc import RpcError
from leasehold.server.leases import watching
from leasehold.server.leases.watching import MAX_EVENT_KEYS, MAX_QUEUED, MAX_WATCHED_IDS
from leasehold.wire import leases_pb2 as pb
from tests.support.v1 import FakeSpeaker, Office, in_office, in_office_with, turns

GRANTED, RENEWED = pb.LeaseEvent.GRANTED, pb.LeaseEvent.RENEWED
EXPIRED, REVOKED = pb.LeaseEvent.EXPIRED, pb.LeaseEvent.REVOKED


def told(speaker: FakeSpeaker) -> list[tuple[int, int]]:
    return [(event.kind, event.id) for event in speaker.events]


@in_office
async def test_created_comes_first_with_the_revision(office: Office) -> None:
    office.put(b"a")
    speaker, _ = office.watch()
    await turns()
    (first,) = speaker.said
    assert (first.created, first.header.revision) == (True, office.store.revision)


@in_office
async def test_granted_expired_and_revoked_are_told_apart(office: Office) -> None:
    speaker, _ = office.watch()
    await office.grant(ttl_ms=1_000, id=1, holder="anna")
    await office.grant(ttl_ms=60_000, id=2)
    for key in (b"b", b"a"):
        office.put(key, 1)
    await office.settled()
    await asyncio.sleep(1.5)
    await office.revoke_all(2)
    await turns()
    assert told(speaker) == [(GRANTED, 1), (GRANTED, 2), (EXPIRED, 1), (REVOKED, 2)]
    granted, _, expired, revoked = speaker.events
    assert (granted.holder, granted.ttl_ms, granted.keys_count) == ("anna", 1_000, 0)
    assert (expired.holder, list(expired.keys), expired.keys_count) == ("anna", [b"a", b"b"], 2)
    assert expired.revision == office.store.revision
    assert (list(revoked.keys), revoked.keys_count) == ([], 0)


@in_office
async def test_there_is_no_history(office: Office) -> None:
    await office.grant(id=1)
    speaker, _ = office.watch()
    await turns()
    assert told(speaker) == []


@in_office
async def test_the_keys_of_an_event_are_limited_and_counted(office: Office) -> None:
    speaker, _ = office.watch(key_prefix=b"k2999")
    office.grant_many(range(1, 3))
    for number in range(3_000):  # so many go in steps
        office.put(b"k%04d" % number, 1)
    for number in range(MAX_EVENT_KEYS + 1):
        office.put(b"m%04d" % number, 2)
    await office.revoke_all(1, 2)
    await turns()
    (event,) = speaker.events
    assert (event.kind, event.id, event.keys_count) == (REVOKED, 1, 3_000)
    assert list(event.keys) == [b"k%04d" % number for number in range(MAX_EVENT_KEYS)]


@in_office
async def test_renewals_are_told_only_if_asked_for_and_of_each_lease_some(office: Office) -> None:
    quiet, _ = office.watch()
    speaker, _ = office.watch(renewals=True)
    office.grant_many(range(1, 3))
    await office.settled()
    for second in range(int(RENEWED_EVERY_S) + 1):
        await office.renew_all(1)
        if second == 1:
            office.store.leases.renew(2)  # as etcd's clients do
        await asyncio.sleep(1.0)
    await turns()
    assert told(quiet) == [(GRANTED, 1), (GRANTED, 2)]
    renewed = [event for event in speaker.events if event.kind == RENEWED]
    assert [event.id for event in renewed] == [1, 2, 1]


@in_office
async def test_nobody_is_told_of_renewals_once_the_one_who_asked_is_gone(office: Office) -> None:
    _, listener = office.watch(renewals=True)
    told_of = [office.store.leases.on_renewed is not None]
    listener.gone()
    told_of.append(office.store.leases.on_renewed is not None)
    assert told_of == [True, False]
    assert not office.store.lease_watchers.any


@in_office
async def test_events_are_filtered_by_holder_lease_and_prefix(office: Office) -> None:
    watches = {
        "anna": office.watch(holder="anna")[0],
        "two": office.watch(ids=[2])[0],
        "two of anna": office.watch(ids=[2], holder="anna")[0],
        "prefix": office.watch(key_prefix=b"a/", renewals=True)[0],
        "prefix of bert": office.watch(key_prefix=b"a/", holder="bert")[0],
    }
    office.grant_many(range(1, 2), holder="anna")
    office.grant_many(range(2, 4), holder="bert")
    for key, lease in ((b"a/1", 1), (b"b/1", 2), (b"a/3", 3)):
        office.put(key, lease)
    await office.renew_all(1, 2, 3)
    await office.revoke_all(1, 2, 3)
    await turns()
    found = {name: told(speaker) for name, speaker in watches.items()}
    assert found == {
        "anna": [(GRANTED, 1), (REVOKED, 1)],
        "two": [(GRANTED, 2), (REVOKED, 2)],
        "two of anna": [],
        "prefix": [(RENEWED, 1), (RENEWED, 3), (REVOKED, 1), (REVOKED, 3)],
        "prefix of bert": [(REVOKED, 3)],
    }


@in_office_with(by_hand=True)
async def test_an_event_leaves_when_it_is_on_disk(office: Office) -> None:
    speaker, _ = office.watch()
    await turns()
    office.grant_many(range(1, 2))
    await turns()
    assert told(speaker) == []
    batch = office.store.take_batch()
    assert batch is not None
    office.grant_many(range(2, 3))
    office.store.committed()
    await turns()
    assert told(speaker) == [(GRANTED, 1)]
    office.commit()
    await turns()
    assert told(speaker) == [(GRANTED, 1), (GRANTED, 2)]


@in_office_with(by_hand=True)
async def test_created_is_before_every_event_though_it_waits_for_the_disk(office: Office) -> None:
    office.grant_many(range(1, 2))
    office.commit()
    office.grant_many(range(2, 3))
    speaker, _ = office.watch(renewals=True)
    await office.renew_all(1)  # which waits for no disk
    await turns()
    assert speaker.said == []
    office.commit()
    await turns()
    assert speaker.said[0].created
    assert told(speaker) == [(RENEWED, 1)]


@in_office
async def test_one_that_does_not_read_is_told_how_much_it_missed(office: Office) -> None:
    slow, listener = office.watch()
    await turns()
    slow.has_own_room = False
    extra = 5
    office.grant_many(range(1, MAX_QUEUED + extra + 1))
    await turns(MAX_QUEUED // watching.EVENTS_PER_MESSAGE + 5)
    assert told(slow) == []
    slow.has_own_room = True
    listener.relieved()
    await turns(MAX_QUEUED // watching.EVENTS_PER_MESSAGE + 5)
    assert told(slow) == [(GRANTED, lease) for lease in range(1, MAX_QUEUED + 1)]
    assert slow.lagged == [extra]
    assert slow.said[-1].lagged == extra, "it comes where they are missing"
    office.grant_many(range(50_000, 50_001))
    await turns()
    assert told(slow)[-1] == (GRANTED, 50_000)


@in_office
async def test_the_queue_of_one_that_does_not_read_is_limited(office: Office) -> None:
    slow, _ = office.watch()
    slow.has_own_room = False
    office.grant_many(range(1, MAX_QUEUED + 1_000))
    await turns()
    (watcher,) = office.store.lease_watchers._of_all
    assert isinstance(watcher, watching.WatchedStream)
    assert len(watcher._queue) == MAX_QUEUED


@in_office
async def test_one_stream_has_one_watch(office: Office) -> None:
    _, listener = office.watch()
    with pytest.raises(RpcError) as refused:
        listener.heard(b"")
    assert refused.value.status is Status.INVALID_ARGUMENT


@in_office
async def test_the_number_of_leases_that_are_named_and_of_watchers_is_limited(
    office: Office,
) -> None:
    with pytest.raises(RpcError) as refused:
        office.watch(ids=range(MAX_WATCHED_IDS + 1))
    assert refused.value.status is Status.INVALID_ARGUMENT
    office.service._watching.watchers = watching.MAX_WATCHERS
    with pytest.raises(RpcError) as refused:
        office.watch()
    assert refused.value.status is Status.RESOURCE_EXHAUSTED


@in_office
async def test_one_that_is_gone_leaves_nothing_behind(office: Office) -> None:
    for request in ({}, {"ids": [1, 2]}, {"holder": "anna"}, {"ids": [1], "holder": "anna"}):
        speaker, listener = office.watch(**request)
        listener.ended()
        listener.gone()
        listener.gone()
        await turns()
        assert speaker.said == []
    hub = office.store.lease_watchers
    assert not any((hub._by_lease, hub._by_holder, hub._of_all, hub._renewals))
    assert office.service._watching.watchers == 0
