"""Answers that take a while: the handler returns a coroutine, and others are served meanwhile."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from leasehold.errors import Status
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Answer, Exchange, Head, Pieces
from leasehold.grpc.server_call import ServerCall
from leasehold.grpc.server_connection import ServerConnection
from tests.integration.test_grpc_server import DEADLINE_S, Channel, Running, _call, _channel
from tests.support.h2_peer import ONCE

LATER = "/test.Service/Later"
STREAMED = "/test.Service/StreamedLater"
LONG = [bytes([number % 256]) * 100_000 for number in range(64)]


class Slow:
    """A service whose answers come when a test says so."""

    def __init__(self) -> None:
        self.let_go: asyncio.Event = asyncio.Event()
        self.cancelled = 0
        self.result: Answer | Pieces | Exception = (b"done", 0)

    async def answer(self, message: bytes) -> Answer | Pieces:
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(self.result, Exception):
            raise self.result
        if isinstance(self.result, Pieces):
            return self.result
        return self.result[0] + message, self.result[1]


@pytest.fixture
def server() -> Iterator[Running]:
    running = Running(asyncio.run)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def channel(server: Running) -> Iterator[Channel]:
    with _channel(server.port) as channel:
        yield channel


@pytest.fixture
def slow(server: Running) -> Slow:
    service: Slow = server.do(Slow)
    server.service.methods[LATER] = Exchange(service.answer)
    server.service.methods[STREAMED] = Exchange(service.answer, is_unary=False)
    return service


def _later(channel: Channel, message: bytes = b"!") -> Any:
    return channel.unary_unary(LATER).future(message, timeout=DEADLINE_S)


def test_others_are_answered_meanwhile(server: Running, channel: Channel, slow: Slow) -> None:
    waiting = _later(channel)
    assert _call(channel, b"hello", ONCE) == b"hello"
    assert not waiting.done()
    server.do(slow.let_go.set)
    assert waiting.result() == b"done!"


def test_an_answer_waits_for_its_position_as_any_other(
    server: Running, channel: Channel, slow: Slow
) -> None:
    slow.result = (b"durable", 1)
    waiting = _later(channel)
    server.do(slow.let_go.set)
    server.wait_until(lambda: server.gate.answers == 1)
    assert not waiting.done()
    server.do(server.gate.release, 1)
    assert waiting.result() == b"durable!"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RpcError(Status.NOT_FOUND, "no such thing"), grpc.StatusCode.NOT_FOUND),
        (ValueError("secret"), grpc.StatusCode.INTERNAL),
    ],
)
def test_a_failure_is_the_answer(
    server: Running, channel: Channel, slow: Slow, error: Exception, code: grpc.StatusCode
) -> None:
    slow.result = error
    server.do(slow.let_go.set)
    with pytest.raises(grpc.RpcError) as refused:
        _later(channel).result()
    assert refused.value.code() == code
    assert "secret" not in str(refused.value.details())


def test_a_client_that_gives_up_ends_what_finds_out_its_answer(
    server: Running, channel: Channel, slow: Slow
) -> None:
    waiting = _later(channel)
    server.wait_until(lambda: len(server.site.connections) == 1)
    assert _call(channel, b"in between", ONCE) == b"in between"
    waiting.cancel()
    server.wait_until(lambda: slow.cancelled == 1)


def test_a_call_that_is_over_before_its_answer_is_begun_leaves_nothing(
    server: Running, channel: Channel, slow: Slow
) -> None:
    assert _call(channel, b"hello", ONCE) == b"hello"

    def begin_and_lose() -> None:
        [protocol] = server.site.connections
        head = Head(Exchange(slow.answer), (), None)
        assert isinstance(protocol._speaks, ServerConnection)
        stream = ServerCall(protocol._speaks, 99, head, 0, None, 0.0)
        stream.message_received(b"!")
        stream.over()

    server.do(begin_and_lose)
    gc.collect()  # a coroutine that nobody awaited would warn here, and warnings are errors
    assert slow.cancelled == 0


def test_several_messages_of_a_stream_are_answered_each_and_then_it_ends(
    server: Running, channel: Channel, slow: Slow
) -> None:
    answers = channel.stream_stream(STREAMED)(iter([b"1", b"2", b"3"]), timeout=DEADLINE_S)
    server.do(slow.let_go.set)
    assert sorted(answers) == [b"done1", b"done2", b"done3"]


def test_a_long_answer_comes_whole_and_others_come_in_between(server: Running, slow: Slow) -> None:
    slow.result = Pieces(LONG)
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options) as channel:
        waiting = _later(channel)
        server.do(slow.let_go.set)
        assert _call(channel, b"short", ONCE) == b"short"
        assert waiting.result() == b"".join(LONG)


def test_a_connection_that_is_lost_in_a_long_answer_leaves_nothing(
    server: Running, slow: Slow
) -> None:
    slow.result = Pieces(LONG * 4)
    with _channel(server.port) as channel:
        _later(channel)
        server.wait_until(lambda: len(server.site.connections) == 1)
        server.do(slow.let_go.set)
    server.wait_until(lambda: not server.site.connections)
    with _channel(server.port) as channel:
        assert _call(channel, b"hello", ONCE) == b"hello"
