"""Header blocks: each rule of RFC 7541, its examples, and what is ours: timeout, memo, limits."""

import hpack
import pytest

from leasehold.http2.hpack import (
    DEFAULT_TABLE_BYTES,
    MAX_FIELDS,
    MAX_HEADER_LIST_BYTES,
    MAX_INTEGER_BYTES,
    MAX_MEMO_BLOCK_BYTES,
    MAX_MEMO_BLOCKS,
    MAX_MEMO_FIELDS,
    Field,
    HeaderDecoder,
    HeaderError,
    HeaderListTooLarge,
)
from leasehold.http2.hpack_tables import KNOWN_NAMES, STATIC_TABLE, encode_huffman

Pairs = list[tuple[bytes, bytes]]


def _pairs(fields: tuple[Field, ...]) -> Pairs:
    return [(field.name, field.value) for field in fields]


def _dynamic(decoder: HeaderDecoder) -> Pairs:
    """The dynamic table as the RFC lists it: newest first."""
    entries = decoder._table[: len(decoder._table) - len(STATIC_TABLE)]
    assert decoder._dynamic_bytes == sum(len(e.name) + len(e.value) + 32 for e in entries)
    return [(entry.name, entry.value) for entry in reversed(entries)]


def _integer(number: int, prefix_bits: int, pattern: int) -> bytes:
    coded = hpack.hpack.encode_integer(number, prefix_bits)
    coded[0] |= pattern
    return bytes(coded)


def _string(text: bytes) -> bytes:
    return _integer(len(text), 7, 0) + text


def _added(name: bytes, value: bytes) -> bytes:
    return b"\x40" + _string(name) + _string(value)


def _plain(name: bytes, value: bytes) -> bytes:
    return b"\x00" + _string(name) + _string(value)


def _resized(size_bytes: int) -> bytes:
    return _integer(size_bytes, 5, 0x20)


@pytest.fixture
def decoder() -> HeaderDecoder:
    return HeaderDecoder()


# -- The examples of appendix C --------------------------------------------------------------------

REQUEST_1 = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
REQUEST_1 += [(b":authority", b"www.example.com")]
REQUEST_2 = [*REQUEST_1, (b"cache-control", b"no-cache")]
REQUEST_3 = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/index.html")]
REQUEST_3 += [(b":authority", b"www.example.com"), (b"custom-key", b"custom-value")]
AUTHORITY = (b":authority", b"www.example.com")
REQUESTS: list[tuple[Pairs, Pairs]] = [
    (REQUEST_1, [AUTHORITY]),
    (REQUEST_2, [(b"cache-control", b"no-cache"), AUTHORITY]),
    (
        REQUEST_3,
        [(b"custom-key", b"custom-value"), (b"cache-control", b"no-cache"), AUTHORITY],
    ),
]

