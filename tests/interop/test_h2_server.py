"""The library `h2` as a server for our channel, for what gRPC's own servers do not do.

grpcio's client goes through the same as far as it can, which makes it the judge of the scripts: it
knows no padding and no informational answers, and takes no notice of a push.
"""

import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, Final

import pytest
from h2.settings import SettingCodes
from hyperframe.frame import PushPromiseFrame

from leasehold.errors import Status
from tests.interop.callers import Caller, Outcome
from tests.interop.conftest import CALLERS
from tests.interop.demo import DEADLINE_S, Kind
from tests.interop.h2_peers import HEAD, OK, H2Peer, H2Server, Script, framed

PATH: Final = "/h2.Service/Method"
MESSAGE: Final = bytes(range(256)) * 10
PROTOCOL_ERROR: Final = 1

Answer = Callable[[H2Peer, int], None]
Serve = Callable[..., Caller]


@pytest.fixture(params=["grpcio", "ours"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Have scripts played for a client, which is given."""
    with ExitStack() as stack:

        def serve_one(*scripts: Script) -> Caller:
            server = stack.enter_context(closing(H2Server(*scripts)))
            return stack.enter_context(closing(CALLERS[request.param](server.target)))

        yield serve_one


only_ours = pytest.mark.parametrize("serve", ["ours"], indirect=True)


def answering(
    answer: Answer, settings: dict[SettingCodes, int] | None = None, **changed: Any
) -> Script:
    """Answer each call, once its client has said everything."""

    def play(peer: H2Peer) -> None:
        peer.start(settings)
        for name, value in changed.items():
            setattr(peer.h2, name, value)
        answered: set[int] = set()
        while _goes_on(peer):
            for number, stream in list(peer.streams.items()):
                if stream.is_ended and number not in answered:
                    answered.add(number)
                    answer(peer, number)
                    peer.flush()

    return play


def _goes_on(peer: H2Peer) -> bool:
    try:
        return peer.pump()
    except ConnectionError:
        return False


def echo(peer: H2Peer, number: int) -> None:
    """Answer with the message."""
    peer.h2.send_headers(number, HEAD)
    peer.send(number, peer.stream(number).body, 16_384)
    peer.h2.send_headers(number, OK, end_stream=True)


def test_the_plain_case(serve: Serve) -> None:
    client = serve(answering(echo))
    assert client.ask(PATH, MESSAGE).answer == MESSAGE
    assert client.call(Kind.MANY_TO_MANY, PATH, MESSAGE, b"", MESSAGE).answers == (
        MESSAGE,
        b"",
        MESSAGE,
    )


def test_a_server_with_windows_of_one_octet(serve: Serve) -> None:
    client = serve(answering(echo, {SettingCodes.INITIAL_WINDOW_SIZE: 1}))
    assert client.ask(PATH, MESSAGE).answer == MESSAGE


@only_ours
@pytest.mark.parametrize("pad_length", [None, 0, 1, 255])
@pytest.mark.parametrize("piece_bytes", [1, 4, 5, 1_000])
def test_an_answer_in_any_pieces_with_any_padding(
    serve: Serve, pad_length: int | None, piece_bytes: int
) -> None:
    def answer(peer: H2Peer, number: int) -> None:
        peer.h2.send_headers(number, HEAD)
        peer.send(number, peer.stream(number).body, piece_bytes, pad_length=pad_length)
        peer.h2.send_headers(number, OK, end_stream=True)

    assert serve(answering(answer)).ask(PATH, MESSAGE[:300]).answer == MESSAGE[:300]


def test_heads_and_trailers_in_many_continuations(serve: Serve) -> None:
    said = (("x-long", "y" * 500), ("x-octets-bin", "AAEC"))

    def answer(peer: H2Peer, number: int) -> None:
        peer.h2.send_headers(number, [*HEAD, *said])
        peer.send(number, framed(b"!"), 16)
        peer.h2.send_headers(number, [*OK, *said], end_stream=True)

    outcome = serve(answering(answer, max_outbound_frame_size=16)).call(
        Kind.ONE_TO_MANY, PATH, b"?", metadata=(("x-name", "any"),)
    )
    assert outcome.answer == b"!"
    assert outcome.head == (("x-long", "y" * 500), ("x-octets-bin", bytes((0, 1, 2))))
    assert outcome.trailers == outcome.head


def test_a_failure_in_one_block(serve: Serve) -> None:
    def answer(peer: H2Peer, number: int) -> None:
        failed = [("grpc-status", "9"), ("grpc-message", "no%20%C3%BC"), ("x-why", "so")]
        peer.h2.send_headers(number, [*HEAD, *failed], end_stream=True)

    outcome = serve(answering(answer)).ask(PATH, b"?", metadata=(("x-name", "any"),))
    assert outcome == Outcome(Status.FAILED_PRECONDITION, "no ü", trailers=(("x-why", "so"),))


@only_ours
@pytest.mark.parametrize("number_of_them", [1, 3])
def test_informational_answers_come_before_the_answer(serve: Serve, number_of_them: int) -> None:
    def answer(peer: H2Peer, number: int) -> None:
        for _ in range(number_of_them):
            peer.h2.send_headers(number, [(":status", "103"), ("link", "</x>")])
        echo(peer, number)

    assert serve(answering(answer)).ask(PATH, MESSAGE).answer == MESSAGE


def _push(peer: H2Peer, number: int) -> None:
    frame = PushPromiseFrame(number)
    frame.promised_stream_id = 2
    frame.data = peer.h2.encoder.encode([(":method", "GET"), (":path", "/")])
    frame.flags.add("END_HEADERS")
    peer.sock.sendall(frame.serialize())


@only_ours
def test_a_push_is_refused_and_the_next_connection_is_as_good_as_ever(serve: Serve) -> None:
    told: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def push(peer: H2Peer) -> None:
        answering(_push)(peer)
        told.put(peer.goaway)

    client = serve(push, answering(echo))
    failed = client.ask(PATH, b"?")
    assert failed.status == Status.UNAVAILABLE
    assert "PUSH_PROMISE" in failed.message
    assert client.ask(PATH, MESSAGE, waits=True).answer == MESSAGE
    assert told.get(timeout=DEADLINE_S) == PROTOCOL_ERROR
    assert told.empty()


def test_a_server_that_takes_one_call_at_a_time(serve: Serve) -> None:
    most = 0

    def answer(peer: H2Peer, number: int) -> None:
        nonlocal most
        most = max(most, len([s for n, s in peer.streams.items() if n >= number]))
        echo(peer, number)

    client = serve(answering(answer, {SettingCodes.MAX_CONCURRENT_STREAMS: 1}))
    assert client.ask(PATH, b"first").answer == b"first"
    calls = [client.open(Kind.ONE_TO_ONE, PATH, b"%d" % index) for index in range(50)]
    assert [call.outcome().answer for call in calls] == [b"%d" % index for index in range(50)]
    assert most == 1


def test_a_reset_call_leaves_the_connection_alone(serve: Serve) -> None:
    def answer(peer: H2Peer, number: int) -> None:
        if peer.stream(number).body == framed(b"reset me"):
            peer.h2.reset_stream(number, 8)  # CANCEL
        else:
            echo(peer, number)

    client = serve(answering(answer))
    assert client.ask(PATH, b"reset me").status == Status.CANCELLED
    assert client.ask(PATH, b"and me not").answer == b"and me not"


@pytest.mark.parametrize(
    ("http_status", "status"),
    [
        ("400", Status.INTERNAL),
        ("401", Status.UNAUTHENTICATED),
        ("403", Status.PERMISSION_DENIED),
        ("404", Status.UNIMPLEMENTED),
        ("429", Status.UNAVAILABLE),
        ("502", Status.UNAVAILABLE),
        ("503", Status.UNAVAILABLE),
        ("504", Status.UNAVAILABLE),
        ("500", Status.UNKNOWN),
        ("418", Status.UNKNOWN),
    ],
)
def test_an_answer_that_is_none_of_grpc(serve: Serve, http_status: str, status: Status) -> None:
    def answer(peer: H2Peer, number: int) -> None:
        peer.h2.send_headers(number, [(":status", http_status), ("content-type", "text/html")])
        peer.h2.send_data(number, b"<h1>no</h1>", end_stream=True)

    assert serve(answering(answer)).ask(PATH, b"?").status == status
