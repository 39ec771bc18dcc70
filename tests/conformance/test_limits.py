"""Sizes that are taken and refused, and calls that nobody serves."""

import pytest
from grpc import RpcError, StatusCode

from leasehold.wire.rpc_pb2 import PutRequest, RangeRequest
from tests.conformance.client import Client, fails, prefix_end

KIB, MIB = 1 << 10, 1 << 20
REQUEST_MAX = MIB * 3 // 2
MESSAGE_MAX = 2 * MIB
TOO_LARGE = "etcdserver: request is too large"


@pytest.mark.parametrize("size", [16 * KIB, 64 * KIB + 1, MIB, REQUEST_MAX - KIB])
def test_a_large_value_comes_back_as_it_was(client: Client, key: bytes, size: int) -> None:
    value = (bytes(range(251)) * (size // 251 + 1))[:size]
    client.put(key, value)
    assert client.range(key).kvs[0].value == value
    assert client.put(key, prev_kv=True).prev_kv.value == value


def test_an_answer_may_be_larger_than_a_request(client: Client, key: bytes) -> None:
    for number in range(5):
        client.put(key + b"%d" % number, b"%d" % number * MIB)
    answer = client.range(key, prefix_end(key))
    assert [pair.value[:1] * MIB == pair.value for pair in answer.kvs] == [True] * 5


@pytest.mark.parametrize("size", [REQUEST_MAX, MESSAGE_MAX - KIB])
def test_a_request_of_more_than_one_and_a_half_mib_is_refused(
    client: Client, key: bytes, size: int
) -> None:
    with fails(StatusCode.INVALID_ARGUMENT, TOO_LARGE):
        client.put(key, b"v" * size)
    assert client.range(key).count == 0


def test_a_request_that_is_both_too_large_and_wrong_is_wrong(client: Client) -> None:
    with fails(StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided"):
        client.put(b"", b"v" * REQUEST_MAX)


def test_a_large_key_may_be_read(client: Client, key: bytes) -> None:
    assert client.range(key * (REQUEST_MAX // len(key) + 1)).count == 0


def message_of(size: int) -> bytes:
    request = PutRequest(key=b"k", value=b"v")
    while (missing := size - request.ByteSize()) != 0:
        request.value = b"v" * (len(request.value) + missing)
    return request.SerializeToString()


def test_a_message_of_two_mib_is_still_read(client: Client) -> None:
    with fails(StatusCode.INVALID_ARGUMENT, TOO_LARGE):
        client.raw("/etcdserverpb.KV/Put", message_of(MESSAGE_MAX))


@pytest.mark.parametrize("size", [MESSAGE_MAX + 1, 3 * MIB])
def test_a_message_of_more_is_not(client: Client, size: int) -> None:
    text = f"grpc: received message larger than max ({size} vs. {MESSAGE_MAX})"
    with fails(StatusCode.RESOURCE_EXHAUSTED, text):
        client.raw("/etcdserverpb.KV/Put", message_of(size))


def test_a_message_of_more_ends_a_stream(client: Client) -> None:
    text = f"grpc: received message larger than max ({3 * MIB} vs. {MESSAGE_MAX})"
    with fails(StatusCode.RESOURCE_EXHAUSTED, text):
        next(client.raw_stream("/etcdserverpb.Watch/Watch", iter([message_of(3 * MIB)])))


def test_the_connection_survives_what_was_refused(client: Client, key: bytes) -> None:
    with pytest.raises(RpcError):
        client.raw("/etcdserverpb.KV/Put", message_of(3 * MIB))
    client.put(key, b"v")
    assert client.range(key).count == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etcdserverpb.KV/Nothing", "unknown method Nothing for service etcdserverpb.KV"),
        ("/etcdserverpb.Nothing/Put", "unknown service etcdserverpb.Nothing"),
        ("/KV/Put", "unknown service KV"),
        ("/etcdserverpb.KV/put", "unknown method put for service etcdserverpb.KV"),
    ],
)
def test_an_unknown_method_is_unimplemented(client: Client, path: str, text: str) -> None:
    with fails(StatusCode.UNIMPLEMENTED, text):
        client.raw(path, b"")


@pytest.mark.parametrize("body", [b"\x0a", b"\x0a\x05ab", b"\xff", b"\x08\x01\x0a\x7f"])
def test_a_message_that_is_none_is_an_internal_error(client: Client, body: bytes) -> None:
    with pytest.raises(RpcError) as error:
        client.raw("/etcdserverpb.KV/Range", body)
    assert error.value.code() == StatusCode.INTERNAL
    assert str(error.value.details()).startswith("grpc: error unmarshalling request: ")


def test_unknown_fields_are_ignored(client: Client, key: bytes) -> None:
    unknown = b"\xfa\x7f\x03abc"
    client.raw(
        "/etcdserverpb.KV/Put", PutRequest(key=key, value=b"v").SerializeToString() + unknown
    )
    body = client.raw("/etcdserverpb.KV/Range", unknown + RangeRequest(key=key).SerializeToString())
    assert key in body
