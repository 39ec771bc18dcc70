"""Whatever bytes come in, in whatever pieces: a connection survives, and stays within bounds.

Frames are drawn at random, or from sequences that are right and then damaged. Where bytes are cut
must make no difference. What may make one is whether several frames come in one piece: what they
have to say leaves together then, and a stream that has said its last may still be there when the
next frame is read. So the pieces compared here each have the end of one frame at most; for several
in one piece there is tests/property/test_connection_pieces.py.
"""

import itertools
from collections.abc import Callable
from typing import Final

import hpack
from hypothesis import given
from hypothesis import strategies as st

from leasehold.errors import Status
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.http2_request import WebRequest
from leasehold.grpc.protocol import PREFIX, RpcError, compress, framed
from leasehold.grpc.routes import Answer, Exchange, ServerStream
from leasehold.grpc.server_call import ServerCall
from leasehold.grpc.server_connection import MAX_HEADS, ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import HEAD_BYTES, MIN_MAX_FRAME_BYTES, Setting
from leasehold.http2.hpack import DEFAULT_TABLE_BYTES, MAX_MEMO_BLOCKS
from leasehold.http2.limits import ConnectionLimits, Rate
from leasehold.http2.stream import MAX_ENDED_HERE, MAX_GAPS
from tests.property.support import effort
from tests.support.h2_peer import (
    END,
    END_HEADERS,
    MANY,
    ONCE,
    WATCH,
    Ear,
    Peer,
    Service,
    no_leak,
    request_fields,
    split_frames,
)
from tests.support.virtual_loop import Turn, VirtualLoop

LATER: Final = "/test.Service/Later"
SMALL: Final = ConnectionLimits(
    max_streams=4,
    max_header_list_bytes=600,
    max_block_bytes=400,
    max_continuations=3,
    max_message_bytes=1_000,
    max_buffered_bytes=1_500,
    resets=Rate(5, 1.0),
    settings=Rate(5, 1.0),
    pings=Rate(5, 1.0),
    empty_data=Rate(5, 1.0),
    idle_frames=Rate(10, 1.0),
    max_unsent_bytes=3_000,
    max_event_bytes=1_000,
)
MAX_ANSWER_FACTOR: Final = 200
"""How many bytes may come out for one that went in: an error tells what was not found."""
MAX_ANSWER_BYTES: Final = 4_000


class Echo(Ear):
    """Says what it hears; whether there is room for it is not its concern."""

    def message_received(self, message: bytes) -> None:
        super().message_received(message)
        self.stream.send_message(*self.service.echo(message))


