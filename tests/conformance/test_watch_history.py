"""Watches that begin in the past: what is replayed, in which order; compaction; progress."""

import threading
from collections.abc import Iterable
from typing import Any, Final

import pytest

from leasehold.wire.kv_pb2 import Event, KeyValue
from leasehold.wire.rpc_pb2 import (
    WatchCancelRequest,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
    WatchResponse,
)
from tests.conformance.client import (
    OPERATIONS_MAX,
    Client,
    Granter,
    Stream,
    delete_op,
    header,
    prefix_end,
    put_op,
    txn_op,
    watch_one,
)

NOPUT, NODELETE = WatchCreateRequest.NOPUT, WatchCreateRequest.NODELETE
PROGRESS: Final = WatchRequest(progress_request=WatchProgressRequest())
DUPLICATE_ID: Final = "mvcc: duplicate watch ID provided on the WatchStream"
EMPTY_RANGE: Final = "mvcc: watcher range is empty"
MIN_INT64: Final = -(1 << 63)
MIB: Final = 1 << 20
WatchStream = Stream[WatchRequest, WatchResponse]


def begin(watch: WatchStream, key: bytes, **more: Any) -> WatchResponse:
    watch.send(watch_one(key, **more))
    answer = watch.receive()
    assert answer.created
    return answer


def cancel(watch_id: int) -> WatchRequest:
    return WatchRequest(cancel_request=WatchCancelRequest(watch_id=watch_id))


def events_before(watch: WatchStream, revision: int, watch_id: int = 0) -> list[Event]:
    """Give all events before a revision, which must have one.

    How many revisions come in one response is not etcd's promise: a thousand if the watch lags,
    one if it does not. That the events of one revision are not torn apart is.
    """
    told: list[Event] = []
    while True:
        answer = watch.receive()
        told_up_to = told[-1].kv.mod_revision if told else 0
        assert answer.events
        assert answer.watch_id == watch_id
        assert told_up_to < answer.events[0].kv.mod_revision
        assert answer.events[-1].kv.mod_revision <= answer.header.revision
        answer.header.ClearField("revision")
        assert answer == WatchResponse(header=header(0), watch_id=watch_id, events=answer.events), (
            "nothing else is in it"
        )
        told += answer.events
        if told[-1].kv.mod_revision >= revision:
            return [event for event in told if event.kv.mod_revision < revision]


def replayed(client: Client, key: bytes, **more: Any) -> list[Event]:
    """Watch a key or range, and give all events up to now."""
    start = client.revision()
    with client.watch() as watch:
        assert begin(watch, key, **more) == WatchResponse(header=header(start), created=True)
        end = client.put(key, b"the end").header.revision
        if NOPUT in more.get("filters", ()):
            end = client.delete(key).header.revision
        return events_before(watch, end)


def put(key: bytes, value: bytes, created: int, modified: int, version: int) -> Event:
    kv = KeyValue(
        key=key, value=value, create_revision=created, mod_revision=modified, version=version
    )
    return Event(kv=kv)


def deleted(key: bytes, revision: int) -> Event:
    return Event(type=Event.DELETE, kv=KeyValue(key=key, mod_revision=revision))


def with_previous(event: Event, before: Event) -> Event:
    return Event(type=event.type, kv=event.kv, prev_kv=before.kv)


def revisions(events: Iterable[Event]) -> list[int]:
    return [event.kv.mod_revision for event in events]


# Replay.


