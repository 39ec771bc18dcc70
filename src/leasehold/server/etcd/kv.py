"""etcd's KV service."""

from functools import partial
from typing import Final

from leasehold.errors import LeaseholdError
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import parse
from leasehold.grpc.routes import Answer, DeferredAnswer, Exchange, LongRead, Method, Pieces
from leasehold.keyspace.answer_size import AnswerSize, items_bytes
from leasehold.keyspace.keyspace import Item
from leasehold.keyspace.operations import Compact, Compare, Delete, Op, Outcome, Put, Range, Txn
from leasehold.keyspace.ranges import finish, pausing
from leasehold.keyspace.transaction_rules import (
    check_overlaps,
    check_overlaps_steps,
    has_only_ranges,
    only_reads,
)
from leasehold.server.etcd.kv_messages import (
    as_of,
    check_put,
    delete_of,
    encode,
    encode_deleted,
    encode_one_put,
    encode_outcome,
    put_of,
    query_of,
    read_txn,
    read_txn_steps,
    short_txn,
)
from leasehold.server.etcd.long_answers import (
    LARGE_BYTES,
    deleted_steps,
    found_steps,
    is_large,
    outcome_bytes,
    outcome_steps,
)
from leasehold.server.etcd.service_context import ServiceContext, invalid
from leasehold.wire.codec import field, short_key, short_put, varint
from leasehold.wire.rpc_pb2 import (
    CompactionRequest,
    DeleteRangeRequest,
    PutRequest,
    RangeRequest,
    TxnRequest,
)

LARGE_TXN_BYTES: Final = 16 * 1024
"""A longer transaction is parsed and checked in slices: it may have very many operations."""

_parse_put = PutRequest.FromString
_parse_range = RangeRequest.FromString
_parse_delete = DeleteRangeRequest.FromString
_parse_txn = TxnRequest.FromString
_parse_compaction = CompactionRequest.FromString


