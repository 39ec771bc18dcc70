"""Which header fields a request may have, and must have (RFC 9113, 8.2, 8.3).

Each malformed head is sent as a plain request and as a call: a server may know calls by heart.
"""

import pytest

from tests.http2 import wire
from tests.http2.blocks import GET, POST, Fields, changed, with_field, without, written
from tests.http2.calls import GRANT, GRANT_MESSAGE, check_went_well
from tests.http2.peer import Connect, Peer
from tests.http2.wire import Code

NOT_IN_NAMES = {
    "control-and-space": range(0x21),
    "upper-case": range(0x41, 0x5B),
    "not-ascii": range(0x7F, 0x100),
}
NOT_IN_VALUES = (0x00, 0x0A, 0x0D)

both_kinds = pytest.mark.parametrize("fields", [GET, GRANT], ids=["plain", "call"])


def expect_malformed(peer: Peer, fields: Fields, *, stream_id: int = 1) -> None:
    """The head is refused; whatever comes behind it on its stream does not matter."""
    peer.send(wire.headers(stream_id, written(fields), ends=False))
    peer.send(wire.data(stream_id, GRANT_MESSAGE, ends=True))
    peer.expect_stream_error(stream_id, {Code.PROTOCOL_ERROR})


# 8.2.1: names.


@pytest.mark.parametrize("data", NOT_IN_NAMES.values(), ids=NOT_IN_NAMES)
def test_a_name_has_no_such_octet(connect: Connect, data: range) -> None:
    """8.2, 8.2.1: control characters, space, upper case, and what is not ASCII are malformed."""
    for byte in data:
        peer = connect()
        peer.greet()
        expect_malformed(peer, with_field(GET, b"x-" + bytes((byte,)) + b"-y", b"ok"))


@both_kinds
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"X-TEST", id="upper-case"),
        pytest.param(b"Cookie", id="upper-case-first"),
        pytest.param(b"content-typE", id="upper-case-last"),
        pytest.param(b"x:y", id="colon-within"),
        pytest.param(b"x:", id="colon-last"),
        pytest.param(b" x", id="space-first"),
        pytest.param(b"x ", id="space-last"),
        pytest.param(b"x\r\ny", id="line-break"),
    ],
)
def test_a_malformed_name_is_an_error(peer: Peer, fields: Fields, name: bytes) -> None:
    """8.2, 8.2.1: PROTOCOL_ERROR of the stream."""
    expect_malformed(peer, with_field(fields, name, b"ok"))


def test_a_name_may_have_every_other_octet_of_a_token(peer: Peer) -> None:
    """8.2.1; RFC 9110, 5.1: digits, lower case, and punctuation that separates nothing."""
    name = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
    peer.send(peer.request(1, with_field(GET, name, b"ok")))
    peer.expect_answer(1)


# 8.2.1: values.


@both_kinds
@pytest.mark.parametrize("byte", NOT_IN_VALUES, ids=hex)
@pytest.mark.parametrize("form", [b"%s", b"a%s", b"%sb", b"a%sb"], ids=repr)
def test_a_value_has_no_such_octet(peer: Peer, fields: Fields, byte: int, form: bytes) -> None:
    """8.2.1: NUL, line feed and carriage return are malformed anywhere."""
    expect_malformed(peer, with_field(fields, b"x-test", form % bytes((byte,))))


@both_kinds
@pytest.mark.parametrize("value", [b" ", b"\t", b" a", b"\ta", b"a ", b"a\t", b" a "], ids=repr)
def test_a_value_has_no_space_around_it(peer: Peer, fields: Fields, value: bytes) -> None:
    """8.2.1: a value neither begins nor ends with a space or tab."""
    expect_malformed(peer, with_field(fields, b"x-test", value))


