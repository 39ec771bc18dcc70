"""Channels on real sockets and both event loops: our own server, grpcio's, and bad ones.

Bad servers are in this process and do what the test says; those that are killed are processes.
"""

import asyncio
import contextlib
import functools
import gc
import os
import signal
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import grpc
import pytest
import trustme

from leasehold.basics.addresses import Address, TcpAddress, UnixAddress
from leasehold.basics.tls import client_tls, server_tls
from leasehold.errors import ConnectFailed, ConnectionLost, Status
from leasehold.grpc.channel import Channel
from leasehold.grpc.client_connection import CLIENT_LIMITS
from leasehold.grpc.coroutine_handlers import Conversation, conversation, one_to_one
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http_handlers import PagesOnly
from leasehold.grpc.protocol import RpcError
from leasehold.grpc.routes import Exchange, Methods
from leasehold.http2.frames import ErrorCode
from leasehold.http2.limits import ConnectionLimits
from leasehold.serving.listening import listen
from leasehold.serving.server_protocol import ServerProtocol, SharedState
from tests.support.echoing import DEADLINE_S, Run, both_loops
from tests.support.raw_server import RawServer, no_leak
from tests.support.servers import leasehold_command, running
from tests.support.stopping import go_on, stop

ECHO: Final = "/test.Service/Echo"
CHAT: Final = "/test.Service/Chat"
HANG: Final = "/test.Service/Hang"
CHECK: Final = "/grpc.health.v1.Health/Check"
BIG: Final = bytes(range(256)) * 20_000  # 5 MB
LOOPBACK: Final = TcpAddress("127.0.0.1", 0)
SOON_S: Final = 0.3
"""A time-out that is meant to come."""
SOONER_OR_LATER_S: Final = (SOON_S, 3.0, 30.0)
"""The same for what must begin before; the longer ones are for a starved server."""


@pytest.fixture(autouse=True)
def _leaves_nothing_open() -> Iterator[None]:
    """A socket that was forgotten warns when it is collected, and warnings are errors."""
    yield
    gc.collect()


def is_clean(channel: Channel) -> bool:
    """Whether nothing is left of any call."""
    dispatcher = channel._dispatcher
    assert dispatcher is not None
    connector = dispatcher.connector
    is_idle = not (connector._waiters or dispatcher._pauses or connector._task)
    are_clean = all(no_leak(each.http2) for each in connector._connections)
    return not len(dispatcher.deadlines) and is_idle and are_clean


