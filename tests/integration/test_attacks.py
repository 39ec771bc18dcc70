"""Attacks over real sockets: the attacker is told and cut off, and nobody else notices.

The limits are small, so that a test takes no longer than it must; that each is exact is tested
without sockets, in tests/unit/http2/test_attacks.py.
"""

import asyncio
import contextlib
import gzip
import itertools
import logging
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import uvloop

from leasehold.grpc.protocol import PREFIX, framed
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.http2.limits import ConnectionLimits, Rate
from leasehold.serving.limited_log import LINES
from leasehold.serving.server_protocol import ServerProtocol
from tests.integration.test_grpc_server import DEADLINE_S, GET, Running
from tests.support.h2_peer import (
    END,
    END_HEADERS,
    MANY,
    ONCE,
    WATCH,
    Frame,
    RawPeer,
    no_leak,
    split_frames,
)
from tests.support.servers import HOST, leasehold_command, running

frame = frames.frame
BURST: Final = 20
RATE: Final = Rate(BURST, 0.001)
LIMITS: Final = ConnectionLimits(
    resets=RATE,
    settings=RATE,
    pings=RATE,
    empty_data=RATE,
    idle_frames=RATE,
    max_buffered_bytes=100_000,
)
SHORT_S: Final = 0.2
"""A limit that a test waits for."""

GREETING: Final = frames.PREFACE + frames.settings({})
PING: Final = frame(frames.PING, 0, 0, bytes(8))
RANGE: Final = "/etcdserverpb.KV/Range"


