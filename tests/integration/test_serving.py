"""A server of one's own: where it listens, what it is made of, and handlers that misbehave."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from leasehold.errors import Closed, Status
from leasehold.grpc.channel import Channel
from leasehold.grpc.coroutine_handlers import (
    Conversation,
    conversation,
    many_to_one,
    one_to_many,
    one_to_one,
)
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Exchange, Method
from leasehold.http2.inbound import STREAM_WINDOW
from leasehold.serving.grpc_server import GrpcServer

ECHO: Final = "/test.Demo/Echo"
BAD: Final = "/test.Demo/Bad"
DEADLINE_S: Final = 60.0
SOON_S: Final = (0.3, 3.0, 30.0)
"""Deadlines that are meant to come; the longer ones are for a starved call."""

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run_in_time(main: Coroutine[Any, Any, None]) -> None:
        request.param(asyncio.wait_for(main, 3 * DEADLINE_S))

    return run_in_time


@asynccontextmanager
async def calling(**methods: Method) -> AsyncIterator[Channel]:
    """Serve methods beside an echo, and give a channel to them."""
    paths = {f"/test.Demo/{name}": method for name, method in methods.items()}
    async with GrpcServer({ECHO: Exchange(lambda message: (message, 0)), **paths}) as server:
        [address] = await server.start(["127.0.0.1:0"])
        async with Channel(str(address)) as channel:
            yield channel


class Disaster(BaseException):
    """What is no Exception."""


async def _nothing(_: bytes, __: Conversation) -> Any:
    return None


async def _text(_: bytes, __: Conversation) -> Any:
    return "text"


async def _ends_itself(_: bytes, __: Conversation) -> bytes:
    raise asyncio.CancelledError


async def _disaster(_: bytes, __: Conversation) -> bytes:
    raise Disaster


async def _bad_error(_: bytes, __: Conversation) -> bytes:
    raise RpcError(Status.NOT_FOUND, ValueError("an exception, and not a text"))  # type: ignore[arg-type]


def _exchange(answer: Any) -> Exchange:
    return Exchange(lambda _: answer)


def _raising(_: bytes) -> Any:
    raise RpcError(5, "a number, and no status")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "status"),
    [
        pytest.param(_exchange(b"no position"), Status.INTERNAL, id="bytes"),
        pytest.param(_exchange(None), Status.INTERNAL, id="None"),
        pytest.param(_exchange(("text", 0)), Status.INTERNAL, id="text"),
        pytest.param(_exchange((None, 0)), Status.INTERNAL, id="no message"),
        pytest.param(_exchange(("text", 7)), Status.INTERNAL, id="text that has to wait"),
        pytest.param(Exchange(_raising), Status.INTERNAL, id="an error without a status"),
        pytest.param(one_to_one(_nothing), Status.INTERNAL, id="coroutine: None"),
        pytest.param(one_to_one(_text), Status.INTERNAL, id="coroutine: text"),
        pytest.param(one_to_one(_bad_error), Status.INTERNAL, id="coroutine: a bad error"),
        pytest.param(one_to_one(_disaster), Status.INTERNAL, id="coroutine: no Exception"),
        pytest.param(one_to_one(_ends_itself), Status.CANCELLED, id="coroutine: cancelled"),
    ],
)
def test_a_handler_that_misbehaves_costs_its_own_call_only(
    run: Run, method: Method, status: Status, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with calling(Bad=method) as channel:
            for _ in range(3):
                assert await channel.unary(ECHO, b"before", timeout=DEADLINE_S) == b"before"
            with pytest.raises(RpcError) as caught:
                await channel.unary(BAD, b"x", timeout=DEADLINE_S)
            assert caught.value.status == status
            assert await channel.unary(ECHO, b"after", timeout=DEADLINE_S) == b"after"

    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.disabled = True  # it tells of tasks that nobody asks how they ended
    try:
        run(main())
    finally:
        asyncio_logger.disabled = False
    if status == Status.INTERNAL:
        assert f"the handler of {BAD} failed" in caplog.text


def test_a_coroutine_that_only_sends_ends_when_its_time_is_over(run: Run) -> None:
    ended = asyncio.Event()

    async def flood(call: Conversation) -> None:
        try:
            while True:
                await call.send(b"x" * 1000)
        finally:
            ended.set()

    async def main() -> None:
        async with calling(Bad=conversation(flood)) as channel:
            for timeout_s in SOON_S:
                ended.clear()
                async with channel.stream(BAD, timeout=timeout_s) as call:
                    try:
                        first = await call.receive()
                    except RpcError as error:
                        if error.status is not Status.DEADLINE_EXCEEDED:
                            raise
                        continue  # its time was over before that
                    assert first == b"x" * 1000  # and no more of what waits for us
                    await ended.wait()
                    break
            else:
                pytest.fail("no call has begun in time")
            assert await channel.unary(ECHO, b"alive", timeout=DEADLINE_S) == b"alive"

    run(main())


def test_what_is_said_on_a_call_that_somebody_else_has_ended_does_not_keep_the_loop(
    run: Run,
) -> None:
    ended = asyncio.Event()

    async def flood(call: Conversation) -> None:
        assert await call.receive() is not None
        call._stream.end(RpcError(Status.ABORTED, "somebody else"))
        try:
            while True:
                await call.send(b"x")  # nothing of which is kept, so there is room for ever
        finally:
            ended.set()

    async def main() -> None:
        async with calling(Bad=conversation(flood)) as channel:
            with pytest.raises(RpcError, match="somebody else"):
                await channel.unary(BAD, b"go", timeout=DEADLINE_S)
            await ended.wait()

    run(main())


# All four kinds, as the page has them.


async def _double(request: bytes, _: Conversation) -> bytes:
    return 2 * request


async def _letters(request: bytes, _: Conversation) -> AsyncIterator[bytes]:
    for letter in request:
        yield bytes((letter,))


async def _join(call: Conversation) -> bytes:
    return b"".join([message async for message in call])


async def _chat(call: Conversation) -> None:
    async for message in call:
        await call.send(message[::-1])


def test_four_kinds_of_methods(run: Run) -> None:
    async def heard(channel: Channel, name: str, *said: bytes) -> list[bytes]:
        async with channel.stream(f"/test.Demo/{name}", timeout=DEADLINE_S) as call:
            for message in said:
                await call.send(message)
            call.end()
            return [message async for message in call]

    async def main() -> None:
        kinds: dict[str, Method] = {
            "Double": one_to_one(_double),
            "Letters": one_to_many(_letters),
            "Join": many_to_one(_join),
            "Chat": conversation(_chat),
        }
        async with calling(**kinds) as channel:
            assert await heard(channel, "Double", b"ab") == [b"abab"]
            assert await heard(channel, "Letters", b"ab") == [b"a", b"b"]
            assert await heard(channel, "Join", b"a", b"", b"b") == [b"ab"]
            assert await heard(channel, "Chat", b"ab", b"cd") == [b"ba", b"dc"]
            for name, said in (("Double", ()), ("Double", (b"a", b"b")), ("Letters", ())):
                with pytest.raises(RpcError, match="INTERNAL"):
                    await heard(channel, name, *said)

    run(main())


# What a server is made of, and where it listens.


def test_what_nobody_could_call_is_refused_when_the_server_is_made() -> None:
    def wrong(methods: Any, kind: type[Exception], why: str) -> None:
        with pytest.raises(kind, match=why):
            GrpcServer(methods)

    wrong(
        {"Service/Method": Exchange(lambda _: (b"", 0))},
        ValueError,
        "path of a method must look like",
    )
    wrong({"/Service": Exchange(lambda _: (b"", 0))}, ValueError, "path of a method must look like")
    wrong({BAD: _double}, TypeError, "make one with Exchange")
    wrong({BAD: None}, TypeError, "make one with Exchange")


def test_a_server_may_start_on_one_address_after_the_other(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with GrpcServer({ECHO: Exchange(lambda message: (message, 0))}) as server:
            [first] = await server.start(["127.0.0.1:0"])
            addresses = await server.start([f"unix:{tmp_path}/s.sock"])
            assert addresses[0] == first
            for address in addresses:
                async with Channel(str(address)) as channel:
                    assert await channel.unary(ECHO, b"x", timeout=DEADLINE_S) == b"x"
            with pytest.raises(OSError, match="cannot listen on"):
                await server.start([first])
            async with Channel(str(first)) as channel:
                assert await channel.unary(ECHO, b"still", timeout=DEADLINE_S) == b"still"

    run(main())


def test_a_server_is_closed_once_and_for_all(run: Run) -> None:
    async def main() -> None:
        server = GrpcServer({})
        await server.start(["127.0.0.1:0"])
        await server.close()
        await server.close()
        await server.wait_closed()
        with pytest.raises(Closed, match="make another one"):
            await server.start(["127.0.0.1:0"])

    run(main())


@pytest.mark.parametrize("addresses", ["127.0.0.1:0", 5, [5]], ids=repr)
def test_addresses_that_are_none_are_refused(run: Run, addresses: Any) -> None:
    async def main() -> None:
        async with GrpcServer({}) as server:
            with pytest.raises(TypeError, match="address"):
                await server.start(addresses)
            with pytest.raises(ValueError, match="at least one address"):
                await server.start([])

    run(main())


def test_a_channel_may_compress_what_it_sends(run: Run) -> None:
    heard: list[bytes] = []

    def measure(message: bytes) -> tuple[bytes, int]:
        heard.append(message)
        return message, 0

    async def main() -> None:
        async with GrpcServer({ECHO: Exchange(measure)}) as server:
            [address] = await server.start(["127.0.0.1:0"])
            async with Channel(str(address), gzip=True) as channel:
                for message in (b"short", b"long " * 100_000):
                    assert await channel.unary(ECHO, message, timeout=DEADLINE_S) == message
                async with channel.stream(ECHO, timeout=DEADLINE_S) as call:
                    await call.send(b"stream " * 100_000)
                    call.end()
                    assert [answer async for answer in call] == [b"stream " * 100_000]
        assert heard == [b"short", b"long " * 100_000, b"stream " * 100_000]

    run(main())


def test_a_coroutine_that_takes_lets_a_client_go_on_that_waits_for_its_window(run: Run) -> None:
    pieces = 3 * STREAM_WINDOW // 100_000
    begin = asyncio.Event()

    async def swallow(call: Conversation) -> bytes:
        await begin.wait()
        return b"%d" % sum([len(message) async for message in call])

    async def main() -> None:
        async with (
            calling(Bad=many_to_one(swallow)) as channel,
            channel.stream(BAD, timeout=DEADLINE_S) as call,
        ):
            for piece in range(pieces):
                if piece == pieces // 6:
                    begin.set()  # its window is not used up yet, and soon will be
                await call.send(bytes(100_000))
            call.end()
            assert [answer async for answer in call] == [b"%d" % (pieces * 100_000)]

    run(main())