async def until(condition: Callable[[], bool]) -> None:
    """Wait on something that comes to be, with a deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  there is no event to await
            await asyncio.sleep(0.001)


def in_time(main: Callable[..., Awaitable[None]]) -> Callable[..., Any]:
    """Give a test no more time than its deadline."""

    @functools.wraps(main)
    async def timed(*args: Any) -> None:
        async with asyncio.timeout(3 * DEADLINE_S):
            await main(*args)

    return timed


# Our own server.


async def _chat(call: Conversation) -> None:
    call.send_metadata(call.context.metadata)
    async for message in call:
        await call.send(message)
    call.trailing_metadata = {"said": "all"}


async def _hang(_request: bytes, _call: Conversation) -> bytes:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


METHODS: Final[Methods] = {
    ECHO: Exchange(lambda message: (message, 0)),
    CHAT: conversation(_chat),
    HANG: one_to_one(_hang),
}


@contextlib.asynccontextmanager
async def serving(
    address: Address = LOOPBACK,
    tls: ssl.SSLContext | None = None,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[tuple[str, SharedState]]:
    site = SharedState(
        METHODS,
        PagesOnly(),
        DurabilityGate(),
        lambda: None,
        limits or ConnectionLimits(max_message_bytes=1 << 24),
    )
    listening = await listen(lambda: ServerProtocol(site), address, tls)
    try:
        await listening.start()
        yield str(listening.addresses[0]), site
    finally:
        listening.close()
        for connection in list(site.connections):
            connection.cut_off()
        async with asyncio.timeout(DEADLINE_S):
            await site.all_gone()


@both_loops
def test_calls_of_both_kinds_with_our_own_server(run: Run) -> None:
    @in_time
    async def main() -> None:
        async with serving() as (address, _), Channel(address) as channel:
            assert await channel.unary(ECHO, b"hello", timeout=DEADLINE_S) == b"hello"
            assert await channel.unary(ECHO, BIG, timeout=DEADLINE_S) == BIG
            said: dict[str, str | bytes] = {"k": "v", "raw-bin": b"\0\xff"}
            async with channel.stream(CHAT, metadata=said) as call:
                await call.send(b"one")
                assert await call.receive() == b"one"
                assert dict(await call.metadata()) == said
                await call.send(BIG)
                call.end()
                assert [message async for message in call] == [BIG]
                assert call.trailing_metadata == (("said", "all"),)
            with pytest.raises(RpcError, match=r"UNIMPLEMENTED: unknown service no\.Such"):
                await channel.unary("/no.Such/Method", b"")
            assert is_clean(channel)

    run(main())


@both_loops
def test_many_calls_at_a_time_with_fewer_than_that_allowed(run: Run) -> None:
    @in_time
    async def main() -> None:
        limits = ConnectionLimits(max_streams=20)
        async with serving(limits=limits) as (address, site), Channel(address) as channel:
            sent = [b"%d" % index for index in range(3000)]
            got = await asyncio.gather(*[channel.unary(ECHO, each, timeout=60) for each in sent])
            assert got == sent
            assert len(site.connections) == 1
            assert is_clean(channel)

    run(main())


@both_loops
def test_a_stream_of_more_than_the_windows_both_ways(run: Run) -> None:
    @in_time
    async def main() -> None:
        async with serving() as (address, _), Channel(address) as channel:
            piece, count = bytes(100_000), 300
            async with channel.stream(CHAT) as call:

                async def send() -> None:
                    for _ in range(count):
                        await call.send(piece)
                    call.end()

                sending = asyncio.ensure_future(send())
                await asyncio.sleep(0)
                assert sum([len(message) async for message in call]) == count * len(piece)
                await sending
            assert is_clean(channel)

    run(main())


@both_loops
def test_cancelled_and_late_calls_are_gone_at_the_server_too(run: Run) -> None:
    @in_time
    async def main() -> None:
        async with serving() as (address, site), Channel(address) as channel:
            await channel.ready()
            (connection,) = site.connections
            speaks = connection._speaks
            assert speaks is not None
            with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
                await channel.unary(HANG, b"", timeout=0.05)
            call = asyncio.ensure_future(channel.unary(HANG, b""))
            await until(lambda: cast(Any, speaks).has_streams)
            call.cancel()
            await asyncio.wait([call])
            await until(lambda: not cast(Any, speaks).has_streams)
            async with channel.stream(CHAT) as talk:
                await talk.send(b"x")
                await talk.receive()
            await until(lambda: not cast(Any, speaks).has_streams)
            assert is_clean(channel)
            assert await channel.unary(ECHO, b"still there") == b"still there"

    run(main())


@both_loops
def test_unix_sockets(run: Run, tmp_path: Path) -> None:
    @in_time
    async def main() -> None:
        path = UnixAddress(str(tmp_path / "s"))
        async with serving(path) as (address, _), Channel(address) as channel:
            assert await channel.unary(ECHO, b"hello") == b"hello"
            assert channel.address == path
        with pytest.raises(ConnectFailed, match="No such file"):
            await Channel(address).ready()

    run(main())


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, ca = tmp_path_factory.mktemp("pems"), trustme.CA()
    made = ca.issue_cert("localhost", "127.0.0.1")
    made.private_key_pem.write_to_path(place / "key")
    made.cert_chain_pems[0].write_to_path(place / "cert")
    ca.cert_pem.write_to_path(place / "ca")
    return place


@both_loops
def test_tls(run: Run, pems: Path) -> None:
    @in_time
    async def main() -> None:
        context = server_tls(pems / "cert", pems / "key")
        async with serving(tls=context) as (address, _):
            async with Channel(f"https://{address}", tls=client_tls(pems / "ca")) as channel:
                assert await channel.unary(ECHO, BIG, timeout=DEADLINE_S) == BIG
                assert is_clean(channel)
            async with Channel(f"https://{address}") as channel:
                with pytest.raises(ConnectFailed, match="not signed by a trusted authority"):
                    await channel.ready()
            async with Channel(address) as channel:
                with pytest.raises(ConnectFailed, match=r"TLS|closed the connection"):
                    await channel.ready()

    run(main())


# grpcio's server.


class Grpcio:
    """A server of grpcio, with all four kinds of calls."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.was_cancelled = threading.Event()
        self.release = threading.Event()
        self.timeouts: list[float | None] = []
        kinds: dict[str, Any] = {
            "One": grpc.unary_unary_rpc_method_handler(self._one),
            "Fails": grpc.unary_unary_rpc_method_handler(self._fails),
            "Waits": grpc.unary_unary_rpc_method_handler(self._waits),
            "Many": grpc.unary_stream_rpc_method_handler(self._many),
            "Sum": grpc.stream_unary_rpc_method_handler(self._sum),
            "Chat": grpc.stream_stream_rpc_method_handler(self._chat),
        }
        handler = grpc.method_handlers_generic_handler("test.Kinds", kinds)
        self.server = grpc.server(
            ThreadPoolExecutor(8),
            handlers=[handler],
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
            compression=grpc.Compression.Gzip,
        )
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def _one(self, request: bytes, context: Any) -> bytes:
        self.timeouts.append(context.time_remaining())
        said = dict(context.invocation_metadata())
        context.send_initial_metadata((("echo", str(said.get("k"))),))
        context.set_trailing_metadata((("raw-bin", said.get("raw-bin", b"")),))
        return request

    def _fails(self, _request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("hint", "try elsewhere"), ("raw-bin", b"\0\1")))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "naïve: 100 %")
        raise AssertionError

    def _waits(self, _request: bytes, context: Any) -> bytes:
        context.add_callback(self.was_cancelled.set)
        self.began.set()
        self.release.wait(DEADLINE_S)
        return b""

    def _many(self, request: bytes, _context: Any) -> Iterator[bytes]:
        for index in range(int(request)):
            yield b"%d" % index * 1000

    def _sum(self, requests: Iterator[bytes], _context: Any) -> bytes:
        return b"%d" % sum(map(int, requests))

    def _chat(self, requests: Iterator[bytes], _context: Any) -> Iterator[bytes]:
        yield from requests


