"""Plain GETs of HTTP/1.1: whole, in pieces, one after the other, and what is refused."""

from http import HTTPStatus
from typing import Any

import pytest

from leasehold.grpc.http_handlers import PagesOnly, Reply
from leasehold.http1.http1_connection import MAX_PIPELINED, Http1Connection
from leasehold.http1.http1_messages import MAX_HEAD_BYTES
from tests.support.cost import cost

GET = b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n"


def _health() -> Reply:
    return Reply(HTTPStatus.OK, "application/json", b'{"health": "true"}')


def _broken() -> Reply:
    raise ValueError("secret")


class Line:
    """A connection, and what it answered."""

    def __init__(self) -> None:
        self.out = b""
        self.http = Http1Connection(PagesOnly({"/health": _health, "/broken": _broken}), self._take)

    def _take(self, data: bytes) -> None:
        self.out += data

    def ask(self, data: bytes) -> bytes:
        """Send bytes; give what came back."""
        self.out = b""
        self.http.receive(data)
        return self.out

    def status(self, data: bytes) -> int:
        """Send bytes; give the status that came back."""
        return int(self.ask(data).split(b" ")[1])


@pytest.fixture
def line() -> Line:
    return Line()


def test_a_page_is_answered_and_the_connection_kept(line: Line) -> None:
    head, _, body = line.ask(GET).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: application/json",
        b"Content-Length: 18",
        b"Date: Thu, 01 Jan 1970 00:00:00 GMT",
        b"Connection: keep-alive",
    ]
    assert body == b'{"health": "true"}'
    assert not line.http.is_closing


@pytest.mark.parametrize("host", [b"a b", b"a@b", b"a#b", b"a:b", b"[::1", b"a:99999", b"\xff"])
def test_a_malformed_host_is_refused(line: Line, host: bytes) -> None:
    assert line.status(GET.replace(b"test", host)) == 400
    assert line.http.is_closing
    assert Line().status(GET.replace(b"/health", b"http://" + host + b"/health")) == 400


@pytest.mark.parametrize(
    "host", [b"", b"a", b"a:", b"a.b.:1", b"[::1]:2379", b"%2frun%2fx", b"a_b"]
)
def test_a_host_is_a_name_or_an_address(line: Line, host: bytes) -> None:
    assert line.status(GET.replace(b"test", host)) == 200


def test_a_request_has_at_most_100_fields(line: Line) -> None:
    more = b"\r\n".join([b"a: b"] * 99)
    assert line.status(GET.replace(b"test", b"test\r\n" + more)) == 200
    assert line.status(GET.replace(b"test", b"test\r\nx: y\r\n" + more)) == 431


def test_a_request_may_come_octet_by_octet(line: Line) -> None:
    answers = [line.ask(bytes((byte,))) for byte in GET]
    assert not any(answers[:-1])
    assert answers[-1] == Line().ask(GET)


def test_requests_may_come_before_the_answers_to_those_before_them(line: Line) -> None:
    assert line.ask(GET * 20 + GET[:10]) == Line().ask(GET) * 20
    assert line.ask(GET[10:]) == Line().ask(GET)


def test_a_head_is_answered_without_the_body(line: Line) -> None:
    answer = line.ask(GET.replace(b"GET", b"HEAD"))
    assert answer == Line().ask(GET).removesuffix(b'{"health": "true"}')


def test_a_query_is_no_part_of_the_name_of_a_page(line: Line) -> None:
    assert line.status(GET.replace(b"/health", b"/health?verbose=1")) == 200


def test_an_unknown_page_is_404_and_the_connection_kept(line: Line) -> None:
    assert line.status(GET.replace(b"/health", b"/other")) == 404
    assert line.status(GET) == 200


def test_another_method_is_405(line: Line) -> None:
    assert line.status(GET.replace(b"GET", b"DELETE")) == 405
    assert line.status(GET) == 200


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nGET /",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n",
    ],
    ids=["sized", "chunked"],
)
def test_nothing_of_a_body_is_taken_for_a_request(line: Line, body: bytes) -> None:
    request = b"POST /health HTTP/1.1\r\nHost: test\r\n" + body + GET
    answers = line.ask(request).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"405", b"200"]


@pytest.mark.parametrize(
    "request_line", [b"GET", b"GET /health", b"GET  /health HTTP/1.1", b"GET / HTTP/2.0"]
)
def test_what_is_no_request_is_400_and_ends_the_connection(line: Line, request_line: bytes) -> None:
    assert line.status(request_line + b"\r\n\r\n") == 400
    assert line.http.is_closing
    assert line.ask(GET) == b""


@pytest.mark.parametrize("noise", [b"\0", b"HELO me\r\n\r\n", b"\x16\x03\x01"])
def test_who_does_not_speak_http_is_told_nothing(line: Line, noise: bytes) -> None:
    assert line.ask(noise) == b""
    assert line.http.is_closing


def test_a_client_may_ask_for_the_end(line: Line) -> None:
    assert b"Connection: close" in line.ask(GET.replace(b"Host: test", b"Connection: Close"))
    assert line.http.is_closing


def test_a_client_of_1_0_is_not_kept(line: Line) -> None:
    assert b"Connection: close" in line.ask(GET.replace(b"1.1", b"1.0"))
    assert line.http.is_closing


