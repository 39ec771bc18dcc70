"""What a peer may do to a connection that is meant to harm: each attack meets its limit.

The clock stands still, so bursts are exact. `Arena` has an attacker and a bystander on the same
methods and the same gate: the bystander must not notice anything.
"""

import gzip
import itertools
import logging
import string
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from h2.events import DataReceived

from leasehold.errors import Status
from leasehold.grpc import server_output
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import PREFIX, RpcError, compress, framed, percent_encoded
from leasehold.grpc.routes import Exchange, ServerStream, Subscription
from leasehold.grpc.server_call import ServerCall
from leasehold.grpc.server_connection import MAX_HEAD_FIELDS, MAX_HEADS, ServerConnection
from leasehold.http2 import frames
from leasehold.http2.connection import FRESH_S
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.http2.hpack import MAX_MEMO_BLOCKS
from leasehold.http2.limits import ConnectionLimits, Rate
from leasehold.http2.outbound import HAND_ON_BYTES, Outbound
from leasehold.http2.stream import Http2Stream
from tests.support.h2_peer import (
    END,
    END_HEADERS,
    MANY,
    ONCE,
    WATCH,
    Ear,
    Frame,
    Peer,
    RawPeer,
    Service,
    kinds,
    no_leak,
    request_fields,
    split_frames,
)
from tests.support.virtual_loop import VirtualLoop

frame = frames.frame
BURST: Final = 50
PER_S: Final = 5.0
RATE: Final = Rate(BURST, PER_S)
LIMITS: Final = ConnectionLimits(
    resets=RATE, settings=RATE, pings=RATE, empty_data=RATE, idle_frames=RATE, max_streams=1024
)
NUMBER: Final = 100_001
"""A number that no attack reaches."""


class Arena:
    """An attacker, and somebody else on the same server."""

    def __init__(self, caplog: pytest.LogCaptureFixture, limits: ConnectionLimits = LIMITS) -> None:
        self._caplog = caplog
        self.loop = VirtualLoop()
        self.service, self.gate = Service(), DurabilityGate()
        self.attacker = RawPeer(self.service, self.gate, limits=limits, loop=self.loop)
        self.bystander = Peer(self.service, self.gate, loop=self.loop)
        self.watch = self.bystander.open(WATCH)
        self.bystander.pump()
        self.ear = self.service.ears[0]
        self.check_bystander()

    def check_bystander(self) -> None:
        """Both what it asks and what it is told reaches the bystander."""
        assert self.bystander.call(b"and me?").messages == [b"and me?"]
        said = len(self.bystander.reply(self.watch).messages)
        self.ear.stream.send_message(b"an event", 0)
        self.bystander.server.flush()
        self.bystander.pump()
        assert len(self.bystander.reply(self.watch).messages) == said + 1
        assert self.ear.gone_times == 0

    def warnings(self) -> list[str]:
        """What was logged about peers that misbehave."""
        return [
            record.getMessage()
            for record in self._caplog.records
            if record.levelno >= logging.WARNING
        ]

    def suffered(self, attempts: Iterator[bytes], most: int = 20_000) -> tuple[int, Frame]:
        """Attack until the connection ends; say how many attempts were suffered, and how it did."""
        sent: list[Frame] = []
        for count, data in enumerate(itertools.islice(attempts, most)):
            sent += self.attacker.send(data)
            if self.attacker.server.is_closing:
                self.check_bystander()
                return count, sent[-1]
        raise AssertionError(f"{most} attempts are suffered")

    def check_ended(self, last: Frame, code: ErrorCode = ErrorCode.ENHANCE_YOUR_CALM) -> None:
        """The attacker is told why it is cut off, and so is the log, once; nothing is left."""
        assert (last.kind, last.code) == (frames.GOAWAY, code)
        [warning] = self.warnings()
        assert warning.endswith(f"({code.name})")
        assert last.payload[8:].decode() in warning
        assert self.attacker.send(self.attacker.unary(NUMBER)) == [], "nothing is read any more"
        assert no_leak(self.attacker.server)
        self.attacker.server.lost()
        assert (self.loop.alarms, self.loop.open_tasks) == (0, 0)
        assert [ear.gone_times for ear in self.service.ears] == [0] + [1] * (
            len(self.service.ears) - 1
        )
        self.check_bystander()


