"""A lease as bytes: both forms, every kind of name, and every kind of damage."""

import math
import struct
import zlib
from typing import Any

import pytest

from leasehold.basics.durations import NEVER
from leasehold.leases.lease_codec import (
    MAX_LEASE_BYTES,
    VERSION,
    EncodedEnd,
    EncodedLease,
    decode,
    encode,
)

RECORD = EncodedLease(EncodedEnd.DURATION, 12.5, "grantor", "cookie")


def _with_checksum(body: bytes) -> bytes:
    return body + struct.pack(">I", zlib.crc32(body))


def _header(*, form: int = 1, end_s: float = 1.0) -> bytes:
    return struct.pack(">2sBBd", b"LH", VERSION, form, end_s)


def _name(tag: bytes, data: bytes) -> bytes:
    return struct.pack(">cI", tag, len(data)) + data


@pytest.mark.parametrize("form", EncodedEnd)
@pytest.mark.parametrize("end_s", [0.0, 12.5, 1.75e9, 1e300, 5e-324, NEVER])
def test_both_forms_round_trip_forever_included(form: EncodedEnd, end_s: float) -> None:
    record = EncodedLease(form, end_s, "grantor", "cookie")
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "name",
    ["", "a", "ü€𝄞", b"", b"\x00\xff", 0, 1, -1, 127, 128, 255, -128, -129, 2**63, -(2**200)],
)
def test_every_kind_of_name_round_trips_as_what_it_was(name: str | bytes | int) -> None:
    record = EncodedLease(EncodedEnd.DURATION, 1.0, name, name)
    again = decode(encode(record))
    assert again == record
    assert type(again.grantor) is type(again.cookie) is type(name)


@pytest.mark.parametrize("name", [None, True, 1.5, ("a", 1), frozenset(), object()])
@pytest.mark.parametrize("field", ["grantor", "cookie"])
def test_a_name_of_another_kind_cannot_be_encoded(field: str, name: Any) -> None:
    with pytest.raises(TypeError, match=f"{field} must be bytes, str or int") as caught:
        encode(RECORD._replace(**{field: name}))
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_is_decoded(wrap: Any) -> None:
    assert decode(wrap(encode(RECORD))) == RECORD


@pytest.mark.parametrize("data", [None, "LH", 5, [1, 2]])
def test_what_is_not_bytes_is_a_type_error(data: Any) -> None:
    with pytest.raises(TypeError, match=f"must be bytes, not {type(data).__name__}"):
        decode(data)


def test_a_lease_too_long_to_encode_is_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_LEASE_BYTES} bytes"):
        encode(RECORD._replace(cookie=b"x" * MAX_LEASE_BYTES))


def test_the_longest_lease_round_trips() -> None:
    room = MAX_LEASE_BYTES - len(encode(RECORD._replace(cookie=b"")))
    record = RECORD._replace(cookie=b"x" * room)
    assert len(encode(record)) == MAX_LEASE_BYTES
    assert decode(encode(record)) == record


def test_more_bytes_than_any_lease_has_are_refused_unread() -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_LEASE_BYTES} bytes"):
        decode(b"LH" + bytes(MAX_LEASE_BYTES))


@pytest.mark.parametrize("data", [b"", b"L", b"LH", b"LH\x01", bytes(100), b"HL" + bytes(40)])
def test_what_does_not_begin_like_a_lease_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not an encoded lease"):
        decode(data)


def test_a_later_version_is_refused_by_its_number() -> None:
    body = bytearray(encode(RECORD)[:-4])
    body[2] = 9
    with pytest.raises(ValueError, match="must have version 1, got 9"):
        decode(_with_checksum(bytes(body)))


def test_every_flipped_bit_is_noticed() -> None:
    data = encode(RECORD)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="lease"):
            decode(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    data = encode(RECORD)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="lease"):
            decode(data[:length])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_header(form=3) + _name(b"s", b"g") * 2, "must be 1 or 2, got 3"),
        (_header(form=0) + _name(b"s", b"g") * 2, "must be 1 or 2, got 0"),
        (_header(end_s=math.nan) + _name(b"s", b"g") * 2, "end must be a time or inf, got nan"),
        (_header(end_s=-math.inf) + _name(b"s", b"g") * 2, "end must be a time or inf, got -inf"),
        (_header(), "truncated"),
        (_header() + _name(b"s", b"g"), "truncated"),
        (_header() + struct.pack(">cI", b"s", 2**32 - 1) + b"g", "truncated"),
        (_header() + _name(b"s", b"g") * 2 + b"xyz", "3 extra bytes"),
        (_header() + _name(b"q", b"g") * 2, "unknown kind b'q'"),
        (_header() + _name(b"s", b"\xff") * 2, "codec can't decode"),
    ],
)
def test_bytes_that_no_release_wrote_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(_with_checksum(body))


def test_the_layout_is_fixed_since_stored_leases_must_stay_readable() -> None:
    assert encode(EncodedLease(EncodedEnd.ABSOLUTE, 1.0, "g", 5)).hex() == (
        "4c4801023ff00000000000007300000001676900000001053b16e51b"
    )


def test_a_number_that_nobody_could_print_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 256 bytes"):
        encode(EncodedLease(EncodedEnd.DURATION, 20.0, "office", 10**6000))
