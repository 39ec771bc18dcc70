"""The client's side of a connection, without I/O: against h2, our own server, and none too good."""

import asyncio
import gzip
from collections.abc import Iterator

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded

from leasehold.errors import ConnectionLost, Status
from leasehold.grpc.client_call import (
    MAX_UNSENT_BYTES,
    Failure,
    NotProcessed,
    StreamingCall,
    UnaryCall,
)
from leasehold.grpc.client_connection import (
    ASSUMED_LIST_BYTES,
    CLIENT_LIMITS,
    LAST_STREAM_ID,
    MAX_PENDING,
    MAX_SHOWN_BYTES,
    ClientConnection,
)
from leasehold.grpc.client_headers import RequestHeads
from leasehold.grpc.durability_gate import DurabilityGate
from leasehold.grpc.protocol import PREFIX, QUEUED_BYTES, RpcError, framed
from leasehold.grpc.routes import Exchange
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import END_HEADERS, END_STREAM, ErrorCode, Setting
from leasehold.http2.inbound import STREAM_WINDOW
from leasehold.http2.limits import ConnectionLimits, Rate
from leasehold.http2.stream import MAX_ENDED_HERE
from tests.support.raw_server import HEAD, OK, PATH, Wire, no_leak

frame = frames.frame


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def failure(call: UnaryCall) -> Failure:
    error = call.future.exception()
    assert isinstance(error, RpcError | ConnectionLost), error
    return error


def status(call: UnaryCall) -> Status:
    error = failure(call)
    assert isinstance(error, RpcError)
    return error.status


# Calls.


def test_a_unary_call_leaves_in_two_frames_and_its_answer_is_its_result(wire: Wire) -> None:
    call = wire.unary(b"hello")
    wire.pump()
    request = wire.server.requests[1]
    assert [name for name, _ in request.fields] == [
        ":method",
        ":scheme",
        ":path",
        ":authority",
        "te",
        "content-type",
        "user-agent",
        "grpc-accept-encoding",
    ]
    assert (bytes(request.body), request.is_ended) == (framed(b"hello"), True)
    wire.server.answer(1, b"world")
    wire.pump()
    assert call.future.result() == b"world"
    assert no_leak(wire.client)


def test_calls_that_are_alike_have_the_same_short_head(wire: Wire) -> None:
    for _ in range(3):
        wire.unary()
    wire.pump()
    heads = wire.server.heard(frames.HEADERS)
    assert heads[1].payload == heads[2].payload
    assert len(heads[1].payload) == 8


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_380, 70_000])
def test_messages_of_any_length_leave_as_the_windows_allow(wire: Wire, size: int) -> None:
    call = wire.unary(bytes(size))
    wire.pump()
    while not wire.server.requests[1].is_ended:
        wire.server.send(frames.window_update(0, 1000), frames.window_update(1, 1000))
        wire.pump()
    assert bytes(wire.server.requests[1].body) == framed(bytes(size))
    wire.server.answer(1)
    wire.pump()
    assert call.future.result() == b"answer"
    assert no_leak(wire.client)


def test_an_answer_may_come_in_pieces_and_compressed(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.head(1, ("grpc-encoding", "gzip"))
    packed = gzip.compress(b"plain" * 100)
    data = PREFIX.pack(1, len(packed)) + packed
    for at in range(0, len(data), 7):
        wire.server.send(frame(frames.DATA, 0, 1, data[at : at + 7]))
    wire.server.trailers(1)
    wire.pump()
    assert call.future.result() == b"plain" * 100
    assert no_leak(wire.client)


def test_an_error_has_status_message_and_what_else_the_trailers_say(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    fields = [("grpc-status", "5"), ("grpc-message", "no%20key"), ("hint-bin", "AAE")]
    wire.server.trailers(1, [*HEAD, *fields])
    wire.pump()
    error = failure(call)
    assert isinstance(error, RpcError)
    assert (error.status, error.message) == (Status.NOT_FOUND, "no key")
    assert error.metadata == ((b"hint-bin", b"AAE"),)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([(":status", "503"), ("content-type", "text/html")], Status.UNAVAILABLE),
        ([(":status", "404"), ("content-type", "text/html")], Status.UNIMPLEMENTED),
        ([(":status", "200"), ("content-type", "text/html")], Status.UNKNOWN),
        ([*HEAD, ("grpc-encoding", "br")], Status.INTERNAL),
        ([*HEAD, ("grpc-status", "0")], Status.INTERNAL),
        ([*HEAD, ("grpc-status", "7")], Status.PERMISSION_DENIED),
    ],
)
def test_what_is_no_answer_of_grpc_ends_the_call_and_resets_it(
    wire: Wire, fields: list[tuple[str, str]], expected: Status
) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.send(wire.server.block(1, fields))
    wire.pump()
    assert status(call) == expected
    assert wire.server.requests[1].reset == ErrorCode.CANCEL
    assert no_leak(wire.client)


