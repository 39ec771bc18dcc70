"""Events on real sockets: listeners that are served, and mailboxes of two servers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from leasehold import DurationPolicy, open_engine
from leasehold.engine.interface import Engine
from leasehold.errors import (
    CallRefused,
    ConnectFailed,
    NoSuchObject,
    ShardLost,
    TooBusy,
    TooLarge,
)
from leasehold.events.callback_dispatch import Callbacks
from leasehold.events.client import Mailbox, call_mailboxes, serve_listener
from leasehold.events.delivery import EventSender
from leasehold.events.listeners import ListenerCalls
from leasehold.events.mailboxes import MailboxLimits, MailboxService
from leasehold.events.rpc import MAX_LISTED, MailboxRpc
from leasehold.events.state import EventQueue, EventTarget, QueueState, RemoteEvent
from leasehold.grpc.call_context import CallContext
from leasehold.grpc.channel import Channel
from leasehold.grpc.routes import Method
from leasehold.landlord.batch_messages import Outcomes
from leasehold.leases.lease_codec import name_from_bytes
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.forwarding import Forwarder, methods_of
from leasehold.services.shards import LocalShards, Shards
from leasehold.serving.grpc_server import GrpcServer
from leasehold.wire import events_pb2 as pb
from leasehold.wire import leases_pb2
from tests.support.asynchronous import asynchronous, until
from tests.support.servers import free_port


class Reports:
    """A source that stores nothing, and writes down what it is told."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, Any]] = []

    async def delivered(self, queue: EventQueue, up_to: int) -> None:
        self.notes.append(("delivered", queue.source, up_to))

    async def expired(self, queue: EventQueue, up_to: int) -> None:
        self.notes.append(("expired", queue.source, up_to))

    async def rejected(self, queue: EventQueue, error: BaseException) -> None:
        self.notes.append(("rejected", queue.source, type(error)))


async def _no_mailboxes(mailbox: str, events: object) -> None:
    raise AssertionError(mailbox, events)


@dataclass
class Source:
    """A source of events with its sender."""

    sender: EventSender
    reports: Reports

    def queue(self, target: EventTarget, source: str = "s") -> EventQueue:
        queue = EventQueue("c/renewal", source, 1, target=target, handback=b"h")
        self.sender.offer(queue)
        return queue


ANSWER_S = 30.0
"""How long a call to a listener may take: an event is sent again if a starved one takes longer."""


@asynccontextmanager
async def sending(
    deliver: Callable[..., Any] = _no_mailboxes, timeout_s: float = ANSWER_S
) -> AsyncIterator[Source]:
    calls, reports = ListenerCalls(deliver, timeout_s=timeout_s), Reports()
    sender = EventSender(reports, calls, random=Random(1))
    try:
        yield Source(sender, reports)
    finally:
        await sender.close()
        await calls.close()


# Listeners that are served.


@asynchronous
async def test_a_served_listener_gets_events_in_order() -> None:
    got: list[RemoteEvent] = []
    async with sending() as source, await serve_listener(got.append) as server:
        assert server.listener.endpoint == server.address
        queue = source.queue(server.listener)
        for number in range(1, 251):
            queue.append(b"%d" % number)
        await until(lambda: len(got) == 250)
        assert [event.number for event in got] == list(range(1, 251))
        assert got[0] == RemoteEvent("c/renewal", "s", 1, 1, b"h", b"1")
        await until(lambda: queue.state is QueueState.IDLE)


@asynchronous
async def test_two_listeners_in_one_process_have_their_own_events() -> None:
    first: list[int] = []
    second: list[int] = []

    async def slowly(event: RemoteEvent) -> None:
        await asyncio.sleep(0)
        second.append(event.number)

    async with (
        sending() as source,
        await serve_listener(lambda event: first.append(event.number)) as one,
        await serve_listener(slowly) as two,
    ):
        for server in (one, two):
            queue = source.queue(server.listener, server.listener.id)
            queue.append(b"")
            queue.append(b"")
        await until(lambda: first == second == [1, 2])


