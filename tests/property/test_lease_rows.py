"""Rows with nothing but leases in them, read at once, judged by what reads all rows."""

import struct
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from leasehold.errors import DamagedJournal
from leasehold.journal import records
from leasehold.journal.records import GRANTED, PROMISED, read_lease_row
from leasehold.wire.codec import long_varint
from tests.property.support import effort

ids = st.integers(0, 2**63 - 1) | st.integers(0, 63).map(lambda bits: (1 << bits) - 1)
terms = st.floats(allow_nan=False)
granted = st.builds(lambda lease, term: records.granted(long_varint(lease), term), ids, terms)
promised = st.builds(lambda lease, term: records.promised(long_varint(lease), term), ids, terms)
others = st.one_of(
    st.builds(lambda lease: records.granted(long_varint(lease), 1.0), st.integers(-(2**63), -1)),
    st.builds(lambda lease: records.granted(long_varint(lease), 1.0, "ann"), ids),
    st.builds(lambda lease: records.ended(long_varint(lease)), ids),
    st.builds(records.deleted, st.binary(min_size=1, max_size=20), st.integers(1, 2**40)),
    st.builds(records.compacted, st.integers(1, 2**40)),
    st.just(records.put(b"\x0a\x01k")),
)
leases = st.lists(granted | promised, min_size=1, max_size=20)
damage = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3)

Seen = tuple[int, bytes, int, bytes]


def at_once(changes: bytes) -> list[Seen] | None:
    found = read_lease_row(changes)
    return None if found is None else [(*rest, _data(term)) for *rest, term in found]  # type: ignore[misc]


def one_by_one(changes: bytes) -> list[Seen]:
    return [_seen(record) for record in records.decode(changes)]


def _seen(record: records.Record) -> Seen:
    match record:
        case records.GrantedRecord(lease, term, ""):
            return GRANTED, long_varint(lease), lease, _data(term)
        case records.PromisedRecord(lease, term):
            return PROMISED, long_varint(lease), lease, _data(term)
    raise AssertionError(f"{record} is read at once, and should not be")


def _data(term: float) -> bytes:
    return struct.pack("<d", term)  # whatever it is equal to


@effort(300)
@given(leases)
def test_a_row_of_leases_is_read_as_it_was_written(changes: Sequence[bytes]) -> None:
    row = b"".join(changes)
    assert at_once(row) == one_by_one(row)


@effort(200)
@given(st.lists(granted | promised | others, max_size=5), others, st.lists(granted, max_size=5))
@example([], b"", [])
def test_a_row_with_anything_else_in_it_is_left_to_the_other_reader(
    before: Sequence[bytes], other: bytes, after: Sequence[bytes]
) -> None:
    assert at_once(b"".join((*before, other, *after))) is None


@effort(500)
@given(leases, damage, st.integers(0, 400), st.integers(0, 3))
def test_a_row_that_is_not_as_it_was_written_is_read_as_the_other_reader_does(
    changes: Sequence[bytes], data: Sequence[tuple[int, int]], cut_at: int, cut: int
) -> None:
    row = bytearray(b"".join(changes))
    for at, byte in data:
        row[at % len(row)] = byte
    del row[cut_at : cut_at + cut]
    found = at_once(bytes(row))
    try:
        expected = None if found is None else one_by_one(bytes(row))
    except DamagedJournal:
        expected = None
    assert found == expected
