"""Bodies of HTTP/1.1 requests, answers in chunks, and what is refused rather than guessed."""

from http import HTTPStatus

import pytest

from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import MAX_BODY_BYTES, HttpRequest, Reply, ResponseWriter
from leasehold.grpc.protocol import RpcError
from leasehold.http1.http1_connection import MAX_AHEAD_BYTES, Http1Connection
from leasehold.http1.http1_messages import MAX_CHUNK_LINE_BYTES, MAX_CHUNKS, MAX_HEAD_BYTES
from leasehold.http2.limits import ConnectionLimits
from tests.support.virtual_loop import VirtualLoop

HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class Echo:
    """Answers with the body: at once, or when a test says so."""

    ends_by_itself = False

    def __init__(self) -> None:
        self.asked: list[HttpRequest] = []
        self.responses: list[ResponseWriter] = []
        self.is_slow = False
        self.relieved_times = self.gone_times = 0
        self.dismissals: list[RpcError] = []

    def handle(self, ask: HttpRequest, response: ResponseWriter) -> "Echo | None":
        self.asked.append(ask)
        self.responses.append(response)
        if self.is_slow:
            return self
        response.reply(Reply(HTTPStatus.OK, "text/plain", ask.body))
        return None

    def too_large(self, body_bytes: int) -> Reply:
        return Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "text/plain", b"%d" % body_bytes)

    def relieved(self) -> None:
        self.relieved_times += 1

    def gone(self) -> None:
        self.gone_times += 1

    def dismissed(self, error: RpcError) -> None:
        self.dismissals.append(error)
        self.responses[-1].finish()


class Line:
    """A connection, and what it answered."""

    def __init__(self) -> None:
        self.out = b""
        self.echo = Echo()
        self.loop = VirtualLoop()
        self.gate = DurabilityGate()
        self.throttled: list[bool] = []
        self.http = Http1Connection(
            self.echo,
            self._take,
            gate=self.gate,
            loop=self.loop,
            limits=ConnectionLimits(max_event_bytes=1000),
            throttle=self.throttled.append,
        )

    def _take(self, data: bytes) -> None:
        self.out += data

    def ask(self, data: bytes) -> bytes:
        """Send bytes; give what came back."""
        self.out = b""
        self.http.receive(data)
        self.loop.pass_time(0)
        return self.out

    def status(self, data: bytes) -> int:
        """Send bytes; give the status that came back."""
        return int(self.ask(data).split(b" ")[1])

    @property
    def bodies(self) -> list[bytes]:
        """The bodies that the handler was given."""
        return [ask.body for ask in self.echo.asked]


@pytest.fixture
def line() -> Line:
    return Line()


def sized(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(*chunks: bytes) -> bytes:
    framed = [b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b"")]
    return CHUNKED + b"".join(framed)


@pytest.mark.parametrize("request_", [sized(b"hello"), chunked(b"he", b"llo")], ids=repr)
def test_a_body_may_be_cut_anywhere(request_: bytes) -> None:
    for at in range(len(request_)):
        line = Line()
        line.http.receive(request_[:at])
        assert not line.bodies
        assert line.ask(request_[at:]).endswith(b"\r\n\r\nhello")
        assert line.bodies == [b"hello"]


def test_what_comes_behind_a_body_is_the_next_request(line: Line) -> None:
    line.ask(sized(b"one") + chunked(b"two") + sized(b"") + sized(b"four"))
    assert line.bodies == [b"one", b"two", b"", b"four"]
    assert not line.http.is_closing


