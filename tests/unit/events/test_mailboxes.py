"""Mailboxes: each rule, in virtual time, on an engine in this process."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from random import Random
from typing import Any

import pytest

from leasehold.engine.interface import Engine, prefix_end
from leasehold.errors import ConnectionLost, NoSuchObject, ShardLost, TooBusy, TooLarge
from leasehold.events.delivery import EventSender
from leasehold.events.listeners import ListenerCalls
from leasehold.events.mailboxes import MAX_DELIVERY_BYTES, MailboxLimits, MailboxService
from leasehold.events.state import MAX_NOTIFY_EVENTS, EventQueue, EventTarget, RemoteEvent
from leasehold.leases.policies import DurationPolicy
from leasehold.services.shards import LocalShards
from tests.support.faulty_engine import Fault, FaultyEngine, World, play


def event(number: int, payload: bytes = b"", source: str = "s") -> RemoteEvent:
    return RemoteEvent("c/renewal", source, 2, number, b"h", payload)


def events(first: int, last: int, **options: Any) -> list[RemoteEvent]:
    return [event(number, **options) for number in range(first, last + 1)]


class Office:
    """A server of mailboxes, which can be restarted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.engine: Engine = world.engine
        self._open: list[tuple[MailboxService, LocalShards]] = []

    async def start(self, limits: MailboxLimits | None = None) -> MailboxService:
        shards = LocalShards(self.engine, random=Random(1))
        service = MailboxService(
            self.engine,
            shards,
            DurationPolicy(7200.0, 3600.0),
            limits=limits,
            clock=self.world.host.clock,
            random=self.world.random,
        )
        self._open.append((service, shards))
        await shards.start([service.records])
        return service

    async def stop(self) -> None:
        while self._open:
            service, shards = self._open.pop()
            await shards.close()
            await service.records.close()


