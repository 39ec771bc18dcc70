"""A connection must not care how its bytes are cut, and must survive whatever they are."""

import itertools
from collections.abc import Callable
from typing import Final

import hpack
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import RpcError, framed
from leasehold.grpc.routes import Answer
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from tests.property.support import effort
from tests.support.h2_peer import (
    END,
    END_HEADERS,
    MANY,
    ONCE,
    WATCH,
    Frame,
    RawPeer,
    Service,
    no_leak,
    request_fields,
    split_frames,
)

UNKNOWN: Final = "/test.Service/Nothing"
MAX_CALLS: Final = 6
Script = list[bytes]
"""Frames, encoded, in the order in which a client sends them."""

messages = st.binary(max_size=60) | st.just(b"fail") | st.integers(1, 40_000).map(bytes)


class Failing(Service):
    """Fails when it is told to, so that the answer depends on nothing but the message."""

    def echo(self, message: bytes) -> Answer:
        if message == b"fail":
            raise RpcError(Status.ABORTED, "as you wish")
        return super().echo(message)


@st.composite
def calls(draw: st.DrawFn) -> Script:
    """Give a script of calls, interleaved, with pings and settings among them."""
    encoder = hpack.Encoder()
    script: Script = []
    waiting: list[list[bytes]] = []
    for index in range(draw(st.integers(1, MAX_CALLS))):
        number = 2 * index + 1
        path = draw(st.sampled_from([ONCE, ONCE, MANY, WATCH, UNKNOWN]))
        block = encoder.encode(request_fields(path, x_number=str(draw(st.integers(0, 2)))))
        sent = draw(st.lists(messages, min_size=1, max_size=1 if path == ONCE else 3))
        data = b"".join(map(framed, sent))
        size = draw(st.integers(1, 30) if len(data) < 300 else st.integers(5_000, 16_384))
        script.append(_headers(draw, number, block))
        waiting.append(
            [
                frames.frame(
                    frames.DATA, END * (at + size >= len(data)), number, data[at : at + size]
                )
                for at in range(0, len(data), size)
            ]
        )
        if draw(st.booleans()):
            script.append(draw(_others))
        while draw(st.booleans()) and waiting:
            _take_one(draw, waiting, script)
    while waiting:
        _take_one(draw, waiting, script)
    return script


_others = st.sampled_from(
    [
        frames.frame(frames.PING, 0, 0, b"pingpong"),
        frames.settings({Setting.INITIAL_WINDOW_SIZE: 1_000_000}),
        frames.settings({Setting.INITIAL_WINDOW_SIZE: 20}),
        frames.settings({Setting.MAX_FRAME_SIZE: 20_000}),
        frames.settings({Setting.HEADER_TABLE_SIZE: 0}),
        frames.window_update(0, 1_000),
        frames.frame(0x77, 0, 0, b"unknown"),
        frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
    ]
)


def _headers(draw: st.DrawFn, number: int, block: bytes) -> bytes:
    """Write a block as one frame, or with continuations."""
    cut = draw(st.none() | st.integers(1, len(block) - 1))
    if cut is None:
        return frames.frame(frames.HEADERS, END_HEADERS, number, block)
    return frames.frame(frames.HEADERS, 0, number, block[:cut]) + frames.frame(
        frames.CONTINUATION, END_HEADERS, number, block[cut:]
    )


def _take_one(draw: st.DrawFn, waiting: list[list[bytes]], script: Script) -> None:
    chosen = draw(st.integers(0, len(waiting) - 1))
    script.append(waiting[chosen].pop(0))
    if not waiting[chosen]:
        del waiting[chosen]


