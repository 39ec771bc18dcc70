"""Single-writer files on any engine, in local directories."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from leasehold import Client
from leasehold.engine.interface import Engine
from leasehold.errors import (
    DirectoryNotEmpty,
    FileAlreadyOpen,
    FileExists,
    FileNotFound,
    LeaseExpired,
    LeaseholdError,
)
from leasehold.files.client import Files
from leasehold.files.monitor import Monitor
from tests.engines.conftest import Place
from tests.support.asynchronous import asynchronous
from tests.support.faulty_engine import Fault, FaultyEngine

LONG_S = 1000.0
"""Limits that no starved test reaches."""


class Directory:
    """The files of one test: below a directory of their own, in stores of their own."""

    def __init__(self, place: Place, stores: list[str]) -> None:
        self._prefix = place.prefix.decode().strip("/")
        self.stores = stores
        for url in stores:
            Path(url).mkdir()

    def __call__(self, path: str = "") -> str:
        return f"{self._prefix}/{path}"

    def objects(self) -> list[list[Path]]:
        """The objects in each store."""
        return [
            [path for path in Path(url).rglob("*-*-*") if path.is_file()] for url in self.stores
        ]


@asynccontextmanager
async def clients(
    place: Place, tmp_path: Path, *names: str, soft_s: float = LONG_S, hard_s: float = LONG_S
) -> AsyncIterator[tuple[Directory, list[Files]]]:
    """Have clients, each with a connection of its own where there are any."""
    made: list[Client] = []
    engine: Engine | None = None
    stores = [str(tmp_path / f"store{number}") for number in range(3)]
    directory = Directory(place, stores)
    async with AsyncExitStack() as stack:
        for name in names:
            if engine is None or place.is_remote:
                engine = await stack.enter_async_context(place.open())
            client = Client(FaultyEngine(engine), name=name)
            stack.push_async_callback(client.close)
            made.append(client)
        files = [client.files for client in made]
        # The keyspace may have the stores of an earlier test: they are gone.
        old = [store.url for store in (await files[0].config()).stores]
        await files[0].configure(
            add=stores, remove=old, soft_limit=soft_s, hard_limit=hard_s, replicas=3
        )
        yield directory, files
        await files[0].delete(directory(), recursive=True)


async def read(files: Files, path: str) -> bytes:
    """All flushed bytes of a file."""
    async with files.open(path) as reader:
        return await reader.read()


@asynchronous
async def test_create_append_flush_and_read(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a", "b") as (at, (a, b)):
        file = await a.create(at("logs/x"))
        await file.write(b"one ")
        await file.flush()
        await file.write(b"two ")
        async with b.open(at("logs/x")) as reader:
            assert await reader.read() == b"one "
            await file.close()
            assert await reader.refresh() == 8
            assert await reader.read() == b"two "
        async with b.append(at("logs/x")) as file:
            await file.write(b"three")
        assert await read(a, at("logs/x")) == b"one two three"
        info = await a.stat(at("logs/x"))
        assert (info.size_bytes, info.is_open) == (13, False)
        with pytest.raises(FileExists):
            await a.create(at("logs/x"))
        with pytest.raises(FileNotFound):
            await a.append(at("logs/y"))
        assert all(at.objects()), "every store has the bytes"


@asynchronous
async def test_several_blocks_and_large_writes(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a") as (at, (a,)):
        await a.configure(block_bytes=3_000_000)
        data = bytes(range(256)) * 32_768
        async with a.create(at("x")) as file:
            await file.write(data)
        await a.configure(block_bytes=64 * 1024 * 1024)
        assert await read(a, at("x")) == data


@asynchronous
async def test_rename_and_delete(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a", "b") as (at, (a, b)):
        file = await a.create(at("d/e/x"))
        await file.write(b"one ")
        await file.flush()
        await b.rename(at("d"), at("f"))
        await file.write(b"two")
        await file.close()
        assert await read(b, at("f/e/x")) == b"one two"
        assert [info.path async for info in b.list(at())] == [at("f")]
        with pytest.raises(DirectoryNotEmpty):
            await b.delete(at("f"))
        with pytest.raises(ValueError, match="into itself"):
            await b.rename(at("f"), at("f/g"))
        file = await a.append(at("f/e/x"))
        await b.delete(at("f"), recursive=True)
        await file.write(b"late")
        with pytest.raises(FileNotFound):
            await file.close()
        await file.abort()


@asynchronous
async def test_the_deepest_path_is_within_the_limits_of_a_transaction(
    place: Place, tmp_path: Path
) -> None:
    async with clients(place, tmp_path, "a") as (at, (a,)):
        deep = at("/".join("d" * 99))
        async with a.create(deep) as file:
            await file.write(b"one ")
            await file.flush()
            await a.rename(deep, at("x"))
            await a.rename(at("x"), deep)
            await file.write(b"two")
        async with a.append(deep) as file:
            await file.write(b" three")
        assert await a.recover(deep)
        assert await read(a, deep) == b"one two three"
        await a.create(deep, overwrite=True)
        assert await a.recover(deep)
        await a.delete(deep)


@asynchronous
async def test_a_directory_with_many_entries_is_listed_in_order(
    place: Place, tmp_path: Path
) -> None:
    async with clients(place, tmp_path, "a") as (at, (a,)):
        await asyncio.gather(*(a.make_directory(at(f"d/{number:03d}")) for number in range(250)))
        found = [info.path async for info in a.list(at("d"))]
        assert found == [at(f"d/{number:03d}") for number in range(250)]


@asynchronous
async def test_one_writer_at_a_time(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a", "b") as (at, (a, b)):
        file = await a.create(at("x"))
        await file.write(b"flushed")
        await file.flush()
        with pytest.raises(FileAlreadyOpen) as refused:
            await b.append(at("x"))
        assert refused.value.holder == a.holder.id
        with pytest.raises(FileAlreadyOpen) as refused:
            await a.append(at("x"))
        assert refused.value.is_own
        assert [info.path async for info in b.open_files(at())] == [at("x")]
        assert [info.files for info in await b.holders() if info.holder == a.holder.id] == [1]
        async with b.create(at("x"), overwrite=True) as other:
            await other.write(b"new")
        await file.write(b"late")
        with pytest.raises(FileNotFound):
            await file.flush()
        assert await read(b, at("x")) == b"new"
        await file.abort()


@asynchronous
async def test_past_the_soft_limit_another_client_takes_over(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a", "b", soft_s=1.0) as (at, (a, b)):
        file = await a.create(at("x"))
        await file.write(b"flushed")
        await file.flush()
        assert isinstance(a.namespace.engine, FaultyEngine)
        a.namespace.engine.is_cut_off = True
        while True:  # until the soft limit has passed; the deadline is the test's
            try:
                other = await b.append(at("x"))
                break
            except FileAlreadyOpen:
                await asyncio.sleep(0.1)
        await other.write(b" and more")
        await other.close()
        a.namespace.engine.is_cut_off = False
        await file.write(b"late")
        with pytest.raises(LeaseExpired):
            await file.flush()
        assert await read(b, at("x")) == b"flushed and more"
        await file.abort()


@asynchronous
async def test_recover_closes_a_file_with_its_flushed_bytes(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a", "b") as (at, (a, b)):
        file = await a.create(at("x"))
        await file.write(b"flushed")
        await file.flush()
        at.objects()[0][0].write_bytes(b"garbage")
        assert await b.recover(at("x"))
        assert await b.is_closed(at("x"))
        assert await read(b, at("x")) == b"flushed"
        await file.close()  # all its bytes are there
        assert await b.recover(at("x"))


@asynchronous
async def test_a_monitor_closes_files_at_the_hard_limit(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a", "b", soft_s=5.0, hard_s=5.0) as (at, (a, b)):
        monitor = Monitor(b.namespace, b.recoverer, interval_s=0.1)
        monitor.start()
        file = await a.create(at("x"))
        await file.write(b"flushed")
        await file.flush()
        assert isinstance(a.namespace.engine, FaultyEngine)
        a.namespace.engine.is_cut_off = True
        while not await b.is_closed(at("x")):  # noqa: ASYNC110  the deadline is the test's
            await asyncio.sleep(0.1)
        await monitor.close()
        assert await read(b, at("x")) == b"flushed"
        a.namespace.engine.is_cut_off = False
        await file.abort()


@asynchronous
async def test_lost_answers_repeat_nothing(place: Place, tmp_path: Path) -> None:
    async with clients(place, tmp_path, "a", "b") as (at, (a, b)):
        engine = a.namespace.engine
        assert isinstance(engine, FaultyEngine)
        written = b""
        for number in range(1, 8):
            for fault in (Fault.REQUEST_LOST, Fault.ANSWER_LOST, Fault.STRAGGLES):
                engine.trouble_with("txn", number, fault)
                engine.straggle_s = 0.3
                try:
                    async with a.open(at("x"), "ab") as file:
                        await file.write(b"%d" % number)
                        written += b"%d" % number
                        await file.flush()
                        await file.write(b".")
                        written += b"."
                except LeaseholdError as error:
                    raise AssertionError(f"{fault} at {number}") from error
                engine.no_more_trouble()
        await asyncio.sleep(1)
        assert await read(b, at("x")) == written