@pytest.fixture(scope="module")
def grpcio() -> Iterator[Grpcio]:
    server = Grpcio()
    yield server
    server.release.set()
    server.server.stop(None).wait(DEADLINE_S)


@both_loops
def test_all_four_kinds_with_a_server_of_grpcio(run: Run, grpcio: Grpcio) -> None:
    @in_time
    async def main() -> None:
        async with Channel(f"127.0.0.1:{grpcio.port}") as channel:
            assert await channel.unary("/test.Kinds/One", b"hello") == b"hello"
            assert await channel.unary("/test.Kinds/One", b"") == b""
            assert await channel.unary("/test.Kinds/One", BIG, timeout=DEADLINE_S) == BIG
            async with channel.stream("/test.Kinds/Many") as call:
                await call.send(b"2000")
                call.end()
                got = [message async for message in call]
            assert got == [b"%d" % index * 1000 for index in range(2000)]
            async with channel.stream("/test.Kinds/Sum") as call:
                for number in range(500):
                    await call.send(b"%d" % number)
                call.end()
                assert [message async for message in call] == [b"124750"]
            async with channel.stream("/test.Kinds/Chat") as call:
                for message in (b"x", BIG, b"", b"y" * 70_000):
                    await call.send(message)
                    assert await call.receive() == message
                call.end()
                assert await call.receive() is None
            assert is_clean(channel)

    run(main())


