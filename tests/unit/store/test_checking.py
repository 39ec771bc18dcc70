"""Checking: what is wrong is found and named, and nothing is changed by looking at it."""

import asyncio
import hashlib
import os
import random
import shutil
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from leasehold.engine.embedded import EmbeddedEngine, open_engine
from leasehold.errors import DamagedJournal, DirectoryInUse, ForeignJournal, StorageError
from leasehold.journal import folding, records
from leasehold.journal.data_dir import LOCK_NAME
from leasehold.journal.journal import FILE_NAME, Journal
from leasehold.journal.journal_format import (
    FORMAT_VERSION,
    READ_IDENTITY,
    WRITE_IDENTITY,
    batch_checksum,
    lease_checksum,
    pack_identity,
    unpack_identity,
)
from leasehold.store.backup import back_up_directory
from leasehold.store.checking import Report, check, check_backup, check_directory
from leasehold.wire.codec import key_value, varint

FLIPS = 60


def filled(directory: Path, *, then: Callable[[EmbeddedEngine], Coroutine[Any, Any, None]]) -> None:
    """Make a directory with keys and leases, some folded and some not."""

    async def fill() -> None:
        async with open_engine(directory) as engine:
            await engine.grant(600.0, lease=7)
            await engine.grant(60.0, lease=8)
            for number in range(30):
                await engine.put(b"key %d" % (number % 20), b"%d" % number * 500)
            await engine.put(b"leased", b"value", lease=7)
            await engine.compact(20, wait=True)
            await engine.put(b"also leased", b"value", lease=8)
            await engine.delete(b"key 3")
            await engine.revoke(8)
            await then(engine)

    asyncio.run(fill())


async def _nothing(_: EmbeddedEngine) -> None:
    return


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that was closed in good order."""
    filled(tmp_path / "data", then=_nothing)
    return tmp_path / "data"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A directory of a process that was killed: much of it is in the log."""

    async def copy(_: EmbeddedEngine) -> None:
        ignored = shutil.ignore_patterns("CONTROL")
        shutil.copytree(tmp_path / "running", tmp_path / "killed", ignore=ignored)

    filled(tmp_path / "running", then=copy)
    return tmp_path / "killed"


def state(directory: Path) -> dict[str, tuple[bytes, int]]:
    """All that can be seen of the files in a directory, and of itself."""
    found = {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()
    }
    return {**found, ".": (b"", directory.stat().st_mtime_ns)}


def _sql(directory: Path, statement: str, *bindings: Any) -> list[Any]:
    connection = apsw.Connection(str(directory / FILE_NAME))
    rows: list[Any] = connection.execute(statement, bindings).fetchall()
    connection.close()
    return rows


def _found(path: Path, text: str, kind: type[StorageError] = DamagedJournal) -> None:
    before = state(path)
    with pytest.raises(kind, match=text) as found:
        check(path)
    assert type(found.value) is kind
    assert str(path) in str(found.value)
    assert state(path) == before


# What is in order


def _facts(report: Report) -> tuple[int, ...]:
    return report.format, report.revision, report.compacted, report.keys, report.leases


def test_a_directory_that_was_closed_is_in_order_and_left_alone(directory: Path) -> None:
    before = state(directory)
    report = check(directory)
    assert state(directory) == before
    assert _facts(report) == (FORMAT_VERSION, 35, 20, 20, 1)
    assert report.size_bytes == (directory / FILE_NAME).stat().st_size
    assert report.path == directory / FILE_NAME


def test_a_directory_of_a_process_that_was_killed_is_in_order_and_left_alone(killed: Path) -> None:
    before = state(killed)
    assert len(before[f"{FILE_NAME}-wal"][0]) > 0
    for _ in range(2):
        assert _facts(check(killed)) == (FORMAT_VERSION, 35, 20, 20, 1)
    assert state(killed) == before
    journal = Journal(killed)  # and it opens as before
    journal.close()


def test_a_copy_without_a_lock_is_checked_and_gets_none(directory: Path) -> None:
    (directory / LOCK_NAME).unlink()
    check(directory)
    assert [path.name for path in directory.iterdir()] == [FILE_NAME]


def test_a_directory_that_cannot_be_written_can_be_checked(directory: Path) -> None:
    for path in (directory / FILE_NAME, directory / LOCK_NAME):
        path.chmod(0o400)
    directory.chmod(0o500)
    assert check(directory).keys == 20
    directory.chmod(0o700)


def test_a_journal_that_was_never_used_is_in_order(tmp_path: Path) -> None:
    Journal(tmp_path / "data").close()
    assert _facts(check(tmp_path / "data")) == (FORMAT_VERSION, 1, -1, 0, 0)


