"""Backups of an engine that goes on, of a directory that nobody has, and what restores make."""

import asyncio
import contextlib
import os
import random
import resource
import shutil
import stat
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from leasehold.engine.embedded import EmbeddedEngine, open_engine
from leasehold.errors import (
    Closed,
    Compacted,
    DamagedJournal,
    DirectoryInUse,
    ForeignJournal,
    StorageError,
    TooBusy,
)
from leasehold.journal import records
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.journal.journal_format import FORMAT_VERSION, PAGE_BYTES
from leasehold.store import backup as backup_module
from leasehold.store import restoring
from leasehold.store.backup import MAX_BACKUPS, Backup, Copy, back_up_directory
from leasehold.store.backup_file import BackupDraft, OnProgress, draft_path
from leasehold.store.checking import Report, check, check_backup, check_directory, reading
from leasehold.store.restoring import REVISIONS_AHEAD, restore

FLIPS = 150
WITHIN_S = 120.0


@pytest.fixture
def in_small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a page copied at a time."""
    monkeypatch.setattr(backup_module, "SLICE_S", 0.0)
    monkeypatch.setattr(backup_module, "PAGES_PER_STEP", 1)


def with_engine(
    directory: Path | str, work: Callable[[EmbeddedEngine], Coroutine[Any, Any, Any]]
) -> Any:
    """Do something with an engine, which is closed in the end."""

    async def run() -> Any:
        async with asyncio.timeout(WITHIN_S):
            async with open_engine(directory) as engine:
                return await work(engine)

    return asyncio.run(run())


def filled(directory: Path, keys: int = 40, size: int = 3000) -> None:
    """Make a directory with some keys, a history, and a lease."""

    async def fill(engine: EmbeddedEngine) -> None:
        lease = (await engine.grant(600.0, lease=7)).id
        for number in range(keys):
            await engine.put(b"key %d" % number, b"%d" % number * size)
        await engine.put(b"leased", b"value", lease=lease)
        await engine.delete(b"key 0")

    with_engine(directory, fill)


def backed_up(tmp_path: Path) -> Path:
    """Make a backup of a filled directory."""
    filled(tmp_path / "data")
    return back_up_directory(tmp_path / "data", tmp_path / "backup.db").path


def state(directory: Path) -> dict[str, tuple[bytes, int]]:
    """All that can be seen of the files in a directory."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.iterdir()
        if path.is_file()
    }


# What is in it


def _lines_up(journal: Journal, number: int) -> None:
    pair = number.to_bytes(4, "big") * 2000
    journal.append(number, number, records.deleted(pair, number))


@pytest.mark.usefixtures("in_small_slices")
def test_what_is_appended_folded_and_checkpointed_meanwhile_gets_into_the_copy(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "data")
    draft = BackupDraft(tmp_path / "copy")
    draft.begin()
    number = 1
    for _ in range(60):
        number += 1
        _lines_up(journal, number)
    journal.checkpoint()
    copy = Copy(draft.path)
    copy.begin(journal.copy_into)
    slices = 0
    while copy.go_on():
        slices += 1
        if slices % 3 == 0:
            number += 1
            _lines_up(journal, number)
        if slices % 20 == 0:
            journal.checkpoint()
        if slices % 7 == 0:
            journal.fold(30)
    copy.close()
    expected, folded = list(journal.rows()), journal.progress.folded
    assert number > 100
    assert folded > 10
    journal.close()
    (tmp_path / "as data").mkdir()
    draft.path.rename(tmp_path / "as data" / FILE_NAME)
    draft.discard()
    again = Journal(tmp_path / "as data")
    assert list(again.rows()) == expected
    assert again.progress.folded == folded
    again.close()


@pytest.mark.usefixtures("in_small_slices")
def test_every_slice_leaves_less_to_do_however_much_is_appended_meanwhile(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "data")
    for number in range(2, 30):
        _lines_up(journal, number)
    (tmp_path / "copy").touch()
    copy = Copy(tmp_path / "copy")
    copy.begin(journal.copy_into)
    left = []
    while copy.go_on():
        left.append(copy.total_bytes - copy.done_bytes)
        number += 1
        journal.append(number, number, bytes(20 * PAGE_BYTES))  # far more than a slice copies
    assert len(left) > 10
    assert left == sorted(left, reverse=True)
    assert len({*left}) == len(left)
    copy.close()
    journal.close()


