"""Single-writer files with replicas in two local directories and in S3, which cannot append."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fsspec
import pytest

import leasehold
from leasehold.clock import SYSTEM_CLOCK
from leasehold.engine.interface import Engine
from leasehold.errors import FileDamaged, LeaseExpired, RecoveryInProgress
from leasehold.files import writer
from leasehold.files.client import Files
from leasehold.files.file_keys import blocks_of, decode_block
from leasehold.files.state import Block, store_id
from leasehold.files.writer import FileWriter
from leasehold.sessions.lease_keeper import Keeper
from tests.support.asynchronous import asynchronous, until
from tests.support.s3_fixtures import S3Server

FLUSHES: Final = 20
MAX_PIECES: Final = 5
PATH: Final = "logs/a"

pytestmark = pytest.mark.usefixtures("s3_settings")


@pytest.fixture(autouse=True)
def _no_retries(s3_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have s3fs fail instead of waiting for a server that does not answer."""
    settings: dict[str, Any] = {
        **fsspec.config.conf["s3"],
        "config_kwargs": {"retries": {"max_attempts": 0}},
    }
    monkeypatch.setitem(fsspec.config.conf, "s3", settings)


@dataclass
class World:
    """An engine, and stores of which one is in S3."""

    engine: Engine
    urls: list[str]

    @asynccontextmanager
    async def files(self, name: str, *urls: str) -> AsyncIterator[Files]:
        """Run a client of files, which can use these stores only, by default all."""
        keeper = Keeper(self.engine, SYSTEM_CLOCK, None)
        allowed = frozenset(urls) if urls else None
        files = Files(self.engine, keeper, name, allowed=allowed)
        try:
            yield files
        finally:
            await files.close()
            await keeper.close()

    async def blocks(self, file: FileWriter) -> list[Block]:
        """Return the blocks of a file."""
        prefix = blocks_of(file.id)
        found = await self.engine.range(prefix, prefix[:-1] + b"0")
        return [decode_block(pair.value) for pair in found.pairs]

    async def content_from(self, url: str) -> bytes:
        """Read the file from one store alone."""
        async with self.files("reader", url) as files, files.open(PATH) as file:
            return await file.read()


@asynccontextmanager
async def world(directory: Path, s3_url: str) -> AsyncIterator[World]:
    """Run an engine, with three stores."""
    urls = [str(directory / "a"), str(directory / "b"), s3_url]
    async with leasehold.open_engine("memory:") as engine:
        made = World(engine, urls)
        async with made.files("operator") as files:
            await files.configure(add=urls)
        yield made


async def _append(file: FileWriter, lines: int, acknowledged: list[bytes]) -> None:
    """Write and flush lines, which are acknowledged one by one."""
    for _ in range(lines):
        line = b"%05d\n" % len(acknowledged)
        await file.write(line)
        await file.flush()
        acknowledged.append(line)


async def _recovered(files: Files) -> None:
    """Recover the file, however long it takes: a call waits for some seconds."""
    while not await files.recover(PATH):
        pass


@asynchronous
async def test_each_flush_is_an_object_in_s3_and_each_store_alone_has_the_file(
    tmp_path: Path, s3_url: str
) -> None:
    lines: list[bytes] = []
    async with world(tmp_path, s3_url) as it, it.files("writer") as files:
        async with files.open(PATH, "xb") as file:
            await _append(file, FLUSHES, lines)
        [block] = await it.blocks(file)
        pieces = {each.store: each.pieces for each in block.replicas}
        assert pieces == {
            store_id(it.urls[0]): (),
            store_id(it.urls[1]): (),
            store_id(s3_url): (len(lines[0]),) * FLUSHES,
        }
        for url in it.urls:
            assert await it.content_from(url) == b"".join(lines)


@asynchronous
async def test_a_block_with_too_many_objects_is_sealed(
    tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_PIECES", MAX_PIECES)
    lines: list[bytes] = []
    async with world(tmp_path, s3_url) as it, it.files("writer") as files:
        async with files.open(PATH, "xb") as file:
            await _append(file, MAX_PIECES + 1, lines)
        counts = [
            len(each.pieces)
            for block in await it.blocks(file)
            for each in block.replicas
            if each.store == store_id(s3_url)
        ]
        assert counts == [MAX_PIECES, 1]
        for url in it.urls:
            assert await it.content_from(url) == b"".join(lines)


@asynchronous
async def test_flushed_bytes_of_a_writer_that_is_gone_are_recovered_in_each_store(
    tmp_path: Path, s3_url: str
) -> None:
    lines: list[bytes] = []
    async with world(tmp_path, s3_url) as it, it.files("writer") as lost:
        file = await lost.open(PATH, "xb")
        writing = asyncio.create_task(_append(file, 10 * FLUSHES, lines))
        await until(lambda: len(lines) >= FLUSHES)
        async with it.files("successor") as files:
            await _recovered(files)
            with pytest.raises((LeaseExpired, RecoveryInProgress)):
                await writing
            with pytest.raises(LeaseExpired):
                await file.flush()
            acknowledged = b"".join(lines)
            for url in it.urls:
                content = await it.content_from(url)
                # One flush may have been sent to all stores, without its transaction.
                assert content in (acknowledged, acknowledged + b"%05d\n" % len(lines))
            [block] = await it.blocks(file)
            assert {each.store for each in block.replicas} == set(map(store_id, it.urls))
            async with files.append(PATH) as successor:
                await successor.write(b"successor\n")
        for url in it.urls:
            assert await it.content_from(url) == content + b"successor\n"


@asynchronous
async def test_a_writer_goes_on_without_s3_and_the_file_is_recovered_without_it(
    tmp_path: Path, s3: S3Server, s3_url: str
) -> None:
    lines: list[bytes] = []
    async with world(tmp_path, s3_url) as it, it.files("writer") as files:
        file = await files.open(PATH, "xb")
        await _append(file, FLUSHES, lines)
        s3.stop()
        try:
            await _append(file, FLUSHES, lines)
            async with it.files("successor") as successor:
                await _recovered(successor)
        finally:
            s3.start()
        content = b"".join(lines)
        for url in it.urls[:2]:
            assert await it.content_from(url) == content
        first, second = await it.blocks(file)
        local = set(map(store_id, it.urls[:2]))
        # The first block is as it was in S3, or was sealed without S3; the second one is not there.
        assert {each.store for each in first.replicas} >= local
        assert {each.store for each in second.replicas} == local
        with pytest.raises(FileDamaged):
            await it.content_from(s3_url)


@asynchronous
async def test_a_recovery_while_s3_is_gone_keeps_what_was_flushed(
    tmp_path: Path, s3: S3Server, s3_url: str
) -> None:
    lines: list[bytes] = []
    async with world(tmp_path, s3_url) as it, it.files("writer") as files:
        file = await files.open(PATH, "xb")
        await _append(file, FLUSHES, lines)
        s3.stop()
        try:
            async with it.files("successor") as successor:
                await _recovered(successor)
        finally:
            s3.start()
        [block] = await it.blocks(file)
        assert {each.store for each in block.replicas} == set(map(store_id, it.urls[:2]))
        for url in it.urls[:2]:
            assert await it.content_from(url) == b"".join(lines)