def scene(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main(world: World) -> None:
            office = Office(world)
            await test(office, *args, **kwargs)
            await office.stop()
            for lease in await world.engine.leases():
                await world.engine.revoke(lease.id)
            await world.engine.delete(b"leasehold/", prefix_end(b"leasehold/"))

        play(main)

    # Else pytest would look for a fixture `office`.
    del run.__wrapped__
    return run


def positions(mails: Any) -> list[int]:
    return [mail.position for mail in mails]


def numbers(mails: Any) -> list[int]:
    return [mail.event.number for mail in mails]


@scene
async def test_events_are_read_in_the_order_of_arrival_with_their_positions(office: Office) -> None:
    service = await office.start()
    mailbox, granted = await service.create(60.0)
    assert granted == 60.0
    await service.deliver(mailbox, events(5, 6, source="b"))
    await service.deliver(mailbox, events(1, 1, source="a"))
    found = await service.read(mailbox)
    assert [(mail.position, mail.event.source, mail.event.number) for mail in found] == [
        (1, "b", 5),
        (2, "b", 6),
        (3, "a", 1),
    ]
    assert found[2].event == event(1, source="a")


@scene
async def test_reading_drops_nothing_and_acknowledging_drops_up_to_a_position(
    office: Office,
) -> None:
    service = await office.start()
    mailbox, _ = await service.create(60.0)
    await service.deliver(mailbox, events(1, 4))
    for _ in range(2):
        assert positions(await service.read(mailbox)) == [1, 2, 3, 4]
    assert positions(await service.read(mailbox, 2)) == [3, 4]
    assert positions(await service.read(mailbox, 2, 1)) == [3]
    for _ in range(2):
        await service.acknowledge(mailbox, 3)
        assert positions(await service.read(mailbox)) == [4]


@scene
async def test_acknowledging_beyond_the_last_position_drops_no_later_event(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(60.0)
    await service.deliver(mailbox, events(1, 2))
    await service.acknowledge(mailbox, 1000)
    await office.stop()
    service = await office.start()
    await service.deliver(mailbox, events(3, 3))
    assert positions(await service.read(mailbox)) == [3]


@scene
async def test_positions_are_never_reused_even_if_everything_was_acknowledged(
    office: Office,
) -> None:
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    await service.deliver(mailbox, events(1, 3))
    await service.acknowledge(mailbox, 3)
    await office.stop()
    service = await office.start()
    await service.deliver(mailbox, events(4, 4))
    assert positions(await service.read(mailbox)) == [4]


@scene
async def test_a_restart_keeps_everything(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    await service.deliver(mailbox, events(1, 100, payload=b"p"))
    await service.acknowledge(mailbox, 40)
    before = await service.read(mailbox)
    size_bytes = service.records.find(mailbox).state.bytes
    await office.stop()
    service = await office.start()
    assert await service.read(mailbox) == before
    assert service.records.find(mailbox).state.bytes == size_bytes
    await service.deliver(mailbox, events(100, 101))  # the first of them is a repetition
    assert positions(await service.read(mailbox, 99)) == [100, 101]


@scene
async def test_a_repeated_delivery_is_not_stored_twice(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(60.0)
    await service.deliver(mailbox, events(1, 2))
    await service.deliver(mailbox, events(1, 3))
    await service.deliver(mailbox, [event(4), event(4)])
    assert numbers(await service.read(mailbox)) == [1, 2, 3, 4]
    await service.deliver(mailbox, events(1, 1, source="other"))
    assert numbers(await service.read(mailbox)) == [1, 2, 3, 4, 1]


@scene
async def test_a_delivery_whose_answer_was_lost_is_not_stored_twice(office: Office) -> None:
    faulty = FaultyEngine(office.world.engine)
    office.engine = faulty
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    for fault, stored in ((Fault.ANSWER_LOST, 1), (Fault.REQUEST_LOST, 0)):
        count = len(await service.read(mailbox))
        faulty.trouble_with("txn", 1, fault)
        with pytest.raises(ConnectionLost):
            await service.deliver(mailbox, [event(count + 1)])
        assert len(await service.read(mailbox)) == count + stored
        await service.deliver(mailbox, [event(count + 1)])
        assert len(await service.read(mailbox)) == count + 1
    assert positions(await service.read(mailbox)) == [1, 2]
    await office.stop()
    await faulty.close()
    office.engine = office.world.engine


@scene
async def test_a_full_mailbox_refuses_and_the_sender_keeps_the_events(office: Office) -> None:
    service = await office.start(MailboxLimits(events=3))
    mailbox, _ = await service.create(600.0)
    await service.deliver(mailbox, events(1, 2))
    with pytest.raises(TooBusy, match=r"is full: it has 2 of 3 events"):
        await service.deliver(mailbox, events(3, 4))
    assert numbers(await service.read(mailbox)) == [1, 2]
    await service.deliver(mailbox, events(3, 3))
    with pytest.raises(TooBusy):
        await service.deliver(mailbox, events(4, 4))
    await service.deliver(mailbox, events(2, 3))  # a repetition needs no room
    await service.acknowledge(mailbox, 1)
    await service.deliver(mailbox, events(4, 4))
    assert numbers(await service.read(mailbox)) == [2, 3, 4]


@scene
async def test_the_size_of_a_mailbox_is_limited_too(office: Office) -> None:
    service = await office.start(MailboxLimits(bytes=1_000))
    mailbox, _ = await service.create(600.0)
    await service.deliver(mailbox, [event(1, b"x" * 600)])
    with pytest.raises(TooBusy, match=r"of 1,000 bytes; acknowledge events"):
        await service.deliver(mailbox, [event(2, b"x" * 600)])
    await service.acknowledge(mailbox, 1)
    await service.deliver(mailbox, [event(2, b"x" * 600)])


@scene
async def test_an_empty_mailbox_accepts_any_delivery(office: Office) -> None:
    service = await office.start(MailboxLimits(events=3, bytes=10))
    mailbox, _ = await service.create(600.0)
    await service.deliver(mailbox, events(1, 5))
    assert len(await service.read(mailbox)) == 5


@scene
async def test_a_delivery_is_limited_to_one_transaction(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    with pytest.raises(TooLarge, match="at most 100 events, got 101"):
        await service.deliver(mailbox, events(1, MAX_NOTIFY_EVENTS + 1))
    with pytest.raises(TooLarge, match="at most 1,048,576 bytes"):
        await service.deliver(mailbox, [event(1, b"x" * MAX_DELIVERY_BYTES)])
    before = office.world.engine._store.revision
    await service.deliver(mailbox, events(1, MAX_NOTIFY_EVENTS))
    assert office.world.engine._store.revision == before + 1


@scene
async def test_an_ended_mailbox_is_unknown(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(10.0)
    cancelled, _ = await service.create(60.0)
    await service.deliver(mailbox, events(1, 1))
    await service.records.cancel(cancelled)
    await asyncio.sleep(10.5)
    for ended in (mailbox, cancelled, "0" * 32, "nonsense", ""):
        with pytest.raises(NoSuchObject):
            await service.deliver(ended, events(2, 2))
        with pytest.raises(NoSuchObject):
            await service.read(ended)
        with pytest.raises(NoSuchObject):
            await service.acknowledge(ended, 1)
    await asyncio.sleep(5)
    prefix = b"leasehold/mailboxes/"
    assert (await office.world.engine.range(prefix, prefix_end(prefix))).total == 0


@scene
async def test_a_reader_waits_for_an_event(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    reading = [asyncio.ensure_future(service.read(mailbox, wait_s=20.0)) for _ in range(2)]
    await asyncio.sleep(5)
    assert service.waiting_readers == 2
    await service.deliver(mailbox, events(1, 1))
    for each in reading:
        assert numbers(await each) == [1]
    assert loop.time() - began_at < 6
    assert service.waiting_readers == 0


@scene
async def test_a_reader_that_waits_in_vain_gets_an_empty_answer(office: Office) -> None:
    service = await office.start(MailboxLimits(wait_s=30.0))
    mailbox, _ = await service.create(600.0)
    loop = asyncio.get_running_loop()
    for wait_s, waited_s in ((0.0, 0.0), (7.0, 7.0), (1e9, 30.0)):
        began_at = loop.time()
        assert await service.read(mailbox, wait_s=wait_s) == []
        assert loop.time() - began_at == pytest.approx(waited_s, abs=0.1)


@scene
async def test_a_reader_of_a_mailbox_that_ends_is_answered_then(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(10.0)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    with pytest.raises(NoSuchObject):
        await service.read(mailbox, wait_s=60.0)
    assert loop.time() - began_at == pytest.approx(10.0, abs=0.5)


@scene
async def test_a_reader_of_a_server_that_stops_may_retry(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    reading = asyncio.ensure_future(service.read(mailbox, wait_s=60.0))
    await asyncio.sleep(1)
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    await office.stop()
    with pytest.raises(ShardLost):
        await reading
    assert loop.time() - began_at < 5.0


@scene
async def test_waiting_readers_are_limited_for_each_mailbox_and_for_the_server(
    office: Office,
) -> None:
    service = await office.start(MailboxLimits(readers=2, all_readers=3))
    first, _ = await service.create(600.0)
    second, _ = await service.create(600.0)
    reading = [asyncio.ensure_future(service.read(first, wait_s=50.0)) for _ in range(2)]
    await asyncio.sleep(0.1)
    with pytest.raises(TooBusy, match="has 2 waiting calls already"):
        await service.read(first, wait_s=1.0)
    assert await service.read(first) == []
    reading.append(asyncio.ensure_future(service.read(second, wait_s=50.0)))
    await asyncio.sleep(0.1)
    with pytest.raises(TooBusy, match="mailboxes of this server have 3 waiting calls already"):
        await service.read(second, wait_s=1.0)
    reading[0].cancel()
    await asyncio.sleep(0.1)
    assert service.waiting_readers == 2
    assert await service.read(second, wait_s=1.0) == []
    for each in reading[1:]:
        assert await each == []


@scene
async def test_an_answer_is_limited_in_number_and_size(office: Office) -> None:
    service = await office.start(MailboxLimits(read_events=3, read_bytes=2_000))
    mailbox, _ = await service.create(600.0)
    await service.deliver(mailbox, events(1, 5))
    assert positions(await service.read(mailbox)) == [1, 2, 3]
    assert positions(await service.read(mailbox, limit=100)) == [1, 2, 3]
    await service.deliver(mailbox, [event(6, b"x" * 3_000), event(7)])
    assert positions(await service.read(mailbox, 4)) == [5]
    assert positions(await service.read(mailbox, 5)) == [6]
    assert positions(await service.read(mailbox, 6)) == [7]


@scene
async def test_the_number_of_mailboxes_is_limited(office: Office) -> None:
    service = await office.start(MailboxLimits(mailboxes=2))
    for _ in range(2):
        await service.create(60.0)
    with pytest.raises(TooBusy, match="2 objects, the maximum"):
        await service.create(60.0)


@scene
async def test_bad_arguments_are_refused(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    with pytest.raises(ValueError, match="must not be negative, got -1, 0 and 0"):
        await service.read(mailbox, -1)
    with pytest.raises(ValueError, match="must not be negative"):
        await service.read(mailbox, 0, 0, -1.0)
    with pytest.raises(ValueError, match="position must not be negative, got -1"):
        await service.acknowledge(mailbox, -1)


@scene
async def test_a_cancelled_delivery_is_finished_first(office: Office) -> None:
    service = await office.start()
    mailbox, _ = await service.create(600.0)
    delivering = asyncio.ensure_future(service.deliver(mailbox, events(1, 1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    delivering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delivering
    assert numbers(await service.read(mailbox)) == [1]


class Reports:
    """A source that stores nothing."""

    def __init__(self) -> None:
        self.rejections: list[BaseException] = []

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        pass

    async def expired(self, queue: EventQueue, up_to: int) -> None:
        pass

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        self.rejections.append(error)


@scene
async def test_events_wait_at_the_sender_while_the_mailbox_is_full(office: Office) -> None:
    service = await office.start(MailboxLimits(events=2))
    mailbox, _ = await service.create(7200.0)
    reports = Reports()
    sender = EventSender(reports, ListenerCalls(service.deliver), random=Random(1))
    queue = EventQueue("c/renewal", "s", 2, target=EventTarget("", mailbox))
    sender.offer(queue)
    for _ in range(3):
        queue.append(b"")
        await asyncio.sleep(0.1)
    assert numbers(await service.read(mailbox)) == [1, 2]
    assert queue.last_error.startswith("TooBusy: mailbox")
    await service.acknowledge(mailbox, 1)
    await asyncio.sleep(1)
    assert numbers(await service.read(mailbox)) == [2, 3]
    await service.records.cancel(mailbox)
    queue.append(b"")
    await asyncio.sleep(1)
    assert queue.target is None
    assert [type(error) for error in reports.rejections] == [NoSuchObject]
    await sender.close()
