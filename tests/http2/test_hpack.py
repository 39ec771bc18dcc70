"""The compression of header fields (RFC 7541), as far as a server decodes it."""

from collections.abc import Callable

import hpack
import pytest

from tests.http2 import wire
from tests.http2.blocks import (
    AUTHORITY,
    DEFAULT_TABLE_BYTES,
    EMPTY_TABLE,
    ENTRY_OVERHEAD_BYTES,
    FIRST_DYNAMIC,
    METHOD_GET,
    METHOD_POST,
    PATH,
    PLAIN_GET,
    SCHEME_HTTP,
    USER_AGENT,
    huffman,
    indexed,
    inserting,
    integer,
    never_indexed,
    plain,
    string,
    table_size,
)
from tests.http2.peer import Peer
from tests.http2.wire import Code, Setting

Write = Callable[[bytes | int, bytes], bytes]

# In Huffman's code (appendix B).
USER_AGENT_CODED = bytes.fromhex("b505b161cc5a93")
X_TEST_CODED = bytes.fromhex("f2b24a84ff")
TEST_CODED = bytes.fromhex("49509f")
TEST_PADDED_BY_ZERO = bytes.fromhex("495090")
EOS_AND_TEST_CODED = bytes.fromhex("fffffffd25427f")
REST_OF_GET = indexed(METHOD_GET) + indexed(SCHEME_HTTP) + plain(AUTHORITY, b"localhost")
"""What a request needs beside its path."""


def expect_answered(peer: Peer, *blocks: bytes) -> None:
    """Each block is a request that is answered, on a stream of its own."""
    for number, block in enumerate(blocks):
        peer.send(wire.headers(2 * number + 1, block))
        peer.expect_answer(2 * number + 1)


def expect_undecodable(peer: Peer, *blocks: bytes) -> None:
    """All blocks but the last are answered; that one cannot be decoded."""
    expect_answered(peer, *blocks[:-1])
    peer.send(wire.headers(2 * len(blocks) - 1, blocks[-1]))
    peer.expect_connection_error({Code.COMPRESSION_ERROR})


# 5.2, 6.2: representations.


@pytest.mark.parametrize("pattern", [0x40, 0x00, 0x10], ids=["indexing", "plain", "never-indexed"])
@pytest.mark.parametrize(
    "literal",
    [
        pytest.param(string(b"user-agent") + string(b"test"), id="known-name"),
        pytest.param(huffman(USER_AGENT_CODED) + huffman(TEST_CODED), id="known-name-coded"),
        pytest.param(string(b"x-test") + string(b"test"), id="new-name"),
        pytest.param(huffman(X_TEST_CODED) + huffman(TEST_CODED), id="new-name-coded"),
        pytest.param(huffman(X_TEST_CODED) + string(b"test"), id="name-coded"),
        pytest.param(string(b"x-test") + huffman(TEST_CODED), id="value-coded"),
        pytest.param(string(b"x-test") + string(b""), id="empty-value"),
        pytest.param(string(b"x-test") + huffman(b""), id="empty-value-coded"),
    ],
)
def test_literals_are_decoded(peer: Peer, pattern: int, literal: bytes) -> None:
    """6.2: three kinds, with names and values in two codes."""
    expect_answered(peer, PLAIN_GET + bytes((pattern,)) + literal)


@pytest.mark.parametrize("write", [inserting, plain, never_indexed])
def test_literals_may_refer_to_a_name(peer: Peer, write: Write) -> None:
    """6.2: the name by its index in the static table."""
    expect_answered(peer, PLAIN_GET + write(USER_AGENT, b"test"))


@pytest.mark.parametrize("index", [USER_AGENT, 15, 61], ids=["user-agent", "first", "last"])
def test_fields_may_be_indexed(peer: Peer, index: int) -> None:
    """6.1: fields of the static table, here without a value."""
    expect_answered(peer, PLAIN_GET + indexed(index))


@pytest.mark.parametrize("method", [METHOD_GET, METHOD_POST])
@pytest.mark.parametrize("path", [PATH, PATH + 1])
@pytest.mark.parametrize("scheme", [SCHEME_HTTP, SCHEME_HTTP + 1])
def test_a_request_may_be_indices_alone(peer: Peer, method: int, path: int, scheme: int) -> None:
    """2.3.1: the pseudo-fields of the static table, and the authority once it is in the other."""
    known = indexed(method) + indexed(path) + indexed(scheme)
    expect_answered(
        peer, known + inserting(AUTHORITY, b"localhost"), known + indexed(FIRST_DYNAMIC)
    )


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 254, 255, 256, 2000])
def test_strings_of_any_length_are_decoded(peer: Peer, length: int) -> None:
    """5.1, 5.2: around the lengths at which the integer takes another byte."""
    value = b"~" * length
    coded = hpack.Encoder().encode([(b"x-test", value)], huffman=True)
    expect_answered(peer, PLAIN_GET + plain(b"x-test", value), PLAIN_GET + coded)