def test_a_fold_that_was_broken_off_is_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "CHANGES_PER_STEP", 3)
    journal = Journal(tmp_path)
    pairs = [key_value(b"%d" % n, n, n, 1, b"x", 0) for n in range(2, 12)]
    journal.append(2, 11, b"".join(map(records.put, pairs)))
    journal.append(12, 12, records.deleted(b"5", 12) + records.compacted(12))
    assert journal.fold(12)
    assert journal.progress.folded_changes == 3
    journal.close()
    report = check(tmp_path)
    assert (report.revision, report.compacted, report.keys) == (12, 12, 9)


def test_a_backup_is_in_order_and_left_alone_whatever_is_beside_it(directory: Path) -> None:
    (directory.parent / "elsewhere").mkdir()
    made = back_up_directory(directory, directory.parent / "elsewhere" / "b.db").path
    for suffix in ("-wal", "-journal", "-shm"):
        made.with_name(f"b.db{suffix}").write_bytes(os.urandom(5000))
    before = state(made.parent)
    report = check(made)
    assert state(made.parent) == before
    assert _facts(report) == _facts(check(directory))
    assert report.identity == check(directory).identity


# What is not


def test_a_directory_in_use_is_told_with_who_has_it_and_what_to_do(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_engine(tmp_path / "data"):
            with pytest.raises(
                DirectoryInUse,
                match=f"in use by process {os.getpid()}: make a backup with `leasehold backup` and",
            ):
                check(tmp_path / "data")

    asyncio.run(work())


def test_nothing_and_no_data_are_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist: name a data directory or a backup"):
        check(tmp_path / "nothing")
    with pytest.raises(StorageError, match=f"is not a data directory: it has no {FILE_NAME}"):
        check(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_foreign_files_are_told(directory: Path) -> None:
    _sql(directory, f"PRAGMA user_version={FORMAT_VERSION + 7}")
    _found(directory, f"has format {FORMAT_VERSION + 7}", ForeignJournal)
    _sql(directory, "PRAGMA application_id=1")
    _found(directory, "belongs to another program", ForeignJournal)
    (directory / FILE_NAME).write_bytes(b"text")
    _found(directory, "is not a journal", ForeignJournal)


def test_a_rollback_journal_beside_it_is_told(directory: Path) -> None:
    (directory / f"{FILE_NAME}-journal").write_bytes(b"of whom?")
    _found(directory, f"{FILE_NAME}-journal next to it was written by another program")


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE batch SET changes = x'00' WHERE id = 30", "row 30 .* has the wrong checksum"),
        ("UPDATE batch SET changes = x'00' WHERE id = 21", "row 21 is gone or damaged"),
        ("DELETE FROM batch WHERE id = 30", "row 30 is missing"),
        ("DELETE FROM batch WHERE id > 30", r"rows 31 to 3\d are missing"),
        ("UPDATE pair SET checksum = 1", "key b'key 0' has the wrong checksum"),
        ("UPDATE lease SET promised_s = 1e9", "lease 0000000000000007 has the wrong checksum"),
        ("UPDATE identity SET term = 99", "its identity has the wrong checksum"),
        ("DELETE FROM identity", "its identity has the wrong checksum"),
        ("DROP TABLE lease", "no such table: lease"),
    ],
)
def test_what_was_changed_is_found(statement: str, text: str, directory: Path) -> None:
    _sql(directory, statement)
    _found(directory, text)


@pytest.mark.parametrize(
    ("table", "text"),
    [("pair", "key b'k' has the wrong checksum"), ("lease", "lease b'k' has the wrong checksum")],
)
def test_rows_of_nothing_are_found(table: str, text: str, directory: Path) -> None:
    """A page that the disk forgot reads as rows of NULL, whatever the table says."""
    columns = [row[1] for row in _sql(directory, f"PRAGMA table_info({table})")]
    _sql(directory, f"DROP TABLE {table}")
    _sql(directory, f"CREATE TABLE {table} ({', '.join(columns)})")
    _sql(directory, f"INSERT INTO {table} ({columns[0]}) VALUES (x'6b')")  # noqa: S608  a table of ours
    _found(directory, text)


def _append(directory: Path, changes: bytes, first: int = 36, last: int = 36) -> None:
    journal = Journal(directory)
    journal.append(first, last, changes)
    journal.close()


def _pair(
    revision: int, lease: int = 0, key: bytes = b"new", *, create: int | None = None
) -> bytes:
    return key_value(key, create or revision, revision, 1, b"x", lease)


