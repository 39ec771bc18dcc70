"""Former writers: their calls fail, and nothing that they write later is visible."""

import asyncio

import pytest

from leasehold.errors import FileNotFound, LeaseExpired, LeaseholdError, RecoveryInProgress
from leasehold.files.file_keys import OPEN_FILES
from tests.support.files_stage import (
    APPENDING,
    HARD_S,
    PIECES,
    FilesStage,
    abandoned,
    blocked,
    last_object,
    open_file,
    play,
    settled,
    silent,
)

KINDS = [pytest.param(APPENDING, id="appending"), pytest.param(PIECES, id="pieces")]


# The writer under recovery, and the former writer.


@pytest.mark.parametrize("call", ["flush", "close"])
def test_flush_and_close_under_recovery_are_refused_and_it_goes_on(call: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await file.write(b"late")
        go_on = blocked(b, "append")  # the copies
        recovery = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        with pytest.raises(RecoveryInProgress):
            await getattr(file, call)()
        go_on.set()
        assert await recovery
        assert await b.read("x") == b"flushed"
        with pytest.raises(LeaseExpired):
            await getattr(file, call)()
        await file.abort()

    play(scene)


def test_bytes_that_are_sent_before_the_replicas_are_read_do_not_count() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await file.write(b" and sent")
        go_on = blocked(b, "size")
        recovery = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        with pytest.raises(RecoveryInProgress):
            await file.flush()
        go_on.set()
        assert await recovery
        assert await b.read("x") == b"flushed"
        with pytest.raises(LeaseExpired):
            await file.close()
        await file.abort()

    play(scene)


def test_close_of_a_former_holder_whose_bytes_are_all_there_succeeds() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        assert await b.files.recover("x")
        await file.close()
        assert file.closed
        assert await b.read("x") == b"flushed"

    play(scene)


def test_close_of_a_former_holder_without_any_bytes_succeeds() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        assert await b.files.recover("x")
        await file.close()
        assert await b.read("x") == b""

    play(scene)


def test_close_of_a_former_holder_fails_until_the_file_is_closed() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await silent(a, HARD_S + 15)
        a.wake()
        with pytest.raises(LeaseExpired):
            await file.close()
        assert not await b.files.is_closed("x")
        assert await b.files.recover("x")
        await file.close()

    play(scene)


def test_close_of_a_former_holder_fails_if_a_byte_is_missing() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await file.write(b"!")
        assert await b.files.recover("x")
        with pytest.raises(LeaseExpired):
            await file.close()
        assert await b.read("x") == b"flushed"
        await file.abort()

    play(scene)


def test_close_of_a_former_holder_fails_if_another_writer_has_appended() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await file.write(b"!")
        assert await b.files.recover("x")
        async with b.files.append("x") as other:
            await other.write(b"?")
        with pytest.raises(LeaseExpired):
            await file.close()
        assert await b.read("x") == b"flushed?"
        await file.abort()

    play(scene)


def test_close_of_a_former_holder_fails_if_another_writer_has_written_as_many_bytes() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await a.files.create("x")
        await file.write(b"ours")
        assert await b.files.recover("x"), "its block is dropped, because nothing was flushed"
        async with b.files.append("x") as other:
            await other.write(b"them")
        with pytest.raises(LeaseExpired):
            await file.close()
        assert await b.read("x") == b"them"
        await file.abort()

    play(scene)


@pytest.mark.parametrize("call", ["flush", "close"])
@pytest.mark.parametrize("end", ["taken over", "deleted", "replaced", "tree", "renamed onto"])
def test_nothing_a_former_holder_writes_is_visible(end: str, call: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a, "d/x")
        match end:
            case "taken over":
                await silent(a)
                await (await b.files.append("d/x")).close()
                a.wake()
            case "deleted":
                await b.files.delete("d/x")
            case "replaced":
                await (await b.files.create("d/x", overwrite=True)).close()
            case "tree":
                await b.files.delete("d", recursive=True)
            case "renamed onto":
                await b.put("y", b"")
                await b.files.rename("y", "d/x", overwrite=True)
        await file.write(b"late")
        with pytest.raises((LeaseExpired, FileNotFound)) as refused:
            await getattr(file, call)()
        if end != "taken over":
            assert isinstance(refused.value, FileNotFound)
        with pytest.raises((LeaseExpired, FileNotFound)):
            await file.flush()
        if end in ("deleted", "tree"):
            with pytest.raises(FileNotFound):
                await b.files.stat("d/x")
        else:
            expected = b"flushed" if end == "taken over" else b""
            assert await b.read("d/x") == expected
        await file.abort()

    # The files of a deleted tree are collected later.
    play(scene, leaves=(OPEN_FILES,) if end == "tree" else ())


def test_a_large_write_of_a_former_holder_fails() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await b.files.recover("x")
        with pytest.raises(LeaseExpired):
            await file.write(bytes(5 * 1024 * 1024))
        with pytest.raises(LeaseExpired):
            await file.write(b"more")
        await file.abort()
        assert await b.read("x") == b"flushed"

    play(scene)


# A former writer that wakes up.


@pytest.mark.parametrize("end", ["recovered", "appended", "replaced", "deleted"])
@pytest.mark.parametrize("stores", KINDS)
def test_a_former_writer_that_wakes_up_in_any_step_changes_nothing(
    stores: tuple[str, ...], end: str
) -> None:
    steps: list[str] = []

    def woken_at(number: int, is_executed: bool) -> None:
        async def scene(stage: FilesStage) -> None:
            a, b = stage.machine("a"), stage.machine("b")
            file = await a.files.create("x")
            await file.write(b"flushed")
            await file.flush()
            await file.write(b" late")
            a.steps.clear()
            if number:
                a.stop_at(number, is_executed=is_executed)
            flushing = asyncio.ensure_future(file.flush())
            await asyncio.wait([flushing], timeout=1)
            if not number:
                steps[:] = a.steps
                await file.close()
                return
            expected = b"new"
            if end == "replaced":
                async with b.files.create("x", overwrite=True) as other:
                    await other.write(b"new")
            elif end == "deleted":
                await b.files.delete("x")
            else:
                await settled(b)
                expected = await b.read("x")
                assert expected in (b"flushed", b"flushed late")
                if end == "appended":
                    async with b.files.append("x") as other:
                        await other.write(b"!")
                    expected += b"!"
            a.wake()
            with pytest.raises((LeaseholdError, OSError)):
                await flushing
            with pytest.raises((LeaseExpired, FileNotFound)):
                await file.flush()
            await file.abort()
            if end != "deleted":
                assert await b.read("x") == expected

        play(scene, stores=stores)

    woken_at(0, False)
    for number in range(1, len(steps) + 1):
        woken_at(number, False)
        woken_at(number, True)


def test_bytes_that_a_former_writer_still_writes_are_in_objects_that_no_block_names() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await abandoned(stage, a)
        old = {url: last_object(stage, url, file) for url in APPENDING}
        assert await b.files.recover("x")
        async with b.files.append("x") as other:
            await other.write(b" appended")
        for url, name in old.items():  # it has the object open, and nothing can stop it
            stage.stores.objects[url][name] = b"overwritten by a process that knows nothing"
        assert await b.read("x") == b"flushed appended"
        names = {each.name for block in stage.blocks(file.id) for each in block.replicas}
        assert not names & set(old.values())

    play(scene)