# 2.3.2, 2.3.3, 4: the dynamic table.


def test_an_inserted_field_may_be_referred_to(peer: Peer) -> None:
    """2.3.3: in the same block, and in later ones; a request without its path would be refused."""
    expect_answered(
        peer,
        REST_OF_GET + inserting(PATH, b"/found"),
        REST_OF_GET + indexed(FIRST_DYNAMIC),
        REST_OF_GET + indexed(FIRST_DYNAMIC),
    )


def test_the_newest_entry_comes_first(peer: Peer) -> None:
    """2.3.3: each new one moves the others on by one."""
    others = b"".join(inserting(b"x-%d" % number, b"") for number in range(20))
    expect_answered(
        peer,
        REST_OF_GET + inserting(PATH, b"/found"),
        REST_OF_GET + indexed(FIRST_DYNAMIC) + others,
        REST_OF_GET + indexed(FIRST_DYNAMIC + 20),
    )


def test_a_name_may_be_found_in_the_dynamic_table(peer: Peer) -> None:
    """6.2.1: and the new entry has that name too."""
    expect_answered(
        peer,
        REST_OF_GET + inserting(b":path", b"/one"),
        REST_OF_GET + inserting(FIRST_DYNAMIC, b"/two"),
        REST_OF_GET + plain(FIRST_DYNAMIC, b"/three"),
        REST_OF_GET + never_indexed(FIRST_DYNAMIC + 1, b"/four"),
    )


@pytest.mark.parametrize("write", [plain, never_indexed])
def test_other_literals_do_not_enter_the_table(peer: Peer, write: Write) -> None:
    """6.2.2, 6.2.3: the index behind them is of nothing."""
    expect_undecodable(
        peer, PLAIN_GET + write(b"x-test", b"test"), PLAIN_GET + indexed(FIRST_DYNAMIC)
    )


def test_the_same_field_may_be_inserted_twice(peer: Peer) -> None:
    """2.3.2: duplicates are not an error."""
    path = inserting(PATH, b"/found")
    expect_answered(
        peer,
        REST_OF_GET + path,
        REST_OF_GET + path,
        REST_OF_GET + indexed(FIRST_DYNAMIC),
        REST_OF_GET + indexed(FIRST_DYNAMIC + 1),
    )


def test_the_oldest_entries_are_evicted(peer: Peer) -> None:
    """4.4: the path stays while there is room for it, to the byte."""
    path, name = b"/found", b"x-fill"
    taken = len(b":path" + path) + len(name) + 2 * ENTRY_OVERHEAD_BYTES
    fits = b"f" * (DEFAULT_TABLE_BYTES - taken)
    expect_answered(
        peer,
        REST_OF_GET + inserting(PATH, path),
        PLAIN_GET + inserting(name, fits),
        REST_OF_GET + indexed(FIRST_DYNAMIC + 1),
    )
    peer.send(wire.headers(7, PLAIN_GET + inserting(b"x", b"")))
    peer.expect_answer(7)
    peer.send(wire.headers(9, REST_OF_GET + indexed(FIRST_DYNAMIC + 2)))
    peer.expect_connection_error({Code.COMPRESSION_ERROR})


def test_an_entry_may_name_the_one_that_it_evicts(peer: Peer) -> None:
    """4.4: the name is read before anything is evicted."""
    large = b"/" + b"p" * (DEFAULT_TABLE_BYTES - len(b":path/") - ENTRY_OVERHEAD_BYTES)
    expect_answered(
        peer,
        REST_OF_GET + inserting(PATH, large),
        REST_OF_GET + inserting(FIRST_DYNAMIC, large),
        REST_OF_GET + indexed(FIRST_DYNAMIC),
    )


def test_too_large_an_entry_empties_the_table(peer: Peer) -> None:
    """4.4: it is a good field, and no entry."""
    too_large = b"f" * (DEFAULT_TABLE_BYTES + 1 - len(b"x-fill") - ENTRY_OVERHEAD_BYTES)
    expect_undecodable(
        peer,
        REST_OF_GET + inserting(PATH, b"/found"),
        REST_OF_GET + indexed(FIRST_DYNAMIC) + inserting(b"x-fill", too_large),
        REST_OF_GET + indexed(FIRST_DYNAMIC),
    )


