"""Long answers are made in slices: the same bytes, and renewals go on meanwhile.

Those that are long because of few large values are made at once, without a copy of any.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.routes import Answer, DeferredAnswer, Pieces
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.operations import Deleted, Found, Grant, Outcome, Put, Range
from leasehold.keyspace.ranges import LONG, SLICE, Steps
from leasehold.server.etcd.kv import KVService
from leasehold.server.etcd.kv_messages import encode, encode_deleted, encode_outcome
from leasehold.server.etcd.lease import LeaseService
from leasehold.server.etcd.long_answers import (
    LARGE_BYTES,
    LARGE_ITEM_BYTES,
    deleted_steps,
    found_steps,
    outcome_steps,
)
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.server.etcd.watch import WatchService
from leasehold.store.runtime import Runtime
from leasehold.wire import rpc_pb2 as pb
from tests.conformance.client import delete_op, put_op, range_op, txn_op

MANY: Final = 20_000
KEPT, KEEPER = 7, 8
Handler = Callable[[bytes], Answer | Pieces | DeferredAnswer]


class Shop:
    """The services on a store in memory, with very many keys under one lease."""

    def __init__(self) -> None:
        self.runtime = Runtime(None)
        self.runtime.start()
        self.store = self.runtime.store
        self.context = ServiceContext(self.runtime, DurabilityGate(), Identity(1, 2, 3))
        self.kv, self.lease = KVService(self.context), LeaseService(self.context)
        for lease in (KEPT, KEEPER):
            self.store.apply(Grant(lease, 1000.0))
        self.names = [b"k%05d" % number for number in range(MANY)]
        for name in self.names:
            self.store.apply(Put(name, b"value", KEPT))

    async def ask(self, call: Handler, request: Any) -> tuple[bytes, int]:
        """Make a call; give its answer, and how often a lease was renewed meanwhile."""
        answer = call(request.SerializeToString())
        assert not isinstance(answer, tuple | Pieces), "this takes a while"
        asking = asyncio.ensure_future(answer)
        renewal = pb.LeaseKeepAliveRequest(ID=KEEPER).SerializeToString()
        renewals = 0
        while not asking.done():
            self.lease.keep_alive(renewal)
            renewals += 1
            await asyncio.sleep(0)
        result = await asking
        assert isinstance(result, Pieces)
        assert max(map(len, result.pieces)) < 100 * SLICE, "no piece has very many items"
        return b"".join(result.pieces), renewals


def in_shop(test: Callable[[Shop], Any]) -> Callable[[], None]:
    async def main() -> None:
        shop = Shop()
        await test(shop)
        await shop.runtime.stop()

    def run() -> None:
        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@in_shop
async def test_renewals_go_on_while_a_transaction_has_read_very_many_keys(shop: Shop) -> None:
    every = range_op(b"k", b"l")
    request = pb.TxnRequest(success=[every, put_op(b"k00000"), txn_op(success=[every])])
    body, renewals = await shop.ask(shop.kv.txn, request)
    answer = pb.TxnResponse.FromString(body)
    first, _, nested = answer.responses
    assert [kv.key for kv in first.response_range.kvs] == shop.names
    assert [kv.lease for kv in nested.response_txn.responses[0].response_range.kvs[:2]] == [0, KEPT]
    assert renewals > 3


@in_shop
async def test_renewals_go_on_while_very_many_deleted_pairs_are_told(shop: Shop) -> None:
    request = pb.DeleteRangeRequest(key=b"k", range_end=b"l", prev_kv=True)
    body, renewals = await shop.ask(shop.kv.delete_range, request)
    answer = pb.DeleteRangeResponse.FromString(body)
    assert [kv.key for kv in answer.prev_kvs] == shop.names
    assert (answer.deleted, answer.header.revision) == (MANY, shop.store.revision)
    assert renewals > 3


@in_shop
async def test_renewals_go_on_while_the_keys_of_a_lease_are_listed(shop: Shop) -> None:
    request = pb.LeaseTimeToLiveRequest(ID=KEPT, keys=True)
    body, renewals = await shop.ask(shop.lease.time_to_live, request)
    answer = pb.LeaseTimeToLiveResponse.FromString(body)
    assert list(answer.keys) == shop.names
    assert (answer.ID, answer.TTL in (999, 1000), answer.grantedTTL) == (KEPT, True, 1000)
    assert renewals > 3


@in_shop
async def test_renewals_go_on_while_very_many_leases_are_listed(shop: Shop) -> None:
    for lease in range(10, MANY):
        shop.store.apply(Grant(lease, float(2000 + lease)))
    body, renewals = await shop.ask(shop.lease.leases, pb.LeaseLeasesRequest())
    answer = pb.LeaseLeasesResponse.FromString(body)
    ids = [lease.ID for lease in answer.leases]
    assert (set(ids[:2]), ids[2:]) == ({KEPT, KEEPER}, list(range(10, MANY)))
    assert renewals > 3


class Ear:
    """The stream of a watch, which takes everything."""

    has_room = True

    def __init__(self) -> None:
        self.heard: list[pb.WatchResponse] = []
        self.connection = self

    def send_message(self, message: bytes, _position: int) -> None:
        self.heard.append(pb.WatchResponse.FromString(message))

    def flush(self) -> None:
        """Everything is heard at once."""


@pytest.mark.parametrize("is_past", [False, True])
@pytest.mark.parametrize("fragment", [False, True])
def test_renewals_go_on_while_a_watch_is_told_of_very_many_keys(
    is_past: bool, fragment: bool
) -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        ear: Any = Ear()
        stream = WatchService(shop.context).open(ear)
        creation = pb.WatchCreateRequest(
            key=b"k",
            range_end=b"l",
            prev_kv=True,
            fragment=fragment,
            start_revision=shop.store.revision + 1,
        )
        request = pb.WatchRequest(create_request=creation).SerializeToString()
        if not is_past:
            stream.message_received(request)
        delete = pb.DeleteRangeRequest(key=b"k", range_end=b"l")
        _, renewals = await shop.ask(shop.kv.delete_range, delete)
        if is_past:
            stream.message_received(request)
            assert len(ear.heard) == 1, "it was created"
            renewals = 0  # a live watch may have its events before the delete is answered
        assert ear.heard[0].created
        while len(ear.heard) < 2:
            shop.lease.keep_alive(pb.LeaseKeepAliveRequest(ID=KEEPER).SerializeToString())
            renewals += 1
            await asyncio.sleep(0)
        told = [event for answer in ear.heard[1:] for event in answer.events]
        assert [event.kv.key for event in told] == shop.names
        assert {event.prev_kv.lease for event in told} == {KEPT}
        assert {event.kv.mod_revision for event in told} == {shop.store.revision}
        assert renewals > 3
        put = pb.PutRequest(key=b"k").SerializeToString()
        shop.kv.put(put)
        await until(lambda: [event.kv.key for event in ear.heard[-1].events] == [b"k"])

    run()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not condition():  # noqa: ASYNC110  there is no event to await
            await asyncio.sleep(0)


@in_shop
async def test_a_watch_that_is_cancelled_while_it_is_told_very_much_is_told_nothing(
    shop: Shop,
) -> None:
    ear: Any = Ear()
    stream = WatchService(shop.context).open(ear)
    creation = pb.WatchCreateRequest(key=b"k", range_end=b"l")
    stream.message_received(pb.WatchRequest(create_request=creation).SerializeToString())
    await shop.ask(shop.kv.delete_range, pb.DeleteRangeRequest(key=b"k", range_end=b"l"))
    stream.message_received(
        pb.WatchRequest(cancel_request=pb.WatchCancelRequest()).SerializeToString()
    )
    heard = list(ear.heard)
    await until(lambda: shop.runtime._catch_up._task is None)
    assert heard[0].created
    assert heard[-1].canceled
    assert ear.heard == heard, "nothing comes after that"


@in_shop
async def test_a_lease_with_few_keys_is_answered_at_once(shop: Shop) -> None:
    for name in shop.names[LONG:]:
        shop.store.apply(Put(name, b"value", 0))
    request = pb.LeaseTimeToLiveRequest(ID=KEPT, keys=True)
    answer = shop.lease.time_to_live(request.SerializeToString())
    assert isinstance(answer, tuple)
    assert len(pb.LeaseTimeToLiveResponse.FromString(answer[0]).keys) == LONG


# Large values.

LARGE_VALUE: Final = bytes(100_000)


def put_large(shop: Shop, count: int) -> None:
    for number in range(count):
        shop.store.apply(Put(b"large%d" % number, LARGE_VALUE, 0))


def whole(shop: Shop, answer: Answer | Pieces | DeferredAnswer) -> bytes:
    """Give an answer that must be in pieces, of which each large value is one as it is stored."""
    assert isinstance(answer, Pieces)
    assert answer.position == shop.store.position
    stored = {id(item[0]) for name in shop.names if (item := shop.store.keyspace.get(name))}
    assert all(id(piece) in stored for piece in answer.pieces if len(piece) > LARGE_ITEM_BYTES)
    return b"".join(answer.pieces)


@in_shop
async def test_a_few_large_values_are_told_without_a_copy(shop: Shop) -> None:
    put_large(shop, 4)
    shop.names = [b"large%d" % number for number in range(4)]
    every = pb.RangeRequest(key=b"large", range_end=b"largf")
    found = pb.RangeResponse.FromString(whole(shop, shop.kv.range(every.SerializeToString())))
    assert ([kv.key for kv in found.kvs], found.count) == (shop.names, 4)
    assert {kv.value for kv in found.kvs} == {LARGE_VALUE}
    step = pb.RequestOp(request_range=every)
    txn = pb.TxnRequest(success=[step, put_op(b"x"), txn_op(success=[step])])
    done = pb.TxnResponse.FromString(whole(shop, shop.kv.txn(txn.SerializeToString())))
    first, _, nested = done.responses
    assert first.response_range.kvs == found.kvs
    assert nested.response_txn.responses[0].response_range.kvs == found.kvs
    puts = pb.TxnRequest(success=[put_op(name, prev_kv=True) for name in shop.names])
    replaced = shop.kv.txn(puts.SerializeToString())
    assert isinstance(replaced, Pieces)
    done = pb.TxnResponse.FromString(b"".join(replaced.pieces))
    assert [each.response_put.prev_kv for each in done.responses] == list(found.kvs)


@in_shop
async def test_a_few_large_values_that_are_deleted_are_told_without_a_copy(shop: Shop) -> None:
    put_large(shop, 4)
    items = [shop.store.keyspace.get(b"large%d" % number) for number in range(4)]
    request = pb.DeleteRangeRequest(key=b"large", range_end=b"largf", prev_kv=True)
    answer = shop.kv.delete_range(request.SerializeToString())
    assert isinstance(answer, Pieces)
    large = [piece for piece in answer.pieces if len(piece) > LARGE_ITEM_BYTES]
    assert all(item and piece is item[0] for piece, item in zip(large, items, strict=True))
    deleted = pb.DeleteRangeResponse.FromString(b"".join(answer.pieces))
    assert (deleted.deleted, len(deleted.prev_kvs)) == (4, 4)
    assert isinstance(shop.kv.delete_range(request.SerializeToString()), tuple)


@in_shop
async def test_a_large_value_among_very_many_small_ones_is_told_without_a_copy(shop: Shop) -> None:
    shop.store.apply(Put(b"k00100", LARGE_VALUE, 0))
    item = shop.store.keyspace.get(b"k00100")
    assert item is not None
    later = shop.kv.range(pb.RangeRequest(key=b"k", range_end=b"l").SerializeToString())
    assert not isinstance(later, tuple | Pieces)
    answer = await later
    assert isinstance(answer, Pieces)
    assert any(piece is item[0] for piece in answer.pieces)
    found = pb.RangeResponse.FromString(b"".join(answer.pieces))
    assert [kv.key for kv in found.kvs] == shop.names


@pytest.mark.parametrize("count", [2, 3])
def test_an_answer_is_in_pieces_from_a_limit_on(count: int) -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        put_large(shop, count)
        request = pb.RangeRequest(key=b"large", range_end=b"largf")
        answer = shop.kv.range(request.SerializeToString())
        assert isinstance(answer, Pieces) == (count * len(LARGE_VALUE) > LARGE_BYTES)

    run()


# The same bytes.


@pytest.fixture(scope="module")
def found() -> Found:
    async def main() -> Found:
        shop = Shop()
        result, _ = await shop.runtime.reader.scan(Range(b"k", b"l"))
        await shop.runtime.stop()
        return result

    return asyncio.run(main())


def pieces_of(steps: Steps[list[bytes]]) -> tuple[bytes, int]:
    """Give what all pieces are together, and the number of steps."""
    count = 0
    try:
        while True:
            assert next(steps) == [], "nothing is needed from the past"
            count += 1
    except StopIteration as done:
        return b"".join(done.value), count


@pytest.mark.parametrize("keys_only", [False, True])
def test_a_range_has_the_same_bytes_in_pieces(found: Found, keys_only: bool) -> None:
    body, steps = pieces_of(found_steps(found, keys_only=keys_only))
    assert body == encode(found, keys_only=keys_only)
    assert steps >= len(found.items) / SLICE


@pytest.mark.parametrize("with_previous", [False, True])
@pytest.mark.parametrize("count", [0, 1, 3 * SLICE])
def test_a_delete_has_the_same_bytes_in_pieces(
    found: Found, with_previous: bool, count: int
) -> None:
    deleted = Deleted(9, found.items[:count])
    body, _ = pieces_of(deleted_steps(deleted, with_previous=with_previous))
    assert body == encode_deleted(deleted, with_previous=with_previous)


@pytest.mark.parametrize("succeeded", [False, True])
def test_a_transaction_has_the_same_bytes_in_pieces(found: Found, succeeded: bool) -> None:
    steps = [
        range_op(b"k", b"l", keys_only=True),
        put_op(b"k", prev_kv=True),
        delete_op(b"k", b"l", prev_kv=True),
        delete_op(b"k", b"l"),
    ]
    request = pb.TxnRequest(
        success=[*steps, txn_op(failure=steps)], failure=[*steps, txn_op(success=steps)]
    )
    results = [found, (5, found.items[0]), Deleted(6, found.items), Deleted(6, found.items)]
    inner = Outcome(not succeeded, results, 6)
    outcome = Outcome(succeeded, [*results, inner], 6)
    body, count = pieces_of(outcome_steps(outcome, request))
    assert body == encode_outcome(outcome, request)
    assert count >= 4 * len(found.items) / SLICE