def make_history(client: Client, key: bytes, lease: int) -> tuple[list[Event], list[Event]]:
    """Make a history, and give its events, without and with what was before."""
    start = client.revision()
    a, b, c, z = (key + name for name in (b"a", b"b", b"c", b"z"))
    client.put(a, b"1")
    client.put(z, b"1", lease=lease)
    client.put(a, b"2", lease=lease)
    client.delete(a)
    client.put(b, b"1", lease=lease)
    client.txn([], [put_op(c, b"1")])
    client.txn([], [put_op(c, b"2"), delete_op(b), txn_op([], [put_op(a, b"3", lease=lease)])])
    client.put(key[:-1] + b"elsewhere")
    client.revoke(lease)  # of a and z
    client.delete(key, prefix_end(key))
    events = [
        put(a, b"1", start + 1, start + 1, 1),
        put(z, b"1", start + 2, start + 2, 1),
        put(a, b"2", start + 1, start + 3, 2),
        deleted(a, start + 4),
        put(b, b"1", start + 5, start + 5, 1),
        put(c, b"1", start + 6, start + 6, 1),
        put(c, b"2", start + 6, start + 7, 2),
        deleted(b, start + 7),
        put(a, b"3", start + 7, start + 7, 1),
        deleted(a, start + 9),
        deleted(z, start + 9),
        deleted(c, start + 10),
    ]
    for number in (1, 2, 4, 8):
        events[number].kv.lease = lease
    before = {2: 0, 3: 2, 6: 5, 7: 4, 9: 8, 10: 1, 11: 6}
    more = [
        with_previous(event, events[before[number]]) if number in before else event
        for number, event in enumerate(events)
    ]
    return events, more


@pytest.mark.parametrize("prev_kv", [False, True])
def test_the_past_is_told_in_its_order(
    client: Client, key: bytes, grant: Granter, prev_kv: bool
) -> None:
    start = client.revision()
    events, more = make_history(client, key, grant())
    told = replayed(
        client, key, range_end=prefix_end(key), start_revision=start + 1, prev_kv=prev_kv
    )
    assert told == (more if prev_kv else events)


def test_a_watch_may_begin_at_each_revision_of_the_past(
    client: Client, key: bytes, grant: Granter
) -> None:
    start = client.revision()
    _, events = make_history(client, key, grant())
    end = prefix_end(key)
    current = client.revision()
    for revision in range(max(start - 1, 1), current + 1):
        with client.watch() as watch:
            begin(watch, key, range_end=end, start_revision=revision, prev_kv=True)
            expected = [event for event in events if event.kv.mod_revision >= revision]
            told = [*events_before(watch, current)]
            assert told == [event for event in expected if event.kv.mod_revision < current]


@pytest.mark.parametrize("name", [b"a", b"b", b"c", b"z", b"none"])
def test_the_past_of_one_key(client: Client, key: bytes, grant: Granter, name: bytes) -> None:
    start = client.revision()
    _, events = make_history(client, key, grant())
    told = replayed(client, key + name, start_revision=start + 1, prev_kv=True)
    assert told == [event for event in events if event.kv.key == key + name]


@pytest.mark.parametrize(
    ("first", "end", "names"), [(b"a", b"c", b"ab"), (b"b", b"\xff", b"bcz"), (b"aa", b"b", b"")]
)
def test_the_past_of_a_part(
    client: Client, key: bytes, grant: Granter, first: bytes, end: bytes, names: bytes
) -> None:
    start = client.revision()
    events, _ = make_history(client, key, grant())
    told = replayed(client, key + first, range_end=key + end, start_revision=start + 1)
    assert told == [event for event in events if event.kv.key[-1:] in names]


def test_the_past_from_a_key_on(client: Client, key: bytes) -> None:
    start = client.put(key + b"b", b"1").header.revision
    client.put(key + b"a")
    client.put(b"\xff" + key, b"1")
    told = replayed(client, key + b"b", range_end=b"\x00", start_revision=start)
    assert [event.kv.key for event in told] == [key + b"b", b"\xff" + key]


@pytest.mark.parametrize(
    ("filters", "types"),
    [
        ([NOPUT], [Event.DELETE]),
        ([NODELETE], [Event.PUT]),
        ([NODELETE, NODELETE], [Event.PUT]),
        ([2], [Event.PUT, Event.DELETE]),
    ],
    ids=str,
)
def test_filters_apply_to_the_past(
    client: Client, key: bytes, grant: Granter, filters: list[Any], types: list[Any]
) -> None:
    """A filter that is unknown filters nothing."""
    start = client.revision()
    _, events = make_history(client, key, grant())
    told = replayed(
        client,
        key,
        range_end=prefix_end(key),
        start_revision=start + 1,
        filters=filters,
        prev_kv=True,
    )
    assert told == [event for event in events if event.type in types]