@both_loops
def test_metadata_both_ways_with_a_server_of_grpcio(run: Run, grpcio: Grpcio) -> None:
    @in_time
    async def main() -> None:
        async with Channel(f"127.0.0.1:{grpcio.port}", metadata={"k": "all"}) as channel:
            async with channel.stream(
                "/test.Kinds/One", timeout=DEADLINE_S, metadata={"raw-bin": b"\0\xfe\xff"}
            ) as call:
                await call.send(b"x")
                call.end()
                assert dict(await call.metadata())["echo"] == "all"
                assert await call.receive() == b"x"
                assert await call.receive() is None
                assert dict(call.trailing_metadata)["raw-bin"] == b"\0\xfe\xff"
            left_s = grpcio.timeouts[-1]
            assert left_s is not None
            assert DEADLINE_S - 5 < left_s <= DEADLINE_S

    run(main())


@both_loops
def test_an_error_of_grpcio_has_its_message_and_trailing_metadata(run: Run, grpcio: Grpcio) -> None:
    @in_time
    async def main() -> None:
        async with Channel(f"127.0.0.1:{grpcio.port}") as channel:
            with pytest.raises(RpcError) as caught:
                await channel.unary("/test.Kinds/Fails", b"")
            error = caught.value
            assert (error.status, error.message) == (Status.FAILED_PRECONDITION, "naïve: 100 %")
            assert dict(error.metadata)[b"hint"] == b"try elsewhere"
            with pytest.raises(RpcError) as caught:
                await channel.unary("/test.Kinds/Unknown", b"")
            assert caught.value.status == Status.UNIMPLEMENTED

    run(main())


@both_loops
def test_a_server_of_grpcio_hears_of_deadlines_and_cancellation(run: Run, grpcio: Grpcio) -> None:
    @in_time
    async def main(how: str) -> None:
        grpcio.began.clear()
        grpcio.was_cancelled.clear()
        async with Channel(f"127.0.0.1:{grpcio.port}") as channel:
            await channel.ready()  # the deadline is to come after the call has begun
            for timeout_s in SOONER_OR_LATER_S if how == "deadline" else (DEADLINE_S,):
                call = asyncio.ensure_future(
                    channel.unary("/test.Kinds/Waits", b"", timeout=timeout_s)
                )
                began = asyncio.ensure_future(asyncio.to_thread(grpcio.began.wait, timeout_s))
                if how == "cancel":
                    assert await began
                    call.cancel()
                await asyncio.wait([call])
                assert call.cancelled() == (how == "cancel")
                if how == "deadline":
                    assert "DEADLINE_EXCEEDED" in str(call.exception())
                if await began:  # else its time was over before the server has executed it
                    break
            assert await asyncio.to_thread(grpcio.was_cancelled.wait, DEADLINE_S)
            assert is_clean(channel)

    run(main("deadline"))
    run(main("cancel"))


def test_a_limit_for_messages_is_kept(grpcio: Grpcio) -> None:
    @in_time
    async def main() -> None:
        limits = ConnectionLimits(max_message_bytes=100_000)
        async with Channel(f"127.0.0.1:{grpcio.port}", limits=limits) as channel:
            with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED"):
                await channel.unary("/test.Kinds/One", bytes(100_001))
            assert await channel.unary("/test.Kinds/One", bytes(100_000)) == bytes(100_000)

    asyncio.run(main())


# Bad servers.


class Bad(asyncio.Protocol):
    """A server that does what the test says."""

    def __init__(self, bench: "Bench") -> None:
        self._bench = bench
        self.transport: asyncio.Transport
        self.server: RawServer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server = RawServer(self.transport.write)
        self._bench.made.append(self)
        self._bench.behave(self)

    def data_received(self, data: bytes) -> None:
        self.server.receive(data)


