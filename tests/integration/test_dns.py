"""DNS over sockets: the limits of the server, and `leasehold serve --dns` with real resolvers."""

import asyncio
import re
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import dns.asyncresolver
import dns.message
import dns.rcode
import dns.rdatatype
import dns.resolver
import pytest

import leasehold
from leasehold.basics.addresses import TcpAddress
from leasehold.registry import dns_server
from leasehold.registry.dns_server import DnsServer
from leasehold.registry.dns_zone import DnsZone, Lookup
from leasehold.registry.named_items import named_item
from leasehold.registry.state import Item
from tests.support.asynchronous import until
from tests.support.serve_command import WITHIN_S, Serving, run, serving

LOOPBACK = TcpAddress("127.0.0.1", 0)
QUERY = dns.message.make_query("web.service.leasehold.", "A", id=1).to_wire()


async def web(name: str, _tag: str | None) -> list[Item]:
    return [named_item("web", "10.0.0.1:80")] if name == "web" else []


@asynccontextmanager
async def dns_serving(lookup: Lookup = web) -> AsyncIterator[TcpAddress]:
    server = DnsServer(DnsZone(lookup))
    address = await server.start(LOOPBACK)
    try:
        async with asyncio.timeout(WITHIN_S):
            yield address
    finally:
        await server.close()


class _Client(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, _addr: Any) -> None:
        self.received.put_nowait(data)


@asynccontextmanager
async def udp_client(
    address: TcpAddress,
) -> AsyncIterator[tuple[asyncio.DatagramTransport, asyncio.Queue[bytes]]]:
    transport, client = await asyncio.get_running_loop().create_datagram_endpoint(
        _Client, remote_addr=(address.host, address.port)
    )
    with closing(transport):
        yield transport, client.received


async def read_answer(reader: asyncio.StreamReader) -> dns.message.Message:
    (size,) = struct.unpack("!H", await reader.readexactly(2))
    return dns.message.from_wire(await reader.readexactly(size))


def framed(query: bytes) -> bytes:
    return struct.pack("!H", len(query)) + query


# The server.


async def _queries_over_udp() -> None:
    async with dns_serving() as address, udp_client(address) as (transport, received):
        # Nothing of this is answered, or ends the server.
        for packet in (b"", b"x", b"\xff" * 100, QUERY[:11], bytes(5000)):
            transport.sendto(packet)
        transport.sendto(QUERY)
        answer = dns.message.from_wire(await received.get())
        assert str(answer.answer[0][0]) == "10.0.0.1"
        assert received.empty()
        transport.sendto(QUERY[:20])
        assert (await received.get())[3] & 15 == dns.rcode.FORMERR


def test_the_server_goes_on_after_malformed_packets() -> None:
    asyncio.run(_queries_over_udp())


def test_several_queries_on_one_connection_are_answered_in_order() -> None:
    async def several() -> None:
        async with dns_serving() as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            queries = [dns.message.make_query("web.service.leasehold.", "A") for _ in range(10)]
            stream = b"".join(framed(query.to_wire()) for query in queries)
            for byte in stream[:50]:  # however they are cut
                writer.write(bytes((byte,)))
                await writer.drain()
            writer.write(stream[50:])
            for query in queries:
                assert query.is_response(await read_answer(reader))
            writer.close()

    asyncio.run(several())


@pytest.mark.parametrize("sent", [b"\xff\xff", framed(b"x"), framed(b""), framed(QUERY)[:9]])
def test_a_connection_with_a_message_that_is_too_long_or_has_no_header_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_server, "IDLE_S", 0.2)

    async def closed() -> None:
        async with dns_serving() as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(sent)
            assert await reader.read() == b""
            writer.close()
            monkeypatch.undo()  # a busy loop may take longer to read a query
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(framed(QUERY))
            assert (await read_answer(reader)).rcode() == dns.rcode.NOERROR
            writer.close()

    asyncio.run(closed())


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_server, "IDLE_S", 0.05)

    async def idle() -> None:
        async with dns_serving() as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(idle())