def test_extensions_and_trailers_are_passed_over(line: Line) -> None:
    line.ask(
        CHUNKED
        + b'3;a="b c"\r\nabc\r\n2 \t;x\r\nde\r\n0;last\r\nX-Sum: 1\r\nY: 2\r\n\r\n'
        + sized(b"n")
    )
    assert line.bodies == [b"abcde", b"n"]


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\nabc",
        b"\r\nabc",
        b"-3\r\nabc\r\n",
        b"+3\r\nabc\r\n",
        b"0x3\r\nabc\r\n",
        b" 3\r\nabc\r\n",
        b"3_0\r\nabc\r\n",
        b"3\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n",
        b"3\r\nabc\n\n0\r\n\r\n",
        b"123456789\r\n",
        b"3;\x00\r\nabc\r\n",
        b"0\r\nno field\r\n\r\n",
        b"0\r\n Folded: x\r\n\r\n",
        b"x" * MAX_CHUNK_LINE_BYTES,
    ],
    ids=repr,
)
def test_chunks_that_may_be_read_in_two_ways_are_400_and_the_end(line: Line, chunks: bytes) -> None:
    assert line.status(CHUNKED + chunks + b"\r\n" * 3 + sized(b"smuggled")) == 400
    assert line.http.is_closing
    assert line.http.lingers
    assert line.bodies == []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 501),
        (b"Transfer-Encoding: gzip, chunked\r\n", 501),
        (b"Transfer-Encoding: identity\r\n", 501),
        (b"Transfer-Encoding: \x0bchunked\r\n", 400),
        (b"Transfer-Encoding : chunked\r\n", 400),
        (b"Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        (b"Content-Length: 5, 5\r\n", 400),
        (b"Content-Length: +5\r\n", 400),
        (b"Content-Length: -5\r\n", 400),
        (b"Content-Length: 0x5\r\n", 400),
        (b"Content-Length: 5_0\r\n", 400),
        (b"Content-Length: \xd9\xa5\r\n", 400),
        (b"Content-Length:\r\n", 400),
        (b"Content-Length: 12345678901234567890\r\n", 400),
        (b"Expect: the-unexpected\r\nContent-Length: 5\r\n", 417),
    ],
    ids=repr,
)
def test_lengths_that_may_be_read_in_two_ways_are_refused(
    line: Line, fields: bytes, status: int
) -> None:
    assert line.status(HEAD + fields + b"\r\n0\r\n\r\n" + sized(b"smuggled")) == status
    assert line.http.is_closing
    assert line.bodies == []


def test_the_same_length_twice_is_one_length(line: Line) -> None:
    line.ask(HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi" + sized(b"next"))
    assert line.bodies == [b"hi", b"next"]


def test_http_1_0_has_no_chunks(line: Line) -> None:
    assert line.status(CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n") == 400


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\n", b"\n\r\n"])
def test_bare_line_ends_are_refused_at_once(line: Line, end: bytes) -> None:
    assert line.status(b"POST /echo HTTP/1.1\nHost: x" + end) == 400


def test_a_body_is_too_large_as_soon_as_it_is_known_to_be(line: Line) -> None:
    assert line.status(HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1)) == 413
    assert line.http.lingers, "or the answer is lost to a client that still sends"


def test_a_body_in_chunks_is_too_large_as_soon_as_it_is_known_to_be(line: Line) -> None:
    piece = b"%x\r\n%b\r\n" % (1 << 20, bytes(1 << 20))
    assert line.ask(CHUNKED + piece * (MAX_BODY_BYTES >> 20)) == b""
    assert line.status(b"1\r\n") == 413


def test_the_largest_body(line: Line) -> None:
    line.ask(sized(bytes(MAX_BODY_BYTES)))
    assert list(map(len, line.bodies)) == [MAX_BODY_BYTES]


def test_no_body_has_more_chunks_than_anybody_needs(line: Line) -> None:
    assert line.ask(CHUNKED + b"1\r\nx\r\n" * MAX_CHUNKS) == b""
    assert line.status(b"1\r\nx\r\n") == 400


def test_trailers_have_an_end(line: Line) -> None:
    assert line.ask(CHUNKED + b"0\r\nX: " + b"x" * (MAX_HEAD_BYTES - 10)) == b""
    assert line.status(b"x" * 20) == 431


@pytest.mark.parametrize("expect", [b"100-continue", b"100-Continue"])
def test_who_waits_for_a_word_gets_it(line: Line, expect: bytes) -> None:
    head = HEAD + b"Expect: " + expect + b"\r\nContent-Length: 2\r\n\r\n"
    assert line.ask(head) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert line.ask(b"hi").startswith(b"HTTP/1.1 200 ")


def test_who_does_not_wait_for_it_gets_no_word(line: Line) -> None:
    expecting = HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"
    assert line.ask(expecting).startswith(b"HTTP/1.1 200 ")
    without = HEAD + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n"
    assert line.ask(without).startswith(b"HTTP/1.1 200 ")


# Answers that take a while.


def test_answers_keep_the_order_of_their_requests(line: Line) -> None:
    line.echo.is_slow = True
    assert line.ask(sized(b"one") + sized(b"two")) == b""
    assert line.bodies == [b"one"], "the second waits for the answer to the first"
    line.echo.responses[0].reply(Reply(HTTPStatus.OK, "text/plain", b"1"))
    line.loop.pass_time(0)
    assert line.bodies == [b"one", b"two"]
    line.echo.responses[1].reply(Reply(HTTPStatus.OK, "text/plain", b"2"))
    line.http.flush()
    assert [part[-1:] for part in line.out.split(b"HTTP/1.1 ")[1:]] == [b"1", b"2"]


def test_an_answer_in_pieces(line: Line) -> None:
    line.echo.is_slow = True
    line.ask(sized(b""))
    response = line.echo.responses[0]
    response.begin(HTTPStatus.OK, ((b"Content-Type", b"text/plain"),))
    response.write(b"0123456789abcdef")
    response.write(b"")
    response.flush()
    head, _, body = line.out.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[1:] == [
        b"Content-Type: text/plain",
        b"Transfer-Encoding: chunked",
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT",
        b"Connection: keep-alive",
    ]
    assert body == b"10\r\n0123456789abcdef\r\n"
    response.finish()
    response.write(b"too late")
    response.finish()
    response.reply(Reply(HTTPStatus.OK, "text/plain", b"too late"))
    line.out = b""
    response.flush()
    assert line.out == b"0\r\n\r\n"
    assert not line.http.is_closing


def test_an_old_client_gets_pieces_without_frames_and_then_the_end(line: Line) -> None:
    line.echo.is_slow = True
    line.ask(sized(b"").replace(b"1.1", b"1.0"))
    response = line.echo.responses[0]
    response.begin(HTTPStatus.OK, ())
    response.write(b"piece")
    response.flush()
    head, _, body = line.out.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT",
        b"Connection: close",
    ]
    assert body == b"piece"
    assert not line.http.is_closing
    response.finish()
    assert line.http.is_closing