class Line:
    """A client that sends what it is told to."""

    def __init__(self, port: int, greeting: bytes = GREETING) -> None:
        self.raw = RawPeer()
        """Only its encoder is used, and what it writes."""
        self.socket = socket.create_connection((HOST, port), DEADLINE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = -1
        self.received = b""
        if greeting:
            self.socket.sendall(greeting)

    def send(self, *data: bytes) -> bool:
        """Send; False once the server has hung up."""
        try:
            self.socket.sendall(b"".join(data))
        except ConnectionError:
            return False
        return True

    def read_until(self, data: bytes) -> None:
        """Read until the server has sent something."""
        while data not in self.received:
            got = self.socket.recv(65_536)
            assert got, f"closed, and {data!r} never came"
            self.received += got

    def read_to_the_end(self) -> None:
        """Read until the server hangs up."""
        with contextlib.suppress(ConnectionResetError):
            while got := self.socket.recv(65_536):
                self.received += got

    def frames(self) -> list[Frame]:
        """Give all frames that came until the server hung up."""
        return split_frames(self.received)

    def last_frame(self) -> Frame:
        """Read until the server hangs up, and give the last frame that came."""
        self.read_to_the_end()
        return self.frames()[-1]

    def call(self, message: bytes, path: str = ONCE) -> None:
        """Make a unary call, and wait for the answer."""
        self.number += 2
        self.received = b""
        self.send(self.raw.request(self.number, path))
        self.send(frame(frames.DATA, END, self.number, framed(message)))
        self.read_until(framed(message))

    def open(self, path: str) -> None:
        """Begin a call that goes on, and wait until the server has it."""
        self.number += 2
        self.send(self.raw.request(self.number, path))
        self.call(b"it is there", ONCE)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


class Scene:
    """A server with small limits, and somebody on it who must not notice anything."""

    def __init__(self, server: Running, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.server = server
        self.server.site.limits = LIMITS
        self.bystander = Line(server.port)
        self.bystander.call(b"first")
        self.bystander_protocol = server.do(server.only_protocol)

    def check_bystander(self) -> None:
        """Whether others are served, on a connection that they have and on a new one."""
        self.bystander.call(b"and me?")
        with contextlib.closing(Line(self.server.port)) as another:
            another.call(b"and I?")

    def attack(self, greeting: bytes = GREETING) -> Line:
        """Connect as somebody who means harm."""
        return Line(self.server.port, greeting)

    def protocol(self) -> ServerProtocol:
        """The server's side of the attacker's connection, once it is there."""
        found: list[ServerProtocol] = []

        def look() -> bool:
            found[:] = self.server.site.connections - {self.bystander_protocol}
            return len(found) == 1 and isinstance(found[0]._speaks, ServerConnection)

        self.server.wait_until(look)
        return found[0]

    def warnings(self) -> list[str]:
        """What was logged about peers that misbehave."""
        return [
            record.getMessage()
            for record in self._caplog.records
            if record.levelno >= logging.WARNING
        ]

    def check_gone(self, warnings: int = 1) -> None:
        """Only the bystander is left, and the log has one line."""
        self.server.wait_until(lambda: self.server.site.connections == {self.bystander_protocol})
        assert len(self.warnings()) == warnings, self.warnings()
        self.server.site.limits = LIMITS  # a limit of `SHORT_S` may be too short for others
        self.check_bystander()


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def scene(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[Scene]:
    running_server = Running(request.param)
    running_server.start()
    scene = Scene(running_server, caplog)
    yield scene
    scene.bystander.close()
    running_server.stop()


@pytest.fixture
def attacker(scene: Scene) -> Iterator[Line]:
    with contextlib.closing(scene.attack()) as line:
        yield line


Attack = Callable[[RawPeer, int], bytes]


def _rapid_reset(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, WATCH) + frames.rst_stream(number, ErrorCode.CANCEL)


def _window_of_nothing(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, MANY) + frames.window_update(number, 0)


def _data_after_the_end(raw: RawPeer, number: int) -> bytes:
    return raw.unary(number) + frame(frames.DATA, 0, number, b"x")


def _header_list_too_large(raw: RawPeer, number: int) -> bytes:
    fields = [("x-large", "x" * 2_000)] * 10
    return frame(frames.HEADERS, END_HEADERS, number, raw.encoder.encode(fields))


def _continuations(raw: RawPeer, number: int) -> bytes:
    if number == 1:
        return frame(frames.HEADERS, 0, 1, raw.block())
    return frame(frames.CONTINUATION, 0, 1) * 50


def _on_stream_1(flood: bytes) -> Attack:
    return lambda raw, number: raw.request(1, MANY) if number == 1 else flood


ATTACKS: Final[dict[str, Attack]] = {
    "rapid reset": _rapid_reset,
    "windows of nothing": _window_of_nothing,
    "DATA after the end": _data_after_the_end,
    "header lists": _header_list_too_large,
    "CONTINUATION": _continuations,
    "SETTINGS": _on_stream_1(frames.settings({})),
    "PING": _on_stream_1(PING),
    "empty DATA": _on_stream_1(frame(frames.DATA, 0, 1)),
    "PRIORITY": _on_stream_1(frame(frames.PRIORITY, 0, 1, bytes(5))),
    "unknown": _on_stream_1(frame(0xBE, 0, 1, bytes(5))),
    "WINDOW_UPDATE": _on_stream_1(frames.window_update(1, 1)),
    "WINDOW_UPDATE of the connection": _on_stream_1(frames.window_update(0, 1)),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attacker_is_told_and_cut_off_and_nobody_else_notices(
    scene: Scene, attacker: Line, attack: Attack
) -> None:
    protocol = scene.protocol()
    speaks = protocol._speaks
    assert isinstance(speaks, ServerConnection)
    for number in itertools.islice(itertools.count(1, 2), 3 * BURST):
        before = speaks.activity
        if not attacker.send(attack(attacker.raw, number)):
            break
        scene.server.wait_until(lambda before=before: speaks.is_closing or speaks.activity > before)  # type: ignore[misc]
        if number == 2 * (BURST // 2) + 1:
            scene.bystander.call(b"meanwhile")
        if speaks.is_closing:
            break
    last = attacker.last_frame()
    assert (last.kind, last.code) == (frames.GOAWAY, ErrorCode.ENHANCE_YOUR_CALM)
    scene.check_gone()
    assert no_leak(speaks)
    assert protocol._watchdog is not None
    alarm = protocol._watchdog._alarm
    assert alarm.cancelled()  # type: ignore[attr-defined]  # it is one of asyncio or uvloop
    assert all(ear.gone_times == 1 for ear in scene.server.service.ears)


# Connections.


def test_connections_beyond_the_limit_are_refused_if_none_is_idle(scene: Scene) -> None:
    site = scene.server.site
    site.admission.max_connections = 4
    with contextlib.ExitStack() as stack:
        scene.bystander.open(WATCH)
        for _ in range(3):
            stack.enter_context(contextlib.closing(scene.attack())).open(WATCH)
        for _ in range(2 * LINES.burst):
            refused = stack.enter_context(contextlib.closing(scene.attack(b"")))
            refused.read_to_the_end()
            assert refused.received == b""
        assert len(site.connections) == 4
        assert len(scene.warnings()) == LINES.burst
        assert re.fullmatch(
            r"refused a connection from 127.0.0.1:\d+: all 4 connections are in use, and none is "
            r"idle",
            scene.warnings()[0],
        )
        scene.bystander.call(b"and me?")
    scene.check_gone(warnings=LINES.burst)
    scene.server.wait_until(lambda: site.admission.taken == 1)


def test_an_idle_connection_leaves_in_good_order_for_a_newcomer(scene: Scene) -> None:
    """The one that is idle for longest; a quiet watch is not idle."""
    site = scene.server.site
    site.admission.max_connections = 4
    scene.bystander.open(WATCH)
    with contextlib.ExitStack() as stack:
        quiet = stack.enter_context(contextlib.closing(scene.attack()))
        quiet.open(WATCH)
        idle = stack.enter_context(contextlib.closing(scene.attack()))
        idle.call(b"once")
        unidentified = stack.enter_context(contextlib.closing(scene.attack(b"")))
        scene.server.wait_until(lambda: len(site.connections) == 4)
        for _ in range(2):
            newcomer = stack.enter_context(contextlib.closing(scene.attack()))
            newcomer.call(b"new")
            newcomer.open(WATCH)
        assert idle.last_frame().kind == frames.GOAWAY
        assert idle.last_frame().code == ErrorCode.NO_ERROR
        unidentified.read_to_the_end()
        quiet.call(b"still here")
        scene.bystander.call(b"so am I")
        assert site.admission.taken == 4
        scene.server.wait_until(lambda: len(site.connections) == 4)
        assert (
            scene.warnings()
            == ["closing the connection that has been idle for longest: all 4 are in use"] * 2
        )


@pytest.mark.parametrize(
    "said", [b"", frames.PREFACE[:10], frames.PREFACE, GREETING[:-3], b"GET /"]
)
def test_who_does_not_say_what_it_is_is_cut_off(scene: Scene, said: bytes) -> None:
    scene.server.site.limits = ConnectionLimits(first_bytes_s=SHORT_S)
    started = time.monotonic()
    with contextlib.closing(scene.attack(said)) as line:
        line.read_to_the_end()
        assert SHORT_S / 2 <= time.monotonic() - started < DEADLINE_S
    scene.check_gone()
    assert "no greeting within" in scene.warnings()[0]


def test_octets_that_drip_do_not_make_a_greeting_last_longer(scene: Scene) -> None:
    scene.server.site.limits = ConnectionLimits(first_bytes_s=SHORT_S)
    request = b"GET /health HTTP/1.1\r\nX-Slow: " + b"x" * 10_000
    with contextlib.closing(scene.attack(b"")) as line:
        line.socket.settimeout(SHORT_S / 20)
        until = time.monotonic() + DEADLINE_S
        for byte in request:
            assert time.monotonic() < until
            if not line.send(bytes((byte,))):
                break
            try:
                if not line.socket.recv(10):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            raise AssertionError("it may drip for ever")
    scene.check_gone()


@pytest.mark.parametrize("greeting", [GREETING, GET])
def test_who_has_nothing_to_do_here_is_sent_away_without_reproach(
    scene: Scene, greeting: bytes
) -> None:
    scene.server.site.limits = ConnectionLimits(idle_s=SHORT_S)
    with contextlib.closing(scene.attack(greeting)) as line:
        line.read_to_the_end()
    if greeting == GREETING:
        last = line.frames()[-1]
        assert (last.kind, last.code) == (frames.GOAWAY, ErrorCode.NO_ERROR)
    scene.check_gone(warnings=0)


def test_who_has_a_watch_is_not_idle_and_who_answers_pings_is_kept(scene: Scene) -> None:
    scene.server.site.limits = ConnectionLimits(
        idle_s=SHORT_S, ping_after_s=SHORT_S, ping_timeout_s=DEADLINE_S
    )
    with contextlib.closing(scene.attack(b"")) as line:
        line.send(GREETING, line.raw.request(1, WATCH))  # at once: it is never idle
        for _ in range(3):
            line.received = b""
            line.read_until(PING)
            line.send(frame(frames.PING, frames.ACK, 0, bytes(8)))
        assert scene.server.service.ears[0].gone_times == 0
    scene.check_gone(warnings=0)


def test_who_answers_no_ping_is_cut_off(scene: Scene) -> None:
    scene.server.site.limits = ConnectionLimits(ping_after_s=SHORT_S, ping_timeout_s=SHORT_S)
    with contextlib.closing(scene.attack(b"")) as line:
        line.send(GREETING, line.raw.request(1, WATCH))
        line.read_to_the_end()
        kinds = [one.kind for one in line.frames()]
        assert kinds[-2:] == [frames.PING, frames.GOAWAY]
    scene.check_gone(warnings=0)
    assert scene.server.service.ears[0].gone_times == 1


def test_a_call_whose_window_is_not_opened_is_reset_and_others_go_on(scene: Scene) -> None:
    scene.server.site.limits = ConnectionLimits(stall_s=SHORT_S)
    closed = frames.PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: 0})
    with contextlib.closing(scene.attack(closed)) as line:
        line.send(line.raw.unary(1))
        line.read_until(frames.rst_stream(1, ErrorCode.INTERNAL_ERROR))
        line.number = 1
        line.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.DEFAULT_WINDOW}))
        line.call(b"still here")
    scene.check_gone()


