"""What is read without protobuf comes to the same as what is read with it.

Random puts and transactions, of the usual shapes and of any other, many of them damaged, go to two
equal servers. One takes the short way where there is one, the other never. Both must answer with
the same bytes at the same position, or refuse in the same words, and be the same in the end.
"""

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Pieces
from leasehold.journal import records
from leasehold.journal.journal_format import Identity
from leasehold.keyspace.operations import Grant, Put
from leasehold.server.etcd import kv
from leasehold.server.etcd.kv_messages import read_txn, short_txn
from leasehold.server.etcd.service_context import ServiceContext
from leasehold.store.runtime import Runtime
from leasehold.testing import current_host, run_virtual
from leasehold.wire import journal_pb2, kv_pb2
from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.codec import key_value
from tests.property.support import effort

FULL: Final = (1 << 62) + 12345
"""A lease that has as many keys as it may have."""
LEASES: Final = (7, 300, FULL)
UNKNOWN: Final = (8, (1 << 63) - 1, -1)
EXAMPLES: Final = 400

keys = st.sampled_from([b"a", b"b", b"c", b"a" * 127, b"a" * 128, b""])
plain_keys = st.sampled_from([b"a", b"b", b"c"])
ends = st.sampled_from([b"", b"", b"", b"b", b"\0"])
values = st.sampled_from([b"1", b"2", b"*\x011", b"v" * 127, b"v" * 128, b""])
leases = st.sampled_from([0, *LEASES, *UNKNOWN])
revisions = st.sampled_from([0, 1, 2, 3, 5, 127, 128, 300, -1, (1 << 63) - 1])
rarely = st.sampled_from([False, False, False, True])

plain_puts = st.builds(pb.PutRequest, key=plain_keys, value=values, lease=leases)
puts = plain_puts | st.builds(
    pb.PutRequest,
    key=keys,
    value=values,
    lease=leases,
    prev_kv=rarely,
    ignore_value=rarely,
    ignore_lease=rarely,
)
ranges = st.builds(pb.RangeRequest, key=plain_keys) | st.builds(
    pb.RangeRequest, key=keys, range_end=ends, keys_only=rarely, limit=st.integers(0, 1)
)
deletes = st.builds(pb.DeleteRangeRequest, key=plain_keys) | st.builds(
    pb.DeleteRangeRequest, key=keys, range_end=ends, prev_kv=rarely
)

operands = st.one_of(
    st.fixed_dictionaries({"target": st.just(0), "version": revisions}),
    st.fixed_dictionaries({"target": st.just(1), "create_revision": revisions}),
    st.fixed_dictionaries({"target": st.just(2), "mod_revision": revisions}),
    st.fixed_dictionaries({"target": st.just(3), "value": values}),
    st.fixed_dictionaries({"target": st.just(4), "lease": leases}),
    st.fixed_dictionaries({"target": st.integers(0, 5), "value": values}),
    st.fixed_dictionaries({"target": st.integers(0, 5), "version": revisions}),
    st.fixed_dictionaries({"target": st.integers(0, 5)}),
)


def compare(key: bytes, end: bytes, result: Any, operand: dict[str, Any]) -> pb.Compare:
    return pb.Compare(key=key, range_end=end, result=result, **operand)


compares = st.builds(compare, plain_keys | keys, ends, st.integers(0, 4), operands)
steps = st.one_of(
    st.builds(pb.RequestOp, request_put=puts),
    st.builds(pb.RequestOp, request_range=ranges),
    st.builds(pb.RequestOp, request_delete_range=deletes),
    st.just(pb.RequestOp()),
    st.just(pb.RequestOp(request_txn=pb.TxnRequest())),
)
changes = st.one_of(
    st.builds(pb.RequestOp, request_put=plain_puts),
    st.builds(pb.RequestOp, request_delete_range=st.builds(pb.DeleteRangeRequest, key=plain_keys)),
)
few_compares = st.lists(compares, max_size=2)
txns = st.one_of(
    st.builds(
        pb.TxnRequest,
        compare=few_compares,
        success=st.lists(changes, min_size=1, max_size=2),
        failure=st.lists(changes | steps, max_size=1),
    ),
    st.builds(
        pb.TxnRequest,
        compare=few_compares,
        success=st.lists(steps, max_size=3),
        failure=st.lists(steps, max_size=3),
    ),
)


@st.composite
def damaged(draw: st.DrawFn, messages: st.SearchStrategy[Any]) -> bytes:
    """A message, mostly as it should be; or with bytes changed, added, or cut off."""
    data = bytearray(draw(messages).SerializeToString())
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["set", "insert", "cut", "append"]))
        if how == "cut":
            del data[at:]
        elif how == "append":
            data += draw(st.sampled_from([b"\0", b"\x18\x07", b"\x20\x01", b"\x80\0", b"\x12\0"]))
        else:
            byte = draw(st.integers(0, 255))
            data[at : at + (how == "set")] = bytes([byte])
    return bytes(data)


