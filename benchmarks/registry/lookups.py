"""Lookups in a registry with a given number of items, over a connection, for a fixed time.

The items are written as keys, many in a transaction: a million registrations, each with a lease of
its own, would take longer than everything else. Each type, and each value of the attribute, is that
of `MATCHES` items, however many there are: the number of matches stays the same.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final
from uuid import UUID

import leasehold
from benchmarks.common.processes import cpu_s_of, settled_bytes
from benchmarks.common.progress import tell
from benchmarks.common.stats import quantile
from benchmarks.etcd.servers import OURS, Server, running
from leasehold.engine.interface import Engine
from leasehold.errors import Status
from leasehold.grpc.channel import Channel
from leasehold.grpc.protocol import RpcError
from leasehold.keyspace.operations import Put
from leasehold.registry.messages import item_key, stored_item, template_message
from leasehold.registry.state import Item, ItemVersion, ServiceType, Template, attribute_set
from leasehold.wire import registry_pb2 as pb

MATCHES: Final = 10
LEASE_S: Final = 7200.0
PUTS: Final = 100
"""Items written in one transaction."""
KEYS_PER_LEASE: Final = 10_000
CONCURRENT_LOOKUPS: Final = 16
"""Lookups under way."""
LOAD_S: Final = 300.0
"""How long the server may take to load the items."""

LOOKUP: Final = "/leasehold.v1.Registry/Lookup"


@dataclass(frozen=True)
class LookupCell:
    """The number of items, and what they are looked up by."""

    items: int
    by: str
    is_stale: bool = False
    server: str = OURS


@dataclass(frozen=True)
class LookupSample:
    """What one measurement has found."""

    per_s: float
    server_us: float
    """Processor time of the server for one lookup."""
    p50_ms: float
    p99_ms: float


def item(number: int, count: int) -> Item:
    """Return one of `count` items."""
    group = number % max(1, count // MATCHES)
    place = attribute_set("bench.Place", {"room": group, "desk": number})
    return Item(
        str(UUID(int=number)),
        (ServiceType(f"bench.Type{group}"),),
        (place,),
        f"10.0.{number >> 8 & 255}.{number & 255}:8080",
    )


TEMPLATES: Final[dict[str, Callable[[int, int], Template]]] = {
    "id": lambda number, _: Template(str(UUID(int=number))),
    "type": lambda number, count: Template(types=item(number, count).types),
    "attribute": lambda number, count: Template(
        attributes=(attribute_set("bench.Place", {"room": number % max(1, count // MATCHES)}),)
    ),
}


@asynccontextmanager
async def registry_of(count: int, directory: Path) -> AsyncIterator[tuple[Server, Channel, float]]:
    """Start a server with so many items; also return its memory for each of them, in bytes."""
    with running(OURS, directory) as server:
        async with leasehold.connect(f"127.0.0.1:{server.port}") as client:
            tell(f"writing {count:,} items")
            await _write(client.engine, count)
        async with Channel(f"127.0.0.1:{server.port}") as channel:
            before = await asyncio.to_thread(settled_bytes, server.pid)
            await _loaded(channel, count)
            after = await asyncio.to_thread(settled_bytes, server.pid)
            yield server, channel, (after - before) / count


async def _write(engine: Engine, count: int) -> None:
    lease = 0
    for first in range(0, count, PUTS):
        if first % KEYS_PER_LEASE == 0:
            lease = (await engine.grant(LEASE_S)).id
        versions = [
            ItemVersion(item(number, count), f"{number:016x}", lease, 0.0, 0)
            for number in range(first, min(count, first + PUTS))
        ]
        await engine.txn(
            success=[Put(item_key(each.item.id), stored_item(each), lease) for each in versions]
        )


async def _loaded(channel: Channel, count: int) -> None:
    """Wait until the server has all items in its index."""
    message = pb.LookupRequest(template=pb.ItemTemplate(attributes=[{"kind": "bench.Place"}]))
    async with asyncio.timeout(LOAD_S):
        while True:
            try:
                answer = await channel.unary(LOOKUP, message.SerializeToString())
            except RpcError as error:
                if error.status is not Status.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.25)  # it is loading
                continue
            found = pb.LookupResponse.FromString(answer).total
            if found != count:
                raise AssertionError(f"the registry has {found:,} of {count:,} items")
            return


async def measure(
    server: Server, channel: Channel, cell: LookupCell, seconds: float, random: Random
) -> LookupSample:
    """Make lookups for so many seconds."""
    took_s: list[float] = []
    began, cpu_s = perf_counter(), cpu_s_of(server.pid)
    until = began + seconds

    async def look_up() -> None:
        while perf_counter() < until:
            template = TEMPLATES[cell.by](random.randrange(cell.items), cell.items)
            request = pb.LookupRequest(
                template=template_message(template), limit=2 * MATCHES, stale=cell.is_stale
            )
            sent_at = perf_counter()
            answer = pb.LookupResponse.FromString(
                await channel.unary(LOOKUP, request.SerializeToString())
            )
            took_s.append(perf_counter() - sent_at)
            expected = 1 if cell.by == "id" else MATCHES
            if not len(answer.items) == answer.total == expected:
                raise AssertionError(f"{template} has {answer.total} matches, not {expected}")

    await asyncio.gather(*(look_up() for _ in range(CONCURRENT_LOOKUPS)))
    elapsed_s = perf_counter() - began
    return LookupSample(
        len(took_s) / elapsed_s,
        1e6 * (cpu_s_of(server.pid) - cpu_s) / len(took_s),
        1e3 * quantile(took_s, 0.5),
        1e3 * quantile(took_s, 0.99),
    )
