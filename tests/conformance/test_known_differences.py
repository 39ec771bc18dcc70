"""What is known to differ from etcd, as docs/server.md says: each is still so, on both sides.

Whoever makes one of them equal learns it here, and takes it out of the table.
"""

from typing import Any, Final

import pytest
from grpc import RpcError, StatusCode

from leasehold.wire import rpc_pb2 as pb
from leasehold.wire.codec import field
from tests.conformance.client import Client, if_version, put_op, watch_one

NO_MESSAGE: Final = "grpc: error unmarshalling request: "
EMPTY_END: Final = field(2, b"")
MIB: Final = 1 << 20


@pytest.fixture
def is_real(request: pytest.FixtureRequest) -> bool:
    """Whether this is real etcd."""
    kind: str = request.node.callspec.params["shared"]
    return kind == "real"


def ask(client: Client, method: str, body: bytes, response_type: type[Any]) -> Any:
    return client.checked(response_type, client.raw(f"/etcdserverpb.{method}", body))


@pytest.fixture
def three(client: Client) -> list[bytes]:
    """Three keys that are the last of all."""
    names = [b"\xff%d" % number for number in range(3)]
    client.delete(names[0], b"\0")  # other tests have left keys there
    for name in names:
        client.put(name)
    return names


def test_an_end_that_is_there_and_empty_in_a_range(
    client: Client, three: list[bytes], is_real: bool
) -> None:
    body = pb.RangeRequest(key=three[1]).SerializeToString() + EMPTY_END
    answer = ask(client, "KV/Range", body, pb.RangeResponse)
    assert [kv.key for kv in answer.kvs] == (three[1:] if is_real else three[1:2])


@pytest.mark.parametrize("only_reads", [True, False])
def test_an_end_that_is_there_and_empty_in_a_transaction(
    client: Client, three: list[bytes], is_real: bool, only_reads: bool
) -> None:
    read = field(2, field(1, pb.RangeRequest(key=three[1]).SerializeToString() + EMPTY_END))
    write = field(2, put_op(three[0]).SerializeToString())
    answer = ask(client, "KV/Txn", read if only_reads else read + write, pb.TxnResponse)
    found = [kv.key for kv in answer.responses[0].response_range.kvs]
    assert found == (three[1:] if is_real and only_reads else three[1:2])


def test_an_end_that_is_there_and_empty_in_a_condition(
    client: Client, three: list[bytes], is_real: bool
) -> None:
    client.delete(three[1])
    client.put(three[1])
    client.put(three[2])
    condition = if_version(three[1], 1).SerializeToString() + field(64, b"")
    answer = ask(client, "KV/Txn", field(1, condition), pb.TxnResponse)
    assert answer.succeeded is not is_real


def test_an_end_that_is_there_and_empty_in_a_delete_is_none_for_both(
    client: Client, three: list[bytes]
) -> None:
    body = pb.DeleteRangeRequest(key=three[1]).SerializeToString() + EMPTY_END
    assert ask(client, "KV/DeleteRange", body, pb.DeleteRangeResponse).deleted == 1


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("Range", pb.RangeRequest(key=b"k").SerializeToString() + b"\x10\x05"),
        ("Put", pb.PutRequest(key=b"k").SerializeToString() + b"\x1a\x01x"),
    ],
)
def test_a_field_of_the_wrong_wire_type(
    client: Client, is_real: bool, kind: str, body: bytes
) -> None:
    if not is_real:
        assert client.raw(f"/etcdserverpb.KV/{kind}", body)
        return
    with pytest.raises(RpcError) as refused:
        client.raw(f"/etcdserverpb.KV/{kind}", body)
    assert refused.value.code() is StatusCode.INTERNAL
    assert str(refused.value.details()).startswith(NO_MESSAGE + "proto: wrong wireType")


def test_the_field_0_of_a_request_without_fields(client: Client, is_real: bool) -> None:
    if not is_real:
        assert client.raw("/etcdserverpb.Lease/LeaseLeases", b"\x00\x01")
        return
    with pytest.raises(RpcError) as refused:
        client.raw("/etcdserverpb.Lease/LeaseLeases", b"\x00\x01")
    assert refused.value.code() is StatusCode.INTERNAL


def test_two_operations_in_one_step(client: Client, key: bytes, is_real: bool) -> None:
    step = put_op(key).SerializeToString() + put_op(b"", b"value").SerializeToString()
    if is_real:
        with pytest.raises(RpcError) as refused:
            client.raw("/etcdserverpb.KV/Txn", field(2, step))
        assert refused.value.details() == "etcdserver: key is not provided"
    else:
        client.raw("/etcdserverpb.KV/Txn", field(2, step))
        assert client.range(key).kvs[0].value == b"value"


def test_a_watch_with_the_id_of_refusals(client: Client, key: bytes, is_real: bool) -> None:
    with client.watch() as watch:
        watch.send(watch_one(key, watch_id=-1))
        watch.send(watch_one(key, watch_id=-1))
        assert [watch.receive().canceled for _ in range(2)] == [False, True]
        client.put(key)
        watch.send(watch_one(key))
        told = []
        while not (answer := watch.receive()).created:
            told.append(answer.watch_id)
        assert told == ([] if is_real else [-1])


def test_a_watch_from_the_compacted_revision_on_is_told_what_it_deleted(
    client: Client, key: bytes, is_real: bool
) -> None:
    client.put(key)
    deleted = client.delete(key).header.revision
    client.compact(deleted, physical=True)
    with client.watch() as watch:
        watch.send(watch_one(key, start_revision=deleted))
        assert watch.receive().created
        last = client.put(key).header.revision
        told: list[int] = []
        while not told or told[-1] < last:
            told += [event.kv.mod_revision for event in watch.receive().events]
    assert told == ([last] if is_real else [deleted, last])


def test_the_envelope_of_a_request_counts(client: Client, key: bytes, is_real: bool) -> None:
    request = pb.PutRequest(key=key)
    request.value = bytes(MIB * 3 // 2 - request.ByteSize() - 4)
    assert request.ByteSize() == MIB * 3 // 2
    if is_real:
        with pytest.raises(RpcError) as refused:
            client.ask(request)
        assert refused.value.details() == "etcdserver: request is too large"
    else:
        client.ask(request)
