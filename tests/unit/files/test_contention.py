"""The rules of contention: every row of the table, each as a scene with two clients."""

import asyncio
from typing import Any

import pytest

from leasehold.errors import (
    FileAlreadyOpen,
    FileExists,
    FileNotFound,
    IsADirectory,
    LeaseExpired,
    NotADirectory,
    RecoveryInProgress,
)
from leasehold.files.file_keys import HOLDERS, OPEN_FILES
from leasehold.files.state import FileState
from tests.support.files_stage import (
    HARD_S,
    SOFT_S,
    FilesStage,
    Machine,
    open_file,
    play,
    silent,
)

OPENINGS = ("create", "append", "xb", "ab", "wb")


def opening(machine: Machine, how: str, path: str = "x") -> Any:
    """Open a file for writing in one of the ways."""
    if how == "create":
        return machine.files.create(path)
    if how == "append":
        return machine.files.append(path)
    return machine.files.open(path, how)  # type: ignore[call-overload]


# Another client: create or append.


@pytest.mark.parametrize("how", OPENINGS)
def test_an_open_file_within_the_soft_limit_is_refused_to_others(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        with pytest.raises(FileAlreadyOpen) as refused:
            await opening(b, how)
        assert refused.value.holder == a.files.holder.id
        assert refused.value.holder.startswith("a-")
        assert refused.value.holder in str(refused.value)
        assert not refused.value.is_own
        await file.write(b" and more")
        await file.close()
        assert await b.read("x") == b"flushed and more"

    play(scene)


@pytest.mark.parametrize("how", ["append", "ab", "wb"])
def test_past_the_soft_limit_another_client_takes_over(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        await silent(a)
        async with opening(b, how) as file:
            await file.write(b" and more")
        assert await b.read("x") == (b" and more" if how == "wb" else b"flushed and more")

    play(scene)


@pytest.mark.parametrize("how", ["create", "xb"])
def test_past_the_soft_limit_create_closes_the_file_and_answers_file_exists(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        await silent(a)
        with pytest.raises(FileExists):
            await opening(b, how)
        assert await b.files.is_closed("x")
        assert await b.read("x") == b"flushed"

    play(scene)


@pytest.mark.parametrize("how", OPENINGS)
def test_past_the_soft_limit_a_file_that_cannot_be_closed_now_is_in_recovery(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        await silent(a)
        for url in ("/1", "/2", "/3"):
            stage.stores.fail(url)
        with pytest.raises(RecoveryInProgress):
            await opening(b, how)
        assert (await b.files.stat("x")).state == FileState.RECOVERING
        for url in ("/1", "/2", "/3"):
            stage.stores.heal(url)
        await asyncio.sleep(5)
        assert await b.files.recover("x")

    play(scene)


@pytest.mark.parametrize("how", OPENINGS)
def test_a_file_under_recovery_by_another_process_is_refused(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        await open_file(a)
        a.stop()
        stage.stores.delay_s = 5.0  # of each step of the recovery
        recovery = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        with pytest.raises(RecoveryInProgress):
            await opening(c, how)
        assert not await c.files.recover("x")
        stage.stores.delay_s = 0.0
        await recovery
        await asyncio.sleep(20)
        assert await c.files.recover("x")

    play(scene)


def test_a_client_may_ask_again_until_its_own_recovery_is_done() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file = await open_file(a)
        await silent(a)
        stage.stores.delay_s = 8.0  # longer than an open waits
        with pytest.raises(RecoveryInProgress) as own:
            await b.files.append("x")
        with pytest.raises(RecoveryInProgress) as other:
            await c.files.append("x")
        assert (own.value.is_own, other.value.is_own) == (True, False)
        stamp = stage.record(file.id).stamp
        stage.stores.delay_s = 0.0
        await asyncio.sleep(60)
        assert await b.files.is_closed("x")
        assert stage.record(file.id).stamp == stamp, "no other recovery has begun"

    play(scene)


@pytest.mark.parametrize("how", OPENINGS)
def test_a_recovery_that_has_failed_is_not_begun_again_before_its_pause_is_over(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await silent(a)
        for url in ("/1", "/2", "/3"):
            stage.stores.fail(url)
        for _ in range(5):  # the pauses become longer
            with pytest.raises(RecoveryInProgress):
                await opening(b, how)
            await asyncio.sleep(60)
        with pytest.raises(RecoveryInProgress):
            await opening(b, how)
        stamp = stage.record(file.id).stamp
        for url in ("/1", "/2", "/3"):
            stage.stores.heal(url)
        for _ in range(20):
            with pytest.raises(RecoveryInProgress, match=r"no replica has the flushed data.*again"):
                await opening(b, how)
        assert stage.record(file.id).stamp == stamp, "no further recovery has begun"
        await asyncio.sleep(120)
        if how in ("create", "xb"):
            with pytest.raises(FileExists):
                await opening(b, how)
        else:
            await (await opening(b, how)).close()
        assert await b.files.is_closed("x")

    play(scene)


def test_recover_does_not_wait_for_the_pause_after_a_failure() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        a.stop()
        for url in ("/1", "/2", "/3"):
            stage.stores.fail(url)
        for _ in range(8):
            assert not await b.files.recover("x")
        for url in ("/1", "/2", "/3"):
            stage.stores.heal(url)
        assert await b.files.recover("x")

    play(scene)


# The same holder again.


@pytest.mark.parametrize("how", OPENINGS)
def test_the_same_holder_is_refused_too(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await open_file(a)
        with pytest.raises(FileAlreadyOpen) as refused:
            await opening(a, how)
        assert refused.value.is_own
        assert refused.value.holder == a.files.holder.id
        await file.close()

    play(scene)


def test_the_same_holder_is_refused_past_the_soft_limit_too() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await open_file(a)
        for number in range(1, 200):
            a.engine.trouble_with("renew", number, ConnectionResetError("no renewal"))
        await asyncio.sleep(SOFT_S + 5)
        with pytest.raises(FileAlreadyOpen) as refused:
            await a.files.append("x")
        assert refused.value.is_own
        await file.close()

    play(scene)


# recover() and is_closed().


def test_recover_closes_an_open_file_whatever_the_limits() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        other = await open_file(a, "y")
        assert not await b.files.is_closed("x")
        assert await b.files.recover("x")
        assert await b.files.is_closed("x")
        assert not await b.files.is_closed("y"), "recovery of that file only"
        await other.write(b" on")
        await other.close()
        assert await b.read("y") == b"flushed on"
        await file.abort()

    play(scene)


def test_recover_by_the_holder_closes_its_file() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        file = await open_file(a)
        assert await a.files.recover("x")
        await file.write(b"late")
        with pytest.raises(LeaseExpired):
            await file.flush()
        assert await a.read("x") == b"flushed"
        await file.abort()

    play(scene)


def test_recover_and_is_closed_of_a_closed_file_are_true() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        before = stage.record((await a.files.stat("x")).id)
        assert await a.files.recover("x")
        assert await a.files.is_closed("x")
        assert stage.record((await a.files.stat("x")).id) == before

    play(scene)


@pytest.mark.parametrize("path", ["missing", "directory", ""])
def test_recover_and_is_closed_of_a_missing_path_or_a_directory(path: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.files.make_directory("directory")
        with pytest.raises(FileNotFound):
            await a.files.recover(path)
        with pytest.raises(FileNotFound):
            await a.files.is_closed(path)

    play(scene)


def test_recover_joins_a_recovery_under_way() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file = await open_file(a)
        a.stop()
        stage.stores.delay_s = 5.0
        first = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        stamp = stage.record(file.id).stamp
        assert not await c.files.recover("x"), "false until it is done"
        assert not await c.files.is_closed("x")
        assert stage.record(file.id).stamp == stamp, "no new one starts"
        await first
        await asyncio.sleep(20)
        assert await c.files.recover("x")
        assert stage.record(file.id).stamp == stamp

    play(scene)


def test_recover_starts_again_if_the_worker_is_gone() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        file = await open_file(a)
        a.stop()
        stage.stores.delay_s = 5.0
        first = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        stamp = stage.record(file.id).stamp
        b.stop()
        first.cancel()
        assert not await c.files.recover("x")
        stage.stores.delay_s = 0.0
        await asyncio.sleep(15)  # the lease of the worker expires
        assert await c.files.recover("x")
        assert stage.record(file.id).stamp > stamp
        assert await c.read("x") == b"flushed"

    play(scene)


# Overwrite comes first.


@pytest.mark.parametrize("who", ["a", "b"])
def test_overwrite_replaces_an_open_file_and_its_lease(who: str) -> None:
    async def scene(stage: FilesStage) -> None:
        machines = {name: stage.machine(name) for name in "ab"}
        old = await open_file(machines["a"])
        new = await machines[who].files.create("x", overwrite=True)
        assert [key.decode()[-32:] for key in stage.keys(OPEN_FILES)] == [new.id]
        await old.write(b"late")
        with pytest.raises((LeaseExpired, FileNotFound)):
            await old.flush()
        await new.write(b"new")
        await new.close()
        assert await machines["b"].read("x") == b"new"
        await old.abort()
        assert not stage.keys(HOLDERS)

    play(scene)


def test_overwrite_replaces_a_file_under_recovery() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        await open_file(a)
        a.stop()
        stage.stores.delay_s = 5.0
        recovery = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        new = await c.files.create("x", overwrite=True)
        stage.stores.delay_s = 0.0
        await asyncio.wait([recovery])
        await new.write(b"new")
        await new.close()
        assert await c.read("x") == b"new"

    play(scene)


def test_overwrite_of_a_closed_file_replaces_it() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x", b"old")
        async with a.files.create("x", overwrite=True) as file:
            await file.write(b"new")
        assert await a.read("x") == b"new"

    play(scene)


def test_create_without_overwrite_of_a_closed_file_answers_file_exists() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x", b"old")
        with pytest.raises(FileExists):
            await a.files.create("x")
        with pytest.raises(FileExists):
            await a.files.open("x", "xb")
        assert await a.read("x") == b"old"

    play(scene)


# Modes.


def test_ab_creates_a_missing_file_and_append_does_not() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        with pytest.raises(FileNotFound):
            await a.files.append("d/x")
        async with a.files.open("d/x", "ab") as file:
            await file.write(b"1")
        async with a.files.open("d/x", "ab") as file:
            await file.write(b"2")
        assert await a.read("d/x") == b"12"

    play(scene)


def test_wb_creates_a_missing_file_and_replaces_a_closed_one() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        for data in (b"first", b"2nd"):
            async with a.files.open("x", "wb") as file:
                await file.write(data)
            assert await a.read("x") == data

    play(scene)


@pytest.mark.parametrize("mode", ["r", "w", "r+b", "a", "x", "w+b", "ab+", "rt", ""])
def test_other_modes_are_refused(mode: str) -> None:
    async def scene(stage: FilesStage) -> None:
        with pytest.raises(ValueError, match="mode must be"):
            stage.machine("a").files.open("x", mode)  # type: ignore[call-overload]

    play(scene)


@pytest.mark.parametrize("how", OPENINGS)
def test_a_directory_cannot_be_opened(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.files.make_directory("x")
        with pytest.raises(IsADirectory):
            await opening(a, how)
        with pytest.raises(IsADirectory):
            await a.files.open("x")
        with pytest.raises(IsADirectory):
            await a.files.create("x", overwrite=True)

    play(scene)


@pytest.mark.parametrize("how", OPENINGS)
def test_a_path_through_a_file_is_refused(how: str) -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")
        await a.put("x")
        with pytest.raises(NotADirectory):
            await opening(a, how, "x/y")

    play(scene)


def test_leaving_by_an_exception_keeps_what_was_flushed_and_drops_the_rest() -> None:
    async def scene(stage: FilesStage) -> None:
        a = stage.machine("a")

        async def write() -> None:
            async with a.files.create("x") as file:
                await file.write(b"kept")
                await file.flush()
                await file.write(b"dropped")
                raise KeyError

        with pytest.raises(KeyError):
            await write()
        assert await a.files.is_closed("x")
        assert await a.read("x") == b"kept"
        assert not stage.keys(HOLDERS)

    play(scene)


# Deleting under recovery, and leases that end with the file.


def test_deleting_a_file_under_recovery_ends_it_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: FilesStage) -> None:
        a, b, c = (stage.machine(name) for name in "abc")
        await open_file(a)
        a.stop()
        stage.stores.delay_s = 5.0
        recovery = asyncio.ensure_future(b.files.recover("x"))
        await asyncio.sleep(1)
        await c.files.delete("x")
        with pytest.raises(FileNotFound):
            await recovery
        await asyncio.sleep(60)
        names = [each.name for each in caplog.records if each.levelname in ("ERROR", "WARNING")]
        assert "leasehold.files.recovery" not in names

    play(scene)


@pytest.mark.parametrize("how", ["delete", "replace"])
@pytest.mark.parametrize("who", ["a", "b"])
def test_the_former_writer_of_a_deleted_or_replaced_file_gets_file_not_found(
    who: str, how: str
) -> None:
    async def scene(stage: FilesStage) -> None:
        machines = {name: stage.machine(name) for name in "ab"}
        for call in ("flush", "close"):
            file = await open_file(machines["a"])
            if how == "delete":
                await machines[who].files.delete("x")
            else:
                await (await machines[who].files.create("x", overwrite=True)).close()
                await machines[who].files.delete("x")
            await asyncio.sleep(1)
            if who == "a":
                assert not stage.keys(HOLDERS), "its lease is given up"
            with pytest.raises(FileNotFound, match=r"deleted|replaced"):
                await getattr(file, call)()
            await file.abort()

    play(scene)


def test_the_former_writer_of_a_deleted_file_gives_its_lease_up() -> None:
    async def scene(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        file = await open_file(a)
        await b.files.delete("x")
        with pytest.raises(FileNotFound):
            await file.close()
        await asyncio.sleep(SOFT_S)
        assert not stage.keys(HOLDERS)
        assert stage.leases() == 0

    play(scene)


# Restart.


def test_after_a_restart_the_lease_is_there_and_counts_as_fresh() -> None:
    async def before(stage: FilesStage) -> None:
        await open_file(stage.machine("a"))
        await asyncio.sleep(SOFT_S - 1)

    async def after(stage: FilesStage) -> None:
        b = stage.machine("b")
        await asyncio.sleep(SOFT_S - 1)
        with pytest.raises(FileAlreadyOpen):
            await b.files.append("x")
        await asyncio.sleep(2)
        await (await b.files.append("x")).close()
        assert await b.read("x") == b"flushed"
        await asyncio.sleep(HARD_S)

    play(before, after)


def test_after_a_restart_a_file_under_recovery_stays_locked_against_its_writer() -> None:
    async def before(stage: FilesStage) -> None:
        a, b = stage.machine("a"), stage.machine("b")
        await open_file(a)
        for url in ("/1", "/2", "/3"):
            stage.stores.fail(url)
        assert not await b.files.recover("x")

    async def after(stage: FilesStage) -> None:
        c = stage.machine("c")
        assert (await c.files.stat("x")).state == FileState.RECOVERING
        with pytest.raises(RecoveryInProgress):
            await c.files.append("x")
        for url in ("/1", "/2", "/3"):
            stage.stores.heal(url)
        await asyncio.sleep(30)
        async with c.files.append("x") as file:
            await file.write(b"!")
        assert await c.read("x") == b"flushed!"
        await asyncio.sleep(HARD_S)

    play(before, after)