class KVService:
    """Reads and writes keys."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._store = context.store
        self._runtime = context.runtime

    def methods(self) -> dict[str, Method]:
        """The methods of the service, by path."""
        path = "/etcdserverpb.KV/"
        return {
            path + "Put": Exchange(self.put),
            path + "Range": Exchange(self.range, hold=DurabilityGate.hold_read),
            path + "DeleteRange": Exchange(self.delete_range),
            path + "Txn": Exchange(self.txn),
            path + "Compact": Exchange(self.compact),
        }

    def put(self, message: bytes) -> Answer | DeferredAnswer:
        """Set a key.

        Most calls have a short key, a short value, perhaps a lease: parsed without protobuf.
        """
        context = self._context
        if self._store.is_busy:
            return context.when_idle(self.put, message)
        put = short_put(message)
        if put is None:
            return self._put_any(message)
        context.check_room(len(message))
        try:
            (revision, _), position = self._store.apply(Put(*put))
        except LeaseholdError as error:
            context.refuse(error)
        return context.header(revision), position

    def _put_any(self, message: bytes) -> Answer:
        """Set a key, with any options."""
        request = parse(_parse_put, message)
        context = self._context
        try:
            check_put(request)
            context.check_room(len(message))
            (revision, previous), position = self._store.apply(put_of(request))
        except LeaseholdError as error:
            context.refuse(error)
        answer = context.header(revision)
        if previous is not None and request.prev_kv:
            answer += field(2, previous[0])
        return answer, position

    # Reading.

    def range(self, message: bytes) -> Answer | Pieces | DeferredAnswer:
        """Read a key, or a range of keys.

        Most calls read one short key without options, and are parsed without protobuf.
        """
        if self._store.is_busy:
            return self._context.when_idle(self.range, message)
        key = short_key(message)
        if key is not None:
            return self._one(key)
        return self._any(parse(_parse_range, message))

    def _one(self, key: bytes) -> Answer:
        """Read one key, without any option."""
        store = self._store
        item: Item | None = store.keyspace.get(key)
        if store.is_durable(key):
            header, position = self._context.durable_header(), 0
        else:
            header, position = self._context.header(store.revision), store.position
        if item is None:
            return header, position
        pair = item[0]
        return b"%b\x12%b%b\x20\x01" % (header, varint(len(pair)), pair), position

    def _any(self, request: RangeRequest) -> Answer | Pieces | LongRead:
        """Read a range, with any options. The header always has the current revision."""
        if not request.key:
            raise invalid("key is not provided")
        query = query_of(request)
        store = self._store
        try:
            read = store.read(query)
        except LeaseholdError as error:
            self._context.refuse(error)
        if read is None:
            return self._context.long_read(partial(self._long, query, keys_only=request.keys_only))
        found, position = read
        revision = found.revision
        if query.revision > 0:
            revision = store.durable_revision if not position else store.revision
        position = max(position, store.position_of(revision))
        header, keys_only = self._context.header(revision), request.keys_only
        if is_large(found.items):
            self._check_answer(items_bytes(found.items, keys_only=keys_only))
            return Pieces([header, *finish(found_steps(found, keys_only=keys_only))], position)
        return header + encode(found, keys_only=keys_only), position

    def _check_answer(self, size_bytes: int) -> None:
        """Refuse a read whose answer is larger than the limit."""
        try:
            AnswerSize(self._store.transactions.max_answer_bytes).add(size_bytes)
        except LeaseholdError as error:
            self._context.refuse(error)

    async def _long(self, query: Range, *, keys_only: bool) -> Pieces:
        """Execute a long read, or one that needs the disk."""
        await self._context.enter()
        revision = self._store.revision
        try:
            # Its revision may have been compacted while it waited for a slot.
            read = self._store.read(query)
            found, position = await self._runtime.reader.scan(query) if read is None else read
        except LeaseholdError as error:
            self._context.refuse(error)
        if read is not None:
            self._check_answer(items_bytes(found.items, keys_only=keys_only))
        position = max(position, self._store.position_of(revision))
        self._context.check_read_room(position)
        steps = found_steps(found, keys_only=keys_only)
        return await self._context.in_pieces(revision, steps, position)

    # Changing.

    def delete_range(self, message: bytes) -> Answer | Pieces | DeferredAnswer:
        """Delete a key, or a range of keys."""
        if self._store.is_busy:
            return self._context.when_idle(self.delete_range, message)
        request = parse(_parse_delete, message)
        if not request.key:
            raise invalid("key is not provided")
        delete = delete_of(request)
        self._context.check_room(len(message))
        if self._store.is_long(delete):
            execute = partial(self._delete_long, delete, len(message))
            return self._context.long_read(execute) if delete.prev_kv else execute()
        try:
            deleted, position = self._store.apply(delete)
        except LeaseholdError as error:
            self._context.refuse(error)
        header, with_previous = self._context.header(deleted.revision), request.prev_kv
        if with_previous and is_large(deleted.previous):
            pieces = finish(deleted_steps(deleted, with_previous=True))
            return Pieces([header, *pieces], position)
        return header + encode_deleted(deleted, with_previous=with_previous), position

    async def _delete_long(self, delete: Delete, request_bytes: int) -> Pieces:
        self._context.check_room(request_bytes)  # again: it may have waited for a slot
        try:
            deleted, position = await self._runtime.in_steps(delete)
        except LeaseholdError as error:
            self._context.refuse(error)
        steps = deleted_steps(deleted, with_previous=delete.prev_kv)
        return await self._context.in_pieces(deleted.revision, steps, position)

    def txn(self, message: bytes) -> Answer | Pieces | DeferredAnswer:
        """Execute one of two branches, depending on conditions.

        Most calls result in one put of a short key, and are parsed without protobuf.
        """
        context = self._context
        if self._store.is_busy:
            return context.when_idle(self.txn, message)
        txn = short_txn(message)
        if txn is None:
            return self._txn_any(message)
        try:
            check_overlaps(txn)
            context.check_room(len(message))
            outcome, position = self._store.apply(txn)
        except LeaseholdError as error:
            context.refuse(error)
        results = outcome.results
        if len(results) == 1 and type(results[0]) is tuple:
            return context.header(outcome.revision) + encode_one_put(outcome), position
        return self._outcome(outcome, parse(_parse_txn, message), position)

    def _txn_any(self, message: bytes) -> Answer | Pieces | DeferredAnswer:
        if len(message) > LARGE_TXN_BYTES:
            return self._txn_large(message)
        request = parse(_parse_txn, message)
        try:
            txn = read_txn(request)
            check_overlaps(txn)
        except LeaseholdError as error:
            self._context.refuse(error)
        return self._execute(txn, request, len(message))

    async def _txn_large(self, message: bytes) -> Answer | Pieces | LongRead:
        """Parse and check a transaction that may have very many operations."""
        request = parse(_parse_txn, message)
        try:
            txn = await self._context.in_slices(pausing(read_txn_steps(request)))
            await self._context.in_slices(pausing(check_overlaps_steps(txn)))
        except LeaseholdError as error:
            self._context.refuse(error)
        await self._context.enter()
        answer = self._execute(txn, request, len(message))
        return answer if isinstance(answer, tuple | Pieces | LongRead) else await answer

    def _execute(
        self, txn: Txn, request: TxnRequest, request_bytes: int
    ) -> Answer | Pieces | DeferredAnswer:
        """Execute a transaction that was checked, or return a call that executes it in slices."""
        try:
            is_reading = has_only_ranges(txn)
            if not is_reading:
                self._context.check_room(request_bytes)
            if self._store.is_long(txn):
                if only_reads(txn):
                    return self._context.long_read(partial(self._read_txn, txn, request))
                execute = partial(self._txn_long, txn, request, request_bytes)
                has_long_answer = self._store.transactions.has_long_answer(txn)
                return self._context.long_read(execute) if has_long_answer else execute()
            outcome, position = self._store.apply(txn)
        except LeaseholdError as error:
            self._context.refuse(error)
        if is_reading and position > self._store.durable:
            if self._is_durable(txn):
                outcome, position = as_of(outcome, self._store.durable_revision), 0
            else:
                self._context.gate.check_room()
        return self._outcome(outcome, request, position)

    def _outcome(self, outcome: Outcome, request: TxnRequest, position: int) -> Answer | Pieces:
        header = self._context.header(outcome.revision)
        if outcome_bytes(outcome) > LARGE_BYTES:
            return Pieces([header, *finish(outcome_steps(outcome, request))], position)
        return header + encode_outcome(outcome, request), position

    def _is_durable(self, txn: Txn) -> bool:
        """Return whether all keys that a transaction reads are the same in memory and on disk."""
        ranges = [step for step in (*txn.success, *txn.failure) if isinstance(step, Range)]
        looks: list[Compare | Range] = [*txn.compares, *ranges]
        return all(self._store.is_range_durable(look.key, look.end) for look in looks)

    async def _read_txn(self, txn: Txn, request: TxnRequest) -> Pieces:
        """Execute a read-only transaction, while others read and write."""
        await self._context.enter()
        try:
            outcome, position = await self._runtime.reader.read_txn(txn)
        except LeaseholdError as error:
            self._context.refuse(error)
        steps = outcome_steps(outcome, request)
        return await self._context.in_pieces(outcome.revision, steps, position)

    async def _txn_long(self, txn: Txn, request: TxnRequest, request_bytes: int) -> Pieces:
        self._context.check_room(request_bytes)  # again: it may have waited for a slot
        try:
            outcome, position = await self._runtime.in_steps(txn)
        except LeaseholdError as error:
            self._context.refuse(error)
        steps = outcome_steps(outcome, request)
        return await self._context.in_pieces(outcome.revision, steps, position)

    def compact(self, message: bytes) -> Answer | DeferredAnswer:
        """Compact the history."""
        if self._store.is_busy:
            return self._context.when_idle(self.compact, message)
        request = parse(_parse_compaction, message)
        self._context.check_room(len(message))
        op: Op[int] = Compact(request.revision)
        try:
            revision, position = self._store.apply(op)
        except LeaseholdError as error:
            self._context.refuse(error)
        if request.physical:
            return self._forgotten(revision, position)
        return self._context.header(revision), position

    async def _forgotten(self, revision: int, position: int) -> Answer:
        await self._runtime.until_durable(position)
        housekeeping = self._runtime.housekeeping
        housekeeping.forget()
        await housekeeping.forgotten()
        return self._context.header(revision), position
