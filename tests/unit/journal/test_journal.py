"""The journal: what it keeps, what it refuses, and that it leaves alone what it refuses."""

import os
import random
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from leasehold.errors import (
    Closed,
    DamagedJournal,
    DirectoryInUse,
    ForeignJournal,
    JournalFailed,
    StorageError,
)
from leasehold.journal import journal_format
from leasehold.journal.data_dir import LOCK_NAME
from leasehold.journal.journal import (
    CHECKPOINT_PAGES,
    FILE_NAME,
    Identity,
    Journal,
)
from leasehold.journal.journal_files import LOG_SUFFIXES
from leasehold.journal.journal_format import APPLICATION_ID, FORMAT_VERSION, PAGE_BYTES
from leasehold.journal.journal_rows import ROWS_PER_READ, BatchRow

DAMAGES = 25
LOG = "leasehold.db-wal"
LOG_HEADER_BYTES = 32
FRAME_BYTES = PAGE_BYTES + 24


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path)
    yield made
    made.close()


def _fill(directory: Path, rows: int, size: int = 100) -> list[BatchRow]:
    journal = Journal(directory)
    appended = [BatchRow(n * 3 + 2, n * 3 + 4, bytes([n % 256]) * size) for n in range(rows)]
    for row in appended:
        journal.append(*row)
    journal.close()
    return appended


def _sql(directory: Path, *statements: str) -> None:
    connection = apsw.Connection(str(directory / FILE_NAME))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def _contents(directory: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name != LOCK_NAME and path.stat().st_size
    }


def _refused(directory: Path, kind: type[StorageError], text: str) -> None:
    """Check that it is refused with this error, that it is left alone, and not kept locked."""
    before = _contents(directory)
    for _ in range(2):
        with pytest.raises(kind, match=text) as refused:
            Journal(directory)
        assert type(refused.value) is kind
    assert _contents(directory) == before


# What it keeps


def test_rows_come_back_as_they_were_appended_in_order(tmp_path: Path) -> None:
    rows = [
        BatchRow(2, 2, b""),
        BatchRow(3, 9, b"x" * 100_000),
        BatchRow(10, 9, bytes(range(256))),
        BatchRow(10, 10, b"\0"),
    ]
    journal = Journal(tmp_path)
    for row in rows:
        journal.append(*row)
    assert list(journal.rows()) == rows
    journal.close()
    journal = Journal(tmp_path)
    assert list(journal.rows()) == rows
    journal.append(11, 11, b"more")
    assert list(journal.rows()) == [*rows, BatchRow(11, 11, b"more")]
    journal.close()


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_READ - 1, ROWS_PER_READ, ROWS_PER_READ * 2 + 1])
def test_rows_are_read_in_slices_without_losing_one(count: int, tmp_path: Path) -> None:
    appended = _fill(tmp_path, count, size=1)
    journal = Journal(tmp_path)
    assert list(journal.rows()) == appended
    journal.close()


def test_reading_that_was_not_finished_stands_in_nobodys_way(
    tmp_path: Path,
) -> None:
    _fill(tmp_path, 3)
    journal = Journal(tmp_path)
    reading = journal.rows()
    next(reading)
    journal.append(50, 50, b"more")
    journal.checkpoint()
    assert len(list(reading)) >= 2
    journal.close()


def test_a_batch_may_be_appended_in_another_thread(journal: Journal) -> None:
    thread = threading.Thread(target=journal.append, args=(2, 2, b"from a thread"))
    thread.start()
    thread.join()
    assert list(journal.rows()) == [BatchRow(2, 2, b"from a thread")]