def test_with_both_filters_nothing_of_the_past_is_told(
    client: Client, key: bytes, grant: Granter
) -> None:
    start = client.revision()
    make_history(client, key, grant())
    end = prefix_end(key)
    with client.watch() as watch:
        begin(watch, key, range_end=end, start_revision=start + 1, filters=[NOPUT, NODELETE])
        begin(watch, key, start_revision=start + 1)
        last = client.put(key).header.revision
        assert events_before(watch, last, watch_id=1) == []


def test_a_watch_goes_on_after_the_past(client: Client, key: bytes) -> None:
    start = client.put(key, b"1").header.revision
    with client.watch() as watch:
        begin(watch, key, start_revision=start, prev_kv=True)
        first = put(key, b"1", start, start, 1)
        assert watch.receive() == WatchResponse(header=header(start), events=[first])
        client.put(key, b"2")
        second = put(key, b"2", start, start + 1, 2)
        assert watch.receive() == WatchResponse(
            header=header(start + 1), events=[with_previous(second, first)]
        )
        client.delete(key)
        assert watch.receive() == WatchResponse(
            header=header(start + 2), events=[with_previous(deleted(key, start + 2), second)]
        )


@pytest.mark.parametrize("ahead", [1, 2, 1000])
def test_a_watch_from_the_next_revision_or_later_is_told_nothing_of_the_past(
    client: Client, key: bytes, ahead: int
) -> None:
    start = client.put(key, b"old").header.revision
    with client.watch() as watch:
        begin(watch, key, start_revision=start + ahead)
        last = client.put(key, b"new").header.revision
        if ahead == 1:
            expected = put(key, b"new", start, last, 2)
            assert watch.receive() == WatchResponse(header=header(last), events=[expected])
        watch.send(PROGRESS)  # not before: etcd 3.5.1 may answer it ahead of events
        assert watch.receive() == WatchResponse(header=header(last), watch_id=-1)


def test_very_many_revisions_come_in_order_and_each_once(client: Client, key: bytes) -> None:
    """etcd sends a thousand at once; ours has turns of 500."""
    start = client.revision()
    for number in range(2300):
        client.put(key + b"%d" % (number % 7), b"%d" % number)
    told = replayed(client, key, range_end=prefix_end(key), start_revision=start + 1)
    assert revisions(told) == list(range(start + 1, start + 2301))
    assert [event.kv.value for event in told] == [b"%d" % number for number in range(2300)]


def test_a_watch_is_told_everything_while_others_write(client: Client, key: bytes) -> None:
    """Whether something is past or present when it is told must make no difference."""
    start = client.revision()
    for number in range(300):
        client.put(key, b"%d" % number)
    writer = threading.Thread(
        target=lambda: [client.put(key, b"%d" % number) for number in range(300, 900)]
    )
    writer.start()
    try:
        with client.watch() as early, client.watch() as late:
            begin(early, key, start_revision=start + 1)
            begin(late, key, start_revision=start + 200)
            told = events_before(early, start + 900)
            assert revisions(told) == list(range(start + 1, start + 900))
            assert [event.kv.value for event in told] == [b"%d" % number for number in range(899)]
            assert revisions(events_before(late, start + 900)) == list(
                range(start + 200, start + 900)
            )
    finally:
        writer.join()


def test_the_past_of_a_transaction_comes_whole(client: Client, key: bytes) -> None:
    names = [key + b"%d" % number for number in range(OPERATIONS_MAX)]
    client.put_all(names)
    revision = client.txn([], [put_op(name, b"v") for name in reversed(names)]).header.revision
    client.delete(key, prefix_end(key))
    told = replayed(client, key, range_end=prefix_end(key), start_revision=revision)
    assert [event.kv.key for event in told] == [*reversed(names), *sorted(names)]
    assert set(revisions(told[:OPERATIONS_MAX])) == {revision}
    assert set(revisions(told[OPERATIONS_MAX:])) == {revision + 1}


def test_a_past_that_no_memory_holds(client: Client, key: bytes) -> None:
    """Ours keeps the last 32 MiB in memory, and what each event replaced on disk."""
    values = [bytes((number,)) * MIB for number in range(40)]
    start = client.revision()
    for number, value in enumerate(values):
        client.put(key, value)
        client.put(key + b"%d" % number)
    with client.watch() as watch:
        begin(watch, key, start_revision=start + 3, prev_kv=True)
        before = values[0]
        for event in events_before(watch, client.put(key).header.revision):
            assert event.prev_kv.value == before
            before = event.kv.value
        assert before == values[-1]
    told = replayed(client, key, start_revision=start + 1)
    assert [event.kv.value for event in told[:-1]] == values
    assert revisions(told[:-1]) == list(range(start + 1, start + 81, 2))