@pytest.fixture
def arena(caplog: pytest.LogCaptureFixture) -> Arena:
    return Arena(caplog)


def _numbers(first: int = 1) -> Iterator[int]:
    return itertools.count(first, 2)


# Calls that are taken back.


@pytest.mark.parametrize("path", [ONCE, MANY, WATCH])
def test_rapid_reset(arena: Arena, path: str) -> None:
    raw = arena.attacker
    count, last = arena.suffered(
        raw.request(number, path) + frames.rst_stream(number, ErrorCode.CANCEL)
        for number in _numbers()
    )
    assert count == BURST
    arena.check_ended(last)


def test_calls_that_are_given_up_after_a_while_may_be_any_number(arena: Arena) -> None:
    raw = arena.attacker
    numbers = [*itertools.islice(_numbers(), 3 * BURST)]
    for number in numbers:
        raw.send(raw.request(number, WATCH))
    arena.loop.pass_time(FRESH_S)
    assert raw.send(*[frames.rst_stream(number, ErrorCode.CANCEL) for number in numbers]) == []
    assert arena.warnings() == []
    assert no_leak(raw.server)


def test_rapid_reset_of_calls_that_wait_for_the_disk(arena: Arena) -> None:
    raw = arena.attacker
    arena.gate.release(1)
    arena.service.methods["/test.Service/Held"] = Exchange(lambda message: (message, 2))

    def attempts() -> Iterator[bytes]:
        for number in _numbers():
            yield (
                raw.request(number, "/test.Service/Held")
                + frame(frames.DATA, END, number, framed(b"x"))
                + frames.rst_stream(number, ErrorCode.CANCEL)
            )

    count, last = arena.suffered(attempts())
    assert count == BURST
    assert len(arena.gate) == BURST + 1, "as many as may wait for all connections together"
    arena.check_ended(last)
    arena.gate.release(2)
    assert raw.taken() == []


def _window_of_nothing(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, MANY) + frames.window_update(number, 0)


def _window_beyond_its_limit(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, MANY) + frames.window_update(number, frames.MAX_WINDOW)


def _data_after_the_end(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, WATCH, END) + frame(frames.DATA, 0, number, b"x")


def _headers_after_the_end(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, WATCH, END) + raw.request(number, WATCH, END)


def _data_after_a_whole_call(raw: RawPeer, number: int) -> bytes:
    return raw.unary(number) + frame(frames.DATA, 0, number, b"x")


def _dependency_on_itself(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, MANY) + frame(
        frames.PRIORITY, 0, number, number.to_bytes(4, "big") + b"\0"
    )


def _priority_too_short(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, MANY) + frame(frames.PRIORITY, 0, number, b"")


def _malformed_head(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, connection="close")


def _body_longer_than_said(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, content_length="1") + frame(frames.DATA, 0, number, b"xx")


def _second_head(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, MANY) + raw.request(number, MANY)


def _head_too_large(raw: RawPeer, number: int) -> bytes:
    block = raw.encoder.encode([("x-large", "x" * 2_000)])
    again = raw.encoder.encode([("x-large", "x" * 2_000)]) * 10
    return frame(frames.HEADERS, END_HEADERS, number, block + again)


@pytest.mark.parametrize(
    "breach",
    [
        _window_of_nothing,
        _window_beyond_its_limit,
        _data_after_the_end,
        _headers_after_the_end,
        _data_after_a_whole_call,
        _dependency_on_itself,
        _priority_too_short,
        _malformed_head,
        _body_longer_than_said,
        _second_head,
        _head_too_large,
    ],
)
def test_making_us_reset(
    caplog: pytest.LogCaptureFixture, breach: Callable[[RawPeer, int], bytes]
) -> None:
    arena = Arena(caplog, ConnectionLimits(resets=RATE))
    arena.service.ends_when_client_does = False
    raw = arena.attacker
    first = raw.send(breach(raw, 1))[-1]
    assert first.kind == frames.RST_STREAM
    count, last = arena.suffered(breach(raw, number) for number in _numbers(3))
    assert count == BURST - 1
    arena.check_ended(last)