def test_who_asks_and_opens_no_window_for_all_is_cut_off(scene: Scene) -> None:
    scene.server.site.limits = ConnectionLimits(stall_s=SHORT_S)
    opened = frames.PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW})
    with contextlib.closing(scene.attack(opened)) as line:
        for number in range(1, 15, 2):
            line.send(line.raw.unary(number, bytes(10_000)))
        last = line.last_frame()
        assert (last.kind, last.code) == (frames.GOAWAY, ErrorCode.ENHANCE_YOUR_CALM)
    scene.check_gone()


def test_who_asks_and_reads_nothing_is_cut_off(scene: Scene) -> None:
    scene.server.site.limits = ConnectionLimits(stall_s=SHORT_S)
    opened = frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW})
    opened += frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
    with contextlib.closing(scene.attack(frames.PREFACE + opened)) as line:
        line.send(line.raw.request(1, WATCH))
        scene.server.wait_until(lambda: len(scene.server.service.ears) == 1)
        [ear] = scene.server.service.ears
        scene.server.do(ear.stream.send_message, bytes(40_000_000), 0)
        scene.server.do(ear.stream.flush)
        scene.server.wait_until(lambda: ear.gone_times == 1)
        assert "almost nothing of its responses" in scene.warnings()[0]
    scene.check_gone()


