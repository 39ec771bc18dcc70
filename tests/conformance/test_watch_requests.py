"""What a watch may be asked for: ids of the client's choice, odd ranges and filters, cancels."""

from typing import Any, Final

import pytest

from leasehold.wire.codec import field
from leasehold.wire.kv_pb2 import Event, KeyValue
from leasehold.wire.rpc_pb2 import (
    WatchCancelRequest,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
    WatchResponse,
)
from tests.conformance.client import Client, Stream, header, prefix_end, watch_one

NOPUT, NODELETE = WatchCreateRequest.NOPUT, WatchCreateRequest.NODELETE
MIN_INT64, MAX_INT64 = -(1 << 63), (1 << 63) - 1
PROGRESS: Final = WatchRequest(progress_request=WatchProgressRequest())
WatchStream = Stream[WatchRequest, WatchResponse]


def begin(watch: WatchStream, key: bytes, **more: Any) -> WatchResponse:
    watch.send(watch_one(key, **more))
    return watch.receive()


def cancel(watch_id: int) -> WatchRequest:
    return WatchRequest(cancel_request=WatchCancelRequest(watch_id=watch_id))


@pytest.mark.parametrize("watch_id", [-1, -2, MIN_INT64, MAX_INT64, 1 << 32])
def test_any_number_but_zero_may_be_an_id(client: Client, key: bytes, watch_id: int) -> None:
    revision = client.revision()
    with client.watch() as watch:
        assert begin(watch, key, watch_id=watch_id) == WatchResponse(
            header=header(revision), watch_id=watch_id, created=True
        )
        client.put(key)
        event = watch.receive()
        assert (event.watch_id, len(event.events)) == (watch_id, 1)
        watch.send(cancel(watch_id))
        assert watch.receive() == WatchResponse(
            header=header(revision + 1), watch_id=watch_id, canceled=True
        )


def test_an_id_may_be_used_again_after_its_watch_was_cancelled(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        for watch_id in (7, 7, 0, 0):
            answer = begin(watch, key, watch_id=watch_id)
            assert answer.created
            assert not answer.canceled
            watch.send(cancel(answer.watch_id))
            assert watch.receive().canceled


def test_ids_that_the_server_chose_are_not_given_again(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        assert [begin(watch, key).watch_id for _ in range(3)] == [0, 1, 2]
        for watch_id in (0, 2):
            watch.send(cancel(watch_id))
            assert watch.receive().canceled
        assert begin(watch, key).watch_id == 3
        assert begin(watch, key, watch_id=5).watch_id == 5
        assert [begin(watch, key).watch_id for _ in range(2)] == [4, 6]


@pytest.mark.parametrize("watch_id", [0, 1, -1, MIN_INT64])
def test_a_cancel_of_an_unknown_watch_is_not_answered(
    client: Client, key: bytes, watch_id: int
) -> None:
    with client.watch() as watch:
        watch.send(cancel(watch_id))
        assert begin(watch, key).created
        watch.send(cancel(0))
        watch.send(cancel(0))
        watch.send(PROGRESS)
        assert [watch.receive().canceled for _ in range(2)] == [True, False]


def test_a_watch_of_everything(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        assert begin(watch, b"\0", range_end=b"\0").created
        client.put(key)
        client.put(b"\0" + key)
        told = [event.kv.key for _ in range(2) for event in watch.receive().events]
    assert told == [key, b"\0" + key]


def test_a_watch_from_a_key_on(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        assert begin(watch, key, range_end=b"\0").created
        client.put(key[:-1])
        client.put(prefix_end(key))
        assert [event.kv.key for event in watch.receive().events] == [prefix_end(key)]


def test_an_end_that_is_there_and_empty_is_none(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        create = watch_one(key).create_request.SerializeToString() + field(2, b"")
        watch.send_raw(field(1, create))
        assert watch.receive().created
        client.put(key + b"behind")
        client.put(key)
        assert [event.kv.key for event in watch.receive().events] == [key]


def test_an_empty_key_with_an_end_begins_at_the_first_key(client: Client, key: bytes) -> None:
    with client.watch() as watch:
        assert begin(watch, b"", range_end=key).created
        client.put(key)
        client.put(key[:-1])
        assert [event.kv.key for event in watch.receive().events] == [key[:-1]]


@pytest.mark.parametrize(
    ("filters", "kinds"),
    [
        ([9], [Event.PUT, Event.DELETE]),
        ([NOPUT, NOPUT], [Event.DELETE]),
        ([NODELETE, -1, NODELETE], [Event.PUT]),
    ],
)
def test_filters_that_are_unknown_or_repeated(
    client: Client, key: bytes, filters: list[Any], kinds: list[Any]
) -> None:
    with client.watch() as watch:
        assert begin(watch, key, filters=filters).created
        client.put(key)
        client.delete(key)
        assert [watch.receive().events[0].type for _ in kinds] == kinds


def test_a_watch_from_the_future_is_told_nothing_before_it(client: Client, key: bytes) -> None:
    revision = client.revision()
    with client.watch() as watch:
        assert begin(watch, key, start_revision=revision + 3) == WatchResponse(
            header=header(revision), created=True
        )
        for number in range(1, 4):
            client.put(key, b"%d" % number)
        answer = watch.receive()
    assert answer == WatchResponse(
        header=header(revision + 3),
        events=[
            Event(
                kv=KeyValue(
                    key=key,
                    value=b"3",
                    create_revision=revision + 1,
                    mod_revision=revision + 3,
                    version=3,
                )
            )
        ],
    )


def test_progress_that_is_asked_for_has_the_revision_and_no_watch(
    client: Client, key: bytes
) -> None:
    with client.watch() as watch:
        for _ in range(2):
            assert begin(watch, key, progress_notify=True).created
        revision = client.put(key + b"elsewhere").header.revision
        for _ in range(3):
            watch.send(PROGRESS)
            assert watch.receive() == WatchResponse(header=header(revision), watch_id=-1)


def test_what_was_before_is_left_out_once_it_was_compacted(client: Client, key: bytes) -> None:
    client.put(key, b"1")
    client.put(key, b"2")
    last = client.put(key, b"3").header.revision
    client.compact(last - 1)
    with client.watch() as watch:
        assert begin(watch, key, start_revision=last - 1, prev_kv=True).created
        told: list[Event] = []
        while len(told) < 2:
            told += watch.receive().events
    assert [event.prev_kv.value for event in told] == [b"", b"2"]