@pytest.mark.usefixtures("in_small_slices")
def test_acknowledged_puts_are_in_it_and_what_is_in_it_is_a_prefix(tmp_path: Path) -> None:
    async def work(engine: EmbeddedEngine) -> tuple[int, list[int], Backup]:
        acknowledged = [1]
        begun = asyncio.Event()
        over = False

        async def puts() -> None:
            while not over:
                number = len(acknowledged)
                put = await engine.put(b"%08d" % number, b"x" * 500)
                acknowledged.append(put.revision)
                if number == 100:
                    begun.set()

        writer = asyncio.create_task(puts())
        await begun.wait()
        before = acknowledged[-1]
        made = await engine.backup(tmp_path / "backup.db")
        over = True
        await writer
        return before, acknowledged, made

    before, acknowledged, made = with_engine(tmp_path / "data", work)
    assert before + 10 < made.revision <= acknowledged[-1]  # commits went on meanwhile
    found = check(made.path)
    assert found.revision == made.revision
    assert found.size_bytes == made.size_bytes == made.path.stat().st_size
    assert found.keys == made.revision - 1
    restore(made.path, tmp_path / "restored")

    async def names(engine: EmbeddedEngine) -> list[bytes]:
        return [pair.key for pair in (await engine.range(b"0", b"\0")).pairs]

    restored = with_engine(tmp_path / "restored", names)
    assert restored == [b"%08d" % number for number in range(1, made.revision)]


def test_progress_is_told_and_ends_with_everything(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    filled(tmp_path / "data")
    with_engine(
        tmp_path / "data",
        lambda engine: engine.backup(tmp_path / "backup.db", lambda *how: told.append(how)),
    )
    assert told == sorted(told)
    done, total = told[-1]
    assert done == total == (tmp_path / "backup.db").stat().st_size - 512 - 32


def test_what_is_kept_in_memory_only_can_be_backed_up_too(tmp_path: Path) -> None:
    async def work(engine: EmbeddedEngine) -> None:
        await engine.put(b"a", b"1")
        await engine.backup(tmp_path / "backup.db")

    with_engine("memory:", work)
    assert check(tmp_path / "backup.db").keys == 1
    assert restore(tmp_path / "backup.db", tmp_path / "data").keys == 1
    assert with_engine(tmp_path / "data", lambda engine: engine.range(b"a")).total == 1


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert stat.S_IMODE(backed_up(tmp_path).stat().st_mode) == 0o600


# Where it goes


def _refused(tmp_path: Path, target: Path | str, text: str, *, force: bool = False) -> None:
    """Check that a backup is refused, of an engine and of a directory, and leaves nothing."""
    if not (tmp_path / "data").exists():
        filled(tmp_path / "data", keys=2, size=1)
    before = sorted(tmp_path.rglob("*"))

    async def work(engine: EmbeddedEngine) -> None:
        with pytest.raises(StorageError, match=text):
            await engine.backup(target, force=force)

    with_engine(tmp_path / "data", work)
    with pytest.raises(StorageError, match=text):
        back_up_directory(tmp_path / "data", target, force=force)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    _refused(tmp_path, tmp_path / "taken", "already exists: choose another name, or .*--force")
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_a_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "taken").symlink_to("nowhere")
    _refused(tmp_path, tmp_path / "taken", "is not a file: choose another name")


def test_a_name_that_is_taken_while_it_is_made_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    target = tmp_path / "backup.db"

    def take(*_: object) -> None:
        target.write_text("mine")

    async def work(engine: EmbeddedEngine) -> None:
        with pytest.raises(StorageError, match="already exists"):
            await engine.backup(target, take)

    with_engine(tmp_path / "data", work)
    assert target.read_text() == "mine"
    assert not draft_path(target).exists()


