"""One side of a comparison: a server, what it answers, and what it tells its watches.

This is on our own channel: it takes a fraction of the time that grpcio takes, so that there are
more calls in a test. `tests/interop` holds it to what grpcio does.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self

from leasehold.grpc.channel import Channel
from leasehold.grpc.client_call import StreamingCall
from leasehold.grpc.protocol import RpcError
from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.kv_pb2 import Event
from tests.conformance.client import METHODS
from tests.conformance.sameness import Refusal

CALL_S: Final = 60.0


class Side:
    """A server."""

    def __init__(self, endpoint: str) -> None:
        self._channel = Channel(endpoint, default_timeout=None)
        self._identity: tuple[int, int, int] | None = None
        self._open = AsyncExitStack()
        self._renewals: StreamingCall | None = None
        self.feeds: dict[int, Feed] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything."""
        await self.end_streams()
        await self._channel.close()

    async def takes_over(self, other: "Side") -> None:
        """Check that it is what `other` was before a restart: only the term has grown."""
        await self.ask(pb.LeaseLeasesRequest())
        assert other._identity is not None
        assert self._identity is not None
        assert self._identity[:2] == other._identity[:2]
        assert self._identity[2] > other._identity[2]

    async def end_streams(self) -> None:
        """End all streams; the next ones are new."""
        await self._open.aclose()
        self._renewals = None
        self.feeds.clear()

    async def ask(self, request: Any) -> Any:
        """Make the call that a request is for; gives the answer, or the refusal."""
        return await self.send(type(request), request.SerializeToString())

    async def send(self, kind: type[Any], body: bytes) -> Any:
        """Make the call for requests of a kind, with any bytes."""
        method, response_type = METHODS[kind]
        try:
            answer = await self._channel.unary(f"/etcdserverpb.{method}", body, timeout=CALL_S)
        except RpcError as error:
            return Refusal(error.status.name, error.message)
        return self.checked(response_type, answer)

    def checked(self, response_type: type[Any], body: bytes) -> Any:
        """Parse an answer, check its header, and leave only the revision in it."""
        response = response_type.FromString(body)
        header = response.header
        identity = (header.cluster_id, header.member_id, header.raft_term)
        assert all(identity), f"no ids in {response}"
        assert self._identity in (None, identity), f"other ids in {response}"
        self._identity = identity
        revision = header.revision
        header.Clear()
        header.revision = revision
        return response

    async def keep_alive(self, lease: int) -> pb.LeaseKeepAliveResponse:
        """Renew a lease, on one stream for all renewals."""
        if self._renewals is None:
            stream = self._channel.stream("/etcdserverpb.Lease/LeaseKeepAlive")
            self._renewals = await self._open.enter_async_context(stream)
        await self._renewals.send(pb.LeaseKeepAliveRequest(ID=lease).SerializeToString())
        async with asyncio.timeout(CALL_S):
            body = await self._renewals.receive()
        assert body is not None, "the stream has ended"
        answer: pb.LeaseKeepAliveResponse = self.checked(pb.LeaseKeepAliveResponse, body)
        return answer

    async def feed(self, stream: int) -> "Feed":
        """Give one of the streams of watches."""
        if stream not in self.feeds:
            opened = Feed.opened(self, self._channel)
            self.feeds[stream] = await self._open.enter_async_context(opened)
        return self.feeds[stream]


class Told:
    """What one watch was told."""

    def __init__(self, watch_id: int, created_at: int, *, may_be_cut: bool) -> None:
        self.watch_id = watch_id
        self.created_at = created_at
        """The revision of the server then."""
        self.events: list[Event] = []
        self.fragments: list[tuple[int, int]] = []
        """Of each that goes on: its revision, and how many events are in it."""
        self.compacted = 0
        self.is_cancelled = False
        self._may_be_cut = may_be_cut
        self._goes_on = False

    def take(self, answer: pb.WatchResponse) -> None:
        """Take a response with events, which must be in order and whole."""
        assert not self.compacted, "told after the end"
        assert answer.events[-1].kv.mod_revision <= answer.header.revision
        assert self._may_be_cut or not answer.fragment, "nobody asked for fragments"
        if self.events and not self._goes_on:
            last = self.events[-1].kv.mod_revision
            assert last < answer.events[0].kv.mod_revision, "a revision was torn apart"
        self._goes_on = answer.fragment
        if answer.fragment:
            self.fragments.append((answer.header.revision, len(answer.events)))
        self.events += answer.events


class Feed:
    """A stream of watches, and what they were told."""

    def __init__(self, side: Side, call: StreamingCall) -> None:
        self._side = side
        self._call = call
        self._answers: asyncio.Queue[pb.WatchResponse] = asyncio.Queue()
        self._news = asyncio.Event()
        self._requests: list[pb.WatchCreateRequest] = []
        self._told: dict[int, Told] = {}
        self.watches: list[tuple[pb.WatchCreateRequest, Told]] = []
        """All that were created, in order."""

    @classmethod
    @asynccontextmanager
    async def opened(cls, side: Side, channel: Channel) -> "AsyncIterator[Feed]":
        """Open a stream."""
        async with channel.stream("/etcdserverpb.Watch/Watch") as call:
            feed = cls(side, call)
            reading = asyncio.get_running_loop().create_task(feed._read())
            try:
                yield feed
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def create(self, request: pb.WatchCreateRequest) -> pb.WatchResponse:
        """Create a watch; gives the answer."""
        self._requests.append(request)
        return await self._ask(pb.WatchRequest(create_request=request))

    async def cancel(self, watch_id: int) -> pb.WatchResponse | None:
        """Cancel a watch; gives the answer, or None where there is none."""
        request = pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=watch_id))
        if watch_id in self._told:
            return await self._ask(request)
        await self._call.send(request.SerializeToString())
        return None

    async def progress(self) -> pb.WatchResponse:
        """Ask for progress; gives the answer."""
        return await self._ask(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    async def _ask(self, request: pb.WatchRequest) -> pb.WatchResponse:
        await self._call.send(request.SerializeToString())
        async with asyncio.timeout(CALL_S):
            return await self._answers.get()

    async def told_up_to(self, told: Told, revision: int) -> None:
        """Wait until a watch has been told of a revision, or is over."""
        async with asyncio.timeout(CALL_S):
            while not (
                told.compacted
                or told.is_cancelled
                or (told.events and told.events[-1].kv.mod_revision >= revision)
            ):
                self._news.clear()
                await self._news.wait()

    async def _read(self) -> None:
        async for body in self._call:
            self._take(self._side.checked(pb.WatchResponse, body))
            self._news.set()

    def _take(self, answer: pb.WatchResponse) -> None:
        told = self._told.get(answer.watch_id)
        if answer.created:
            request = self._requests.pop(0)
            if not answer.canceled:
                told = self._told[answer.watch_id] = Told(
                    answer.watch_id, answer.header.revision, may_be_cut=request.fragment
                )
                self.watches.append((request, told))
            self._answers.put_nowait(answer)
        elif answer.events:
            assert told is not None, f"nobody asked for {answer}"
            told.take(answer)
        elif answer.compact_revision:
            assert told is not None, f"nobody asked for {answer}"
            assert (answer.canceled, answer.header.revision) == (True, 0)
            told.compacted = answer.compact_revision
        else:
            if answer.canceled:
                self._told.pop(answer.watch_id).is_cancelled = True
            self._answers.put_nowait(answer)