@asynchronous
async def test_a_listener_that_is_down_gets_its_events_when_it_is_back() -> None:
    got: list[int] = []
    address = f"127.0.0.1:{free_port()}"
    server = await serve_listener(lambda event: got.append(event.number), address)
    async with sending() as source:
        queue = source.queue(server.listener)
        queue.append(b"")
        await until(lambda: got == [1])
        await server.close()
        queue.append(b"")
        await until(lambda: queue.state is QueueState.WAITING)
        queue.append(b"")
        assert source.reports.notes == [("delivered", "s", 1)]
        # The process comes back at its address, with another listener.
        async with await serve_listener(lambda event: got.append(event.number), address) as again:
            queue.replace(again.listener, b"new")
            await until(lambda: got == [1, 2, 3])


@asynchronous
async def test_a_process_that_does_not_know_the_listener_clears_the_registration() -> None:
    got: list[int] = []
    async with (
        sending() as source,
        await serve_listener(lambda event: got.append(event.number)) as server,
    ):
        unknown = source.queue(EventTarget(server.address, "of-the-process-before"), "unknown")
        known = source.queue(server.listener, "known")
        unknown.append(b"")
        known.append(b"")
        await until(lambda: len(source.reports.notes) == 2)
        assert sorted(source.reports.notes) == [
            ("delivered", "known", 1),
            ("rejected", "unknown", CallRefused),
        ]
        assert unknown.target is None


@asynchronous
async def test_an_endpoint_that_is_not_a_listener_clears_the_registration() -> None:
    server = GrpcServer({})
    await server.start(["127.0.0.1:0"])
    async with sending() as source:
        source.queue(EventTarget(str(server.addresses[0]), "l")).append(b"")
        await until(lambda: source.reports.notes == [("rejected", "s", CallRefused)])
    await server.close()


@asynchronous
async def test_hanging_and_failing_listeners_hold_back_only_themselves() -> None:
    got: list[int] = []

    async def hang(_event: RemoteEvent) -> None:
        await asyncio.get_running_loop().create_future()

    def fail(_event: RemoteEvent) -> None:
        raise RuntimeError("a defect of the program")

    async with (
        sending(timeout_s=1.0) as source,
        await serve_listener(hang) as hanging,
        await serve_listener(fail) as failing,
        await serve_listener(lambda event: got.append(event.number)) as good,
    ):
        queues = {
            name: source.queue(server.listener, name)
            for name, server in (("hanging", hanging), ("failing", failing), ("good", good))
        }
        for number in range(1, 11):
            for queue in queues.values():
                queue.append(b"")
            await until(lambda number=number: len(got) == number)  # type: ignore[misc]
        assert queues["hanging"].number == 10
        await until(lambda: queues["hanging"].failures > 0)
        assert "RuntimeError: a defect of the program" in queues["failing"].last_error
        assert len(queues["failing"]) == len(queues["hanging"]) == 10


@asynchronous
async def test_clearing_cancels_the_call_at_the_listener() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang(_event: RemoteEvent) -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with sending() as source, await serve_listener(hang) as server:
        queue = source.queue(server.listener)
        queue.append(b"")
        await began.wait()
        queue.clear()
        await source.sender.settled(queue)
        await ended.wait()
        assert source.reports.notes == []


@asynchronous
async def test_a_listener_is_served_on_this_machine_only_unless_it_is_secured() -> None:
    with pytest.raises(ValueError, match="can be reached from other machines: pass `tls`"):
        await serve_listener(print, "0.0.0.0:0")
    with pytest.raises(TypeError, match="callback must be"):
        await serve_listener(None)  # type: ignore[arg-type]
    async with await serve_listener(
        print, "0.0.0.0:0", insecure=True, advertise="example.com:7000"
    ) as server:
        assert server.listener.endpoint == "example.com:7000"
    with pytest.raises(ValueError, match="has no port"):
        await serve_listener(print, advertise="example.com")
    async with await serve_listener(print, listener_id="known") as server:
        assert server.listener.id == "known"
    with pytest.raises(ValueError, match="listener_id must have 1 to 256 characters, got 0"):
        await serve_listener(print, listener_id="")


# Mailboxes.


