"""One message renews the lease of all files of a holder, as long as it has one."""

import asyncio

import pytest

from leasehold.errors import FileNotFound, LeaseExpired, RecoveryInProgress
from leasehold.files.file_keys import HOLDERS
from leasehold.files.holder import TAKEN_S
from leasehold.files.writer import FileWriter
from tests.support.files_stage import APPENDING, SOFT_S, FilesStage, open_file, play, settled

FILES = 20


def test_flushes_of_many_files_together_renew_their_lease_once() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        files = [await a.files.create(f"files/{number}") for number in range(FILES)]
        await asyncio.sleep(5.0)
        a.steps.clear()
        for file in files:
            await file.write(b"data")
        await asyncio.gather(*(file.flush() for file in files))
        assert a.steps.count("renew") == 1
        for file in files:
            await file.close()

    play(scene)


def test_opening_many_files_together_renews_their_lease_once() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        first = await a.files.create("first")
        await asyncio.sleep(5.0)
        a.steps.clear()

        async def create(number: int) -> FileWriter:
            return await a.files.create(f"files/{number}")

        files = await asyncio.gather(*map(create, range(FILES)))
        assert a.steps.count("renew") == 1
        for file in (first, *files):
            await file.close()

    play(scene)


def test_a_renewal_that_failed_is_made_again_by_a_later_flush() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        async with a.files.create("x") as file:
            await asyncio.sleep(5.0)
            a.engine.trouble_with("renew", 1, ConnectionResetError("no renewal"))
            a.steps.clear()
            for count in (1, 2):
                await file.write(b"data")
                await file.flush()
                assert a.steps.count("renew") == count
                await asyncio.sleep(2.0)

    play(scene)


@pytest.mark.parametrize("how", ["recover", "delete", "replace", "fail"])
def test_the_lease_ends_when_others_have_taken_the_last_file(how: str) -> None:
    """The writer is idle: it makes no call that would tell."""

    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        files = [await open_file(a, path) for path in ("x", "y")]
        if how == "replace":
            for path in ("x", "y"):
                await (await b.files.create(path, overwrite=True)).close()
        elif how == "delete":
            await b.files.delete("x")
            await b.files.delete("y")
        else:
            for url in APPENDING if how == "fail" else ():
                stage.stores.fail(url)
            for path in ("x", "y"):
                assert await b.files.recover(path) is (how == "recover")
        await asyncio.sleep(TAKEN_S + SOFT_S)
        assert not stage.keys(HOLDERS)
        renewals = a.engine.calls.count("renew")
        await asyncio.sleep(2 * TAKEN_S)
        assert a.engine.calls.count("renew") == renewals
        for url in APPENDING if how == "fail" else ():
            stage.stores.heal(url)
        # The writers get the same errors as if they had asked before.
        for file in files:
            await file.write(b"late")
            lost = {"recover": LeaseExpired, "fail": RecoveryInProgress}.get(how, FileNotFound)
            with pytest.raises(lost):
                await file.flush()
            await file.abort()
        async with a.files.create("z") as file:  # the client stays usable
            await file.write(b"data")
        for path in ("x", "y") if how == "fail" else ():
            await settled(b, path)

    play(scene)


def test_the_lease_stays_while_one_file_is_left() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a, "x")
        file = await open_file(a, "y")
        assert await b.files.recover("x")
        await asyncio.sleep(2 * TAKEN_S)
        await file.write(b" and more")
        await file.close()
        assert await b.read("y") == b"flushed and more"

    play(scene)


def test_a_file_that_is_opened_during_the_look_is_kept() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a, "x")
        assert await b.files.recover("x")
        opened: list[FileWriter] = []

        async def answered() -> None:
            if not opened and a.engine.calls[-1] == "range" and a.engine.calls[-2] == "renew":
                opened.append(await open_file(a, "y"))  # after the read, before its answer

        a.after = answered  # type: ignore[method-assign]
        await asyncio.sleep(2 * TAKEN_S)
        (file,) = opened
        await file.write(b" and more")
        await file.close()
        assert await b.read("y") == b"flushed and more"

    play(scene)