def test_what_was_appended_is_there_without_a_close(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(2, 2, b"kept")
    for name, content in _contents(tmp_path).items():
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(content)
    journal.close()
    copy = Journal(tmp_path / "copy")
    assert list(copy.rows()) == [BatchRow(2, 2, b"kept")]
    copy.close()


@pytest.mark.parametrize("bad", ["text", None, 7])
def test_changes_that_are_not_bytes_are_refused_and_do_no_harm(
    bad: object, journal: Journal
) -> None:
    with pytest.raises(TypeError):
        journal.append(2, 2, bad)  # type: ignore[arg-type]
    journal.append(2, 2, b"good")
    assert list(journal.rows()) == [BatchRow(2, 2, b"good")]


# Identity


def test_the_ids_are_made_once_and_the_term_goes_up_at_each_opening(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        journal = Journal(tmp_path)
        seen.append(journal.identity)
        journal.close()
    cluster_id, member_id, _ = seen[0]
    assert seen == [Identity(cluster_id, member_id, term) for term in (1, 2, 3)]


def test_ids_differ_between_journals_and_are_never_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = set()
    for name in "ab":
        journal = Journal(tmp_path / name)
        ids |= set(journal.identity[:2])
        journal.close()
    assert len(ids) == 4
    monkeypatch.setattr("secrets.randbelow", lambda below: 0)
    assert journal_format.new_identity()[:2] == (1, 1)
    monkeypatch.setattr("secrets.randbelow", lambda below: below - 1)
    assert journal_format.new_identity()[:2] == (2**64 - 1, 2**64 - 1)


def test_the_largest_ids_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda below: below - 1)
    for term in (1, 2):
        journal = Journal(tmp_path)
        assert journal.identity == (2**64 - 1, 2**64 - 1, term)
        journal.close()


# The file


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    Journal(tmp_path).close()
    connection = apsw.Connection(str(tmp_path / FILE_NAME))
    pragmas = ("application_id", "user_version", "page_size", "journal_mode")
    found = [connection.execute(f"PRAGMA {name}").get for name in pragmas]
    assert found == [APPLICATION_ID, FORMAT_VERSION, PAGE_BYTES, "wal"]
    assert connection.execute("PRAGMA integrity_check").get == "ok"
    connection.close()


def test_the_files_are_for_their_owner_alone(journal: Journal, tmp_path: Path) -> None:
    journal.append(2, 2, b"secret")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {FILE_NAME: 0o600, LOG: 0o600, LOCK_NAME: 0o600}


def test_the_connection_is_set_up_to_sync_each_commit_and_to_checkpoint_only_when_asked(
    journal: Journal,
) -> None:
    assert journal._connection is not None
    pragmas = ["locking_mode", "journal_mode", "synchronous", "wal_autocheckpoint"]
    pragmas += ["fullfsync", "checkpoint_fullfsync"]
    found = [journal._connection.execute(f"PRAGMA {name}").get for name in pragmas]
    assert found == ["exclusive", "wal", 2, 0, 1, 1]


def test_a_closed_journal_is_one_file_without_a_log(tmp_path: Path) -> None:
    _fill(tmp_path, 10)
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME, LOCK_NAME}


def test_a_file_that_was_never_finished_is_made_again(tmp_path: Path) -> None:
    (tmp_path / f"{FILE_NAME}.new").write_bytes(b"half of a journal" * 1000)
    journal = Journal(tmp_path)
    assert journal.identity.term == 1
    journal.close()
    assert not (tmp_path / f"{FILE_NAME}.new").exists()


# Checkpoints


def _wants_checkpoint(journal: Journal) -> bool:
    return journal.wants_checkpoint  # by a call: its answer changes, which mypy would not expect


def test_a_checkpoint_is_wanted_when_the_log_is_long_and_not_after_one(
    journal: Journal, tmp_path: Path
) -> None:
    assert not journal.wants_checkpoint
    appended = 0
    while appended < CHECKPOINT_PAGES and not _wants_checkpoint(journal):
        journal.append(2, 2, b"x" * 100_000)
        appended += 1
    assert journal._connection is not None
    pages, _ = journal._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    assert CHECKPOINT_PAGES * 0.9 < pages < CHECKPOINT_PAGES * 1.2
    journal.checkpoint()
    assert not _wants_checkpoint(journal)
    assert len(list(journal.rows())) == appended


