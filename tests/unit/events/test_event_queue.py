"""`EventQueue`: numbers, order, retries, and replaced listeners, without a clock."""

from typing import Any

import pytest

from leasehold.events.state import (
    GIVE_UP_S,
    MAX_NOTIFY_BYTES,
    MAX_NOTIFY_EVENTS,
    RETRIES_S,
    Attempt,
    EventQueue,
    EventTarget,
    QueueState,
)

HERE = EventTarget("", "a")
THERE = EventTarget("127.0.0.1:7000", "b")
DAY_S = 86_400.0


def queue(*payloads: bytes, target: EventTarget | None = HERE, **options: Any) -> EventQueue:
    made = EventQueue("c/renewal", "s", 2, target=target, handback=b"h", **options)
    for payload in payloads:
        made.append(payload)
    return made


def numbers(attempt: Attempt) -> list[int]:
    return [event.number for event in attempt.events]


def test_numbers_start_at_1_and_rise_by_1() -> None:
    events = queue(b"a", b"b")
    assert numbers(events.begin()) == [1, 2]
    assert events.number == 2


def test_an_event_carries_source_kind_number_handback_and_payload() -> None:
    (event,) = queue(b"a").begin().events
    assert (event.service, event.source, event.kind) == ("c/renewal", "s", 2)
    assert (event.number, event.handback, event.payload) == (1, b"h", b"a")


def test_without_a_listener_events_are_counted_and_not_kept() -> None:
    events = queue(target=None)
    assert events.append(b"a") is None
    assert (events.number, len(events), events.state) == (1, 0, QueueState.NO_LISTENER)
    events.replace(HERE, b"")
    assert events.state is QueueState.IDLE
    events.append(b"b")
    assert numbers(events.begin()) == [2]


def test_an_overflow_shows_as_a_gap_in_the_numbers() -> None:
    events = queue(b"1", b"2", max_events=2)
    assert not events.keeps_next
    assert events.append(b"3") is None
    events.succeeded(events.begin())
    events.append(b"4")
    assert numbers(events.begin()) == [4]


def test_a_restored_queue_goes_on_where_it_was() -> None:
    events = EventQueue("c", "s", 1, number=9, target=HERE, pending=[(8, b"8"), (6, b"6")])
    events.append(b"10")
    assert numbers(events.begin()) == [6, 8, 10]


def test_a_restored_queue_with_a_number_below_its_events_is_refused() -> None:
    with pytest.raises(ValueError, match="at least that of the last pending event, 6, got 5"):
        EventQueue("c", "s", 1, number=5, target=HERE, pending=[(6, b"")])


def test_one_call_at_a_time() -> None:
    events = queue(b"a")
    events.begin()
    events.append(b"b")
    assert events.state is QueueState.SENDING
    with pytest.raises(RuntimeError, match="state READY only"):
        events.begin()


def test_a_call_has_a_bounded_number_of_events() -> None:
    events = queue(*[b""] * (MAX_NOTIFY_EVENTS + 1))
    assert len(events.begin().events) == MAX_NOTIFY_EVENTS


def test_a_call_has_a_bounded_size_with_handbacks_and_at_least_one_event() -> None:
    events = queue(b"x" * MAX_NOTIFY_BYTES, b"y")
    assert numbers(events.begin()) == [1]
    events = queue(b"x" * (MAX_NOTIFY_BYTES - 2), b"")
    assert numbers(events.begin()) == [1, 2]
    events = queue(b"x" * (MAX_NOTIFY_BYTES - 1), b"")
    assert numbers(events.begin()) == [1]


def test_retries_come_after_1_5_10_60_60_and_then_every_300_seconds() -> None:
    events, now, waits = queue(b"a"), 100.0, []
    for _ in range(8):
        events.failed(events.begin(), now, "down")
        assert events.due_at is not None
        waits.append(events.due_at - now)
        events.retry(now := events.due_at)
    assert waits == [1, 5, 10, 60, 60, 300, 300, 300]


def test_jitter_only_shortens_a_wait() -> None:
    events = queue(b"a")
    events.failed(events.begin(), 0.0, "down", 0.25)
    assert events.due_at == 0.75 * RETRIES_S[0]


def test_nothing_is_sent_before_the_wait_is_over_not_even_a_new_event() -> None:
    events = queue(b"a")
    events.failed(events.begin(), 0.0, "down")
    events.append(b"b")
    assert events.retry(0.999) == 0
    assert events.state is QueueState.WAITING
    events.retry(1.0)
    assert numbers(events.begin()) == [1, 2]


def test_a_success_begins_the_schedule_again() -> None:
    events = queue(b"a")
    for _ in range(3):
        events.failed(events.begin(), 0.0, "down")
        assert events.due_at is not None
        events.retry(events.due_at)
    assert events.last_error == "down"
    events.succeeded(events.begin())
    assert events.last_error == ""
    events.append(b"b")
    events.failed(events.begin(), 50.0, "down")
    assert events.due_at == 51.0


def fail_until(events: EventQueue, now: float, end: float) -> tuple[float, int]:
    """Let each call fail; return when the first events were dropped, and the last of these."""
    while now < end:
        if events.state is QueueState.READY:
            events.failed(events.begin(), now, "down")
        assert events.due_at is not None
        now = events.due_at
        if dropped := events.retry(now):
            return now, dropped
    return now, 0


