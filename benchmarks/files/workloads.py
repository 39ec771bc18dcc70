"""What is measured of single-writer files: appends, opening and closing, recovery."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import leasehold
from benchmarks.etcd.servers import OURS, running
from leasehold.files.client import Files
from leasehold.files.monitor import Monitor
from leasehold.files.recovery import Recoverer
from leasehold.files.writer import FileWriter
from leasehold.sessions.lease_keeper import Keeper

PLAIN: Final = "plain"
"""Files written with `write` and `fdatasync`, without Leasehold."""

LEASED: Final = "Leasehold"

RECOVERED_BYTES: Final = 1_000
"""Flushed bytes of each file that is recovered."""


@dataclass(frozen=True)
class AppendCell:
    """Appends of one size, each flushed, to a number of replicas, and to files at the same time."""

    how: str
    replicas: int
    size_bytes: int
    files: int = 1


@dataclass(frozen=True)
class OpenCell:
    """One way to open and close a file."""

    what: str
    replicas: int


@dataclass(frozen=True)
class RecoveryCell:
    """The recovery of all files of a holder that is gone."""

    files: int


@dataclass(frozen=True)
class Rate:
    """Operations per second."""

    per_s: float


@asynccontextmanager
async def files_of(directory: Path, replicas: int) -> AsyncIterator[tuple[Files, leasehold.Client]]:
    """Start a server, and connect a client with files in so many directories."""
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    with running(OURS, directory) as server:
        async with leasehold.connect(f"127.0.0.1:{server.port}") as client:
            keeper = Keeper(client.engine)
            files = Files(client.engine, keeper, "bench")
            stores = [str(directory / f"replica-{number}") for number in range(replicas)]
            await files.configure(add=stores, replicas=replicas)
            try:
                yield files, client
            finally:
                await files.close()
                await keeper.close()


async def append_plain(directory: Path, cell: AppendCell, count: int) -> Rate:
    """Append to plain files, each in a thread, one replica after the other, each write synced."""
    data = os.urandom(cell.size_bytes)
    paths = [
        [directory / f"plain-{file}-{number}" for number in range(cell.replicas)]
        for file in range(cell.files)
    ]

    def write(replicas: list[Path]) -> None:
        with ExitStack() as opened:
            handles = [
                opened.enter_context(path.open("ab", buffering=0)).fileno() for path in replicas
            ]
            for _ in range(count):
                for handle in handles:
                    os.write(handle, data)
                    os.fdatasync(handle)

    begun = time.perf_counter()
    await asyncio.gather(*(asyncio.to_thread(write, each) for each in paths))
    rate = Rate(cell.files * count / (time.perf_counter() - begun))
    for path in chain.from_iterable(paths):
        path.unlink()
    return rate


async def append_leased(files: Files, cell: AppendCell, count: int) -> Rate:
    """Append to files at the same time, each write flushed."""
    data = os.urandom(cell.size_bytes)

    async def write(file: FileWriter, times: int) -> None:
        for _ in range(times):
            await file.write(data)
            await file.flush()

    async with AsyncExitStack() as opened:
        writers = [
            await opened.enter_async_context(files.create(f"append/{number}"))
            for number in range(cell.files)
        ]
        await asyncio.gather(*(write(each, 1) for each in writers))
        begun = time.perf_counter()
        await asyncio.gather(*(write(each, count) for each in writers))
        rate = Rate(cell.files * count / (time.perf_counter() - begun))
    await files.delete("append", recursive=True)
    return rate


async def _create(files: Files, number: int) -> None:
    async with files.open(f"opened/{number}", "xb"):
        pass


async def _write(files: Files, number: int) -> None:
    async with files.open(f"opened/{number}", "xb") as file:
        await file.write(b"x" * 100)


async def _append(files: Files, number: int) -> None:
    async with files.open(f"opened/{number}", "ab") as file:
        await file.write(b"x" * 100)


async def _read(files: Files, number: int) -> None:
    async with files.open(f"opened/{number}") as file:
        assert await file.read()


async def _delete(files: Files, number: int) -> None:
    await files.delete(f"opened/{number}")


OPENINGS: Final[dict[str, Callable[[Files, int], Awaitable[None]]]] = {
    "create, close": _create,
    "delete": _delete,
    "create, write 100 bytes, close": _write,
    "append 100 bytes, close": _append,
    "open, read, close": _read,
    "delete ": _delete,
}
"""In the order in which they are measured: each uses the files of the one before."""


async def open_and_close(files: Files, what: str, count: int) -> Rate:
    """Open and close files, one after the other."""
    use = OPENINGS[what]
    begun = time.perf_counter()
    for number in range(count):
        await use(files, number)
    return Rate(count / (time.perf_counter() - begun))


async def recover(files: Files, client: leasehold.Client, count: int) -> Rate:
    """Let a holder with open files end, and a monitor close them."""
    keeper = Keeper(client.engine)
    lost = Files(client.engine, keeper, "lost")
    writers: list[FileWriter] = []
    for number in range(count):
        file = await lost.create(f"lost/{count}/{number}")
        await file.write(b"x" * RECOVERED_BYTES)
        await file.flush()
        writers.append(file)
    await lost.holder.close()  # the lease ends, and the files stay open
    worker = Keeper(client.engine)
    recoverer = Recoverer(files.namespace, files.stores, files.known_config, worker)
    monitor = Monitor(files.namespace, recoverer)
    begun = time.perf_counter()
    while recoverer.recovered < count:
        await monitor.make_pass()
    took_s = time.perf_counter() - begun
    await recoverer.close()
    await worker.close()
    await lost.close()
    await keeper.close()
    await files.delete("lost", recursive=True)
    return Rate(count / took_s)