# 4.2, 6.3: the size of the table.


@pytest.mark.parametrize(
    "updates",
    [
        pytest.param(EMPTY_TABLE, id="0"),
        pytest.param(table_size(DEFAULT_TABLE_BYTES), id="4096"),
        pytest.param(EMPTY_TABLE + table_size(DEFAULT_TABLE_BYTES), id="0-4096"),
        pytest.param(table_size(100) + table_size(200), id="100-200"),
    ],
)
def test_the_size_may_change_before_the_fields(unaware: Peer, updates: bytes) -> None:
    """4.2, 6.3: once or twice, at the beginning of a block."""
    expect_answered(unaware, updates + PLAIN_GET, PLAIN_GET)


def test_a_smaller_size_evicts(unaware: Peer) -> None:
    """4.3: also when it grows again at once."""
    expect_undecodable(
        unaware,
        REST_OF_GET + inserting(PATH, b"/found"),
        EMPTY_TABLE + table_size(DEFAULT_TABLE_BYTES) + PLAIN_GET,
        REST_OF_GET + indexed(FIRST_DYNAMIC),
    )


def test_a_size_that_suffices_evicts_nothing(unaware: Peer) -> None:
    """4.3: an entry of that very size stays."""
    size = len(b":path/found") + ENTRY_OVERHEAD_BYTES
    expect_answered(
        unaware,
        REST_OF_GET + inserting(PATH, b"/found"),
        table_size(size) + REST_OF_GET + indexed(FIRST_DYNAMIC),
    )


def test_nothing_enters_an_empty_table(peer: Peer) -> None:
    """4.4: with a size of zero, entries are evicted at once."""
    expect_undecodable(
        peer,
        EMPTY_TABLE + REST_OF_GET + inserting(PATH, b"/found"),
        REST_OF_GET + indexed(FIRST_DYNAMIC),
    )


@pytest.mark.parametrize(
    "update", [EMPTY_TABLE, table_size(1), table_size(DEFAULT_TABLE_BYTES)], ids=["0", "1", "4096"]
)
@pytest.mark.parametrize("where", ["within", "last"])
def test_the_size_may_not_change_after_a_field(peer: Peer, update: bytes, where: str) -> None:
    """4.2: an update stands at the beginning of a block, or it is a decoding error."""
    rest = plain(b"x-test", b"test") if where == "within" else b""
    expect_undecodable(peer, PLAIN_GET + update + rest)


@pytest.mark.parametrize("excess", [1, 5000, 1 << 20])
def test_the_size_may_not_exceed_what_the_server_allows(peer: Peer, excess: int) -> None:
    """6.3: more than its HEADER_TABLE_SIZE is a decoding error."""
    limit = peer.conduct.server_settings.get(Setting.HEADER_TABLE_SIZE, DEFAULT_TABLE_BYTES)
    expect_undecodable(peer, table_size(limit + excess) + PLAIN_GET)