def test_the_log_is_written_over_after_a_checkpoint(journal: Journal, tmp_path: Path) -> None:
    for _ in range(20):
        journal.append(2, 2, b"x" * 10_000)
    journal.checkpoint()
    length = (tmp_path / LOG).stat().st_size
    for _ in range(5):
        journal.append(2, 2, b"x" * 10_000)
        journal.checkpoint()
    assert (tmp_path / LOG).stat().st_size == length


def test_what_is_in_the_log_when_it_is_opened_counts(tmp_path: Path) -> None:
    class Short(Journal):
        checkpoint_pages = 10

    journal = Journal(tmp_path / "a")
    for _ in range(20):
        journal.append(2, 2, b"x" * PAGE_BYTES)
    (tmp_path / "b").mkdir()
    for name, content in _contents(tmp_path / "a").items():
        (tmp_path / "b" / name).write_bytes(content)
    journal.close()
    again = Short(tmp_path / "b")
    assert _wants_checkpoint(again)
    again.checkpoint()
    assert not _wants_checkpoint(again)
    again.close()


# What it refuses


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0", bytes(8192)])
def test_a_file_that_is_not_of_sqlite_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    _refused(tmp_path, ForeignJournal, "not a journal, because .*: move it away, or choose another")
    assert (tmp_path / FILE_NAME).read_bytes() == content


@pytest.mark.parametrize("application_id", [0, 252006674, -1])
def test_a_database_of_another_program_is_refused(application_id: int, tmp_path: Path) -> None:
    _sql(tmp_path, f"PRAGMA application_id={application_id}", "CREATE TABLE t (x)")
    _refused(tmp_path, ForeignJournal, "belongs to another program .*: choose another directory")


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1])
def test_another_format_is_refused(version: int, tmp_path: Path) -> None:
    _fill(tmp_path, 3)
    _sql(tmp_path, f"PRAGMA user_version={version}")
    _refused(tmp_path, ForeignJournal, f"has format {version}, .*: use the release that wrote it")


@pytest.mark.parametrize(
    "change",
    [
        "changes = x'00'",
        "checksum = checksum + 1",
        "first_revision = 9",
        "last_revision = 9",
        "checksum = -1",
    ],
)
def test_a_row_that_was_changed_is_refused(change: str, tmp_path: Path) -> None:
    _fill(tmp_path, 5)
    _sql(tmp_path, f"UPDATE batch SET {change} WHERE id = 3")  # noqa: S608
    revision = 9 if change.startswith("first") else 8
    _refused(
        tmp_path,
        DamagedJournal,
        rf"row 3 \(revision {revision}\) has the wrong checksum\. The file was not changed: ",
    )


def test_a_bit_that_flipped_on_disk_is_found(tmp_path: Path) -> None:
    _fill(tmp_path, 50, size=2000)
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[content.index(bytes([20]) * 2000) + 1000] ^= 1
    path.write_bytes(content)
    _refused(tmp_path, DamagedJournal, r"row 21 \(revision 62\) has the wrong checksum")


def test_a_row_that_is_missing_is_found(tmp_path: Path) -> None:
    _fill(tmp_path, 5)
    _sql(tmp_path, "DELETE FROM batch WHERE id = 3")
    _refused(tmp_path, DamagedJournal, "row 3 is missing")


@pytest.mark.parametrize("left", [0, 3, 4])
def test_rows_that_are_missing_at_the_end_are_found(left: int, tmp_path: Path) -> None:
    _fill(tmp_path, 5)
    _sql(tmp_path, f"DELETE FROM batch WHERE id > {left}")  # noqa: S608
    _refused(tmp_path, DamagedJournal, f"rows {left + 1} to 5 are missing")