# A key twice at one revision.


@pytest.mark.parametrize("existed", [False, True])
@pytest.mark.parametrize("live", [False, True])
def test_a_key_that_is_put_and_deleted_at_one_revision(
    client: Client, key: bytes, existed: bool, live: bool
) -> None:
    """What was before is what was at the revision before, for both events."""
    if existed:
        client.put(key, b"old")
    start = client.revision()
    both = [txn_op([], [put_op(key, b"new")]), txn_op([], [delete_op(key)])]
    with client.watch() as watch:
        if live:
            begin(watch, key, prev_kv=True)
            client.txn([], both)
        else:
            client.txn([], both)
            begin(watch, key, start_revision=start + 1, prev_kv=True)
        now = start + 1
        created, version = (start, 2) if existed else (now, 1)
        expected = [put(key, b"new", created, now, version), deleted(key, now)]
        if existed:
            old = put(key, b"old", start, start, 1)
            expected = [with_previous(event, old) for event in expected]
        assert watch.receive() == WatchResponse(header=header(now), events=expected)


@pytest.mark.parametrize("live", [False, True])
def test_a_key_that_is_deleted_and_put_at_one_revision(
    client: Client, key: bytes, live: bool
) -> None:
    """For etcd a delete from a key on overlaps with no put."""
    last_key = b"\xff\xff\xff\xff\xff" + key
    start = client.put(last_key, b"old").header.revision
    old = put(last_key, b"old", start, start, 1)
    both = [delete_op(last_key, b"\x00"), put_op(last_key, b"new")]
    with client.watch() as watch:
        if live:
            begin(watch, last_key, prev_kv=True)
            client.txn([], both)
        else:
            client.txn([], both)
            begin(watch, last_key, start_revision=start + 1, prev_kv=True)
        now = start + 1
        gone = with_previous(deleted(last_key, now), old)
        anew = put(last_key, b"new", now, now, 1)  # begins a life, so it replaces nothing
        assert watch.receive() == WatchResponse(header=header(now), events=[gone, anew])


# Compaction.


def compacted(revision: int, watch_id: int = 0) -> WatchResponse:
    """Give how a watch ends whose past is gone: etcd has no revision in its header."""
    return WatchResponse(
        header=header(0), watch_id=watch_id, canceled=True, compact_revision=revision
    )


@pytest.mark.parametrize("physical", [False, True])
def test_a_watch_from_before_a_compaction_is_cancelled(
    client: Client, key: bytes, physical: bool
) -> None:
    start = client.put(key, b"1").header.revision
    for value in (b"2", b"3"):
        client.put(key, value)
    client.compact(start + 1, physical=physical)
    for revision in (start, 1, -1, MIN_INT64):
        with client.watch() as watch:
            created = WatchResponse(header=header(start + 2), created=True)
            assert begin(watch, key, start_revision=revision) == created
            assert watch.receive() == compacted(start + 1)


@pytest.mark.parametrize("physical", [False, True])
def test_a_watch_from_the_compacted_revision_on_is_told_all(
    client: Client, key: bytes, physical: bool
) -> None:
    """Only what was before the first event is not known any more.

    A delete at exactly that revision is not tried: etcd 3.5.1 forgets it, later ones do not.
    """
    first = client.put(key, b"1").header.revision
    for value in (b"2", b"3"):
        client.put(key, value)
    client.delete(key)
    client.compact(first + 1, physical=physical)
    two, three = put(key, b"2", first, first + 1, 2), put(key, b"3", first, first + 2, 3)
    end = with_previous(deleted(key, first + 3), three)
    expected = [two, with_previous(three, two), end]
    told = replayed(client, key, start_revision=first + 1, prev_kv=True)
    assert told == expected
    told = replayed(client, key, start_revision=first + 2, prev_kv=True)
    assert told[: len(expected) - 1] == expected[1:]


