"""Listeners of renewal sets: replacement, clearing, numbers, and retries of delivery."""

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from leasehold.errors import CallRefused, NoSuchObject, TooBusy
from leasehold.events.state import EventTarget
from tests.support.renewal_stage import FAILURE, LOST, REFUSED, WARNING, Stage

DAY_S = 86_400.0


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def fail(stage: Stage, set_id: str, *names: str) -> None:
    """Add leases that have expired."""
    for name in names:
        stage.add(set_id, stage.place.lease(name), remaining=0.0)


# Numbers.


def test_numbers_start_at_one_and_rise_by_exactly_one(stage: Stage) -> None:
    set_id = stage.create()
    assert stage.listen(set_id, FAILURE, "l") == 0
    fail(stage, set_id, "a", "b", "c")
    stage.pass_time(1.0)
    assert stage.inbox.numbers("l") == [1, 2, 3]


def test_numbers_are_counted_for_each_set_and_kind(stage: Stage) -> None:
    one, two = stage.create(100.0), stage.create(100.0)
    for set_id, name in ((one, "one"), (two, "two")):
        stage.listen(set_id, FAILURE, name)
        stage.listen(set_id, WARNING, name + "-w", min_warning_s=1000.0)
    fail(stage, one, "a", "b")
    fail(stage, two, "c")
    stage.pass_time(1.0)
    assert stage.inbox.numbers("one") == [1, 2]
    assert stage.inbox.numbers("two") == [1]
    assert stage.inbox.numbers("one-w") == stage.inbox.numbers("two-w") == [1]


def test_events_are_counted_and_not_kept_without_a_listener(stage: Stage) -> None:
    set_id = stage.create()
    fail(stage, set_id, "a", "b")
    assert not stage.stored(set_id, b"/e/")
    assert stage.listen(set_id, FAILURE, "l") == 2
    fail(stage, set_id, "c")
    stage.pass_time(1.0)
    assert stage.inbox.numbers("l") == [3]
    assert stage.inbox.failed("l") == ["c"]


def test_events_without_a_listener_are_counted_across_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    fail(stage, set_id, "a", "b")
    stage.crash()
    assert stage.listen(set_id, FAILURE, "l") == 2


