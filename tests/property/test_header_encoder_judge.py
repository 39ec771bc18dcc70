"""Header blocks that we encode, judged by the decoder of the library `hpack` and by our own."""

from hpack.hpack import decode_integer
from hypothesis import given
from hypothesis import strategies as st

from leasehold.http2.header_encoder import Fields, HeaderEncoder, integer
from leasehold.http2.hpack import DEFAULT_TABLE_BYTES
from tests.property.support import effort
from tests.support.header_judges import SECRETS, Judges

names = st.sampled_from([b":path", b":status", b"content-type", b"x-a", b"x-b", *SECRETS]) | (
    st.binary(min_size=1, max_size=30).filter(lambda name: name != b"grpc-timeout")
)
values = (
    st.sampled_from([b"", b"200", b"/", b"application/grpc", b"x" * 200])
    | st.binary(max_size=40)
    | st.integers(0, 5_000).map(lambda length: b"v" * length)
)
fields_of_a_block = st.lists(st.tuples(names, values), max_size=6).map(tuple)
table_sizes = st.sampled_from([0, 1, 100, 4_095, 4_096, 65_536])


@effort(200)
@given(st.lists(fields_of_a_block | table_sizes, max_size=30))
def test_decoders_understand_any_sequence_of_blocks_and_table_sizes(
    steps: list[Fields | int],
) -> None:
    encoder, judges = HeaderEncoder(), Judges()
    for step in steps:
        if isinstance(step, int):
            encoder.set_table_size(step)
            judges.theirs.max_allowed_table_size = step
        else:
            assert judges.read(encoder.encode(step)) == step


@effort(100)
@given(st.lists(fields_of_a_block, min_size=1, max_size=5), st.data())
def test_blocks_that_come_again_and_again_are_still_understood(
    blocks: list[Fields], data: st.DataObject
) -> None:
    encoder, judges = HeaderEncoder(), Judges()
    for _ in range(30):
        fields = data.draw(st.sampled_from(blocks))
        assert judges.read(encoder.encode(fields)) == fields


@effort(100)
@given(st.lists(fields_of_a_block, max_size=40))
def test_the_table_of_the_peer_never_overflows_so_nothing_is_evicted(blocks: list[Fields]) -> None:
    encoder, judges = HeaderEncoder(), Judges()
    for fields in blocks:
        before = list(judges.theirs.header_table.dynamic_entries)
        judges.read(encoder.encode(fields))
        after = list(judges.theirs.header_table.dynamic_entries)
        assert after[len(after) - len(before) :] == before
        assert judges.theirs.header_table._current_size <= DEFAULT_TABLE_BYTES


@effort(200)
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_integers_are_encoded_as_the_rfc_says(number: int, prefix: int) -> None:
    encoded = integer(number, prefix, 0)
    assert decode_integer(encoded, prefix) == (number, len(encoded))
