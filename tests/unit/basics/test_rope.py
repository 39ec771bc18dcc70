"""Bytes in pieces: what goes in comes out, in any portions."""

from hypothesis import given
from hypothesis import strategies as st

from leasehold.basics.rope import Rope

_pieces = st.lists(st.binary(max_size=9), max_size=9)


@given(_pieces, _pieces, st.lists(st.integers(0, 20), max_size=9))
def test_what_goes_in_comes_out(first: list[bytes], more: list[bytes], sizes: list[int]) -> None:
    rope, expected = Rope(first), b"".join(first)
    for index, size in enumerate(sizes):
        assert (rope.peek(size), len(rope)) == (expected[:size], len(expected))
        if index % 2:
            rope.skip(size)
        else:
            assert rope.take(size) == expected[:size]
        expected = expected[size:]
        assert (b"".join(rope), bool(rope)) == (expected, bool(expected))
        if more:
            rope.extend(more[0])
            expected += more.pop(0)
    rope.add(more)
    assert rope.take(1000) == expected + b"".join(more)
    assert not rope


def test_a_piece_that_is_given_whole_is_not_copied() -> None:
    long = bytes(1000)
    rope = Rope([b"head", long, b"tail"])
    rope.skip(4)
    assert next(iter(rope)) is long
    assert rope.take(len(long)) is long
