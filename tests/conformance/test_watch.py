"""Watches: creation, events, filters, ids, several on a stream, ranges, progress, the end."""

from typing import Any

import pytest

from leasehold.wire.kv_pb2 import Event, KeyValue
from leasehold.wire.rpc_pb2 import (
    WatchCancelRequest,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
    WatchResponse,
)
from tests.conformance.client import Client, Granter, Stream, header, prefix_end, watch_one

NOPUT, NODELETE = WatchCreateRequest.NOPUT, WatchCreateRequest.NODELETE
WatchStream = Stream[WatchRequest, WatchResponse]


def begin(watch: WatchStream, key: bytes, **more: Any) -> WatchResponse:
    watch.send(watch_one(key, **more))
    answer = watch.receive()
    assert answer.created
    return answer


def cancel(watch_id: int) -> WatchRequest:
    return WatchRequest(cancel_request=WatchCancelRequest(watch_id=watch_id))


def test_a_watch_is_confirmed_and_then_tells_each_put(client: Client, key: bytes) -> None:
    start = client.revision()
    with client.watch() as watch:
        watch.send(watch_one(key))
        assert watch.receive() == WatchResponse(header=header(start), created=True)
        for number in (1, 2):
            client.put(key, b"%d" % number)
            pair = KeyValue(
                key=key,
                value=b"%d" % number,
                create_revision=start + 1,
                mod_revision=start + number,
                version=number,
            )
            expected = WatchResponse(header=header(start + number), events=[Event(kv=pair)])
            assert watch.receive() == expected