def test_what_was_before_may_be_compacted_for_some_keys_only(client: Client, key: bytes) -> None:
    client.put(key + b"a", b"1")
    client.put(key + b"b", b"1")
    both = [put_op(key + b"a", b"2"), put_op(key + b"c", b"1")]
    revision = client.txn([], both).header.revision
    client.txn([], [put_op(key + b"a", b"3"), put_op(key + b"b", b"2"), delete_op(key + b"c")])
    client.compact(revision, physical=True)
    told = replayed(client, key, range_end=prefix_end(key), start_revision=revision, prev_kv=True)
    assert [(event.kv.value, event.prev_kv.value) for event in told] == [
        (b"2", b""),
        (b"1", b""),
        (b"3", b"2"),
        (b"2", b"1"),
        (b"", b"1"),
    ]


def test_a_watch_from_the_current_revision_which_was_compacted(client: Client, key: bytes) -> None:
    client.put(key, b"1")
    current = client.put(key, b"2").header.revision
    client.compact(current, physical=True)
    told = replayed(client, key, start_revision=current, prev_kv=True)
    assert told == [put(key, b"2", current - 1, current, 2)]


def test_a_watch_that_is_up_to_date_survives_a_compaction(client: Client, key: bytes) -> None:
    start = client.put(key, b"1").header.revision
    with client.watch() as watch:
        begin(watch, key, start_revision=start)
        assert revisions(watch.receive().events) == [start]
        for _ in range(3):
            current = client.put(key + b"other").header.revision
        client.compact(current, physical=True)
        last = client.put(key, b"2").header.revision
        assert revisions(watch.receive().events) == [last]


def test_a_watch_from_the_future_survives_a_compaction_of_its_beginning(
    client: Client, key: bytes
) -> None:
    start = client.revision()
    with client.watch() as watch:
        begin(watch, key, start_revision=start + 2)
        for value in (b"1", b"2", b"3"):
            client.put(key, value)
        client.compact(start + 3, physical=True)
        client.put(key, b"4")
        events = events_before(watch, client.put(key, b"5").header.revision)
        assert [event.kv.value for event in events] == [b"2", b"3", b"4"]


def test_a_stream_goes_on_when_a_watch_of_it_is_cancelled(client: Client, key: bytes) -> None:
    client.put(key)
    start = client.put(key).header.revision
    client.compact(start)
    with client.watch() as watch:
        begin(watch, key)
        assert begin(watch, key, start_revision=start - 1).watch_id == 1
        assert watch.receive() == compacted(start, watch_id=1)
        watch.send(PROGRESS)
        assert watch.receive() == WatchResponse(header=header(start), watch_id=-1)
        assert begin(watch, key).watch_id == 2
        client.put(key)
        assert sorted(watch.receive().watch_id for _ in range(2)) == [0, 2]


def test_the_id_of_a_watch_that_was_cancelled_by_compaction_stays_taken(
    client: Client, key: bytes
) -> None:
    """Until the client cancels it, which is answered."""
    client.put(key)
    start = client.put(key).header.revision
    client.compact(start)
    with client.watch() as watch:
        begin(watch, key, start_revision=start - 1, watch_id=7)
        assert watch.receive() == compacted(start, watch_id=7)
        watch.send(watch_one(key, watch_id=7))
        assert watch.receive() == WatchResponse(
            header=header(start),
            watch_id=-1,
            created=True,
            canceled=True,
            cancel_reason=DUPLICATE_ID,
        )
        watch.send(cancel(7))
        expected = WatchResponse(header=header(start), watch_id=7, canceled=True)
        assert watch.receive() == expected
        assert begin(watch, key, watch_id=7).watch_id == 7


# A store without a past.


def test_a_watch_from_revision_1_is_told_everything(fresh_client: Client) -> None:
    for name in (b"a", b"b", b"a"):
        fresh_client.put(name)
    told = replayed(fresh_client, b"\x00", range_end=b"\x00", start_revision=1)
    assert [(event.kv.key, event.kv.mod_revision) for event in told] == [
        (b"a", 2),
        (b"b", 3),
        (b"a", 4),
    ]