def test_streams_beyond_the_limit_are_refused_and_those_who_go_on_are_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arena = Arena(caplog, ConnectionLimits(max_streams=10, refusals=RATE))
    raw = arena.attacker
    count, last = arena.suffered(raw.request(number, WATCH) for number in _numbers())
    assert count == 10 + BURST
    arena.check_ended(last)


# Headers.


@pytest.mark.parametrize("payload", [b"", bytes(1_000)])
def test_continuation_flood(arena: Arena, payload: bytes) -> None:
    raw = arena.attacker
    raw.send(frame(frames.HEADERS, 0, 1, raw.block()))
    count, last = arena.suffered(itertools.repeat(frame(frames.CONTINUATION, 0, 1, payload)))
    assert count <= (LIMITS.max_block_bytes // 1_000 if payload else LIMITS.max_continuations)
    arena.check_ended(last)
    assert arena.attacker.server.is_closing


def test_header_bomb_costs_a_pointer_each_and_loses_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    block = raw.block() + raw.encoder.encode([("x-bomb", "x" * 3_000)])
    raw.send(frame(frames.HEADERS, END_HEADERS, 1, block))
    reference = raw.encoder.encode([("x-bomb", "x" * 3_000)])
    assert len(reference) == 1
    bomb = frame(frames.HEADERS, END_HEADERS, 3, reference * frames.MIN_MAX_FRAME_BYTES)
    assert raw.reset(bomb) == (3, ErrorCode.ENHANCE_YOUR_CALM)
    decoder = raw.server._decoder
    assert sum(map(len, decoder._memo)) < 1_000
    assert len(raw.send(raw.unary(5))) == 3
    arena.check_bystander()
    assert arena.warnings() == []


def test_many_different_heads_are_not_all_remembered(caplog: pytest.LogCaptureFixture) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    for index, number in zip(range(3 * MAX_HEADS), _numbers(), strict=False):
        block = raw.block(x_number=str(index), x_padding="x" * 400)
        call = frame(frames.DATA, END, number, framed(b"x"))
        raw.send(frame(frames.HEADERS, END_HEADERS, number, block), call)
        assert len(raw.server._heads) <= MAX_HEADS
        assert len(raw.server._decoder._memo) <= MAX_MEMO_BLOCKS
    assert len(raw.server._heads) > 1, "some are"
    assert len(arena.service.heard) == 1 + 3 * MAX_HEADS
    assert not raw.server.is_closing


def test_long_heads_are_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    raw = Arena(caplog, ConnectionLimits()).attacker
    for index, number in zip(range(100), _numbers(), strict=False):
        block = raw.block(x_number=str(index), x_padding="x" * 3_000)
        raw.send(frame(frames.HEADERS, END_HEADERS, number, block))
    assert len(raw.server._heads) == 0


def test_heads_of_many_fields_are_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    raw = Arena(caplog, ConnectionLimits()).attacker
    many: dict[str, Any] = dict.fromkeys(string.ascii_lowercase[:MAX_HEAD_FIELDS], "")
    for index, number in zip(range(100), _numbers(), strict=False):
        raw.send(raw.request(number, x_number=str(index), **many))
    assert len(raw.server._heads) == 0


def test_what_is_remembered_of_a_client_without_calls_takes_little_memory() -> None:
    limits = ConnectionLimits()
    raw, warm = RawPeer(limits=limits), RawPeer(limits=limits)
    attack = []
    for number in range(1, 2 * 500, 2):
        fields: dict[str, Any] = {f"x_{index}": f"{number}" for index in range(MAX_HEAD_FIELDS - 7)}
        data = frame(frames.DATA, END, number, framed(b"x"))
        attack.append(raw.request(number, **fields) + data)
    warm.send(*attack)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        raw.send(*attack)
        assert no_leak(raw.server)
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken_bytes < 256 * 1024


def test_a_header_list_too_large_in_small_fields(arena: Arena) -> None:
    raw = arena.attacker
    fields = [(f"x-{index}", "") for index in range(500)]
    bad = frame(frames.HEADERS, END_HEADERS, 1, raw.encoder.encode([*request_fields(), *fields]))
    assert raw.reset(bad) == (1, ErrorCode.ENHANCE_YOUR_CALM)
    assert len(raw.send(raw.unary(3))) == 3


# Frames that bring nothing.

PING: Final = frame(frames.PING, 0, 0, bytes(8))
PONG: Final = frame(frames.PING, frames.ACK, 0, bytes(8))
SETTINGS: Final = frame(frames.SETTINGS, 0, 0)
SETTINGS_ACK: Final = frame(frames.SETTINGS, frames.ACK, 0)
PRIORITY: Final = frame(frames.PRIORITY, 0, 1, bytes(5))
UNKNOWN: Final = frame(0xBE, 0, 0, b"")


@pytest.mark.parametrize(
    "flood",
    [
        PING,
        PONG,
        PRIORITY,
        UNKNOWN,
        frame(0xBE, 0, 1, bytes(1_000)),
        frames.goaway(0, ErrorCode.NO_ERROR),
        frames.window_update(0, 1),
        frames.window_update(1, 1),
        frames.rst_stream(3, ErrorCode.CANCEL),
        frame(frames.DATA, 0, 1, b""),
        frame(frames.DATA, frames.PADDED, 1, b"\x05" + bytes(5)),
    ],
)
def test_a_flood_of_frames_that_bring_nothing(arena: Arena, flood: bytes) -> None:
    raw = arena.attacker
    raw.send(raw.request(1, MANY), raw.unary(3, b""))
    count, last = arena.suffered(itertools.repeat(flood))
    assert BURST <= count <= BURST + 2, "and what the calls before have earned"
    arena.check_ended(last)


@pytest.mark.parametrize("flood", [SETTINGS, SETTINGS_ACK])
def test_a_flood_of_settings(arena: Arena, flood: bytes) -> None:
    count, last = arena.suffered(itertools.repeat(flood))
    assert count == BURST - 1, "there was one to begin with"
    arena.check_ended(last)


def _end_first(arena: Arena, number: int) -> None:
    arena.service.methods["/test.Service/Refused"] = Exchange(_refuse)
    raw = arena.attacker
    raw.send(raw.request(number, "/test.Service/Refused"))
    raw.send(frame(frames.DATA, 0, number, framed(b"")))


def _refuse(_: bytes) -> tuple[bytes, int]:
    raise RpcError(Status.ABORTED, "no")


@pytest.mark.parametrize("has_data", [False, True])
def test_a_flood_on_a_stream_that_we_ended_first(arena: Arena, *, has_data: bool) -> None:
    _end_first(arena, 1)
    flood = frame(frames.DATA, 0, 1, bytes(100) if has_data else b"")
    count, last = arena.suffered(itertools.repeat(flood))
    assert BURST <= count <= BURST + 1
    arena.check_ended(last)


def test_a_flood_of_headers_on_a_stream_that_we_ended_first(arena: Arena) -> None:
    _end_first(arena, 1)
    trailers = frame(frames.HEADERS, END_HEADERS, 1, arena.attacker.encoder.encode([("x", "y")]))
    count, last = arena.suffered(itertools.repeat(trailers))
    assert BURST <= count <= BURST + 1
    arena.check_ended(last)


def test_numbers_that_are_skipped_earn_nothing(arena: Arena) -> None:
    raw = arena.attacker

    def attempts() -> Iterator[bytes]:
        for number in itertools.count(1, 2_000):
            yield raw.unary(number, b"")
            for _ in range(BURST):
                yield UNKNOWN

    count, last = arena.suffered(attempts())
    assert count < 3 * BURST
    arena.check_ended(last)


@pytest.mark.parametrize("trickle", [PING, SETTINGS, UNKNOWN, frame(frames.DATA, 0, 1, b"")])
def test_a_slow_trickle_of_them_is_suffered(arena: Arena, trickle: bytes) -> None:
    raw = arena.attacker
    raw.send(raw.request(1, MANY))
    for _ in range(10 * BURST):
        arena.loop.pass_time(1 / PER_S)
        raw.send(trickle)
    assert not raw.server.is_closing
    assert arena.warnings() == []


# Windows.


class Work:
    """Counts how often a stream is looked at, and how many are moved by settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sends = 0
        self.moves = 0
        send, move = Outbound._send, Outbound.set_initial_window

        def count_send(outbound: Outbound[Http2Stream], stream: Http2Stream) -> int:
            self.sends += 1
            return send(outbound, stream)

        def count_move(
            outbound: Outbound[Http2Stream], window: int, streams: list[Http2Stream]
        ) -> None:
            self.moves += 1
            move(outbound, window, streams)

        monkeypatch.setattr(Outbound, "_send", count_send)
        monkeypatch.setattr(Outbound, "set_initial_window", count_move)


def _block_all(raw: RawPeer, message: bytes) -> list[int]:
    """Make as many calls as there may be, of which none can be answered."""
    numbers = list(itertools.islice(_numbers(), 1024))
    for number in numbers:
        raw.send(raw.unary(number, message))
    assert len(raw.server._streams) == len(numbers)
    return numbers


def _drip(raw: RawPeer, data: list[bytes]) -> int:
    """Send frames one by one; give how many bytes of DATA came back."""
    return sum(
        len(one.payload) for each in data for one in raw.send(each) if one.kind == frames.DATA
    )


def test_a_window_opened_octet_by_octet_looks_at_one_stream_a_frame(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    numbers = _block_all(raw, bytes(100))
    work = Work(monkeypatch)
    assert _drip(raw, [frames.window_update(number, 1) for number in numbers * 4]) == 4 * 1024
    assert work.sends == 4 * 1024
    assert _drip(raw, [frames.window_update(0, 1)] * 1_000) == 0
    assert work.sends == 4 * 1024, "the window of the connection is not what they wait for"


def test_a_connection_window_opened_octet_by_octet_looks_at_one_stream_a_frame(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 1_000_000}))
    for each in range(1, 11, 2):
        raw.send(raw.unary(each, bytes(16_000)))  # uses the connection's window up
    blocked = [raw.unary(each, bytes(100)) for each in itertools.islice(_numbers(11), 1_000)]
    for call in blocked:
        raw.send(call)
    assert len(raw.server._streams) > 1_000
    work = Work(monkeypatch)
    assert _drip(raw, [frames.window_update(0, 1)] * 5_000) == 5_000
    assert work.sends <= 2 * 5_000


def test_settings_with_thousands_of_windows_move_the_streams_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    _block_all(raw, bytes(100))
    work = Work(monkeypatch)
    both = b"\0\4\0\0\0\0" + b"\0\4\0\0\0\1"
    sent = raw.send(frame(frames.SETTINGS, 0, 0, both * 1_365))
    assert work.moves == 1
    assert work.sends == 1024
    assert sum(len(one.payload) for one in sent if one.kind == frames.DATA) == 1024


def test_windows_moved_up_and_down_by_settings(arena: Arena) -> None:
    raw = arena.attacker
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    for number in itertools.islice(_numbers(), 100):
        raw.send(raw.unary(number, bytes(100)))
    sizes = itertools.cycle((0, 1))
    count, last = arena.suffered(
        frames.settings({Setting.INITIAL_WINDOW_SIZE: size}) for size in sizes
    )
    assert count <= BURST
    arena.check_ended(last)


# Memory.


def test_parts_of_messages_on_all_streams_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    limits = ConnectionLimits(max_buffered_bytes=1_000_000)
    arena = Arena(caplog, limits)
    raw = arena.attacker
    part = PREFIX.pack(0, 2_000_000) + bytes(10_000)
    refused = 0
    for number in itertools.islice(_numbers(), 1024):
        sent = raw.send(raw.request(number, MANY), frame(frames.DATA, 0, number, part))
        refused += frames.HEADERS in kinds(sent)
        assert raw.server._inbound.buffered_bytes <= limits.max_buffered_bytes
    assert refused == 1024 - 1_000_000 // len(part)
    calls = [one for one in raw.server._streams.values() if isinstance(one, ServerCall)]
    kept = sum(one.reader.buffered_bytes for one in calls if one.reader is not None)
    assert kept == raw.server._inbound.buffered_bytes
    arena.check_bystander()
    for number in list(raw.server._streams):
        raw.send(frames.rst_stream(number, ErrorCode.CANCEL))
    assert no_leak(raw.server)
    assert arena.warnings() == []


def test_a_call_beyond_what_may_be_buffered_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    arena = Arena(caplog, ConnectionLimits(max_buffered_bytes=10_000))
    raw = arena.attacker
    raw.send(raw.request(1, MANY), frame(frames.DATA, 0, 1, PREFIX.pack(0, 12_000) + bytes(9_000)))
    raw.send(raw.request(3, MANY))
    sent = raw.send(frame(frames.DATA, 0, 3, PREFIX.pack(0, 12_000) + bytes(9_000)))
    assert b"too much received data" in sent[0].payload
    assert raw.send(frame(frames.DATA, 0, 1, bytes(3_000) + framed(b"next"))) != []
    assert arena.service.heard[-1] == b"next", "the one before is not harmed"


def test_answers_that_are_not_taken_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    limits = ConnectionLimits(max_unsent_bytes=1_000_000)
    arena = Arena(caplog, limits)
    arena.service.methods["/test.Service/Large"] = Exchange(lambda _: (bytes(100_000), 0))
    raw = arena.attacker
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    refused = 0
    for number in itertools.islice(_numbers(), 1024):
        call = frame(frames.DATA, END, number, framed(b""))
        sent = raw.send(raw.request(number, "/test.Service/Large"), call)
        refused += b"the answers on this connection are not taken" in sent[0].payload
        assert raw.server.unsent_bytes <= limits.max_unsent_bytes + 100_005
    assert refused == 1024 - len(raw.server._streams)
    assert len(raw.server._streams) == 10
    arena.check_bystander()
    raw.server.lost()
    assert no_leak(raw.server)


def test_a_gzip_bomb_is_refused_before_it_is_unpacked(arena: Arena) -> None:
    raw = arena.attacker
    raw.send(raw.request(1, MANY, grpc_encoding="gzip"))
    bomb = compress(bytes(10 * LIMITS.max_message_bytes))
    assert len(bomb) < LIMITS.max_message_bytes // 10
    sent: list[Frame] = []
    for at in range(0, len(bomb), 16_000):
        sent += raw.send(frame(frames.DATA, 0, 1, bomb[at : at + 16_000]))
    assert b"larger than max (unpacked more vs. 2097152)" in sent[0].payload
    assert arena.service.heard == [b"and me?"]
    assert no_leak(raw.server)
    arena.check_bystander()


@pytest.mark.parametrize("size", [LIMITS.max_message_bytes, 2 * LIMITS.max_message_bytes])
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_gzip_bombs_again_and_again(
    caplog: pytest.LogCaptureFixture, size: int, *, is_cut_off: bool
) -> None:
    arena = Arena(caplog, ConnectionLimits(unpacked=Rate(BURST * LIMITS.max_message_bytes, 1.0)))
    raw = arena.attacker
    bomb = gzip.compress(bytes(size))[: -1 if is_cut_off else None]
    assert len(bomb) < 16_000

    def attempts() -> Iterator[bytes]:
        for number in _numbers():
            data = frame(frames.DATA, END, number, PREFIX.pack(1, len(bomb)) + bomb)
            yield raw.request(number, WATCH, grpc_encoding="gzip") + data

    count, last = arena.suffered(attempts(), most=2 * BURST)
    assert BURST <= count <= BURST + 5
    arena.check_ended(last)


# Requests that cost next to nothing, and have long answers.


@pytest.mark.parametrize("byte", [b"x", b"\xff"])
@pytest.mark.parametrize("name", [":path", "grpc-timeout", "grpc-encoding", "content-type"])
def test_what_was_sent_is_not_repeated_at_length(arena: Arena, name: str, byte: bytes) -> None:
    raw = arena.attacker
    value = (b"/" if name == ":path" else b"") + byte * 3_500
    fields = [(key.encode(), text.encode()) for key, text in request_fields(WATCH)]
    block = raw.encoder.encode(list((dict(fields) | {name.encode(): value}).items()))
    sent = raw.send(frame(frames.HEADERS, END_HEADERS, 1, block))
    assert sum(frames.HEAD_BYTES + len(one.payload) for one in sent) < 512
    arena.check_bystander()


def test_the_answer_to_an_unknown_method_is_made_once(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def noted(message: str) -> bytes:
        made.append(message)
        return percent_encoded(message)

    monkeypatch.setattr(server_output, "percent_encoded", noted)
    raw = arena.attacker
    for number in itertools.islice(_numbers(), 20):
        sent = raw.send(raw.request(number, "/test.Service/Unknown", END))
        assert kinds(sent) == [frames.HEADERS]
    assert len(made) == 1


@pytest.mark.parametrize("is_taken", [True, False])
def test_one_piece_that_asks_for_much_is_answered_in_pieces_and_only_as_they_are_taken(
    *, is_taken: bool
) -> None:
    limits = ConnectionLimits(max_unsent_bytes=4 * HAND_ON_BYTES)
    answer = bytes(16_000)
    handed_on: list[int] = []

    def transmit(data: bytes) -> None:
        handed_on.append(len(data))
        if not is_taken and sum(handed_on) > 2 * HAND_ON_BYTES:  # the transport has enough
            server.pause()

    raw = RawPeer()
    server = ServerConnection(
        {ONCE: Exchange(lambda _: (answer, 0))},
        DurabilityGate(),
        transmit,
        limits=limits,
        loop=VirtualLoop(),
    )
    server.receive(
        frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW})
        + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
    )
    calls = 5_000
    server.receive(b"".join(raw.unary(number) for number in itertools.islice(_numbers(), calls)))
    assert calls * len(answer) > 16 * HAND_ON_BYTES
    assert max(handed_on) < 2 * HAND_ON_BYTES
    if is_taken:
        assert sum(handed_on) > calls * len(answer)
    else:
        assert sum(handed_on) < 5 * HAND_ON_BYTES
    assert server.unsent_bytes < limits.max_unsent_bytes + 2 * len(answer)


def test_many_who_wait_for_room_share_it_and_are_not_sent_away() -> None:
    limits = ConnectionLimits(max_unsent_bytes=1_000_000, max_event_bytes=100_000)
    service, message, each = Service(), bytes(50_000), 3
    service.methods[WATCH] = Subscription(
        lambda stream: Patient(service, stream, message, each), waits_for_room=True
    )
    peer = Peer(service, limits=limits)
    peer.takes_data = False
    numbers = [peer.open(WATCH) for _ in range(100)]
    peer.pump()
    assert peer.goaway is None
    assert peer.server.unsent_bytes < limits.max_unsent_bytes + 2 * len(message)
    peer.takes_data = True
    for event in [one for one in peer.events if isinstance(one, DataReceived)]:
        peer.client.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
    peer.pump()
    assert peer.goaway is None
    assert [len(peer.reply(number).messages) for number in numbers] == [each] * 100
    assert no_leak(peer.server)


class Patient(Ear):
    """Says something so many times, each when there is room for it."""

    def __init__(self, service: Service, stream: ServerStream, message: bytes, times: int) -> None:
        super().__init__(service, stream)
        self.message = message
        self.left = times
        self.relieved()

    def relieved(self) -> None:
        while self.left and self.stream.has_own_room:
            self.left -= 1
            self.stream.send_message(self.message, 0)
        if not self.left:
            self.stream.end()


@pytest.mark.parametrize("length", [LIMITS.max_message_bytes + 1, 2**32 - 1])
def test_an_oversized_message_is_refused_by_its_length(arena: Arena, length: int) -> None:
    raw = arena.attacker
    data = PREFIX.pack(0, length)
    [said, reset] = raw.send(raw.request(1, MANY), frame(frames.DATA, 0, 1, data))
    assert f"({length} vs. {LIMITS.max_message_bytes})".encode() in said.payload
    assert (reset.kind, reset.code) == (frames.RST_STREAM, ErrorCode.NO_ERROR)
    assert no_leak(raw.server)
    arena.check_bystander()


def test_an_oversized_frame_is_refused_by_its_head(arena: Arena) -> None:
    head = (frames.MIN_MAX_FRAME_BYTES + 1).to_bytes(3, "big") + bytes(6)
    [last] = arena.attacker.send(head)
    arena.check_ended(last, ErrorCode.FRAME_SIZE_ERROR)


# Those who only have much to do.


@pytest.mark.slow
def test_many_calls_with_their_windows_and_pings_are_no_attack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    for number in itertools.islice(_numbers(), 20_000):
        updates = frames.window_update(0, 10) + frames.window_update(number, 10)
        sent = raw.send(raw.unary(number), updates, PING)
        assert len(sent) == 4
    assert arena.warnings() == []


@pytest.mark.slow
def test_calls_that_their_client_ends_by_a_reset_once_answered_are_no_attack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    raw.send(frames.window_update(0, 10_000_000))
    for number in itertools.islice(_numbers(), 20_000):
        sent = raw.send(raw.request(number, MANY), frame(frames.DATA, 0, number, framed(b"hello")))
        assert kinds(sent) == [frames.HEADERS, frames.DATA]
        assert raw.send(frames.rst_stream(number, ErrorCode.CANCEL)) == []
    assert no_leak(raw.server)
    assert arena.warnings() == []


@pytest.mark.parametrize("has_events", [False, True])
def test_a_thousand_watches_cancelled_at_once_are_no_attack(
    caplog: pytest.LogCaptureFixture, *, has_events: bool
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    numbers = list(itertools.islice(_numbers(), 1_000))
    for number in numbers:
        raw.send(raw.request(number, WATCH))
    for ear in arena.service.ears[1:] if has_events else []:
        ear.stream.send_message(b"event", 0)
    raw.server.flush()
    raw.taken()
    assert raw.send(*[frames.rst_stream(number, ErrorCode.CANCEL) for number in numbers]) == []
    assert no_leak(raw.server)
    assert len(raw.send(raw.unary(NUMBER))) == 3
    assert arena.warnings() == []


def test_a_first_flight_beyond_a_limit_that_was_not_heard_of_is_no_attack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = ConnectionLimits()
    arena = Arena(caplog, limits)
    raw = arena.attacker
    calls = 4 * limits.max_streams
    sent = raw.send(*[raw.request(number, WATCH) for number in range(1, 2 * calls, 2)])
    assert [one.code for one in sent] == [ErrorCode.REFUSED_STREAM] * (calls - limits.max_streams)
    assert not raw.server.is_closing
    assert sum(ear.gone_times for ear in arena.service.ears) == 0
    assert arena.warnings() == []


def test_a_large_download_with_a_window_for_each_frame_is_no_attack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arena = Arena(caplog, ConnectionLimits())
    raw = arena.attacker
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 16_384}))
    raw.send(raw.request(1, WATCH))
    ear = arena.service.ears[-1]
    received = 0
    for _ in range(100):
        ear.stream.send_message(bytes(1_000_000), 0)
        raw.server.flush()
        arrived = raw.taken()
        while arrived:
            size_bytes = sum(len(one.payload) for one in arrived if one.kind == frames.DATA)
            received += size_bytes
            updates = [frames.window_update(number, size_bytes) for number in (0, 1) if size_bytes]
            arrived = raw.send(*updates, PING) if updates else []
    assert received == 100 * 1_000_005
    assert arena.warnings() == []


def test_what_an_attacker_is_told_can_be_read(arena: Arena) -> None:
    _, last = arena.suffered(itertools.repeat(PING))
    assert last.payload[8:] == b"too many PING frames: the limit is 50, then 5 per second"
    data = frames.goaway(0, last.code, last.payload[8:].decode())
    assert split_frames(data) == [last]
