"""Calls on renewal sets that fail, overlap, or meet an engine that does not answer."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold.basics.durations import NEVER
from leasehold.errors import ConnectionLost, LeaseholdError, NoSuchObject, TooBusy
from leasehold.events.state import EventTarget
from leasehold.renewal.state import Member
from tests.support.faulty_engine import Fault
from tests.support.renewal_stage import FAILURE, LOST, REFUSED, WARNING, Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def picture(stage: Stage, set_id: str) -> Any:
    """Return the state of a set that a client can see."""
    live = stage.service.find(set_id)
    members = stage.service.members_after(set_id, 0, 1000)
    return (
        [(each.reference, each.terms, each.order, round(each.end, 2)) for each in members],
        [(queue.number, queue.target, queue.handback) for queue in live.queues.values()],
        live.state.warning,
    )


CALLS: dict[str, Callable[[Stage, str], object]] = {
    "add": lambda stage, set_id: stage.add(set_id, stage.place.lease("new")),
    "add expired": lambda stage, set_id: stage.add(set_id, stage.place.lease("new"), remaining=0.0),
    "replace durations": lambda stage, set_id: stage.add(
        set_id, stage.place.lease("a"), 500.0, 5.0
    ),
    "drop": lambda stage, set_id: stage.add(set_id, stage.place.lease("a"), -1.0),
    "remove": lambda stage, set_id: stage.remove(set_id, stage.place.lease("a")),
    "listen": lambda stage, set_id: stage.listen(set_id, FAILURE, "other", b"other"),
    "listen for warnings": lambda stage, set_id: stage.listen(
        set_id, WARNING, "other", min_warning_s=7000.0
    ),
    "clear": lambda stage, set_id: stage.clear(set_id, FAILURE),
    "clear warnings": lambda stage, set_id: stage.clear(set_id, WARNING),
}


def prepared(stage: Stage) -> str:
    set_id = stage.create()
    stage.add(set_id, stage.place.lease("a", 1000.0), remaining=1000.0)
    stage.add(set_id, stage.place.lease("b", 1000.0), remaining=1000.0)
    stage.listen(set_id, FAILURE, "l", b"back")
    stage.listen(set_id, WARNING, "w", min_warning_s=10.0)
    stage.pass_time(1.0)
    return set_id


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_is_refused_by_the_engine_changes_nothing(
    stage: Stage, call: Callable[[Stage, str], object]
) -> None:
    set_id = prepared(stage)
    before, keys = picture(stage, set_id), stage.stored(set_id)
    stage.faulty.trouble_with("txn", 1, TooBusy("not now"))
    with pytest.raises(TooBusy):
        call(stage, set_id)
    assert picture(stage, set_id) == before
    assert stage.stored(set_id) == keys
    stage.pass_time(30.0)
    assert picture(stage, set_id) == before
    assert stage.inbox.attempts == []
    stage.crash()
    assert picture(stage, set_id) == before


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.STRAGGLES])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_did_not_reach_the_engine_changes_nothing(
    stage: Stage, call: Callable[[Stage, str], object], fault: Fault
) -> None:
    set_id = prepared(stage)
    before = picture(stage, set_id)
    stage.faulty.trouble_with("txn", 1, fault)
    with pytest.raises(ConnectionLost):
        call(stage, set_id)
    assert picture(stage, set_id)[1:] == before[1:]
    stage.pass_time(30.0)
    assert [each[:3] for each in picture(stage, set_id)[0]] == [each[:3] for each in before[0]]
    assert picture(stage, set_id)[1:] == before[1:]
    assert stage.inbox.attempts == []


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_without_an_answer_is_executed_as_a_whole(
    stage: Stage, call: Callable[[Stage, str], object]
) -> None:
    set_id = prepared(stage)
    stage.faulty.trouble_with("txn", 1, Fault.ANSWER_LOST)
    with pytest.raises(ConnectionLost):
        call(stage, set_id)
    stage.pass_time(1.0)
    after = picture(stage, set_id)
    with Stage() as other:
        other_id = prepared(other)
        call(other, other_id)
        other.pass_time(1.0)
        expected = picture(other, other_id)
    assert [each[:1] for each in after[0]] == [each[:1] for each in expected[0]]
    assert after[1:] == expected[1:]
    stage.crash()
    assert picture(stage, set_id)[1:] == after[1:]


def test_a_call_that_is_cancelled_takes_effect_as_a_whole_or_not_at_all(stage: Stage) -> None:
    set_id = prepared(stage)
    encoded = stage.place.lease("new").encode()
    stage.faulty.delay_s = 0.1

    async def cancelled() -> None:
        call = stage.service.renew_for(set_id, encoded, 30.0, 30.0, 100.0, 10.0)
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0.07)
        task.cancel()
        await asyncio.wait([task])

    stage.run(cancelled)
    stage.pass_time(10.0)
    is_member = "new" in stage.members(set_id)
    assert is_member == any(b"new" in row for row in stage.stored(set_id, b"/m/").values())
    stage.pass_time(30.0)
    assert bool(stage.place.times("new")) == is_member


def test_overlapping_calls_are_executed_one_after_the_other(stage: Stage) -> None:
    set_id = stage.create()
    stage.faulty.delay_s = 0.05
    encoded = stage.place.lease("a").encode()

    async def overlapping() -> list[Member | None]:
        service = stage.service
        calls: list[Any] = []
        for _ in range(10):
            calls.append(service.renew_for(set_id, encoded, 30.0, 30.0, 100.0, 10.0))
            calls.append(service.remove(set_id, encoded))
        return (await asyncio.gather(*calls))[1::2]

    removed = stage.run(overlapping)
    assert None not in removed
    assert stage.members(set_id) == []
    assert not stage.stored(set_id, b"/m/")


def test_a_lease_leaves_in_one_transaction_with_its_number_and_its_event(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = LOST
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = REFUSED
    is_stored: set[tuple[bool, bool, int]] = set()

    def look() -> bool:
        rows = stage.stored(set_id)
        registration = rows[b"/r/2"]
        is_stored.add(
            (
                any(suffix.startswith(b"/m/") for suffix in rows),
                any(suffix.startswith(b"/e/") for suffix in rows),
                1 if registration.startswith(b"\x08\x01") else 0,
            )
        )
        return stage.now > 29.0

    stage.sim.run_until(look, within=60.0)
    assert is_stored == {(True, False, 0), (False, True, 1)}


@pytest.mark.parametrize(
    "fault", [TooBusy("not now"), Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.STRAGGLES]
)
def test_a_failure_is_sent_once_if_the_engine_does_not_answer(
    stage: Stage, fault: Fault | BaseException
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    for name in "ab":
        stage.add(set_id, stage.place.lease(name))
    stage.place.error = REFUSED
    stage.faulty.trouble_with("txn", 1, fault)
    stage.pass_time(60.0)
    assert stage.members(set_id) == []
    assert sorted(stage.inbox.failed("l")) == ["a", "b"]
    assert stage.inbox.numbers("l") == [1, 2]
    stage.crash()
    assert stage.listen(set_id, FAILURE, "m") == 2


def test_failures_wait_until_the_engine_answers_again(stage: Stage) -> None:
    set_id, other = stage.create(), stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.add(other, stage.place.lease("kept"))
    stage.place.errors["a"] = REFUSED
    for number in range(1, 20):
        stage.faulty.trouble_with("txn", number, TooBusy("not now"))
    stage.pass_time(28.0)
    assert stage.members(set_id) == []
    assert stage.inbox.events("l") == []
    stage.pass_time(200.0)
    assert stage.inbox.failed("l") == ["a"]
    assert stage.place.is_alive("kept")


def test_departures_are_written_before_a_call(stage: Stage) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.add(set_id, stage.place.lease("a"))
    stage.place.error = REFUSED
    stage.faulty.trouble_with("txn", 1, TooBusy("not now"))
    stage.sim.run_until(lambda: not stage.members(set_id), within=60.0)
    stage.place.error = None
    stage.pass_time(0.01)
    assert stage.stored(set_id, b"/m/"), "the departure is not written yet"
    stage.add(set_id, stage.place.lease("a"))
    stage.pass_time(2.0)
    assert len(stage.stored(set_id, b"/m/")) == 1, "the departure did not delete the new member"
    stage.crash()
    stage.pass_time(60.0)
    assert stage.members(set_id) == ["a"]
    assert stage.inbox.failed("l") == ["a"]


def test_a_listener_that_is_removed_during_a_write_without_an_answer_reuses_no_number(
    stage: Stage,
) -> None:
    set_id = stage.create()
    stage.listen(set_id, FAILURE, "l")
    stage.inbox.errors["l"] = REFUSED
    stage.inbox.delays_s["l"] = 0.5
    stage.add(set_id, stage.place.lease("a"), remaining=0.0)
    stage.faulty.delay_s = 1.0
    stage.faulty.trouble_with("txn", 1, Fault.ANSWER_LOST)
    with pytest.raises(ConnectionLost):
        stage.add(set_id, stage.place.lease("b"), remaining=0.0)
    stage.faulty.delay_s = 0.0
    stage.pass_time(60.0)
    number = stage.service.find(set_id).queues[FAILURE].number
    assert number == 2
    stage.crash()
    assert stage.listen(set_id, FAILURE, "m") == 2


def test_a_set_that_ends_during_a_call_answers_no_such_object(stage: Stage) -> None:
    set_id = stage.create(10.0)
    stage.pass_time(9.5)
    stage.faulty.delay_s = 1.2
    with pytest.raises(LeaseholdError) as raised:
        stage.add(set_id, stage.place.lease("a"), remaining=5.0)
    assert isinstance(raised.value, NoSuchObject)
    stage.faulty.delay_s = 0.0
    stage.pass_time(60.0)
    assert stage.place.calls_made == []
    assert len(stage.service.renewals) == 0
    assert not stage.stored(set_id)


def test_a_set_that_ends_while_a_listener_is_set_sends_nothing(stage: Stage) -> None:
    set_id = stage.create(10.0)
    stage.pass_time(9.5)
    stage.faulty.delay_s = 1.2
    target = EventTarget("listener:1", "w")
    with pytest.raises(NoSuchObject):
        stage.run(stage.service.set_listener, set_id, WARNING, target, b"", NEVER)
    stage.faulty.delay_s = 0.0
    stage.pass_time(60.0)
    assert stage.inbox.attempts == []