class Moody(Service):
    """Does as the message says, so that all that happens depends on the bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.methods[LATER] = Exchange(self.later)

    def echo(self, message: bytes) -> Answer:
        match message:
            case b"fail":
                raise RpcError(Status.ABORTED, "as you wish", position=1)
            case b"crash":
                raise ValueError("secret")
            case b"held":
                return message, 2
        return super().echo(message)

    def listen(self, stream: ServerStream) -> Ear:
        self.ears.append(Echo(self, stream))
        return self.ears[-1]

    async def later(self, message: bytes) -> Answer:
        await Turn()
        return self.echo(message)


class Line:
    """A connection with everything around it, and what it has said."""

    def __init__(self, limits: ConnectionLimits | None = None, *, greets: bool = True) -> None:
        self.limits = limits or ConnectionLimits()
        self.service, self.gate, self.loop = Moody(), DurabilityGate(), VirtualLoop()
        self.out: list[bytes] = []
        self.taken_in = self.last_piece = 0
        self.server = ServerConnection(
            self.service.methods,
            self.gate,
            self.out.append,
            limits=self.limits,
            loop=self.loop,
        )
        if greets:
            self.server.receive(frames.frame(frames.SETTINGS, 0, 0))

    def feed(self, pieces: list[bytes], *, is_checked: bool = True) -> None:
        for piece in pieces:
            self.server.receive(piece)
            self.taken_in += len(piece)
            self.last_piece = len(piece)
            if is_checked:
                self.check()

    def check(self) -> None:
        """Everything that a peer can make grow is within its bounds, and counted right."""
        server, limits = self.server, self.limits
        assert len(server._streams) <= limits.max_streams
        assert len(server._closed._ended_here) <= MAX_ENDED_HERE
        assert len(server._closed._gaps) <= MAX_GAPS
        assert len(server._heads) <= MAX_HEADS
        assert len(server._decoder._memo) <= MAX_MEMO_BLOCKS
        assert server._decoder._dynamic_bytes <= DEFAULT_TABLE_BYTES
        if not server.is_closing:
            assert len(server._tail) < HEAD_BYTES + MIN_MAX_FRAME_BYTES
            block = server._assembly.whole() if server._assembly is not None else b""
            assert len(block) <= max(limits.max_block_bytes, MIN_MAX_FRAME_BYTES)
        self._check_calls()
        out_bytes = sum(map(len, self.out))
        assert out_bytes <= MAX_ANSWER_FACTOR * self.taken_in + MAX_ANSWER_BYTES
        assert len(self.gate) <= 2 * self.taken_in

    def _check_calls(self) -> None:
        server, streams = self.server, self.server._streams.values()
        calls = [stream for stream in streams if isinstance(stream, ServerCall)]
        buffered = sum(one.reader.buffered_bytes for one in calls if one.reader is not None)
        buffered += sum(one.deferred for one in calls)
        buffered += sum(len(one._body) for one in streams if isinstance(one, WebRequest))
        buffered += server._assembly.size_bytes if server._assembly is not None else 0
        assert server._inbound.buffered_bytes == buffered
        assert server._inbound.buffered_bytes <= self.limits.max_buffered_bytes
        assert server.unsent_bytes == sum(len(one.unsent or b"") for one in streams)
        limits, asked_for = self.limits, MAX_ANSWER_FACTOR * self.last_piece
        assert server.unsent_bytes <= limits.max_unsent_bytes + limits.max_event_bytes + asked_for
        assert self.loop.alarms <= len(calls)
        assert all(not stream.is_over for stream in streams)

    def end(self) -> None:
        """Let go what waits, lose the connection, and find nothing of it left."""
        self.loop.run_tasks()
        self.gate.release(3)
        self.loop.pass_time(2.0)
        self.check()
        said = split_frames(b"".join(self.out))
        assert (frames.GOAWAY in [one.kind for one in said]) == self.server.is_closing
        self.server.lost()
        self.loop.run_tasks()
        assert no_leak(self.server)
        assert (self.loop.alarms, self.loop.open_tasks, len(self.gate)) == (0, 0, 0)
        assert [ear.gone_times for ear in self.service.ears] == [1] * len(self.service.ears)
        assert self.server.held_event_bytes == 0


# Frames.

numbers = st.integers(0, 9) | st.sampled_from([11, 101, 2**31 - 1, 2**31, 2**31 + 1])
flag_sets = st.sampled_from([0, END, END_HEADERS, END | END_HEADERS]) | st.integers(0, 255)
messages = st.sampled_from([b"", b"hello", b"fail", b"crash", b"held", b"x" * 900]) | st.binary(
    max_size=50
)
bodies: st.SearchStrategy[bytes] = st.one_of(
    messages.map(framed),
    st.lists(messages, max_size=4).map(lambda some: b"".join(map(framed, some))),
    messages.map(compress),
    st.sampled_from([b"", b"\0", PREFIX.pack(0, 10_000_000), PREFIX.pack(0, 990), b"\2\0\0\0\0"]),
    st.builds(lambda body, cut: framed(body)[:cut], messages, st.integers(0, 60)),
)
settings_of_peers = st.dictionaries(
    st.sampled_from(list(Setting)),
    st.sampled_from([0, 1, 20, 100, 4_096, 16_384, 65_535, 2**24 - 1, 2**31 - 1, 2**32 - 1]),
    max_size=3,
).map(frames.settings)

changes = st.dictionaries(
    st.sampled_from(
        [
            "method",
            "scheme",
            "authority",
            "te",
            "content_type",
            "content_length",
            "grpc_encoding",
            "grpc_accept_encoding",
            "grpc_timeout",
            "x_raw_bin",
            "connection",
            "x_any",
        ]
    ),
    st.sampled_from(
        [
            *[
                "POST",
                "GET",
                "CONNECT",
                "trailers",
                "application/grpc",
                "gzip",
                "zstd",
                "5",
                "10",
                "1S",
                "9H",
                "0n",
                "5x",
                "AP8",
                "*",
            ],
            *("", "x" * 300),
        ]
    ),
    max_size=3,
)
paths = st.sampled_from([ONCE, MANY, WATCH, LATER, "/no.Service/No", "/health", "", "*"])


@st.composite
def random_frames(draw: st.DrawFn) -> bytes:
    """Give any frame: of any type, with any flags, on any stream."""
    kind = draw(st.integers(0, 12))
    zeros = st.sampled_from([4, 5, 8]).map(bytes)
    payload = draw(st.binary(max_size=40) | bodies | zeros)
    return frames.frame(kind, draw(flag_sets), draw(numbers), payload)


def data_on(numbers: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    """Give a DATA frame."""
    flags = st.sampled_from([0, END, END | frames.PADDED])
    return st.builds(frames.frame, st.just(frames.DATA), flags, numbers, bodies)


@st.composite
def scripts(draw: st.DrawFn) -> list[bytes]:
    """Give frames as a client might send them, more or less."""
    encoder = hpack.Encoder()
    script: list[bytes] = []
    fresh = itertools.count(1, 2)
    for _ in range(draw(st.integers(1, 12))):
        what = draw(st.integers(0, 9))
        if what <= 3:
            number = next(fresh)
            fields = request_fields(draw(paths), **draw(changes))
            block = encoder.encode(fields)
            script += _headers(draw, number, block)
            if draw(st.booleans()):
                script.append(draw(data_on(st.just(number))))
        elif what <= 5:
            script.append(draw(data_on(numbers)))
        else:
            script.append(draw(_others) if what <= 8 else draw(random_frames()))
    return script


def _headers(draw: st.DrawFn, number: int, block: bytes) -> list[bytes]:
    flags = draw(st.sampled_from([0, 0, 0, END]))
    cut = draw(st.none() | st.integers(0, len(block)))
    if cut is None:
        return [frames.frame(frames.HEADERS, END_HEADERS | flags, number, block)]
    return [
        frames.frame(frames.HEADERS, flags, number, block[:cut]),
        frames.frame(frames.CONTINUATION, END_HEADERS, number, block[cut:]),
    ]


_others = st.one_of(
    settings_of_peers,
    st.sampled_from(
        [
            frames.frame(frames.PING, 0, 0, b"pingpong"),
            frames.frame(frames.PING, frames.ACK, 0, bytes(8)),
            frames.frame(frames.SETTINGS, frames.ACK, 0),
            frames.goaway(0, frames.ErrorCode.NO_ERROR),
            frames.frame(0x77, 0, 0, b"unknown"),
        ]
    ),
    st.builds(frames.window_update, numbers, st.sampled_from([0, 1, 20, 1_000, 2**31 - 1])),
    st.builds(frames.rst_stream, numbers, st.sampled_from(list(frames.ErrorCode))),
    st.builds(lambda number: frames.frame(frames.PRIORITY, 0, number, bytes(5)), numbers),
)

Damage = Callable[[list[bytes]], list[bytes]]


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """Give a script in which something is lost, doubled, swapped, cut off or changed."""
    script = draw(scripts())
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(script) - 1))
        other = draw(st.integers(0, len(script) - 1))
        match draw(st.integers(0, 5)):
            case 0 if len(script) > 1:
                del script[at]
            case 1:
                script.insert(at, script[other])
            case 2:
                script[at], script[other] = script[other], script[at]
            case 3:
                script[at] = script[at][: draw(st.integers(0, len(script[at])))]
            case 4:
                script[at] = _changed(draw, script[at])
            case _:
                script.insert(at, draw(st.binary(max_size=20)))
    return script


def _changed(draw: st.DrawFn, data: bytes) -> bytes:
    """Change an byte; as often as not one of the head."""
    if not data:
        return data
    at = draw(st.integers(0, min(len(data), HEAD_BYTES) - 1) | st.integers(0, len(data) - 1))
    return data[:at] + bytes((draw(st.integers(0, 255)),)) + data[at + 1 :]


inputs = st.lists(random_frames(), max_size=15) | scripts() | damaged()
limits_of_lines = st.sampled_from([ConnectionLimits(), SMALL])


def frame_ends(data: bytes) -> list[int]:
    """Where frames end, as far as the bytes have frames."""
    ends, at = [], 0
    while at + HEAD_BYTES <= len(data):
        at += HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
        if at <= len(data):
            ends.append(at)
    return ends


def cut_at(data: bytes, cuts: set[int]) -> list[bytes]:
    """Cut bytes into pieces."""
    ends = sorted({0, *cuts, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


# What must hold.


@effort(600)
@given(inputs, limits_of_lines)
def test_frames_one_by_one_never_raise_and_everything_stays_within_its_bounds(
    script: list[bytes], limits: ConnectionLimits
) -> None:
    line = Line(limits)
    line.feed(script)
    line.end()


@effort(400)
@given(inputs, limits_of_lines)
def test_frames_in_one_piece_never_raise_and_everything_stays_within_its_bounds(
    script: list[bytes], limits: ConnectionLimits
) -> None:
    line = Line(limits)
    line.feed([b"".join(script)])
    line.end()


@effort(150)
@given(st.binary(max_size=200), st.booleans())
def test_octets_that_are_no_frames_never_raise(data: bytes, greets: bool) -> None:
    line = Line(SMALL, greets=greets)
    line.feed([data])
    line.end()


@effort(400)
@given(inputs, limits_of_lines, st.data())
def test_frames_cut_anywhere_get_the_same_answers(
    script: list[bytes], limits: ConnectionLimits, data: st.DataObject
) -> None:
    raw = b"".join(script)
    ends = set(frame_ends(raw))
    cuts = data.draw(st.sets(st.integers(0, len(raw)), max_size=20))
    whole, pieces = Line(limits), Line(limits)
    whole.feed(cut_at(raw, ends), is_checked=False)
    pieces.feed(cut_at(raw, ends | cuts), is_checked=False)
    _check_alike(whole, pieces)


@effort(200)
@given(inputs, limits_of_lines)
def test_frames_that_come_octet_by_octet_get_the_same_answers(
    script: list[bytes], limits: ConnectionLimits
) -> None:
    data = b"".join(script)[:1_500]
    whole, pieces = Line(limits), Line(limits)
    whole.feed(cut_at(data, set(frame_ends(data))), is_checked=False)
    pieces.feed([bytes((byte,)) for byte in data], is_checked=False)
    _check_alike(whole, pieces)


def _check_alike(whole: Line, pieces: Line) -> None:
    for line in (whole, pieces):
        line.check()
        line.loop.run_tasks()
        line.gate.release(3)
    assert b"".join(whole.out) == b"".join(pieces.out)
    assert whole.service.heard == pieces.service.heard
    whole.end()
    pieces.end()


@effort(200)
@given(inputs, limits_of_lines)
def test_another_connection_on_the_same_methods_notices_nothing(
    script: list[bytes], limits: ConnectionLimits
) -> None:
    line = Line(limits)
    other = Peer(line.service, line.gate, loop=line.loop)
    watch = other.open(WATCH)
    other.pump()
    ear = line.service.ears[0]
    for data in script:
        line.server.receive(data)
    assert other.call(b"and me?").messages == [b"and me?"]
    line.server.lost()
    line.loop.run_tasks()
    assert other.call(b"and afterwards?").messages == [b"and afterwards?"]
    ear.stream.send_message(b"event", 0)
    other.server.flush()
    other.pump()
    assert other.reply(watch).messages == [b"event"]
    assert ear.gone_times == 0