@pytest.mark.parametrize("name", [b":method", b":scheme", b":path", b":authority"])
@pytest.mark.parametrize("value", [b"/\0", b"/\r\nx: y", b" /", b"/ "], ids=repr)
def test_the_values_of_pseudo_fields_keep_to_the_same_rules(
    peer: Peer, name: bytes, value: bytes
) -> None:
    """8.2.1, 8.3: pseudo-fields are fields in this."""
    expect_malformed(peer, changed(GET, name, value))


@pytest.mark.parametrize(
    "value", [b"", b"a b", b"a\tb", b"\x80\xff", b"\xc3\xa4", b"!" * 3000, b":"], ids=repr
)
def test_other_values_are_taken(peer: Peer, value: bytes) -> None:
    """8.2.1; RFC 9110, 5.5: none at all, space within, what is not ASCII, long ones."""
    peer.send(peer.request(1, with_field(GET, b"x-test", value)))
    peer.expect_answer(1)


# 8.2.2: fields that concern a connection of HTTP/1.1.


@both_kinds
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"connection", b"keep-alive"),
        (b"connection", b"close"),
        (b"connection", b""),
        (b"proxy-connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"transfer-encoding", b"chunked"),
        (b"transfer-encoding", b"identity"),
        (b"upgrade", b"h2c"),
    ],
)
def test_a_field_of_the_connection_is_an_error(
    peer: Peer, fields: Fields, name: bytes, value: bytes
) -> None:
    """8.2.2: any message with one is malformed."""
    expect_malformed(peer, with_field(fields, name, value))


@pytest.mark.parametrize("value", [b"trailers, deflate", b"deflate", b"gzip;q=0.5", b"trailer"])
@pytest.mark.parametrize(
    "fields", [without(GET, b"te"), without(GRANT, b"te")], ids=["plain", "call"]
)
def test_te_says_trailers_and_nothing_else(peer: Peer, fields: Fields, value: bytes) -> None:
    """8.2.2: any other value is malformed, also for a call."""
    expect_malformed(peer, with_field(fields, b"te", value))


def test_te_may_say_trailers(peer: Peer) -> None:
    """8.2.2: this value is allowed."""
    peer.send(peer.request(1, with_field(GET, b"te", b"trailers")))
    peer.expect_answer(1)


# 8.2.3: cookies.


def test_cookies_may_come_in_crumbs(peer: Peer) -> None:
    """8.2.3: several cookie fields are one."""
    crumbs = [(b"cookie", b"a=b"), (b"cookie", b"c=d"), (b"x-test", b""), (b"cookie", b"e=f")]
    peer.send(peer.request(1, [*GET, *crumbs]))
    peer.expect_answer(1)


def test_fields_may_be_repeated(peer: Peer) -> None:
    """RFC 9110, 5.3: a field may stand more than once."""
    peer.send(peer.request(1, [*GET, *[(b"x-test", b"%d" % number) for number in range(50)]]))
    peer.expect_answer(1)


# 8.3: pseudo-fields.


@both_kinds
@pytest.mark.parametrize("name", [b":test", b":", b":status", b":protocol", b":Path", b"::path"])
def test_an_unknown_pseudo_field_is_an_error(peer: Peer, fields: Fields, name: bytes) -> None:
    """8.3: also those of answers, and of extensions that nobody has asked for."""
    expect_malformed(peer, [*fields[:4], (name, b"200"), *fields[4:]])


@both_kinds
@pytest.mark.parametrize("name", [b":method", b":scheme", b":path"])
def test_a_pseudo_field_must_be_there(peer: Peer, fields: Fields, name: bytes) -> None:
    """8.3.1: exactly one :method, :scheme and :path, but for CONNECT."""
    expect_malformed(peer, without(fields, name))


@both_kinds
@pytest.mark.parametrize("name", [b":method", b":scheme", b":path", b":authority"])
@pytest.mark.parametrize("where", ["beside", "behind-the-others"])
def test_a_pseudo_field_must_be_there_once(
    peer: Peer, fields: Fields, name: bytes, where: str
) -> None:
    """8.3, 8.3.1: also when it says the same again."""
    again = (name, dict(fields)[name])
    at = next(index for index, field in enumerate(fields) if field[0] == name)
    at = at if where == "beside" else 4
    expect_malformed(peer, [*fields[:at], again, *fields[at:]])