@pytest.mark.parametrize("seed", range(8))
def test_damage_anywhere_in_the_file_is_found_or_does_no_harm(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    appended = _fill(tmp_path, 40, size=700)
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    refusals = 0
    for _ in range(DAMAGES):
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            journal = Journal(tmp_path)
        except StorageError:
            refusals += 1
            assert path.read_bytes() == content
        else:
            assert list(journal.rows()) == appended
            journal.close()
    assert refusals > DAMAGES // 4


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE identity SET term = 0",
        "UPDATE identity SET member_id = x'0102030405060708'",
        "UPDATE identity SET cluster_id = x'010203040506070809'",
        "UPDATE identity SET checksum = 0",
        "DELETE FROM identity",
    ],
)
def test_an_identity_that_was_changed_is_refused(change: str, tmp_path: Path) -> None:
    _fill(tmp_path, 1)
    _sql(tmp_path, change)
    _refused(tmp_path, DamagedJournal, "its identity has the wrong checksum")


def test_a_table_that_is_missing_is_refused(tmp_path: Path) -> None:
    _fill(tmp_path, 1)
    _sql(tmp_path, "DROP TABLE batch")
    _refused(tmp_path, DamagedJournal, "no such table: batch")


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    _fill(tmp_path, 50, size=2000)
    os.truncate(tmp_path / FILE_NAME, PAGE_BYTES)
    _refused(tmp_path, DamagedJournal, "malformed")


@pytest.mark.parametrize("overwritten", [2, 3, 4])
def test_a_page_that_was_overwritten_is_refused(overwritten: int, tmp_path: Path) -> None:
    _fill(tmp_path, 50, size=2000)
    content = bytearray((tmp_path / FILE_NAME).read_bytes())
    first = overwritten * PAGE_BYTES
    content[first : first + PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    (tmp_path / FILE_NAME).write_bytes(content)
    _refused(tmp_path, DamagedJournal, "is damaged")


def test_damage_in_a_row_that_is_still_in_the_log_leaves_the_log_alone(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a")
    journal.append(2, 2, b"good")
    assert journal._connection is not None
    journal._connection.execute("UPDATE batch SET checksum = 0")
    (tmp_path / "b").mkdir()
    for name, content in _contents(tmp_path / "a").items():
        (tmp_path / "b" / name).write_bytes(content)
    journal.close()
    assert LOG in _contents(tmp_path / "b")
    _refused(tmp_path / "b", DamagedJournal, r"row 1 \(revision 2\)")


def test_damage_that_comes_later_is_found_when_rows_are_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(2, 2, b"good")
    journal.append(3, 3, b"bad")
    assert journal._connection is not None
    journal._connection.execute("UPDATE batch SET checksum = 0 WHERE id = 2")
    reading = journal.rows()
    assert next(reading) == BatchRow(2, 2, b"good")
    with pytest.raises(DamagedJournal, match="row 2"):
        next(reading)
    journal.close()


@pytest.mark.parametrize("suffix", LOG_SUFFIXES)
def test_a_log_without_its_database_is_refused(suffix: str, tmp_path: Path) -> None:
    (tmp_path / (FILE_NAME + suffix)).write_bytes(b"changes that were acknowledged")
    _refused(
        tmp_path, DamagedJournal, f"is missing, but its log {FILE_NAME}{suffix} still has changes"
    )


def test_a_journal_in_use_is_refused(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(DirectoryInUse, match="is already open in this process"):
        Journal(tmp_path)
    journal.append(2, 2, b"undisturbed")


def test_a_database_that_another_program_has_locked_is_refused(tmp_path: Path) -> None:
    _fill(tmp_path, 1)
    other = apsw.Connection(str(tmp_path / FILE_NAME))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DirectoryInUse, match="locked by another program"):
        Journal(tmp_path)
    other.close(force=True)
    Journal(tmp_path).close()


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        StorageError, match=re.escape(f"{tmp_path / 'file'} cannot be used as data directory")
    ):
        Journal(tmp_path / "file")


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StorageError, match=f"{FILE_NAME} cannot be opened: .*Is a directory"):
        Journal(tmp_path)


def test_a_vfs_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"vfs must be one of .*unix.*, not 'none-such'"):
        Journal(tmp_path / "data", vfs="none-such")
    assert not (tmp_path / "data").exists()


# Writes that fail