def test_an_event_is_dropped_a_day_after_its_first_failure() -> None:
    events = queue(b"a")
    assert fail_until(events, 7.0, 2 * DAY_S) == (7.0 + GIVE_UP_S, 1)
    assert events.state is QueueState.IDLE
    events.append(b"b")
    attempt = events.begin()
    assert numbers(attempt) == [2]
    events.failed(attempt, 2 * DAY_S, "down")
    assert events.due_at == 2 * DAY_S + 1


def test_a_later_event_has_a_day_of_its_own() -> None:
    events = queue(b"a")
    now, _ = fail_until(events, 0.0, 40_000.0)
    events.append(b"b")
    assert fail_until(events, now, 2 * DAY_S) == (DAY_S, 1)
    dropped_at, dropped = fail_until(events, DAY_S, 2 * DAY_S)
    assert dropped == 2
    assert now + DAY_S <= dropped_at <= now + DAY_S + 300


def test_the_end_of_retries_is_a_parameter() -> None:
    events = queue(b"a", give_up_s=12)
    assert fail_until(events, 0.0, DAY_S) == (12.0, 1)


def test_a_replacing_listener_gets_undelivered_events_without_a_wait_with_its_handback() -> None:
    events = queue(b"a", b"b")
    events.failed(events.begin(), 0.0, "down")
    events.replace(THERE, b"mine")
    assert events.state is QueueState.READY
    attempt = events.begin()
    assert attempt.target == THERE
    assert [(each.number, each.handback) for each in attempt.events] == [(1, b"mine"), (2, b"mine")]


def test_a_replacing_listener_has_a_day_of_its_own() -> None:
    events = queue(b"a")
    fail_until(events, 0.0, DAY_S - 1000)
    events.replace(THERE, b"")
    assert fail_until(events, DAY_S - 10, 3 * DAY_S) == (2 * DAY_S - 10, 1)


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "rejected", "interrupted"])
def test_a_late_outcome_of_a_replaced_listener_does_not_touch_its_successor(outcome: str) -> None:
    events = queue(b"a")
    late = events.begin()
    events.replace(THERE, b"mine")
    for is_sending in (False, True):
        if is_sending:
            events.begin()
        before = (events.state, events.pending, events.target, events.due_at)
        if outcome == "failed":
            assert not events.failed(late, 0.0, "down")
        else:
            assert not getattr(events, outcome)(late)
        assert (events.state, events.pending, events.target, events.due_at) == before


def test_the_same_listener_set_again_replaces_itself() -> None:
    events = queue(b"a")
    late = events.begin()
    events.replace(HERE, b"h")
    assert not events.succeeded(late)
    assert events.pending == [1]


def test_clearing_drops_what_is_queued_and_is_idempotent() -> None:
    events = queue(b"a")
    late = events.begin()
    for _ in range(2):
        events.clear()
        assert (events.state, len(events), events.number) == (QueueState.NO_LISTENER, 0, 1)
    assert not events.succeeded(late)
    assert events.due_at is None


def test_a_rejection_clears_the_registration_and_keeps_the_number() -> None:
    events = queue(b"a", b"b")
    assert events.rejected(events.begin())
    assert (events.target, len(events), events.number) == (None, 0, 2)


def test_an_interrupted_call_is_made_again() -> None:
    events = queue(b"a")
    assert events.interrupted(events.begin())
    assert events.state is QueueState.READY


def test_changes_are_reported_to_the_sender() -> None:
    events, changes = queue(), []
    events.changed = lambda: changes.append(events.state)
    events.append(b"a")
    events.replace(THERE, b"")
    events.clear()
    events.append(b"b")  # counted only: there is nothing to do
    assert changes == [QueueState.READY, QueueState.READY, QueueState.NO_LISTENER]


def test_a_resync_takes_the_place_of_what_waits_and_shows_as_a_gap() -> None:
    events = queue(b"1", b"2", b"3", max_events=3)
    assert events.resync(b"again") == [1, 2, 3]
    assert events.pending == [4]
    assert events.begin().events[0].payload == b"again"


def test_a_resync_leaves_the_events_of_a_call_under_way() -> None:
    events = queue(b"1", b"2")
    attempt = events.begin()
    events.append(b"3")
    assert events.resync(b"again") == [3]
    assert events.pending == [1, 2, 4]
    assert events.succeeded(attempt)
    assert numbers(events.begin()) == [4]


def test_a_resync_can_leave_numbers_out() -> None:
    events = queue(b"1")
    events.resync(b"again", 100)
    events.append(b"next")
    assert events.pending == [102, 103]


def test_a_resync_waits_for_the_retry_of_a_listener_that_fails() -> None:
    events = queue(b"1")
    events.failed(events.begin(), 0.0, "no")
    events.resync(b"again")
    assert events.state is QueueState.WAITING
    events.retry(1.0)
    assert numbers(events.begin()) == [2]


def test_a_resync_without_a_listener_is_only_counted() -> None:
    events = queue(target=None)
    assert events.resync(b"again", 5) == []
    assert (events.number, len(events)) == (6, 0)
