"""Calls, answers, resets, good-byes and losses in any order, and bytes cut anywhere.

Every call ends once, or was taken back by its caller and hears nothing more. `NotProcessed` is told
of calls only that the server has not executed, and never will. An honest server is one that says of
no call that it has executed that it has not; everything else it does as it likes.
"""

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from leasehold.errors import ConnectionLost
from leasehold.grpc.client_call import Failure, NotProcessed, UnaryCall
from leasehold.grpc.client_connection import ClientConnection
from leasehold.grpc.client_headers import AnswerBlock, RequestHeads
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from tests.property.support import effort
from tests.support.raw_server import HEAD, PATH, RawServer, no_leak

CODES = [code for code in ErrorCode if code != ErrorCode.REFUSED_STREAM]
sizes = st.sampled_from([0, 1, 100, 16_000, 16_400, 70_000])


class Told(UnaryCall):
    """A call that counts how often it is told its end."""

    def __init__(self, message: bytes, future: "asyncio.Future[bytes]") -> None:
        fields = RequestHeads(b"http", b"localhost", b"test/1").get(PATH, None, None)
        super().__init__(fields, 1 << 20, future)
        self.message = message
        self.ends: list[object] = []
        self.is_cancelled = False

    def ended(self, trailers: AnswerBlock) -> None:
        self.ends.append(trailers)
        super().ended(trailers)

    def failed(self, failure: Failure) -> None:
        self.ends.append(failure)
        super().failed(failure)
        self.future.exception()


