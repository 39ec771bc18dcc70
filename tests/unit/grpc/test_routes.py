"""Which handler a request goes to, and which requests are malformed (RFC 9113, 8.2 and 8.3)."""

from http import HTTPStatus

import pytest

from leasehold.errors import Status
from leasehold.grpc.http_handlers import Reply, plain
from leasehold.grpc.routes import MAX_SHOWN_BYTES, Exchange, Head, Subscription, resolve
from leasehold.http2.frames import ErrorCode, StreamFailed
from leasehold.http2.hpack import Field
from tests.support.h2_peer import MANY, ONCE, WATCH, Service, request_fields

SERVICE = Service()


def _resolve(fields: list[tuple[str, str]]) -> Head:
    encoded = tuple(Field(name.encode(), value.encode()) for name, value in fields)
    return resolve(encoded, SERVICE.methods)


def test_a_unary_method_is_found() -> None:
    head = _resolve(request_fields(ONCE))
    method = SERVICE.methods[ONCE]
    assert isinstance(method, Exchange)
    assert (head.call, head.is_unary) == (method.call, True)
    assert (head.subscription, head.error, head.web) == (None, None, None)


def test_a_stream_of_exchanges_is_not_unary() -> None:
    head = _resolve(request_fields(MANY))
    assert head.call is not None
    assert not head.is_unary


def test_a_subscription_is_found() -> None:
    head = _resolve(request_fields(WATCH))
    method = SERVICE.methods[WATCH]
    assert isinstance(method, Subscription)
    assert (head.call, head.subscription) == (None, method.open)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/test.Service/No", "unknown method No for service test.Service"),
        ("/test.Service/No/More", "unknown method No/More for service test.Service"),
        ("/test.Servic/Once", "unknown service test.Servic"),
        ("/", "unknown service "),
    ],
)
def test_what_is_unknown_is_told_in_words(path: str, why: str) -> None:
    error = _resolve(request_fields(path)).error
    assert error is not None
    assert (error.status, error.message) == (Status.UNIMPLEMENTED, why)


@pytest.mark.parametrize("bad", [b"x", b"\xff", b"%", "ü".encode()])
def test_a_refusal_does_not_repeat_more_than_a_line_of_what_it_refuses(bad: bytes) -> None:
    fields = {name.encode(): value.encode() for name, value in request_fields()}
    for name in (b":path", b"content-type"):
        changed = fields | {name: b"/" + bad * 4_000}
        head = resolve(tuple(Field(*pair) for pair in changed.items()), SERVICE.methods)
        refusal = head.error.message if head.error else _refusal(head).body
        assert len(refusal) < 7 * MAX_SHOWN_BYTES, "five characters an byte, and the words"


def _refusal(head: Head) -> Reply:
    assert (head.call, head.subscription, head.error) == (None, None, None)
    assert head.web is not None
    assert head.web.refusal is not None
    return head.web.refusal


@pytest.mark.parametrize("method", ["GET", "PUT", "post"])
def test_only_post_is_a_call(method: str) -> None:
    refusal = _refusal(_resolve(request_fields(method=method)))
    assert refusal == plain(HTTPStatus.METHOD_NOT_ALLOWED, "gRPC calls are made with POST")


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_what_is_neither_grpc_nor_a_path_of_it_is_for_a_page(method: str) -> None:
    head = _resolve(request_fields("/health?x=1", method=method, content_type="text/plain"))
    assert head.web is not None
    assert head.web[:2] == (method.encode(), b"/health?x=1")
    assert {f.name: f.value for f in head.web.fields}[b"content-type"] == b"text/plain"
    assert head.web.refusal is None


def test_connect_has_neither_scheme_nor_path_and_is_for_a_page_that_is_not_there() -> None:
    bare = [(":method", "CONNECT"), (":authority", "elsewhere:443")]
    web = _resolve(bare).web
    assert web is not None
    assert (web.method, web.target) == (b"CONNECT", b"")
    assert [(each.name, each.value) for each in web.fields] == [(b"host", b"elsewhere:443")]
    for extra in ((":path", "/"), (":scheme", "http")):
        with pytest.raises(StreamFailed, match="CONNECT must not have :scheme or :path"):
            _resolve([*bare, extra])


@pytest.mark.parametrize(
    "content_type", ["", "text/html", "application/grpcx", "application/grpc-web+proto", "x"]
)
def test_another_content_type_is_refused_and_shown(content_type: str) -> None:
    refusal = _refusal(_resolve(request_fields(content_type=content_type)))
    assert refusal.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    assert repr(content_type).encode() in refusal.body


def test_no_content_type_is_refused() -> None:
    fields = [pair for pair in request_fields() if pair[0] != "content-type"]
    assert _refusal(_resolve(fields)).status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize("missing", [":method", ":scheme", ":path"])
def test_a_request_without_a_pseudo_field_is_malformed(missing: str) -> None:
    with pytest.raises(StreamFailed, match=missing):
        _resolve([pair for pair in request_fields() if pair[0] != missing])


def test_the_authority_may_be_missing() -> None:
    assert _resolve([pair for pair in request_fields() if pair[0] != ":authority"]).call


@pytest.mark.parametrize(
    "extra",
    [
        (":path", "/again"),
        (":status", "200"),
        (":protocol", "websocket"),
        (":authority", "late"),
        ("X-Upper", "1"),
        ("", "nameless"),
        ("connection", "close"),
        ("proxy-connection", "close"),
        ("keep-alive", "1"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
    ],
)
def test_a_field_that_http2_forbids_is_malformed(extra: tuple[str, str]) -> None:
    with pytest.raises(StreamFailed) as failed:
        _resolve([*request_fields(), extra])
    assert failed.value.code == ErrorCode.PROTOCOL_ERROR


def test_a_pseudo_field_behind_a_regular_one_is_malformed() -> None:
    fields = request_fields()
    with pytest.raises(StreamFailed):
        _resolve([*fields[1:], fields[0]])