calls = st.one_of(
    st.tuples(st.just("put"), damaged(puts)), st.tuples(st.just("txn"), damaged(txns))
)


class Server:
    """etcd's keys, on a store in memory."""

    def __init__(self) -> None:
        self.store = (runtime := Runtime(None, clock=current_host().clock)).store
        self.store.start()
        self.kv = kv.KVService(ServiceContext(runtime, DurabilityGate(), Identity(1, 2, 3)))
        self.store.leases.max_keys = 2
        for lease in LEASES:
            self.store.apply(Grant(lease, 100.0))
        for key, lease in ((b"a", 0), (b"b", 7), (b"full/1", FULL), (b"full/2", FULL)):
            self.store.apply(Put(key, b"1", lease))

    def ask(self, method: str, message: bytes) -> Any:
        """Make a call; give all that a client would see, and when."""
        call: Callable[[bytes], Any] = getattr(self.kv, method)
        try:
            answer = call(message)
        except RpcError as error:
            return error.status, error.message, error.position
        if isinstance(answer, Pieces):
            return b"".join(answer.pieces), answer.position
        return answer

    def state(self) -> Any:
        """All there is: in memory, and on the way to the disk."""
        store, names = self.store, [b"\0", b"\0"]
        batch = store.take_batch()
        assert batch is not None
        store.committed()
        return (
            store.revision,
            store.keyspace.range(*names),
            [(each.keys, each.key_bytes) for each in map(store.leases.current, LEASES)],
            (batch.changes, batch.keys, batch.leases),
        )


async def live_through(history: list[tuple[str, bytes]]) -> tuple[list[Any], Any]:
    server = Server()
    return [server.ask(*call) for call in history], server.state()


@effort(EXAMPLES)
@given(history=st.lists(calls, min_size=1, max_size=8))
@example(history=[("put", b"\x0a\x01k\x12\x01v\x18\x07"), ("txn", b"")])
def test_the_short_ways_come_to_the_same_as_the_long_ones(history: list[tuple[str, bytes]]) -> None:
    short = run_virtual(live_through, history)
    with patch.multiple(kv, short_put=lambda _: None, short_txn=lambda _: None):
        assert run_virtual(live_through, history) == short


@effort(EXAMPLES)
@given(message=damaged(txns) | st.binary(max_size=40))
@example(message=b"\x0a\x07\x1a\x01k\x28\xff\xff\x01" + b"\x12\x08\x12\x06\x0a\x01k\x12\x01v")
@example(message=b"\x0a\x08\x1a\x01k\x28\x05\x00\x00\x00" + b"\x12\x08\x12\x06\x0a\x01k\x12\x01v")
def test_a_short_transaction_is_what_protobuf_reads(message: bytes) -> None:
    txn = short_txn(message)
    if txn is not None:
        assert read_txn(pb.TxnRequest.FromString(message)) == txn


def test_a_short_transaction_is_read_without_protobuf() -> None:
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"k", value=b"v", lease=FULL))
    look = pb.RequestOp(request_range=pb.RangeRequest(key=b"k"))
    delete = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"k"))
    for condition in (
        pb.Compare(key=b"k", target=pb.Compare.VALUE, value=b"v"),
        pb.Compare(key=b"k", target=pb.Compare.CREATE, create_revision=0),
        pb.Compare(key=b"k", target=pb.Compare.MOD, result=pb.Compare.LESS, mod_revision=1 << 40),
        pb.Compare(key=b"k", version=128),
        pb.Compare(key=b"k", target=pb.Compare.LEASE, lease=FULL),
    ):
        for success in (put, delete):
            request = pb.TxnRequest(compare=[condition], success=[success], failure=[look])
            assert short_txn(request.SerializeToString()) == read_txn(request)


def test_what_has_too_many_operations_is_not_short() -> None:
    tiny = pb.Compare(key=b"k", version=0)
    put = pb.RequestOp(request_put=pb.PutRequest(key=b"k", value=b"v"))
    request = pb.TxnRequest(compare=[tiny] * 129, success=[put])
    assert short_txn(request.SerializeToString()) is None


names = st.sampled_from([b"k", b"*\x01", b"k" * 127, b"k" * 128]) | st.binary(min_size=1)
counts = st.integers(0, 62).flatmap(lambda bits: st.integers(1, 1 << bits))
contents = values | st.binary() | st.sampled_from([b"*\x01*", b"v" * 900, b"v" * 20_000])


@effort(EXAMPLES)
@given(key=names, created=counts, since=counts, version=counts, value=contents, lease=leases)
def test_a_pair_is_recorded_and_its_value_read_as_protobuf_does_it(
    key: bytes, created: int, since: int, version: int, value: bytes, lease: int
) -> None:
    encoded = key_value(key, created, created + since, version, value, lease)
    assert records.value_of((encoded, created, created + since, version, lease, key)) == value
    change = journal_pb2.Change(put=kv_pb2.KeyValue.FromString(encoded))
    assert records.put(encoded) == journal_pb2.Changes(changes=[change]).SerializeToString()
