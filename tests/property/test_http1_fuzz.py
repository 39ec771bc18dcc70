"""HTTP/1.1 under fuzz: never a crash, never two readings, whatever the pieces it comes in."""

import re
from http import HTTPStatus
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leasehold.grpc.http_handlers import HttpRequest, Reply, ResponseWriter
from leasehold.http1.http1_connection import Http1Connection
from tests.support.virtual_loop import VirtualLoop

_HEAD = re.compile(
    rb"HTTP/1\.1 200 OK\r\n(?:[^\r]+\r\n)*?Content-Length: (\d+)\r\n(?:[^\r]+\r\n)*\r\n"
)


class Recorder:
    """Answers everything, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, bytes, bytes]] = []

    def handle(self, ask: HttpRequest, response: ResponseWriter) -> None:
        self.asked.append((ask.method, ask.target, ask.body))
        response.reply(Reply(HTTPStatus.OK, "text/plain", b"%d" % len(self.asked)))

    def too_large(self, body_bytes: int) -> Reply:
        return Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "text/plain", b"")


def _run(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes, bytes]], bytes, bool]:
    out: list[bytes] = []
    loop, web = VirtualLoop(), Recorder()
    http = Http1Connection(web, out.append, loop=loop)
    for piece in pieces:
        http.receive(piece)
        loop.pass_time(0)
    return web.asked, b"".join(out), http.is_closing


def _cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(each % (len(data) + 1) for each in at)})
    return [data[start:end] for start, end in pairwise(edges)]


_noise = st.sampled_from(
    [
        *[
            b"\r\n",
            b"\n",
            b"\r",
            b" ",
            b":",
            b"\0",
            b"0\r\n\r\n",
            b"5\r\n",
            b"ffffffff\r\n",
            b"-1\r\n",
        ],
        *[b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"Content-Length: 99999999999\r\n"],
        *[b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: x\r\n", b"Host: x\r\n"],
        *[
            b"GET / HTTP/1.1\r\n",
            b"POST /p HTTP/1.1\r\nHost: x\r\n",
            b"HTTP/1.1",
            b"Expect: 100-continue\r\n",
        ],
        *[b"Connection: close\r\n", b"abc", b"\x80", b"PRI * HTTP/2.0\r\n\r\n"],
    ]
)
_bodies = st.binary(max_size=40)
_sized = _bodies.map(
    lambda body: b"POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
)
_chunked = st.lists(st.binary(min_size=1, max_size=20), max_size=4).map(
    lambda chunks: (
        b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%X;e\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        + b"0\r\nT: x\r\n\r\n"
    )
)
_cuts = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.lists(st.one_of(_noise, _sized, _chunked, st.binary(max_size=8)), max_size=12), _cuts)
def test_anything_is_read_in_the_same_way_however_it_is_cut(
    parts: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(parts)
    whole, in_pieces = _run([data]), _run(_cut(data, cuts))
    words = b"HTTP/1.1 100 Continue\r\n\r\n"  # which depend on whether the body has come
    assert whole[0] == in_pieces[0]
    assert whole[1].replace(words, b"") == in_pieces[1].replace(words, b"")
    assert whole[2] == in_pieces[2]


@given(st.lists(st.one_of(_sized, _chunked), min_size=1, max_size=6), _cuts)
def test_good_requests_are_all_answered_in_their_order(
    requests: list[bytes], cuts: list[int]
) -> None:
    asked, out, is_closing = _run(_cut(b"".join(requests), cuts))
    assert not is_closing
    assert [target for _, target, _ in asked] == [
        b"/s" if request.startswith(b"POST /s") else b"/c" for request in requests
    ]
    assert [body for _, _, body in asked] == list(map(_body, requests))
    for number in range(1, len(requests) + 1):
        head = _HEAD.match(out)
        assert head is not None
        out = out[head.end() :]
        assert out.startswith(b"%d" % number)
        out = out[int(head[1]) :]
    assert out == b""


def _body(request: bytes) -> bytes:
    """Read a body as naively as can be."""
    rest = request.partition(b"\r\n\r\n")[2]
    if request.startswith(b"POST /s"):
        return rest
    body = b""
    while not rest.startswith(b"0\r\n"):
        size, _, rest = rest.partition(b";e\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


@given(st.one_of(_sized, _chunked), _noise, st.integers(0, 10_000))
def test_a_request_with_noise_in_it_never_becomes_two(
    request: bytes, noise: bytes, at: int
) -> None:
    head_end = request.index(b"\r\n\r\n")
    at %= head_end + 1
    asked, _, is_closing = _run([request[:at] + noise + request[at:]])
    assert len(asked) <= 1 or not is_closing
    if is_closing:
        assert len(asked) <= 1
