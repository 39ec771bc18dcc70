"""Watches that want to know of progress are told, every ten minutes without other news."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.operations import Put
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.etcd.watch import PROGRESS_S, WatchService
from leasehold.store.runtime import Runtime
from leasehold.testing import current_host, run_virtual
from leasehold.wire import rpc_pb2 as pb

MOMENT_S: Final = 1.0


class Stream:
    """A stream of watches, and what is said on it."""

    has_room = True
    connection = None

    def __init__(self) -> None:
        self.runtime = Runtime(None, clock=current_host().clock)
        self.store = self.runtime.store
        self.store.start()
        self.said: list[pb.WatchResponse] = []
        self.last_position = 0
        stream: Any = self
        context = ServiceContext(self.runtime, DurabilityGate(), Identity(1, 2, 3))
        self.handler = WatchService(context).open(stream)

    def send_message(self, message: bytes, position: int) -> None:
        self.said.append(pb.WatchResponse.FromString(message))
        self.last_position = position

    def flush(self) -> None:
        """Everything is sent at once."""

    def create(self, *, progress_notify: bool = True) -> None:
        request = pb.WatchCreateRequest(key=b"k", progress_notify=progress_notify)
        self.handler.message_received(pb.WatchRequest(create_request=request).SerializeToString())

    def put(self, key: bytes = b"k") -> int:
        self.store.apply(Put(key, b"", 0))
        assert self.store.take_batch() is not None
        self.store.committed()
        return self.store.revision

    def heard(self) -> list[tuple[int, int, int]]:
        """Give the id, the revision and the number of events of what was said since the last."""
        said, self.said = self.said, []
        return [(each.watch_id, each.header.revision, len(each.events)) for each in said]


def on_stream(test: Callable[[Stream], Any]) -> Callable[[], None]:
    async def main() -> None:
        await test(Stream())

    def run() -> None:
        run_virtual(main)

    run.__name__ = test.__name__
    return run


@on_stream
async def test_a_quiet_watch_is_told_of_progress_every_ten_minutes(stream: Stream) -> None:
    stream.create()
    stream.create(progress_notify=False)
    stream.create()
    stream.said.clear()
    await asyncio.sleep(PROGRESS_S - MOMENT_S)
    revision = stream.put(b"elsewhere")
    assert stream.heard() == []
    await asyncio.sleep(2 * MOMENT_S)
    assert stream.heard() == [(0, revision, 0), (2, revision, 0)]
    await asyncio.sleep(PROGRESS_S)
    assert stream.heard() == [(0, revision, 0), (2, revision, 0)]


@on_stream
async def test_a_watch_that_was_told_something_is_not_told_of_progress(stream: Stream) -> None:
    stream.create()
    stream.said.clear()
    revision = stream.put()
    assert stream.heard() == [(0, revision, 1)]
    await asyncio.sleep(PROGRESS_S + MOMENT_S)
    assert stream.heard() == []
    await asyncio.sleep(PROGRESS_S)
    assert stream.heard() == [(0, revision, 0)]


@on_stream
async def test_progress_is_what_is_on_disk(stream: Stream) -> None:
    stream.create()
    stream.said.clear()
    durable = stream.put(b"elsewhere")
    stream.store.apply(Put(b"elsewhere", b"", 0))
    await asyncio.sleep(PROGRESS_S + MOMENT_S)
    assert stream.heard() == [(0, durable, 0)]


@on_stream
async def test_a_watch_that_lags_is_told_of_no_progress(stream: Stream) -> None:
    stream.create()
    stream.said.clear()
    stream.has_room = False
    stream.put()
    await asyncio.sleep(PROGRESS_S + MOMENT_S)
    assert stream.heard() == []


@on_stream
async def test_a_watch_that_is_over_is_told_of_no_progress(stream: Stream) -> None:
    stream.create()
    cancel = pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=0))
    stream.handler.message_received(cancel.SerializeToString())
    stream.said.clear()
    await asyncio.sleep(PROGRESS_S + MOMENT_S)
    assert stream.heard() == []


@on_stream
async def test_a_stream_that_is_gone_says_nothing(stream: Stream) -> None:
    stream.create()
    stream.said.clear()
    stream.handler.gone()
    await asyncio.sleep(2 * PROGRESS_S)
    assert stream.heard() == []


@on_stream
async def test_progress_that_is_asked_for_takes_nothing_back(stream: Stream) -> None:
    ask = pb.WatchRequest(progress_request=pb.WatchProgressRequest()).SerializeToString()
    durable = stream.put(b"elsewhere")
    stream.create()
    stream.said.clear()
    stream.handler.message_received(ask)
    assert stream.heard() == [(-1, durable, 0)]
    stream.store.apply(Put(b"elsewhere", b"", 0))
    stream.handler.message_received(ask)
    assert stream.heard() == [(-1, durable, 0)]
    assert stream.last_position <= stream.store.durable, "it waits for nothing"
    stream.store.apply(Put(b"k", b"", 0))
    stream.handler.message_received(ask)
    told = stream.store.revision
    assert stream.heard() == [(0, told, 1), (-1, told, 0)]
    assert stream.last_position == stream.store.position, "it leaves when that is on disk"