def test_an_old_client_may_ask_to_be_kept(line: Line) -> None:
    request = (
        sized(b"hi").replace(b"1.1", b"1.0").replace(b"Host", b"Connection: keep-alive\r\nHost")
    )
    assert b"Connection: keep-alive" in line.ask(request)
    assert not line.http.is_closing


def test_not_much_is_read_ahead(line: Line) -> None:
    line.echo.is_slow = True
    line.ask(sized(b"") + bytes(MAX_AHEAD_BYTES))
    assert line.throttled == []
    line.ask(b"\0")
    assert line.throttled == [True]
    line.http._buffer[:] = sized(b"next")
    line.echo.responses[0].reply(Reply(HTTPStatus.OK, "text/plain", b"1"))
    line.loop.pass_time(0)
    assert line.throttled == [True, False]
    assert line.bodies == [b"", b"next"]


def test_a_handler_is_told_when_its_client_is_gone(line: Line) -> None:
    line.echo.is_slow = True
    line.ask(sized(b""))
    line.http.lost()
    assert line.echo.gone_times == 1
    line.out = b""
    line.echo.responses[0].reply(Reply(HTTPStatus.OK, "text/plain", b"1"))
    line.http.flush()
    assert line.out == b""


def test_there_is_no_room_while_the_transport_has_enough(line: Line) -> None:
    line.echo.is_slow = True
    line.ask(sized(b""))
    response = line.echo.responses[0]
    rooms = [response.has_room]
    line.http.pause()
    rooms.append(response.has_room)
    line.http.flush()
    assert line.echo.relieved_times == 0
    line.http.resume()
    assert line.echo.relieved_times == 1
    assert [*rooms, response.has_room] == [True, False, True]


def test_there_is_no_room_while_much_waits_for_the_gate(line: Line) -> None:
    line.echo.is_slow = True
    line.ask(sized(b""))
    response = line.echo.responses[0]
    response.held(1000)
    assert not response.has_room
    response.held(-400)
    response.flush()
    assert (response.has_room, line.echo.relieved_times) == (False, 0)
    response.held(-100)
    response.flush()
    assert (response.has_room, line.echo.relieved_times) == (True, 1)


def test_a_server_that_closes_ends_what_is_open(line: Line) -> None:
    line.echo.is_slow = True
    line.ask(sized(b""))
    response = line.echo.responses[0]
    response.begin(HTTPStatus.OK, ())
    assert line.http.is_quiet, "what has no end is not waited for"
    error = RpcError(Status.UNAVAILABLE, "over")
    line.http.dismiss(error)
    assert line.echo.dismissals == [error]
    assert line.out.endswith(b"0\r\n\r\n")
    assert line.http.is_closing


def test_a_server_that_drains_waits_for_answers_that_have_an_end(line: Line) -> None:
    line.echo.is_slow = True
    line.echo.ends_by_itself = True
    line.ask(sized(b""))
    line.http.drain()
    assert not line.http.is_quiet
    line.echo.responses[0].reply(Reply(HTTPStatus.OK, "text/plain", b"1"))
    line.http.flush()
    assert b"Connection: close" in line.out
    assert line.http.is_closing


def test_a_handler_that_fails_is_500(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: HttpRequest, __: ResponseWriter) -> None:
        raise ValueError("secret")

    line.echo.handle = fail  # type: ignore[method-assign,assignment]
    answer = line.ask(sized(b""))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in answer
    assert "secret" in caplog.text