PLACE = (b"location", b"https://www.example.com")
DATE_1 = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
DATE_2 = (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT")
PRIVATE = (b"cache-control", b"private")
COOKIE = (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
GZIP = (b"content-encoding", b"gzip")
RESPONSES: list[tuple[Pairs, Pairs]] = [
    (
        [(b":status", b"302"), PRIVATE, DATE_1, PLACE],
        [PLACE, DATE_1, PRIVATE, (b":status", b"302")],
    ),
    (
        [(b":status", b"307"), PRIVATE, DATE_1, PLACE],
        [(b":status", b"307"), PLACE, DATE_1, PRIVATE],
    ),
    (
        [(b":status", b"200"), PRIVATE, DATE_2, PLACE, GZIP, COOKIE],
        [COOKIE, GZIP, DATE_2],
    ),
]


@pytest.mark.parametrize(
    ("block", "field", "table"),
    [
        (
            "400a637573746f6d2d6b65790d637573746f6d2d686561646572",
            (b"custom-key", b"custom-header"),
            [(b"custom-key", b"custom-header")],
        ),
        ("040c2f73616d706c652f70617468", (b":path", b"/sample/path"), []),
        ("100870617373776f726406736563726574", (b"password", b"secret"), []),
        ("82", (b":method", b"GET"), []),
    ],
    ids=["C.2.1 added", "C.2.2 not indexed", "C.2.3 never indexed", "C.2.4 indexed"],
)
def test_the_representations_of_c_2(
    decoder: HeaderDecoder, block: str, field: tuple[bytes, bytes], table: Pairs
) -> None:
    assert _pairs(decoder.decode(bytes.fromhex(block))) == [field]
    assert _dynamic(decoder) == table


@pytest.mark.parametrize(
    "blocks",
    [
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
    ],
    ids=["C.3 plain", "C.4 Huffman"],
)
def test_the_requests_of_c_3_and_c_4(decoder: HeaderDecoder, blocks: list[str]) -> None:
    for block, (fields, table) in zip(blocks, REQUESTS, strict=True):
        assert _pairs(decoder.decode(bytes.fromhex(block))) == fields
        assert _dynamic(decoder) == table


@pytest.mark.parametrize(
    "blocks",
    [
        [
            (
                "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a3231"
                "20474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d"
            ),
            "4803333037c1c0bf",
            (
                "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a697077"
                "38666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d616765"
                "3d333630303b2076657273696f6e3d31"
            ),
        ],
        [
            (
                "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad17"
                "1863c78f0b97c8e9ae82ae43d3"
            ),
            "4883640effc1c0bf",
            (
                "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6"
                "c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"
            ),
        ],
    ],
    ids=["C.5 plain", "C.6 Huffman"],
)
def test_the_responses_of_c_5_and_c_6_in_a_table_of_256_bytes(blocks: list[str]) -> None:
    decoder = HeaderDecoder(max_table_bytes=256)
    for block, (fields, table) in zip(blocks, RESPONSES, strict=True):
        assert _pairs(decoder.decode(bytes.fromhex(block))) == fields
        assert _dynamic(decoder) == table


# -- The static table and indices ------------------------------------------------------------------


def test_the_static_table_is_that_of_the_library() -> None:
    judge = hpack.table.HeaderTable.STATIC_TABLE
    assert [(field.name, field.value) for field in STATIC_TABLE] == list(judge)


@pytest.mark.parametrize("index", range(1, 62))
def test_an_index_up_to_61_is_an_entry_of_the_static_table(
    decoder: HeaderDecoder, index: int
) -> None:
    assert decoder.decode(bytes([0x80 | index])) == (STATIC_TABLE[index - 1],)


def test_index_0_is_refused(decoder: HeaderDecoder) -> None:
    with pytest.raises(HeaderError, match="index 0"):
        decoder.decode(b"\x82\x80")


@pytest.mark.parametrize("index", [62, 63, 126, 127, 128, 200, 2**31, 2**35 - 1])
@pytest.mark.parametrize(
    ("prefix_bits", "pattern"), [(7, 0x80), (6, 0x40), (4, 0x00), (4, 0x10)], ids=hex
)
def test_an_index_beyond_the_table_is_refused(
    decoder: HeaderDecoder, index: int, prefix_bits: int, pattern: int
) -> None:
    with pytest.raises(HeaderError, match=f"index {index}, the last entry is 61"):
        decoder.decode(_integer(index, prefix_bits, pattern) + b"\x00")


def test_index_62_is_the_newest_entry_and_the_last_the_oldest(decoder: HeaderDecoder) -> None:
    for number in range(100):
        decoder.decode(_added(b"n", b"%d" % number))
    assert _pairs(decoder.decode(_integer(62, 7, 0x80))) == [(b"n", b"99")]
    assert _pairs(decoder.decode(_integer(161, 7, 0x80))) == [(b"n", b"0")]
    with pytest.raises(HeaderError, match="index 162, the last entry is 161"):
        decoder.decode(_integer(162, 7, 0x80))


def test_the_same_entry_is_the_same_object_from_block_to_block(decoder: HeaderDecoder) -> None:
    (added,) = decoder.decode(_added(b"a", b"1"))
    assert decoder.decode(b"\xbe")[0] is added
    decoder.decode(_added(b"b", b"2"))
    assert decoder.decode(b"\x83\xbf") == (STATIC_TABLE[2], added)


def test_equal_fields_of_different_entries_are_not_equal() -> None:
    assert Field(b"a", b"1") != Field(b"a", b"1")
    assert repr(Field(b"a", b"1")) == "Field(b'a', b'1')"


@pytest.mark.parametrize("name", KNOWN_NAMES)
@pytest.mark.parametrize("coded", [False, True])
def test_a_known_name_is_one_object_however_it_came(
    decoder: HeaderDecoder, name: bytes, coded: bool
) -> None:
    text = encode_huffman(name) if coded else name
    length = _integer(len(text), 7, 0x80 if coded else 0)
    fields = decoder.decode(b"\x00" + length + text + b"\x00" + _plain(b"x", b""))
    assert [field.name for field in fields if field.name is KNOWN_NAMES[name]] or (
        name == b"grpc-timeout" and decoder.timeout == b""
    )


# -- Eviction and table size -----------------------------------------------------------------------


def test_the_oldest_entries_make_room(decoder: HeaderDecoder) -> None:
    entry_bytes = 32 + 1 + 31
    for number in range(DEFAULT_TABLE_BYTES // entry_bytes + 3):
        decoder.decode(_added(b"n", b"%031d" % number))
    values = [int(value) for _, value in _dynamic(decoder)]
    assert values == list(range(66, 2, -1))


def test_an_entry_larger_than_the_table_empties_it_and_is_no_error() -> None:
    decoder = HeaderDecoder(max_table_bytes=100)
    decoder.decode(_added(b"a", b"1"))
    too_large = (b"b", b"x" * 68)
    assert _pairs(decoder.decode(_added(*too_large))) == [too_large]
    assert _dynamic(decoder) == []
    just_fits = (b"b", b"x" * 67)
    decoder.decode(_added(*just_fits))
    assert _dynamic(decoder) == [just_fits]


def test_a_name_may_come_from_the_entry_that_its_own_field_evicts() -> None:
    decoder = HeaderDecoder(max_table_bytes=100)
    decoder.decode(_added(b"name", b"x" * 60))
    assert _pairs(decoder.decode(b"\x7e" + _string(b"y"))) == [(b"name", b"y")]
    assert _dynamic(decoder) == [(b"name", b"y")]


def test_an_update_of_the_size_evicts_what_no_longer_fits(decoder: HeaderDecoder) -> None:
    decoder.decode(_added(b"a", b"1") + _added(b"b", b"2"))
    assert decoder.decode(_resized(67)) == ()
    assert _dynamic(decoder) == [(b"b", b"2")]
    decoder.decode(_resized(DEFAULT_TABLE_BYTES) + _added(b"c", b"3"))
    assert _dynamic(decoder) == [(b"c", b"3"), (b"b", b"2")]


def test_two_updates_may_stand_at_the_start_and_empty_the_table(decoder: HeaderDecoder) -> None:
    decoder.decode(_added(b"a", b"1"))
    block = _resized(0) + _resized(DEFAULT_TABLE_BYTES) + b"\x82"
    assert decoder.decode(block) == (STATIC_TABLE[1],)
    assert _dynamic(decoder) == []


@pytest.mark.parametrize("fields", [b"\x82", _plain(b"a", b"1"), _added(b"grpc-timeout", b"1S")])
def test_an_update_behind_a_field_is_refused(decoder: HeaderDecoder, fields: bytes) -> None:
    with pytest.raises(HeaderError, match="update must come before the fields"):
        decoder.decode(fields + _resized(0))


def test_an_update_above_what_was_announced_is_refused() -> None:
    decoder = HeaderDecoder(max_table_bytes=2 * DEFAULT_TABLE_BYTES)
    decoder.decode(_resized(2 * DEFAULT_TABLE_BYTES))
    with pytest.raises(HeaderError, match="at most 8192 bytes, got 8193"):
        decoder.decode(_resized(2 * DEFAULT_TABLE_BYTES + 1))


@pytest.mark.parametrize("size_bytes", [0, 32, 128, DEFAULT_TABLE_BYTES])
def test_the_protocols_own_size_is_tolerated_whatever_was_announced(size_bytes: int) -> None:
    decoder = HeaderDecoder()
    decoder.max_table_bytes = 0
    decoder.decode(_resized(size_bytes) + _added(b"name", b""))
    assert _dynamic(decoder) == ([(b"name", b"")] if size_bytes > 32 else [])


@pytest.mark.parametrize("size_bytes", [1, 31, DEFAULT_TABLE_BYTES + 1])
def test_other_sizes_above_what_was_announced_are_refused(size_bytes: int) -> None:
    decoder = HeaderDecoder()
    decoder.max_table_bytes = 0
    with pytest.raises(HeaderError, match=f"at most 0 bytes, got {size_bytes}"):
        decoder.decode(_resized(size_bytes))


def test_a_third_update_in_a_block_is_refused(decoder: HeaderDecoder) -> None:
    """Two can tell all that happened (section 4.2): the smallest size, and the last one."""
    decoder.decode(_resized(0) + _resized(100))
    with pytest.raises(HeaderError, match="at most 2 table size updates"):
        decoder.decode(_resized(0) + _resized(100) + _resized(0))


def test_a_larger_table_is_used_only_after_the_peer_said_so() -> None:
    decoder = HeaderDecoder(max_table_bytes=2 * DEFAULT_TABLE_BYTES)
    large = (b"a", b"x" * DEFAULT_TABLE_BYTES)
    decoder.decode(_added(*large))
    assert _dynamic(decoder) == []
    decoder.decode(_resized(2 * DEFAULT_TABLE_BYTES) + _added(*large))
    assert _dynamic(decoder) == [large]


# -- What is malformed -----------------------------------------------------------------------------

WHOLE = [
    _resized(1000),
    _integer(140, 7, 0x80),
    _added(b"name", b"value"),
    b"\x40\x88" + bytes.fromhex("25a849e95ba97d7f") + b"\x89" + bytes.fromhex("25a849e95bb8e8b4bf"),
    _integer(130, 6, 0x40) + _string(b"v"),
    _integer(17, 4, 0x10) + _string(b"v" * 300),
]


@pytest.mark.parametrize("whole", WHOLE, ids=bytes.hex)
def test_a_block_that_ends_within_a_field_is_refused(whole: bytes) -> None:
    for length in range(1, len(whole)):
        decoder = HeaderDecoder()
        for _ in range(90):
            decoder.decode(_added(b"a", b""))
        with pytest.raises(HeaderError, match="end"):
            decoder.decode(whole[:length])
    decoder.decode(whole)


def test_an_integer_may_have_five_more_bytes_and_no_more(decoder: HeaderDecoder) -> None:
    zeros = b"\x80" * (MAX_INTEGER_BYTES - 1) + b"\x00"
    text = b"x" * 127
    assert _pairs(decoder.decode(b"\x00\x01a\x7f" + zeros + text)) == [(b"a", text)]
    with pytest.raises(HeaderError, match="at most 5 bytes after its prefix"):
        decoder.decode(b"\x00\x01a\x7f\x80" + zeros + text)


@pytest.mark.parametrize("start", [b"\xff", b"\x7f", b"\x0f", b"\x1f", b"\x3f", b"\x00\x7f"])
def test_an_integer_without_end_is_refused(decoder: HeaderDecoder, start: bytes) -> None:
    with pytest.raises(HeaderError, match="an integer must have at most 5 bytes"):
        decoder.decode(start + b"\xff" * 1000)


@pytest.mark.parametrize(
    ("coded", "message"),
    [(b"\xff\xff\xff\xff", "end-of-string"), (b"\x07\xff", "padding"), (b"\x00", "padding")],
)
def test_a_bad_huffman_string_is_refused_in_name_and_value(
    decoder: HeaderDecoder, coded: bytes, message: str
) -> None:
    text = bytes([0x80 | len(coded)]) + coded
    for block in (b"\x40" + text + b"\x00", b"\x41" + text, b"\x00\x01a" + text):
        with pytest.raises(HeaderError, match=message):
            decoder.decode(block)


def test_an_empty_block_has_no_fields(decoder: HeaderDecoder) -> None:
    assert decoder.decode(b"") == ()


def test_name_and_value_may_be_empty_plain_and_coded(decoder: HeaderDecoder) -> None:
    assert _pairs(decoder.decode(b"\x00\x00\x00\x00\x80\x80")) == [(b"", b"")] * 2


# -- The timeout -----------------------------------------------------------------------------------


def test_the_timeout_is_given_apart_from_the_fields(decoder: HeaderDecoder) -> None:
    fields = decoder.decode(b"\x83" + _added(b"grpc-timeout", b"5S") + b"\x86")
    assert fields == (STATIC_TABLE[2], STATIC_TABLE[5])
    assert decoder.timeout == b"5S"


def test_the_timeout_is_in_the_table_and_can_be_referred_to(decoder: HeaderDecoder) -> None:
    decoder.decode(_added(b"grpc-timeout", b"5S"))
    decoder.decode(b"\x82")
    assert decoder.timeout is None
    for _ in range(2):  # decoded, then from the memo
        assert decoder.decode(b"\x82\xbe") == (STATIC_TABLE[1],)
        assert decoder.timeout == b"5S"
    assert decoder.decode(b"\x82") == (STATIC_TABLE[1],)
    assert decoder.timeout is None


def test_the_last_timeout_of_a_block_counts(decoder: HeaderDecoder) -> None:
    assert decoder.decode(_plain(b"grpc-timeout", b"1S") + _plain(b"grpc-timeout", b"2S")) == ()
    assert decoder.timeout == b"2S"


def test_calls_of_a_go_client_have_the_same_fields_whatever_their_timeout(
    decoder: HeaderDecoder,
) -> None:
    encoder = hpack.Encoder()
    call = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/etcdserverpb.KV/Put")]
    call += [(b":authority", b"localhost:2379"), (b"content-type", b"application/grpc")]
    call += [(b"user-agent", b"grpc-go/1.38.0"), (b"te", b"trailers")]
    seen = set()
    for number in range(1000):
        timeout = b"%du" % (4_999_000 + number)
        fields = decoder.decode(encoder.encode([*call, (b"grpc-timeout", timeout)]))
        assert _pairs(fields) == call
        assert decoder.timeout == timeout
        seen.add(fields)
    assert len(seen) < 1000 // 8  # new objects come only after an eviction


# -- The memo --------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [b"\x82\x84", b"\x82" + _plain(b"a", b"1")], ids=bytes.hex)
def test_a_block_that_changes_nothing_is_decoded_once(decoder: HeaderDecoder, block: bytes) -> None:
    assert decoder.decode(block) is decoder.decode(bytes(bytearray(block)))


def test_what_the_memo_knew_is_dropped_when_an_entry_is_added(decoder: HeaderDecoder) -> None:
    decoder.decode(_added(b"a", b"1"))
    assert _pairs(decoder.decode(b"\xbe")) == [(b"a", b"1")]
    decoder.decode(_added(b"b", b"2"))
    assert _pairs(decoder.decode(b"\xbe")) == [(b"b", b"2")]


def test_what_the_memo_knew_is_dropped_when_an_entry_empties_the_table() -> None:
    decoder = HeaderDecoder(max_table_bytes=100)
    decoder.decode(_added(b"a", b"1"))
    decoder.decode(b"\xbe")
    decoder.decode(_added(b"b", b"x" * 100))
    with pytest.raises(HeaderError, match="index 62"):
        decoder.decode(b"\xbe")


def test_what_the_memo_knew_is_dropped_when_the_table_is_resized(decoder: HeaderDecoder) -> None:
    decoder.decode(_added(b"a", b"1"))
    decoder.decode(b"\xbe")
    decoder.decode(_resized(0))
    with pytest.raises(HeaderError, match="index 62"):
        decoder.decode(b"\xbe")


def test_a_block_that_adds_the_same_entry_again_adds_it_again(decoder: HeaderDecoder) -> None:
    for _ in range(3):
        decoder.decode(_added(b"a", b"1"))
    assert _dynamic(decoder) == [(b"a", b"1")] * 3


def test_the_memo_keeps_no_block_with_a_field_never_to_be_indexed(decoder: HeaderDecoder) -> None:
    decoder.decode(b"\x10" + _string(b"password") + _string(b"secret") + b"\x82")
    assert not decoder._memo


def test_the_memo_is_bounded_in_blocks_and_in_bytes(decoder: HeaderDecoder) -> None:
    for number in range(10 * MAX_MEMO_BLOCKS):
        decoder.decode(_plain(b"a", b"%d" % number))
        assert len(decoder._memo) <= MAX_MEMO_BLOCKS


def test_a_block_over_the_memos_limit_is_decoded_and_not_kept() -> None:
    decoder = HeaderDecoder(max_list_bytes=2**20)
    longest = _plain(b"x", b"y" * (MAX_MEMO_BLOCK_BYTES - 6))
    assert len(longest) == MAX_MEMO_BLOCK_BYTES
    for block in (longest, longest + b"\x82"):
        decoder.decode(block)
    assert list(decoder._memo) == [longest]


def test_a_block_of_more_fields_than_the_memo_keeps_is_decoded_and_not_kept() -> None:
    decoder = HeaderDecoder(max_list_bytes=2**20)
    most = b"\x82" * MAX_MEMO_FIELDS
    for block in (most, most + b"\x82"):
        assert decoder.decode(block) == (STATIC_TABLE[1],) * len(block)
    assert list(decoder._memo) == [most]


# -- Header lists that are too large ---------------------------------------------------------------


def test_the_limit_counts_name_value_and_32_bytes_of_each_field() -> None:
    pair = (b"name", b"x" * 64)
    exact = HeaderDecoder(max_list_bytes=3 * 100)
    assert _pairs(exact.decode(_added(*pair) + b"\xbe\xbe")) == [pair] * 3
    with pytest.raises(HeaderListTooLarge, match="at most 300 bytes, got 400"):
        exact.decode(b"\xbe\xbe\xbe\xbe")


def test_the_limit_counts_timeouts_too() -> None:
    decoder = HeaderDecoder(max_list_bytes=3 * 46)
    block = _plain(b"grpc-timeout", b"1S")
    assert decoder.decode(block * 3) == ()
    with pytest.raises(HeaderListTooLarge, match="bytes, got 184"):
        decoder.decode(block * 4)


def test_a_list_has_at_most_100_fields() -> None:
    decoder = HeaderDecoder()
    most = _added(b"a", b"") + b"\xbe" * (MAX_FIELDS - 1)
    assert len(decoder.decode(most)) == MAX_FIELDS == 100
    with pytest.raises(HeaderListTooLarge, match="at most 100 fields, got 101"):
        decoder.decode(_added(b"b", b"") + b"\xbe" * MAX_FIELDS)
    assert _pairs(decoder.decode(b"\xbe")) == [(b"b", b"")], "the table is in step"


def test_one_literal_over_the_limit_is_too_large(decoder: HeaderDecoder) -> None:
    with pytest.raises(HeaderListTooLarge):
        decoder.decode(_plain(b"a", b"x" * MAX_HEADER_LIST_BYTES))


def test_after_a_list_too_large_the_table_is_right_and_the_connection_goes_on(
    decoder: HeaderDecoder,
) -> None:
    huge = _plain(b"a", b"x" * MAX_HEADER_LIST_BYTES)
    for _ in range(2):  # it is not remembered as good
        with pytest.raises(HeaderListTooLarge):
            decoder.decode(_added(b"before", b"1") + huge + _added(b"behind", b"2"))
    assert _pairs(decoder.decode(b"\xbe\xbf")) == [(b"behind", b"2"), (b"before", b"1")]


def test_a_malformed_end_of_a_list_too_large_is_still_an_error_of_the_connection(
    decoder: HeaderDecoder,
) -> None:
    with pytest.raises(HeaderError):
        decoder.decode(_plain(b"a", b"x" * MAX_HEADER_LIST_BYTES) + b"\x80")
    assert not issubclass(HeaderListTooLarge, HeaderError)
    assert not issubclass(HeaderError, HeaderListTooLarge)