class Line:
    """A connection that is fed pieces; what it says is read as a client would."""

    def __init__(self) -> None:
        self.service = Failing()
        self.out: list[bytes] = []
        self.server = ServerConnection(self.service.methods, DurabilityGate(), self.out.append)

    def feed(self, pieces: list[bytes]) -> None:
        self.server.receive(frames.frame(frames.SETTINGS, 0, 0))
        for piece in pieces:
            self.server.receive(piece)
        for number in range(1, 2 * MAX_CALLS, 2):  # let everything leave that waits for a window
            if number <= self.server._last_id:
                self.server.receive(frames.window_update(number, 1 << 20))
        self.server.receive(frames.window_update(0, 1 << 24))

    def said(self) -> tuple[dict[int, object], list[Frame]]:
        """Give what was said on each stream, and the frames of the connection itself.

        Where a message is cut into frames, and whether a stream is reset that the client had not
        ended yet when it was answered, depends on when the bytes came.
        """
        decoder = hpack.Decoder()
        streams: dict[int, list[object]] = {}
        others: list[Frame] = []
        for one in split_frames(b"".join(self.out)):
            said = streams.setdefault(one.stream_id, [b""])
            if one.kind == frames.DATA:
                last = said.pop()
                assert isinstance(last, bytes)
                said.append(last + one.payload)
            elif one.kind == frames.HEADERS:
                said += [decoder.decode(one.payload), one.flags, b""]
            elif one.stream_id == 0:
                others.append(one)
            else:
                assert (one.kind, one.code) == (frames.RST_STREAM, ErrorCode.NO_ERROR)
        return {number: tuple(map(str, said)) for number, said in streams.items()}, others


@effort(150)
@given(calls(), st.data())
def test_octets_cut_anywhere_are_answered_alike(script: Script, data: st.DataObject) -> None:
    raw = b"".join(script)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=30)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    whole, cut = Line(), Line()
    whole.feed([raw])
    cut.feed(pieces)
    assert whole.said() == cut.said()
    assert whole.service.heard == cut.service.heard
    assert no_leak(whole.server)
    assert no_leak(cut.server)


@effort(60)
@given(calls())
def test_octets_that_come_one_at_a_time_are_answered_alike(script: Script) -> None:
    sizes = itertools.accumulate(map(len, script))
    data = b"".join(frame for frame, size in zip(script, sizes, strict=True) if size <= 3_000)
    whole, cut = Line(), Line()
    whole.feed([data])
    cut.feed([bytes((byte,)) for byte in data])
    assert whole.service.heard == cut.service.heard
    assert whole.said() == cut.said()


kind = st.integers(0, 11)
some_frame: st.SearchStrategy[bytes] = st.builds(
    frames.frame,
    kind,
    st.integers(0, 255) | st.sampled_from([0, END, END_HEADERS, END | END_HEADERS]),
    st.integers(0, 9) | st.sampled_from([2**31 - 1, 2**31]),
    st.binary(max_size=40) | st.sampled_from([bytes(4), bytes(8), framed(b"hello")]),
)


def _requests(numbers: list[int]) -> Callable[[RawPeer], list[bytes]]:
    return lambda raw: [raw.request(number, (ONCE, MANY, WATCH)[number % 3]) for number in numbers]


@effort(300)
@given(
    st.lists(st.integers(0, 4).map(lambda index: 2 * index + 1), unique=True).map(sorted),
    st.lists(some_frame | st.binary(max_size=30), max_size=30),
    st.integers(0, 3),
)
def test_garbage_never_raises_and_leaves_nothing_behind(
    numbers: list[int], garbage: list[bytes], position: int
) -> None:
    raw = RawPeer()
    raw.service.position = position
    for data in [*_requests(numbers)(raw), *garbage]:
        raw.server.receive(data)
    raw.gate.release(2)
    said = raw.taken()
    assert (frames.GOAWAY in [one.kind for one in said]) == raw.server.is_closing
    raw.server.lost()
    raw.gate.release(3)
    assert raw.taken() == []
    assert [ear.gone_times for ear in raw.service.ears] == [1] * len(raw.service.ears)
    assert no_leak(raw.server)
