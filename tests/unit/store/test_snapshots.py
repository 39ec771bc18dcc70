"""Snapshots: copies in files that nobody finds, and of which nothing is left."""

import asyncio
import hashlib
import tempfile
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from leasehold.errors import Closed, StorageError, TooBusy
from leasehold.keyspace.operations import Put
from leasehold.store import backup as backup_module
from leasehold.store import backup_file
from leasehold.store.backup import MAX_BACKUPS, MAX_SNAPSHOTS
from leasehold.store.backup_file import UnlinkedFile
from leasehold.store.checking import check_backup
from leasehold.store.runtime import Runtime
from tests.support.open_files import open_files_in

WITHIN_S = 60.0


@pytest.fixture
def in_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have copies take many steps."""
    monkeypatch.setattr(backup_module, "SLICE_S", 0.0)
    monkeypatch.setattr(backup_module, "PAGES_PER_STEP", 1)


def with_runtime(
    directory: Path | None, work: Callable[[Runtime], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        async with asyncio.timeout(WITHIN_S):
            runtime = Runtime(directory)
            runtime.start()
            try:
                await work(runtime)
            finally:
                await runtime.stop()
                runtime.journal.close()

    asyncio.run(run())


async def fill(runtime: Runtime, keys: int = 100) -> int:
    for number in range(keys):
        _, position = runtime.store.apply(Put(b"%d" % number, bytes(10_000)))
    await runtime.until_durable(position)
    return runtime.store.revision


def whole(file: UnlinkedFile) -> bytes:
    return file.read(0, file.size_bytes)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  there is no event to await
        await asyncio.sleep(0)


def open_copies(directory: Path) -> list[str]:
    return [name for name in open_files_in(directory) if "snapshot-" in name]


def leftovers(directory: Path) -> list[Path]:
    return list(directory.glob("*partial*"))


def test_a_snapshot_is_a_backup_without_its_checksum(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        revision = await fill(runtime)
        async with runtime.backups.snapshot() as file:
            assert leftovers(tmp_path / "data") == []
            content = whole(file)
        target = tmp_path / "backup"
        target.write_bytes(content + hashlib.sha256(content).digest())
        report = check_backup(target, lambda *_: None)
        assert (report.revision, report.keys) == (revision, 100)

    with_runtime(tmp_path / "data", work)


def test_it_stays_as_it_is_while_others_write(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        await fill(runtime)
        async with runtime.backups.snapshot() as file:
            before = whole(file)
            await fill(runtime, 200)
            assert whole(file) == before

    with_runtime(tmp_path, work)


def test_an_engine_that_keeps_nothing_gives_snapshots_too() -> None:
    async def work(runtime: Runtime) -> None:
        await fill(runtime)
        async with runtime.backups.snapshot() as file:
            assert file.size_bytes > 1_000_000
            assert not file.path.exists()

    with_runtime(None, work)


@pytest.mark.usefixtures("in_small_slices")
def test_nothing_is_left_of_one_that_was_given_up(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        await fill(runtime)
        for _ in range(MAX_SNAPSHOTS + 1):
            task = asyncio.create_task(runtime.backups.snapshot().__aenter__())
            await until(lambda: bool(runtime.backups._under_way))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert leftovers(tmp_path) == []
        assert open_copies(tmp_path) == []
        async with runtime.backups.snapshot():
            pass

    with_runtime(tmp_path, work)


def test_nothing_is_left_of_one_that_was_given_up_while_its_file_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, go_on = threading.Event(), threading.Event()
    mkstemp = tempfile.mkstemp

    def slow(*arguments: Any) -> tuple[int, str]:
        file = mkstemp(*arguments)
        made.set()
        go_on.wait(WITHIN_S)
        return file

    monkeypatch.setattr(tempfile, "mkstemp", slow)

    async def work(runtime: Runtime) -> None:
        entering = asyncio.create_task(runtime.backups.snapshot().__aenter__())
        await until(made.is_set)
        assert len(leftovers(tmp_path)) == 1
        entering.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert leftovers(tmp_path) == []
        assert open_copies(tmp_path) == []

    with_runtime(tmp_path, work)


def test_so_many_at_the_same_time_and_no_more(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        snapshots = [runtime.backups.snapshot() for _ in range(MAX_SNAPSHOTS)]
        for each in snapshots:
            await each.__aenter__()
        assert len(open_copies(tmp_path)) == MAX_SNAPSHOTS
        with pytest.raises(TooBusy, match=f"{MAX_SNAPSHOTS} snapshots are being made or sent"):
            await runtime.backups.snapshot().__aenter__()
        await snapshots.pop().__aexit__(None, None, None)
        async with runtime.backups.snapshot():
            pass
        for each in snapshots:
            await each.__aexit__(None, None, None)
        assert open_copies(tmp_path) == []

    with_runtime(tmp_path, work)


def test_whoever_keeps_snapshots_keeps_nobody_from_backups(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        revision = await fill(runtime)
        async with AsyncExitStack() as kept:
            for _ in range(MAX_SNAPSHOTS):
                await kept.enter_async_context(runtime.backups.snapshot())
            backups = [runtime.backups.make(tmp_path / f"{n}") for n in range(MAX_BACKUPS)]
            made = await asyncio.gather(*backups)
        assert [each.revision for each in made] == [revision] * MAX_BACKUPS

    with_runtime(tmp_path / "data", work)


@pytest.mark.usefixtures("in_small_slices")
def test_whoever_makes_snapshots_keeps_nobody_from_backups(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        revision = await fill(runtime)
        entering = [
            asyncio.create_task(runtime.backups.snapshot().__aenter__())
            for _ in range(MAX_SNAPSHOTS)
        ]
        await until(lambda: bool(runtime.backups._under_way))
        assert (await runtime.backups.make(tmp_path / "backup")).revision == revision
        await cancelled(entering)

    with_runtime(tmp_path / "data", work)


@pytest.mark.usefixtures("in_small_slices")
def test_they_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        await fill(runtime, 20)
        made: list[int] = []

        async def keep(number: int) -> None:
            async with runtime.backups.snapshot():
                made.append(number)
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(keep(number)) for number in range(4)]
        await until(lambda: bool(runtime.backups._under_way))
        tasks[1].cancel()  # whose turn is next
        while len(made) < 3:
            assert len(runtime.backups._under_way) <= 1
            assert len(set(open_copies(tmp_path))) <= len(made) + 1  # SQLite opens them once more
            await asyncio.sleep(0)
        assert made == [0, 2, 3]
        await cancelled(tasks)
        assert open_copies(tmp_path) == []

    with_runtime(tmp_path, work)


async def cancelled(tasks: list[asyncio.Task[Any]]) -> None:
    """Give up snapshots that are on their way."""
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.usefixtures("in_small_slices")
def test_those_that_wait_for_their_turn_end_with_the_engine(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        await fill(runtime)
        entering = [asyncio.create_task(runtime.backups.snapshot().__aenter__()) for _ in range(3)]
        await until(lambda: bool(runtime.backups._under_way))
        await runtime.backups.close()
        for each in entering:
            with pytest.raises(Closed):
                await each
        assert open_copies(tmp_path) == []

    with_runtime(tmp_path, work)


def test_a_disk_without_room_is_left_to_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(runtime: Runtime) -> None:
        await fill(runtime)
        monkeypatch.setattr(backup_file, "SPARE_BYTES", 1 << 60)
        with pytest.raises(
            StorageError, match=r"must stay free, .* Make room there, or use `leasehold"
        ):
            await runtime.backups.snapshot().__aenter__()
        assert leftovers(tmp_path) == []
        await fill(runtime)

    with_runtime(tmp_path, work)


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "snapshot-abc.leasehold-partial").write_bytes(b"x")
    (tmp_path / "notes-of-mine").write_bytes(b"x")

    async def work(runtime: Runtime) -> None:
        assert leftovers(tmp_path) == []
        assert (tmp_path / "notes-of-mine").exists()

    with_runtime(tmp_path, work)


@pytest.mark.usefixtures("in_small_slices")
def test_one_that_is_being_made_ends_with_the_engine(tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        await fill(runtime)
        task = asyncio.create_task(runtime.backups.snapshot().__aenter__())
        await until(lambda: bool(runtime.backups._under_way))
        await runtime.backups.close()
        with pytest.raises(Closed):
            await task
        assert leftovers(tmp_path) == []

    with_runtime(tmp_path, work)
