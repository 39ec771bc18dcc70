"""Nothing that is not on disk is seen: each of etcd's calls, while a commit is under way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leasehold.errors import Status
from leasehold.grpc.durability_gate import MAX_WAITING, DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, DeferredAnswer, Pieces
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.operations import Compact, Grant, Put
from leasehold.server.etcd.kv import KVService
from leasehold.server.etcd.lease import LeaseService
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.store.lease_record import MAX_KEY_BYTES
from leasehold.store.runtime import Runtime
from leasehold.testing import current_host, run_virtual
from leasehold.wire import rpc_pb2 as rpc

DURABLE = 2
"""Revision 2 is on disk in each test, and 3 is not."""


def at_once(answer: Answer | Pieces | DeferredAnswer) -> Answer:
    assert isinstance(answer, tuple), "nothing here takes a while, or is long"
    return answer


class Shop:
    """The services on a store that is committed when a test says so."""

    def __init__(self) -> None:
        self.runtime = Runtime(None, clock=current_host().clock)
        self.store = self.runtime.store
        self.store.start()
        self.context = ServiceContext(self.runtime, DurabilityGate(), Identity(1, 2, 3))
        self.kv, self.lease = KVService(self.context), LeaseService(self.context)
        for lease in (7, 8):
            self.store.apply(Grant(lease, 100.0))
        self.store.apply(Put(b"old", b"", 7))
        self.commit()

    def commit(self) -> None:
        assert self.store.take_batch() is not None
        self.store.committed()

    def put(self, key: bytes, lease: int = 0) -> None:
        self.store.apply(Put(key, b"", lease))

    @property
    def open_position(self) -> int:
        return self.store.durable + 1

    def range(self, **request: Any) -> tuple[rpc.RangeResponse, int]:
        answer = at_once(self.kv.range(rpc.RangeRequest(**request).SerializeToString()))
        return rpc.RangeResponse.FromString(answer[0]), answer[1]

    def keep_alive(self, lease: int) -> tuple[rpc.LeaseKeepAliveResponse, int]:
        request = rpc.LeaseKeepAliveRequest(ID=lease)
        answer = at_once(self.lease.keep_alive(request.SerializeToString()))
        return rpc.LeaseKeepAliveResponse.FromString(answer[0]), answer[1]

    def revoke(self, lease: int) -> Answer:
        return at_once(self.lease.revoke(rpc.LeaseRevokeRequest(ID=lease).SerializeToString()))

    def time_to_live(self, lease: int) -> tuple[rpc.LeaseTimeToLiveResponse, int]:
        request = rpc.LeaseTimeToLiveRequest(ID=lease, keys=True)
        answer = at_once(self.lease.time_to_live(request.SerializeToString()))
        return rpc.LeaseTimeToLiveResponse.FromString(answer[0]), answer[1]


def in_shop(test: Callable[[Shop], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        await test(Shop())

    def run() -> None:
        run_virtual(main)

    run.__name__ = test.__name__
    return run


@in_shop
async def test_a_key_that_nobody_is_changing_is_read_at_once_at_the_durable_revision(
    shop: Shop,
) -> None:
    shop.put(b"new")
    for request in ({"key": b"old"}, {"key": b"a", "range_end": b"b"}):
        answer, position = shop.range(**request)
        assert (answer.header.revision, position) == (DURABLE, 0)


@in_shop
async def test_a_key_that_is_being_written_is_read_when_it_is_on_disk(shop: Shop) -> None:
    shop.put(b"new")
    for request in ({"key": b"new"}, {"key": b"n", "range_end": b"o"}):
        answer, position = shop.range(**request)
        assert (answer.header.revision, position) == (DURABLE + 1, shop.open_position)
    shop.commit()
    assert shop.range(key=b"new")[1] == 0


@in_shop
async def test_a_key_that_is_being_deleted_is_not_shown_to_be_gone(shop: Shop) -> None:
    shop.revoke(7)
    answer, position = shop.range(key=b"old")
    assert (answer.count, answer.header.revision) == (0, DURABLE + 1)
    assert position == shop.open_position


@in_shop
async def test_a_read_at_a_revision_that_is_not_on_disk_waits_for_it(shop: Shop) -> None:
    shop.put(b"new")
    answer, position = shop.range(key=b"old", revision=DURABLE + 1)
    assert (answer.header.revision, position) == (DURABLE + 1, shop.open_position)


@in_shop
async def test_a_revision_that_is_on_disk_is_read_at_once_at_the_durable_revision(
    shop: Shop,
) -> None:
    shop.put(b"old")
    answer, position = shop.range(key=b"old", revision=DURABLE)
    assert (answer.kvs[0].mod_revision, answer.header.revision, position) == (DURABLE, DURABLE, 0)


@pytest.mark.parametrize("revision", [DURABLE, DURABLE + 9])
def test_a_revision_that_cannot_be_read_is_refused_when_that_is_certain(revision: int) -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        shop.put(b"new")
        shop.store.apply(Compact(DURABLE + 1))
        with pytest.raises(RpcError) as refused:
            shop.range(key=b"old", revision=revision)
        assert refused.value.status is Status.OUT_OF_RANGE
        assert refused.value.position == shop.open_position

    run()


def _txn(shop: Shop, compared: bytes, read: bytes, **more: Any) -> tuple[rpc.TxnResponse, int]:
    request = rpc.TxnRequest(
        compare=[rpc.Compare(key=compared, target=rpc.Compare.VERSION, version=1)],
        success=[rpc.RequestOp(request_range=rpc.RangeRequest(key=read))],
        **more,
    )
    body, position = at_once(shop.kv.txn(request.SerializeToString()))
    return rpc.TxnResponse.FromString(body), position


@in_shop
async def test_a_transaction_that_reads_what_is_on_disk_waits_for_nothing(shop: Shop) -> None:
    shop.put(b"new")
    answer, position = _txn(shop, b"old", b"old")
    assert (answer.succeeded, answer.header.revision, position) == (True, DURABLE, 0)
    found = answer.responses[0].response_range
    assert (found.count, found.header.revision) == (1, DURABLE)


@in_shop
async def test_a_transaction_that_looks_at_what_is_being_written_waits_for_it(shop: Shop) -> None:
    shop.put(b"new")
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=b"x"))
    for compared, read, more in (
        (b"new", b"old", {}),
        (b"old", b"new", {}),
        (b"old", b"old", {"failure": [put]}),
    ):
        answer, position = _txn(shop, compared, read, **more)
        assert (answer.header.revision, position) == (DURABLE + 1, shop.open_position)


@in_shop
async def test_reading_goes_on_when_no_answer_can_wait_any_more(shop: Shop) -> None:
    shop.put(b"new")
    shop.context.gate.answers = MAX_WAITING
    assert _txn(shop, b"old", b"old")[1] == 0
    assert shop.range(key=b"old")[1] == 0
    with pytest.raises(RpcError, match="too many requests"):
        _txn(shop, b"old", b"old", failure=[rpc.RequestOp(request_put=rpc.PutRequest(key=b"x"))])


@in_shop
async def test_leases_are_listed_at_once_while_only_keys_are_written(shop: Shop) -> None:
    shop.put(b"new", lease=8)
    assert shop.store.listing_position(with_keys=False) == 0
    assert shop.store.listing_position(with_keys=True) == shop.open_position
    shop.commit()
    assert shop.store.listing_position(with_keys=True) == 0
    shop.revoke(8)
    assert shop.store.listing_position(with_keys=False) == shop.open_position


@in_shop
async def test_a_renewal_waits_for_nothing_while_others_are_written(shop: Shop) -> None:
    shop.put(b"new", lease=7)
    answer, position = shop.keep_alive(7)
    assert (answer.TTL, answer.header.revision, position) == (100, DURABLE, 0)


@in_shop
async def test_a_lease_that_is_being_granted_is_renewed_when_it_is_on_disk(shop: Shop) -> None:
    shop.store.apply(Grant(9, 5.0))
    answer, position = shop.keep_alive(9)
    assert (answer.TTL, position) == (5, shop.open_position)


@in_shop
async def test_a_lease_that_is_being_revoked_is_told_to_be_gone_when_it_is(shop: Shop) -> None:
    shop.revoke(7)
    left, position = shop.time_to_live(7)
    assert (left.TTL, position) == (-1, shop.open_position)
    with pytest.raises(RpcError) as refused:
        shop.revoke(7)
    assert refused.value.position == shop.open_position
    assert shop.keep_alive(1234)[1] == 0, "nobody ever heard of it"


@in_shop
async def test_whoever_renews_a_lease_that_has_ended_is_told_at_once(shop: Shop) -> None:
    """Its holder stops, which is right even if a crash should undo the end."""
    shop.revoke(7)
    answer, position = shop.keep_alive(7)
    assert (answer.TTL, answer.header.revision, position) == (0, DURABLE, 0)


@in_shop
async def test_a_term_begins_when_its_grant_is_on_disk_whoever_renews_before(shop: Shop) -> None:
    shop.store.apply(Grant(9, 5.0))
    batch = shop.store.take_batch()
    assert batch is not None
    shop.keep_alive(9)
    await asyncio.sleep(60)
    shop.store.committed()
    await asyncio.sleep(4.9)
    assert shop.keep_alive(9)[0].TTL == 5
    await asyncio.sleep(5.2)
    assert shop.keep_alive(9)[0].TTL == 0


@in_shop
async def test_an_id_that_is_used_again_gets_the_term_of_its_own_grant(shop: Shop) -> None:
    shop.store.apply(Grant(9, 5.0))
    assert shop.store.take_batch() is not None
    shop.revoke(9)
    shop.store.apply(Grant(9, 5.0))
    shop.store.committed()  # the first grant, which is revoked already
    await asyncio.sleep(60)
    assert shop.keep_alive(9)[0].TTL == 5
    shop.commit()
    await asyncio.sleep(4.9)
    assert shop.keep_alive(9)[0].TTL == 5


@pytest.mark.parametrize("lease", [0, 8])
def test_a_key_that_is_being_taken_from_a_lease_is_not_shown_to_be(lease: int) -> None:
    @in_shop
    async def run(shop: Shop) -> None:
        assert shop.time_to_live(7)[1] == 0
        shop.put(b"old", lease)
        for each in filter(None, (7, lease)):
            answer, position = shop.time_to_live(each)
            assert list(answer.keys) == ([] if each == 7 else [b"old"])
            assert (answer.header.revision, position) == (DURABLE + 1, shop.open_position)

    run()


@in_shop
async def test_a_key_that_is_put_again_under_its_lease_is_nothing_new_about_the_lease(
    shop: Shop,
) -> None:
    shop.put(b"old", 7)
    answer, position = shop.time_to_live(7)
    assert list(answer.keys) == [b"old"]
    assert (answer.header.revision, position) == (DURABLE, 0)


@in_shop
async def test_a_lease_takes_no_more_keys_than_fit_into_one_row(shop: Shop) -> None:
    key_bytes = 1024 * 1024
    for number in range(MAX_KEY_BYTES // key_bytes):
        shop.put((b"%d" % number).ljust(key_bytes), lease=8)
    request = rpc.PutRequest(key=b"x", lease=8)
    with pytest.raises(RpcError, match=r"RESOURCE_EXHAUSTED.*use several leases"):
        shop.kv.put(request.SerializeToString())
    shop.put((b"%d" % 0).ljust(key_bytes), lease=8)  # it has this one already
    assert shop.range(key=b"x")[0].count == 0


@in_shop
async def test_a_renewal_is_remembered_only_if_it_is_an_id_and_nothing_else(shop: Shop) -> None:
    plain = rpc.LeaseKeepAliveRequest(ID=7).SerializeToString()
    padded = plain + b"\x12\x7f" + bytes(127)  # an unknown field, which protobuf keeps
    for message in (plain, padded, plain):
        encoded, _ = at_once(shop.lease.keep_alive(message))
        answer = rpc.LeaseKeepAliveResponse.FromString(encoded)
        assert (answer.ID, answer.TTL) == (7, 100)
    assert list(shop.lease._ids) == [plain]
    longest = rpc.LeaseKeepAliveRequest(ID=-1).SerializeToString()
    shop.lease.keep_alive(longest)
    assert longest in shop.lease._ids
