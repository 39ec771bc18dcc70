"""Calls that put a key under a name, and are answered when no older key is left there.

This is the common part of `Lock` and `Campaign`. If the caller goes away while it waits, its key is
deleted, unless another call waits for the same one; a lease that was granted for the call is
revoked. When the server stops, keys stay as they are, until their leases end.

All refusals of these services have the status UNKNOWN, as in etcd, where they pass through an
internal client.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final, NamedTuple

from leasehold.errors import Closed, JournalFailed, LeaseholdError, Status, UnknownLease
from leasehold.grpc.error_details import without_certainty
from leasehold.grpc.protocol import ErrorDetail, RpcError
from leasehold.grpc.routes import ServerStream
from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.operations import Delete, Grant, Put, Revoke
from leasehold.server.etcd.name_queues import NameQueue, NameQueues, bounds
from leasehold.server.etcd.service_context import STOPPED, ServiceContext

SESSION_TTL_S: Final = 60.0
"""The TTL of a lease that is granted for a caller that names none."""


def unknown(text: str, position: int = 0, detail: ErrorDetail | None = None) -> RpcError:
    """Return the error with which these services refuse a call."""
    return RpcError(Status.UNKNOWN, text, position, detail=detail)


@contextmanager
def refusing(context: ServiceContext) -> Iterator[None]:
    """Turn errors into refusals of these services, in etcd's words."""
    try:
        try:
            yield
        except LeaseholdError as error:
            context.refuse(error)
    except RpcError as error:
        raise unknown(error.message, error.position, without_certainty(error.detail)) from error


def key_of(name: bytes, lease: int) -> bytes:
    """Return the key of a lease under a name."""
    return b"%b/%b" % (name, f"{lease:x}".encode())


class SingleRequestCall:
    """The handler of a call that has one request, and is answered by a later event.

    It has no task, unless it arrives while a sliced operation is in progress.
    """

    def __init__(self, context: ServiceContext, queues: NameQueues, stream: ServerStream) -> None:
        self._context = context
        self._store = context.store
        self._queues = queues
        self._stream = stream
        self._message: bytes | None = None
        self._entering: asyncio.Task[None] | None = None

    def message_received(self, message: bytes) -> None:
        """Receive the request."""
        if self._message is not None:
            raise RpcError(Status.INTERNAL, "unary calls have one request, got two")
        self._message = message

    def ended(self) -> None:
        """Begin: the request is complete."""
        message, self._message = self._message, b""
        if message is None:
            raise RpcError(Status.INTERNAL, "unary calls have one request, got none")
        if self._store.is_busy:
            self._entering = self._queues.spawn(self._begin_later(message))
        else:
            self.begin(message)

    async def _begin_later(self, message: bytes) -> None:
        try:
            await self._context.runtime.enter()
            self.begin(message)
        except (Closed, JournalFailed):
            self._stream.end(RpcError(Status.UNAVAILABLE, STOPPED))
        except Exception as error:  # noqa: BLE001  every failure is sent to the client
            self._stream.fail(error)
        self._stream.flush_soon()

    def begin(self, message: bytes) -> None:
        """Execute the request, while no sliced operation is in progress."""
        raise NotImplementedError

    def relieved(self) -> None:
        """Do nothing: there is only one answer."""

    def gone(self) -> None:
        """Called when the call is over."""
        if self._entering is not None:
            self._entering.cancel()

    def failed(self, error: LeaseholdError) -> None:
        """Called when the queue that it waits in cannot be read."""
        self._stream.end(unknown(f"leasehold: {error}"))
        self._stream.flush_soon()


class ClaimRequest(NamedTuple):
    """The claim of a call: a name, a value, and a lease or 0 to have one granted."""

    name: bytes
    lease: int
    value: bytes = b""


class Claimed(NamedTuple):
    """The key of a call."""

    name: bytes
    key: bytes
    lease: int
    created: int
    """Its create revision."""
    at_revision: int
    """The revision at which it was claimed, and the position to be durable before it is sent."""
    position: int


