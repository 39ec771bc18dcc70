"""A client that sends very much at once: others are served meanwhile, and it gets all its answers.

Both clients are in the server's own loop, so a test can say what happens after what.
"""

import asyncio
import time
from collections.abc import Coroutine
from functools import cache
from typing import Any, Final

import hpack
import pytest

from leasehold.basics.addresses import TcpAddress
from leasehold.grpc.protocol import framed
from leasehold.grpc.routes import Answer, Exchange
from leasehold.http2 import frames
from leasehold.serving.grpc_server import GrpcServer
from leasehold.serving.turns import SLICE_BYTES
from tests.support.echoing import DEADLINE_S, Run, both_loops
from tests.support.h2_peer import request_fields

FLOOD, SHORT = "/flood.Service/Call", "/short.Service/Call"
CALLS: Final = 1000
COST_S: Final = 0.0002
WIDE: Final = 1 << 24


class Scene:
    """A server, somebody who floods it, and a bystander."""

    def __init__(self, answer: bytes = b"", cost_s: float = COST_S) -> None:
        self._answer, self._cost_s = answer, cost_s
        self.flooded = 0
        self.begun = asyncio.Event()
        self.flooded_before_short: int | None = None
        self.bystander: asyncio.StreamWriter | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.server = GrpcServer(
            {FLOOD: Exchange(self._flood), SHORT: Exchange(self._short)},
        )

    def _flood(self, _message: bytes) -> Answer:
        if not self.flooded and self.bystander is not None:
            self.bystander.write(call(1, SHORT))  # it is in the server's socket at once
        self.flooded += 1
        self.begun.set()
        time.sleep(self._cost_s)  # this is what each call costs
        return self._answer, 0

    def _short(self, _message: bytes) -> Answer:
        self.flooded_before_short = self.flooded
        return b"", 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        (address,) = await self.server.start([TcpAddress("127.0.0.1", 0)])
        assert isinstance(address, TcpAddress)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        other, self.bystander = await asyncio.open_connection(address.host, address.port)
        self._writers = [writer, self.bystander]
        for each in self._writers:
            setting = {frames.Setting.INITIAL_WINDOW_SIZE: WIDE}
            each.write(frames.PREFACE + frames.settings(setting) + frames.window_update(0, WIDE))
        for each_reader in (reader, other):  # they are greeted
            head = await each_reader.readexactly(frames.HEAD_BYTES)
            await each_reader.readexactly(int.from_bytes(head[:3], "big"))
        return reader, writer

    async def hang_up(self) -> None:
        for each in self._writers:
            each.transport.abort()
        while self.server.connections:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.001)


@cache
def block_of(path: str) -> bytes:
    """The first block of a connection; it refers to no other, so it may be sent again."""
    return hpack.Encoder().encode(request_fields(path))


def call(stream_id: int, path: str, message: bytes = bytes(100)) -> bytes:
    head = frames.frame(frames.HEADERS, frames.END_HEADERS, stream_id, block_of(path))
    return head + frames.frame(frames.DATA, frames.END_STREAM, stream_id, framed(message))


def flood() -> bytes:
    data = b"".join(call(2 * number + 1, FLOOD) for number in range(CALLS))
    assert len(data) > 10 * SLICE_BYTES
    return data


async def wait_for_ends(reader: asyncio.StreamReader, calls: int) -> None:
    """Read until so many calls have ended, each with the next number."""
    received = b""
    ended: list[int] = []
    while len(ended) < calls:
        more = await reader.read(1 << 16)
        assert more, "the server hung up"
        received += more
        at = 0
        while len(received) - at >= frames.HEAD_BYTES:
            size = int.from_bytes(received[at : at + 3], "big") + frames.HEAD_BYTES
            if len(received) - at < size:
                break
            if received[at + 3] == frames.HEADERS and received[at + 4] & frames.END_STREAM:
                ended.append(int.from_bytes(received[at + 5 : at + 9], "big"))
            at += size
        received = received[at:]
    assert ended == [2 * number + 1 for number in range(calls)]


def in_time(run: Run, main: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main

    run(limited())


@both_loops
def test_a_short_call_does_not_wait_for_a_flood_to_end(run: Run) -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.server:
            reader, writer = await scene.connect()
            writer.write(flood())
            await wait_for_ends(reader, CALLS)
            assert scene.flooded_before_short is not None
            assert scene.flooded_before_short < CALLS // 2
            await scene.hang_up()

    in_time(run, main())


@both_loops
def test_a_flood_goes_on_when_its_client_takes_answers_again(run: Run) -> None:
    async def main() -> None:
        scene = Scene(answer=bytes(4000), cost_s=0.0)
        async with scene.server:
            reader, writer = await scene.connect()
            writer.write(flood())
            await scene.begun.wait()
            so_far = -1
            while scene.flooded != so_far:  # until the server has to wait for its client
                so_far = scene.flooded
                await asyncio.sleep(0.05)
            await wait_for_ends(reader, CALLS)
            await scene.hang_up()

    in_time(run, main())


@both_loops
def test_what_a_client_sent_that_hung_up_is_forgotten(run: Run) -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.server:
            _, writer = await scene.connect()
            writer.write(flood())
            await scene.begun.wait()
            writer.transport.abort()
            while scene.server.connections > 1:  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.001)
            flooded = scene.flooded
            await asyncio.sleep(0.05)
            assert scene.flooded == flooded < CALLS
            await scene.hang_up()

    in_time(run, main())


@both_loops
def test_a_message_that_is_longer_than_a_slice_arrives_whole(run: Run) -> None:
    message = bytes(range(256)) * 4000

    async def main() -> None:
        heard: list[bytes] = []

        def listen(each: bytes) -> Answer:
            heard.append(each)
            return b"", 0

        server = GrpcServer({FLOOD: Exchange(listen)})
        async with server:
            (address,) = await server.start([TcpAddress("127.0.0.1", 0)])
            assert isinstance(address, TcpAddress)
            reader, writer = await asyncio.open_connection(address.host, address.port)
            data = framed(message)
            pieces = [data[at : at + 16_384] for at in range(0, len(data), 16_384)]
            writer.write(frames.PREFACE + frames.settings({}))
            writer.write(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, block_of(FLOOD)))
            for piece in pieces[:-1]:
                writer.write(frames.frame(frames.DATA, 0, 1, piece))
            writer.write(frames.frame(frames.DATA, frames.END_STREAM, 1, pieces[-1]))
            await wait_for_ends(reader, 1)
            writer.close()
        assert heard == [message]

    in_time(run, main())


@pytest.mark.parametrize("size", [SLICE_BYTES, SLICE_BYTES + 1, 3 * SLICE_BYTES])
def test_pieces_of_any_size_are_taken(size: int) -> None:
    async def main() -> None:
        scene = Scene(cost_s=0.0)
        async with scene.server:
            reader, writer = await scene.connect()
            data = flood()
            for at in range(0, len(data), size):
                writer.write(data[at : at + size])
                await asyncio.sleep(0)
            await wait_for_ends(reader, CALLS)
            await scene.hang_up()

    in_time(asyncio.run, main())