class Calls(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.calls: list[Told] = []
        self.to_server = bytearray()
        self.to_client = bytearray()
        self.executed: set[int] = set()
        self.answered: set[int] = set()
        """Streams that the server has ended."""
        self.begun: set[int] = set()
        """Streams whose head was sent."""
        self.last_id = frames.MAX_WINDOW
        self.room = frames.MAX_WINDOW
        self.is_lost = False
        self.client = ClientConnection(
            self.to_server.extend,
            lambda: 0.0,
            schedule_flush=lambda: None,
            on_change=lambda: None,
        )
        self.server = RawServer(self.to_client.extend)

    @initialize(room=st.sampled_from([None, 0, 1, 2, 5]))
    def greet(self, room: int | None) -> None:
        settings = {} if room is None else {Setting.MAX_CONCURRENT_STREAMS: room}
        self.server.greet(settings)
        self.deliver_to_client(len(self.to_client))
        assert self.client.is_ready

    def teardown(self) -> None:
        if self.server.requests or self.calls:
            self.lose()
        for call in self.calls:
            assert len(call.ends) == (0 if call.is_cancelled and not call.ends else 1)
            assert call.is_cancelled or call.ends
        self.loop.close()

    # What the client does.

    @precondition(lambda self: self.client.is_ready)
    @rule(size=sizes)
    def begin(self, size: int) -> None:
        call = Told(bytes(size), self.loop.create_future())
        self.calls.append(call)
        self.client.begin(call, call.message)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(self.calls))
        if not call.ends:
            call.is_cancelled = True
        call.cancel()

    @rule()
    def flush(self) -> None:
        if not self.is_lost:
            self.client.flush()

    # What the wire does.

    @rule(count=st.integers(1, 100_000))
    def deliver_to_server(self, count: int) -> None:
        if not self.is_lost:
            piece = bytes(self.to_server[:count])
            if len(piece) >= len(frames.PREFACE) or self.server._has_preface:
                del self.to_server[:count]
                self.server.receive(piece)

    @rule(count=st.integers(1, 5_000))
    def deliver_to_client(self, count: int) -> None:
        if not self.is_lost and self.to_client:
            piece = bytes(self.to_client[:count])
            del self.to_client[:count]
            self.client.receive(piece)

    @rule()
    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.client.lost("the wire is cut")

    # What the server does.

    def open(self) -> list[int]:
        """Streams that the server may still say something on."""
        return [
            number
            for number, request in self.server.requests.items()
            if request.reset is None and number not in self.answered and number <= self.last_id
        ]

    @rule(data=st.data())
    def execute(self, data: st.DataObject) -> None:
        ready = [each for each in self.open() if self.server.requests[each].is_ended]
        if ready:
            self.executed.add(data.draw(st.sampled_from(ready)))

    @rule(data=st.data(), size=sizes, piece=st.sampled_from(["head", "all", "failure"]))
    def answer(self, data: st.DataObject, size: int, piece: str) -> None:
        ready = [each for each in self.open() if each in self.executed]
        if not ready:
            return
        number = data.draw(st.sampled_from(ready))
        if piece == "failure" and number not in self.begun:
            self.server.trailers(number, [*HEAD, ("grpc-status", "9")])
            self.answered.add(number)
            return
        if number not in self.begun:
            self.begun.add(number)
            self.server.head(number)
        if piece != "head":
            self.server.say(number, bytes(min(size, 16_000)))
            self.server.trailers(number)
            self.answered.add(number)

    @rule(data=st.data(), code=st.sampled_from(CODES))
    def reset(self, data: st.DataObject, code: ErrorCode) -> None:
        if self.open():
            number = data.draw(st.sampled_from(self.open()))
            self.executed.add(number)  # it may have been, for all that anybody knows
            self.answered.add(number)
            self.server.reset(number, code)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        fresh = [each for each in self.open() if each not in self.executed]
        if fresh:
            number = data.draw(st.sampled_from(fresh))
            self.answered.add(number)
            self.server.reset(number, ErrorCode.REFUSED_STREAM)

    @rule(data=st.data())
    def good_bye(self, data: st.DataObject) -> None:
        seen = max(self.server.requests, default=0)
        lowest = max(self.executed | self.begun, default=0)
        highest = min(self.last_id, max(seen, lowest))
        choices = sorted({lowest, highest, min(self.last_id, frames.MAX_WINDOW)})
        self.last_id = data.draw(st.sampled_from(choices))
        self.server.good_bye(self.last_id)

    @rule(room=st.integers(0, 5))
    def change_room(self, room: int) -> None:
        self.server.greet({Setting.MAX_CONCURRENT_STREAMS: room})

    @rule(number=st.integers(0, 9), increment=st.integers(1, 100_000))
    def widen(self, number: int, increment: int) -> None:
        if number == 0 or number in self.server.requests:
            self.server.send(frames.window_update(number, increment))

    # What must hold.

    @invariant()
    def every_call_ends_at_most_once(self) -> None:
        for call in self.calls:
            assert len(call.ends) <= 1, call.ends
            assert not (call.is_cancelled and call.ends), call.ends

    @invariant()
    def not_processed_means_that_the_server_never_will(self) -> None:
        for call in self.calls:
            if call.ends and isinstance(call.ends[0], NotProcessed):
                assert call.id not in self.executed or not call.id

    @invariant()
    def what_the_server_has_answered_is_what_its_caller_gets(self) -> None:
        for call in self.calls:
            if call.ends and isinstance(call.ends[0], AnswerBlock):
                assert call.id in self.executed

    @invariant()
    def the_server_finds_nothing_wrong(self) -> None:
        assert not self.client.is_closing or self.is_lost, self.client.why
        numbers = list(self.server.requests)
        assert numbers == sorted(numbers)

    @invariant()
    def a_lost_connection_has_nothing_left(self) -> None:
        if self.is_lost:
            assert no_leak(self.client)
            assert all(call.ends or call.is_cancelled for call in self.calls)
            ends: list[Any] = [call.ends[0] for call in self.calls if call.ends]
            for end in ends:
                is_unknown = isinstance(end, ConnectionLost)
                assert not is_unknown or "the wire is cut" in str(end)


TestCalls = Calls.TestCase
TestCalls.settings = effort(120, 60)
