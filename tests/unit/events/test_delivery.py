"""`EventSender`: each rule of delivery, in virtual time, with listeners that a test controls."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from random import Random
from typing import Any

import pytest

from leasehold.errors import (
    CallFailed,
    CallRefused,
    ConnectFailed,
    Status,
    TooBusy,
    TooLarge,
    UnknownLease,
)
from leasehold.events import delivery
from leasehold.events.delivery import EventSender
from leasehold.events.listeners import event_message, event_of
from leasehold.events.state import EventQueue, EventTarget, QueueState, RemoteEvent
from leasehold.grpc.protocol import RpcError
from leasehold.testing import run_virtual

DAY_S = 86_400.0
STAGES: "list[Stage]" = []
"""Closed after each test."""


class NoJitter(Random):
    def random(self) -> float:
        return 0.0


class Stage:
    """A source and its listeners; `answers` says what each listener does with a call."""

    def __init__(self, **options: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.began_at = self.loop.time()
        self.answers: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        self.calls: list[tuple[float, str, list[int]]] = []
        self.handbacks: list[bytes] = []
        self.received: list[tuple[str, int]] = []
        self.cancelled: list[str] = []
        self.connecting_s = 0.0
        self.reports: list[tuple[str, str, Any]] = []
        self.storing: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.sender = EventSender(self, self, random=NoJitter(), **options)
        STAGES.append(self)

    def now(self) -> float:
        return round(self.loop.time() - self.began_at, 3)

    def queue(self, listener: str = "l", source: str = "s", **options: Any) -> EventQueue:
        queue = EventQueue("c/renewal", source, 1, target=EventTarget("", listener), **options)
        self.sender.offer(queue)
        return queue

    # EventTransport.

    async def send(
        self, target: EventTarget, events: Sequence[RemoteEvent], check: Callable[[], None]
    ) -> None:
        if self.connecting_s:
            await asyncio.sleep(self.connecting_s)
        check()
        self.calls.append((self.now(), target.id, [event.number for event in events]))
        self.handbacks += [event.handback for event in events]
        try:
            if target.id in self.answers:
                await self.answers[target.id]()
        except asyncio.CancelledError:
            self.cancelled.append(target.id)
            raise
        self.received += [(target.id, event.number) for event in events]

    # EventSource.

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        await self._store("delivered", queue, up_to)

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        await self._store("rejected", queue, type(error))

    async def expired(self, queue: EventQueue, up_to: int) -> None:
        await self._store("expired", queue, up_to)

    async def _store(self, what: str, queue: EventQueue, value: Any) -> None:
        if self.storing is not None:
            await self.storing()
        self.reports.append((what, queue.source, value))

    def times(self, listener: str = "l") -> list[float]:
        return [when for when, who, _ in self.calls if who == listener]


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


def failing(error: BaseException) -> Callable[[], Coroutine[Any, Any, None]]:
    async def fail() -> None:
        raise error

    return fail


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            await test(*args, **kwargs)
            while STAGES:
                await STAGES.pop().sender.close()

        run_virtual(main)

    return run


DOWN = failing(ConnectFailed("down"))


@virtual
async def test_events_of_one_registration_arrive_in_order() -> None:
    stage = Stage()
    queue = stage.queue()

    async def slowly() -> None:
        await asyncio.sleep(1)

    stage.answers["l"] = slowly
    for number in range(5):
        queue.append(b"%d" % number)
        await asyncio.sleep(0.4)
    await asyncio.sleep(10)
    assert stage.received == [("l", number) for number in range(1, 6)]
    assert stage.calls == [(0.0, "l", [1]), (1.0, "l", [2, 3]), (2.0, "l", [4, 5])]
    assert stage.reports == [("delivered", "s", 1), ("delivered", "s", 3), ("delivered", "s", 5)]


@virtual
async def test_events_that_a_queue_already_has_are_sent_when_it_is_offered() -> None:
    stage = Stage()
    stage.queue(number=7, pending=[(6, b"a"), (7, b"b")])
    await asyncio.sleep(0)
    assert stage.calls == [(0.0, "l", [6, 7])]


@virtual
async def test_a_failing_delivery_holds_back_only_its_own_registration() -> None:
    stage = Stage()
    stage.answers["bad"] = DOWN
    stage.answers["hanging"] = hang
    bad, hanging, good = (stage.queue(name, source=name) for name in ("bad", "hanging", "good"))
    for _ in range(3):
        for queue in (bad, hanging, good):
            queue.append(b"")
        await asyncio.sleep(0.1)
    assert stage.received == [("good", 1), ("good", 2), ("good", 3)]
    assert stage.times("good") == [0.0, 0.1, 0.2]


@virtual
async def test_two_registrations_with_the_same_listener_do_not_hold_back_each_other() -> None:
    stage = Stage()
    outcomes = [ConnectFailed("down"), None]

    async def first_fails() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    stage.answers["l"] = first_fails
    for source in ("s", "t"):
        stage.queue(source=source).append(b"")
    await asyncio.sleep(0.5)
    assert stage.reports == [("delivered", "t", 1)]


@virtual
async def test_an_indefinite_failure_is_retried_after_1_5_10_60_60_and_every_300_seconds() -> None:
    stage = Stage()
    stage.answers["l"] = DOWN
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1000)
    assert stage.times() == [0, 1, 6, 16, 76, 136, 436, 736]
    assert queue.last_error == "ConnectFailed: down"
    del stage.answers["l"]
    await asyncio.sleep(200)
    assert stage.times()[-1] == 1036
    assert stage.received == [("l", 1)]


@virtual
async def test_jitter_only_shortens_the_waits() -> None:
    stage = Stage()
    stage.sender = EventSender(stage, stage, random=Random(1))
    stage.answers["l"] = DOWN
    stage.queue().append(b"")
    await asyncio.sleep(100)
    waits = [
        after - before for before, after in zip(stage.times(), stage.times()[1:], strict=False)
    ]
    for wait, bound in zip(waits, (1, 5, 10, 60), strict=True):
        assert (1 - delivery.MAX_SHORTENED) * bound - 0.01 <= wait <= bound
    assert waits != [1, 5, 10, 60]


@virtual
async def test_retries_end_after_a_day_and_the_registration_stays() -> None:
    stage = Stage()
    stage.answers["l"] = DOWN
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(DAY_S - 1)
    assert len(queue) == 1
    await asyncio.sleep(2)
    assert stage.reports == [("expired", "s", 1)]
    calls = len(stage.calls)
    await asyncio.sleep(DAY_S)
    assert len(stage.calls) == calls
    assert stage.sender.events_expired == 1
    del stage.answers["l"]
    queue.append(b"")
    await asyncio.sleep(0)
    assert stage.received == [("l", 2)]


@virtual
async def test_an_overflow_shows_as_a_gap_in_the_numbers() -> None:
    stage = Stage()
    stage.answers["l"] = DOWN
    queue = stage.queue(max_events=2)
    for _ in range(4):
        queue.append(b"")
    del stage.answers["l"]
    await asyncio.sleep(1.5)
    queue.append(b"")
    await asyncio.sleep(0)
    assert stage.received == [("l", 1), ("l", 2), ("l", 5)]


@virtual
async def test_a_replacing_listener_gets_undelivered_events_immediately_with_its_handback() -> None:
    stage = Stage()
    stage.answers["l"] = DOWN
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(100)
    assert stage.times()[-1] == 76
    queue.replace(EventTarget("", "new"), b"mine")
    await asyncio.sleep(0)
    assert stage.received == [("new", 1)]
    assert stage.times("new") == [100]
    assert stage.handbacks[-1] == b"mine"
    await asyncio.sleep(1000)
    assert len(stage.calls) == 6


@virtual
async def test_a_replacing_listener_does_not_wait_for_a_hanging_one() -> None:
    stage = Stage()
    stage.answers["l"] = hang
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(3)
    queue.replace(EventTarget("", "new"), b"")
    await asyncio.sleep(0)
    await stage.sender.settled(queue)
    assert stage.cancelled == ["l"]
    assert stage.received == [("new", 1)]
    assert stage.now() == 3


@virtual
async def test_a_late_failure_of_a_replaced_listener_does_not_touch_its_successor() -> None:
    stage = Stage()

    async def fail_late() -> None:
        try:
            await hang()
        finally:
            await asyncio.sleep(5)
            raise CallRefused("unknown event")

    stage.answers["l"] = fail_late
    stage.answers["new"] = hang
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1)
    queue.replace(EventTarget("", "new"), b"")
    await asyncio.sleep(10)
    assert queue.state is QueueState.SENDING
    assert queue.target == EventTarget("", "new")
    assert not stage.reports
    assert stage.sender.open_calls == 1


@virtual
async def test_clearing_drops_what_is_queued_and_nothing_is_sent_after_it() -> None:
    stage = Stage()
    queue = stage.queue()
    queue.append(b"")
    queue.clear()  # before the call has begun
    await asyncio.sleep(400)
    assert not stage.calls
    queue.replace(EventTarget("", "l"), b"")
    stage.answers["l"] = DOWN
    queue.append(b"")
    await asyncio.sleep(3)
    queue.clear()  # while it waits for a retry
    calls = len(stage.calls)
    queue.append(b"")
    await asyncio.sleep(400)
    assert len(stage.calls) == calls
    assert queue.number == 3


@virtual
async def test_clearing_cancels_a_call_under_way() -> None:
    stage = Stage()
    stage.answers["l"] = hang
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1)
    queue.clear()
    await stage.sender.settled(queue)
    assert stage.cancelled == ["l"]
    assert not stage.reports
    await asyncio.sleep(1)
    assert stage.sender.open_calls == 0


@virtual
async def test_settled_waits_for_a_call_that_cannot_be_cancelled() -> None:
    stage = Stage()

    async def store() -> None:
        try:
            await hang()
        finally:
            await asyncio.sleep(5)

    stage.answers["l"] = store
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1)
    queue.clear()
    await stage.sender.settled(queue)
    assert stage.now() == 6


@pytest.mark.parametrize(
    "error",
    [
        CallRefused("unknown event"),
        UnknownLease("x"),
        TooLarge("too large"),
        RpcError(Status.NOT_FOUND, "unknown listener"),
        RpcError(Status.UNIMPLEMENTED, "not a listener"),
        RpcError(Status.PERMISSION_DENIED, "no"),
    ],
    ids=lambda error: type(error).__name__,
)
@virtual
async def test_unknown_event_and_a_definite_failure_clear_that_registration_only(
    error: Exception,
) -> None:
    stage = Stage()
    outcomes: list[Exception | None] = [error, None]

    async def first_fails() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    stage.answers["l"] = first_fails
    refused, other = stage.queue(source="s"), stage.queue(source="t")
    refused.append(b"")
    other.append(b"")
    await asyncio.sleep(400)
    assert stage.reports == [("rejected", "s", type(error)), ("delivered", "t", 1)]
    assert (refused.state, other.state) == (QueueState.NO_LISTENER, QueueState.IDLE)
    assert len(stage.calls) == 2
    assert refused.number == 1


@pytest.mark.parametrize(
    "error",
    [
        ConnectFailed("down"),
        CallFailed("INTERNAL"),
        TooBusy("mailbox full"),
        TimeoutError(),
        OSError("broken"),
        KeyError("a defect of the transport"),
        RpcError(Status.RESOURCE_EXHAUSTED, "mailbox full"),
        RpcError(Status.UNAVAILABLE, "no server has the shard"),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
@virtual
async def test_an_indefinite_failure_keeps_the_registration(error: BaseException) -> None:
    stage = Stage()
    stage.answers["l"] = failing(error)
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(0.5)
    assert queue.state is QueueState.WAITING
    assert queue.failures == 1
    del stage.answers["l"]
    await asyncio.sleep(0.5)
    assert stage.received == [("l", 1)]


@virtual
async def test_hanging_listeners_do_not_use_up_the_calls_of_others() -> None:
    stage = Stage(max_calls=4, slow_s=0.25)
    stage.answers["hanging"] = hang
    for number in range(8):
        stage.queue("hanging", source=f"h{number}").append(b"")
    good = stage.queue("good", source="good")
    good.append(b"")
    await asyncio.sleep(0.6)
    assert stage.times("hanging") == [0] * 4 + [0.25] * 4
    assert stage.times("good") == [0.5]
    for _ in range(3):
        good.append(b"")
        await asyncio.sleep(0.1)
    assert stage.times("good") == [0.5, 0.6, 0.7, 0.8]


@virtual
async def test_calls_under_way_are_bounded() -> None:
    stage = Stage(max_calls=2, max_open_calls=5)
    stage.answers["l"] = hang
    queues = [stage.queue(source=f"{number}") for number in range(9)]
    for queue in queues:
        queue.append(b"")
    await asyncio.sleep(100)
    assert len(stage.calls) == stage.sender.open_calls == 5
    queues[0].clear()
    await asyncio.sleep(0.1)
    assert len(stage.calls) == 6


@virtual
async def test_the_next_call_waits_until_the_outcome_is_stored() -> None:
    stage = Stage()
    stored = asyncio.Event()

    async def store() -> None:
        await stored.wait()

    stage.storing = store
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1)
    queue.append(b"")
    await asyncio.sleep(1)
    assert len(stage.calls) == 1
    stored.set()
    await asyncio.sleep(0.01)
    assert stage.received == [("l", 1), ("l", 2)]


@virtual
async def test_storing_an_outcome_is_not_cancelled_by_clearing() -> None:
    stage = Stage()

    async def store() -> None:
        await asyncio.sleep(2)

    stage.storing = store
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1)
    queue.clear()
    await stage.sender.settled(queue)
    assert stage.now() == 1  # the source may hold its lock here
    await asyncio.sleep(2)
    assert stage.reports == [("delivered", "s", 1)]


@virtual
async def test_a_source_that_cannot_store_an_outcome_stops_nothing() -> None:
    stage = Stage()

    async def store() -> None:
        raise OSError("disk")

    stage.storing = store
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1)
    queue.append(b"")
    await asyncio.sleep(1)
    assert stage.received == [("l", 1), ("l", 2)]


@virtual
async def test_a_withdrawn_queue_sends_nothing_more() -> None:
    stage = Stage()
    stage.answers["l"] = hang
    queue = stage.queue()
    queue.append(b"")
    await asyncio.sleep(1)
    stage.sender.withdraw(queue)
    stage.sender.withdraw(queue)
    queue.append(b"")
    await asyncio.sleep(400)
    assert stage.cancelled == ["l"]
    assert len(stage.calls) == 1
    assert queue.state is QueueState.READY
    del stage.answers["l"]
    stage.sender.offer(queue)
    await asyncio.sleep(0)
    assert stage.received == [("l", 1), ("l", 2)]


@virtual
async def test_nothing_is_sent_for_a_source_that_is_not_served_here_any_more() -> None:
    stage = Stage()
    is_served = False
    queue = stage.queue()
    queue.may_send = lambda: is_served
    queue.append(b"")
    await asyncio.sleep(0.5)
    assert stage.calls == []
    assert queue.last_error == "NotServed: s has ended, or is now served by another server"
    is_served = True
    stage.connecting_s = 2.0  # it may end while the connection is made
    await asyncio.sleep(1)
    is_served = False
    await asyncio.sleep(3)
    assert stage.calls == []
    is_served = True
    await asyncio.sleep(6)
    assert stage.received == [("l", 1)]


@virtual
async def test_close_cancels_calls_and_waits_for_reports() -> None:
    stage = Stage()

    async def store() -> None:
        await asyncio.sleep(2)

    stage.storing = store
    stage.answers["hanging"] = hang
    for name in ("hanging", "good"):
        stage.queue(name, source=name).append(b"")
    await asyncio.sleep(1)
    await stage.sender.close()
    assert stage.reports == [("delivered", "good", 1)]
    assert stage.cancelled == ["hanging"]
    stage.queue("good", source="later").append(b"")
    await asyncio.sleep(1)
    assert len(stage.calls) == 2


def test_an_event_is_the_same_after_its_way_over_the_wire() -> None:
    event = RemoteEvent("c/renewal", "s", 2, 3, b"h", b"p")
    assert event_of(event_message(event)) == event
