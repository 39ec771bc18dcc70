"""The registry of real servers: with a store, and of two servers on an etcd cluster."""

import asyncio
import time
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

import leasehold
from leasehold import service_item, service_template
from leasehold.grpc.channel import Channel
from leasehold.grpc.protocol import RpcError
from leasehold.server.app import LeaseholdServer
from leasehold.server.settings import Settings
from leasehold.wire import events_pb2, services_pb2
from leasehold.wire import registry_pb2 as pb
from tests.support.asynchronous import asynchronous, until
from tests.support.clusters import cluster
from tests.support.serve_command import serving

M = TypeVar("M", bound=Message)

WEB = pb.ItemTemplate(types=[pb.ServiceType(name="web")])
WITHIN_S = 60.0


class Registry:
    """The registry at one server."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def call(self, path: str, request: Message, kind: type[M]) -> M:
        answer = await self._channel.unary(
            f"/leasehold.v1.{path}", request.SerializeToString(), timeout=10.0
        )
        return kind.FromString(answer)

    async def register(self, **fields: Any) -> pb.RegisterResponse:
        item = pb.ServiceItem(types=[pb.ServiceType(name="web")], **fields)
        request = pb.RegisterRequest(item=item, ttl_ms=600_000)
        return await self.call("Registry/Register", request, pb.RegisterResponse)

    async def lookup(self) -> pb.LookupResponse:
        request = pb.LookupRequest(template=WEB, limit=1000)
        return await self.call("Registry/Lookup", request, pb.LookupResponse)

    async def listen(self) -> str:
        """Register a new mailbox for events, and return its id."""
        created = events_pb2.CreateMailboxRequest(ttl_ms=3_600_000)
        mailbox = await self.call("Mailboxes/Create", created, events_pb2.CreateMailboxResponse)
        request = pb.RequestEventsRequest(
            template=WEB,
            transitions=7,
            listener=services_pb2.ListenerTarget(id=mailbox.id),
            ttl_ms=3_600_000,
        )
        await self.call("Registry/Notify", request, pb.RequestEventsResponse)
        return mailbox.id

    async def events(self, mailbox: str, count: int) -> list[tuple[int, str]]:
        """Wait for events in a mailbox; return their numbers and the ids of their items."""
        until = time.monotonic() + WITHIN_S
        found: dict[int, str] = {}
        while len(found) < count:
            assert time.monotonic() < until, found
            request = events_pb2.ReadMailboxRequest(mailbox=mailbox, wait_ms=500)
            try:
                answer = await self.call("Mailboxes/Read", request, events_pb2.ReadMailboxResponse)
            except RpcError:  # its server is gone, and another has not taken it over yet
                await asyncio.sleep(0.1)
                continue
            for each in answer.events:
                event = pb.ItemEvent.FromString(each.event.payload)
                assert found.setdefault(each.event.number, event.id) == event.id
        return sorted(found.items())


@asynchronous
async def test_a_registry_with_a_store(tmp_path: Path) -> None:
    async with LeaseholdServer(tmp_path) as server:
        port = await server.start("127.0.0.1", 0)
        async with Channel(f"127.0.0.1:{port}") as channel:
            registry = Registry(channel)
            mailbox = await registry.listen()
            registered = await registry.register(endpoint="here:1")
            found = await registry.lookup()
            assert [pb.ServiceItem.FromString(data).id for data in found.items] == [registered.id]
            assert await registry.events(mailbox, 1) == [(1, registered.id)]


@asynchronous
async def test_the_lease_of_an_item_can_be_kept_by_a_renewal_set() -> None:
    # In memory: a sync of a busy disk may take longer than the term.
    async with LeaseholdServer(Settings(directory=None)) as server:
        port = await server.start("127.0.0.1", 0)
        async with leasehold.connect(f"127.0.0.1:{port}") as client:
            kept = await client.renewal_set(600.0)
            registered = await client.registry.register(service_item(types=["web"]), 1.0)
            assert registered.lease is not None
            await kept.renew_for(registered.lease, 600.0, 1.0)
            tally = server.store.leases.tally
            await until(lambda: tally.renewed >= 4)  # which takes longer than its term
            found = await client.registry.lookup(service_template(types=["web"]), 10)
            assert [item.id for item in found.items if item is not None] == [registered.id]


def test_two_servers_on_a_cluster_are_one_registrar(tmp_path: Path) -> None:
    with cluster(tmp_path) as members:
        engine = f"etcd://{','.join(members.endpoints)}"
        with serving("--engine", engine) as first, serving("--engine", engine) as second:

            async def main() -> None:
                async with (
                    Channel(f"127.0.0.1:{first.port}") as at_first,
                    Channel(f"127.0.0.1:{second.port}") as at_second,
                ):
                    one, other = Registry(at_first), Registry(at_second)
                    request = pb.DescribeRequest()
                    described = [
                        await each.call("Registry/Describe", request, pb.RegistrarInfo)
                        for each in (one, other)
                    ]
                    assert described[0].id == described[1].id
                    mailbox = await one.listen()
                    ids = []
                    for number in range(20):
                        here, there = (one, other) if number % 2 else (other, one)
                        ids.append((await here.register()).id)
                        found = await there.lookup()
                        assert found.total == number + 1, "it was answered before"
                    numbered = list(enumerate(ids, 1))
                    assert await other.events(mailbox, 20) == numbered
                    first.process.kill()
                    first.process.wait(WITHIN_S)
                    ids += [(await other.register()).id for _ in range(3)]
                    numbered = list(enumerate(ids, 1))
                    assert await other.events(mailbox, 23) == numbered, "they go on, in order"

            asyncio.run(main())
