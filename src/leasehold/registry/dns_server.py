"""The DNS server of `leasehold serve --dns`: services of the registry, over UDP and TCP.

Beyond the limits, queries over UDP are dropped, since their clients ask again, and connections are
closed.

`NamedLookup` finds the services. To search a name that very many services have takes long, for the
event loop that also renews leases; so the result is kept until an item of the registry changes.
"""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOCK_DGRAM, SOCK_STREAM, SOL_SOCKET, socket
from typing import Any, Final, NamedTuple

from leasehold.basics.addresses import TcpAddress
from leasehold.registry.dns_zone import MAX_ANSWERS, DnsZone
from leasehold.registry.named_items import named_template
from leasehold.registry.service import RegistryService
from leasehold.registry.state import Item, ItemVersion

MAX_TCP_BYTES: Final = 65_535

MAX_QUERY_BYTES: Final = 4096
"""A query has one name of at most 255 bytes and a few options."""

MAX_UDP_QUERIES: Final = 512
"""Queries over UDP in progress. Further ones are dropped: their clients ask again."""

MAX_UNSENT_BYTES: Final = 1024 * 1024
"""Answers over UDP that wait for the network. Beyond, they are dropped."""

MAX_CONNECTIONS: Final = 128
"""TCP connections. Further ones are closed."""

IDLE_S: Final = 10.0
"""How long a TCP connection may take for its next query, or for reading an answer.

When it is closed it has as long again to read the answers that are left; then they are dropped."""

PORT_ATTEMPTS: Final = 10
"""How often a port is tried that the system chooses: it must be free for UDP and TCP."""


MAX_KEPT_NAMES: Final = 1_000
"""Names and tags whose services are kept for the next query."""

MAX_KEPT_ITEMS: Final = 1_000_000
"""Services under these names, except those of the last one."""


class _Named(NamedTuple):
    """The services with a name. The leases of some may have ended."""

    passing: list[ItemVersion]
    others: list[ItemVersion]


class NamedLookup:
    """Finds the services with a name, in the registry of this server."""

    def __init__(self, registry: RegistryService, random: Random | None = None) -> None:
        self._registry = registry
        self._random = random or Random()  # noqa: S311  the choice is not a secret
        self._kept: dict[tuple[str, str | None], _Named] = {}
        self._kept_at = 0
        """The last change of the index before these were found."""

    async def __call__(self, name: str, tag: str | None) -> list[Item]:
        """Return passing services at random, at most `MAX_ANSWERS`; if there are none, others.

        A service whose lease has ended is never returned.
        """
        self._registry.lookups += 1
        await self._registry.feed.fresh()
        found = await self._named(name, tag)
        return self._choose(found.passing) or self._choose(found.others)

    async def _named(self, name: str, tag: str | None) -> _Named:
        index = self._registry.index
        change = index.last_change
        if self._kept_at != change:
            self._kept.clear()
            self._kept_at = change
        found = self._kept.get((name, tag))
        if found is None:
            versions = await self._registry.search(named_template(name, tag))
            found = _Named(
                [each for each in versions if each.item.is_passing],
                [each for each in versions if not each.item.is_passing],
            )
            # While items are read again, further ones may change at the same revision.
            if versions and change == index.last_change <= index.revision:
                self._keep((name, tag), found)
        return found

    def _keep(self, key: tuple[str, str | None], found: _Named) -> None:
        kept = self._kept
        count = sum(len(each.passing) + len(each.others) for each in (*kept.values(), found))
        while kept and (len(kept) >= MAX_KEPT_NAMES or count > MAX_KEPT_ITEMS):
            oldest = kept.pop(next(iter(kept)))
            count -= len(oldest.passing) + len(oldest.others)
        kept[key] = found

    def _choose(self, versions: list[ItemVersion]) -> list[Item]:
        count = min(len(versions), MAX_ANSWERS)
        chosen = self._registry.live(self._random.sample(versions, count))
        if len(chosen) < count < len(versions):  # some have ended: choose among the others
            live = self._registry.live(versions)
            chosen = self._random.sample(live, min(len(live), MAX_ANSWERS))
        return [version.item for version in chosen]


class DnsServer:
    """Serves a zone over UDP and TCP, on one address."""

    def __init__(self, zone: DnsZone) -> None:
        self._zone = zone
        self.counts = zone.counts
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._queries = 0
        self._tcp: asyncio.Server | None = None
        self._udp: asyncio.DatagramTransport | None = None

    async def start(self, address: TcpAddress) -> TcpAddress:
        """Listen on an IP address; return it with its port. OSError if it is taken."""
        tcp, udp = _bind(address)
        self._tcp = await asyncio.start_server(self._connected, sock=tcp, limit=MAX_QUERY_BYTES)
        self._udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Udp(self._received), sock=udp
        )
        return TcpAddress(address.host, tcp.getsockname()[1])

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            self._tcp.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _received(self, query: bytes, peer: Any) -> None:
        if self._queries < MAX_UDP_QUERIES and len(query) <= MAX_QUERY_BYTES:
            self._queries += 1
            self._start(self._answer(query, peer))
        else:
            self.counts.dropped += 1

    async def _answer(self, query: bytes, peer: Any) -> None:
        try:
            answer = await self._zone.answer(query)
            udp: Any = self._udp  # its type leaves out the size of its buffer
            if answer is None:
                return
            if udp.get_write_buffer_size() <= MAX_UNSENT_BYTES:
                udp.sendto(answer, peer)
            else:
                self.counts.dropped += 1
        finally:
            self._queries -= 1

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            self.counts.dropped += 1
            writer.transport.abort()
        else:
            self._connections += 1
            self._start(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # The client has gone, is silent, or does not read.
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                while query := await _read(reader):
                    answer = await self._zone.answer(query, MAX_TCP_BYTES)
                    if answer is None:
                        break
                    writer.write(struct.pack("!H", len(answer)) + answer)
                    async with asyncio.timeout(IDLE_S):
                        await writer.drain()
            writer.close()
            # Answers that were not sent yet are, as long as the client reads them.
            loop = asyncio.get_running_loop()
            too_late = loop.call_later(IDLE_S, writer.transport.abort)
            with suppress(OSError):
                await writer.wait_closed()
            too_late.cancel()
        finally:
            writer.transport.abort()
            self._connections -= 1


def _bind(address: TcpAddress) -> tuple[socket, socket]:
    """Return a TCP and a UDP socket on one port."""
    family = AF_INET6 if ":" in address.host else AF_INET
    for attempt in range(PORT_ATTEMPTS):
        tcp, udp = socket(family, SOCK_STREAM), socket(family, SOCK_DGRAM)
        try:
            tcp.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            tcp.bind((address.host, address.port))
            udp.bind((address.host, tcp.getsockname()[1]))
        except OSError:
            tcp.close()
            udp.close()
            if address.port or attempt == PORT_ATTEMPTS - 1:
                raise
        else:
            return tcp, udp
    raise AssertionError("the loop returns or raises")


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Return the next query of a connection; empty if it is too long."""
    async with asyncio.timeout(IDLE_S):
        (size_bytes,) = struct.unpack("!H", await reader.readexactly(2))
        if size_bytes > MAX_QUERY_BYTES:
            return b""
        return await reader.readexactly(size_bytes)


class _Udp(asyncio.DatagramProtocol):
    """Passes packets on. Errors, such as of a client that has gone, need no answer."""

    def __init__(self, received: Callable[[bytes, Any], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._received(data, addr)