def test_a_watch_sees_its_own_key_only(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        begin(watch, key)
        for other in (key + b"\x00", key[:-1], key + b"x"):
            client.put(other)
        client.put(key, b"mine")
        assert [event.kv.key for event in watch.receive().events] == [key]


def test_the_previous_pair_comes_if_asked_for(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant()
    with client.watch() as watch:
        begin(watch, key, prev_kv=True)
        client.put(key, b"1", lease=lease)
        first = watch.receive().events[0]
        assert not first.HasField("prev_kv")
        client.put(key, b"2", lease=lease)
        second = watch.receive().events[0]
        assert second.prev_kv == first.kv
        assert (second.kv.lease, second.kv.version) == (lease, 2)
        client.revoke(lease)
        third = watch.receive().events[0]
        assert third.prev_kv == second.kv


def test_a_key_that_ends_with_its_lease_is_a_plain_delete(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    client.put(key, b"v", lease=lease)
    with client.watch() as watch:
        begin(watch, key)
        revision = client.revoke(lease).header.revision
        assert watch.receive() == WatchResponse(
            header=header(revision),
            events=[Event(type=Event.DELETE, kv=KeyValue(key=key, mod_revision=revision))],
        )


@pytest.mark.parametrize(
    ("filters", "seen"), [([NOPUT], [Event.DELETE]), ([NODELETE], [Event.PUT, Event.PUT])]
)
def test_a_filter_leaves_out_one_kind_of_event(
    client: Client, key: bytes, grant: Granter, filters: list[Any], seen: list[Any]
) -> None:
    lease = grant()
    with client.watch() as watch:
        begin(watch, key, filters=filters)
        begin(watch, key + b"end")
        client.put(key, lease=lease)
        client.revoke(lease)
        client.put(key)
        client.put(key + b"end")
        events: list[Event] = []
        while not events or events[-1].kv.key != key + b"end":
            events += watch.receive().events
        assert [event.type for event in events[:-1]] == seen


def test_with_both_filters_nothing_is_seen(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        begin(watch, key, filters=[NOPUT, NODELETE])
        begin(watch, key + b"end")
        client.put(key)
        client.put(key + b"end")
        assert watch.receive().events[0].kv.key == key + b"end"


def test_ids_are_counted_on_each_stream(client: Client, key: bytes) -> None:
    with client.watch() as first, client.watch() as second:
        assert [begin(first, key).watch_id for _ in range(3)] == [0, 1, 2]
        assert begin(second, key).watch_id == 0


def test_several_watches_of_one_key_are_all_told(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        ids = [begin(watch, key, prev_kv=number == 1).watch_id for number in range(3)]
        client.put(key, b"1")
        told = [watch.receive() for _ in ids]
        assert sorted(answer.watch_id for answer in told) == ids
        assert {answer.events[0].kv.value for answer in told} == {b"1"}


def test_a_client_may_choose_an_id(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        assert begin(watch, key, watch_id=7).watch_id == 7
        assert begin(watch, key).watch_id == 0
        client.put(key)
        assert {watch.receive().watch_id for _ in range(2)} == {0, 7}


def test_ids_that_were_chosen_are_not_given_again(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        assert begin(watch, key, watch_id=1).watch_id == 1
        assert [begin(watch, key).watch_id for _ in range(2)] == [0, 2]


def test_an_id_that_is_in_use_is_refused(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        start = begin(watch, key, watch_id=7).header.revision
        watch.send(watch_one(key + b"x", watch_id=7))
        assert watch.receive() == WatchResponse(
            header=header(start),
            watch_id=-1,
            created=True,
            canceled=True,
            cancel_reason="mvcc: duplicate watch ID provided on the WatchStream",
        )
        client.put(key)
        assert watch.receive().watch_id == 7


def test_a_cancelled_watch_says_so_and_is_silent(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        start = begin(watch, key).header.revision
        begin(watch, key)
        watch.send(cancel(0))
        expected = WatchResponse(header=header(start), watch_id=0, canceled=True)
        assert watch.receive() == expected
        client.put(key, b"1")
        client.put(key, b"2")
        assert [watch.receive().watch_id for _ in range(2)] == [1, 1]


def test_cancelling_what_is_not_there_answers_nothing(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        begin(watch, key)
        watch.send(cancel(5))
        watch.send(cancel(0))
        watch.send(cancel(0))
        assert (watch.receive().watch_id, begin(watch, key).watch_id) == (0, 1)


def test_an_empty_request_is_ignored(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        watch.send(WatchRequest())
        assert begin(watch, key).watch_id == 0


def test_an_empty_key_is_the_first_of_all_keys(client: Client) -> None:
    with client.watch() as watch:
        begin(watch, b"")
        client.put(b"\x00", b"v")
        assert watch.receive().events[0].kv.key == b"\x00"


def test_a_watch_may_begin_in_the_future(client: Client, key: bytes) -> None:
    start = client.revision()
    with client.watch() as watch:
        assert begin(watch, key, start_revision=start + 3).header == header(start)
        for value in (b"1", b"2", b"3", b"4"):
            client.put(key, value)
        values = [watch.receive().events[0].kv.value for _ in range(2)]
        assert values == [b"3", b"4"]


def test_a_watch_may_begin_at_the_next_revision(client: Client, key: bytes) -> None:
    client.put(key, b"before")
    with client.watch() as watch:
        begin(watch, key, start_revision=client.revision() + 1)
        client.put(key, b"after")
        assert watch.receive().events[0].kv.value == b"after"


def test_many_events_come_in_order_and_each_once(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        begin(watch, key)
        revisions = [client.put(key, b"v").header.revision for _ in range(200)]
        seen: list[int] = []
        while len(seen) < len(revisions):
            answer = watch.receive()
            seen += [event.kv.mod_revision for event in answer.events]
            assert answer.header.revision >= seen[-1]
        assert seen == revisions


def test_a_half_closed_stream_goes_on_telling(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        begin(watch, key)
        watch.half_close()
        for value in (b"1", b"2"):
            client.put(key, value)
            assert watch.receive().events[0].kv.value == value


def test_a_watch_of_a_prefix_has_the_deletes_of_a_revoke_in_one_message(
    client: Client, key: bytes, grant: Granter
) -> None:
    lease = grant()
    with client.watch() as watch:
        begin(watch, key, range_end=prefix_end(key))
        for name in (b"b", b"a"):
            client.put(key + name, lease=lease)
            assert [event.kv.key for event in watch.receive().events] == [key + name]
        revision = client.revoke(lease).header.revision
        assert watch.receive() == WatchResponse(
            header=header(revision),
            events=[
                Event(type=Event.DELETE, kv=KeyValue(key=key + name, mod_revision=revision))
                for name in (b"a", b"b")
            ],
        )


@pytest.mark.parametrize("end", [b"", b"a"])
def test_a_watch_of_an_empty_range_is_refused(client: Client, key: bytes, end: bytes) -> None:
    with client.watch() as watch:
        watch.send(watch_one(key + b"a", range_end=key + end))
        assert watch.receive() == WatchResponse(
            header=header(client.revision()),
            watch_id=-1,
            created=True,
            canceled=True,
            cancel_reason="mvcc: watcher range is empty",
        )


def test_progress_is_told_for_the_whole_stream(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        begin(watch, key)
        revision = client.put(key + b"other").header.revision
        watch.send(WatchRequest(progress_request=WatchProgressRequest()))
        assert watch.receive() == WatchResponse(header=header(revision), watch_id=-1)


def test_a_large_value_is_told_whole(client: Client, key: bytes) -> None:
    value = bytes(range(256)) * 4096
    with client.watch() as watch:
        begin(watch, key, prev_kv=True)
        client.put(key, value)
        client.put(key, b"")
        assert watch.receive().events[0].kv.value == value
        assert watch.receive().events[0].prev_kv.value == value


@pytest.mark.parametrize("is_range", [False, True])
def test_a_watch_from_the_current_revision_begins_with_what_it_put(
    client: Client, key: bytes, is_range: bool
) -> None:
    client.put(key + b"/older")
    put = client.put(key, b"now")
    end = prefix_end(key) if is_range else b""
    with client.watch() as watch:
        begin(watch, key, range_end=end, start_revision=put.header.revision)
        replayed = watch.receive()
        assert replayed.header.revision == put.header.revision
        assert [(event.kv.key, event.kv.value) for event in replayed.events] == [(key, b"now")]
        client.put(key, b"then")
        assert watch.receive().events[0].kv.value == b"then"
