"""Files on an embedded engine and stores in memory, in virtual time, for one process at a time.

with UpkeepStage() as stage:
    file_id = stage.write("logs/a", b"data")
    stage.run(stage.collector.make_pass)
    assert stage.keys(TRASH) == {}
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from leasehold.engine.interface import prefix_end
from leasehold.engine.values import KeyValue
from leasehold.files.client import Files
from leasehold.files.collector import Collector
from leasehold.files.file_keys import (
    TRASH,
    UndecodableValue,
    blocks_of,
    decode_block,
    decode_record,
    decode_trash,
    encode_trash,
    record_key,
)
from leasehold.files.state import Block, FileRecord, store_id
from leasehold.files.threaded_store import OWNER
from leasehold.files.writer import FileWriter
from leasehold.sessions.lease_keeper import Keeper
from leasehold.testing import Simulation
from tests.simulation.far_disk import open_engine
from tests.support.faulty_engine import FaultyEngine
from tests.support.kept_writers import FilesKeepingWriters
from tests.support.memory_stores import MemoryStores

T = TypeVar("T")

WITHIN_S: Final = 1e6
"""How long a call may take, in virtual time."""

URLS: Final = ("/a", "/b", "/c")


class UpkeepStage:
    """An engine, stores, and one client."""

    def __init__(self, urls: Sequence[str] = URLS, seed: int = 0, **config: Any) -> None:
        """`config` is given to `Files.configure`."""
        self.sim = Simulation(seed=seed)
        self.host = self.sim.host("client")
        self.engine = open_engine(self.host, self.sim.random, None)
        self.stores = MemoryStores(self.host.clock)
        self.host.call(self._make)
        self.run(self.files.configure, add=urls, **config)

    def _make(self) -> None:
        self.faulty = FaultyEngine(self.engine)
        self.keeper = Keeper(self.faulty, self.host.clock, self.sim.random)
        self.files = self.another("client")
        self.collector = Collector(self.files.namespace, self.files.stores, self.files.config)

    def another(self, name: str, **options: Any) -> Files:
        """Make another client; on the host."""
        options = {"open_store": self.stores.open, **options}
        clock, random = self.host.clock, self.sim.random
        return FilesKeepingWriters(
            self.faulty, self.keeper, name, clock=clock, random=random, **options
        )

    def __enter__(self) -> Self:
        self.sim.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.run(self.files.close)
            self.run(self.keeper.close)
        self.sim.__exit__(kind, error, traceback)
        self.engine.discard()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **named: Any) -> T:
        """Run a coroutine function on the host."""

        async def call() -> T:
            return await function(*args, **named)

        task = self.host.start(call)
        self.sim.run_until(task.done, within=WITHIN_S)
        return task.result()

    def pass_time(self, seconds: float) -> None:
        """Let virtual time pass. Trash counts from now, as if a collector had just seen it."""
        for key, value in self.keys(TRASH).items():
            with suppress(UndecodableValue):
                trash = decode_trash(value)
                if not trash.since_ms:
                    seen = replace(trash, since_ms=self.files.namespace.now_ms)
                    self.put(key, encode_trash(seen))
        self.sim.run_for(seconds)

    def collect(self, passes: int = 1_000) -> int:
        """Make passes of the collector until nothing is left; return their number."""
        for number in range(1, passes + 1):
            if not self.run(self.collector.make_pass):
                return number
        raise AssertionError(f"there is work left after {passes} passes")

    # Files.

    def write(self, path: str, *parts: bytes) -> str:
        """Create a file, with a flush after each part; return its id."""

        async def write() -> str:
            async with self.files.create(path) as file:
                for part in parts:
                    await file.write(part)
                    await file.flush()
                return file.id

        return self.run(write)

    def open(self, path: str, *parts: bytes) -> FileWriter:
        """Create a file and leave it open, with a flush after each part."""

        async def write() -> FileWriter:
            file = await self.files.create(path)
            for part in parts:
                await file.write(part)
                await file.flush()
            return file

        return self.run(write)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""

        async def read() -> bytes:
            async with self.files.open(path) as file:
                return await file.read()

        return self.run(read)

    # Keys and objects.

    def keys(self, prefix: bytes) -> dict[bytes, bytes]:
        """Return the keys with a prefix, and their values."""
        found = self.engine._store.keyspace.range(prefix, prefix_end(prefix))
        return {pair.key: pair.value for pair in map(KeyValue, found)}

    def put(self, key: bytes, value: bytes) -> None:
        """Write a key."""
        self.run(self.faulty.put, key, value)

    def record(self, file_id: str) -> FileRecord:
        """Return the record of a file."""
        return decode_record(self.keys(record_key(file_id))[record_key(file_id)])

    def blocks(self, file_id: str) -> list[Block]:
        """Return the blocks of a file."""
        return [decode_block(value) for value in self.keys(blocks_of(file_id)).values()]

    def objects(self, url: str) -> list[str]:
        """Return the names of the objects of a store with data."""
        return sorted(set(self.stores.objects[url]) - {OWNER})

    def all_objects(self) -> set[tuple[str, str]]:
        """Return the objects of all stores with data: URLs and names."""
        return {
            (url, name)
            for url, objects in self.stores.objects.items()
            for name in objects
            if name != OWNER
        }

    def named_by(self, file_id: str) -> set[tuple[str, str]]:
        """Return the objects that the blocks of a file name."""
        urls = {store_id(url): url for url in self.stores.objects}
        return {
            (urls[replica.store], name)
            for block in self.blocks(file_id)
            for replica in block.replicas
            for name in replica.objects()
        }