def test_informational_heads_are_passed_over(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.send(wire.server.block(1, [(":status", "103")]))
    wire.server.answer(1, b"final")
    wire.pump()
    assert call.future.result() == b"final"


@pytest.mark.parametrize("trailers", [[("grpc-message", "?")], []])
def test_an_end_without_a_status_is_an_error(wire: Wire, trailers: list[tuple[str, str]]) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.head(1)
    wire.server.say(1, b"x")
    wire.server.trailers(1, trailers)
    wire.pump()
    assert status(call) == Status.INTERNAL
    assert "without a status" in str(failure(call))


@pytest.mark.parametrize("messages", [0, 2])
def test_a_unary_call_has_one_answer(wire: Wire, messages: int) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.head(1)
    for _ in range(messages):
        wire.server.say(1, b"x")
    if not messages:
        wire.server.trailers(1)
    wire.pump()
    assert status(call) == Status.INTERNAL
    assert no_leak(wire.client)


def test_a_status_that_is_none_of_grpc_is_unknown(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.trailers(1, [*HEAD, ("grpc-status", "99")])
    wire.pump()
    assert status(call) == Status.UNKNOWN


# Streams.


def test_a_stream_sends_and_hears_until_both_have_ended(wire: Wire) -> None:
    call = wire.stream()
    wire.pump()
    assert wire.server.requests[1].head[":path"] == PATH
    wire.run(call.send(b"one"))
    wire.run(call.send(b"two"))
    wire.pump()
    assert bytes(wire.server.requests[1].body) == framed(b"one") + framed(b"two")
    call.end()
    call.end()
    wire.pump()
    assert wire.server.requests[1].is_ended
    wire.server.head(1, ("k", "v"))
    wire.server.say(1, b"three")
    wire.server.trailers(1, [*OK, ("t-bin", "AAE=")])
    wire.pump()
    assert wire.run(call.metadata()) == (("k", "v"),)
    assert [wire.run(call.receive()), wire.run(call.receive())] == [b"three", None]
    assert call.trailing_metadata == (("t-bin", b"\0\1"),)
    assert no_leak(wire.client)
    with pytest.raises(RpcError, match="server has ended the call"):
        wire.run(call.send(b"late"))


def test_a_server_that_ends_first_is_told_that_nothing_more_comes(wire: Wire) -> None:
    call = wire.stream()
    wire.pump()
    wire.server.trailers(1, [*HEAD, *OK])
    wire.pump()
    assert wire.run(call.receive()) is None
    assert wire.server.requests[1].reset == ErrorCode.NO_ERROR
    assert no_leak(wire.client)


def test_so_is_one_that_ends_with_data_and_no_status(wire: Wire) -> None:
    call = wire.stream()
    wire.pump()
    wire.server.head(1)
    wire.server.send(frame(frames.DATA, END_STREAM, 1, framed(b"x")))
    wire.pump()
    assert wire.run(call.receive()) == b"x"
    with pytest.raises(RpcError, match="without a status"):
        wire.run(call.receive())
    assert wire.server.requests[1].reset == ErrorCode.NO_ERROR
    assert no_leak(wire.client)


def test_a_reader_who_takes_what_came_lets_the_server_go_on(wire: Wire) -> None:
    call = wire.stream()
    wire.pump()
    wire.server.head(1)
    message = bytes(16_000)
    sent = 0
    while (sent + 1) * (len(message) + 5) <= STREAM_WINDOW:
        wire.server.say(1, message)
        sent += 1
    wire.pump()
    assert not [each for each in wire.server.heard(frames.WINDOW_UPDATE) if each.stream_id]
    assert wire.client._inbound.buffered_bytes == sent * (len(message) + QUEUED_BYTES)
    for _ in range(sent):
        assert wire.run(call.receive()) == message
    wire.pump()
    updates = [each for each in wire.server.heard(frames.WINDOW_UPDATE) if each.stream_id]
    granted = sum(int.from_bytes(each.payload, "big") for each in updates)
    assert granted > STREAM_WINDOW // 2
    assert wire.client._inbound.buffered_bytes == 0
    call.cancel()
    wire.pump()
    assert no_leak(wire.client)


def test_what_is_buffered_is_counted_also_behind_whole_messages(wire: Wire) -> None:
    call = wire.stream()
    wire.pump()
    wire.server.head(1)
    wire.server.say(1, b"x" * 100)
    wire.server.send(frame(frames.DATA, 0, 1, framed(b"y" * 50)[:10]))
    wire.pump()
    assert wire.client._inbound.buffered_bytes == 110 + QUEUED_BYTES
    wire.run(call.receive())
    assert wire.client._inbound.buffered_bytes == 10
    call.cancel()
    assert wire.client._inbound.buffered_bytes == 0


@pytest.mark.parametrize("message", [b"", b"xy"])
def test_messages_that_nobody_takes_are_bounded_however_short(message: bytes) -> None:
    most = 100
    wire = Wire(limits=ConnectionLimits(max_buffered_bytes=most * (len(message) + QUEUED_BYTES)))
    call = wire.stream()
    wire.pump()
    wire.server.head(1)
    for _ in range(most):
        wire.server.say(1, message)
    wire.pump()
    assert len(wire.client._streams) == 1
    wire.server.say(1, message)
    wire.pump()
    assert len(wire.client._streams) == 0
    assert wire.server.requests[1].reset is not None
    assert [wire.run(call.receive()) for _ in range(most)] == [message] * most
    with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED"):
        wire.run(call.receive())
    assert no_leak(wire.client)
    wire.close()


@pytest.mark.slow
def test_the_window_is_not_given_back_for_messages_of_nothing_that_wait(wire: Wire) -> None:
    wire.stream()
    wire.pump()
    wire.server.head(1)
    for _ in range(STREAM_WINDOW // len(framed(b"")) // 1_000 + 1):
        wire.server.send(frame(frames.DATA, 0, 1, framed(b"")) * 1_000)
        wire.pump()
    assert not [each for each in wire.server.heard(frames.WINDOW_UPDATE) if each.stream_id]


def test_a_sender_waits_while_the_server_takes_nothing(wire: Wire) -> None:
    async def main() -> None:
        call = wire.stream()
        sending = asyncio.ensure_future(call.send(bytes(MAX_UNSENT_BYTES + 200_000)))
        await asyncio.sleep(0)
        wire.pump()
        await asyncio.sleep(0)
        assert not sending.done()
        wire.server.send(frames.window_update(0, 1 << 20), frames.window_update(1, 1 << 20))
        wire.pump()
        await sending
        assert len(wire.server.requests[1].body) == MAX_UNSENT_BYTES + 200_005

    wire.run(main())


def test_a_side_that_is_ended_while_its_sender_waits_sends_all_that_was_said(wire: Wire) -> None:
    async def main() -> None:
        call = wire.stream()
        sending = asyncio.ensure_future(call.send(bytes(MAX_UNSENT_BYTES + 200_000)))
        await asyncio.sleep(0)
        call.end()
        wire.pump()
        wire.server.send(frames.window_update(0, 1 << 20), frames.window_update(1, 1 << 20))
        wire.pump()
        await sending
        assert len(wire.server.requests[1].body) == MAX_UNSENT_BYTES + 200_005
        assert wire.server.requests[1].is_ended
        with pytest.raises(ValueError, match=r"cannot send after end\(\) was called"):
            await call.send(b"late")

    wire.run(main())


def test_what_a_second_sender_is_refused_for_is_not_sent(wire: Wire) -> None:
    async def main() -> None:
        call = wire.stream()
        sending = asyncio.ensure_future(call.send(bytes(MAX_UNSENT_BYTES + 200_000)))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task is sending on this call"):
            await call.send(b"second")
        call.end()
        wire.server.send(frames.window_update(0, 1 << 20), frames.window_update(1, 1 << 20))
        wire.pump()
        await sending
        assert len(wire.server.requests[1].body) == MAX_UNSENT_BYTES + 200_005

    wire.run(main())


def test_a_sender_who_waits_is_told_of_the_end(wire: Wire) -> None:
    async def main() -> None:
        call = wire.stream()
        sending = asyncio.ensure_future(call.send(bytes(1 << 20)))
        await asyncio.sleep(0)
        wire.pump()
        wire.server.reset(1, ErrorCode.CANCEL)
        wire.pump()
        with pytest.raises(RpcError, match="CANCELLED: the server reset the call"):
            await sending
        assert no_leak(wire.client)

    wire.run(main())


def test_messages_that_came_before_a_failure_are_heard_first(wire: Wire) -> None:
    call = wire.stream()
    wire.pump()
    wire.server.head(1)
    wire.server.say(1, b"one")
    wire.server.trailers(1, [("grpc-status", "10")])
    wire.pump()
    assert wire.run(call.receive()) == b"one"
    with pytest.raises(RpcError, match="ABORTED"):
        wire.run(call.receive())


def test_too_large_an_answer_costs_the_call_only() -> None:
    wire = Wire(limits=ConnectionLimits(max_message_bytes=1000))
    try:
        call, other = wire.unary(), wire.unary()
        wire.pump()
        wire.server.head(1)
        wire.server.say(1, bytes(1001))
        wire.server.answer(3)
        wire.pump()
        assert status(call) == Status.RESOURCE_EXHAUSTED
        assert other.future.result() == b"answer"
    finally:
        wire.close()


def call_with(wire: Wire, metadata_bytes: int) -> UnaryCall:
    """Make a call with so much metadata."""
    fields = wire.heads.get(PATH, None, (("k", "v" * metadata_bytes),))
    call = UnaryCall(fields, wire.client.limits.max_message_bytes, wire._loop.create_future())
    wire.client.begin(call, b"hello")
    return call


@pytest.mark.parametrize(
    ("settings", "metadata_bytes"),
    [({}, ASSUMED_LIST_BYTES), ({Setting.MAX_HEADER_LIST_SIZE: 2_000}, 2_000)],
)
def test_too_much_metadata_costs_its_call_only_and_is_not_sent(
    settings: dict[Setting, int], metadata_bytes: int
) -> None:
    wire = Wire(settings)
    call, other = call_with(wire, metadata_bytes), wire.unary()
    wire.pump()
    assert status(call) == Status.RESOURCE_EXHAUSTED
    assert f"the peer accepts at most {metadata_bytes} bytes" in str(failure(call))
    assert list(wire.server.requests) == [1]
    wire.server.answer(1)
    wire.pump()
    assert other.future.result() == b"answer"
    assert no_leak(wire.client)
    wire.close()


# Room.


def pending_wire(room: int = 1) -> Wire:
    return Wire({Setting.MAX_CONCURRENT_STREAMS: room})


def test_calls_wait_until_the_server_has_room() -> None:
    wire = pending_wire(2)
    calls = [wire.unary(b"%d" % index) for index in range(5)]
    wire.pump()
    assert list(wire.server.requests) == [1, 3]
    wire.server.answer(3, b"second")
    wire.pump()
    assert (calls[1].future.result(), list(wire.server.requests)) == (b"second", [1, 3, 5])
    for stream_id in (1, 5, 7, 9):
        wire.server.answer(stream_id)
        wire.pump()
    assert all(call.future.done() for call in calls)
    assert no_leak(wire.client)
    wire.close()


def test_a_server_that_takes_a_hundred_at_a_time_is_taken_at_its_word() -> None:
    wire = pending_wire(100)
    for _ in range(101):
        wire.unary()
    wire.pump()
    assert len(wire.server.requests) == 100
    wire.close()


def test_a_server_that_sets_no_limit_gets_all() -> None:
    wire = Wire()
    for _ in range(1000):
        wire.unary()
    wire.pump()
    assert len(wire.server.requests) == 1000
    wire.close()


def test_more_room_later_lets_them_begin() -> None:
    wire = pending_wire(0)
    wire.unary()
    wire.pump()
    assert not wire.server.requests
    wire.server.greet({Setting.MAX_CONCURRENT_STREAMS: 5})
    wire.pump()
    assert list(wire.server.requests) == [1]
    wire.close()


def test_a_call_that_waits_can_be_taken_back_and_is_never_sent() -> None:
    wire = pending_wire()
    first, second, third = wire.unary(), wire.unary(), wire.unary()
    second.cancel()
    wire.pump()
    wire.server.answer(1)
    wire.pump()
    assert list(wire.server.requests) == [1, 3]
    assert (first.future.done(), third.id) == (True, 3)
    wire.close()


def test_calls_that_are_taken_back_with_those_they_wait_for_are_never_begun() -> None:
    wire = pending_wire(3)
    calls = [wire.unary() for _ in range(100)]
    wire.pump()
    for call in calls[:-1]:
        call.cancel()
    wire.pump()
    assert list(wire.server.requests) == [1, 3, 5, 7]
    assert len(wire.server.heard(frames.RST_STREAM)) == 3
    wire.server.answer(7)
    wire.pump()
    assert calls[-1].future.result() == b"answer"
    assert no_leak(wire.client)
    wire.close()


def test_a_stream_that_waits_sends_what_was_said_once_it_begins() -> None:
    wire = pending_wire()
    wire.unary()
    call = wire.stream()
    wire.run(call.send(b"early"))
    call.end()
    wire.pump()
    assert list(wire.server.requests) == [1]
    assert all(each.stream_id == 1 for each in wire.server.heard(frames.DATA))
    wire.server.answer(1)
    wire.pump()
    assert bytes(wire.server.requests[3].body) == framed(b"early")
    assert wire.server.requests[3].is_ended
    assert wire.client.unsent_bytes == 0
    wire.close()


def test_a_stream_that_waits_and_has_nothing_to_say_can_end() -> None:
    wire = pending_wire()
    wire.unary()
    call = wire.stream()
    call.end()
    wire.pump()
    assert wire.server.goaway is None
    wire.server.answer(1)
    wire.pump()
    assert wire.server.requests[3].is_ended
    wire.close()


def test_there_is_a_limit_to_those_who_wait() -> None:
    wire = pending_wire(0)
    calls = [wire.unary() for _ in range(MAX_PENDING + 1)]
    assert status(calls[-1]) == Status.RESOURCE_EXHAUSTED
    for call in calls:
        call.cancel()
    assert no_leak(wire.client)
    wire.close()


# Taken back.


def test_a_call_that_is_taken_back_is_reset_and_what_still_comes_is_ignored(wire: Wire) -> None:
    call, other = wire.unary(), wire.unary()
    wire.pump()
    call.cancel()
    call.cancel()
    wire.pump()
    assert wire.server.requests[1].reset == ErrorCode.CANCEL
    assert len(wire.server.heard(frames.RST_STREAM)) == 1
    wire.server.answer(1)
    wire.server.answer(3)
    wire.pump()
    assert other.future.result() == b"answer"
    assert wire.server.goaway is None
    assert no_leak(wire.client)


@pytest.mark.slow
def test_so_it_is_if_very_many_are_taken_back_at_once(wire: Wire) -> None:
    calls = [wire.unary() for _ in range(5 * MAX_ENDED_HERE)]
    wire.pump()
    for call in calls:
        call.cancel()
    wire.pump()
    for stream_id in range(1, 2 * len(calls), 2):
        wire.server.answer(stream_id)
    wire.pump()
    assert wire.server.goaway is None
    assert wire.client.is_ready


# How servers end calls.


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NO_ERROR, Status.INTERNAL),
        (ErrorCode.PROTOCOL_ERROR, Status.INTERNAL),
        (ErrorCode.CANCEL, Status.CANCELLED),
        (ErrorCode.ENHANCE_YOUR_CALM, Status.RESOURCE_EXHAUSTED),
        (ErrorCode.INADEQUATE_SECURITY, Status.PERMISSION_DENIED),
    ],
)
def test_a_reset_has_the_status_that_grpc_gives_it(
    wire: Wire, code: ErrorCode, expected: Status
) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.reset(1, code)
    wire.pump()
    assert status(call) == expected
    assert code.name in str(failure(call))
    assert not isinstance(failure(call), NotProcessed)
    assert no_leak(wire.client)


