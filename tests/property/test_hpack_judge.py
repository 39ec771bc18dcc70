"""Header blocks, judged by the library `hpack`: what it encodes, and what nobody should send.

The two must agree on every block, on the fields, on the dynamic table after it, and on refusal.
Where the judge is not asked, because it decides otherwise than we want:

- a header list over the limit: the judge gives up at once and its table is then unusable, ours goes
  on to the end of the block. So the judge has no limit here, and the size of its list is compared
  with ours;
- a `grpc-timeout` is not among our fields: it is taken out of the judge's.

The RFC leaves open how long an integer may be; both allow five bytes behind the prefix.
"""

from typing import Final, TypeVar

import hpack
import pytest
from hpack.hpack import encode_integer
from hypothesis import given
from hypothesis import strategies as st

from leasehold.http2.hpack import (
    MAX_KNOWN_TIMEOUT_BYTES,
    MAX_SIZE_UPDATES,
    HeaderDecoder,
    HeaderError,
    HeaderListTooLarge,
)
from leasehold.http2.hpack_tables import STATIC_TABLE, HuffmanError, decode_huffman, encode_huffman
from tests.property.support import effort

Drawn = TypeVar("Drawn")
Pairs = list[tuple[bytes, bytes]]
Calls = list[tuple[list[int], list[tuple[bytes, bytes, bool]], bool]]
"""Per call: sizes the encoder gives its table first, fields (with: sensitive?), and Huffman or not.
"""

UNLIMITED: Final = 2**40
MAX_LIST_BYTES: Final = 300  # few enough to be met often
TIMEOUT: Final = b"grpc-timeout"


class Peers:
    """Our decoder and the judge, on the same connection."""

    def __init__(self) -> None:
        self.ours = HeaderDecoder(max_list_bytes=MAX_LIST_BYTES)
        self.judge = hpack.Decoder(max_header_list_size=UNLIMITED)

    def agree_on(self, block: bytes) -> Pairs | None:
        """Let both decode a block, compare, and give its fields; None if both refuse it."""
        try:
            judged = [(header[0], header[1]) for header in self.judge.decode(block, raw=True)]
        except hpack.HPACKError:
            with pytest.raises(HeaderError):
                self.ours.decode(block)
            return None
        list_bytes = sum(len(name) + len(value) + 32 for name, value in judged)
        try:
            fields = self.ours.decode(block)
        except HeaderListTooLarge:
            assert list_bytes > MAX_LIST_BYTES
        except HeaderError as error:
            if f"at most {MAX_SIZE_UPDATES} table size updates" in str(error):
                return None  # RFC 7541, 4.2; the judge has no such limit
            raise
        else:
            assert list_bytes <= MAX_LIST_BYTES
            assert [(f.name, f.value) for f in fields] == [p for p in judged if p[0] != TIMEOUT]
            timeouts = [value for name, value in judged if name == TIMEOUT]
            kept = timeouts[-1][:MAX_KNOWN_TIMEOUT_BYTES] if timeouts else None
            assert self.ours.timeout == kept
        self.compare_tables()
        return judged

    def compare_tables(self) -> None:
        entries = self.ours._table[: -len(STATIC_TABLE)]
        judged = self.judge.header_table.dynamic_entries
        assert [(e.name, e.value) for e in reversed(entries)] == list(judged)


def _rarely(
    rare: st.SearchStrategy[Drawn], usual: st.SearchStrategy[Drawn]
) -> st.SearchStrategy[Drawn]:
    """Draw seldom what both must refuse, or a connection gets nowhere, and what takes long."""
    return st.integers(0, 19).flatmap(lambda lot: rare if lot == 13 else usual)


names = st.sampled_from(
    [b":path", b":authority", b"te", b"user-agent", TIMEOUT, b"x", b"", b"token"]
) | st.binary(max_size=12)
values = _rarely(
    st.sampled_from([3000, 4063, 4064, 9000]).map(lambda length: b"v" * length),
    st.sampled_from([b"", b"/", b"trailers", b"http", b"1S", b"4999123u"]) | st.binary(max_size=40),
)
headers = st.lists(st.tuples(names, values, st.booleans()), max_size=8)
# A block has at most two size updates; the library would write as many as there were.
table_sizes = st.lists(st.sampled_from([0, 33, 64, 100, 1000, 4095, 4096]), max_size=2)
calls = st.lists(st.tuples(table_sizes, headers, st.booleans()), min_size=1, max_size=6)


def _encoded(calls: Calls) -> list[bytes]:
    encoder = hpack.Encoder()
    blocks = []
    for sizes, fields, coded in calls:
        for size in sizes:
            # Told its own size again, the encoder forgets to announce a change before.
            if size != encoder.header_table_size:
                encoder.header_table_size = size
        blocks.append(encoder.encode(fields, huffman=coded))
    return blocks


@given(calls)
@effort(60)
def test_what_the_library_encodes_is_decoded_to_the_same_fields(calls: Calls) -> None:
    peers = Peers()
    for block, (_, fields, _) in zip(_encoded(calls), calls, strict=True):
        assert peers.agree_on(block) == [(name, value) for name, value, _ in fields]


timeouts = st.sampled_from([b"4999123u", b"1S", b""]) | st.binary(max_size=30)
around = st.lists(st.tuples(names, values), max_size=3)
literals = st.sampled_from([(4, 0x00), (4, 0x10), (6, 0x40)])
"""A field that does not enter the table, must not, or might: prefix and pattern."""


def _literal(name: bytes, value: bytes, form: tuple[int, int], *, coded: bool) -> bytes:
    """Encode a field with its name, as a peer without a table has to."""
    data = [encode_huffman(each) if coded else each for each in (name, value)]
    lengths = [_integer(len(each), 7, 0x80 if coded else 0x00, 0) for each in data]
    head = _integer(0, *form, 0)
    return head + lengths[0] + data[0] + lengths[1] + data[1]


