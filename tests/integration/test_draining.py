"""How a server closes its connections, over real sockets on both loops."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from leasehold.basics.addresses import TcpAddress
from leasehold.grpc.protocol import framed
from leasehold.grpc.routes import Exchange
from leasehold.http2 import frames
from leasehold.serving import grpc_server
from leasehold.serving.admission import Admission
from leasehold.serving.grpc_server import GrpcServer
from tests.support.echoing import DEADLINE_S, Run, both_loops
from tests.support.h2_peer import ONCE, Frame, RawPeer

ANSWER = bytes(200_000)


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    head = await reader.readexactly(frames.HEAD_BYTES)
    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return Frame(head[3], head[4], int.from_bytes(head[5:], "big"), payload)


@both_loops
def test_an_answer_that_waits_for_the_clients_window_arrives_though_the_server_closes(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "DRAIN_CALLS_S", 0.0)

    async def main() -> None:
        server = GrpcServer({ONCE: Exchange(lambda _: (ANSWER, 0))})
        (address,) = await server.start([TcpAddress("127.0.0.1", 0)])
        assert isinstance(address, TcpAddress)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(frames.PREFACE + frames.settings({}) + RawPeer().unary(1))
        body, is_ended = b"", False
        while len(body) < frames.DEFAULT_WINDOW:
            heard = await read_frame(reader)
            body += heard.payload if heard.kind == frames.DATA else b""
        closing = asyncio.ensure_future(server.close())
        while (await read_frame(reader)).payload[:4] != (1).to_bytes(4, "big"):
            pass  # until the good-bye that names our call as the last
        writer.write(frames.window_update(0, len(ANSWER)) + frames.window_update(1, len(ANSWER)))
        while not is_ended:
            heard = await read_frame(reader)
            body += heard.payload if heard.kind == frames.DATA else b""
            is_ended = heard.stream_id == 1 and bool(heard.flags & frames.END_STREAM)
        assert body == framed(ANSWER)
        await closing
        assert server.connections == 0
        writer.close()
        await writer.wait_closed()

    async def in_time() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    run(in_time())


@both_loops
@pytest.mark.parametrize("turns", range(6))
def test_a_connection_accepted_while_the_server_closes_does_not_delay_it(
    run: Run, turns: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing begins a number of turns of the event loop after the connection was accepted."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = GrpcServer({ONCE: Exchange(lambda _: (b"", 0))})
        closing: asyncio.Future[asyncio.Task[None]] = loop.create_future()

        def close_after(left: int) -> None:
            if left:
                loop.call_soon(close_after, left - 1)
            else:
                closing.set_result(loop.create_task(server.close()))

        def admit(self: Admission, peer: str, make_room: Callable[[], bool] = bool) -> bool:
            close_after(turns)
            return admit_as_usual(self, peer, make_room)

        admit_as_usual = Admission.admit
        monkeypatch.setattr(Admission, "admit", admit)
        late: list[str] = []
        monkeypatch.setattr(server, "cut_off", lambda: late.append("the time limit has passed"))
        (address,) = await server.start([TcpAddress("127.0.0.1", 0)])
        assert isinstance(address, TcpAddress)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        async with asyncio.timeout(DEADLINE_S):
            await (await closing)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert late == []
        assert (server.connections, caplog.messages) == (0, [])
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    run(main())