class Bench:
    """Where bad servers listen."""

    def __init__(self, behave: Callable[[Bad], None]) -> None:
        self.behave = behave
        self.made: list[Bad] = []
        self.executed = 0
        self.address = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Bench"]:
        listening = await listen(lambda: Bad(self), LOOPBACK)
        self.address = str(listening.addresses[0])
        try:
            await listening.start()
            yield self
        finally:
            listening.close()
            for each in self.made:
                each.transport.abort()
            await listening.wait_closed()


def answering(do: Callable[[Bench, Bad, int], None]) -> Bench:
    """A bench whose servers greet, and do this with each call."""

    def behave(bad: Bad) -> None:
        bad.server.on_request = lambda stream_id: do(bench, bad, stream_id)
        bad.server.greet()

    bench = Bench(behave)
    return bench


def execute(bench: Bench, bad: Bad, stream_id: int) -> None:
    bench.executed += 1
    bad.server.answer(stream_id, b"from " + bench.address.encode())


def die_after_executing(bench: Bench, bad: Bad, _stream_id: int) -> None:
    bench.executed += 1
    bad.transport.abort()


@both_loops
def test_a_call_is_not_executed_twice_by_servers_that_die_before_they_answer(run: Run) -> None:
    @in_time
    async def main() -> None:
        async with (
            answering(die_after_executing).open() as first,
            answering(execute).open() as second,
            Channel([first.address, second.address]) as channel,
        ):
            with pytest.raises(ConnectionLost, match=f"{ECHO}: the connection to"):
                await channel.unary(ECHO, b"x", timeout=DEADLINE_S, wait_for_ready=True)
            assert (first.executed, second.executed) == (1, 0)
            got = await channel.unary(ECHO, b"x", timeout=DEADLINE_S)
            assert got == b"from " + second.address.encode()
            assert (first.executed, second.executed) == (1, 1)

    run(main())


@both_loops
def test_unless_it_may_be(run: Run) -> None:
    @in_time
    async def main() -> None:
        async with (
            answering(die_after_executing).open() as first,
            answering(execute).open() as second,
            Channel([first.address, second.address]) as channel,
        ):
            await channel.unary(ECHO, b"x", timeout=DEADLINE_S, idempotent=True)
            assert (first.executed, second.executed) == (1, 1)

    run(main())


@both_loops
def test_calls_that_are_refused_or_left_out_by_a_good_bye_go_to_the_next(run: Run) -> None:
    @in_time
    async def main() -> None:
        def good_bye(_: Bench, bad: Bad, _stream_id: int) -> None:
            bad.server.good_bye(0)

        def refuse(bench: Bench, bad: Bad, stream_id: int) -> None:
            bad.server.reset(stream_id, ErrorCode.REFUSED_STREAM)

        async with (
            answering(good_bye).open() as first,
            answering(execute).open() as second,
            Channel([first.address, second.address]) as channel,
        ):
            calls = [channel.unary(ECHO, b"x", timeout=DEADLINE_S) for _ in range(100)]
            got = await asyncio.gather(*calls)
            assert set(got) == {b"from " + second.address.encode()}
            assert second.executed == 100
        async with answering(refuse).open() as third, Channel(third.address) as channel:
            with pytest.raises(RpcError, match="UNAVAILABLE: not executed"):
                await channel.unary(ECHO, b"x", timeout=DEADLINE_S)
            assert is_clean(channel)

    run(main())


@both_loops
def test_calls_under_way_outlive_a_good_bye(run: Run) -> None:
    @in_time
    async def main() -> None:
        def good_bye(_: Bench, bad: Bad, stream_id: int) -> None:
            bad.server.good_bye(stream_id)

        async with (
            answering(good_bye).open() as first,
            answering(execute).open() as second,
            Channel([first.address, second.address]) as channel,
        ):
            await channel.ready()
            old = asyncio.ensure_future(channel.unary(ECHO, b"old", timeout=DEADLINE_S))
            await until(lambda: channel.address is None)
            new = await channel.unary(ECHO, b"new", timeout=DEADLINE_S)
            assert new == b"from " + second.address.encode()
            assert not old.done()
            first.made[0].server.answer(1, b"late")
            assert await old == b"late"
            await until(first.made[0].transport.is_closing)

    run(main())