class Server:
    """A server of mailboxes, with what it needs of `leasehold.v1.Leases`."""

    def __init__(self, engine: Engine, address: str = "", **limits: Any) -> None:
        self.shards: Shards = (
            ElectedShards(engine, address) if address else LocalShards(engine, address="local")
        )
        policy = DurationPolicy(maximum=7200.0, default=3600.0)
        self.service = MailboxService(engine, self.shards, policy, limits=MailboxLimits(**limits))
        self.forwarder = Forwarder(self.shards)
        self.rpc = MailboxRpc(self.service, self.shards, self.forwarder)
        methods: dict[str, Method] = self.rpc.methods() | methods_of(
            "leasehold.v1.Leases", {"RenewAll": self._renew_all, "RevokeAll": self._revoke_all}
        )
        self._grpc = GrpcServer(methods)
        self.channel: Channel

    async def start(self, address: str = "127.0.0.1:0") -> "Server":
        await self._grpc.start([address])
        await self.shards.start([self.service.records])
        self.channel = Channel(str(self._grpc.addresses[0]))
        return self

    async def _renew_all(self, message: bytes, _context: CallContext) -> bytes:
        request = leases_pb2.RenewAllRequest.FromString(message)
        outcomes = Outcomes()
        for cookie in request.cookies:
            renewed = await self.service.records.renew(str(name_from_bytes(cookie)), 60.0)
            outcomes.guess(renewed)
            outcomes.add(0, renewed)
            outcomes.count += 1
        return outcomes.renewed()

    async def _revoke_all(self, message: bytes, _context: CallContext) -> bytes:
        request = leases_pb2.RevokeAllRequest.FromString(message)
        outcomes = Outcomes()
        for cookie in request.cookies:
            await self.service.records.cancel(str(name_from_bytes(cookie)))
            outcomes.add(0, 0.0)
            outcomes.count += 1
        return outcomes.revoked()

    async def close(self) -> None:
        await self.channel.close()
        await self.shards.close()
        await self.service.records.close()
        await self._grpc.close()
        await self.forwarder.close()


@asynccontextmanager
async def one_server(**limits: Any) -> AsyncIterator[Server]:
    async with open_engine("memory:") as engine:
        server = await Server(engine, **limits).start()
        try:
            yield server
        finally:
            await server.close()


def event(number: int, payload: bytes = b"") -> RemoteEvent:
    return RemoteEvent("c/renewal", "s", 1, number, b"h", payload)


@asynchronous
async def test_a_mailbox_is_created_found_filled_read_and_acknowledged() -> None:
    async with one_server() as server, sending(server.rpc.deliver) as source:
        mailbox = await Mailbox.create(server.channel, 600.0)
        assert mailbox.target == EventTarget("", mailbox.id)
        assert mailbox.lease.term == 600.0
        found = await Mailbox.find(server.channel, mailbox.id)
        assert found == mailbox
        assert hash(found) == hash(mailbox)
        assert 500 < found.lease.remaining <= 600  # type: ignore[operator]
        queue = source.queue(mailbox.target)
        reading = asyncio.ensure_future(found.read(wait=30.0))
        await until(lambda: server.service.waiting_readers == 1)
        queue.append(b"one")
        (first,) = await reading
        assert first.position == 1
        assert first.event == event(1, b"one")
        queue.append(b"two")
        assert [each.position for each in await mailbox.read(1, wait=30.0)] == [2]
        status = await mailbox.status()
        assert (status.id, status.events) == (mailbox.id, 2)
        await mailbox.acknowledge(1)
        assert [each.position for each in await mailbox.read()] == [2]
        async for each in mailbox.events():
            assert each.payload == b"two"
            break


@asynchronous
async def test_the_lease_of_a_mailbox_is_renewed_and_cancelled_like_any_lease() -> None:
    async with one_server() as server, sending(server.rpc.deliver) as source:
        mailbox = await Mailbox.create(server.channel, 30.0)
        assert await mailbox.lease.renew(60.0) == 60.0
        queue = source.queue(mailbox.target)
        await mailbox.lease.cancel()
        with pytest.raises(NoSuchObject) as ended:
            await mailbox.read()
        assert (ended.value.service, ended.value.id) == ("mailboxes", mailbox.id)
        for call in (mailbox.status(), mailbox.acknowledge(1)):
            with pytest.raises(NoSuchObject):
                await call
        with pytest.raises(NoSuchObject):
            await Mailbox.find(server.channel, mailbox.id)
        queue.append(b"")
        await until(lambda: source.reports.notes == [("rejected", "s", NoSuchObject)])