def test_a_negative_revision_where_nothing_was_compacted(fresh_client: Client) -> None:
    """What was compacted is -1 then, and all below is before it.

    -1 itself is not tried: etcd loses what happens shortly after the watch was created.
    """
    fresh_client.put(b"k")
    with fresh_client.watch() as watch:
        for watch_id, revision in enumerate((-2, MIN_INT64)):
            begin(watch, b"k", start_revision=revision)
            assert watch.receive() == compacted(-1, watch_id)


# Progress.


def test_progress_is_told_once_the_past_is(client: Client, key: bytes) -> None:
    start = client.put(key).header.revision
    current = client.put(key + b"other").header.revision
    with client.watch() as watch:
        begin(watch, key, start_revision=start)
        assert revisions(watch.receive().events) == [start]
        watch.send(PROGRESS)
        assert watch.receive() == WatchResponse(header=header(current), watch_id=-1)


def test_progress_is_told_while_the_past_is(client: Client, key: bytes) -> None:
    """etcd 3.5.1 may answer before the past was told; ours, and later ones, only afterwards."""
    start = client.put(key).header.revision
    current = client.put(key + b"other").header.revision
    with client.watch() as watch:
        begin(watch, key, start_revision=start)
        watch.send(PROGRESS)
        answers = sorted((watch.receive() for _ in range(2)), key=lambda answer: answer.watch_id)
        assert answers[0] == WatchResponse(header=header(current), watch_id=-1)
        assert (answers[1].watch_id, revisions(answers[1].events)) == (0, [start])


def test_progress_of_a_stream_without_watches(client: Client, key: bytes) -> None:
    start = client.put(key).header.revision
    with client.watch() as watch:
        for _ in range(2):
            watch.send(PROGRESS)
        expected = WatchResponse(header=header(start), watch_id=-1)
        assert [watch.receive(), watch.receive()] == [expected, expected]


# Several watches, cancelling, and what is refused.


def test_several_watches_of_the_past_on_one_stream(client: Client, key: bytes) -> None:
    start = client.revision()
    for number in range(6):
        client.put(key + b"%d" % (number % 2), b"%d" % number)
    told: dict[int, list[bytes]] = {number: [] for number in range(4)}
    with client.watch() as watch:
        for wanted in (
            watch_one(key, range_end=prefix_end(key), start_revision=start + 1),
            watch_one(key + b"0", start_revision=start + 3),
            watch_one(key + b"1", start_revision=start + 6),
            watch_one(key + b"1"),
        ):
            watch.send(wanted)
        created = 0
        while created < 4:
            answer = watch.receive()
            created += answer.created
            told[answer.watch_id] += [event.kv.value for event in answer.events]
        for name in (b"0", b"1"):
            client.put(key + name, b"end")
        while sum(values.count(b"end") for values in told.values()) < 5:
            answer = watch.receive()
            told[answer.watch_id] += [event.kv.value for event in answer.events]
    assert told == {
        0: [b"0", b"1", b"2", b"3", b"4", b"5", b"end", b"end"],
        1: [b"2", b"4", b"end"],
        2: [b"5", b"end"],
        3: [b"end"],
    }


def test_a_cancelled_watch_is_told_nothing_more_of_the_past(client: Client, key: bytes) -> None:
    start = client.revision()
    for _ in range(1200):
        client.put(key)
    with client.watch() as watch:
        begin(watch, key, start_revision=start + 1)
        watch.send(cancel(0))
        answers = [watch.receive()]
        while not answers[-1].canceled:
            answers.append(watch.receive())
        assert answers[-1] == WatchResponse(header=header(start + 1200), canceled=True)
        told = [event for answer in answers for event in answer.events]
        assert revisions(told) == list(range(start + 1, start + 1 + len(told)))
        begin(watch, key)
        client.put(key)
        assert watch.receive().watch_id == 1


def test_an_empty_range_is_told_before_an_id_that_is_in_use(client: Client, key: bytes) -> None:
    start = client.put(key).header.revision
    with client.watch() as watch:
        begin(watch, key, watch_id=7)
        watch.send(watch_one(key + b"b", range_end=key, watch_id=7, start_revision=1))
        assert watch.receive() == WatchResponse(
            header=header(start),
            watch_id=-1,
            created=True,
            canceled=True,
            cancel_reason=EMPTY_RANGE,
        )
