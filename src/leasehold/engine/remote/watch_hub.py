"""All watches of a remote engine, on one stream at a time.

Theory of operation. As long as there is a watch, a task keeps a stream: it opens one, creates every
watch with room on it, and passes on what comes in. If the stream is lost all watches are detached,
and the next stream makes them live again, each from where it was. A watch whose reader is slow is
cancelled on the stream and created again when there is room: it does not hold up the others.

Before watches continue after a loss, the latest revision of the server is read: a server that has
come back with an older state would silently leave them waiting for revisions that they already
have. That is `HistoryLost`. The version is read too, on each stream: it decides whether progress
can be trusted, and the members of a cluster need not have the same.

A watch ends only if its next revision was compacted, history is lost, the server refuses it
permanently, or it is cancelled.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Final

from leasehold.basics.backoff import Backoff, exponential
from leasehold.engine.remote.caller import HAS_LEADER, Caller, decoded
from leasehold.engine.remote.remote_watch import RemoteWatch
from leasehold.errors import (
    CallRefused,
    Closed,
    Compacted,
    ConnectionLost,
    LeaseholdError,
    is_definite,
)
from leasehold.grpc.client_call import StreamingCall
from leasehold.grpc.error_details import as_ours
from leasehold.grpc.protocol import RpcError
from leasehold.wire import rpc_pb2 as pb

logger = logging.getLogger(__name__)

METHOD: Final = "/etcdserverpb.Watch/Watch"

RECONNECTS: Final = exponential(0.05, 1.0)
"""The waits between streams that are lost one after the other."""

PROGRESS_S: Final = 60.0
"""The interval without a request after which progress is requested: after a loss, a watch without
events would otherwise continue from where it began, which may be compacted by then."""

ALL_WATCHES: Final = -1
"""In place of a watch's number: progress of all of them."""


