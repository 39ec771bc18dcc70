"""Several clients of single-writer files on one engine and the same stores, in virtual time.

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        async with a.files.create("x") as file:
            await file.write(b"data")
        b.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        ...

    play(scene)

Each machine has its own way to the engine and to the stores, and can be stopped: at once, or at one
of its calls. The engine is the shipped one. After each scene the keys must agree with each other
and with the stores.
"""

import asyncio
import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from leasehold.engine.embedded import EmbeddedEngine
from leasehold.engine.interface import Engine, prefix_end
from leasehold.engine.values import KeyValue
from leasehold.files.file_keys import (
    BLOCKS,
    DIRENTS,
    FILES,
    HOLDERS,
    OPEN_FILES,
    RECORDS,
    RECOVERIES,
    TRASH,
    WORKERS,
    blocks_of,
    decode_block,
    decode_record,
    dirent_key,
    id_in,
    record_key,
    recovery_key,
    trash_key,
)
from leasehold.files.monitor import Monitor
from leasehold.files.replica_store import ReplicaStore, StoredObject
from leasehold.files.state import ROOT, Block, Checksums, FileRecord, FileState, Replica, store_id
from leasehold.files.writer import FileWriter
from leasehold.sessions.lease_keeper import Keeper
from leasehold.testing import Host, Simulation
from tests.simulation import far_disk
from tests.support.faulty_engine import FaultyEngine
from tests.support.kept_writers import FilesKeepingWriters
from tests.support.memory_stores import MemoryStores

T = TypeVar("T")

WITHIN_S: Final = 1e6
"""How long a scene may take, in virtual time."""

APPENDING: Final = ("/1", "/2", "/3")
"""Stores that can append to objects."""

PIECES: Final = ("mem://1", "mem://2", "mem://3")
"""Stores that cannot."""

SOFT_S: Final = 60.0
HARD_S: Final = 1200.0