@both_kinds
def test_different_values_of_a_pseudo_field_are_an_error(peer: Peer, fields: Fields) -> None:
    """8.3.1: exactly one."""
    expect_malformed(peer, [*fields[:4], (b":path", b"/other"), *fields[4:]])


@both_kinds
@pytest.mark.parametrize("name", [b":method", b":scheme", b":path"])
def test_a_pseudo_field_must_not_be_empty(peer: Peer, fields: Fields, name: bytes) -> None:
    """8.3.1: a valid value is wanted, and none of the three can be empty."""
    expect_malformed(peer, changed(fields, name, b""))


@pytest.mark.parametrize("path", [b"relative", b"?query", b"http://localhost/", b"#"])
def test_a_path_begins_with_a_slash(peer: Peer, path: bytes) -> None:
    """8.3.1: else it is not valid; only OPTIONS may ask for an asterisk."""
    expect_malformed(peer, changed(GET, b":path", path))


@both_kinds
@pytest.mark.parametrize("name", [b":method", b":scheme", b":path", b":authority"])
def test_pseudo_fields_come_first(peer: Peer, fields: Fields, name: bytes) -> None:
    """8.3: one behind a field that is not a pseudo-field is malformed."""
    moved = (name, dict(fields)[name])
    expect_malformed(peer, [*without(fields, name), (b"x-test", b"ok"), moved])


def test_all_pseudo_fields_behind_another_field_are_an_error(peer: Peer) -> None:
    """8.3: as for one of them."""
    expect_malformed(peer, [(b"x-test", b"ok"), *GET])


def test_pseudo_fields_may_come_in_any_order(peer: Peer) -> None:
    """8.3: among themselves."""
    for number in range(4):
        peer.send(peer.request(2 * number + 1, [*GET[number:], *GET[:number]]))
        peer.expect_answer(2 * number + 1)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(with_field(without(GET, b":authority"), b"host", b"localhost"), id="host"),
        pytest.param(with_field(GET, b"host", b"localhost"), id="both"),
    ],
)
def test_the_authority_may_stand_in_host(peer: Peer, fields: Fields) -> None:
    """8.3.1: host may be there instead of :authority, or beside it."""
    peer.send(peer.request(1, fields))
    peer.expect_answer(1)


def test_a_head_without_fields_is_an_error(peer: Peer) -> None:
    """8.3.1: it is a block like others, and has no :method, :scheme and :path."""
    expect_malformed(peer, [])


# A malformed request concerns nobody else.


@both_kinds
def test_the_same_malformed_head_is_an_error_each_time(peer: Peer, fields: Fields) -> None:
    """8.1.1: whoever remembers heads must not remember this one as a good one."""
    for stream_id in (1, 3, 5):
        expect_malformed(peer, with_field(fields, b"connection", b"close"), stream_id=stream_id)


def test_other_requests_go_on_beside_a_malformed_one(peer: Peer) -> None:
    """5.4.2, 8.1.1: an error of a stream leaves the others alone."""
    peer.send(peer.request(1, POST, ends=False))
    expect_malformed(peer, without(GET, b":path"), stream_id=3)
    peer.send(wire.data(1, b"test", ends=True), peer.request(5))
    peer.expect_answer(1)
    peer.expect_answer(5)


@pytest.mark.usefixtures("ours")
def test_calls_go_on_beside_a_malformed_one(peer: Peer) -> None:
    """5.4.2, 8.1.1: an error of a stream leaves the others alone."""
    peer.send(peer.request(1, GRANT, ends=False))
    expect_malformed(peer, with_field(GRANT, b"upgrade", b"h2c"), stream_id=3)
    peer.send(wire.data(1, GRANT_MESSAGE, ends=True))
    check_went_well(peer.expect_answer(1))