def test_a_head_without_end_is_refused(line: Line) -> None:
    assert line.ask(b"GET /health HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD_BYTES - 100)) == b""
    assert line.status(b"x" * 200) == 431
    assert line.http.is_closing


def test_a_large_head_with_an_end_is_refused_too(line: Line) -> None:
    assert line.status(GET[:-2] + b"X: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n") == 431


def test_a_page_that_fails_is_500_and_is_logged(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    answer = line.ask(GET.replace(b"/health", b"/broken"))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"secret" not in answer
    assert "/broken" in caplog.text


def test_nothing_is_answered_once_the_connection_is_lost(line: Line) -> None:
    line.http.lost()
    assert line.ask(GET) == b""


def test_answers_to_requests_of_one_piece_leave_in_one_piece() -> None:
    written: list[bytes] = []
    Http1Connection(PagesOnly({"/health": _health}), written.append).receive(
        GET * (MAX_PIPELINED - 1)
    )
    assert [piece.count(b"200 OK") for piece in written] == [MAX_PIPELINED - 1]


def test_more_requests_at_once_than_anybody_needs_close_the_connection(line: Line) -> None:
    answered = line.ask(GET * 10 * MAX_PIPELINED)
    assert answered.count(b"200 OK") == MAX_PIPELINED
    assert answered.count(b"Connection: close") == 1
    assert line.http.is_closing


def test_as_many_requests_one_after_the_other_are_no_harm(line: Line) -> None:
    for _ in range(3 * MAX_PIPELINED):
        assert b"200 OK" in line.ask(GET)
    assert not line.http.is_closing


def test_what_waits_for_its_end_is_never_more_than_a_head(line: Line) -> None:
    line.ask(GET * 10 + b"x" * MAX_HEAD_BYTES)
    assert len(line.http._buffer) == MAX_HEAD_BYTES


@pytest.mark.parametrize(
    "fields",
    [
        b"",
        b"Host: a\r\nHost: b\r\n",
        b"Host : a\r\n",
        b"Host: a\r\n folded\r\n",
        b"Host: a\0\r\n",
        b"Host: a\r\nX: y\rContent-Length: 5\r\n",
        b"Host: a\r\nX: y\nTransfer-Encoding: chunked\r\n",
        b"Host: a\r\nno colon\r\n",
        b"Host: a\r\n: nameless\r\n",
    ],
    ids=repr,
)
def test_fields_that_may_be_read_in_two_ways_are_400(line: Line, fields: bytes) -> None:
    assert line.status(b"GET /health HTTP/1.1\r\n" + fields + b"\r\n" + GET) == 400
    assert line.http.is_closing


def test_an_old_client_need_not_name_a_host(line: Line) -> None:
    assert line.status(b"GET /health HTTP/1.0\r\n\r\n") == 200


@pytest.mark.parametrize("target", [b"http://any.where/health", b"HTTPS://x:1/health?full=1"])
def test_a_target_may_be_absolute(line: Line, target: bytes) -> None:
    assert line.status(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n") == 200


@pytest.mark.parametrize("byte", [*range(0x20), 0x7F], ids=hex)
@pytest.mark.parametrize("target", [b"/hea%clth", b"/health?%c", b"http://x%c/health"])
def test_control_characters_in_a_target_are_400_and_the_end(
    line: Line, target: bytes, byte: int
) -> None:
    assert line.status(b"GET " + target % byte + b" HTTP/1.1\r\nHost: x\r\n\r\n" + GET) == 400
    assert line.http.is_closing
    assert line.out.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/health\xff", 404),
        (b"/he\xc2\x85lth", 404),
        (b"/health?\xff", 200),
        (b"/health?%zz", 200),
        (b'/health?<>"#', 200),
        (b"/%00", 404),
        (b"/he%zzlth", 400),
        (b"/health%", 400),
        (b"health", 400),
        (b"a:1", 400),
    ],
    ids=repr,
)
def test_targets_are_taken_as_etcd_takes_them(line: Line, target: bytes, status: int) -> None:
    """The statuses are those of etcd 3.5.1, which `tests/conformance` asks as well."""
    assert line.status(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n") == status


def test_a_long_target_costs_no_more_than_its_length(line: Line) -> None:
    target = b"/" + b"%41a" * 2000 + b"%"
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(line.status(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n"))

    assert cost(ask, times=1) < 10
    assert statuses == [400]


def test_close_is_heard_among_other_wishes(line: Line) -> None:
    line.ask(GET.replace(b"Host: test", b"Host: test\r\nConnection: keep-alive, Close"))
    assert line.http.is_closing


def test_empty_lines_before_a_request_are_passed_over(line: Line) -> None:
    assert line.status(b"\r\n\r\n" + GET) == 200


@pytest.mark.parametrize("end", [b"\x01", b"y"], ids=["bad", "good"])
def test_spaces_in_a_field_cost_no_more_than_their_number(end: bytes) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: x\r\na:x%b%b\r\n\r\n"

    def receive() -> None:
        for _ in range(20):
            Http1Connection(PagesOnly({"/health": _health}), lambda _: None).receive(
                request % (b" " * 7_000, end)
            )

    assert cost(receive, times=5) < 10, "in cubic time it is many thousands"


def test_empty_lines_may_be_cut_anywhere(line: Line) -> None:
    answers = [line.ask(bytes((byte,))) for byte in b"\r\n\r\n" + GET]
    assert b"".join(answers).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("reply", [None, "text", Reply(HTTPStatus.OK, "text/plain", "text")])  # type: ignore[arg-type]
def test_a_page_that_gives_no_reply_is_500(reply: Any) -> None:
    written: list[bytes] = []
    Http1Connection(PagesOnly({"/health": lambda: reply}), written.append).receive(GET)
    assert b"".join(written).startswith(b"HTTP/1.1 500 ")
