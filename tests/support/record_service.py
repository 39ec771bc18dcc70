"""Servers with a service on leased records, which notes what happens to them; in virtual time.

async def scene(world: World) -> None:
    server = await start_local(world)
    record = await server.create(10.0)
    ...

play_services(scene)
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from leasehold.basics.durations import DurationLike
from leasehold.clock import Clock
from leasehold.engine.interface import Engine, prefix_end
from leasehold.errors import EndReason
from leasehold.keyspace.operations import Put
from leasehold.leases.policies import DurationPolicy
from leasehold.services.elected_shards import ElectedShards
from leasehold.services.leased_record import LeasedRecord
from leasehold.services.leased_records import LeasedRecords
from leasehold.services.shards import COUNT_KEY, LocalShards, Shards
from tests.support.faulty_engine import FaultyEngine, World, play

Rows: TypeAlias = dict[bytes, bytes]
Record: TypeAlias = LeasedRecord[Rows]

NAME = "notes"
ALL = b"leasehold/notes/"


class NotingService:
    """Notes what it is told; the state of a record is its rows."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.running: dict[str, Record] = {}
        self.on_stopped: Callable[[Record], object] = lambda _: None

    def load(self, record: Record, rows: Mapping[bytes, bytes]) -> Rows:
        return dict(rows)

    def started(self, record: Record) -> None:
        assert record.id not in self.running, "a record is started once"
        self.running[record.id] = record
        self.notes.append(("started", record.id))

    def renewed(self, record: Record) -> None:
        assert record.id in self.running
        self.notes.append(("renewed", record.id))

    def stopped(self, record: Record, reason: EndReason | None) -> None:
        assert self.running.pop(record.id) is record
        self.on_stopped(record)
        self.notes.append(("unloaded" if reason is None else str(reason), record.id))

    def of(self, record_id: str) -> list[str]:
        """Return what happened to a record."""
        return [note for note, each in self.notes if each == record_id]


class ServiceProcess:
    """One server with one service."""

    def __init__(self, engine: Engine, shards: Shards, clock: Clock, **options: Any) -> None:
        self.engine = engine
        self.shards = shards
        self.service = NotingService()
        self.records: LeasedRecords[Rows] = LeasedRecords(
            engine,
            shards,
            NAME,
            self.service,
            DurationPolicy(7200.0, 3600.0),
            clock=clock,
            **options,
        )

    async def create(self, term: DurationLike, **rows: bytes) -> Record:
        """Create a record with some plain keys."""

        def steps(key: bytes) -> list[Put]:
            return [Put(key + b"/" + name.encode(), value) for name, value in rows.items()]

        record, _ = await self.records.create(term, steps)
        record.state.update({name.encode(): value for name, value in rows.items()})
        return record

    async def put(self, record: Record, name: bytes, value: bytes) -> None:
        """Write a plain key, and change the state accordingly."""
        async with record.lock:
            done = await self.records.write(record, [Put(record.key + b"/" + name, value)])
            assert done.succeeded
            record.state[name] = value

    @property
    def shard_numbers(self) -> set[int]:
        """Return the shards that it owns by the clock."""
        return {ownership.number for ownership in self.shards.all_owned}

    async def close(self) -> None:
        await self.shards.close()
        await self.records.close()


async def start_local(world: World, engine: Engine | None = None, **options: Any) -> ServiceProcess:
    """Start a server that owns all shards."""
    engine = engine or world.engine
    shards = LocalShards(engine, random=world.random)
    server = ServiceProcess(engine, shards, world.host.clock, random=world.random, **options)
    await shards.start([server.records])
    await shards.store_count()
    return server


async def start_elected(
    world: World, name: str, *, ttl_s: float = 10.0, clock: Clock | None = None
) -> ServiceProcess:
    """Start one of several servers; its engine is a `FaultyEngine`."""
    engine, clock = FaultyEngine(world.engine), clock or world.host.clock
    shards = ElectedShards(
        engine, f"{name}:1", server=name, ttl_s=ttl_s, clock=clock, random=world.random
    )
    server = ServiceProcess(engine, shards, clock, random=world.random)
    await shards.start([server.records])
    return server


def faulty(server: ServiceProcess) -> FaultyEngine:
    """Return the engine of a server whose connection a test can trouble."""
    assert isinstance(server.engine, FaultyEngine)
    return server.engine


def keys_of(world: World) -> list[bytes]:
    """Return the keys of the service, in order."""
    return sorted(pair.key for pair in world.pairs(ALL))


def play_services(scene: Callable[[World], Awaitable[None]], seed: int = 0) -> None:
    """Run a scene in virtual time; it must leave no lease, and only the number of shards."""

    async def whole(world: World) -> None:
        await scene(world)
        await asyncio.sleep(1.0)
        await world.engine.delete(COUNT_KEY)

    play(whole, seed)


async def wipe(world: World) -> None:
    """Delete the keys of the service that a scene has left on purpose."""
    for pair in world.pairs(ALL):
        if pair.lease:
            await world.engine.revoke(pair.lease)
    await world.engine.delete(ALL, prefix_end(ALL))