class WatchHub:
    """Keeps the watches of an engine live."""

    def __init__(
        self,
        caller: Caller,
        ask_trust: Callable[[], Awaitable[bool]],
        random: Random | None = None,
    ) -> None:
        self._caller = caller
        self._ask_trust = ask_trust
        self._is_trusted = False
        """Whether watches may continue from the revision of this server's progress."""
        self._backoff = Backoff(RECONNECTS, random or Random())  # noqa: S311
        self._ids = count(1)
        self._watches: dict[RemoteWatch, None] = {}
        """All that have not ended, in the order in which they were added."""
        self._live: dict[int, RemoteWatch] = {}
        self._outgoing: deque[pb.WatchRequest] = deque()
        self._has_outgoing = asyncio.Event()
        self._is_streaming = False
        self._keeper: asyncio.Task[None] | None = None
        self._is_interrupted = False

    def add(self, request: pb.WatchCreateRequest) -> RemoteWatch:
        """Add a watch."""
        floor = self._caller.history.floor
        watch = RemoteWatch(request, self._has_room, self._cancelled, floor)
        self._watches[watch] = None
        self._attach(watch)
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())
        return watch

    def fail_all(self, error: Exception) -> None:
        """End every watch."""
        for watch in list(self._watches):
            watch.fail(error)
        self._watches.clear()
        self._live.clear()

    def abandon(self, error: Exception) -> None:
        """Make every watch refuse to work, in a child process; there are no waiters there."""
        for watch in self._watches:
            watch.abandon(error)

    async def close(self) -> None:
        """End every watch, and close the stream."""
        self.fail_all(Closed("the engine was closed"))
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])

    # Called by watches.

    def _attach(self, watch: RemoteWatch) -> None:
        """Create a watch, if there is a stream; else the next stream will."""
        if not self._is_streaming or watch.live_id:
            return
        creation = watch.creation(next(self._ids))
        self._live[watch.live_id] = watch
        self._send(pb.WatchRequest(create_request=creation))

    def _has_room(self, watch: RemoteWatch) -> None:
        """Called when a watch has room again, or requests progress."""
        if not watch.live_id:
            if watch.has_room:
                self._attach(watch)
        elif watch.wants_progress and not self._is_about_to_ask:
            self._send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))

    @property
    def _is_about_to_ask(self) -> bool:
        """Whether the last request is for progress already: one answer is for all watches."""
        return bool(self._outgoing) and self._outgoing[-1].HasField("progress_request")

    def _detach(self, watch: RemoteWatch) -> None:
        """Cancel a watch on the stream for now."""
        del self._live[watch.live_id]
        if self._is_streaming:
            cancel = pb.WatchCancelRequest(watch_id=watch.live_id)
            self._send(pb.WatchRequest(cancel_request=cancel))
        watch.detach()

    def _cancelled(self, watch: RemoteWatch) -> None:
        if watch.live_id:
            self._detach(watch)
        self._watches.pop(watch, None)

    def _end(self, watch: RemoteWatch, error: Exception) -> None:
        self._live.pop(watch.live_id, None)
        self._watches.pop(watch, None)
        watch.fail(error)

    def _send(self, request: pb.WatchRequest) -> None:
        self._outgoing.append(request)
        self._has_outgoing.set()

    # The stream.

    async def _keep(self) -> None:
        """Keep a stream as long as there are watches; it is closed with the last one."""
        try:
            while self._watches:
                try:
                    await self._stream()
                except (RpcError, LeaseholdError, OSError) as error:
                    await self._lost(error)
        except Exception as error:
            logger.exception("watch stream failed")
            self.fail_all(error)
        finally:
            self._keeper = None

    async def _lost(self, error: RpcError | LeaseholdError | OSError) -> None:
        """Record why a stream was lost; wait for a while, unless the loss is final."""
        ours = as_ours(error) if isinstance(error, RpcError) else error
        if is_definite(ours):
            self.fail_all(ours)
            return
        if not self._is_interrupted:
            self._is_interrupted = True
            logger.warning("watches are interrupted, and will be resumed: %s", ours)
        self._caller.leave_if_useless(error)
        await asyncio.sleep(self._backoff.next_s())

    async def _stream(self) -> None:
        """Open a stream, make watches live, and pass answers on, until it is lost."""
        await self._caller.settle_in()
        stream = self._caller.channel.stream(METHOD, metadata=HAS_LEADER, wait_for_ready=True)
        async with stream as call:
            writer = asyncio.get_running_loop().create_task(self._write(call))
            try:
                self._is_trusted = await self._ask_trust()
                self._is_streaming = True
                for watch in self._watches:
                    if watch.has_room:
                        self._attach(watch)
                await self._read(call)
            finally:
                self._is_streaming = False
                self._outgoing.clear()
                for watch in self._live.values():
                    watch.detach()
                self._live.clear()
                writer.cancel()
                with suppress(asyncio.CancelledError):
                    await writer

    async def _write(self, call: StreamingCall) -> None:
        with suppress(RpcError, ConnectionLost):  # raised to the reader
            while True:
                try:
                    async with asyncio.timeout(PROGRESS_S):
                        await self._has_outgoing.wait()
                except TimeoutError:
                    self._send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
                while self._outgoing:
                    await call.send(self._outgoing.popleft().SerializeToString())
                self._has_outgoing.clear()

    async def _read(self, call: StreamingCall) -> None:
        while self._watches:
            body = await call.receive()
            if body is None:
                raise ConnectionLost("the server ended the watch stream")
            answer = decoded(pb.WatchResponse, body, METHOD)
            self._caller.history.check_cluster_id(answer.header.cluster_id)
            self._take(answer, len(body))

    # Answers.

    def _take(self, answer: pb.WatchResponse, size_bytes: int) -> None:
        watch = self._live.get(answer.watch_id)
        if watch is None:
            if answer.created and answer.canceled:  # etcd gives no number then, and keeps the order
                self._refused(answer)
            elif answer.watch_id == ALL_WATCHES and not answer.created:
                self._progressed(answer.header.revision, list(self._live.values()))
        elif answer.canceled:
            self._ended(watch, answer)
        elif answer.created:
            self._created(watch, answer.header.revision)
        elif answer.events:
            watch.take(answer.events, size_bytes, goes_on=answer.fragment)
            self._caller.history.record_revision(answer.events[-1].kv.mod_revision)
            if watch.is_full:
                self._detach(watch)
        else:
            self._progressed(answer.header.revision, [watch])

    def _created(self, watch: RemoteWatch, revision: int) -> None:
        self._backoff.reset()
        if self._is_interrupted:
            self._is_interrupted = False
            logger.warning("watches resumed, from %s", self._caller.channel.address)
        watch.created(revision)
        if watch.wants_progress:
            self._has_room(watch)

    def _refused(self, answer: pb.WatchResponse) -> None:
        untold = (watch for watch in self._live.values() if not watch.is_told)
        if (watch := next(untold, None)) is not None:
            self._ended(watch, answer)

    def _ended(self, watch: RemoteWatch, answer: pb.WatchResponse) -> None:
        """Handle the end of a watch that was not cancelled here."""
        if answer.compact_revision:
            self._end(watch, Compacted(watch.next_revision, answer.compact_revision))
        elif answer.cancel_reason:
            self._end(watch, CallRefused(f"the server refused the watch: {answer.cancel_reason}"))
        else:  # as etcd does when it stops
            raise ConnectionLost("the server cancelled a watch")

    def _progressed(self, revision: int, watches: list[RemoteWatch]) -> None:
        for watch in watches:
            if watch.is_told:
                watch.progressed(revision, is_trusted=self._is_trusted)