def test_a_reset_with_a_code_that_nobody_knows_ends_the_call_too(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.reset(1, 4711)
    wire.pump()
    assert "code 4711" in str(failure(call))


def test_a_call_that_was_refused_was_not_executed(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.reset(1, ErrorCode.REFUSED_STREAM)
    wire.pump()
    assert isinstance(failure(call), NotProcessed)
    assert "not executed" in str(failure(call))
    assert wire.client.is_ready


def test_a_call_whose_answer_has_begun_was_executed_whatever_the_server_says(wire: Wire) -> None:
    refused, left_out = wire.unary(), wire.unary()
    wire.pump()
    for stream_id in (1, 3):
        wire.server.head(stream_id)
        wire.server.say(stream_id, b"answer")
    wire.server.reset(1, ErrorCode.REFUSED_STREAM)
    wire.server.good_bye(1)
    wire.pump()
    assert status(refused) == Status.INTERNAL
    assert not isinstance(failure(refused), NotProcessed)
    assert not isinstance(failure(left_out), NotProcessed)


def test_a_good_bye_ends_what_was_not_begun_with_and_lets_the_rest_finish(wire: Wire) -> None:
    calls = [wire.unary() for _ in range(4)]
    wire.pump()
    wire.server.good_bye(3)
    wire.pump()
    assert [call.future.done() for call in calls] == [False, False, True, True]
    assert all(isinstance(failure(call), NotProcessed) for call in calls[2:])
    assert "maintenance" in str(failure(calls[3]))
    assert (wire.client.is_draining, wire.client.is_ready) == (True, False)
    assert wire.changes == [True, False]
    wire.server.answer(1)
    wire.server.answer(3)
    wire.pump()
    assert [call.future.result() for call in calls[:2]] == [b"answer"] * 2
    assert no_leak(wire.client)


def test_a_good_bye_in_two_steps_is_understood(wire: Wire) -> None:
    calls = [wire.unary() for _ in range(2)]
    wire.pump()
    wire.server.good_bye(frames.MAX_WINDOW)
    wire.pump()
    assert not any(call.future.done() for call in calls)
    wire.server.good_bye(1)
    wire.pump()
    assert [call.future.done() for call in calls] == [False, True]
    assert wire.changes == [True, False]


def test_the_words_of_a_good_bye_are_logged_once_in_one_short_line(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    words = "forged\nERROR all is lost \x1b[2J" + "x" * 10_000
    for _ in range(100):
        wire.server.good_bye(1, ErrorCode.INTERNAL_ERROR, words)
    wire.pump()
    [record] = caplog.records
    said = record.getMessage()
    assert "forged" in said
    assert said.isprintable()
    assert len(said) < 2 * MAX_SHOWN_BYTES


def test_a_good_bye_ends_those_who_wait_for_room() -> None:
    wire = pending_wire()
    first, second = wire.unary(), wire.unary()
    wire.pump()
    wire.server.good_bye(1)
    wire.pump()
    assert not first.future.done()
    assert isinstance(failure(second), NotProcessed)
    wire.close()


def test_a_lost_connection_says_nothing_of_what_was_sent_and_all_of_what_was_not() -> None:
    wire = pending_wire()
    first, second = wire.unary(), wire.unary()
    wire.pump()
    wire.client.lost("the cable is cut")
    assert isinstance(failure(first), ConnectionLost)
    assert "the cable is cut" in str(failure(first))
    assert isinstance(failure(second), NotProcessed)
    assert no_leak(wire.client)
    wire.client.lost()
    wire.close()


def test_when_numbers_run_out_new_calls_go_elsewhere(wire: Wire) -> None:
    wire.client._next_id = LAST_STREAM_ID
    call = wire.unary()
    assert not wire.client.is_ready
    wire.pump()
    wire.server.answer(LAST_STREAM_ID)
    wire.pump()
    assert call.future.result() == b"answer"


def test_whoever_dismisses_a_connection_says_why_to_every_call() -> None:
    wire = pending_wire()
    calls = [wire.unary(), wire.unary()]
    wire.pump()
    wire.client.dismiss(RpcError(Status.CANCELLED, "enough"))
    wire.client.flush()
    assert [str(failure(call)) for call in calls] == ["CANCELLED: enough"] * 2
    wire.pump()
    assert wire.server.goaway == ErrorCode.NO_ERROR
    assert no_leak(wire.client)
    wire.close()


# Rules that servers break.

BROKEN_ON_STREAM = {
    "no status": [("content-type", "application/grpc")],
    "a status of two digits": [(":status", "20")],
    "a request's field": [*HEAD[:1], (":path", "/")],
    "upper case": [*HEAD, ("Upper", "x")],
    "a connection's field": [*HEAD, ("connection", "close")],
}


@pytest.mark.parametrize("fields", BROKEN_ON_STREAM.values(), ids=BROKEN_ON_STREAM)
def test_a_malformed_head_costs_the_call_only(wire: Wire, fields: list[tuple[str, str]]) -> None:
    call, other = wire.unary(), wire.unary()
    wire.pump()
    wire.server.send(wire.server.block(1, fields))
    wire.server.answer(3)
    wire.pump()
    assert status(call) == Status.INTERNAL
    assert "broke a rule" in str(failure(call))
    assert wire.server.requests[1].reset == ErrorCode.PROTOCOL_ERROR
    assert other.future.result() == b"answer"
    assert no_leak(wire.client)


def test_data_before_a_head_costs_the_call(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.say(1, b"x")
    wire.pump()
    assert status(call) == Status.INTERNAL
    assert wire.server.requests[1].reset == ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize("fields", [HEAD, [*HEAD, ("grpc-status", "0")]])
def test_a_second_head_costs_the_call(wire: Wire, fields: list[tuple[str, str]]) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.head(1)
    wire.server.send(wire.server.block(1, fields))
    wire.pump()
    assert status(call) == Status.INTERNAL
    assert wire.server.requests[1].reset == ErrorCode.PROTOCOL_ERROR


def test_an_answer_that_ends_within_a_message_is_an_error(wire: Wire) -> None:
    call = wire.unary()
    wire.pump()
    wire.server.head(1)
    wire.server.send(frame(frames.DATA, 0, 1, framed(b"hello")[:7]))
    wire.server.trailers(1)
    wire.pump()
    assert status(call) == Status.INTERNAL
    assert "within a message" in str(failure(call))
    assert no_leak(wire.client)


def test_more_data_than_the_window_costs_the_call(wire: Wire) -> None:
    call = wire.stream()
    wire.pump()
    wire.server.head(1)
    for _ in range(STREAM_WINDOW // 16_000 + 1):
        wire.server.say(1, bytes(16_000))
    wire.pump()
    assert wire.server.requests[1].reset == ErrorCode.FLOW_CONTROL_ERROR
    assert isinstance(call._failure, RpcError)
    assert call._failure.status == Status.INTERNAL


def test_too_many_broken_rules_end_the_connection_and_every_call_is_told() -> None:
    wire = Wire(limits=ConnectionLimits(resets=Rate(1, 0.0)))
    calls = [wire.unary() for _ in range(3)]
    wire.pump()
    wire.server.say(1, b"x")
    wire.server.say(3, b"x")
    wire.pump()
    assert [status(call) for call in calls[:2]] == [Status.INTERNAL] * 2
    assert isinstance(failure(calls[2]), ConnectionLost)
    assert wire.server.goaway == ErrorCode.ENHANCE_YOUR_CALM
    wire.close()


BROKEN_ON_CONNECTION = {
    "a frame too large": (frame(frames.DATA, 0, 1, bytes(16_385)), ErrorCode.FRAME_SIZE_ERROR),
    "headers on stream 2": (frame(frames.HEADERS, END_HEADERS, 2), ErrorCode.PROTOCOL_ERROR),
    "headers on an idle stream": (frame(frames.HEADERS, END_HEADERS, 9), ErrorCode.PROTOCOL_ERROR),
    "data on an idle stream": (frame(frames.DATA, 0, 9, b"x"), ErrorCode.PROTOCOL_ERROR),
    "a push": (frame(frames.PUSH_PROMISE, END_HEADERS, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "push allowed": (frames.settings({Setting.ENABLE_PUSH: 1}), ErrorCode.PROTOCOL_ERROR),
    "a block that cannot be read": (
        frame(frames.HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
        ErrorCode.COMPRESSION_ERROR,
    ),
    "a short ping": (frame(frames.PING, 0, 0, b"1234"), ErrorCode.FRAME_SIZE_ERROR),
    "a ping on a stream": (frame(frames.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a good-bye on a stream": (frame(frames.GOAWAY, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "a short good-bye": (frame(frames.GOAWAY, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "a reset of an idle stream": (
        frame(frames.RST_STREAM, 0, 9, bytes(4)),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "a window update of nothing": (frames.window_update(0, 0), ErrorCode.PROTOCOL_ERROR),
    "a window beyond its limit": (
        frames.window_update(0, frames.MAX_WINDOW),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "a continuation of nothing": (frame(frames.CONTINUATION, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "a block that is interrupted": (
        frame(frames.HEADERS, 0, 1) + frame(frames.PING, 0, 0, bytes(8)),
        ErrorCode.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize(("data", "code"), BROKEN_ON_CONNECTION.values(), ids=BROKEN_ON_CONNECTION)
def test_a_rule_of_the_connection_that_is_broken_ends_it_and_every_call(
    wire: Wire, data: bytes, code: ErrorCode
) -> None:
    calls = [wire.unary(), wire.unary()]
    wire.pump()
    wire.server.send(data)
    wire.pump()
    assert wire.server.goaway == code
    for call in calls:
        assert isinstance(failure(call), ConnectionLost)
        assert "the server broke a rule of HTTP/2: " in str(failure(call))
    assert (wire.client.is_ready, wire.changes) == (False, [True, False])
    assert no_leak(wire.client)


def test_headers_after_the_end_of_an_answer_end_the_connection(wire: Wire) -> None:
    wire.unary()
    wire.pump()
    wire.server.answer(1)
    wire.server.head(1)
    wire.pump()
    assert wire.server.goaway == ErrorCode.STREAM_CLOSED


@pytest.mark.parametrize(
    "first", [frame(frames.PING, 0, 0, bytes(8)), frame(frames.SETTINGS, frames.ACK, 0)]
)
def test_settings_come_first(first: bytes) -> None:
    wire = Wire(greets=False)
    wire.server.send(first)
    wire.client.flush()
    wire.pump()
    assert wire.server.goaway == ErrorCode.PROTOCOL_ERROR
    assert not wire.client.is_ready
    assert "SETTINGS must come first" in wire.client.why
    wire.close()


# Against h2.


class H2Server:
    """h2 as the server: it checks all that the client says."""

    def __init__(self) -> None:
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.bodies: dict[int, bytearray] = {}
        self.out: list[bytes] = []
        self.client = ClientConnection(
            self.out.append,
            lambda: 0.0,
            limits=CLIENT_LIMITS,
            schedule_flush=lambda: None,
            on_change=lambda: None,
        )

    def pump(self) -> None:
        for _ in range(1000):
            self.client.flush()
            said, self.out[:] = b"".join(self.out), []
            for event in self.h2.receive_data(said) if said else []:
                match event:
                    case RequestReceived(stream_id=int(number)):
                        self.bodies[number] = bytearray()
                    case DataReceived(stream_id=int(number), data=bytes(data)):
                        self.bodies[number] += data
                        self.h2.acknowledge_received_data(event.flow_controlled_length, number)
                    case StreamEnded(stream_id=int(number)):
                        self._echo(number)
            heard = self.h2.data_to_send()
            if heard:
                self.client.receive(heard)
            elif not self.out:
                return

    def _echo(self, number: int) -> None:
        self.h2.send_headers(number, list(HEAD))
        body = bytes(self.bodies[number])
        for at in range(0, len(body), 16_384):
            self.h2.send_data(number, body[at : at + 16_384])
        self.h2.send_headers(number, list(OK), end_stream=True)


def test_h2_finds_nothing_wrong_with_what_the_client_says() -> None:
    server = H2Server()
    heads = RequestHeads(b"http", b"localhost", b"test/1")
    loop = asyncio.new_event_loop()
    server.pump()
    messages = [b"", b"x", bytes(16_379), bytes(16_380), bytes(200_000), b"last"]
    calls = []
    for index, message in enumerate(messages * 3):
        metadata = (("n", str(index % 4)), ("raw-bin", bytes([index])))
        fields = heads.get(PATH, 1.0 + index, metadata)
        calls.append(UnaryCall(fields, 1 << 20, loop.create_future()))
        server.client.begin(calls[-1], message)
    server.pump()
    assert [call.future.result() for call in calls] == messages * 3
    stream = StreamingCall(heads.get(PATH, None, None), 1 << 20)
    server.client.begin(stream)
    loop.run_until_complete(stream.send(b"one"))
    server.pump()
    stream.cancel()
    server.pump()
    server.client.close()
    server.pump()
    assert no_leak(server.client)
    loop.close()


# Against our own server.


def test_our_server_and_our_client_understand_each_other() -> None:
    to_client: list[bytes] = []
    to_server: list[bytes] = []
    server = ServerConnection(
        {PATH: Exchange(lambda m: (m, 0))}, DurabilityGate(), to_client.append
    )
    client = ClientConnection(
        to_server.append, lambda: 0.0, schedule_flush=lambda: None, on_change=lambda: None
    )
    client.flush()
    greeting = b"".join(to_server)
    to_server.clear()
    server.receive(greeting[len(frames.PREFACE) :])
    loop = asyncio.new_event_loop()

    def pump() -> None:
        while to_client or to_server:
            heard, to_client[:] = b"".join(to_client), []
            client.receive(heard)
            said, to_server[:] = b"".join(to_server), []
            if said:
                server.receive(said)

    pump()
    heads = RequestHeads(b"http", b"localhost", b"test/1")
    calls = []
    for index in range(300):
        call = UnaryCall(heads.get(PATH, 5.0, None), 1 << 20, loop.create_future())
        client.begin(call, b"%d" % index * (index * 10))
        calls.append(call)
    client.flush()
    pump()
    assert [call.future.result() for call in calls] == [
        b"%d" % index * (index * 10) for index in range(300)
    ]
    unknown = UnaryCall(heads.get("/no.Such/Method", None, None), 100, loop.create_future())
    client.begin(unknown, b"")
    client.flush()
    pump()
    assert status(unknown) == Status.UNIMPLEMENTED
    assert no_leak(client)
    loop.close()