def test_a_file_is_replaced_if_that_is_asked_for(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    (tmp_path / "taken").write_text("old")
    with_engine(tmp_path / "data", lambda engine: engine.backup(tmp_path / "taken", force=True))
    assert check(tmp_path / "taken").leases == 1


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_not_a_file_is_never_replaced(kind: str, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    if kind == "directory":
        taken.mkdir()
    else:
        os.mkfifo(taken)
    _refused(tmp_path, taken, "is not a file: choose another name", force=True)


@pytest.mark.parametrize("name", [FILE_NAME, "other"])
def test_the_data_directory_itself_is_refused(name: str, tmp_path: Path) -> None:
    text = "is within the data directory .*: a backup belongs elsewhere"
    _refused(tmp_path, tmp_path / "data" / name, text, force=True)
    (tmp_path / "link").symlink_to("data")
    _refused(tmp_path, tmp_path / "link" / name, text, force=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no/where", "there is no directory .*no; make it first"),
        ("zero\0byte", "cannot be written: embedded null byte"),
        ("x" * 250, "File name too long; choose another place"),
    ],
)
def test_a_name_that_cannot_be_is_refused(name: str, text: str, tmp_path: Path) -> None:
    _refused(tmp_path, str(tmp_path / name), text)


def test_a_strange_name_is_as_good_as_any(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    for name in ("100% ?#&=.db", "h\u00e4\u00df", os.fsdecode(b"\xff\xfe")):
        with_engine(tmp_path / "data", lambda engine, to=name: engine.backup(tmp_path / to))  # type: ignore[misc]
        assert check(tmp_path / name).leases == 1
        back_up_directory(tmp_path / "data", tmp_path / name, force=True)
        assert check(tmp_path / name).leases == 1


def test_what_a_killed_process_has_left_is_written_over(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    target = tmp_path / "backup.db"
    draft_path(target).write_bytes(os.urandom(10_000_000))
    back_up_directory(tmp_path / "data", target)
    check(target)
    assert not draft_path(target).exists()


def test_two_backups_under_one_name_do_not_meet(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    first = BackupDraft(tmp_path / "backup.db")
    first.begin()
    with pytest.raises(StorageError, match=r"another backup is being written to .*backup.db: wait"):
        back_up_directory(tmp_path / "data", tmp_path / "backup.db")
    assert first.path.exists()
    first.discard()
    back_up_directory(tmp_path / "data", tmp_path / "backup.db")


# What fails


@contextlib.contextmanager
def _files_no_longer_than(limit_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("is_whole", "text"),
    [
        (False, "the backup was given up: the disk could not be written, .* there is room for it"),
        (True, "backup.db cannot be written: File too large; make room"),
    ],
)
def test_a_disk_that_takes_no_more_ends_the_backup_and_nothing_else(
    is_whole: bool, text: str, tmp_path: Path
) -> None:
    """In the middle of the copy, or when but the checksum is missing."""
    filled(tmp_path / "data", keys=100, size=50_000)
    length = (tmp_path / "data" / FILE_NAME).stat().st_size
    assert length > 7_000_000

    async def work(engine: EmbeddedEngine) -> None:
        await engine.put(b"before", b"1")
        with (
            _files_no_longer_than(length if is_whole else 6_000_000),
            pytest.raises(StorageError, match=text),
        ):
            await engine.backup(tmp_path / "backup.db")
        await engine.put(b"after", b"2")
        assert (await engine.range(b"before")).total == 1

    with_engine(tmp_path / "data", work)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert check_directory(tmp_path / "data").keys == 102


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (apsw.SQLITE_FULL, "given up: the disk is full; make sure that there is room for it"),
        (apsw.SQLITE_BUSY, "given up: BusyError: "),
    ],
)
def test_what_sqlite_says_of_a_copy_is_told(
    code: int, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "data")

    class Failing:
        remaining = page_count = 1

        def step(self, _: int) -> bool:
            raise apsw.exception_for(code)

        def finish(self) -> None:
            return

    def copy_into(_: Journal, target: apsw.Connection) -> Failing:
        return Failing()

    async def work(engine: EmbeddedEngine) -> None:
        monkeypatch.setattr(Journal, "copy_into", copy_into)
        with pytest.raises(StorageError, match=text):
            await engine.backup(tmp_path / "b")
        await engine.put(b"after", b"2")

    with_engine(tmp_path / "data", work)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.usefixtures("in_small_slices")
def test_a_backup_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "data")

    async def work(engine: EmbeddedEngine) -> None:
        some = asyncio.Event()
        task = asyncio.create_task(engine.backup(tmp_path / "b", lambda *_: some.set()))
        await some.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.put(b"after", b"2")
        await engine.backup(tmp_path / "c")

    with_engine(tmp_path / "data", work)
    assert {path.name for path in tmp_path.iterdir()} == {"data", "c"}


@pytest.mark.usefixtures("in_small_slices")
def test_closing_the_engine_ends_a_backup_and_leaves_a_clean_journal(tmp_path: Path) -> None:
    filled(tmp_path / "data")

    async def work(engine: EmbeddedEngine) -> None:
        some = asyncio.Event()
        task = asyncio.create_task(engine.backup(tmp_path / "b", lambda *_: some.set()))
        await some.wait()
        await engine.close()
        with pytest.raises(Closed, match="closed before the backup was made"):
            await task
        with pytest.raises(Closed):
            await engine.backup(tmp_path / "b")

    with_engine(tmp_path / "data", work)
    assert {path.name for path in tmp_path.iterdir()} == {"data"}
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"LOCK", FILE_NAME}