@both_loops
def test_a_server_that_never_answers_or_never_greets(run: Run) -> None:
    @in_time
    async def main() -> None:
        async with (
            Bench(lambda bad: bad.server.greet()).open() as mute,
            Channel(mute.address, keepalive=0.1, keepalive_timeout=0.1) as channel,
        ):
            with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
                await channel.unary(ECHO, b"x", timeout=SOON_S)
            mute.made[0].server.answers_pings = False
            with pytest.raises(ConnectionLost, match=r"no answer to a ping for 0.1 s"):
                await channel.unary(ECHO, b"x", timeout=DEADLINE_S)

        def say_nothing(bad: Bad) -> None:
            bad.server.acknowledges = False

        async with Bench(say_nothing).open() as deaf, Channel(deaf.address) as channel:
            with pytest.raises(RpcError, match=r"DEADLINE_EXCEEDED.*no connection within"):
                await channel.unary(ECHO, b"x", timeout=SOON_S)

    run(main())


@both_loops
def test_closing_is_prompt_whatever_the_server_does(run: Run) -> None:
    @in_time
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Bench(lambda bad: bad.server.greet()).open() as mute:
            channel = Channel(mute.address)
            await channel.ready()
            mute.made[0].transport.pause_reading()
            calls = [asyncio.ensure_future(channel.unary(ECHO, BIG)) for _ in range(3)]
            await asyncio.sleep(0)
            begun = loop.time()
            await channel.close()
            assert loop.time() - begun < DEADLINE_S / 4
            for call in calls:
                with pytest.raises(RpcError, match="CANCELLED: the channel was closed"):
                    await call
            assert len(asyncio.all_tasks()) == 1

    run(main())


def test_a_port_where_nobody_listens_is_named() -> None:
    @in_time
    async def main() -> None:
        async with answering(execute).open() as bench:
            address = bench.address
        async with Channel([address, "unix:/nowhere/at.all"]) as channel:
            with pytest.raises(ConnectFailed) as caught:
                await channel.unary(ECHO, b"x")
            assert str(caught.value) == (
                f"cannot connect to {address}: Connection refused; "
                "cannot connect to unix:/nowhere/at.all: No such file or directory"
            )

    asyncio.run(main())


# Processes.


@both_loops
def test_a_server_that_is_killed_and_the_next(run: Run, tmp_path: Path) -> None:
    first_place, second_place = tmp_path / "1", tmp_path / "2"
    first_place.mkdir()
    second_place.mkdir()

    @in_time
    async def main(first: Any, second: Any) -> None:
        async with Channel([first.endpoint, second.endpoint]) as channel:
            await channel.unary(CHECK, b"", timeout=DEADLINE_S)
            assert str(channel.address) == first.endpoint
            stop(first.process.pid)
            call = asyncio.ensure_future(channel.unary(CHECK, b"", timeout=DEADLINE_S))
            late = asyncio.ensure_future(channel.unary(CHECK, b"", timeout=SOON_S))
            with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
                await late
            os.kill(first.process.pid, signal.SIGKILL)
            go_on(first.process.pid)
            with pytest.raises(ConnectionLost):
                await call
            await asyncio.to_thread(first.process.wait, DEADLINE_S)  # else it may yet be dying
            await channel.unary(CHECK, b"", timeout=DEADLINE_S)
            assert str(channel.address) == second.endpoint
            assert is_clean(channel)

    with (
        running(leasehold_command, second_place) as second,
        pytest.raises(AssertionError, match="the server has ended"),  # it was killed
        running(leasehold_command, first_place) as first,
    ):
        run(main(first, second))


def test_the_limits_of_a_client_are_wider_than_those_of_a_server() -> None:
    assert CLIENT_LIMITS.max_message_bytes > ConnectionLimits().max_message_bytes