def test_a_connection_counts_until_it_is_gone_even_if_its_client_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dns_server, "IDLE_S", 0.1)
    connected = DnsServer._connected
    accepted: list[tuple[DnsServer, Any]] = []

    def recorded(
        self: DnsServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        accepted.append((self, writer.get_extra_info("socket")))
        connected(self, reader, writer)

    monkeypatch.setattr(DnsServer, "_connected", recorded)

    items = [named_item("web", f"10.0.{at // 250}.{at % 250}:80") for at in range(2000)]

    async def many(_name: str, _tag: str | None) -> list[Item]:
        return items

    async def unread() -> None:
        loop = asyncio.get_running_loop()
        query = framed(dns.message.make_query("web.service.leasehold.", "SRV").to_wire())
        async with dns_serving(many) as address:
            with closing(socket.socket()) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                client.setblocking(False)
                await loop.sock_connect(client, (address.host, address.port))
                await loop.sock_sendall(client, query * 100)
                await until(lambda: bool(accepted))
                ((server, accepted_socket),) = accepted
                await until(lambda: not server._connections)
                assert accepted_socket.fileno() == -1

    asyncio.run(unread())


def test_connections_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_server, "MAX_CONNECTIONS", 1)

    async def two() -> None:
        async with dns_serving() as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(framed(QUERY))
            await read_answer(reader)
            late, late_writer = await asyncio.open_connection(address.host, address.port)
            with suppress(ConnectionResetError):
                assert await late.read() == b""
            late_writer.close()
            writer.write(framed(QUERY))
            await read_answer(reader)
            writer.close()

    asyncio.run(two())


def test_queries_in_progress_beyond_the_limit_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_server, "MAX_UDP_QUERIES", 2)
    receive = DnsServer._received
    packets = dropped = 0

    def counted(self: DnsServer, query: bytes, peer: Any) -> None:
        nonlocal packets, dropped
        receive(self, query, peer)
        packets += 1
        dropped = self.counts.dropped

    monkeypatch.setattr(DnsServer, "_received", counted)

    async def many() -> None:
        started = 0
        go = asyncio.Event()

        async def slow(name: str, tag: str | None) -> list[Item]:
            nonlocal started
            started += 1
            await go.wait()
            return await web(name, tag)

        async with dns_serving(slow) as address, udp_client(address) as (transport, received):
            for _ in range(5):
                transport.sendto(QUERY)
            await until(lambda: packets == 5 and started == 2)
            go.set()
            await received.get()
            await received.get()
            transport.sendto(QUERY)
            await received.get()
            assert started == 3
            assert dropped == 3
            assert received.empty()

    asyncio.run(many())


def test_closing_ends_queries_in_progress() -> None:
    async def close() -> None:
        waiting = asyncio.Event()

        async def endless(_name: str, _tag: str | None) -> list[Item]:
            waiting.set()
            await asyncio.get_running_loop().create_future()
            return []

        async with dns_serving(endless) as address:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(framed(QUERY))
            await waiting.wait()
        writer.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(close())


# The command.


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Serving, int]]:
    with serving("--data-dir", "memory:", "--dns", "127.0.0.1:0") as found:
        assert found.process.stderr is not None
        line = found.process.stderr.readline()
        port = re.search(r"DNS queries .* on 127\.0\.0\.1:(\d+)", line)
        assert port is not None, line
        yield found, int(port[1])


def resolver_of(port: int) -> dns.asyncresolver.Resolver:
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], port
    resolver.lifetime = WITHIN_S
    return resolver


async def resolve(port: int, name: str, rdtype: str = "A") -> list[str]:
    answer = await resolver_of(port).resolve(f"{name}.service.leasehold.", rdtype)
    return sorted(str(data) for data in answer)


def test_a_registered_service_is_resolved_until_it_ends(server: tuple[Serving, int]) -> None:
    found, port = server

    async def resolved() -> None:
        async with (
            asyncio.timeout(WITHIN_S),
            leasehold.connect(f"127.0.0.1:{found.port}") as client,
        ):
            one = client.register("shop", "10.0.0.1:80", tags=["v1"], metadata={"zone": "a"})
            two = client.register("shop", "http://10.0.0.2:81", tags=["v2"])
            async with one, two:
                assert await resolve(port, "shop") == ["10.0.0.1", "10.0.0.2"]
                assert await resolve(port, "v2.shop") == ["10.0.0.2"]
                assert await resolve(port, "shop", "SRV") == [
                    "1 1 80 0a000001.addr.leasehold.",
                    "1 1 81 0a000002.addr.leasehold.",
                ]
                assert await resolve(port, "shop", "TXT") == ['"zone=a"']
                with pytest.raises(dns.resolver.NoAnswer):
                    await resolve(port, "shop", "AAAA")
                with pytest.raises(dns.resolver.NXDOMAIN):
                    await resolve(port, "v3.shop")
            with pytest.raises(dns.resolver.NXDOMAIN):
                await resolve(port, "shop")

    asyncio.run(resolved())


def test_a_service_in_maintenance_is_not_resolved(server: tuple[Serving, int]) -> None:
    found, port = server

    async def resolved() -> None:
        async with (
            asyncio.timeout(WITHIN_S),
            leasehold.connect(f"127.0.0.1:{found.port}") as client,
            client.register("desk", "10.0.0.1:80") as service,
        ):
            assert await resolve(port, "desk") == ["10.0.0.1"]
            service.maintain()
            while True:
                try:
                    await resolve(port, "desk")
                except dns.resolver.NoAnswer:
                    break

    asyncio.run(resolved())