@given(
    st.lists(around, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), timeouts), min_size=4, max_size=12),
    literals,
    st.booleans(),
    st.lists(st.binary(max_size=3), max_size=2),
)
@effort(100)
def test_blocks_of_a_peer_without_a_table_may_differ_in_their_timeout_only(
    parts: list[list[tuple[bytes, bytes]]],
    blocks: list[tuple[int, int, bytes]],
    form: tuple[int, int],
    coded: bool,
    odd: list[bytes],
) -> None:
    """What is known of a block but for its timeout is what the block says, wherever it is cut."""
    peers = Peers()
    peers.agree_on(b"\x20")
    mark = _literal(TIMEOUT, b"", form, coded=coded)[:-1]
    for before, behind, timeout in blocks:
        first, last = (
            b"".join([_literal(*field, form, coded=coded) for field in parts[at % len(parts)]])
            for at in (before, behind)
        )
        block = first + _literal(TIMEOUT, timeout, form, coded=coded) + last
        assert peers.agree_on(block) is not None
        misleading = _literal(b"x", mark + timeout[:3], form, coded=False)
        assert peers.agree_on(misleading + block) is not None
        assert peers.agree_on(block + misleading) is not None
    for end in odd:
        if peers.agree_on(block[: -len(end) or None] + end) is None:
            return


def test_a_table_that_comes_back_makes_known_blocks_unknown() -> None:
    """Without a table an index is of the static one; with one it may be of another field."""
    peers = Peers()
    first = b"\x20" + _literal(TIMEOUT, b"1S", (6, 0x40), coded=True)
    for block in (first, first[1:], b"\x3f\xe1\x1f", first[1:], b"\xbe", first[1:], b"\xbf"):
        assert peers.agree_on(block) is not None


def _integer(number: int, prefix_bits: int, pattern: int, zeros: int) -> bytes:
    """Encode an integer, drawn out by bytes that add nothing to it, as a peer may."""
    coded = encode_integer(number, prefix_bits)
    coded[0] |= pattern
    if zeros and len(coded) > 1:
        coded[-1] |= 0x80
        coded += b"\x80" * (zeros - 1) + b"\x00"
    return bytes(coded)


zeros = _rarely(st.integers(4, 6), st.integers(0, 3))
indices = _rarely(
    st.integers(0, 300) | st.sampled_from([2**14, 2**32, 2**36]),
    st.integers(1, 61) | st.sampled_from([1, 62]),
)
resizes = st.builds(
    _integer,
    _rarely(
        st.sampled_from([4097, 2**33]), st.integers(0, 200) | st.sampled_from([1000, 4095, 4096])
    ),
    st.just(5),
    st.just(0x20),
    zeros,
)
indexed = st.builds(_integer, indices, st.just(7), st.just(0x80), zeros)


def _string(text: bytes, zeros: int) -> bytes:
    return _integer(len(text), 7, 0, zeros) + text


def _coded(text: bytes, zeros: int) -> bytes:
    return _integer(len(text), 7, 0x80, zeros) + text


strings = _rarely(
    st.builds(_coded, st.binary(max_size=6), zeros),
    st.builds(_string, names | values, zeros)
    | st.builds(_coded, (names | values).map(encode_huffman), zeros),
)
patterns = st.sampled_from([(6, 0x40), (6, 0x40), (4, 0x00), (4, 0x10)])
literals = st.builds(
    lambda kind, index, drawn, value: _integer(index, kind[0], kind[1], drawn) + value,
    patterns,
    indices.filter(bool),
    zeros,
    strings,
) | st.builds(lambda kind, name, value: bytes([kind[1]]) + name + value, patterns, strings, strings)
pieces = st.one_of(indexed, literals, literals, indexed)
blocks = st.builds(
    lambda sizes, fields, rest: b"".join([*sizes, *fields, rest]),
    st.lists(resizes, max_size=2),
    st.lists(pieces, max_size=8),
    _rarely(resizes | st.binary(max_size=4), st.just(b"")),
)


@given(st.lists(blocks, min_size=1, max_size=6))
@effort(50)
def test_blocks_put_together_from_any_parts_are_accepted_or_refused_by_both(
    blocks: list[bytes],
) -> None:
    peers = Peers()
    for block in blocks:
        # The second time it may come from the memo, or mean something else by then.
        if peers.agree_on(block) is None or peers.agree_on(block) is None:
            return


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
@effort(200)
def test_random_bytes_are_accepted_or_refused_by_both(blocks: list[bytes]) -> None:
    peers = Peers()
    for block in blocks:
        if peers.agree_on(block) is None:
            return


@given(calls, st.data())
@effort(60)
def test_a_damaged_block_is_accepted_or_refused_by_both(calls: Calls, data: st.DataObject) -> None:
    peers = Peers()
    for block in _encoded(calls):
        at = data.draw(st.integers(0, len(block)))
        length = data.draw(st.integers(0, 3))
        damaged = block[:at] + data.draw(st.binary(max_size=3)) + block[at + length :]
        if peers.agree_on(damaged) is None:
            return


@given(st.binary(max_size=40))
@effort(200)
def test_any_bytes_are_the_same_huffman_string_to_both_or_none(coded: bytes) -> None:
    try:
        judged = hpack.huffman_table.decode_huffman(coded)
    except hpack.HPACKDecodingError:
        judged = None
    try:
        ours = decode_huffman(coded)
    except HuffmanError:
        ours = None
    assert ours == judged


@given(st.binary(max_size=200))
@effort(80)
def test_any_text_survives_the_huffman_code(text: bytes) -> None:
    assert decode_huffman(encode_huffman(text)) == text