def test_an_error_in_the_callback_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "data")

    def fail(*_: object) -> None:
        raise LookupError("mine")

    async def work(engine: EmbeddedEngine) -> None:
        with pytest.raises(LookupError, match="mine"):
            await engine.backup(tmp_path / "b", fail)
        await engine.put(b"after", b"2")

    with_engine(tmp_path / "data", work)
    assert {path.name for path in tmp_path.iterdir()} == {"data"}


@pytest.mark.usefixtures("in_small_slices")
def test_only_so_many_backups_are_made_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "data")
    may_begin = threading.Event()
    begin = BackupDraft.begin

    async def work(engine: EmbeddedEngine) -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Semaphore(0)

        def begin_later(draft: BackupDraft) -> None:
            loop.call_soon_threadsafe(begun.release)
            assert may_begin.wait(WITHIN_S)
            begin(draft)

        monkeypatch.setattr(BackupDraft, "begin", begin_later)
        tasks = [
            asyncio.create_task(engine.backup(tmp_path / f"{number}"))
            for number in range(MAX_BACKUPS)
        ]
        for _ in range(MAX_BACKUPS):
            await begun.acquire()
        with pytest.raises(TooBusy, match=f"{MAX_BACKUPS} backups are being made"):
            await engine.backup(tmp_path / "one more")
        may_begin.set()
        made = await asyncio.gather(*tasks)
        assert {each.revision for each in made} == {check(tmp_path / "0").revision}

    with_engine(tmp_path / "data", work)


# A directory that nobody has


def _killed(source: Path, target: Path) -> None:
    """Make a directory as a process that was killed leaves it."""

    async def work(engine: EmbeddedEngine) -> None:
        await engine.put(b"in the log", b"1")
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("CONTROL"))

    with_engine(source, work)


@pytest.mark.parametrize("has_log", [False, True])
def test_a_directory_is_not_changed_by_its_backup(has_log: bool, tmp_path: Path) -> None:
    filled(tmp_path / "data")
    if has_log:
        _killed(tmp_path / "data", tmp_path / "killed")
    directory = tmp_path / ("killed" if has_log else "data")
    before = state(directory)
    assert (f"{FILE_NAME}-wal" in before) is has_log
    made = back_up_directory(directory, tmp_path / "backup.db")
    assert state(directory) == before
    assert check(made.path).keys == 40 + has_log


def test_a_directory_that_somebody_has_is_refused(tmp_path: Path) -> None:
    async def work(_: EmbeddedEngine) -> None:
        with pytest.raises(DirectoryInUse, match=f"in use by process {os.getpid()}: make a backup"):
            back_up_directory(tmp_path / "data", tmp_path / "b")

    with_engine(tmp_path / "data", work)


