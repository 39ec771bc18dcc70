"""Short messages are read as protobuf reads them, or not at all."""

from hypothesis import example, given
from hypothesis import strategies as st

from leasehold.wire.codec import short_key, short_lease, short_put
from leasehold.wire.rpc_pb2 import LeaseGrantRequest, PutRequest, RangeRequest

pieces = st.binary(max_size=140)
leases = st.sampled_from([0, 0, 1, 127, 128, (1 << 62) + 1, (1 << 63) - 1, -1])


@given(key=pieces)
def test_a_short_key_is_read_and_nothing_else_is(key: bytes) -> None:
    message = RangeRequest(key=key).SerializeToString()
    assert short_key(message) == (key if 0 < len(key) < 128 else None)


@given(key=pieces, value=pieces, lease=leases)
def test_a_short_put_is_read_and_nothing_else_is(key: bytes, value: bytes, lease: int) -> None:
    message = PutRequest(key=key, value=value, lease=lease).SerializeToString()
    is_short = 0 < len(key) < 128 and 0 < len(value) < 128 and lease >= 0
    assert short_put(message) == ((key, value, lease) if is_short else None)


@given(lease=st.sampled_from([0, 0, 1, -1]), ttl_s=st.integers(-2, 300))
def test_a_short_grant_is_read_and_nothing_else_is(lease: int, ttl_s: int) -> None:
    message = LeaseGrantRequest(ID=lease, TTL=ttl_s).SerializeToString()
    is_short = not lease and 0 < ttl_s < 128
    assert short_lease(message) == ((0, ttl_s) if is_short else None)


@given(message=st.binary(max_size=300) | st.binary(max_size=2))
@example(message=b"\x0a\xc8" + bytes(200))  # 0xc8 is 200, and the first byte of a longer length
@example(message=b"\x0a\x01k\x12\xc8" + bytes(200))
@example(message=b"\x0a\x01k\x12\x01v\x18\x07")
@example(message=b"\x0a\x01k\x12\x01v\x18\x07\x00")
@example(message=b"\x0a\x01k\x12\x01v\x18\x80\x00")
@example(message=b"\x0a\x01k\x12\x01v\x18\x87")
@example(message=b"\x0a\x01k\x12\x01v\x18" + b"\xff" * 9 + b"\x01")
@example(message=b"\x0a\x01k\x12\x01v\x18")
@example(message=b"\x0a\x7f")
@example(message=b"\x0a")
@example(message=b"")
def test_whatever_is_read_from_any_bytes_is_what_protobuf_reads(message: bytes) -> None:
    key = short_key(message)
    if key is not None:
        assert RangeRequest.FromString(message) == RangeRequest(key=key)
    put = short_put(message)
    if put is not None:
        key, value, lease = put
        assert PutRequest.FromString(message) == PutRequest(key=key, value=value, lease=lease)
    grant = short_lease(message)
    if grant is not None:
        assert LeaseGrantRequest.FromString(message) == LeaseGrantRequest(TTL=grant[1])
