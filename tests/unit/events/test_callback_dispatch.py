"""`Callbacks` and `Mailbox.events`: events for the functions of a client, in virtual time."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from functools import wraps
from random import Random
from typing import Any

import pytest

from leasehold import DurationPolicy, Landlord
from leasehold.basics.durations import seconds_of
from leasehold.errors import Closed, ConnectionLost, NoSuchObject
from leasehold.events import callback_dispatch
from leasehold.events.callback_dispatch import MAILBOX_S, Callbacks, Key, key_of
from leasehold.events.client import Mailbox, ReceivedEvent
from leasehold.events.state import EventTarget, RemoteEvent
from leasehold.testing import current_host, run_virtual


class FakeMailbox(Mailbox):
    """A mailbox in this process."""

    def __init__(self, lease: Any) -> None:
        self.id = "m"
        self.lease = lease
        self._random = Random(1)
        self.kept: list[ReceivedEvent] = []
        self.last = 0
        self.acknowledged: list[int] = []
        self.failures: list[Exception] = []
        self._arrived = asyncio.Event()
        self.reads = 0
        self.is_ended = False

    def put(self, *events: RemoteEvent) -> None:
        for event in events:
            self.last += 1
            self.kept.append(ReceivedEvent(self.last, event))
        self._arrived.set()

    def end(self) -> None:
        self.is_ended = True
        self._arrived.set()

    def _check(self) -> None:
        if self.is_ended:
            raise NoSuchObject("mailboxes", self.id)
        if self.failures:
            raise self.failures.pop(0)

    async def read(self, after: int = 0, limit: int = 0, wait: float = 0.0) -> list[ReceivedEvent]:
        self.reads += 1
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            self._check()
            found = [each for each in self.kept if each.position > after][: limit or None]
            left_s = deadline - asyncio.get_running_loop().time()
            if found or left_s <= 0:
                return found
            self._arrived.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._arrived.wait()
            except TimeoutError:
                return []

    async def acknowledge(self, position: int) -> None:
        self._check()
        self.acknowledged.append(position)
        self.kept = [each for each in self.kept if each.position > position]


def event(number: int, source: str = "s") -> RemoteEvent:
    return RemoteEvent("c/renewal", source, 1, number, b"", b"")


KEY: Key = ("c/renewal", "s", 1)
OTHER: Key = ("c/renewal", "t", 1)


class Stage:
    """The callbacks of a client, and its mailboxes."""

    def __init__(self) -> None:
        clock = current_host().clock
        self.landlord: Landlord[Any] = Landlord(
            DurationPolicy(maximum=MAILBOX_S, default=MAILBOX_S), clock=clock
        )
        self.mailboxes: list[FakeMailbox] = []
        self.got: list[tuple[str, int]] = []
        self.callbacks = Callbacks(self._open, clock=clock, random=Random(1))

    async def _open(self, duration: float) -> Mailbox:
        lease = self.landlord.grant("mailbox", duration)
        self.mailboxes.append(FakeMailbox(lease))
        return self.mailboxes[-1]

    @property
    def mailbox(self) -> FakeMailbox:
        return self.mailboxes[-1]

    def note(self, event: RemoteEvent) -> None:
        self.got.append((event.source, event.number))


@contextmanager
def messages_logged() -> Iterator[list[str]]:
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    callback_dispatch.logger.addHandler(handler)
    try:
        yield logged
    finally:
        callback_dispatch.logger.removeHandler(handler)


def virtual(test: Callable[[Stage], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def main() -> None:
            stage = Stage()
            await test(stage)
            await stage.callbacks.close()
            stage.landlord.close()

        run_virtual(main)

    del run.__wrapped__
    return run


@virtual
async def test_one_mailbox_is_made_when_the_first_callback_is_registered(stage: Stage) -> None:
    assert stage.mailboxes == []
    targets = await asyncio.gather(*(stage.callbacks.target() for _ in range(3)))
    assert targets == [EventTarget("", "m")] * 3
    assert len(stage.mailboxes) == 1


@virtual
async def test_a_callback_gets_the_events_of_its_registration(stage: Stage) -> None:
    await stage.callbacks.target()
    stage.callbacks.set(KEY, stage.note)
    stage.mailbox.put(event(1), event(2, "t"), event(3))
    await asyncio.sleep(1)
    assert stage.got == [("s", 1), ("s", 3)]
    assert stage.mailbox.kept == []  # those of others were acknowledged, too
    assert key_of(event(1)) == KEY


@virtual
async def test_the_lease_of_the_mailbox_is_kept_renewed(stage: Stage) -> None:
    await stage.callbacks.target()
    await asyncio.sleep(10 * MAILBOX_S)
    assert seconds_of(stage.mailbox.lease.remaining) > 0
    assert stage.mailbox.reads < 30  # it waits in long calls


@virtual
async def test_a_callback_that_raises_is_logged_and_stops_nothing(stage: Stage) -> None:
    await stage.callbacks.target()

    def fail(event: RemoteEvent) -> None:
        stage.note(event)
        raise KeyError("of the program")

    with messages_logged() as logged:
        stage.callbacks.set(KEY, fail)
        stage.mailbox.put(event(1), event(2))
        await asyncio.sleep(1)
    assert stage.got == [("s", 1), ("s", 2)]
    assert stage.mailbox.kept == []
    assert logged[0].startswith("the callback for event 1 of")


@virtual
async def test_an_event_is_acknowledged_after_its_callback_has_returned(stage: Stage) -> None:
    await stage.callbacks.target()

    async def slowly(event: RemoteEvent) -> None:
        await asyncio.sleep(5)
        stage.note(event)

    stage.callbacks.set(KEY, slowly)
    stage.mailbox.put(event(1), event(2))
    await asyncio.sleep(4.5)
    assert stage.mailbox.acknowledged == []
    await asyncio.sleep(1)
    assert stage.mailbox.acknowledged == [1]
    await asyncio.sleep(5)
    assert stage.mailbox.acknowledged == [1, 2]


@virtual
async def test_a_slow_callback_delays_only_its_own_registration(stage: Stage) -> None:
    await stage.callbacks.target()

    async def hang(_event: RemoteEvent) -> None:
        await asyncio.get_running_loop().create_future()

    stage.callbacks.set(KEY, hang)
    stage.callbacks.set(OTHER, stage.note)
    for number in range(1, 4):
        stage.mailbox.put(event(number), event(number, "t"))
        await asyncio.sleep(1)
    assert stage.got == [("t", 1), ("t", 2), ("t", 3)]
    assert len(stage.mailbox.kept) == 6  # the first of them is not processed


@virtual
async def test_events_that_wait_for_callbacks_are_bounded(stage: Stage) -> None:
    await stage.callbacks.target()
    going = asyncio.Event()

    async def wait(event: RemoteEvent) -> None:
        await going.wait()
        stage.note(event)

    stage.callbacks.set(KEY, wait)
    stage.mailbox.put(*(event(number) for number in range(1, 2_501)))
    await asyncio.sleep(1)
    assert len(stage.callbacks._open) == callback_dispatch.MAX_OPEN
    going.set()
    await asyncio.sleep(1)
    assert stage.got == [("s", number) for number in range(1, 2_501)]
    assert stage.mailbox.kept == []


@virtual
async def test_events_before_the_callback_is_set_are_kept_while_it_is_registered(
    stage: Stage,
) -> None:
    await stage.callbacks.target()
    with stage.callbacks.registering():
        stage.mailbox.put(event(1), event(1, "t"), event(2))
        await asyncio.sleep(1)
        assert stage.mailbox.acknowledged == []
        with stage.callbacks.registering():
            stage.callbacks.set(KEY, stage.note)
            stage.mailbox.put(event(3))
            await asyncio.sleep(1)
        assert stage.got == [("s", 1), ("s", 2), ("s", 3)]
        assert stage.mailbox.acknowledged[-1:] == [1]
    await asyncio.sleep(1)
    assert stage.mailbox.kept == []
    assert stage.got == [("s", 1), ("s", 2), ("s", 3)]


@virtual
async def test_a_cleared_callback_is_not_called(stage: Stage) -> None:
    await stage.callbacks.target()
    stage.callbacks.set(KEY, stage.note)
    stage.callbacks.clear(KEY)
    stage.callbacks.clear(KEY)
    stage.mailbox.put(event(1))
    await asyncio.sleep(1)
    assert stage.got == []
    assert stage.mailbox.kept == []


@virtual
async def test_a_failed_call_is_made_again(stage: Stage) -> None:
    await stage.callbacks.target()
    stage.callbacks.set(KEY, stage.note)
    stage.mailbox.failures = [ConnectionLost("x"), OSError("y")]
    stage.mailbox.put(event(1))
    await asyncio.sleep(60)
    assert stage.got == [("s", 1)]
    assert stage.mailbox.kept == []


@virtual
async def test_a_mailbox_that_has_ended_is_reported_and_another_one_is_made(stage: Stage) -> None:
    await stage.callbacks.target()
    stage.callbacks.set(KEY, stage.note)
    stage.mailbox.put(event(1))
    await asyncio.sleep(1)
    with messages_logged() as logged:
        stage.mailbox.end()
        await asyncio.sleep(1)
    assert ["has ended, so 1 callbacks receive no more events" in each for each in logged] == [True]
    await stage.callbacks.target()
    stage.callbacks.set(KEY, stage.note)
    assert len(stage.mailboxes) == 2
    stage.mailbox.put(event(2))
    await asyncio.sleep(1)
    assert stage.got == [("s", 1), ("s", 2)]


@virtual
async def test_closing_ends_the_mailbox_and_cancels_callbacks(stage: Stage) -> None:
    await stage.callbacks.target()

    async def hang(_event: RemoteEvent) -> None:
        await asyncio.get_running_loop().create_future()

    stage.callbacks.set(KEY, hang)
    stage.mailbox.put(event(1))
    await asyncio.sleep(1)
    await stage.callbacks.close()
    assert stage.mailbox.lease.remaining == 0
    assert len(stage.mailbox.kept) == 1
    with pytest.raises(Closed):
        await stage.callbacks.target()


# The iterator of a mailbox.


@virtual
async def test_iterating_acknowledges_what_was_processed(stage: Stage) -> None:
    await stage._open(60)
    mailbox = stage.mailbox
    mailbox.put(*(event(number) for number in range(1, 4)))
    mailbox.failures = [ConnectionLost("x")]
    async with aclosing(mailbox.events()) as events:
        async for each in events:
            stage.note(each)
            if each.number == 2:
                break
    assert stage.got == [("s", 1), ("s", 2)]
    assert mailbox.acknowledged == [1]  # the second was not known to be processed
    async with aclosing(mailbox.events()) as events:
        assert (await anext(events)).number == 2
        assert (await anext(events)).number == 3
        reading = asyncio.ensure_future(anext(events))
        await asyncio.sleep(100)
        assert mailbox.kept == []
        mailbox.put(event(4))
        assert (await reading).number == 4
        mailbox.end()
        with pytest.raises(NoSuchObject):
            await anext(events)