# What cannot be decoded.


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(indexed(0), id="6.1-index-0"),
        pytest.param(indexed(FIRST_DYNAMIC), id="2.3.3-index-62-of-nothing"),
        pytest.param(indexed(126), id="2.3.3-index-126"),
        pytest.param(indexed(1 << 20), id="2.3.3-index-of-a-million"),
        pytest.param(plain(FIRST_DYNAMIC, b"test"), id="2.3.3-name-62-of-nothing"),
        pytest.param(inserting(100, b"test"), id="2.3.3-name-100"),
        pytest.param(never_indexed(1 << 20, b"test"), id="2.3.3-name-of-a-million"),
        pytest.param(b"\x40", id="6.2.1-cut-off-before-the-name"),
        pytest.param(b"\x00", id="6.2.2-cut-off-before-the-name"),
        pytest.param(b"\x10", id="6.2.3-cut-off-before-the-name"),
        pytest.param(b"\x00\x06x-te", id="5.2-cut-off-within-the-name"),
        pytest.param(b"\x00" + string(b"x-test"), id="6.2-cut-off-before-the-value"),
        pytest.param(plain(b"x-test", b"test")[:-1], id="5.2-cut-off-within-the-value"),
        pytest.param(b"\x00" + string(b"x-test") + b"\x84\x49", id="5.2-cut-off-within-the-code"),
        pytest.param(integer(200, 7, 0x80)[:1], id="5.1-cut-off-within-an-index"),
        pytest.param(b"\x00\x7f", id="5.1-cut-off-within-a-length"),
        pytest.param(b"\x00\x7f\x80\x80", id="5.1-cut-off-within-a-longer-length"),
        pytest.param(b"\xff" * 12, id="5.1-index-without-end"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="5.1-index-too-large"),
        pytest.param(b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\x01x", id="5.1-length-too-large"),
        pytest.param(
            plain(b"x-test", b"")[:-1] + huffman(TEST_CODED + b"\xff"), id="5.2-padding-of-an-byte"
        ),
        pytest.param(
            plain(b"x-test", b"")[:-1] + huffman(TEST_PADDED_BY_ZERO), id="5.2-padding-of-zeros"
        ),
        pytest.param(
            plain(b"x-test", b"")[:-1] + huffman(EOS_AND_TEST_CODED), id="5.2-end-of-string-symbol"
        ),
        pytest.param(plain(b"x-test", b"")[:-1] + huffman(b"\xff"), id="5.2-nothing-but-padding"),
        pytest.param(b"\x00" + huffman(X_TEST_CODED + b"\xff") + b"\x00", id="5.2-padding-of-name"),
    ],
)
def test_a_block_that_cannot_be_decoded_ends_the_connection(peer: Peer, rest: bytes) -> None:
    """RFC 9113, 4.3: COMPRESSION_ERROR; the tables could not be kept in step."""
    expect_undecodable(peer, PLAIN_GET + rest)


@pytest.mark.parametrize("block", [b"\x40", b"\x80", b"\x3f"], ids=bytes.hex)
def test_a_block_of_one_bad_octet_ends_the_connection(peer: Peer, block: bytes) -> None:
    """RFC 9113, 4.3: COMPRESSION_ERROR, before anything is said about missing fields."""
    expect_undecodable(peer, block)


def test_bad_trailers_end_the_connection(peer: Peer) -> None:
    """RFC 9113, 4.3: any block, not only that of a request."""
    peer.send(wire.headers(1, PLAIN_GET, ends=False), wire.headers(1, indexed(0)))
    peer.expect_connection_error({Code.COMPRESSION_ERROR})


def test_a_bad_block_in_pieces_ends_the_connection(peer: Peer) -> None:
    """RFC 9113, 4.3: as in one piece."""
    block = PLAIN_GET + indexed(0)
    peer.send(wire.headers(1, block[:9], ends_headers=False), wire.continuation(1, block[9:]))
    peer.expect_connection_error({Code.COMPRESSION_ERROR})


# 4.2: sizes before and after our settings are acknowledged. We announce 0.


def test_before_the_acknowledgement_the_table_of_4096_octets_is_in_force(unaware: Peer) -> None:
    insert = REST_OF_GET + inserting(PATH, b"/before")
    refer = REST_OF_GET + indexed(FIRST_DYNAMIC)
    resized = table_size(DEFAULT_TABLE_BYTES - 1) + refer
    expect_answered(unaware, insert, refer, resized)


def test_before_the_acknowledgement_more_than_4096_octets_are_an_error(unaware: Peer) -> None:
    expect_undecodable(unaware, PLAIN_GET, table_size(DEFAULT_TABLE_BYTES + 1) + PLAIN_GET)


@pytest.mark.parametrize("sizes", [(0,), (128,), (128, 4096), (DEFAULT_TABLE_BYTES,)])
def test_after_the_acknowledgement_sizes_up_to_4096_are_tolerated(
    peer: Peer, sizes: tuple[int, ...]
) -> None:
    updates = b"".join(map(table_size, sizes))
    insert = updates + REST_OF_GET + inserting(PATH, b"/after")
    refer = REST_OF_GET + (indexed(FIRST_DYNAMIC) if sizes[-1] else plain(PATH, b"/after"))
    expect_answered(peer, insert, refer)


@pytest.mark.parametrize("size", [1, DEFAULT_TABLE_BYTES + 1])
def test_after_the_acknowledgement_other_sizes_are_an_error(peer: Peer, size: int) -> None:
    expect_undecodable(peer, PLAIN_GET, table_size(size) + PLAIN_GET)


def test_a_block_begins_with_at_most_two_size_updates(peer: Peer) -> None:
    expect_undecodable(peer, EMPTY_TABLE * 2 + PLAIN_GET, EMPTY_TABLE * 3 + PLAIN_GET)