def test_numbers_go_on_across_listener_replacement(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    assert stage.listen(set_id, FAILURE, "m") == 1
    fail(stage, set_id, "b")
    stage.pass_time(1.0)
    stage.clear(set_id, FAILURE)
    fail(stage, set_id, "c")
    assert stage.listen(set_id, FAILURE, "n") == 3
    fail(stage, set_id, "d")
    stage.pass_time(1.0)
    assert [stage.inbox.numbers(name) for name in "lmn"] == [[1], [2], [4]]


def test_numbers_go_on_across_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    numbers = []
    for round_ in range(3):
        fail(stage, set_id, f"a{round_}", f"b{round_}")
        stage.pass_time(1.0)
        stage.crash()
        numbers = stage.inbox.numbers("l")
    assert numbers == [1, 2, 3, 4, 5, 6]


# Delivery.


def test_an_undelivered_event_is_sent_after_a_restart_with_the_same_number(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l", b"back")
    stage.inbox.errors["l"] = LOST
    fail(stage, set_id, "a", "b")
    stage.pass_time(3.0)
    stage.inbox.errors.clear()
    stage.crash()
    stage.pass_time(0.1)
    assert stage.inbox.numbers("l") == [1, 2]
    assert {event.handback for event in stage.inbox.events("l")} == {b"back"}
    stage.crash()
    stage.pass_time(10.0)
    assert stage.inbox.numbers("l") == [1, 2], "delivered events are deleted"
    assert not stage.stored(set_id, b"/e/")


def test_an_event_is_sent_again_after_a_crash_during_its_delivery(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.delays_s["l"] = 5.0
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    stage.crash()
    stage.pass_time(10.0)
    assert stage.inbox.numbers("l") == [1]


def test_indefinite_failures_are_retried_on_schedule(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = LOST
    fail(stage, set_id, "a")
    stage.pass_time(2000.0)
    tried = stage.inbox.tried("l")
    waits = [after - before for before, after in pairwise(tried)]
    expected = [1.0, 5.0, 10.0, 60.0, 60.0, 300.0, 300.0, 300.0]
    for wait, longest in zip(waits, expected, strict=False):
        assert 0.9 * longest <= wait <= longest + 0.01
    assert len(waits) >= 8
    stage.inbox.errors.clear()
    stage.pass_time(300.0)
    assert stage.inbox.numbers("l") == [1]


def test_retries_end_after_a_day(stage: Stage) -> None:
    set_id = stage.create(7200.0)
    stage.listen(set_id, FAILURE, "l")
    queue = stage.service.find(set_id).queues[FAILURE]
    assert queue.give_up_s == DAY_S
    queue.give_up_s = 1000.0  # a day takes too long, in a simulation, too
    stage.inbox.errors["l"] = LOST
    at = stage.now
    fail(stage, set_id, "a")
    stage.pass_time(1500.0)
    assert at + 700.0 <= stage.inbox.tried("l")[-1] <= at + 1001.0
    assert not stage.stored(set_id, b"/e/"), "the event was dropped"
    stage.inbox.errors.clear()
    fail(stage, set_id, "b")
    stage.pass_time(1.0)
    assert stage.inbox.numbers("l") == [2], "the gap shows the dropped event"


def test_retries_end_with_the_set(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = LOST
    fail(stage, set_id, "a")
    stage.pass_time(1000.0)
    assert stage.inbox.tried("l")[-1] < 100.0


def test_a_call_under_way_is_ended_with_the_set(stage: Stage) -> None:
    set_id = stage.create(10.0)
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.delays_s["l"] = 20.0
    fail(stage, set_id, "a")
    stage.pass_time(100.0)
    assert stage.inbox.events("l") == []


def test_a_failing_delivery_holds_back_only_its_own_registration(stage: Stage) -> None:
    one, two = stage.create(100.0), stage.create(100.0)
    stage.listen(one, FAILURE, "bad")
    stage.listen(one, WARNING, "w", min_warning_s=50.0)
    stage.listen(two, FAILURE, "good")
    stage.inbox.errors["bad"] = LOST
    fail(stage, one, "a")
    fail(stage, two, "b")
    stage.pass_time(60.0)
    assert stage.inbox.events("bad") == []
    assert stage.inbox.numbers("good") == [1]
    assert stage.inbox.times("w") == pytest.approx([50.0], abs=0.1)


def test_a_slow_listener_delays_neither_warnings_nor_renewals_nor_calls(stage: Stage) -> None:
    set_id = stage.create(100.0)
    stage.listen(set_id, FAILURE, "slow")
    stage.listen(set_id, WARNING, "w", min_warning_s=50.0)
    stage.inbox.delays_s["slow"] = 90.0
    stage.add(set_id, stage.place.lease("kept"))
    fail(stage, set_id, "a")
    before = stage.now
    stage.add(set_id, stage.place.lease("b"))
    assert stage.now - before < 0.1
    stage.pass_time(80.0)
    assert stage.inbox.times("w") == pytest.approx([50.0], abs=0.1)
    assert stage.place.is_alive("kept")
    assert stage.place.is_alive("b")


# Replacement.


def test_setting_a_listener_replaces_the_other_of_its_kind(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.listen(set_id, WARNING, "w", min_warning_s=1.0)
    stage.listen(set_id, FAILURE, "m")
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    assert stage.inbox.events("l") == []
    assert stage.inbox.numbers("m") == [1]
    assert stage.service.find(set_id).queues[WARNING].target == EventTarget("listener:1", "w")


def test_a_replacing_listener_gets_the_undelivered_events_immediately_with_its_handback(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l", b"old")
    stage.inbox.errors["l"] = LOST
    fail(stage, set_id, "a", "b")
    stage.pass_time(100.0)
    at = stage.now
    stage.listen(set_id, FAILURE, "m", b"new")
    stage.pass_time(0.1)
    assert stage.inbox.numbers("m") == [1, 2]
    assert stage.inbox.times("m") == pytest.approx([at, at], abs=0.05)
    assert {event.handback for event in stage.inbox.events("m")} == {b"new"}


def test_a_replacing_listener_gets_the_undelivered_events_after_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l", b"old")
    stage.inbox.errors["l"] = stage.inbox.errors["m"] = LOST
    fail(stage, set_id, "a")
    stage.listen(set_id, FAILURE, "m", b"new")
    stage.inbox.errors.clear()
    stage.crash()
    stage.pass_time(1.0)
    assert stage.inbox.events("l") == []
    assert [event.handback for event in stage.inbox.events("m")] == [b"new"]


@pytest.mark.parametrize("outcome", [LOST, CallRefused("unknown event"), None])
def test_a_late_outcome_of_a_replaced_listener_does_not_touch_its_successor(
    stage: Stage, outcome: BaseException | None
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.delays_s["l"] = 5.0
    if outcome is not None:
        stage.inbox.errors["l"] = outcome
    stage.inbox.errors["m"] = LOST
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    stage.listen(set_id, FAILURE, "m")
    stage.pass_time(10.0)
    assert stage.service.find(set_id).queues[FAILURE].target == EventTarget("listener:1", "m")
    stage.inbox.errors.clear()
    stage.pass_time(20.0)
    assert stage.inbox.numbers("m") == [1]


def test_the_same_listener_may_be_set_again(stage: Stage) -> None:
    set_id = stage.create()
    for handback in (b"1", b"2"):
        stage.listen(set_id, FAILURE, "l", handback)
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    assert [event.handback for event in stage.inbox.events("l")] == [b"2"]


# Clearing.


def test_clearing_drops_queued_events(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = LOST
    fail(stage, set_id, "a", "b")
    stage.clear(set_id, FAILURE)
    stage.inbox.errors.clear()
    assert not stage.stored(set_id, b"/e/")
    assert stage.listen(set_id, FAILURE, "m") == 2
    stage.pass_time(1000.0)
    assert stage.inbox.events("l") == stage.inbox.events("m") == []


def test_nothing_is_sent_after_clearing_has_returned(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.delays_s["l"] = 5.0
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    stage.clear(set_id, FAILURE)
    attempts = len(stage.inbox.attempts)
    stage.pass_time(1000.0)
    assert stage.inbox.events("l") == [], "the call under way was cancelled"
    assert len(stage.inbox.attempts) == attempts


@pytest.mark.parametrize("how", ["clear", "replace"])
def test_clearing_and_replacing_wait_for_a_call_that_cannot_be_stopped(
    stage: Stage, how: str
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.delays_s["l"] = 10.0
    stage.inbox.lingers_s["l"] = 2.0
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    if how == "clear":
        stage.clear(set_id, FAILURE)
    else:
        stage.listen(set_id, FAILURE, "m")
    returned_at = stage.now
    stage.pass_time(100.0)
    assert len(stage.inbox.times("l")) == 1
    assert stage.inbox.times("l")[0] <= returned_at


def test_a_call_that_cannot_be_stopped_does_not_delay_other_calls_on_the_set(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.delays_s["l"] = 10.0
    stage.inbox.lingers_s["l"] = 2.0
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    clearing = stage.host.start(lambda: stage.service.clear_listener(set_id, FAILURE))
    stage.pass_time(0.1)
    before = stage.now
    stage.add(set_id, stage.place.lease("b"))
    assert stage.now - before < 0.5
    assert not clearing.done()
    stage.pass_time(5.0)
    clearing.result()


def test_clearing_is_idempotent(stage: Stage) -> None:
    set_id = stage.create()
    stage.clear(set_id, FAILURE)
    stage.listen(set_id, FAILURE, "l")
    for _ in range(3):
        stage.clear(set_id, FAILURE)
    fail(stage, set_id, "a")
    stage.pass_time(10.0)
    assert stage.inbox.events("l") == []


def test_a_cleared_listener_stays_cleared_after_a_restart(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = LOST
    fail(stage, set_id, "a")
    stage.clear(set_id, FAILURE)
    stage.inbox.errors.clear()
    stage.crash()
    fail(stage, set_id, "b")
    stage.pass_time(10.0)
    assert stage.inbox.events("l") == []
    assert stage.listen(set_id, FAILURE, "m") == 2


def test_clearing_is_stored_even_if_the_removal_of_the_listener_was_not(stage: Stage) -> None:
    """The listener refuses, which clears it in memory; the engine refuses to store that."""
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = REFUSED
    stage.faulty.trouble_with("txn", 2, TooBusy("not now"))
    fail(stage, set_id, "a")
    stage.pass_time(1.0)
    assert stage.stored(set_id, b"/e/")
    stage.clear(set_id, FAILURE)
    stage.inbox.errors.clear()
    stage.crash()
    fail(stage, set_id, "b")
    stage.pass_time(10.0)
    assert stage.inbox.events("l") == []


@pytest.mark.parametrize("error", [REFUSED, CallRefused("no"), NoSuchObject("mailboxes", "l")])
def test_unknown_event_or_a_definite_failure_clears_that_one_registration_only(
    stage: Stage, error: BaseException
) -> None:
    one, two = stage.create(100.0), stage.create()
    stage.listen(one, FAILURE, "l")
    stage.listen(one, WARNING, "w", min_warning_s=50.0)
    stage.listen(two, FAILURE, "m")
    stage.inbox.errors["l"] = error
    fail(stage, one, "a")
    stage.pass_time(1.0)
    stage.inbox.errors.clear()
    fail(stage, one, "b")
    fail(stage, two, "c")
    stage.crash()
    stage.pass_time(60.0)
    assert len(stage.inbox.tried("l")) == 1
    assert not stage.stored(one, b"/e/")
    assert stage.inbox.numbers("m") == [1]
    assert stage.inbox.numbers("w") == [1]
    assert stage.listen(one, FAILURE, "n") == 2


def test_a_listener_that_is_set_while_another_one_is_being_removed_stays(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = REFUSED
    fail(stage, set_id, "a")
    stage.faulty.delay_s = 1.0

    async def both() -> None:
        service = stage.service
        async with service.find(set_id).record.lock:
            setting = asyncio.ensure_future(
                service.set_listener(set_id, FAILURE, EventTarget("listener:1", "m"), b"", 0.0)
            )
            await asyncio.sleep(5.0)
        await setting

    stage.run(both)
    stage.faulty.delay_s = 0.0
    fail(stage, set_id, "b")
    stage.pass_time(10.0)
    stage.crash()
    fail(stage, set_id, "c")
    stage.pass_time(10.0)
    numbers = stage.inbox.numbers("m")
    assert numbers[-2:] == [2, 3]
    assert numbers == sorted(set(numbers))