def test_a_resolver_asks_again_over_tcp_for_a_large_answer(server: tuple[Serving, int]) -> None:
    found, port = server

    async def resolved() -> None:
        async with (
            asyncio.timeout(WITHIN_S),
            leasehold.connect(f"127.0.0.1:{found.port}") as client,
            AsyncExitStack() as registered,
        ):
            for number in range(100):
                service = client.register("farm", f"10.0.1.{number}:80", lease="session")
                await registered.enter_async_context(service)
            assert len(await resolve(port, "farm")) == 100
            assert len(await resolve(port, "farm", "SRV")) == 100

    asyncio.run(resolved())


def test_dig_prints_the_records(server: tuple[Serving, int]) -> None:
    if (dig := shutil.which("dig")) is None:
        pytest.skip("dig is not installed (Debian: bind9-dnsutils)")
    found, port = server

    async def dug(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            dig, "@127.0.0.1", "-p", str(port), *arguments, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return re.sub(r"[ \t]+", " ", output.decode())

    async def resolved() -> None:
        async with (
            asyncio.timeout(WITHIN_S),
            leasehold.connect(f"127.0.0.1:{found.port}") as client,
            client.register("dug", "10.0.0.7:8080", metadata={"zone": "a b"}),
            client.register("dug", "[fd00::7]:8080"),
        ):
            name = "dug.service.leasehold"
            assert await dug("+short", name) == "10.0.0.7\n"
            assert await dug("+short", name, "AAAA") == "fd00::7\n"
            assert await dug("+short", name, "TXT") == '"zone=a b"\n'
            output = await dug(name, "SRV")
            assert "status: NOERROR" in output
            assert "flags: qr aa rd;" in output
            assert "Warning" not in output
            assert "malformed" not in output
            assert f"{name}. 0 IN SRV 1 1 8080 0a000007.addr.leasehold." in output
            assert "0a000007.addr.leasehold. 0 IN A 10.0.0.7" in output
            output = await dug("+tcp", "+noedns", name)
            assert f"{name}. 0 IN A 10.0.0.7" in output
            output = await dug("other.service.leasehold")
            assert "status: NXDOMAIN" in output
            assert "leasehold. 0 IN SOA ns.leasehold. hostmaster.leasehold." in output
            assert "status: REFUSED" in await dug("example.org")
            assert "status: REFUSED" in await dug("+notcp", name, "ANY")

    asyncio.run(resolved())


def test_dig_prints_what_the_page_says(server: tuple[Serving, int]) -> None:
    found, port = server
    page = (Path(__file__).parents[2] / "docs" / "dns.md").read_text()
    steps = re.findall(r"^\$ (dig .*)\n(.*)\n", page, re.MULTILINE)
    assert len(steps) == 3
    if shutil.which("dig") is None:
        pytest.skip("dig is not installed (Debian: bind9-dnsutils)")

    async def resolved() -> None:
        async with (
            asyncio.timeout(WITHIN_S),
            leasehold.connect(f"127.0.0.1:{found.port}") as client,
            client.register("web", "10.0.0.7:8080", tags=["v2"], metadata={"zone": "a"}),
        ):
            for command, output in steps:
                process = await asyncio.create_subprocess_exec(
                    *command.replace("8600", str(port)).split(), stdout=subprocess.PIPE
                )
                assert (await process.communicate())[0].decode() == f"{output}\n"

    asyncio.run(resolved())


def test_the_server_stops_cleanly_and_with_another_domain() -> None:
    with serving(
        "--data-dir", "memory:", "--dns", "127.0.0.1:0", "--dns-domain", "Lab.Example."
    ) as found:
        assert found.process.stderr is not None
        port = int(found.process.stderr.readline().rpartition(":")[2])
        query = dns.message.make_query("lab.example.", "SOA")
        with closing(socket.create_connection(("127.0.0.1", port), WITHIN_S)) as client:
            client.sendall(framed(query.to_wire()))
            (size,) = struct.unpack("!H", client.recv(2, socket.MSG_WAITALL))
            answer = dns.message.from_wire(client.recv(size, socket.MSG_WAITALL))
            assert answer.answer[0].rdtype == dns.rdatatype.SOA
            output, errors = found.end(signal.SIGTERM)
        assert "leasehold has stopped" in output
        assert errors == ""


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_that_is_taken_is_a_clear_error(kind: socket.SocketKind) -> None:
    with closing(socket.socket(socket.AF_INET, kind)) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run("serve", "--data-dir", "memory:", "--listen", "127.0.0.1:0", "--dns", address)
    assert ended.returncode == 1
    assert f"cannot answer DNS queries on {address}: " in ended.stderr
    assert ended.stderr.endswith(
        "stop the process that uses it, or choose another address with --dns, such as 127.0.0.1:0\n"
    )
    assert "Traceback" not in ended.stderr
