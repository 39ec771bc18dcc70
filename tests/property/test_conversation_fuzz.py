"""Whatever bytes come in while coroutines answer: every task ends, and nothing is left or leaks.

Unlike in test_frame_fuzz.py there is a real event loop, because coroutines have tasks there. A
client sends frames that are mostly right, in any order and cut anywhere, takes its answers or not,
and goes away in the end. No coroutine may outlive that, however it spends its time.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import hpack
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import Status
from leasehold.grpc.coroutine_handlers import (
    Conversation,
    conversation,
    many_to_one,
    one_to_many,
    one_to_one,
)
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError, framed
from leasehold.grpc.routes import Answer, Exchange, Method
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.http2.limits import ConnectionLimits
from tests.property.support import effort
from tests.support.h2_peer import END, END_HEADERS, no_leak, request_fields

SERVICE: Final = "/test.Coroutines/"
LIMITS: Final = ConnectionLimits(max_streams=8, max_buffered_bytes=60_000, max_unsent_bytes=20_000)
TURNS: Final = 3
"""How often the loop goes round between two pieces."""
ENDING_TURNS: Final = 50
MAX_STREAM: Final = 9


class Coroutines:
    """Handlers of each kind, and how many of them are under way."""

    def __init__(self) -> None:
        self.under_way = 0
        self.methods: dict[str, Method] = {
            f"{SERVICE}One": one_to_one(self.one),
            f"{SERVICE}Many": one_to_many(self.many),
            f"{SERVICE}Join": many_to_one(self.join),
            f"{SERVICE}Chat": conversation(self.chat),
            f"{SERVICE}Flood": conversation(self.flood),
            f"{SERVICE}Deaf": conversation(self.deaf),
            f"{SERVICE}Later": Exchange(self.later, is_unary=False),
        }

    async def one(self, request: bytes, _: Conversation) -> bytes:
        if request == b"fail":
            raise RpcError(Status.ABORTED, "as you wish")
        await asyncio.sleep(0)
        return request

    async def many(self, request: bytes, _: Conversation) -> AsyncIterator[bytes]:
        for _index in range(len(request)):
            yield request * 100

    async def join(self, call: Conversation) -> bytes:
        return b"".join([message async for message in call])

    async def chat(self, call: Conversation) -> None:
        self.under_way += 1
        try:
            async for message in call:
                await call.send(message)
        finally:
            self.under_way -= 1

    async def flood(self, call: Conversation) -> None:
        self.under_way += 1
        try:
            while True:
                await call.send(b"x" * 5_000)
        finally:
            self.under_way -= 1

    async def deaf(self, _: Conversation) -> None:
        self.under_way += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.under_way -= 1

    async def later(self, message: bytes) -> Answer:
        await asyncio.sleep(0)
        return message, 0


NAMES: Final = [path.removeprefix(SERVICE) for path in Coroutines().methods]
number = st.integers(0, MAX_STREAM // 2).map(lambda index: 2 * index + 1)
message = st.sampled_from([b"", b"x", b"fail", b"hello", b"m" * 3_000]).map(framed)
step = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("say"), number, message, st.booleans()),
    st.tuples(st.just("reset"), number),
    st.tuples(st.just("open"), number, st.sampled_from([1, 100, 100_000])),
    st.tuples(st.just("settings"), st.sampled_from([0, 10, 65_535, 1_000_000])),
    st.tuples(st.just("octets"), st.binary(max_size=12)),
    st.tuples(st.just("bad"), number),
)


class Client:
    """Writes what the steps say, and knows which numbers it has used."""

    def __init__(self) -> None:
        self._encoder = hpack.Encoder()
        self._next = 1

    def octets(self, step: tuple[object, ...]) -> bytes:
        match step:
            case ("call", str(name), bool(ends)):
                block = self._encoder.encode(request_fields(SERVICE + name, grpc_timeout="100S"))
                flags = END_HEADERS | (END if ends else 0)
                self._next += 2
                return frames.frame(frames.HEADERS, flags, self._next - 2, block)
            case ("say", int(stream_id), bytes(octets), bool(ends)) if stream_id < self._next:
                return frames.frame(frames.DATA, END if ends else 0, stream_id, octets)
            case ("reset", int(stream_id)) if stream_id < self._next:
                return frames.rst_stream(stream_id, ErrorCode.CANCEL)
            case ("open", int(stream_id), int(octets)) if stream_id < self._next:
                return frames.window_update(stream_id, octets) + frames.window_update(0, octets)
            case ("settings", int(window)):
                return frames.settings({Setting.INITIAL_WINDOW_SIZE: window})
            case ("octets", bytes(octets)):
                return frames.frame(frames.DATA, 0, 1, octets) if self._next > 1 else b""
            case ("bad", int(stream_id)) if stream_id < self._next:
                return frames.frame(frames.DATA, 0, stream_id, b"\x07\0\0\0\0")
        return b""


@effort(150)
@given(st.lists(step, max_size=25), st.integers(1, 4_000), st.booleans())
def test_no_coroutine_outlives_its_client(
    steps: list[tuple[object, ...]], cut: int, is_dismissed: bool
) -> None:
    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def main() -> None:
        coroutines, client, out = Coroutines(), Client(), [0]

        def count(octets: bytes) -> None:
            out[0] += len(octets)

        server = ServerConnection(coroutines.methods, DurabilityGate(), count, limits=LIMITS)
        server.receive(frames.settings({}))
        octets = b"".join(map(client.octets, steps))
        for at in range(0, len(octets), cut):
            server.receive(octets[at : at + cut])
            await turns(TURNS)
            assert server.unsent_bytes <= LIMITS.max_unsent_bytes + 10 * LIMITS.max_message_bytes
            assert server._inbound.buffered_bytes <= LIMITS.max_buffered_bytes
        if is_dismissed:
            server.dismiss(RpcError(Status.UNAVAILABLE, "good-bye"))
            await turns(TURNS)
        server.lost()
        await turns(ENDING_TURNS)
        assert no_leak(server)
        assert coroutines.under_way == 0
        assert len(asyncio.all_tasks()) == 1

    async def in_time() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(in_time())
