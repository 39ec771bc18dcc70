"""Calls that are repeated: by a writer after a failure, and by a monitor that is late."""

import asyncio
from typing import Literal

import pytest

from leasehold.errors import LeaseExpired, TooFewReplicas
from leasehold.files.file_keys import RECORDS, WORKERS, id_in
from leasehold.files.state import FileState
from tests.support.faulty_engine import Fault
from tests.support.files_stage import (
    APPENDING,
    PIECES,
    SOFT_S,
    FilesStage,
    play,
)


@pytest.mark.parametrize("stores", [APPENDING, PIECES])
def test_a_flush_succeeds_after_one_that_has_left_objects_in_too_few_stores(
    stores: tuple[str, ...],
) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        await file.write(b"first")
        for url in stores[1:]:
            stage.stores.fail(url)
        with pytest.raises(TooFewReplicas):
            await file.flush()
        stage.stores.heal(stores[1])  # now there are enough
        await file.flush()
        await file.close()
        assert await a.read("x") == b"first"

    play(scene, stores=stores)


def test_objects_of_a_flush_that_has_failed_are_not_written_again() -> None:
    """A call of the failed flush may still be under way, and would replace what follows."""

    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await a.files.create("x")
        await file.write(b"one")
        await file.flush()
        await file.write(b"two")
        for url in PIECES[1:]:
            stage.stores.fail(url)
        with pytest.raises(TooFewReplicas):
            await file.flush()
        before = {name for url in PIECES for name, _ in stage.bytes_of(url, file.id)}
        for url in PIECES[1:]:
            stage.stores.heal(url)
        await file.write(b"three")
        await file.flush()
        flushed = stage.blocks(file.id)[-1]
        assert before.isdisjoint(name for each in flushed.replicas for name in each.objects())
        await file.close()
        assert await a.read("x") == b"onetwothree"

    play(scene, stores=PIECES)


def test_a_flush_without_an_answer_does_not_take_over_the_record_of_a_recovery() -> None:
    """A former writer whose last flush was executed must not go on in the recovered file."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"12345678")  # a full block: its record is written, too

        async def recovered(_name: str) -> None:
            if stage.record(file.id).blocks:
                a.on_step = None
                assert await b.files.recover("x")

        a.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)
        a.on_step = recovered
        await file.flush()  # it was executed
        assert stage.record(file.id).state == FileState.CLOSED
        await file.write(b"too late")
        with pytest.raises(LeaseExpired):
            await file.flush()
        with pytest.raises(LeaseExpired):
            await file.close()
        await file.abort()
        assert await b.read("x") == b"12345678"

    play(scene, block_bytes=8)


def test_the_monitor_leaves_a_file_alone_that_has_another_holder_since() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, server = stage.machine("a"), stage.machine("b"), stage.machine("server")
        await a.files.create("x")
        found = await b.files.namespace.find("x")
        a.stop()
        await asyncio.sleep(SOFT_S + 1)
        file = await b.files.append("x")
        await file.write(b"new")
        await file.flush()
        async with server.monitored() as monitor:
            await monitor._recover([found.id])  # it was found before the file was taken over
            assert stage.record(file.id).state == FileState.OPEN
            assert not stage.keys(WORKERS)
        await file.close()

    play(scene)


@pytest.mark.parametrize("change", ["delete", "rename", "recover"])
def test_a_create_without_an_answer_does_not_bring_a_file_back(change: str) -> None:
    """Another client changes the file before its creator has found out that it was created."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        a.engine.trouble_with("txn", 2, Fault.ANSWER_LOST)  # the first creates the holder
        ids: list[str] = []

        async def disturb(_name: str) -> None:
            if not ids and (records := stage.keys(RECORDS)):
                ids.extend(id_in(key, RECORDS) for key in records)
                if change == "delete":
                    await b.files.delete("x")
                elif change == "rename":
                    await b.files.rename("x", "y")
                else:
                    assert await b.files.recover("x")

        a.on_step = disturb
        if change == "recover":
            with pytest.raises(LeaseExpired):
                await a.files.create("x")
            assert stage.record(ids[0]).state == FileState.CLOSED
            return
        file = await a.files.create("x")
        await file.write(b"data")
        await file.close()
        assert file.path == ("y" if change == "rename" else "x")
        assert (file.id == ids[0]) is (change == "rename")
        assert await b.read(file.path) == b"data"

    play(scene)


def test_a_directory_that_was_renamed_meanwhile_is_not_created_again() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        a.engine.trouble_with("txn", 1, Fault.ANSWER_LOST)

        async def rename(_name: str) -> None:
            if stage.keys(RECORDS):
                a.on_step = None
                await b.files.rename("d", "e")

        a.on_step = rename
        await a.files.make_directory("d")
        listed = [info async for info in b.files.list()]
        assert [info.path for info in listed] == ["d", "e"]
        assert listed[0].id != listed[1].id

    play(scene)


@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_a_file_that_is_closed_while_another_client_looks_at_its_holder_is_opened(
    mode: Literal["ab", "wb"],
) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"old")

        async def close(name: str) -> None:
            is_found = b.steps.count("txn") == 2  # the first has created the holder of b
            if name == "range" and is_found and not file.closed:
                await file.close()
                await asyncio.sleep(1.0)  # the key of its holder is deleted

        b.on_step = close
        async with b.files.open("x", mode) as other:
            assert file.closed
            await other.write(b"new")
        assert await a.read("x") == (b"oldnew" if mode == "ab" else b"new")

    play(scene)