@asynchronous
async def test_a_full_mailbox_answers_resource_exhausted() -> None:
    async with one_server(events=2) as server:
        mailbox = await Mailbox.create(server.channel, 60.0)
        endpoint = server.channel.endpoints[0]
        calls = ListenerCalls(_no_mailboxes)
        target = EventTarget(endpoint, mailbox.id)  # the server is a listener like any other
        await calls.send(target, [event(1), event(2)])
        with pytest.raises(TooBusy, match="is full: it has 2 of 2 events"):
            await calls.send(target, [event(3)])
        await mailbox.acknowledge(2)
        await calls.send(target, [event(3)])
        with pytest.raises(NoSuchObject):
            await calls.send(EventTarget(endpoint, "0" * 32), [event(1)])
        with pytest.raises(TooLarge):
            await calls.send(target, [event(number) for number in range(200)])
        await calls.close()


@asynchronous
async def test_bad_requests_are_refused() -> None:
    async with one_server() as server:
        mailbox = await Mailbox.create(server.channel, 60.0)
        for call in (
            mailbox.read(-1),
            mailbox.read(0, -1),
            mailbox.acknowledge(-1),
            call_mailboxes(
                server.channel,
                "Create",
                pb.CreateMailboxRequest(ttl_ms=0),
                pb.CreateMailboxResponse,
            ),
        ):
            with pytest.raises(CallRefused, match="INVALID_ARGUMENT"):
                await call


@asynchronous
async def test_callbacks_of_a_client_are_called_through_its_mailbox() -> None:
    async with one_server() as server, sending(server.rpc.deliver) as source:
        got: list[int] = []
        callbacks = Callbacks(lambda duration: Mailbox.create(server.channel, duration))
        target = await callbacks.target()
        callbacks.set(("c/renewal", "s", 1), lambda event: got.append(event.number))
        queue = source.queue(target)
        for _ in range(3):
            queue.append(b"")
        await until(lambda: got == [1, 2, 3])
        mailbox = await Mailbox.find(server.channel, target.id)
        record = server.service.records.find(mailbox.id)
        await until(lambda: len(record.state) == 0)
        await callbacks.close()
        with pytest.raises(NoSuchObject):
            await mailbox.status()


@asynchronous
async def test_mailboxes_are_listed_in_pages() -> None:
    async with one_server() as server:
        ids = sorted([(await server.service.create(60.0))[0] for _ in range(5)])
        request = pb.ListMailboxesRequest(after=ids[1])
        answer = await call_mailboxes(server.channel, "List", request, pb.ListMailboxesResponse)
        assert [info.id for info in answer.mailboxes] == ids[2:]
        assert answer.next == ""
        assert len(ids) < MAX_LISTED


@asynchronous
async def test_calls_reach_a_mailbox_through_any_server_of_a_cluster() -> None:
    async with open_engine("memory:") as engine:
        servers = []
        for _ in range(2):
            address = f"127.0.0.1:{free_port()}"
            servers.append(await Server(engine, address).start(address))
        first, second = servers
        try:
            await until(lambda: len(first.shards.all_owned) == len(second.shards.all_owned) == 8)
            mailboxes = [await Mailbox.create(first.channel, 600.0) for _ in range(3)]
            mailboxes += [await Mailbox.create(second.channel, 600.0) for _ in range(3)]
            assert len(first.service.records) == len(second.service.records) == 3
            for mailbox in mailboxes:
                # Delivered by one server, read and acknowledged at the other, and the other way.
                for here, there in ((first, second), (second, first)):
                    found = await Mailbox.find(there.channel, mailbox.id)
                    reading = asyncio.ensure_future(found.read(wait=30.0))
                    await until(
                        lambda: first.service.waiting_readers + second.service.waiting_readers == 1
                    )
                    await here.rpc.deliver(mailbox.id, [event(1, b"x")])
                    (received,) = await reading
                    assert received.event == event(1, b"x")
                    await found.acknowledge(received.position)
            for server in servers:
                listed = await call_mailboxes(
                    server.channel, "List", pb.ListMailboxesRequest(), pb.ListMailboxesResponse
                )
                assert [info.id for info in listed.mailboxes] == sorted(
                    mailbox.id for mailbox in mailboxes
                )
            with pytest.raises(NoSuchObject):
                await first.rpc.deliver("0" * 32, [event(1)])
            with pytest.raises(NoSuchObject):
                await second.rpc.deliver("0" * 32, [event(1)])
        finally:
            for server in servers:
                await server.close()
        with pytest.raises((ShardLost, ConnectFailed)):
            await first.rpc.deliver(mailboxes[0].id, [event(1)])
