"""Events of one revision come in one response, however large, unless fragments are asked for."""

import time
from typing import Final

import pytest

from leasehold.wire.kv_pb2 import Event
from leasehold.wire.rpc_pb2 import WatchRequest, WatchResponse
from tests.conformance.client import (
    CALL_S,
    Client,
    Granter,
    Stream,
    header,
    prefix_end,
    put_op,
    watch_one,
)

KIB, MIB = 1 << 10, 1 << 20
FRAGMENT_BYTES: Final = 2 * MIB
"""A response that would be as large as this is sent in parts."""

HEADER_BYTES: Final = 40
"""More than what ids and numbers take in a response: they differ from server to server."""

LEASE: Final = 0x7001
WatchStream = Stream[WatchRequest, WatchResponse]


def begin(watch: WatchStream, key: bytes, *, fragment: bool = True, start: int = 0) -> None:
    request = watch_one(
        key, range_end=prefix_end(key), prev_kv=True, fragment=fragment, start_revision=start
    )
    watch.send(request)
    assert watch.receive().created


def fill(client: Client, key: bytes, sizes: list[int]) -> list[bytes]:
    names = [key + b"%02d" % number for number in range(len(sizes))]
    for name, size in zip(names, sizes, strict=True):
        client.put(name, name[-2:] * (size // 2))
    return names


def parts_of(watch: WatchStream, key: bytes, count: int) -> list[list[int]]:
    """Give the numbers of the keys in each response, until `count` were told of at one revision."""
    parts: list[list[int]] = []
    revisions: set[int] = set()
    while sum(map(len, parts)) < count:
        answer = watch.receive()
        revisions.add(answer.header.revision)
        revisions |= {event.kv.mod_revision for event in answer.events}
        parts.append([int(event.kv.key.removeprefix(key)) for event in answer.events])
        is_last = sum(map(len, parts)) == count
        assert all(event.prev_kv.value for event in answer.events)
        assert answer == WatchResponse(
            header=answer.header, events=answer.events, fragment=not is_last
        ), "nothing else is in it"
    assert len(revisions) == 1
    return parts


@pytest.mark.parametrize("start", ["now", "past"])
def test_events_of_one_revision_are_never_split_unless_fragmenting_is_asked_for(
    client: Client, key: bytes, start: str
) -> None:
    names = fill(client, key, [MIB] * 5)
    with client.watch() as watch:
        if start == "now":
            begin(watch, key, fragment=False)
        revision = client.delete(key, prefix_end(key)).header.revision
        if start == "past":
            begin(watch, key, fragment=False, start=revision)
        answer = watch.receive()
    assert [event.kv.key for event in answer.events] == names
    assert answer.ByteSize() > 5 * MIB
    answer.ClearField("events")
    assert answer == WatchResponse(header=header(revision))


@pytest.mark.parametrize("start", ["now", "past"])
@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([MIB, MIB - KIB], [[0, 1]]),
        ([MIB, MIB], [[0], [1]]),
        ([MIB] * 5, [[0], [1], [2], [3], [4]]),
        ([MIB - KIB] * 5, [[0, 1], [2, 3], [4]]),
        ([KIB, MIB, MIB - 2 * KIB, KIB, KIB], [[0, 1, 2], [3, 4]]),
        ([MIB - KIB, KIB, KIB, MIB, 4, 4, MIB, MIB], [[0, 1, 2], [3, 4, 5], [6], [7]]),
    ],
)
def test_fragments_are_filled_one_after_the_other(
    client: Client, key: bytes, sizes: list[int], parts: list[list[int]], start: str
) -> None:
    fill(client, key, sizes)
    with client.watch() as watch:
        if start == "now":
            begin(watch, key)
        revision = client.delete(key, prefix_end(key)).header.revision
        if start == "past":
            begin(watch, key, start=revision)
        assert parts_of(watch, key, len(sizes)) == parts


@pytest.mark.parametrize(("spare", "parts"), [(HEADER_BYTES, [[0, 1]]), (-1, [[0], [1]])])
def test_a_response_of_2_mib_is_fragmented_and_a_smaller_one_is_not(
    client: Client, key: bytes, spare: int, parts: list[list[int]]
) -> None:
    fill(client, key, [MIB, KIB])
    with client.watch() as watch:
        begin(watch, key)
        client.delete(key, prefix_end(key))
        beside_values = watch.receive().ByteSize() - MIB - KIB
        room = FRAGMENT_BYTES - MIB - beside_values - spare
        fill(client, key, [MIB, room // 2 * 2])
        for _ in range(2):
            watch.receive()
        client.delete(key, prefix_end(key))
        assert parts_of(watch, key, 2) == parts


def test_one_event_is_never_split(client: Client, key: bytes) -> None:
    value = b"v" * (MIB * 3 // 2 - KIB)
    client.put(key, value)
    with client.watch() as watch:
        begin(watch, key)
        client.put(key, value[1:])
        answer = watch.receive()
    assert answer.ByteSize() > FRAGMENT_BYTES
    assert (answer.fragment, len(answer.events)) == (False, 1)


def test_fragments_of_a_revoke(client: Client, key: bytes, grant: Granter) -> None:
    lease = grant(600, LEASE)
    for number in range(3):
        client.put(key + b"%02d" % number, b"v" * MIB, lease=lease)
    with client.watch() as watch:
        begin(watch, key)
        client.revoke(lease)
        assert parts_of(watch, key, 3) == [[0], [1], [2]]


def test_fragmenting_is_each_watch_s_own_choice(client: Client, key: bytes) -> None:
    fill(client, key, [MIB, MIB])
    with client.watch() as watch:
        begin(watch, key)
        begin_second = watch_one(key, range_end=prefix_end(key), prev_kv=True)
        watch.send(begin_second)
        assert watch.receive() == WatchResponse(
            header=header(client.revision()), watch_id=1, created=True
        )
        client.delete(key, prefix_end(key))
        answers = [watch.receive() for _ in range(3)]
    told = {0: [], 1: []}  # type: dict[int, list[tuple[int, bool]]]
    for answer in answers:
        told[answer.watch_id].append((len(answer.events), answer.fragment))
    assert told == {0: [(1, True), (1, False)], 1: [(2, False)]}


def test_a_past_of_many_revisions_is_put_together_by_whoever_reads_it(
    client: Client, key: bytes
) -> None:
    """A lagging watch of etcd is told many revisions at a time, and these are cut anywhere."""
    start = client.revision() + 1
    fill(client, key, [MIB] * 5)
    client.txn([], [put_op(key + b"%02d" % number) for number in range(5)])
    end = client.delete(key, prefix_end(key)).header.revision
    told: list[Event] = []
    give_up_at = time.monotonic() + CALL_S
    with client.watch() as watch:
        begin(watch, key, start=start)
        while len(told) < 15 and time.monotonic() < give_up_at:
            answer = watch.receive()
            assert len(answer.events) < 2 or answer.ByteSize() < FRAGMENT_BYTES
            told += answer.events
            is_whole = told[-1].kv.mod_revision < end or len(told) == 15
            assert answer.fragment or is_whole, "only what goes on is a fragment"
    revisions = [event.kv.mod_revision - start for event in told]
    assert revisions == [0, 1, 2, 3, 4, *[5] * 5, *[6] * 5]