@pytest.mark.parametrize(
    ("changes", "revisions", "text"),
    [
        (
            records.put(_pair(36)),
            (37, 37),
            "revisions 37 to 37, but the row before it ends at revision 35",
        ),
        (
            records.put(_pair(36)),
            (35, 36),
            "revisions 35 to 36, but the row before it ends at revision 35",
        ),
        (
            records.put(_pair(36)),
            (36, 34),
            "revisions 36 to 34, but the row before it ends at revision 35",
        ),
        (
            records.put(_pair(34)),
            (36, 36),
            "has a change at revision 34 that follows one at revision 35",
        ),
        (
            records.put(_pair(40)),
            (36, 36),
            "has a change at revision 40 that follows one at revision 35",
        ),
        (
            records.put(_pair(37)) + records.deleted(b"key 4", 36),
            (36, 37),
            "has a change at revision 36 that follows one at revision 37",
        ),
        (
            records.jumped(50),
            (36, 49),
            "has a change at revision 50 that follows one at revision 35",
        ),
        (records.put(_pair(36, 99)), (36, 36), "do not follow from those before"),
        (records.deleted(b"nobody", 36), (36, 36), "do not follow from those before"),
        (records.ended(varint(99)), (36, 35), "do not follow from those before"),
        (
            records.ended(varint(7)),
            (36, 35),
            "key b'leased' belongs to lease 0000000000000007, which has ended",
        ),
        (records.compacted(99), (36, 35), "revision 99 was compacted before it was written"),
        (b"\x0a\xff", (36, 35), "a row cannot be read"),
        (b"\x0a\x02\x7a\x00", (36, 35), "a change of a kind unknown to this version"),
    ],
)
def test_what_makes_no_sense_is_found_though_its_checksum_is_right(
    changes: bytes, revisions: tuple[int, int], text: str, directory: Path
) -> None:
    _append(directory, changes, *revisions)
    _found(directory, text)


def _put_pair(directory: Path, key: bytes, pair: bytes) -> None:
    _sql(directory, "REPLACE INTO pair VALUES (?, ?, ?)", key, pair, zlib.crc32(pair))


@pytest.mark.parametrize(
    ("pair", "text"),
    [
        (_pair(25), "a key is at revision 25, but the folded rows end at revision 20"),
        (_pair(5, create=6), "version 1, created at revision 6, modified at 5"),
        (_pair(5, 99), "a key belongs to lease 0000000000000063, which does not exist"),
    ],
)
def test_a_key_in_the_tables_that_makes_no_sense_is_found(
    pair: bytes, text: str, directory: Path
) -> None:
    _put_pair(directory, b"new", pair)
    _found(directory, text)


def test_a_key_under_another_name_is_found(directory: Path) -> None:
    _sql(directory, "UPDATE pair SET key = x'ff' WHERE key = CAST('key 5' AS BLOB)")
    _found(directory, r"the row of key b'\\xff' contains key b'key 5'")


def _set_progress(directory: Path, **changes: int) -> None:
    connection = apsw.Connection(str(directory / FILE_NAME))
    known = unpack_identity(connection.execute(READ_IDENTITY).fetchall()[0])
    assert known is not None
    identity, progress = known
    row = pack_identity(identity, progress._replace(**changes))
    connection.execute(WRITE_IDENTITY, row)
    connection.close()


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ({"batches": 999}, "to 999 are missing"),
        ({"base_revision": 5}, "row before it ends at revision 5|folded rows end at revision 5"),
        ({"compacted": 99}, "compacted revision 99 is higher than the current revision 35"),
        ({"folded": 0}, "row 1 is missing"),
    ],
)
def test_progress_that_does_not_fit_the_tables_is_found(
    progress: dict[str, int], text: str, directory: Path
) -> None:
    _set_progress(directory, **progress)
    _found(directory, text)


def test_a_row_that_was_folded_already_is_found(directory: Path) -> None:
    changes = records.put(_pair(2))
    row = (1, 2, 2, changes, batch_checksum(2, 2, changes))
    _sql(directory, "INSERT INTO batch VALUES (?, ?, ?, ?, ?)", *row)
    _found(directory, "row 1 should have been deleted when rows up to")


def test_a_lease_too_many_is_no_damage(directory: Path) -> None:
    _sql(directory, "INSERT INTO lease VALUES (9, 5.0, 5.0, ?, '')", lease_checksum(9, 5.0, 5.0))
    assert check(directory).leases == 2


# Bytes that flip


def test_no_flipped_byte_of_a_directory_changes_what_is_read(directory: Path) -> None:
    """It is found, or it was in none of the places that count."""
    original = (directory / FILE_NAME).read_bytes()
    expected = check_directory(directory)
    found = 0
    draw = random.Random(3)
    for _ in range(FLIPS):
        flipped = bytearray(original)
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        (directory / FILE_NAME).write_bytes(flipped)
        try:
            assert check_directory(directory) == expected
        except StorageError:
            found += 1
        assert (directory / FILE_NAME).read_bytes() == flipped
    assert found > FLIPS // 4


def test_damage_under_a_right_checksum_of_the_whole_is_found_as_in_a_directory(
    directory: Path,
) -> None:
    _append(directory, records.put(_pair(36, 99)))
    damaged = directory.parent / "b.db"
    content = (directory / FILE_NAME).read_bytes()
    damaged.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(DamagedJournal, match=f"{damaged} is damaged: .* do not follow"):
        check_backup(damaged)