def test_a_directory_that_is_read_cannot_be_opened(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    with reading(tmp_path / "data"), pytest.raises(DirectoryInUse):
        Journal(tmp_path / "data")


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_not_a_data_directory_is_refused_and_not_made_one(
    name: str, tmp_path: Path
) -> None:
    why = (
        "does not exist" if name == "nothing" else f"is not a data directory: it has no {FILE_NAME}"
    )
    with pytest.raises(StorageError, match=why):
        back_up_directory(tmp_path / name, tmp_path / "no" / "b")
    assert list(tmp_path.iterdir()) == []


# Restoring


def test_a_restored_directory_has_everything_under_other_ids_a_billion_revisions_later(
    tmp_path: Path,
) -> None:
    made = backed_up(tmp_path)
    before = check(made)
    content = made.read_bytes()
    report = restore(made, tmp_path / "new" / "restored")
    assert made.read_bytes() == content
    found = check(tmp_path / "new" / "restored")
    assert report == found
    assert found.revision == found.compacted > before.revision + REVISIONS_AHEAD
    assert REVISIONS_AHEAD == 10**9
    assert (found.keys, found.leases, found.format) == (40, 1, FORMAT_VERSION)
    assert found.identity.term == before.identity.term
    assert not {*found.identity[:2]} & {*before.identity[:2]}
    assert restore(made, tmp_path / "another").identity.cluster_id != found.identity.cluster_id

    async def work(engine: EmbeddedEngine) -> None:
        for key in range(1, 40):
            (pair,) = (await engine.range(b"key %d" % key)).pairs
            assert (pair.value, pair.mod_revision) == (b"%d" % key * 3000, key + 2)
        info = await engine.time_to_live(7, keys=True)
        assert (info.ttl, info.keys) == (600.0, (b"leased",))
        assert 590 < info.remaining <= 600

    with_engine(tmp_path / "new" / "restored", work)


def test_revisions_and_watches_never_go_back_after_a_restore(tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    old = check(made).revision
    now = restore(made, tmp_path / "restored").revision

    async def first(engine: EmbeddedEngine) -> None:
        assert (await engine.range(b"leased")).revision == now
        assert (await engine.range(b"leased", revision=now)).total == 1
        gone = (1, old - 1, old, old + 1, now - 1)
        watches = [engine.watch(b"leased", start=revision) for revision in gone]
        for revision, watch in zip(gone, watches, strict=True):
            with pytest.raises(Compacted) as refused:
                await engine.range(b"leased", revision=revision)
            assert refused.value.revision == now
            with pytest.raises(Compacted):
                await anext(watch)
        assert (await engine.put(b"leased", b"new")).revision == now + 1

    async def later(engine: EmbeddedEngine) -> None:
        (pair,) = (await engine.range(b"leased")).pairs
        assert (pair.mod_revision, pair.version, pair.value) == (now + 1, 2, b"new")
        assert pair.create_revision < old
        with pytest.raises(Compacted):
            await engine.range(b"leased", revision=old)
        await engine.compact(now + 1, wait=True)
        await engine.put(b"x", b"y")

    with_engine(tmp_path / "restored", first)
    for _ in range(2):
        check(tmp_path / "restored")
        with_engine(tmp_path / "restored", _once(later))
        now_found = check(tmp_path / "restored").revision
        assert now_found == now + 2


def _once(
    work: Callable[[EmbeddedEngine], Coroutine[Any, Any, None]],
) -> Callable[[EmbeddedEngine], Coroutine[Any, Any, None]]:
    async def first_time_only(engine: EmbeddedEngine) -> None:
        if not (await engine.range(b"x")).total:
            await work(engine)

    return first_time_only


def test_what_leases_were_promised_is_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "data")
    lease = b"\x08\x07"
    changes = records.granted(lease[1:], 1000.0) + records.promised(lease[1:], 400.0)
    journal.append(2, 1, changes)
    journal.close()
    restore(
        back_up_directory(tmp_path / "data", tmp_path / "b").path,
        tmp_path / "restored",
    )
    info = with_engine(tmp_path / "restored", lambda engine: engine.time_to_live(7))
    assert info.ttl == 1000.0
    assert 390 < info.remaining <= 400


def test_a_backup_of_a_restored_directory_can_be_restored_again(tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    once = restore(made, tmp_path / "once")
    again = back_up_directory(tmp_path / "once", tmp_path / "again.db")
    assert restore(again.path, tmp_path / "twice").revision > once.revision
    assert with_engine(tmp_path / "twice", lambda engine: engine.range(b"leased")).total == 1


@pytest.mark.parametrize("there", ["nothing", "empty", "leftovers"])
def test_a_directory_may_be_empty(there: str, tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    target = tmp_path / "restored"
    if there != "nothing":
        target.mkdir()
    if there == "leftovers":  # of a restore that was killed
        (target / "LOCK").write_text("123")
        (target / f"{FILE_NAME}.new").write_bytes(made.read_bytes()[:10_000])
        (target / f"{FILE_NAME}.new-wal").write_bytes(b"nonsense")
    restore(made, target)
    assert {path.name for path in target.iterdir()} == {"LOCK", FILE_NAME}
    assert {stat.S_IMODE(path.stat().st_mode) & 0o600 for path in target.iterdir()} == {0o600}
    assert check(target).keys == 40


def test_a_directory_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    before = state(tmp_path / "data")
    with pytest.raises(StorageError, match=f"is not empty .it has {FILE_NAME}.: name a directory"):
        restore(made, tmp_path / "data")
    assert state(tmp_path / "data") == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        StorageError, match="is not a directory: name a directory that does not exist yet"
    ):
        restore(made, tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").touch()
    with pytest.raises(StorageError, match="it has mine"):
        restore(made, tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["mine"]


def test_a_restore_that_fails_leaves_no_journal(tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    target = tmp_path / "restored"
    with (
        _files_no_longer_than(made.stat().st_size // 2),
        pytest.raises(StorageError, match=f"{target} cannot be written: File too large; make room"),
    ):
        restore(made, target)
    assert {path.name for path in target.iterdir()} <= {"LOCK"}
    restore(made, target)


def test_a_backup_that_changes_while_it_is_restored_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = backed_up(tmp_path)

    def check_and_flip(path: Path, on_progress: OnProgress) -> Report:
        found = check_backup(path, on_progress)
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"X")
        return found

    monkeypatch.setattr(restoring, "check_backup", check_and_flip)
    with pytest.raises(DamagedJournal, match="its content does not match its checksum"):
        restore(made, tmp_path / "restored")
    assert {path.name for path in (tmp_path / "restored").iterdir()} <= {"LOCK"}


# Damage


def test_every_flipped_byte_is_found_and_nothing_is_made_of_it(tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    content = made.read_bytes()
    draw = random.Random(20)
    places = [*range(100), *draw.sample(range(len(content)), FLIPS), *range(-40, 0)]
    damaged = tmp_path / "damaged.db"
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        damaged.write_bytes(flipped)
        for work in (check, lambda path: restore(path, tmp_path / "restored")):
            with pytest.raises((DamagedJournal, ForeignJournal), match=str(damaged)):
                work(damaged)
        assert damaged.read_bytes() == flipped
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("cut", [1, 31, 32, 33, PAGE_BYTES, PAGE_BYTES + 32, -1, -PAGE_BYTES])
def test_a_file_that_is_too_short_or_too_long_is_refused(cut: int, tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    content = made.read_bytes()
    made.write_bytes(content[:-cut] if cut > 0 else content + bytes(-cut))
    for work in (check, lambda path: restore(path, tmp_path / "restored")):
        with pytest.raises(DamagedJournal, match=r"cut short|is damaged"):
            work(made)
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not a journal, .*: name a file that `leasehold backup` has made"),
        (b"hello", "not a journal, .*: name a file that `leasehold backup` has made"),
        (
            bytes(8192 + 32),
            "not a journal, .*: name a file that `leasehold backup` has made",
        ),
    ],
)
def test_a_foreign_file_is_refused(content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(content)
    for work in (check, lambda path: restore(path, tmp_path / "restored")):
        with pytest.raises(ForeignJournal, match=text):
            work(tmp_path / "foreign")


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    made = backed_up(tmp_path)
    content = bytearray(made.read_bytes())
    content[60:64] = (FORMAT_VERSION + 1).to_bytes(4, "big")
    made.write_bytes(content)
    for work in (check, lambda path: restore(path, tmp_path / "restored")):
        with pytest.raises(ForeignJournal, match=f"has format {FORMAT_VERSION + 1}, .* wrote it"):
            work(made)


def test_the_file_of_a_directory_is_no_backup(tmp_path: Path) -> None:
    filled(tmp_path / "data")
    with pytest.raises(
        DamagedJournal, match=r"does not end with a checksum: .* or is not a backup"
    ):
        restore(tmp_path / "data" / FILE_NAME, tmp_path / "restored")


def test_a_backup_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nothing cannot be read: No such file"):
        restore(tmp_path / "nothing", tmp_path / "restored")
    assert list(tmp_path.iterdir()) == []