class MachineEngine(FaultyEngine):
    """The way of a machine to the engine."""

    def __init__(self, shared: Engine, machine: "Machine") -> None:
        super().__init__(shared)
        self._machine = machine

    async def _call(self, name: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._machine.before(name)
        answer = await super()._call(name, call)
        await self._machine.after()
        return answer


class MachineStore:
    """The way of a machine to a store."""

    def __init__(self, machine: "Machine", store: ReplicaStore) -> None:
        self._machine = machine
        self._store = store
        self.id = store.id
        self.url = store.url
        self.appends = store.appends

    @property
    def keyspace(self) -> str:
        """The keyspace that it must belong to."""
        return self._store.keyspace

    @keyspace.setter
    def keyspace(self, keyspace: str) -> None:
        self._store.keyspace = keyspace

    async def append(self, name: str, offset: int, data: bytes, *, sync: bool = True) -> None:
        """Write data at an offset of an object."""
        await self._call("append", name, self._store.append(name, offset, data, sync=sync))

    async def put(self, name: str, data: bytes) -> None:
        """Write a whole object."""
        await self._call("put", name, self._store.put(name, data))

    async def read(self, name: str, start: int, length: int) -> bytes:
        """Return bytes from `start`."""
        return await self._call("read", name, self._store.read(name, start, length))

    async def size(self, name: str) -> int | None:
        """Return the size of an object."""
        return await self._call("size", name, self._store.size(name))

    async def list(self, after: str, limit: int) -> builtins.list[StoredObject]:
        """Return objects in order."""
        return await self._call("list", "", self._store.list(after, limit))

    async def delete(self, name: str) -> None:
        """Delete an object."""
        await self._call("delete", name, self._store.delete(name))

    async def close(self) -> None:
        """Close it."""
        await self._store.close()

    async def _call(self, method: str, name: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            await self._machine.before(method)
            if name in self._machine.hanging:
                await asyncio.get_running_loop().create_future()
        except BaseException:
            work.close()
            raise
        answer = await work
        await self._machine.after()
        return answer


class Machine:
    """A client of files. It can be stopped, so that none of its calls is executed or answered."""

    def __init__(self, stage: "FilesStage", name: str) -> None:
        self.name = name
        self._stage = stage
        self.engine = MachineEngine(stage.engine, self)
        self.keeper = Keeper(self.engine, stage.host.clock, stage.random)
        self.files = FilesKeepingWriters(
            self.engine,
            self.keeper,
            name,
            clock=stage.host.clock,
            random=stage.random,
            open_store=self._open_store,
        )
        self.steps: builtins.list[str] = []
        """The calls to the engine and to stores, by name."""
        self.is_stopped = False
        self._stop: tuple[int, bool] | None = None
        self.on_step: Callable[[str], Awaitable[None]] | None = None
        """Awaited before each call."""
        self.hanging: set[str] = set()
        """Objects of stores whose calls are not answered."""

    def _open_store(self, store_id: str, url: str) -> ReplicaStore:
        return MachineStore(self, self._stage.stores.open(store_id, url))

    def stop(self) -> None:
        """Execute and answer no further call: a machine that is gone, or that wakes up later."""
        self.is_stopped = True

    def stop_at(self, number: int, *, is_executed: bool) -> None:
        """Stop at a call, the next being number 1; that one may still be executed."""
        self._stop = (len(self.steps) + number, is_executed)

    def wake(self) -> None:
        """Go on. The calls that were stopped stay without an answer."""
        self.is_stopped = False
        self._stop = None

    async def before(self, name: str) -> None:
        """Begin a call."""
        await self._hang_if_stopped()
        if self.on_step is not None:
            await self.on_step(name)
        self.steps.append(name)
        if self._stop is not None and len(self.steps) >= self._stop[0]:
            self.is_stopped = True
            if not self._stop[1]:
                await self._hang_if_stopped()

    async def after(self) -> None:
        """End a call."""
        await self._hang_if_stopped()

    async def _hang_if_stopped(self) -> None:
        if self.is_stopped:
            await asyncio.get_running_loop().create_future()

    async def read(self, path: str) -> bytes:
        """Return what a reader of this machine finds in a file."""
        async with self.files.open(path) as reader:
            return await reader.read()

    async def put(self, path: str, data: bytes = b"data") -> None:
        """Create a file."""
        async with self.files.create(path) as file:
            await file.write(data)

    @asynccontextmanager
    async def monitored(self, **options: Any) -> AsyncIterator[Monitor]:
        """Run a monitor on this machine."""
        monitor = Monitor(self.files.namespace, self.files.recoverer, **options)
        monitor.start()
        try:
            yield monitor
        finally:
            await monitor.close()

    async def close(self) -> None:
        """Close the client in order."""
        await self.files.close()
        await self.keeper.close()
        await self.engine.close()


class FilesStage:
    """An engine, stores, and machines."""

    def __init__(
        self, host: Host, engine: EmbeddedEngine, random: Random, stores: MemoryStores
    ) -> None:
        self.host = host
        self.engine = engine
        self.random = random
        self.stores = stores
        self.machines: list[Machine] = []

    def machine(self, name: str) -> Machine:
        """Add a machine."""
        machine = Machine(self, name)
        self.machines.append(machine)
        return machine

    @property
    def now(self) -> float:
        """The virtual time."""
        return self.host.clock.monotonic()

    # Keys.

    def keys(self, prefix: bytes = FILES) -> dict[bytes, KeyValue]:
        """Return the keys with a prefix."""
        found = self.engine._store.keyspace.range(prefix, prefix_end(prefix))
        return {pair.key: pair for pair in map(KeyValue, found)}

    def leases(self) -> int:
        """Count the leases."""
        return len(self.engine._store.leases.table)

    def record(self, file_id: str) -> FileRecord:
        """Return the record of a file."""
        return decode_record(self.keys(RECORDS)[record_key(file_id)].value)

    def blocks(self, file_id: str) -> list[Block]:
        """Return the blocks of a file."""
        return [decode_block(pair.value) for pair in self.keys(blocks_of(file_id)).values()]

    def bytes_of(self, url: str, file_id: str) -> list[tuple[str, bytes]]:
        """Return the objects of a file in a store, by name."""
        objects = self.stores.objects[url]
        return [(name, objects[name]) for name in sorted(objects) if name[3:35] == file_id]

    def objects_of(self, block: Block) -> dict[str, bytes]:
        """Return the flushed bytes that each replica of a block has, by the URL of its store."""
        return {url_of(each): self._data(each)[: block.length] for each in block.replicas}

    def _data(self, replica: Replica) -> bytes:
        objects = self.stores.objects[url_of(replica)]
        return b"".join(objects.get(name, b"") for name in replica.objects())

    # Rules that always hold.

    def check(self, *, with_stores: bool = True) -> None:
        """Check that the keys agree with each other, and that closed files have their bytes."""
        records = {
            id_in(key, RECORDS): decode_record(pair.value)
            for key, pair in self.keys(RECORDS).items()
        }
        entries = self.keys(DIRENTS)
        trash = self.keys(TRASH)
        opened = {id_in(key, OPEN_FILES) for key in self.keys(OPEN_FILES)}
        for file_id, record in records.items():
            if record.is_directory and trash_key(file_id) in trash:
                continue
            entry = entries.get(dirent_key(record.parent, record.name))
            assert entry is not None, f"{record.name} has no entry"
            assert entry.value[1:].decode() == file_id
            if not record.is_directory:
                self._check_file(file_id, record, opened, with_stores=with_stores)
        for key, entry in entries.items():
            assert entry.value[1:].decode() in records, f"{key!r} leads nowhere"
            parent = id_in(key, DIRENTS).partition("/")[0]
            assert parent == ROOT or records[parent].is_directory
        for each in opened:
            holder, _, file_id = each.partition("/")
            record = records[file_id]
            assert (record.state, record.holder) == (FileState.OPEN, holder)
        for key in self.keys(RECOVERIES):
            assert records[id_in(key, RECOVERIES)].state == FileState.RECOVERING
        for key in self.keys(WORKERS):
            assert records[id_in(key, WORKERS)].state == FileState.RECOVERING
        for key in self.keys(BLOCKS):
            file_id = id_in(key, BLOCKS).partition("/")[0]
            assert file_id in records or trash_key(file_id) in trash, f"{key!r} is left behind"

    def _check_file(
        self, file_id: str, record: FileRecord, opened: set[str], *, with_stores: bool
    ) -> None:
        blocks = self.blocks(file_id)
        sealed = blocks[: record.blocks]
        assert record.length == sum(block.length for block in sealed)
        match record.state:
            case FileState.OPEN:
                assert f"{record.holder}/{file_id}" in opened
                assert len(blocks) in (record.blocks, record.blocks + 1)
            case FileState.RECOVERING:
                assert recovery_key(file_id) in self.keys(RECOVERIES)
            case FileState.CLOSED:
                assert len(blocks) == record.blocks
                assert not record.holder
                assert all(block.length for block in blocks), "an empty block is published"
        for block in sealed if with_stores else ():
            for url, data in self.objects_of(block).items():
                checks = Checksums()
                checks.add(data)
                assert (checks.length, checks.value()) == (block.length, block.checksums), url


def url_of(replica: Replica) -> str:
    """Return the URL of the store of a replica."""
    return URLS[replica.store]


URLS: Final = {store_id(url): url for url in (*APPENDING, *PIECES, "/4", "/5", "mem://4")}
Scene: TypeAlias = Callable[[FilesStage], Awaitable[None]]


def play(
    *scenes: Scene,
    seed: int = 0,
    stores: tuple[str, ...] = APPENDING,
    with_stores: bool = True,
    leaves: tuple[bytes, ...] = (),
    **options: Any,
) -> None:
    """Run scenes in virtual time; between two, the server and all machines crash and restart.

    `options` are those of `Files.configure`. In the end there must be no holder, worker or open
    file, except for keys that begin with one of `leaves`.
    """
    with Simulation(seed) as sim:
        host = sim.host("main")
        kept = MemoryStores(host.clock)
        image: bytes | None = None
        for number, scene in enumerate(scenes):
            engine = far_disk.open_engine(host, Random(f"{seed} {number}"), image)
            stage = FilesStage(host, engine, Random(f"{seed} {number} stage"), kept)

            async def main(stage: FilesStage = stage, scene: Scene = scene) -> None:
                await _configure(stage, stores, options)
                await scene(stage)
                stage.check(with_stores=with_stores)

            _run(sim, host, main)
            if scene is not scenes[-1]:
                image = far_disk.image_of(engine)
                host.crash()
                host.restart()
                continue

            async def end(stage: FilesStage = stage) -> None:
                for machine in stage.machines:
                    if not machine.is_stopped:
                        await machine.close()
                stage.check(with_stores=with_stores)
                gone = [each for each in (HOLDERS, OPEN_FILES, WORKERS) if each not in leaves]
                is_any_stopped = any(machine.is_stopped for machine in stage.machines)
                for prefix in [] if is_any_stopped else gone:
                    assert not stage.keys(prefix), "a key was left behind"

            _run(sim, host, end)
            engine.discard()


async def _configure(stage: FilesStage, stores: tuple[str, ...], options: dict[str, Any]) -> None:
    machine = Machine(stage, "operator")
    await machine.files.configure(add=stores, **options)
    await machine.close()


def _run(sim: Simulation, host: Host, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    task = host.start(main)
    sim.run_until(task.done, within=WITHIN_S)
    task.result()


# Beginnings of scenes.


async def open_file(machine: Machine, path: str = "x", data: bytes = b"flushed") -> FileWriter:
    """Create a file, flush some bytes, and leave it open."""
    file = await machine.files.create(path)
    await file.write(data)
    await file.flush()
    return file


async def silent(machine: Machine, elapsed_s: float = SOFT_S + 1) -> None:
    """Let a machine send nothing for a while."""
    machine.stop()
    await asyncio.sleep(elapsed_s)


def blocked(machine: Machine, name: str) -> asyncio.Event:
    """Let the calls with a name wait until the event is set."""
    event = asyncio.Event()

    async def wait(called: str) -> None:
        if called == name:
            await event.wait()

    machine.on_step = wait
    return event


async def abandoned(
    stage: FilesStage, machine: Machine, flushed: bytes = b"flushed", sent: bytes = b""
) -> FileWriter:
    """Write a file, and stop: with bytes that were flushed, and some that were only sent."""
    file = await machine.files.create("x")
    await file.write(flushed)
    await file.flush()
    if sent:
        await file.write(sent)

        async def stop_at_txn(name: str) -> None:
            if name == "txn":
                machine.stop()
                await asyncio.get_running_loop().create_future()

        machine.on_step = stop_at_txn
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(1)
        assert machine.is_stopped
        flushing.cancel()
        machine.on_step = None
    machine.stop()
    return file


def last_object(stage: FilesStage, url: str, file: FileWriter) -> str:
    """The name of the last object of a file in a store."""
    return stage.bytes_of(url, file.id)[-1][0]


async def settled(machine: Machine, path: str = "x") -> None:
    """Ask for the recovery until the file is closed."""
    for _ in range(100):
        if await machine.files.recover(path):
            return
        await asyncio.sleep(5)
    raise AssertionError("it is not recovered")
