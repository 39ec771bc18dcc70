"""A connection to a server, and what can be expected of it, in plain words.

    peer.send(wire.headers(1, peer.block(GET)))
    answer = peer.expect_answer(1)

Every expectation has a deadline of its own, reads what the server sends until it is met, and fails
with all that was received since the last one. Frames that an expectation does not mention are taken
in, and held against the rules for servers (`conduct`).
"""

import socket
import time
from collections.abc import Callable, Collection
from typing import Final, NoReturn

import hpack

from tests.http2 import wire
from tests.http2.blocks import GET, Fields
from tests.http2.conduct import Answer, Conduct
from tests.http2.wire import Code, Frame, Kind, Setting

DEADLINE_S: Final = 30.0
READ_BYTES: Final = 1 << 16

Address = tuple[str, int]


class Peer:
    """A client that does what it is told to. It says nothing until then, not even the preface."""

    def __init__(self, address: Address) -> None:
        self.conduct = Conduct()
        self.has_met_error = False
        """Whether the server has ended a stream or the connection with an error."""
        self._encoder = hpack.Encoder()
        self._socket = socket.create_connection(address, DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""
        self._is_at_end = False
        self._seen: list[Frame] = []
        self._pings = 0

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    # Saying something.

    def send(self, *data: bytes) -> None:
        """Send frames, or parts of them that are whole together, in one piece."""
        message = b"".join(data)
        for frame in wire.split(message):
            self.conduct.sent(frame)
        self.send_raw(message)

    def send_raw(self, data: bytes) -> None:
        """Send bytes that are no frames, or that have been taken note of."""
        try:
            self._socket.settimeout(DEADLINE_S)
            self._socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass  # what the server said before it hung up is still to be read
        except TimeoutError as error:
            raise AssertionError("the server does not read what is sent") from error

    def block(self, fields: Fields) -> bytes:
        """Encode a header block, with the library; blocks must be sent in this order."""
        return self._encoder.encode(fields)

    def request(self, stream_id: int, fields: Fields = GET, *, ends: bool = True) -> bytes:
        """Write the HEADERS frame of a request."""
        return wire.headers(stream_id, self.block(fields), ends=ends)

    def greet(self, *values: tuple[int, int], acknowledges: bool = True) -> None:
        """Open the connection, and wait until both sides know each other's settings.

        Who does not acknowledge those of the server may go on by what holds without them.
        """
        first = values or ((Setting.INITIAL_WINDOW_SIZE, wire.DEFAULT_WINDOW),)
        settings = wire.settings(*first)
        self.conduct.sent(wire.parse(settings))
        self.send_raw(wire.PREFACE + settings)
        self.expect_settings()
        if acknowledges:
            self.send(wire.settings_ack())
        self.expect_settings_ack()

    def set(self, *values: tuple[int, int]) -> None:
        """Change settings, and wait until the server has acknowledged them."""
        self.send(wire.settings(*values))
        self.expect_settings_ack()

    # Hearing something.

    def expect(self, wanted: str, is_met: Callable[[Frame], bool]) -> Frame:
        """Read until a frame is what is wanted; an error meanwhile is a failure."""

        def judge(frame: Frame) -> bool:
            if is_met(frame):
                return True
            if frame.is_a(Kind.GOAWAY) and frame.code != Code.NO_ERROR:
                self._fail(wanted)
            return False

        return self._read_until(wanted, judge)

    def expect_settings(self) -> Frame:
        """The server tells its settings."""
        return self.expect(
            "SETTINGS", lambda frame: frame.is_a(Kind.SETTINGS) and not frame.has(wire.ACK)
        )

    def expect_settings_ack(self) -> Frame:
        """The server acknowledges settings."""
        return self.expect(
            "an acknowledgement of SETTINGS",
            lambda frame: frame.is_a(Kind.SETTINGS) and frame.has(wire.ACK),
        )

    def expect_data(self, stream_id: int) -> Frame:
        """The next DATA frame on a stream."""
        return self.expect(
            f"DATA on stream {stream_id}", lambda frame: frame.is_a(Kind.DATA, stream_id)
        )

    def expect_answer(self, stream_id: int) -> Answer:
        """A whole answer, up to the end of the stream."""
        wanted = f"a whole answer on stream {stream_id}"
        answers = self.conduct.answers

        def is_whole(frame: Frame) -> bool:
            if frame.is_a(Kind.RST_STREAM, stream_id) and not answers[stream_id].is_ended:
                self._fail(wanted)
            return stream_id in answers and answers[stream_id].is_ended

        if stream_id not in answers or not answers[stream_id].is_ended:
            self.expect(wanted, is_whole)
        answer = answers[stream_id]
        assert answer.status >= 200, f"no status in {answer}"
        return answer

    def expect_ping_answered(self) -> list[Frame]:
        """The connection lives. Gives what came before the answer to the ping.

        The server has then dealt with everything that was sent before.
        """
        self._pings += 1
        data = self._pings.to_bytes(wire.PING_BYTES, "big")
        self._seen.clear()
        self.send(wire.ping(data))
        self.expect(
            "an answer to PING",
            lambda frame: frame.is_a(Kind.PING) and frame.has(wire.ACK) and frame.payload == data,
        )
        return self._seen[:-1]

    def expect_stream_error(self, stream_id: int, codes: Collection[Code]) -> None:
        """The stream is reset with one of the codes, and others live; or all is at an end.

        An answer may come before: a server may say what is wrong with a request (8.1.1), and may
        have answered what was right before something else was not.
        """
        wanted = f"an error of stream {stream_id} with {_names(codes)}"

        def is_met(frame: Frame) -> bool:
            if frame.is_a(Kind.GOAWAY):
                return True
            is_reset = frame.is_a(Kind.RST_STREAM, stream_id)
            return is_reset and frame.code != Code.NO_ERROR

        last = self._read_until(wanted, is_met)
        self.has_met_error = True
        if last.code not in codes:
            self._fail(wanted)
        if last.is_a(Kind.GOAWAY):
            self._expect_end(wanted)
        else:
            self.expect_ping_answered()

    def expect_connection_error(self, codes: Collection[Code]) -> None:
        """The server says GOAWAY with one of the codes, and hangs up."""
        wanted = f"GOAWAY with {_names(codes)}"
        last = self._read_until(wanted, lambda frame: frame.is_a(Kind.GOAWAY))
        self.has_met_error = True
        last_stream_id = last.word
        assert last_stream_id <= self.conduct.last_opened, f"6.8: no such stream yet: {last}"
        if last.code not in codes:
            self._fail(wanted)
        self._expect_end(wanted)

    def expect_end(self) -> list[Frame]:
        """The server hangs up, with or without a word of HTTP/2. Gives what it said."""
        self.has_met_error = True
        self._expect_end("the end of the connection")
        return self._seen

    def next_frame(self) -> Frame | None:
        """The next frame, whatever it is; None at the end of the connection."""
        return self._read(time.monotonic() + DEADLINE_S, "any frame")

    # Reading.

    def _read_until(self, wanted: str, is_met: Callable[[Frame], bool]) -> Frame:
        give_up_at = time.monotonic() + DEADLINE_S
        while True:
            frame = self._read(give_up_at, wanted)
            if frame is None:
                self._fail(wanted + ", but the server hung up")
            if is_met(frame):
                return frame

    def _expect_end(self, wanted: str) -> None:
        give_up_at = time.monotonic() + DEADLINE_S
        wanted += " and then the end of the connection"
        while self._read(give_up_at, wanted) is not None:
            pass

    def _read(self, give_up_at: float, wanted: str) -> Frame | None:
        head = self._take(wire.HEAD_BYTES, give_up_at, wanted)
        if head is None:
            return None
        payload = self._take(wire.payload_bytes(head), give_up_at, wanted)
        assert payload is not None, f"the server hung up within a frame; its head was {head!r}"
        frame = wire.parse(head + payload)
        self._seen.append(frame)
        self.conduct.received(frame)
        return frame

    def _take(self, count: int, give_up_at: float, wanted: str) -> bytes | None:
        while len(self._unread) < count:
            if self._is_at_end:
                assert not self._unread, f"the server hung up after {self._unread!r}"
                return None
            self._fill(give_up_at, wanted)
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

    def _fill(self, give_up_at: float, wanted: str) -> None:
        remaining_s = give_up_at - time.monotonic()
        if remaining_s <= 0:
            self._fail(wanted)
        self._socket.settimeout(remaining_s)
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            self._fail(wanted)
        except ConnectionResetError:  # it hung up before it had read everything
            data = b""
        self._unread += data
        self._is_at_end = not data

    def _fail(self, wanted: str) -> NoReturn:
        raise AssertionError(f"wanted {wanted}; received {wire.listed(self._seen)}")


Connect = Callable[[], Peer]
"""Makes a connection on which nothing has been said yet."""


def _names(codes: Collection[Code]) -> str:
    return " or ".join(code.name for code in codes)
