"""Readers of files that change meanwhile."""

import asyncio
import io

import pytest

from leasehold.errors import CallRefused, Closed, FileDamaged
from leasehold.files.known_config import CONFIG_S
from leasehold.files.state import KEEP_S
from leasehold.files.writer import MAX_PIECES
from tests.support.faulty_engine import Fault
from tests.support.files_stage import (
    APPENDING,
    PIECES,
    FilesStage,
    abandoned,
    open_file,
    play,
)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_reader_whose_refresh_has_failed_reads_on_where_it_was(number: int) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        async with b.files.open("x") as reader:
            assert await reader.read(3) == b"flu"
            await file.write(b" and more")
            await file.flush()
            await asyncio.sleep(CONFIG_S + 1)  # the configuration is read again
            b.engine.trouble_with("range", number, Fault.REFUSED)
            with pytest.raises(CallRefused):
                await reader.refresh()
            assert (reader.size, reader.tell()) == (len(b"flushed"), 3)
            assert await reader.read() == b"shed"
            await reader.refresh()
            assert await reader.read() == b" and more"
        await file.close()

    play(scene)


TEXTS = [b"", b"\n", b"\n\n", b"one", b"one\ntwo", b"one\ntwo\n", b"a longer line\n\nx\ny\n\n"]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("text", TEXTS)
def test_lines_are_those_of_a_file_in_memory_wherever_blocks_end(
    text: bytes, block_bytes: int
) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        async with a.files.create("x") as file:
            await file.write(text)
        async with a.files.open("x") as reader:
            assert [line async for line in reader] == list(io.BytesIO(text))
            assert (reader.tell(), await reader.readline()) == (len(text), b"")
            for start in range(len(text) + 1):
                for hint in (-1, 0, 1, 4):
                    reader.seek(start)
                    twin = io.BytesIO(text)
                    twin.seek(start)
                    assert await reader.readlines(hint) == twin.readlines(hint)
                    assert reader.tell() == twin.tell()
        with pytest.raises(Closed):
            await reader.readline()

    play(scene, block_bytes=block_bytes)


def test_an_iteration_over_lines_goes_on_after_a_refresh() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        async with a.files.create("x") as file, b.files.open("x") as reader:
            for text in (b"one\ntw", b"o\n"):
                await file.write(text)
                await file.flush()
            assert [line async for line in reader] == []
            await reader.refresh()
            assert [line async for line in reader] == [b"one\n", b"two\n"]

    play(scene)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_slow_reader_goes_on_in_the_objects_into_which_others_were_merged(
    is_closed: bool,
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = stage.machine("a"), stage.machine("b"), stage.machine("c")
        file = await a.files.create("x")
        for _ in range(MAX_PIECES):
            await file.write(b"0123456789")
            await file.flush()
        async with b.files.open("x") as reader:
            if is_closed:
                await file.close()
            assert (await c.files.repair()).merged == len(PIECES)
            await c.files.collect()
            await asyncio.sleep(KEEP_S + 1)
            await c.files.collect()
            assert await reader.read() == b"0123456789" * MAX_PIECES
            reader.seek(15)
            assert await reader.read(3) == b"567"
        await file.close()

    play(scene, stores=PIECES)


def test_a_reader_of_a_recovered_file_finds_its_bytes_after_they_were_copied() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = stage.machine("a"), stage.machine("b"), stage.machine("c")
        await abandoned(stage, a)
        async with b.files.open("x") as reader:
            assert await c.files.recover("x")
            async with c.files.append("x") as file:
                await file.write(b" more")
            await c.files.collect()
            await asyncio.sleep(KEEP_S + 1)
            await c.files.collect()
            assert await reader.read() == b"flushed"
            for url in APPENDING:
                stage.stores.fail(url)
            with pytest.raises(FileDamaged):
                await b.read("x")

    play(scene)


def test_a_reader_of_a_file_that_is_gone_raises_after_a_while() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await a.put("x")
        async with b.files.open("x") as reader:
            await a.put("y")
            await a.files.rename("y", "x", overwrite=True)
            await a.files.collect()
            await asyncio.sleep(KEEP_S + 1)
            await a.files.collect()
            with pytest.raises(FileDamaged):
                await reader.read()

    play(scene)
