"""Encoding of header blocks: what is indexed, what never is, and how large tables and memo get."""

import pytest
from hpack.struct import NeverIndexedHeaderTuple

from leasehold.http2.header_encoder import (
    MAX_MEMO,
    HeaderEncoder,
    literal,
    literals,
)
from leasehold.http2.hpack import DEFAULT_TABLE_BYTES
from leasehold.http2.hpack_tables import STATIC_TABLE
from tests.support.header_judges import SECRETS, Judges


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_never_indexed_neither_by_us_nor_by_anybody_between(name: bytes) -> None:
    encoder, judges = HeaderEncoder(), Judges()
    for _ in range(3):
        block = encoder.encode(((name, b"Basic abc"), (b"x-other", b"1")))
        secret, other = judges.raw(block)
        assert isinstance(secret, NeverIndexedHeaderTuple)
        assert not isinstance(other, NeverIndexedHeaderTuple)
        table = [bytes(entry[0]) for entry in judges.theirs.header_table.dynamic_entries]
        assert table == [b"x-other"]
    [secret] = judges.raw(literal(name, b"x"))
    assert isinstance(secret, NeverIndexedHeaderTuple)


def test_a_field_that_comes_again_is_one_octet() -> None:
    encoder = HeaderEncoder()
    fields = ((b"content-type", b"application/grpc"), (b"x-custom", b"long enough"))
    assert len(encoder.encode(fields)) > 20
    assert len(encoder.encode(fields)) == 2
    assert len(encoder.encode(fields[:1])) == 1


def test_a_field_of_the_static_table_is_one_octet_at_once() -> None:
    encoder = HeaderEncoder()
    for index, field in enumerate(STATIC_TABLE, 1):
        if field.value:
            assert encoder.encode(((field.name, field.value),)) == bytes((0x80 | index,))


def test_a_block_that_changes_the_table_is_not_taken_from_the_memo() -> None:
    encoder, judges = HeaderEncoder(), Judges()
    first, second = ((b"x-first", b"1"),), ((b"x-second", b"2"),)
    assert judges.read(encoder.encode(first)) == first
    assert judges.read(encoder.encode(first)) == first
    assert judges.read(encoder.encode(second)) == second
    assert judges.read(encoder.encode(first)) == first, "its index has moved"


def test_the_memo_is_bounded() -> None:
    encoder, judges = HeaderEncoder(), Judges()
    judges.read(encoder.encode(((b"x-fill", b"x" * 4_000),)))
    for number in range(3 * MAX_MEMO):
        fields = ((b"x-number", b"%d" % number * 10),)
        assert judges.read(encoder.encode(fields)) == fields
        assert len(encoder._memo) <= MAX_MEMO


def test_a_smaller_table_is_said_to_be_empty_once_before_whatever_comes_next() -> None:
    encoder, judges = HeaderEncoder(), Judges()
    fields = ((b"x-a", b"1"),)
    judges.read(encoder.encode(fields))
    encoder.set_table_size(100)
    judges.theirs.max_allowed_table_size = 100
    assert judges.read(encoder.encode(fields)) == fields
    assert judges.theirs.header_table_size == 0
    assert encoder.take_prefix() == b""
    encoder.set_table_size(0)
    assert encoder.take_prefix() == b"", "it is empty already"


def test_whoever_encodes_by_itself_takes_what_must_stand_before() -> None:
    encoder, judges = HeaderEncoder(), Judges()
    judges.read(encoder.encode(((b"x-a", b"1"),)))
    encoder.set_table_size(0)
    judges.theirs.max_allowed_table_size = 0
    plain = ((b"x-b", b"2"),)
    assert judges.read(encoder.take_prefix() + literals(plain)) == plain
    assert judges.read(encoder.encode(plain)) == plain


def test_a_field_that_does_not_fit_is_sent_in_full_each_time() -> None:
    encoder, judges = HeaderEncoder(), Judges()
    large = ((b"x-large", b"x" * DEFAULT_TABLE_BYTES),)
    for _ in range(3):
        block = encoder.encode(large)
        assert len(block) > DEFAULT_TABLE_BYTES
        assert judges.read(block) == large
