"""The fast encoders give the bytes that protobuf gives."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leasehold.wire.codec import ResponseHeaderEncoder, field, key_value, varint
from leasehold.wire.kv_pb2 import KeyValue
from leasehold.wire.rpc_pb2 import PutResponse, ResponseHeader

MIN_INT64, MAX_INT64, MAX_UINT64 = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
# Each length of a varint has numbers at both of its ends; most of an even draw has ten bytes.
EDGES = sorted({n for bit in range(0, 64, 7) for n in ((1 << bit) - 1, 1 << bit, (1 << bit) + 1)})
of_any_length = st.integers(0, 62).flatmap(lambda bits: st.integers(0, 1 << bits))
int64 = st.one_of(
    st.sampled_from([*(n for n in EDGES if n <= MAX_INT64), MIN_INT64, MAX_INT64, -1]),
    of_any_length,
    st.integers(MIN_INT64, MAX_INT64),
)
uint64 = st.one_of(st.sampled_from([*EDGES, MAX_UINT64]), st.integers(0, MAX_UINT64))
# Drawn from all of int64, three numbers would hardly ever make a pair as real ones are.
revision = st.one_of(st.integers(1, 1 << 16), st.integers(1, 1 << 29), int64)
some_bytes = st.one_of(
    st.binary(max_size=300),
    st.builds(lambda size: b"\x00" * size, st.sampled_from([127, 128, 16383, 16384, 1 << 20])),
)
every_example = settings(deadline=None, derandomize=True, max_examples=200)


def by_protobuf(n: int) -> bytes:
    """Take the varint out of a message that has nothing else."""
    if n > MAX_INT64:
        return ResponseHeader(cluster_id=n).SerializeToString()[1:]
    return KeyValue(lease=n).SerializeToString()[1:]


@every_example
@given(st.one_of(int64, uint64).filter(bool))
def test_a_varint_is_protobufs(n: int) -> None:
    assert varint(n) == by_protobuf(n)


@pytest.mark.parametrize("n", [*EDGES, MAX_INT64, MAX_UINT64, -1, MIN_INT64])
def test_a_varint_at_the_edge_of_each_length_is_protobufs(n: int) -> None:
    assert varint(n) == (by_protobuf(n) if n else b"\x00")


def test_a_varint_of_a_usual_revision_is_protobufs() -> None:
    for n in range(1 << 14, 1 << 22, 9973):
        assert varint(n) == by_protobuf(n)


@pytest.mark.parametrize("n", [MAX_UINT64 + 1, MIN_INT64 - 1])
def test_a_number_of_more_than_64_bits_is_refused(n: int) -> None:
    with pytest.raises(AssertionError, match="64 bits"):
        varint(n)


@every_example
@given(some_bytes, revision, revision, revision, some_bytes, int64)
@example(b"", 0, 0, 0, b"", 0)
@example(b"k", 5, 5, 1, b"v", 0)
@example(b"k", 5, 5, 1, b"v", MIN_INT64)
@example(b"k", 5, 5, 1, b"", -1)
@example(b"k", 5, 1 << 28, (1 << 28) - 4, b"v", 1)
@example(b"k", 1 << 14, (1 << 28) - 1, (1 << 14) - 1, b"v", 1 << 62)
@example(b"k" * 16384, (1 << 14) - 1, 1 << 14, 1 << 14, b"v" * 16383, 0)
def test_a_key_value_is_protobufs(
    key: bytes, create_revision: int, mod_revision: int, version: int, value: bytes, lease: int
) -> None:
    fields = (key, create_revision, mod_revision, version, value, lease)
    names = ("key", "create_revision", "mod_revision", "version", "value", "lease")
    message = KeyValue()
    for name, content in zip(names, fields, strict=True):
        setattr(message, name, content)
    assert key_value(*fields) == message.SerializeToString()


@every_example
@given(uint64, uint64, uint64, st.lists(int64, max_size=5))
def test_a_header_is_protobufs_whatever_was_encoded_before(
    cluster_id: int, member_id: int, term: int, revisions: list[int]
) -> None:
    encoder = ResponseHeaderEncoder(cluster_id, member_id, term)
    for revision in [0, *revisions, *revisions[-1:]]:
        header = ResponseHeader(
            cluster_id=cluster_id, member_id=member_id, revision=revision, raft_term=term
        )
        assert encoder.encode(revision) == PutResponse(header=header).SerializeToString()


def test_the_header_of_the_same_revision_is_made_once() -> None:
    encoder = ResponseHeaderEncoder(1, 2, 3)
    assert encoder.encode(7) is encoder.encode(7)


@given(st.integers(1, (1 << 29) - 1), some_bytes)
@settings(deadline=None, derandomize=True)
def test_a_field_is_number_wire_type_length_and_payload(number: int, payload: bytes) -> None:
    tag, length = varint(number * 8 + 2), varint(len(payload))
    assert field(number, payload) == tag + length + payload


def test_header_and_fields_make_a_response() -> None:
    pair = key_value(b"k", 4, 6, 2, b"v", -9)
    response = PutResponse.FromString(ResponseHeaderEncoder(1, 2, 3).encode(6) + field(2, pair))
    assert response.header.revision == 6
    assert response.prev_kv.lease == -9