class QueuedCall(SingleRequestCall):
    """A call that waits for its turn."""

    OUT: ClassVar[str]
    """The error text if its key is deleted."""

    def __init__(self, context: ServiceContext, queues: NameQueues, stream: ServerStream) -> None:
        super().__init__(context, queues, stream)
        self._claimed: Claimed | None = None
        self._queue: NameQueue | None = None
        self._granted = 0
        """The lease that was granted for this call, until it is answered."""

    def read(self, message: bytes) -> ClaimRequest:
        """Read the request."""
        raise NotImplementedError

    def answer(self, claimed: Claimed, revision: int) -> bytes:
        """Make the answer, once it is its turn as of a revision."""
        raise NotImplementedError

    def reclaim(self, key: bytes, lease: int, item: Item, value: bytes) -> int:
        """Claim a key that exists already; return the position at which that is durable."""
        return 0

    def begin(self, message: bytes) -> None:
        """Enter the queue."""
        wanted = self.read(message)
        with refusing(self._context):
            self._context.check_room(len(message))
            self._queues.cleanup.do_now(key_of(wanted.name, wanted.lease))
            if self._store.is_busy:  # a lease with very many keys is ending
                self._entering = self._queues.spawn(self._begin_later(message))
                return
            is_alone = self._check_others(wanted)
            self._grant(wanted)
            self._claimed = claimed = self._claim(wanted, self._granted or wanted.lease)
        if is_alone:
            self._send(claimed.at_revision, claimed.position)
            return
        self._queue = self._queues.of(wanted.name)
        if self._queue.wait(claimed.key, self):
            self._send(claimed.at_revision, claimed.position)

    def _check_others(self, wanted: ClaimRequest) -> bool:
        """Return whether there are no other keys; if there are, check that the call can wait."""
        others = self._store.keyspace.count(*bounds(wanted.name))
        if others and wanted.lease:
            own = self._store.keyspace.get(key_of(wanted.name, wanted.lease))
            others -= own is not None
        if others:
            self._queues.check_room(wanted.name)
        return not others

    def _grant(self, wanted: ClaimRequest) -> None:
        if not wanted.lease:
            (self._granted, _), _ = self._store.apply(Grant(0, SESSION_TTL_S))

    def _claim(self, wanted: ClaimRequest, lease: int) -> Claimed:
        store = self._store
        key = key_of(wanted.name, lease)
        item = store.keyspace.get(key)
        if item is None:
            (revision, _), position = store.apply(Put(key, wanted.value, lease))
            return Claimed(wanted.name, key, lease, revision, revision, position)
        if store.is_range_durable(*bounds(wanted.name)):
            revision, position = store.durable_revision, 0
        else:
            revision, position = store.revision, store.position_of(store.revision)
        position = max(position, self.reclaim(key, lease, item, wanted.value))
        return Claimed(wanted.name, key, lease, item[1], revision, position)

    def _send(self, revision: int, position: int) -> None:
        assert self._claimed is not None, "the key was claimed before"
        self._granted = 0  # it belongs to the caller now
        self._stream.answer_and_end(self.answer(self._claimed, revision), position)
        self._flush(position)

    def _flush(self, position: int) -> None:
        if position <= self._context.gate.released:
            self._stream.flush_soon()

    # Events while it waits.

    def is_first(self, revision: int, position: int) -> None:
        """Answer: it is its turn."""
        self._send(revision, position)

    def is_out(self, position: int) -> None:
        """Refuse: its key is deleted, with or without its lease."""
        self._stream.end(unknown(self.OUT, position))
        self._flush(position)

    def gone(self) -> None:
        """Leave the queue if it is still waiting."""
        super().gone()
        claimed, lease = self._claimed, self._granted
        was_last = False
        if self._queue is not None and claimed is not None:
            was_last = self._queue.leave(claimed.key, self)
        if lease:
            self._queues.cleanup.do_soon(
                b"" if claimed is None else claimed.key, lambda: self._revoke(lease)
            )
        elif was_last and claimed is not None:
            self._queues.cleanup.do_soon(claimed.key, lambda: self._withdraw(claimed))

    def _revoke(self, lease: int) -> None:
        try:
            self._store.apply(Revoke(lease))
        except UnknownLease:
            return  # it has already ended

    def _withdraw(self, claimed: Claimed) -> None:
        item = self._store.keyspace.get(claimed.key)
        if item is not None and item[1] == claimed.created:
            self._store.apply(Delete(claimed.key))