# Messages.


def test_a_gzip_bomb_loses_its_call_only(scene: Scene, attacker: Line) -> None:
    bomb = gzip.compress(bytes(20_000_000))
    data = PREFIX.pack(1, len(bomb)) + bomb
    attacker.send(attacker.raw.request(1, grpc_encoding="gzip"))
    for at in range(0, len(data), 16_000):
        attacker.send(frame(frames.DATA, 0, 1, data[at : at + 16_000]))
    attacker.read_until(b"larger than max")
    attacker.number = 1
    attacker.call(b"next")
    scene.check_bystander()
    assert scene.warnings() == []


def test_parts_of_messages_are_bounded_and_lose_their_calls_only(
    scene: Scene, attacker: Line
) -> None:
    part = PREFIX.pack(0, 1_000_000) + bytes(10_000)
    for number in itertools.islice(itertools.count(1, 2), 200):
        attacker.send(attacker.raw.request(number, MANY), frame(frames.DATA, 0, number, part))
    attacker.read_until(b"too much received data")
    speaks = scene.protocol()._speaks
    assert isinstance(speaks, ServerConnection)
    assert scene.server.do(lambda: speaks._inbound.buffered_bytes) <= LIMITS.max_buffered_bytes
    attacker.number = 399
    attacker.call(b"next")
    scene.check_bystander()
    assert scene.warnings() == []


# A server as it is started by its users, with the limits that it has by itself.


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    with running(leasehold_command, tmp_path_factory.mktemp("attacks")) as server:
        yield server.port, server.log


@pytest.mark.parametrize(
    ("attack", "most"),
    [
        ("rapid reset", 5_000),
        ("windows of nothing", 5_000),
        ("header lists", 5_000),
        ("CONTINUATION", 100),
        ("SETTINGS", 1_000),
        ("PING", 1_000),
        ("empty DATA", 1_000),
        ("PRIORITY", 30_000),
        ("unknown", 30_000),
        ("WINDOW_UPDATE", 30_000),
    ],
)
def test_a_server_with_its_own_limits_survives(
    served: tuple[int, Path], attack: str, most: int
) -> None:
    port, log = served
    before = log.read_text().count(" is closed: ")
    with contextlib.closing(Line(port)) as line:
        make = {"rapid reset": _rapid_reset_of_a_range}.get(attack, ATTACKS[attack])
        data = b"".join(make(line.raw, number) for number in range(1, 2 * most, 2))
        data = data.replace(MANY.encode(), RANGE.encode())
        line.send(data)
        _check_served(port)
        last = line.last_frame()
        assert (last.kind, last.code) == (frames.GOAWAY, ErrorCode.ENHANCE_YOUR_CALM)
    _check_served(port)
    until = time.monotonic() + DEADLINE_S  # a thread writes the log
    while log.read_text().count(" is closed: ") == before and time.monotonic() < until:
        time.sleep(0.01)
    assert log.read_text().count(" is closed: ") == before + 1


def _rapid_reset_of_a_range(raw: RawPeer, number: int) -> bytes:
    return raw.request(number, RANGE) + frames.rst_stream(number, ErrorCode.CANCEL)


def _check_served(port: int) -> None:
    with contextlib.closing(Line(port)) as line:
        line.send(line.raw.request(1, RANGE), frame(frames.DATA, END, 1, framed(b"\n\1x")))
        line.read_until(b"grpc-status")
