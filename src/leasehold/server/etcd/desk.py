"""What all of etcd's services share: the store behind them, headers, refusals, and texts."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

from google.protobuf.message import Message

from leasehold.core.answer_size import MAX_ANSWER_BYTES
from leasehold.core.ranges import Steps
from leasehold.engine.journal import Journal
from leasehold.engine.journal_format import Identity
from leasehold.engine.runtime import Runtime
from leasehold.engine.slices import Slicer
from leasehold.errors import (
    Closed,
    Compacted,
    DuplicateKey,
    EmptyKey,
    FutureRevision,
    JournalFailed,
    LeaseExists,
    LeaseholdError,
    NoSpace,
    Status,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
)
from leasehold.rpc.gate import Gate
from leasehold.rpc.grpc import RpcError
from leasehold.rpc.read_slots import ReadSlots
from leasehold.rpc.routes import Answer, Later, LongRead, Pieces
from leasehold.wire.encode import HeaderEncoder

MAX_REQUEST_BYTES: Final = 1536 * 1024
"""The largest request that may change anything."""

TOO_MANY: Final = "etcdserver: too many requests"
CORRUPT: Final = "etcdserver: corrupt cluster"
STOPPED: Final = "etcdserver: server stopped"

_TEXTS: Final[dict[type[LeaseholdError], str]] = {
    UnknownLease: "requested lease not found",
    LeaseExists: "lease already exists",
    UnknownKey: "key not found",
    EmptyKey: "key is not provided",
    DuplicateKey: "duplicate key given in txn request",
    TooManyOperations: "too many operations in txn request",
    Compacted: "mvcc: required revision has been compacted",
    FutureRevision: "mvcc: required revision is a future revision",
    NoSpace: "mvcc: database space exceeded",
}

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Desk:
    """Where calls come in and answers go out."""

    __slots__ = (
        "_durable_headers",
        "_headers",
        "gate",
        "header",
        "is_corrupt",
        "reads",
        "runtime",
        "store",
    )

    def __init__(self, runtime: Runtime, gate: Gate, identity: Identity) -> None:
        self.runtime = runtime
        self.store = runtime.store
        self.store.transactions.max_answer_bytes = MAX_ANSWER_BYTES
        self.gate = gate
        self._headers = HeaderEncoder(*identity)
        self._durable_headers = HeaderEncoder(*identity)
        self.header = self._headers.encode
        """Encodes the header field of an answer at a revision."""
        self.reads = ReadSlots()
        """Who may read at length."""
        self.is_corrupt = False
        """Whether nothing may be changed, because there is an alarm that says so."""

    def durable_header(self) -> bytes:
        """The header field at the durable revision: the same object until that changes."""
        return self._durable_headers.encode(self.store.durable_revision)

    def check_room(self, request_bytes: int) -> None:
        """Refuse a change that is not executed yet: too much waits, or it is too large."""
        if request_bytes > MAX_REQUEST_BYTES:
            raise invalid("request is too large")
        if self.is_corrupt and request_bytes:  # none: it only reads
            raise RpcError(Status.DATA_LOSS, CORRUPT)
        self.gate.check_room()
        if self.store.is_full:
            raise self.gate.refusal()

    def check_read_room(self, position: int) -> None:
        """Refuse a long read that would have to wait for the disk, if too many calls do so."""
        if position > self.store.durable and self.runtime.waiting.is_crowded:
            raise self.gate.refusal()

    async def enter(self) -> None:
        """Wait until keys may be read: until no operation is under way in steps."""
        with _told_as_stopped():
            await self.runtime.enter()

    async def do(self, chore: Callable[[Journal], T]) -> T:
        """Have something done with the journal; it goes on even if nobody waits for it any more."""
        with _told_as_stopped():
            return await asyncio.shield(self.runtime.do(chore))

    async def when_idle(
        self, call: Callable[[bytes], Answer | Pieces | Later], message: bytes
    ) -> Answer | Pieces | LongRead:
        """Make a call as soon as no operation is under way in steps."""
        await self.enter()
        answer = call(message)
        return answer if isinstance(answer, tuple | Pieces | LongRead) else await answer

    def long_read(self, begin: Callable[[], Coroutine[Any, Any, Pieces]]) -> LongRead:
        """Begin a call with a long answer when there is a slot: a read, or a write with ranges."""
        return LongRead(self.reads, begin)

    async def in_slices(self, steps: Steps[T]) -> T:
        """Take all steps, with pauses for other work on the event loop."""
        return await Slicer(self.store.leases.monotonic).run(steps, self.runtime.reader.load)

    async def in_pieces(self, revision: int, steps: Steps[list[bytes]], position: int) -> Pieces:
        """Make a long answer in slices, at a revision; it leaves when `position` is on disk."""
        header = self.header(revision)
        pieces = await self.in_slices(steps)
        await self.runtime.until_durable(position)
        return Pieces([header, *pieces])

    def refuse(self, error: LeaseholdError) -> NoReturn:
        """Say no in etcd's words, once what the refusal is based on is on disk."""
        position = self.store.position
        if isinstance(error, UnknownLease | LeaseExists) and isinstance(error.lease, int):
            position = self.store.lease_position(error.lease)
        text = _TEXTS.get(type(error)) or str(error)  # etcd has no such limit, and no words for it
        raise RpcError(error.status, f"etcdserver: {text}", position) from error


@contextmanager
def _told_as_stopped() -> Iterator[None]:
    try:
        yield
    except (Closed, JournalFailed) as error:
        raise RpcError(Status.UNAVAILABLE, STOPPED) from error


def invalid(text: str) -> RpcError:
    """Refuse an argument in etcd's words."""
    return RpcError(Status.INVALID_ARGUMENT, f"etcdserver: {text}")
