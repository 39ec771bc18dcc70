"""The watchdog of a connection, in virtual time; each limit is kept to within a beat."""

from dataclasses import dataclass, field, replace

import pytest

from leasehold.grpc.http_handlers import PagesOnly
from leasehold.http1.http1_connection import Http1Connection
from leasehold.http2.frames import ErrorCode
from leasehold.http2.limits import ConnectionLimits
from leasehold.serving.watchdog import MAX_BEAT_S, MEMO_S, Watchdog
from tests.support.virtual_loop import VirtualLoop

LIMITS = ConnectionLimits(
    first_bytes_s=10.0,
    idle_s=300.0,
    uncalled_s=300.0,
    stall_s=60.0,
    ping_after_s=60.0,
    ping_timeout_s=20.0,
)
BEAT_S = 2.5


@dataclass
class Connection:
    """A connection that is as it is told to be."""

    is_closing: bool = False
    is_pinged: bool = False
    activity: int = 0
    has_greeted: bool = True
    has_streams: bool = False
    unsent_bytes: int = 0
    taken_bytes: int = 0
    put_bytes: int = 0
    begun: int = 0
    drains: int = 0
    stalled_streams: int = 0
    forgotten: int = 0
    pings: list[float] = field(default_factory=list)
    loop: VirtualLoop | None = None

    def ping(self) -> None:
        """Note when."""
        self.is_pinged = True
        self.pings.append(self.loop.now() if self.loop else 0.0)

    def drop_stalled(self) -> bool:
        """Drop what there is."""
        dropped, self.stalled_streams = self.stalled_streams, 0
        return bool(dropped)

    def drop_overdue(self, now: float) -> None:
        """Have nothing that is overdue."""

    def forget_memos(self) -> None:
        """Count it."""
        self.forgotten += 1

    def drain(self) -> None:
        """Note that the peer is asked to make no new calls."""
        self.drains += 1
        self.ping()


