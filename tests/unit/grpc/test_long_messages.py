"""Messages in pieces: they come whole, wait like others, and nobody waits for one of them."""

from collections.abc import Callable

import pytest

from leasehold.errors import Status
from leasehold.grpc.durability_gate import MAX_WAITING_BYTES, DurabilityGate
from leasehold.grpc.protocol import framed
from leasehold.grpc.routes import Answer, Exchange, Pieces
from leasehold.grpc.server_connection import ServerConnection
from leasehold.http2 import frames
from leasehold.http2.frames import ErrorCode, Setting
from leasehold.http2.limits import ConnectionLimits
from leasehold.http2.outbound import HAND_ON_BYTES, SHARE_BYTES
from tests.support.h2_peer import ONCE, Peer, RawPeer, no_leak, split_frames
from tests.support.virtual_loop import VirtualLoop

LARGE = "/test.Service/Large"
MANY_LARGE = "/test.Service/ManyLarge"
PIECES = [b"%06d" % number * 1000 for number in range(100)]
WHOLE = b"".join(PIECES)


def _serve(peer: Peer | RawPeer, position: int = 0) -> None:
    def answer(_: bytes) -> Pieces:
        return Pieces(list(PIECES), position)

    peer.service.methods[LARGE] = Exchange(answer)
    peer.service.methods[MANY_LARGE] = Exchange(answer, is_unary=False)


def test_a_message_in_pieces_comes_whole_through_small_windows(peer: Peer) -> None:
    _serve(peer)
    reply = peer.call(b"", LARGE)
    assert (reply.status, reply.messages) == (0, [WHOLE])
    assert no_leak(peer.server)


def test_a_message_in_pieces_waits_for_its_position(peer: Peer) -> None:
    _serve(peer, position=3)
    number = peer.begin(b"", LARGE)
    peer.pump()
    assert peer.reply(number).body == b""
    peer.release(2)
    assert peer.reply(number).body == b""
    peer.release(3)
    peer.pump()
    assert (peer.reply(number).status, peer.reply(number).messages) == (0, [WHOLE])
    assert no_leak(peer.server)


def test_messages_in_pieces_keep_their_order_on_a_stream(peer: Peer) -> None:
    _serve(peer)
    number = peer.open(MANY_LARGE)
    peer.say(number, b"1", b"2", end=True)
    peer.pump()
    assert peer.reply(number).messages == [WHOLE, WHOLE]
    assert no_leak(peer.server)


def test_one_message_in_pieces_behind_a_short_one_that_has_not_left(raw: RawPeer) -> None:
    said: list[Answer | Pieces] = [(b"short", 0), Pieces(list(PIECES)), (b"short", 0)]
    raw.service.methods[MANY_LARGE] = Exchange(lambda _: said.pop(0), is_unary=False)
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    raw.send(raw.request(1, MANY_LARGE))
    for _ in range(3):
        raw.send(frames.frame(frames.DATA, 0, 1, framed(b"")))
    raw.send(frames.window_update(0, 10_000_000))
    sent = raw.send(frames.window_update(1, 10_000_000))
    body = b"".join(one.payload for one in sent if one.kind == frames.DATA)
    assert body == framed(b"short") + framed(WHOLE) + framed(b"short")


def test_a_message_in_pieces_that_is_given_up_leaves_nothing(raw: RawPeer) -> None:
    _serve(raw)
    raw.send(raw.request(1, LARGE))
    raw.send(frames.frame(frames.DATA, frames.END_STREAM, 1, framed(b"")))
    assert raw.server.unsent_bytes > len(WHOLE) - 100_000
    raw.send(frames.rst_stream(1, ErrorCode.CANCEL))
    assert raw.server.unsent_bytes == 0
    assert no_leak(raw.server)


def test_messages_in_pieces_count_as_what_the_peer_does_not_take() -> None:
    raw = RawPeer(limits=ConnectionLimits(max_unsent_bytes=len(WHOLE)))
    _serve(raw)
    raw.send(frames.settings({Setting.INITIAL_WINDOW_SIZE: 0}))
    for number in (1, 3):
        raw.send(raw.request(number, LARGE))
        raw.send(frames.frame(frames.DATA, frames.END_STREAM, number, framed(b"")))
    raw.send(raw.request(5, LARGE))
    sent = raw.send(frames.frame(frames.DATA, frames.END_STREAM, 5, framed(b"")))
    assert [one.stream_id for one in sent if one.kind == frames.HEADERS] == [5], "it is refused"


def test_a_read_in_pieces_is_refused_when_too_much_waits_for_the_disk(peer: Peer) -> None:
    peer.service.methods[LARGE] = Exchange(lambda _: Pieces([], 1), hold=DurabilityGate.hold_read)
    peer.gate.hold_answer(1, lambda _: peer.server, bytes(MAX_WAITING_BYTES))
    assert peer.call(b"", LARGE).status == Status.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("is_long", [True, False])
def test_no_more_than_a_megabyte_is_handed_on_before_it_is_the_turn_of_others(
    *, is_long: bool
) -> None:
    later: list[Callable[[], None]] = []

    class Host(VirtualLoop):
        def call_soon(self, callback: Callable[[], None]) -> None:
            later.append(callback)

    handed_on: list[bytes] = []
    message = bytes(10 * HAND_ON_BYTES)
    pieces = [message[:HAND_ON_BYTES]] * 10
    methods = {ONCE: Exchange(lambda _: Pieces(pieces) if is_long else (message, 0))}
    server = ServerConnection(methods, DurabilityGate(), handed_on.append, loop=Host())
    server.receive(
        frames.settings({Setting.INITIAL_WINDOW_SIZE: frames.MAX_WINDOW})
        + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
    )
    handed_on.clear()
    server.receive(RawPeer().unary(1))
    turns = 1
    while later:
        before = sum(map(len, handed_on))
        for callback in [later.pop() for _ in range(len(later))]:
            callback()
        assert sum(map(len, handed_on)) - before < HAND_ON_BYTES + 2 * SHARE_BYTES
        turns += 1
    sent = split_frames(b"".join(handed_on))
    assert b"".join(one.payload for one in sent if one.kind == frames.DATA) == framed(message)
    assert turns > 4
    assert no_leak(server)