class FailingDisk(apsw.VFS):
    """A disk on which writes or syncs begin to fail."""

    def __init__(self) -> None:
        self.fails_at: str | None = None
        self.error: Exception = apsw.FullError("no space left")
        super().__init__("failing", "")

    def xOpen(  # noqa: N802
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> "FailingFile":
        return FailingFile(self, name, flags)

    def step(self, name: str) -> None:
        if self.fails_at == name:
            raise self.error


class FailingFile(apsw.VFSFile):
    """A file on it."""

    def __init__(
        self, disk: FailingDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.step("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.step("sync")
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    made = FailingDisk()
    yield made
    made.unregister()


@pytest.mark.parametrize("fails_at", ["write", "sync"])
@pytest.mark.parametrize("error", [apsw.FullError("no space left"), apsw.IOError("bad sector")])
@pytest.mark.parametrize(
    "use", [lambda journal: journal.append(3, 3, b"lost"), lambda journal: journal.checkpoint()]
)
def test_after_a_failed_write_the_journal_refuses_everything(
    fails_at: str,
    error: Exception,
    use: Callable[[Journal], None],
    disk: FailingDisk,
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path, vfs="failing")
    journal.append(2, 2, b"kept")
    disk.fails_at, disk.error = fails_at, error
    with pytest.raises(JournalFailed, match=f"could not be written .*{error}.* has space left"):
        use(journal)
    disk.fails_at = None
    for refused in (
        lambda: journal.append(3, 3, b""),
        journal.checkpoint,
        lambda: list(journal.rows()),
    ):
        with pytest.raises(JournalFailed, match=str(error)):
            refused()
    before = _contents(tmp_path)
    journal.close()
    assert _contents(tmp_path) == before, "closing a journal that has failed writes nothing"
    again = Journal(tmp_path)
    assert list(again.rows()) in (
        [BatchRow(2, 2, b"kept")],
        [BatchRow(2, 2, b"kept"), BatchRow(3, 3, b"lost")],
    )
    again.close()


@pytest.mark.parametrize("fails_at", ["write", "sync"])
def test_a_close_that_fails_says_so_and_loses_nothing(
    fails_at: str, disk: FailingDisk, tmp_path: Path
) -> None:
    journal = Journal(tmp_path, vfs="failing")
    journal.append(2, 2, b"kept")
    disk.fails_at = fails_at
    with pytest.raises(JournalFailed, match="no space left"):
        journal.close()
    journal.close()
    again = Journal(tmp_path)
    assert list(again.rows()) == [BatchRow(2, 2, b"kept")]
    again.close()


@pytest.mark.parametrize("fails_at", ["write", "sync"])
def test_an_opening_that_fails_lets_go_of_the_directory(
    fails_at: str, disk: FailingDisk, tmp_path: Path
) -> None:
    _fill(tmp_path, 3)
    disk.fails_at = fails_at
    with pytest.raises(StorageError, match="no space left"):
        Journal(tmp_path, vfs="failing")
    journal = Journal(tmp_path)
    assert len(list(journal.rows())) == 3
    journal.close()


# Closed


def test_a_closed_journal_refuses_everything(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    journal.close()
    for refused in (
        lambda: journal.append(2, 2, b""),
        journal.checkpoint,
        lambda: list(journal.rows()),
    ):
        with pytest.raises(Closed, match="was closed"):
            refused()


def test_the_log_has_its_full_length_from_the_start_and_keeps_it(tmp_path: Path) -> None:
    log = tmp_path / "leasehold.db-wal"
    journal = Journal(tmp_path)
    length = log.stat().st_size
    assert length >= CHECKPOINT_PAGES * PAGE_BYTES
    for revision in range(2, 30):
        journal.append(revision, revision, bytes(10_000))
    journal.checkpoint()
    journal.append(30, 30, b"after")
    assert log.stat().st_size == length
    shutil.copytree(tmp_path, killed := tmp_path.with_name("killed"))
    journal.close()
    again = Journal(killed)
    assert [row.last_revision for row in again.rows()] == list(range(2, 31))
    again.close()