class Kennel:
    """A watchdog, what it watches, and what it complains of."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.loop = VirtualLoop()
        self.began = self.loop.now()
        self.connection = Connection(loop=self.loop)
        self.complaints: list[tuple[float, ErrorCode, str]] = []
        self.unwritten_bytes = 0
        self.dog = Watchdog(self.loop, limits, self._complain)

    def _complain(self, code: ErrorCode, why: str) -> None:
        self.complaints.append((self.loop.now() - self.began, code, why))

    def watch(self) -> Connection:
        self.dog.watch(self.connection, lambda: self.unwritten_bytes)
        return self.connection

    def pass_time(self, seconds: float, *, is_heard: bool = False) -> None:
        """Let time pass; if `is_heard`, the peer says something all the while."""
        for _ in range(round(seconds)):
            if is_heard:
                self.connection.activity += 1
            self.loop.pass_time(1.0)


@pytest.fixture
def kennel() -> Kennel:
    return Kennel()


def _check(kennel: Kennel, after_s: float, code: ErrorCode, why: str) -> None:
    """One complaint, in time, and no more beats after it."""
    [(at_s, complained, words)] = kennel.complaints
    assert after_s <= at_s <= after_s + 2 * BEAT_S
    assert complained == code
    assert why in words
    assert kennel.loop.alarms == 0


def test_no_first_byte(kennel: Kennel) -> None:
    kennel.pass_time(9)
    assert kennel.complaints == []
    kennel.pass_time(100)
    _check(kennel, 10, ErrorCode.ENHANCE_YOUR_CALM, "no greeting within 10 s")


def test_first_bytes_that_come_slowly_do_not_help(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_greeted = False
    kennel.pass_time(100, is_heard=True)
    _check(kennel, 10, ErrorCode.ENHANCE_YOUR_CALM, "no greeting within 10 s")


def test_a_greeting_in_time_is_all_right(kennel: Kennel) -> None:
    kennel.pass_time(9)
    kennel.watch()
    kennel.pass_time(200, is_heard=True)
    assert kennel.complaints == []


def test_idle_is_good_bye_without_reproach(kennel: Kennel) -> None:
    kennel.watch()
    kennel.pass_time(295, is_heard=True)
    assert kennel.complaints == []
    kennel.pass_time(100, is_heard=True)
    _check(kennel, 300, ErrorCode.NO_ERROR, "nothing to do for 300 s")


def test_calls_that_come_and_go_between_two_beats_are_something_to_do(kennel: Kennel) -> None:
    connection = kennel.watch()
    for _ in range(1_000):
        kennel.pass_time(1, is_heard=True)
        connection.begun += 2
    assert kennel.complaints == []
    assert connection.drains == 0


def test_who_is_idle_is_asked_to_make_no_calls_a_beat_before_it_is_sent_away(
    kennel: Kennel,
) -> None:
    connection = kennel.watch()
    while not connection.drains:
        kennel.loop.pass_time(BEAT_S)
    assert kennel.complaints == []
    kennel.loop.pass_time(BEAT_S)
    _check(kennel, 300, ErrorCode.NO_ERROR, "nothing to do for 300 s")
    assert connection.drains == 1


def test_a_call_that_was_on_its_way_to_an_idle_connection_is_not_lost(kennel: Kennel) -> None:
    connection = kennel.watch()
    while not connection.drains:
        kennel.loop.pass_time(BEAT_S)
    connection.is_pinged = False
    connection.begun, connection.has_streams = 1, True
    kennel.pass_time(1_000, is_heard=True)
    assert kennel.complaints == []


def test_a_call_makes_the_time_begin_anew(kennel: Kennel) -> None:
    connection = kennel.watch()
    kennel.pass_time(290)
    connection.has_streams = True
    kennel.pass_time(5, is_heard=True)
    connection.has_streams = False
    kennel.pass_time(290)
    assert kennel.complaints == []
    kennel.pass_time(100)
    _check(kennel, 595, ErrorCode.NO_ERROR, "nothing to do")


def test_who_has_a_call_is_not_idle(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    kennel.pass_time(1_000, is_heard=True)
    assert kennel.complaints == []


def test_stall(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams, connection.unsent_bytes = True, 1_000
    kennel.pass_time(55, is_heard=True)
    assert kennel.complaints == []
    kennel.pass_time(50, is_heard=True)
    _check(
        kennel,
        60,
        ErrorCode.ENHANCE_YOUR_CALM,
        "read almost nothing of its responses for 60 s",
    )


def test_who_takes_some_of_it_is_not_stalled(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams, connection.unsent_bytes = True, 1_000_000
    for _ in range(20):
        kennel.pass_time(50, is_heard=True)
        connection.taken_bytes += LIMITS.min_taken_bytes
    assert kennel.complaints == []


def test_streams_that_stall_are_dropped_before_the_connection_is_closed(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams, connection.unsent_bytes, connection.stalled_streams = True, 1_000, 2
    kennel.pass_time(70, is_heard=True)
    assert connection.stalled_streams == 0
    assert kennel.complaints == []
    kennel.pass_time(70, is_heard=True)
    _check(kennel, 120, ErrorCode.ENHANCE_YOUR_CALM, "read almost nothing")


def test_a_peer_that_does_not_read_is_not_helped_by_dropping_streams(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams, connection.stalled_streams = True, 2
    connection.put_bytes = kennel.unwritten_bytes = 1_000
    kennel.pass_time(70, is_heard=True)
    assert connection.stalled_streams == 2
    _check(kennel, 60, ErrorCode.ENHANCE_YOUR_CALM, "read almost nothing")


def test_who_takes_next_to_nothing_is_stalled(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams, connection.unsent_bytes = True, 1_000_000
    for _ in range(100):
        kennel.pass_time(1, is_heard=True)
        connection.taken_bytes += 1
    _check(kennel, 60, ErrorCode.ENHANCE_YOUR_CALM, "read almost nothing")


def test_what_is_handed_on_but_cannot_be_written_is_not_taken(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    kennel.unwritten_bytes = connection.put_bytes = 100_000
    kennel.pass_time(100, is_heard=True)
    _check(kennel, 60, ErrorCode.ENHANCE_YOUR_CALM, "read almost nothing")


def test_what_is_written_is_taken_though_more_waits(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    kennel.unwritten_bytes = connection.put_bytes = 100_000
    for _ in range(20):
        connection.put_bytes += LIMITS.min_taken_bytes
        kennel.pass_time(50, is_heard=True)
    assert kennel.complaints == []


def test_the_time_of_a_stall_begins_with_the_output(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    kennel.pass_time(200, is_heard=True)
    connection.unsent_bytes = 10
    kennel.pass_time(55, is_heard=True)
    assert kennel.complaints == []
    kennel.pass_time(20, is_heard=True)
    _check(kennel, 255, ErrorCode.ENHANCE_YOUR_CALM, "read almost nothing")


def test_a_silent_peer_that_has_calls_is_asked_and_cut_off_if_it_does_not_answer(
    kennel: Kennel,
) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    kennel.pass_time(55)
    assert connection.pings == []
    kennel.pass_time(10)
    assert len(connection.pings) == 1
    kennel.pass_time(10)
    assert kennel.complaints == []
    kennel.pass_time(30)
    _check(kennel, 80, ErrorCode.NO_ERROR, "no answer to a ping for 20 s")


def test_a_peer_that_answers_is_asked_again_and_again(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    for _ in range(1_000):
        kennel.pass_time(1)
        if connection.is_pinged:
            connection.is_pinged = False
            connection.activity += 1
    assert kennel.complaints == []
    assert 12 <= len(connection.pings) <= 1_000 // 60


def test_a_peer_that_speaks_is_not_cut_off_though_its_answer_is_late(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    kennel.pass_time(65)
    assert connection.is_pinged
    kennel.pass_time(200, is_heard=True)
    assert kennel.complaints == []


def test_a_peer_without_calls_is_not_asked(kennel: Kennel) -> None:
    connection = kennel.watch()
    kennel.pass_time(290)
    assert connection.pings == []


def test_a_ping_that_somebody_else_sent_has_its_whole_time(kennel: Kennel) -> None:
    connection = kennel.watch()
    kennel.pass_time(200)
    connection.is_pinged = True  # as when a server drains its connections
    kennel.pass_time(15)
    assert kennel.complaints == []
    kennel.pass_time(20)
    _check(kennel, 220, ErrorCode.NO_ERROR, "no answer to a ping for 20 s")


def test_once_stopped_it_looks_no_more(kennel: Kennel) -> None:
    kennel.watch()
    kennel.dog.stop()
    kennel.pass_time(1_000)
    assert kennel.complaints == []
    assert kennel.loop.alarms == 0


def test_it_has_one_alarm_whatever_happens(kennel: Kennel) -> None:
    connection = kennel.watch()
    connection.has_streams = True
    for _ in range(100):
        kennel.pass_time(1, is_heard=True)
        assert kennel.loop.alarms == 1


def test_beats_are_never_far_apart_nor_without_end() -> None:
    loop = VirtualLoop()
    Watchdog(
        loop,
        ConnectionLimits(first_bytes_s=1e6, idle_s=1e6, stall_s=1e6, ping_timeout_s=1e6),
        _never,
    )
    assert loop._due[0][0] - loop.now() == MAX_BEAT_S
    loop = VirtualLoop()
    Watchdog(loop, ConnectionLimits(first_bytes_s=1e-9), _never)
    assert loop._due[0][0] - loop.now() > 0


def _never(_code: ErrorCode, _why: str) -> None:
    raise AssertionError("nothing is wrong")


# A head of HTTP/1.1.


def test_a_slow_head_of_http1_is_cut_off() -> None:
    kennel = Kennel()
    http = Http1Connection(PagesOnly(), lambda _: None)
    kennel.dog.watch(http, int)
    for byte in b"GET / HTTP/1.1\r\nX-Slow: " + b"x" * 100:
        http.receive(bytes((byte,)))
        kennel.loop.pass_time(1.0)
    _check(kennel, 10, ErrorCode.ENHANCE_YOUR_CALM, "no greeting within 10 s")


def test_requests_of_http1_that_come_whole_are_all_right_however_long_between() -> None:
    kennel = Kennel()
    http = Http1Connection(PagesOnly(), lambda _: None)
    kennel.dog.watch(http, int)
    for _ in range(10):
        http.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        kennel.loop.pass_time(25.0)
    assert kennel.complaints == []


def test_the_time_of_a_head_begins_when_it_does() -> None:
    kennel = Kennel()
    http = Http1Connection(PagesOnly(), lambda _: None)
    kennel.dog.watch(http, int)
    kennel.loop.pass_time(100.0)
    http.receive(b"GET /")
    kennel.loop.pass_time(9.0)
    assert kennel.complaints == []
    kennel.loop.pass_time(10.0)
    assert len(kennel.complaints) == 1


# A body of HTTP/1.1.

_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


def test_a_slow_body_of_http1_is_cut_off() -> None:
    kennel = Kennel()
    http = Http1Connection(PagesOnly(), lambda _: None)
    kennel.dog.watch(http, int)
    http.receive(_HEAD)
    for _ in range(100):
        http.receive(b"x")
        kennel.loop.pass_time(1.0)
    _check(kennel, 10, ErrorCode.ENHANCE_YOUR_CALM, "no greeting within 10 s")


def test_a_slow_chunk_of_http1_is_cut_off() -> None:
    kennel = Kennel()
    http = Http1Connection(PagesOnly(), lambda _: None)
    kennel.dog.watch(http, int)
    http.receive(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(50):
        http.receive(b"1\r\nx\r\n")
        kennel.loop.pass_time(1.0)
    _check(kennel, 10, ErrorCode.ENHANCE_YOUR_CALM, "no greeting within 10 s")


def test_who_is_always_in_the_middle_of_the_next_body_is_not_slow() -> None:
    kennel = Kennel()
    http = Http1Connection(PagesOnly(), lambda _: None)
    kennel.dog.watch(http, int)
    http.receive(_HEAD)
    for _ in range(100):
        kennel.loop.pass_time(1.0)
        http.receive(b"x" * 1000 + _HEAD)
    assert kennel.complaints == []


@pytest.mark.parametrize(("begun", "after_s"), [(0, 50.0), (1, 300.0)])
def test_a_connection_without_any_call_is_closed_sooner(begun: int, after_s: float) -> None:
    kennel = Kennel(replace(LIMITS, uncalled_s=50.0))
    kennel.watch().begun = begun
    kennel.pass_time(after_s - BEAT_S)
    assert not kennel.complaints
    kennel.pass_time(3 * BEAT_S)
    [(_, code, why)] = kennel.complaints
    assert (code, why) == (ErrorCode.NO_ERROR, f"nothing to do for {after_s:g} s")


def test_idle_time_counts_from_the_last_call(kennel: Kennel) -> None:
    watched = kennel.watch()
    kennel.pass_time(20)
    assert kennel.dog.idle_since == kennel.began
    watched.begun = 1  # since the last beat
    assert kennel.dog.idle_since == kennel.loop.now()
    kennel.pass_time(20)
    assert kennel.began + 20 <= kennel.dog.idle_since <= kennel.began + 20 + BEAT_S
    watched.has_streams = True
    assert kennel.dog.idle_since == kennel.loop.now()


def test_a_connection_without_calls_forgets_what_it_remembered(kennel: Kennel) -> None:
    kennel.watch().begun = 1
    kennel.pass_time(MEMO_S)
    assert not kennel.connection.forgotten
    kennel.pass_time(2 * BEAT_S)
    assert kennel.connection.forgotten
