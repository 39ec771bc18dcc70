"""The shared context of etcd's services: the store, headers, refusals, and error texts."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

from google.protobuf.message import Message

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
    TooBusy,
    TooLarge,
    TooManyOperations,
    UnknownKey,
    UnknownLease,
)
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.error_details import REFUSED, detail_of
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.read_slots import ReadSlots
from leasehold.grpc.routes import Answer, DeferredAnswer, LongRead, Pieces
from leasehold.journal.journal import Journal
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.answer_size import MAX_ANSWER_BYTES
from leasehold.keyspace.ranges import Steps
from leasehold.store.runtime import Runtime
from leasehold.store.slices import Slicer
from leasehold.wire.codec import ResponseHeaderEncoder

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

_TOO_LARGE: Final = detail_of(
    TooLarge(
        f"request is larger than the {MAX_REQUEST_BYTES:,} bytes that the server accepts; divide "
        "it into several"
    ),
    is_whole_call=True,
)

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class ServiceContext:
    """The common entry of calls, and exit of answers."""

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

    def __init__(self, runtime: Runtime, gate: DurabilityGate, identity: Identity) -> None:
        self.runtime = runtime
        self.store = runtime.store
        self.store.transactions.max_answer_bytes = MAX_ANSWER_BYTES
        self.gate = gate
        self._headers = ResponseHeaderEncoder(*identity)
        self._durable_headers = ResponseHeaderEncoder(*identity)
        self.header = self._headers.encode
        """Encodes the header field of an answer at a revision."""
        self.reads = ReadSlots()
        """The slots of long reads."""
        self.is_corrupt = False
        """Whether a CORRUPT alarm blocks all changes."""

    def durable_header(self) -> bytes:
        """The header field at the durable revision: the same object until that changes."""
        return self._durable_headers.encode(self.store.durable_revision)

    def check_room(self, request_bytes: int) -> None:
        """Refuse a change before execution if too much waits for the disk, or it is too large."""
        if request_bytes > MAX_REQUEST_BYTES:
            raise RpcError(
                Status.INVALID_ARGUMENT, "etcdserver: request is too large", detail=_TOO_LARGE
            )
        if self.is_corrupt and request_bytes:  # 0 bytes: it only reads
            raise RpcError(Status.DATA_LOSS, CORRUPT, detail=REFUSED)
        self.gate.check_room()
        if self.store.is_full:
            raise self.gate.refusal()

    def check_read_room(self, position: int) -> None:
        """Refuse a long read that would have to wait for the disk, if too many calls do so."""
        if position > self.store.durable and self.runtime.waiting.is_crowded:
            raise self.gate.refusal()

    async def enter(self) -> None:
        """Wait until keys may be read: until no sliced operation is in progress."""
        with _as_stopped():
            await self.runtime.enter()

    async def do(self, chore: Callable[[Journal], T]) -> T:
        """Run a chore on the journal; it continues even if the caller is cancelled."""
        with _as_stopped():
            return await asyncio.shield(self.runtime.do(chore))

    async def when_idle(
        self, call: Callable[[bytes], Answer | Pieces | DeferredAnswer], message: bytes
    ) -> Answer | Pieces | LongRead:
        """Execute a call as soon as no sliced operation is in progress."""
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
        """Make a long answer in slices, at a revision; it is sent when `position` is on disk."""
        header = self.header(revision)
        pieces = await self.in_slices(steps)
        await self.runtime.until_durable(position)
        return Pieces([header, *pieces])

    def refuse(self, error: LeaseholdError) -> NoReturn:
        """Raise a refusal in etcd's words; it is sent once the state it is based on is durable."""
        position = self.store.position
        if isinstance(error, UnknownLease | LeaseExists) and isinstance(error.lease, int):
            position = self.store.lease_position(error.lease)
        text = _TEXTS.get(type(error)) or str(error)  # etcd has no such limit, and no text for it
        # Reading old values may fail for a lack of room when a transaction is executed already.
        detail = detail_of(error, is_whole_call=not isinstance(error, TooBusy))
        raise RpcError(error.status, f"etcdserver: {text}", position, detail=detail) from error


@contextmanager
def _as_stopped() -> Iterator[None]:
    try:
        yield
    except (Closed, JournalFailed) as error:
        raise RpcError(Status.UNAVAILABLE, STOPPED) from error


def invalid(text: str) -> RpcError:
    """Return a refusal of an argument in etcd's words."""
    return RpcError(Status.INVALID_ARGUMENT, f"etcdserver: {text}")
