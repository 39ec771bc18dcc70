"""Services on the engine of a server, with a store and on a cluster; and that server's own ends.

A Leasehold server stands for the cluster here: it is an engine as good as an etcd.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

import leasehold
from leasehold import Closed, ConnectFailed, UnknownLease
from leasehold.basics.addresses import TcpAddress
from leasehold.basics.durations import Requested
from leasehold.basics.tls import server_tls
from leasehold.errors import HistoryLost
from leasehold.grpc.channel import Channel
from leasehold.grpc.coroutine_handlers import one_to_one
from leasehold.grpc.routes import Method
from leasehold.leases.lease import Outcome
from leasehold.leases.lease_codec import name_to_bytes
from leasehold.server import cluster_server
from leasehold.server.app import LeaseholdServer
from leasehold.server.cluster_server import ClusterServer
from leasehold.server.engine_services import EngineService, MakeServices, ServiceHost
from leasehold.server.leases.service_leases import ServiceLeases
from leasehold.server.pages import Exposition
from leasehold.server.settings import RemoteEndpoints, Settings
from leasehold.wire import events_pb2  # noqa: F401  which puts the service into the pool
from leasehold.wire import leases_pb2 as pb
from tests.support.asynchronous import asynchronous, until
from tests.support.servers import free_port

ANY_PORT = [TcpAddress("127.0.0.1", 0)]
Server = LeaseholdServer | ClusterServer


class NotesService(EngineService):
    """Stores what it gets under its own lease, and notes when it was started and closed."""

    def __init__(self, host: ServiceHost) -> None:
        self.host = host
        self.seen: list[str] = []
        self.grantor = f"{host.engine.cluster_id:016x}/notes"
        self.wants: list[tuple[Hashable, Requested]] = []

    def methods(self) -> Mapping[str, Method]:
        return {"/leasehold.v1.Mailboxes/Read": one_to_one(self._read)}

    async def _read(self, message: bytes, call: object) -> bytes:
        del message, call
        return (await self.host.engine.range(b"leasehold/notes")).pairs[0].value

    def leases(self) -> Iterable[ServiceLeases]:
        return [self]

    async def renew_all(self, wants: Sequence[tuple[Hashable, Requested]]) -> Sequence[Outcome]:
        self.wants += wants
        return [7.5 if cookie == "one" else UnknownLease(cookie) for cookie, _ in wants]

    async def start(self) -> None:
        await self.host.engine.put(b"leasehold/notes", self.host.address.encode())
        self.seen.append("started")

    async def close(self) -> None:
        await self.host.engine.put(b"leasehold/notes", b"closed")
        self.seen.append("closed")

    def metrics(self, out: Exposition) -> None:
        out.gauge("leasehold_notes", "Notes.", len(self.seen))


class Notes:
    """Makes the service of a server, and keeps it for the test."""

    service: NotesService

    def __call__(self, host: ServiceHost) -> Sequence[NotesService]:
        self.service = NotesService(host)
        return [self.service]


@asynccontextmanager
async def a_server(kind: str, directory: Path, make: MakeServices) -> AsyncIterator[Server]:
    if kind == "store":
        async with LeaseholdServer(directory, make_services=make) as server:
            yield server
        return
    async with LeaseholdServer(directory) as engine:
        port = await engine.start("127.0.0.1", 0)
        async with ClusterServer(on(f"127.0.0.1:{port}"), make_services=make) as cluster:
            yield cluster


def on(endpoint: str, **settings: Any) -> Settings:
    return Settings(engine=RemoteEndpoints((endpoint,)), **settings)


@pytest.mark.parametrize("kind", ["store", "cluster"])
def test_a_service_is_started_served_and_closed_while_the_engine_answers(
    kind: str, tmp_path: Path
) -> None:
    @asynchronous
    async def main() -> None:
        make = Notes()
        async with a_server(kind, tmp_path, make) as server:
            (address,) = await server.start_on(ANY_PORT)
            service = make.service
            assert service.seen == ["started"]
            assert service.host.address == f"http://{address}"
            async with Channel(str(address)) as channel:
                read = await channel.unary("/leasehold.v1.Mailboxes/Read", b"")
                assert read.decode() == f"http://{address}"
                request = pb.RenewAllRequest(
                    cookies=[name_to_bytes("one"), name_to_bytes("two")],
                    grantor=service.grantor,
                    ttl_ms=9000,
                )
                answer = pb.RenewAllResponse.FromString(
                    await channel.unary(
                        "/leasehold.v1.Leases/RenewAll", request.SerializeToString()
                    )
                )
                assert answer.ttl_ms == 7500
                assert list(answer.unknown) == [1]
                assert answer.header.cluster_id == service.host.engine.cluster_id
                ending = pb.RevokeAllRequest(cookies=request.cookies[:1], grantor=service.grantor)
                await channel.unary("/leasehold.v1.Leases/RevokeAll", ending.SerializeToString())
                assert service.wants == [("one", 9.0), ("two", 9.0), ("one", 0.0)]
            await server.close()
            assert service.seen == ["started", "closed"], "its last write was answered"

    main()


@asynchronous
async def test_the_engine_of_a_server_sees_the_keys_of_its_clients(tmp_path: Path) -> None:
    async with LeaseholdServer(tmp_path) as server:
        port = await server.start("127.0.0.1", 0)
        async with leasehold.connect(f"127.0.0.1:{port}") as client:
            watch = server.engine.watch(b"a")
            await client.kv.put("a", "1")
            assert (await anext(watch)).events[0].key == b"a"
            await server.engine.put(b"b", b"2")
            found = await client.kv.get("b")
            assert found is not None
            assert found.text == "2"
            assert server.engine.cluster_id == client.engine.cluster_id
    with pytest.raises(Closed):
        await anext(watch)


# The server on a cluster.


@asynchronous
async def test_a_server_that_is_stopped_while_it_connects_raises_closed() -> None:
    server = ClusterServer(on(f"127.0.0.1:{free_port()}"))
    starting = asyncio.ensure_future(server.start_on(ANY_PORT))
    await asyncio.sleep(0)
    server.stopped.set()
    with pytest.raises(Closed, match="before it had reached the cluster"):
        await starting
    await server.close()
    assert server.is_closed


@asynchronous
async def test_a_cluster_that_starts_a_little_later_is_found(tmp_path: Path) -> None:
    port = free_port()
    async with ClusterServer(on(f"127.0.0.1:{port}")) as server:
        starting = asyncio.ensure_future(server.start_on(ANY_PORT))
        await until(lambda: bool(server._refusal))
        async with LeaseholdServer(tmp_path) as engine:
            await engine.start("127.0.0.1", port)
            assert len(await starting) == 1
            await server.close()


@asynchronous
async def test_another_keyspace_at_the_same_address_stops_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_server, "PROBE_S", 0.05)
    async with LeaseholdServer(tmp_path / "a") as first:
        port = await first.start("127.0.0.1", free_port())
        server = ClusterServer(on(f"127.0.0.1:{port}"))
        await server.start_on(ANY_PORT)
    async with LeaseholdServer(tmp_path / "b") as second:
        await second.start("127.0.0.1", port)
        await server.stopped.wait()
        assert isinstance(server.failure, HistoryLost)
        await server.close()


@asynchronous
async def test_the_cluster_may_require_tls_and_a_certificate_of_the_server(tmp_path: Path) -> None:
    ca = trustme.CA()
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    ca.cert_pem.write_to_path(files["ca"])
    issued = ca.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(files["cert"])
    issued.private_key_pem.write_to_path(files["key"])
    tls = server_tls(files["cert"], files["key"], files["ca"])
    async with LeaseholdServer(tmp_path / "data") as engine:
        (address,) = await engine.start_on(ANY_PORT, tls)
        place = RemoteEndpoints((str(address),), files["ca"], files["cert"], files["key"])
        async with ClusterServer(Settings(engine=place)) as server:
            await server.start_on(ANY_PORT)
            assert server.engine.cluster_id == engine.engine.cluster_id


@asynchronous
async def test_without_tls_the_reason_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_server, "START_S", 1.0)
    issued = trustme.CA().issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    async with LeaseholdServer(tmp_path / "data") as engine:
        (address,) = await engine.start_on(ANY_PORT, server_tls(cert, key))
        async with ClusterServer(on(str(address))) as server:
            with pytest.raises(ConnectFailed, match=f"cluster at {address} has not answered"):
                await server.start_on(ANY_PORT)
